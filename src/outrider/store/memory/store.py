"""The memory store's verbs: nothing is awaited inside one, so each is atomic by itself."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import msgspec

from outrider.clock import Clock
from outrider.core.act import Act
from outrider.core.policy.rules import CrawlRules
from outrider.core.states import TURNS, CrawlStatus, QueueState, TaskState
from outrider.core.task import Added, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.store.memory import operate, views
from outrider.store.memory.crawl import Crawl
from outrider.store.memory.records import CHUNK_BITS, Record
from outrider.store.protocol import (
    Change,
    Claimed,
    ClaimRequest,
    CrawlView,
    Heat,
    Page,
    Place,
    QueueView,
    Step,
    TaskView,
    Which,
)


class MemoryStore:
    """Store, Admin and Inspect over plain Python; the measure of every other store."""

    def __init__(self, clock: Clock) -> None:
        self.id = uuid.uuid4().hex
        self.is_inline = True
        self._clock = clock
        self._last = 0
        self._crawls: dict[str, Crawl] = {}

    async def close(self) -> None:
        """Nothing to let go of."""

    def _now(self) -> int:
        """H7: a clock stepping back counts as no time."""
        self._last = max(self._last, self._clock.now_ms())
        return self._last

    def _crawl(self, name: str) -> Crawl:
        """I1: created by the first add, or by name."""
        crawl = self._crawls.get(name)
        if crawl is None:
            crawl = self._crawls[name] = Crawl(name, self.id, CrawlRules(), self._now())
        return crawl

    def _seen(self, name: str) -> Crawl:
        """To read: a crawl nobody opened is an empty one, and reading does not open it."""
        return self._crawls.get(name) or Crawl(name, self.id, CrawlRules(), self._now())

    # ---- Store

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """See `protocol.Store`."""
        now = self._now()
        if len({task.crawl for task in tasks}) == 1:
            return self._add_to(tasks[0].crawl, list(tasks), now)
        names = dict.fromkeys(task.crawl for task in tasks)
        by_crawl = {
            n: iter(self._add_to(n, [t for t in tasks if t.crawl == n], now)) for n in names
        }
        return [next(by_crawl[task.crawl]) for task in tasks]

    def _add_to(self, name: str, tasks: list[Task], now: int) -> list[Added]:
        crawl = self._crawl(name)
        answers = crawl.add(tasks, now)
        crawl.check_limits(now)
        return answers

    async def claim(self, request: ClaimRequest) -> Claimed:
        """See `protocol.Store`."""
        return self._crawl(request.crawl).claim(request, self._now())

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """See `protocol.Store`."""
        now, kept = self._now(), set()
        for lease, crawl, record in self._leased(leases):
            crawl.extend(record, lease_for, now)
            kept.add(lease)
        return kept

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """See `protocol.Store`."""
        now = self._now()
        return [self._crawl(verdict.crawl).finish(verdict, now) for verdict in verdicts]

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """See `protocol.Store`."""
        now, freed = self._now(), set()
        for lease, crawl, record in self._leased(leases):
            crawl.release(record, now)
            freed.add(lease)
        return freed

    async def expire(self, *, limit: int) -> int:
        """See `protocol.Store`."""
        now, count = self._now(), 0
        for crawl in self._crawls.values():
            count += crawl.take_back(limit - count, now)
        return count

    def _leased(self, leases: Sequence[LeaseId]) -> Iterator[tuple[LeaseId, Crawl, Record]]:
        for lease in leases:
            crawl = self._crawls.get(lease.crawl)
            record = crawl.held_by(lease.task, lease.token) if crawl else None
            if crawl and record and record.state is TaskState.LEASED:
                yield lease, crawl, record

    # ---- Admin

    async def configure(self, crawl: str, rules: CrawlRules) -> bool:
        """See `protocol.Admin`."""
        is_known = crawl in self._crawls
        found = self._crawl(crawl)
        new = msgspec.structs.replace(rules, runtime=found.rules.runtime)
        changed = is_known and new != found.rules
        found.obey(new)
        return changed

    async def steer(
        self, crawl: str, target: str, act: Act, *, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        found = self._crawl(crawl)
        return operate.steer(found, target, act, self._now(), after=after, limit=limit)

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        """See `protocol.Admin`."""
        self._crawl(crawl).roots.setdefault(mode, {}).update(dict.fromkeys(roots))

    async def turn(self, crawl: str, status: CrawlStatus, reason: str = "operator") -> CrawlStatus:
        """See `protocol.Admin`."""
        found = self._crawl(crawl)
        if status in TURNS[found.status]:
            found.move_to(status, reason, self._now())
        return found.status

    async def drop(
        self, crawl: str, which: Which, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        found, now = self._crawl(crawl), self._now()
        return self._each(
            found, which, TaskState.PENDING, lambda r: found.drop(r, now), dry_run, after, limit
        )

    async def replay(
        self, crawl: str, which: Which, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        found, now = self._crawl(crawl), self._now()
        return self._each(
            found, which, TaskState.DEAD, lambda r: found.replay(r, now), dry_run, after, limit
        )

    async def purge(
        self, crawl: str, which: Which, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        found = self._crawl(crawl)
        return self._each(found, which, TaskState.DEAD, found.purge, dry_run, after, limit)

    def _each(
        self,
        crawl: Crawl,
        which: Which,
        state: TaskState,
        act: Callable[[Record], None],
        dry_run: bool,
        after: int,
        limit: int,
    ) -> Step:
        wanted = None if dry_run else act
        return operate.each(crawl, which, state, wanted, self._now(), after=after, limit=limit)

    # ---- Inspect

    async def crawls(self) -> list[str]:
        """See `protocol.Inspect`."""
        return list(self._crawls)

    async def crawl(self, crawl: str) -> CrawlView:
        """See `protocol.Inspect`."""
        return views.crawl_view(self._seen(crawl))

    async def census(self, crawl: str, *, after: int = 0, limit: int = 1000) -> Page:
        """See `protocol.Inspect`."""
        found, now = self._seen(crawl), self._now()
        upto = min(after + limit, found.queue_count)
        queues = (found.queues[n >> CHUNK_BITS][n] for n in range(after + 1, upto + 1))
        states: list[QueueState] = [views.state_of(found, queue, now)[0] for queue in queues]
        return Page(states, upto if upto < found.queue_count else None)

    async def queue(self, crawl: str, key: str) -> QueueView:
        """See `protocol.Inspect`."""
        found, now = self._seen(crawl), self._now()
        queue = found.queue(key)
        if queue is None:
            return views.unborn_view(found, key, now)
        return views.queue_view(found, queue, now)

    async def queues(self, crawl: str, *, after: int = 0, limit: int = 1000) -> Page:
        """See `protocol.Inspect`."""
        found, now = self._seen(crawl), self._now()
        upto = min(after + limit, found.queue_count)
        queues = (found.queues[n >> CHUNK_BITS][n] for n in range(after + 1, upto + 1))
        page = [views.queue_view(found, queue, now) for queue in queues]
        return Page(page, upto if upto < found.queue_count else None)

    async def tasks(self, crawl: str, which: Which, *, after: int = 0, limit: int = 1000) -> Page:
        """See `protocol.Inspect`."""
        found = self._seen(crawl)
        upto, fits = min(after + limit, found.count), operate.matcher(found, which, self._now())
        records = (found.tasks[n >> CHUNK_BITS][n] for n in range(after + 1, upto + 1))
        chosen = [
            views.task_view(found, record)
            for record in records
            if which.state in (None, views.reads_as(found, record)[0]) and fits(record)
        ]
        return Page(chosen, upto if upto < found.count else None)

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        """See `protocol.Inspect`."""
        found = self._seen(crawl)
        record = found.find(fingerprint)
        return None if record is None else views.task_view(found, record)

    async def place(self, crawl: str, number: int) -> Place:
        """See `protocol.Inspect`."""
        found = self._seen(crawl)
        record = found.tasks[number >> CHUNK_BITS][number]
        return views.place_of(found, record, self._now())

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        """See `protocol.Inspect`."""
        return list(islice(self._seen(crawl).roots.get(mode, ()), after, None))

    async def heatmap(self, crawl: str) -> Heat:
        """See `protocol.Inspect`."""
        return views.heat_of(self._seen(crawl), self._now())

    async def changes(self, crawl: str, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """See `protocol.Inspect`."""
        log = [entry for entry in self._seen(crawl).log if entry[0] > after][:limit]
        return [Change(sequence, at / 1000, *rest) for sequence, at, *rest in log]
