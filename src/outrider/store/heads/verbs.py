"""The verbs over heads in memory: nothing is awaited inside one, so each is atomic by itself.

A store that writes says in `_run` how what a verb changed is kept before it is answered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from outrider.clock import Clock
from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import QueueAction
from outrider.core.states import OPERATOR_MOVES, CrawlStatus, QueueState, TaskState
from outrider.core.task import Added, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.errors import InvalidInput
from outrider.store.export_items import Saved, validate_items
from outrider.store.heads import operate, views
from outrider.store.heads.crawl import Crawl
from outrider.store.heads.records import Queue, Record
from outrider.store.heads.saving import saved_page
from outrider.store.protocol import (
    ClaimRequest,
    ClaimResult,
    CrawlView,
    Heartbeat,
    Heat,
    Pending,
    PriorityUpdate,
    QueuePosition,
    QueueView,
    ResultPage,
    SharedValue,
    SharedValueWrite,
    Step,
    StoreEvent,
    TaskFilter,
    TaskView,
    Upcoming,
    WorkerView,
)
from outrider.store.validation import validate_priority_updates, validate_shared_values

T = TypeVar("T")
_ANY: Final = TaskFilter()

PENDING = TaskState.PENDING


class Verbs(ABC):
    """Store, Admin and Inspect over crawls whose heads are in memory."""

    is_inline = True

    def __init__(self, store_id: str, clock: Clock) -> None:
        self.id = store_id
        self._clock = clock
        self._last = 0
        self._crawls: dict[str, Crawl] = {}

    @abstractmethod
    def _new_crawl(self, name: str) -> Crawl:
        """A crawl as it is born."""

    async def _run(self, work: Callable[[], T]) -> T:
        """Do it; whatever it changed is kept when this returns."""
        return work()

    def _now(self) -> int:
        """H7: a clock stepping back counts as no time."""
        self._last = max(self._last, self._clock.now_ms())
        return self._last

    def _crawl(self, name: str) -> Crawl:
        """I1: created by the first add, or by name."""
        crawl = self._crawls.get(name)
        if crawl is None:
            crawl = self._crawls[name] = self._new_crawl(name)
        return crawl

    def _seen(self, name: str) -> Crawl:
        """To read: a crawl nobody opened is an empty one, and reading does not open it."""
        return self._crawls.get(name) or self._new_crawl(name)

    # ---- Store

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """See `protocol.Store`."""
        return await self._run(lambda: self._add(tasks))

    def _add(self, tasks: Sequence[Task]) -> list[Added]:
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
        crawl.expect(tasks)
        answers = crawl.add(tasks, now)
        crawl.check_limits(now)
        return answers

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """See `protocol.Store`."""
        return await self._run(lambda: self._crawl(request.crawl).claim(request, self._now()))

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """See `protocol.Store`."""
        return await self._run(lambda: self._extend(leases, lease_for))

    def _extend(self, leases: Sequence[LeaseId], lease_for: float) -> set[LeaseId]:
        now, kept = self._now(), set()
        for lease, crawl, record in self._leased(leases):
            crawl.extend(record, lease_for, now)
            kept.add(lease)
        return kept

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """See `protocol.Store`."""
        return await self._run(lambda: self._finish(verdicts))

    def _finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        now = self._now()
        for name in {verdict.crawl for verdict in verdicts}:
            found = [v.tasks for v in verdicts if v.tasks and v.crawl == name]
            self._crawl(name).expect([task for tasks in found for task in tasks])
        return [self._crawl(verdict.crawl).finish(verdict, now) for verdict in verdicts]

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """See `protocol.Store`."""
        return await self._run(lambda: self._release(leases))

    def _release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        now, freed = self._now(), set()
        for lease, crawl, record in self._leased(leases):
            crawl.release(record, now)
            freed.add(lease)
        return freed

    async def expire(self, *, limit: int) -> int:
        """See `protocol.Store`."""
        return await self._run(lambda: self._expire(limit))

    def _expire(self, limit: int) -> int:
        now, count = self._now(), 0
        for name in self._crawls:
            count += self._crawl(name).take_back(limit - count, now)
        return count

    def _leased(self, leases: Sequence[LeaseId]) -> Iterator[tuple[LeaseId, Crawl, Record]]:
        for lease in leases:
            crawl = self._crawl(lease.crawl) if lease.crawl in self._crawls else None
            record = crawl.held_by(lease.task, lease.token) if crawl else None
            if crawl and record:
                yield lease, crawl, record

    # ---- Admin

    async def configure(self, crawl: str, rules: CrawlRules, settings: str = "") -> bool:
        """See `protocol.Admin`."""
        return await self._run(lambda: self._configure(crawl, rules, settings))

    def _configure(self, name: str, rules: CrawlRules, settings: str) -> bool:
        crawl = self._crawl(name)
        crawl.settings = settings or crawl.settings
        crawl.configure(msgspec.structs.replace(rules, runtime=crawl.rules.runtime))
        return not crawl.is_told

    async def steer(
        self, crawl: str, target: str, act: QueueAction, *, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._run(
            lambda: operate.steer(
                self._crawl(crawl), target, act, self._now(), after=after, limit=limit
            )
        )

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        """See `protocol.Admin`."""
        await self._run(lambda: self._crawl(crawl).add_roots(mode, roots))

    async def set_status(
        self, crawl: str, status: CrawlStatus, reason: str = "operator"
    ) -> CrawlStatus:
        """See `protocol.Admin`."""
        return await self._run(lambda: self._turn(self._crawl(crawl), status, reason))

    def _turn(self, crawl: Crawl, status: CrawlStatus, reason: str) -> CrawlStatus:
        if status in OPERATOR_MOVES[crawl.status]:
            crawl.move_to(status, reason, self._now())
        return crawl.status

    async def drop(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        pending, step = TaskState.PENDING, (dry_run, after, limit)
        return await self._run(lambda: self._each(crawl, which, pending, Crawl.drop, step))

    async def replay(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        dead, step = TaskState.DEAD, (dry_run, after, limit)
        return await self._run(lambda: self._each(crawl, which, dead, Crawl.replay, step))

    async def purge(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        dead, step = TaskState.DEAD, (dry_run, after, limit)
        return await self._run(lambda: self._each(crawl, which, dead, Crawl.purge, step))

    def _each(
        self,
        name: str,
        which: TaskFilter,
        state: TaskState,
        act: Callable[[Crawl, Record, int], None],
        step: tuple[bool, int, int],
    ) -> Step:
        crawl, now, (dry_run, after, limit) = self._crawl(name), self._now(), step
        wanted = None if dry_run else lambda record: act(crawl, record, now)
        return operate.each(crawl, which, state, wanted, now, after=after, limit=limit)

    async def put_values(self, crawl: str, values: Sequence[SharedValueWrite]) -> list[int]:
        """See `protocol.Admin`."""
        validate_shared_values(values)
        return await self._run(lambda: self._note(self._crawl(crawl), values))

    def _note(self, crawl: Crawl, notes: Sequence[SharedValueWrite]) -> list[int]:
        now = self._now()
        return [crawl.notes.write(note, now) for note in notes]

    async def update_priorities(self, crawl: str, updates: Sequence[PriorityUpdate]) -> int:
        """See `protocol.Admin`."""
        validate_priority_updates(updates)
        return await self._run(lambda: self._crawl(crawl).reprice(updates, self._now()))

    async def heartbeat(self, crawl: str, heartbeat: Heartbeat) -> None:
        """See `protocol.Admin`."""
        await self._run(lambda: self._crawl(crawl).workers.hear(heartbeat, self._now()))

    async def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        """See `protocol.Admin`."""
        validate_items(saved)
        answer = await self._run(lambda: self._restore(crawl, saved) if saved else 0)
        if isinstance(answer, str):
            raise InvalidInput(answer)
        return answer

    def _restore(self, name: str, saved: Sequence[Saved]) -> int | str:
        """The count, or why nothing was done: a refusal is no reason to doubt the memory."""
        refusal = self._seen(name).refusal(saved)
        return self._crawl(name).restore(saved, self._now()) if refusal is None else refusal

    # ---- Inspect

    async def crawls(self) -> list[str]:
        """See `protocol.Inspect`."""
        return await self._run(lambda: list(self._crawls))

    async def crawl(self, crawl: str) -> CrawlView:
        """See `protocol.Inspect`."""
        return await self._run(lambda: views.crawl_view(self._seen(crawl)))

    async def queue_states(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueState]:
        """See `protocol.Inspect`."""
        return await self._run(lambda: self._page(crawl, after, limit, _state_of))

    async def queues(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueView]:
        """See `protocol.Inspect`."""
        return await self._run(lambda: self._page(crawl, after, limit, views.queue_view))

    def _page(
        self, name: str, after: int, limit: int, show: Callable[[Crawl, Queue, int], object]
    ) -> ResultPage[Any]:
        crawl, now = self._seen(name), self._now()
        upto = min(after + limit, crawl.queue_count)
        page = [show(crawl, queue, now) for queue in crawl.glimpses(range(after + 1, upto + 1))]
        return ResultPage(page, upto if upto < crawl.queue_count else None)

    async def queue(self, crawl: str, key: str) -> QueueView:
        """See `protocol.Inspect`."""
        return await self._run(lambda: self._queue_view(self._seen(crawl), key))

    def _queue_view(self, crawl: Crawl, key: str) -> QueueView:
        queue, now = crawl.queue(key), self._now()
        if queue is None:
            return views.unborn_view(crawl, key, now)
        return views.queue_view(crawl, queue, now)

    async def tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[TaskView]:
        """See `protocol.Inspect`."""
        return await self._run(lambda: self._task_page(self._seen(crawl), which, after, limit))

    def _task_page(
        self, crawl: Crawl, which: TaskFilter, after: int, limit: int
    ) -> ResultPage[Any]:
        upto, fits = min(after + limit, crawl.count), operate.matcher(crawl, which, self._now())
        chosen = [
            views.task_view(crawl, record)
            for record in crawl.seen(self._numbers(crawl, which, range(after + 1, upto + 1)))
            if which.state in (None, views.reads_as(crawl, record)[0]) and fits(record)
        ]
        return ResultPage(chosen, upto if upto < crawl.count else None)

    def _numbers(self, crawl: Crawl, which: TaskFilter, numbers: range) -> Iterable[int]:
        """Which of them are worth a look; a cancelled crawl's tasks read otherwise (I3)."""
        if which.state is None or crawl.status is CrawlStatus.CANCELLED:
            return numbers
        return crawl.of_state(numbers, which.state)

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        """See `protocol.Inspect`."""
        return await self._run(lambda: self._task_view(self._seen(crawl), fingerprint))

    def _task_view(self, crawl: Crawl, fingerprint: bytes) -> TaskView | None:
        number = crawl.find(fingerprint)
        found = () if number is None else crawl.seen((number,))
        return next((views.task_view(crawl, record) for record in found), None)

    async def pending_tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Pending]:
        """See `protocol.Inspect`."""
        return await self._run(lambda: self._waiting(self._seen(crawl), which, after, limit))

    def _waiting(self, crawl: Crawl, which: TaskFilter, after: int, limit: int) -> ResultPage[Any]:
        upto, every = min(after + limit, crawl.count), which == _ANY
        fits = operate.matcher(crawl, which, self._now())
        is_over = crawl.status is CrawlStatus.CANCELLED or which.state not in (None, PENDING)
        numbers = () if is_over else crawl.of_state(range(after + 1, upto + 1), PENDING)
        chosen = [
            Pending(record.number, record.task)
            for record in crawl.seen(numbers)
            if record.state is PENDING and (every or fits(record))
        ]
        return ResultPage(chosen, upto if upto < crawl.count else None)

    async def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        """See `protocol.Inspect`."""
        return await self._run(lambda: self._upcoming(self._seen(crawl), key, limit))

    def _upcoming(self, crawl: Crawl, key: str, limit: int) -> list[Upcoming]:
        queue = crawl.queue(key)
        return [] if queue is None else views.upcoming(crawl, queue, limit, self._now())

    async def position(self, crawl: str, number: int) -> QueuePosition:
        """See `protocol.Inspect`."""
        return await self._run(lambda: self._place(self._seen(crawl), number))

    def _place(self, crawl: Crawl, number: int) -> QueuePosition:
        return views.place_of(crawl, crawl.record(number), self._now())

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        """See `protocol.Inspect`."""
        return await self._run(
            lambda: list(islice(self._seen(crawl).roots.get(mode, ()), after, None))
        )

    async def heatmap(self, crawl: str) -> Heat:
        """See `protocol.Inspect`."""
        return await self._run(lambda: views.heat_of(self._seen(crawl), self._now()))

    async def settings(self, crawl: str) -> str:
        """See `protocol.Inspect`."""
        return await self._run(lambda: self._seen(crawl).settings)

    async def values_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[SharedValue]:
        """See `protocol.Inspect`."""
        return await self._run(lambda: self._seen(crawl).notes.since(after, limit))

    async def workers(self, crawl: str) -> list[WorkerView]:
        """See `protocol.Inspect`."""
        return await self._run(lambda: self._seen(crawl).workers.views(self._now()))

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[Saved]:
        """See `protocol.Inspect`."""
        return await self._run(lambda: saved_page(self._seen(crawl), after, limit, self._now()))

    async def events_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[StoreEvent]:
        """See `protocol.Inspect`."""
        return await self._run(lambda: self._changes(self._seen(crawl), after, limit))

    def _changes(self, crawl: Crawl, after: int, limit: int) -> list[StoreEvent]:
        log = [entry for entry in crawl.log if entry[0] > after][:limit]
        return [StoreEvent(sequence, at / 1000, *rest) for sequence, at, *rest in log]

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        """See `protocol.FullStore`: a look costs so little here that nobody is rung."""
        return lambda: None

    async def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """See `protocol.FullStore`."""


def _state_of(crawl: Crawl, queue: Queue, now: int) -> QueueState:
    return views.state_of(crawl, queue, now)[0]
