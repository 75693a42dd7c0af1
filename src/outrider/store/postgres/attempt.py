"""One attempt at a verb: `Verbs` over the crawls of one transaction, kept as a whole or undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from outrider.clock import Clock, to_ms
from outrider.core.order import NUMBER_BITS, NUMBER_MASK
from outrider.core.policy.rules import CrawlRules
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import LeaseId
from outrider.core.verdict import Finished, Verdict
from outrider.store.heads import views
from outrider.store.heads.crawl import Crawl
from outrider.store.heads.records import Record
from outrider.store.heads.saving import saved_page
from outrider.store.heads.verbs import Verbs
from outrider.store.heads.workers import Heard, views_of
from outrider.store.postgres import sql
from outrider.store.postgres.arrays import number_array, storable
from outrider.store.postgres.crawl import (
    NO_RULES,
    NeedsWhole,
    ServerCrawl,
    plain_rules,
    rulebook_of,
)
from outrider.store.postgres.noting import Notebook
from outrider.store.postgres.pipeline import Pipeline, Result
from outrider.store.protocol import (
    MAX_WORKERS,
    WORKER_KEPT_SECONDS,
    CrawlView,
    Heartbeat,
    Heat,
    QueuePosition,
    ResultPage,
    SharedValue,
    SharedValueWrite,
    Step,
    StoreEvent,
    TaskFilter,
    WorkerView,
)

T = TypeVar("T")


class Rulebooks:
    """What rules were read, by crawl and version: they seldom change."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, dict[int, CrawlRules]]] = {}

    def read(self, wire: Pipeline, crawl: int, version: int) -> dict[int, CrawlRules]:
        """The rules of a crawl by epoch."""
        if not version:
            return NO_RULES
        known = self._kept.get(crawl)
        if known is None or known[0] != version:
            ((text,),) = wire.rows(sql.READ_RULES, (crawl, version))
            known = self._kept[crawl] = (version, rulebook_of(text))
        return known[1]


class Attempt(Verbs):
    """The verbs in one transaction."""

    def __init__(  # noqa: PLR0913 - all it stands on
        self,
        store: str,
        clock: Clock,
        wire: Pipeline,
        rulebooks: Rulebooks,
        *,
        time: int | None,
        opening: Result,
        reads: bool,
        holds: bool,
    ) -> None:
        super().__init__(store, clock)
        self._wire, self._rulebooks = wire, rulebooks
        self._time, self._opening = time, opening
        self._instant = -1
        self._reads, self._holds = reads, holds

    def _now(self) -> int:
        """When the transaction began, by the server's clock or the one that is made up."""
        if self._instant < 0:
            ((self._instant, *_),) = self._opening.fetchall()
        return self._instant

    # ---- crawls

    def _new_crawl(self, name: str) -> Crawl:
        """To read: of a crawl nobody opened no row tells."""
        crawl = ServerCrawl(name, self.id, NO_RULES, 0, self._now())
        crawl.attach(0, self._wire, writes=False)
        crawl.count = crawl.queue_count = crawl.counter = crawl.arrivals = 0
        return crawl

    def _crawl(self, name: str) -> ServerCrawl:
        crawl = self._crawls.get(name)
        if crawl is None:
            crawl = self._crawls[name] = self._opened(name) or self._created(name)
        return crawl  # type: ignore[return-value] # all of ours are

    def _seen(self, name: str) -> ServerCrawl:
        crawl = self._crawls.get(name)
        if crawl is None:
            opened = self._opened(name)
            crawl = opened or self._new_crawl(name)
            if opened is not None:
                self._crawls[name] = crawl
        return crawl  # type: ignore[return-value] # as above

    def _opened(self, name: str) -> ServerCrawl | None:
        if not self._reads:
            self._wire.send(
                sql.LOCK_EXCLUSIVE if self._holds else sql.LOCK_SHARED, (self._key("crawl", name),)
            )
        found = self._wire.rows(sql.READ_CRAWL, (storable(name),))
        return self._made(name, found[0]) if found else None

    def _made(self, name: str, row: tuple[Any, ...]) -> ServerCrawl:
        rulebook = self._rulebooks.read(self._wire, row[0], row[4])
        crawl = ServerCrawl(name, self.id, rulebook, row[5], self._now())
        crawl.attach(row[0], self._wire, writes=not self._reads)
        crawl.is_held, crawl.clock = self._holds, self._time
        crawl.events_key = self._key("events", name)
        crawl.recall(row)
        if self._reads or self._holds:
            crawl.learn_last()
        return crawl

    def _created(self, name: str) -> ServerCrawl:
        """I1; only while nobody else can do the same."""
        if not self._holds:
            raise NeedsWhole
        ((number,),) = self._wire.rows(sql.INSERT_CRAWL, (storable(name), self._now()))
        for sequence in sql.SEQUENCES:
            self._wire.send(sql.create_sequence(f"{sequence}_{number}"))
        return self._made(name, self._wire.rows(sql.READ_CRAWL, (storable(name),))[0])

    def _key(self, what: str, name: str) -> int:
        """What an advisory lock is known by."""
        text = f"{self.id} {what} {name}".encode(errors="replace")
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)

    def close_all(self) -> int:
        """Hand in what all crawls came to; how many rows of counters that were."""
        count = 0
        for crawl in self._crawls.values():
            assert isinstance(crawl, ServerCrawl)  # noqa: S101 - all of ours are
            crawl.close()
            count += crawl.delta_count
        return count

    def stirred(self) -> list[str]:
        """The crawls in which something can be claimed sooner than it was told."""
        return [name for name, crawl in self._crawls.items() if _is_stirred(crawl)]

    def counted(self) -> list[tuple[int, int]]:
        """The crawls whose counters were added to, and what folding them is locked by."""
        found = [crawl for crawl in self._crawls.values() if isinstance(crawl, ServerCrawl)]
        return [(crawl.id, self._key("fold", crawl.name)) for crawl in found if crawl.delta_count]

    # ---- Store

    def _finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        ended: set[LeaseId] = set()
        for name in sorted({verdict.crawl for verdict in verdicts}):
            ended |= self._end(name, [verdict for verdict in verdicts if verdict.crawl == name])
        crawls, now = self._crawls, self._now()
        return [
            Finished(True, verdict.state)
            if LeaseId(verdict.crawl, verdict.task, verdict.token) in ended
            else crawls[verdict.crawl].finish(verdict, now)
            for verdict in verdicts
        ]

    def _end(self, name: str, verdicts: list[Verdict]) -> set[LeaseId]:
        """What is routine of these has ended; all else is at hand."""
        crawl = self._crawl(name)
        ended = crawl.end(verdicts, self._now())
        rest = [verdict for verdict in verdicts if (verdict.task, verdict.token) not in ended]
        if rest:
            crawl.expect_ends([one.task for one in rest], [t for one in rest for t in one.tasks])
        return {LeaseId(name, *lease) for lease in ended}

    def _leased(self, leases: Sequence[LeaseId]) -> Iterator[tuple[LeaseId, Crawl, Record]]:
        for name in sorted({lease.crawl for lease in leases}):
            if self._opened_before(name):
                numbers = [lease.task for lease in leases if lease.crawl == name]
                self._crawl(name).load_for(_sound(numbers), set())
        return super()._leased(leases)

    def _opened_before(self, name: str) -> bool:
        """Whether there is such a crawl; whoever asks does not open it."""
        if name not in self._crawls:
            opened = self._opened(name)
            if opened is not None:
                self._crawls[name] = opened
        return name in self._crawls

    def _extend(self, leases: Sequence[LeaseId], lease_for: float) -> set[LeaseId]:
        """H2: no queue is asked; a renewal that is lost ends as if it had not been asked for."""
        self._wire.send(sql.COMMIT_LAZILY)
        kept_: set[LeaseId] = set()
        for name in sorted({lease.crawl for lease in leases}):
            if self._opened_before(name):
                mine = [lease for lease in leases if lease.crawl == name]
                kept_ |= self._extend_in(self._crawl(name), mine, lease_for)
        return kept_

    def _extend_in(
        self, crawl: ServerCrawl, leases: list[LeaseId], lease_for: float
    ) -> set[LeaseId]:
        if crawl.status is CrawlStatus.CANCELLED:
            return set()
        sound = [(number.task, number.token) for number in leases if _is_sound(number)]
        tasks, tokens = [crawl.base | task for task, _ in sound], [token for _, token in sound]
        params = (number_array(tasks), number_array(tokens), self._now() + to_ms(lease_for))
        found = self._wire.rows(sql.EXTEND_LEASES, params)
        return {LeaseId(crawl.name, task & NUMBER_MASK, token) for task, token in found}

    def _expire(self, limit: int) -> int:
        for (name,) in self._wire.rows(sql.CRAWLS_WITH_OVERDUE_LEASES, (self._time,)):
            self._crawl(name)
        return super()._expire(limit)

    # ---- Admin

    def _configure(self, name: str, rules: CrawlRules, settings: str) -> bool:
        """Rules are compared as they are kept."""
        return super()._configure(name, plain_rules(rules), settings)

    def _each(
        self,
        name: str,
        which: TaskFilter,
        state: TaskState,
        act: Callable[[Crawl, Record, int], None],
        step: tuple[bool, int, int],
    ) -> Step:
        self._crawl(name).learn_last()
        return super()._each(name, which, state, act, step)

    def _restore(self, name: str, saved: Sequence[Any]) -> int | str:
        self._seen(name).load_totals()
        return super()._restore(name, saved)

    async def heartbeat(self, crawl: str, heartbeat: Heartbeat) -> None:
        """See `protocol.Admin`."""
        number, now = self._crawl(crawl).id, self._now()
        told = [
            storable(v) if isinstance(v, str) else v for v in msgspec.structs.astuple(heartbeat)
        ]
        self._wire.send(
            sql.WRITE_HEARTBEAT, (number, *told, now, now, int(WORKER_KEPT_SECONDS * 1000))
        )
        self._wire.send(sql.DELETE_OLD_WORKERS, (number, number, MAX_WORKERS))

    def _note(self, crawl: Crawl, notes: Sequence[SharedValueWrite]) -> list[int]:
        assert isinstance(crawl, ServerCrawl)  # noqa: S101 - all of ours are
        book = Notebook(self._wire, crawl.id)
        crawl.notes = book.open_at(notes, self._key("notes", crawl.name))
        numbers = super()._note(crawl, notes)
        book.write(crawl.notes)
        return numbers

    # ---- Inspect

    async def crawls(self) -> list[str]:
        """See `protocol.Inspect`."""
        return [name for (name,) in self._wire.rows(sql.CRAWL_NAMES)]

    def _counted(self, name: str) -> ServerCrawl:
        crawl = self._seen(name)
        crawl.load_totals()
        crawl.load_kinds()
        return crawl

    async def crawl(self, crawl: str) -> CrawlView:
        """See `protocol.Inspect`."""
        counted = self._counted(crawl)
        return msgspec.structs.replace(views.crawl_view(counted), known=counted.known_count)

    async def heatmap(self, crawl: str) -> Heat:
        """See `protocol.Inspect`."""
        return views.heat_of(self._counted(crawl), self._now())

    def _place(self, crawl: Crawl, number: int) -> QueuePosition:
        assert isinstance(crawl, ServerCrawl)  # noqa: S101 - all of ours are
        return views.place_of(crawl, crawl.shown_whole(number), self._now())

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        """See `protocol.Inspect`."""
        found = self._wire.rows(sql.READ_ROOTS, (self._seen(crawl).id, storable(mode), after))
        return [root for (root,) in found]

    async def workers(self, crawl: str) -> list[WorkerView]:
        """See `protocol.Inspect`."""
        now, seen = self._now(), self._seen(crawl).id
        heard = [
            Heard(Heartbeat(*row[:8]), *row[8:])
            for row in self._wire.rows(sql.READ_WORKERS, (seen,))
        ]
        return views_of(heard, now)

    async def values_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[SharedValue]:
        """See `protocol.Inspect`."""
        return Notebook(self._wire, self._seen(crawl).id).since(after, limit)

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[Any]:
        """See `protocol.Inspect`."""
        seen, told = self._seen(crawl), after >> 32
        seen.writes = False
        seen.load_totals()
        seen.load_leases(q.number for q in seen.glimpses(range(told + 1, told + limit + 2)))
        if not after:
            seen.load_roots()
        return saved_page(seen, after, limit, self._now())

    def _changes(self, crawl: Crawl, after: int, limit: int) -> list[StoreEvent]:
        assert isinstance(crawl, ServerCrawl)  # noqa: S101 - all of ours are
        found = self._wire.rows(sql.EVENTS_SINCE, (crawl.id, after, limit))
        return [StoreEvent(sequence, at / 1000, *words) for sequence, at, *words in found]


def _is_stirred(crawl: Crawl) -> bool:
    return isinstance(crawl, ServerCrawl) and crawl.stirs


def _is_sound(lease: LeaseId) -> bool:
    return 0 < lease.task < 1 << NUMBER_BITS and 0 < lease.token < 1 << 62


def _sound(numbers: Sequence[int]) -> list[int]:
    return [number for number in numbers if 0 < number < 1 << NUMBER_BITS]
