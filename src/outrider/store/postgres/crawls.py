"""The crawls of one transaction: each is an engine over what the verb loads, written at its end.

Verbs share a crawl: each holds a shared lock on its name. What concerns the crawl itself, such as
its status and rules, changes only under an exclusive lock: a verb that comes to such a change
without one is rolled back and runs again with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple, final

import msgspec

from outrider.core.order import NUMBER_MASK
from outrider.core.policy.rules import CrawlRules
from outrider.core.states import CrawlStatus
from outrider.store.engine.engine import CrawlEngine
from outrider.store.engine.leases import Leases
from outrider.store.engine.state import CrawlState
from outrider.store.postgres import sql
from outrider.store.postgres.fast_path import PostgresFastPath
from outrider.store.postgres.journal import Counters, PostgresJournal
from outrider.store.postgres.loader import PostgresLoader
from outrider.store.postgres.pipeline import Pipeline, Result, storable
from outrider.store.postgres.queues import PostgresQueues
from outrider.store.postgres.session import (
    LAST_QUEUE,
    LAST_TURN,
    NeedsExclusiveLock,
    Session,
)
from outrider.store.postgres.tasks import PostgresTasks
from outrider.store.postgres.writer import Writer
from outrider.store.protocol import Step

_encode = msgspec.json.Encoder(enc_hook=lambda _: "custom").encode
_decode_rules = msgspec.json.Decoder(dict[int, CrawlRules]).decode
_decode_timeline = msgspec.json.Decoder(list[tuple[float, str, str]]).decode
_decode_stored_rules = msgspec.json.Decoder(CrawlRules).decode

_NO_RULES: Final = {0: CrawlRules()}

# The tables with rows of a crawl, and the column that names it or has its ids, in the order in
# which a crawl is removed: readers never meet a row that names a deleted one.
_ROWS_OF_CRAWL: Final = {
    **dict.fromkeys(("lease", "ready", "inactive", "snooze"), "crawl"),
    "queue": "id",
    **dict.fromkeys(("pending", "delayed"), "queue"),
    "task": "id",
    **dict.fromkeys(
        (
            *("delta", "counter", "event", "published", "worker", "worker_total"),
            *("note", "root", "rules"),
        ),
        "crawl",
    ),
}


class CrawlRow(NamedTuple):
    """A row of `read_crawl`."""

    id: int
    status: str
    reason: str | None
    settings: str
    version: int
    epoch: int
    is_told: bool  # every queue has the crawl's current rules
    at_finish: bool
    is_idle: bool
    runs: int
    created_at: int
    first_at: int
    finished_at: int
    timeline: str  # JSON


_UNCREATED: Final = CrawlRow(0, "running", None, "", 0, 0, True, False, True, 0, 0, -1, -1, "[]")


class RulesCache:
    """The rules that were read, by crawl and version: they seldom change."""

    def __init__(self) -> None:
        self._rules: dict[int, tuple[int, dict[int, CrawlRules]]] = {}

    def read(self, pipeline: Pipeline, crawl: int, version: int) -> dict[int, CrawlRules]:
        """Return the rules of a crawl by epoch."""
        if not version:
            return _NO_RULES
        cached_version, rules = self._rules.get(crawl, (0, _NO_RULES))
        if cached_version != version:
            ((text,),) = pipeline.rows(sql.READ_RULES, (crawl, version))
            rules = _decode_rules(text)
            self._rules[crawl] = (version, rules)
        return rules


@final
class PostgresCrawl:
    """One crawl: its engine over the parts of this store; read from its row, and written back."""

    __slots__ = (
        "_journal",
        "_row",
        "_rules",
        "_was_by_turn",
        "_writer",
        "counters",
        "delta_count",
        "engine",
        "session",
    )

    def __init__(
        self, state: CrawlState, session: Session, journal: PostgresJournal, row: CrawlRow
    ) -> None:
        leases, self.counters = Leases(), Counters(session, state)
        queues = PostgresQueues(session, state)
        tasks = PostgresTasks(session, state, leases, queues, self.counters.load_totals)
        self._writer = writer = Writer(session, state, queues, tasks)
        fast_path = PostgresFastPath(session, state, queues)
        loader = PostgresLoader(session, state, queues, tasks, self.counters, fast_path, writer)
        self.engine = CrawlEngine(state, leases, tasks, queues, journal, loader, fast_path)
        queues.schedule = loader.schedule = self.engine.schedule
        self.session, self._journal, self._row = session, journal, row
        self._rules = _rules_identity(state)
        self._was_by_turn = state.by_turn
        self.delta_count = 0  # counters' differences appended

    def close(self) -> None:
        """Write what the verb changed: tasks and queues, then the crawl itself, then events."""
        session, state = self.session, self.engine.state
        if not session.writes:
            return
        pipeline, row = session.pipeline, _row_of(self._row, state)
        has_new_rules = _rules_identity(state) != self._rules
        has_new_order = state.by_turn != self._was_by_turn
        is_changed = row != self._row or has_new_rules or has_new_order
        if has_new_rules or row.status != self._row.status:
            session.wakes_waiters = True
        if is_changed and not session.is_exclusive:
            raise NeedsExclusiveLock
        if has_new_rules:
            row = row._replace(version=row.version + 1)
            self._write_rules(row.version)
        self._writer.write()
        if is_changed:
            crawl, *values = row
            pipeline.send(sql.UPDATE_CRAWL, (*map(_storable, values), crawl))
        if has_new_order:
            order = sql.ORDER_READY_BY_TURN if state.by_turn else sql.ORDER_READY_BY_PRIORITY
            pipeline.send(order, (session.crawl,))
        self.delta_count = self.counters.write()
        self._journal.write_events(state.events, state.last_event)
        if session.is_exclusive:
            self.counters.write_last_numbers()

    def _write_rules(self, version: int) -> None:
        session = self.session
        by_epoch = {str(epoch): rules for epoch, rules in self.engine.state.rules_by_epoch.items()}
        text = _encode(by_epoch).decode()
        session.pipeline.send(sql.INSERT_RULES, (session.crawl, version, text))
        session.pipeline.send(sql.DELETE_OLD_RULES, (session.crawl, version))


def _state_of(
    row: CrawlRow, name: str, store: str, rules: dict[int, CrawlRules], now: int
) -> CrawlState:
    """Return the state of a crawl, from its row."""
    state = CrawlState(name, store, rules[row.epoch], now, keeps_all_rules=True)
    state.epoch, state.rules_by_epoch = row.epoch, dict(rules)
    state.status, state.reason = CrawlStatus(row.status), row.reason
    state.settings, state.rules_applied = row.settings, row.is_told
    state.at_finish, state.is_idle, state.runs = row.at_finish, row.is_idle, row.runs
    state.created, state.started, state.finished = row.created_at, row.first_at, row.finished_at
    state.timeline = deque(_decode_timeline(row.timeline), state.timeline.maxlen)
    return state


def _row_of(row: CrawlRow, state: CrawlState) -> CrawlRow:
    """Return the row of a crawl, after a verb."""
    return row._replace(
        status=state.status.value,
        reason=state.reason,
        settings=state.settings,
        epoch=state.epoch,
        is_told=state.rules_applied,
        at_finish=state.at_finish,
        is_idle=state.is_idle,
        runs=state.runs,
        created_at=state.created,
        first_at=state.started,
        finished_at=state.finished,
        timeline=_encode(list(state.timeline)).decode(),
    )


def _rules_identity(state: CrawlState) -> dict[int, int]:
    """Return which rules a crawl has: rules are replaced, never changed."""
    return {epoch: id(rules) for epoch, rules in state.rules_by_epoch.items()}


def _storable(value: object) -> object:
    return storable(value) if isinstance(value, str) else value


@final
class PostgresCrawls:
    """See `port.Crawls`."""

    __slots__ = (
        "_by_name",
        "_clock",
        "_is_exclusive",
        "_now",
        "_opening",
        "_pipeline",
        "_reads",
        "_rules",
        "_store",
    )

    def __init__(
        self,
        store: str,
        pipeline: Pipeline,
        rules: RulesCache,
        *,
        clock: int | None,
        opening: Result,
        reads: bool,
        is_exclusive: bool,
    ) -> None:
        self._store, self._pipeline, self._rules = store, pipeline, rules
        self._clock, self._opening, self._now = clock, opening, -1
        self._reads, self._is_exclusive = reads, is_exclusive
        self._by_name: dict[str, PostgresCrawl] = {}

    # ---- the port

    def now(self) -> int:
        """See `port.Crawls`: when the transaction began, by the server's clock or a virtual one."""
        if self._now < 0:
            ((self._now, *_),) = self._opening.fetchall()
        return self._now

    def open(self, name: str) -> CrawlEngine:
        """See `port.Crawls`."""
        return (self._load(name) or self._create(name)).engine

    def existing(self, name: str) -> CrawlEngine | None:
        """See `port.Crawls`."""
        crawl = self._load(name)
        return None if crawl is None else crawl.engine

    def exists(self, name: str) -> bool:
        """See `port.Crawls`."""
        return self._load(name) is not None

    def reading(self, name: str, *, totals: bool = False) -> CrawlEngine:
        """See `port.Crawls`."""
        crawl = self._load(name) or self._uncreated(name)
        if totals:
            crawl.counters.load_totals()
            if self._reads:
                crawl.counters.load_task_counts()
        return crawl.engine

    def names(self) -> list[str]:
        """See `port.Crawls`."""
        return [name for (name,) in self._pipeline.rows(sql.CRAWL_NAMES)]

    def delete(self, name: str, limit: int) -> Step:
        """See `port.Crawls`: rows of one table after the other, at last the crawl's own row."""
        session, tasks, left = self._by_name[name].session, 0, limit
        if not session.is_exclusive:
            raise NeedsExclusiveLock
        for table, column in _ROWS_OF_CRAWL.items():
            deleted = self._delete_rows(session, table, column, left)
            tasks += deleted if table == "task" else 0
            left -= deleted
            if not left:
                return Step(tasks, 1)
        self._pipeline.send(sql.drop_sequences(session.crawl))
        self._pipeline.send(sql.DELETE_CRAWL, (session.crawl,))
        del self._by_name[name]  # nothing of it is written any more
        return Step(tasks, None)

    def _delete_rows(self, session: Session, table: str, column: str, limit: int) -> int:
        if column == "crawl":
            statement = sql.delete_rows_of_crawl(table)
            ((deleted,),) = self._pipeline.rows(statement, (session.crawl, limit))
        else:
            statement = sql.delete_rows_between(table, column)
            bounds = (session.base, session.base | NUMBER_MASK)
            ((deleted,),) = self._pipeline.rows(statement, (*bounds, limit))
        return int(deleted)

    def expiring(self) -> Iterable[CrawlEngine]:
        """See `port.Crawls`."""
        found = self._pipeline.rows(sql.CRAWLS_WITH_OVERDUE_LEASES, (self._clock,))
        return [self.open(name) for (name,) in found]

    def as_stored(self, rules: CrawlRules) -> CrawlRules:
        """See `port.Crawls`: a custom cost function is not stored."""
        return _decode_stored_rules(_encode(rules))

    # ---- loading

    def _load(self, name: str) -> PostgresCrawl | None:
        crawl = self._by_name.get(name)
        if crawl is None:
            if not self._reads:
                lock = sql.LOCK_EXCLUSIVE if self._is_exclusive else sql.LOCK_SHARED
                self._pipeline.send(lock, (self._lock("crawl", name),))
            found = self._pipeline.rows(sql.READ_CRAWL, (storable(name),))
            if found:
                crawl = self._by_name[name] = self._new(name, CrawlRow(*found[0]))
        return crawl

    def _new(self, name: str, row: CrawlRow) -> PostgresCrawl:
        rules = self._rules.read(self._pipeline, row.id, row.version)
        state = _state_of(row, name, self._store, rules, self.now())
        state.last_queue, state.last_turn = LAST_QUEUE, LAST_TURN
        crawl = self._assemble(state, row)
        state.count_offset = state.last_task
        if self._reads or self._is_exclusive:
            crawl.counters.load_last_numbers()
        return crawl

    def _assemble(self, state: CrawlState, row: CrawlRow) -> PostgresCrawl:
        session = Session(
            self._pipeline,
            row.id,
            self.now(),
            clock=self._clock,
            writes=bool(row.id) and not self._reads,
            is_exclusive=self._is_exclusive,
        )
        journal = PostgresJournal(session, lambda what: self._lock(what, state.name))
        return PostgresCrawl(state, session, journal, row)

    def _uncreated(self, name: str) -> PostgresCrawl:
        """Return a crawl that has no row, to read it."""
        row = _UNCREATED._replace(created_at=self.now())
        state = _state_of(row, name, self._store, _NO_RULES, self.now())
        crawl = self._assemble(state, row)
        state.last_task = 0
        return crawl

    def _create(self, name: str) -> PostgresCrawl:
        """I1: create a crawl; only while no other transaction can do the same."""
        if not self._is_exclusive:
            raise NeedsExclusiveLock
        ((crawl,),) = self._pipeline.rows(sql.INSERT_CRAWL, (storable(name), self.now()))
        for sequence in sql.SEQUENCES:
            self._pipeline.send(sql.create_sequence(f"{sequence}_{crawl}"))
        (row,) = self._pipeline.rows(sql.READ_CRAWL, (storable(name),))
        created = self._by_name[name] = self._new(name, CrawlRow(*row))
        return created

    def _lock(self, what: str, name: str) -> int:
        """Return the number of an advisory lock."""
        text = f"{self._store} {what} {name}".encode(errors="replace")
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)

    # ---- the end of the transaction

    def close(self) -> int:
        """Write all crawls; return how many differences of counters were appended."""
        for crawl in self._by_name.values():
            crawl.close()
        return sum(crawl.delta_count for crawl in self._by_name.values())

    def to_notify(self) -> list[str]:
        """Return the crawls in which a claim that waits could be served earlier than it expects."""
        return [name for name, crawl in self._by_name.items() if crawl.session.wakes_waiters]

    def counted(self) -> list[tuple[int, int]]:
        """Return the crawls whose counters changed, with the lock for adding them up."""
        return [
            (crawl.session.crawl, self._lock("fold", name))
            for name, crawl in self._by_name.items()
            if crawl.delta_count
        ]
