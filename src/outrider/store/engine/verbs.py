"""The verbs of the store protocol as plain synchronous calls on engines.

A store decides in its `_forward` how a verb is run and made durable. `InvalidInput` is raised
before anything is changed. A verb opens its crawl before it asks for the time: a server answers
both in one round trip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

import msgspec

from outrider.clock import to_ms
from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import QueueAction
from outrider.core.states import (
    DELETING,
    OPERATOR_MOVES,
    UNKNOWN,
    CrawlStatus,
    QueueState,
    TaskState,
)
from outrider.core.task import Added, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.core.worker_totals import WorkerTotals
from outrider.errors import InvalidInput
from outrider.store.acts import (
    Act,
    act_of_configure,
    act_of_filter,
    act_of_steer,
    validate_by,
)
from outrider.store.byte_limits import MAX_RESULT_BYTES, count_within, task_bytes
from outrider.store.engine import admin, views
from outrider.store.engine.admin import read_within
from outrider.store.engine.engine import CrawlEngine
from outrider.store.engine.export import export_page
from outrider.store.engine.port import Crawls
from outrider.store.engine.records import Queue, TaskRecord
from outrider.store.export_items import Saved, validate_items
from outrider.store.protocol import (
    ALL_LEASES,
    NO_PROCESS,
    STORE_VALUES,
    ClaimRequest,
    ClaimResult,
    CrawlView,
    CursorPage,
    EventBatch,
    EventPage,
    Heartbeat,
    Heat,
    LeaseFilter,
    LeaseView,
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
    WhichCrawl,
    WorkerView,
)
from outrider.store.queue_order import QueueOrder, validate_order
from outrider.store.validation import (
    validate_batch,
    validate_claim,
    validate_crawls,
    validate_heartbeat,
    validate_limit,
    validate_page,
    validate_priority_updates,
    validate_shared_values,
)

_ALL: Final = TaskFilter()
_NO_STEP: Final = Step(0, None)  # of a crawl that does not exist
PENDING, DEAD, CANCELLED = TaskState.PENDING, TaskState.DEAD, CrawlStatus.CANCELLED


@final
class EngineVerbs:
    """`Store`, `Admin` and `Inspect` of `store.protocol`, as plain calls."""

    __slots__ = ("_crawls", "_now")

    def __init__(self, crawls: Crawls) -> None:
        self._crawls, self._now = crawls, crawls.now

    def _open(self, crawl: str) -> CrawlEngine:
        """Return a crawl to change it, created if it does not exist: opened, or restored (I1)."""
        if crawl == STORE_VALUES:
            validate_crawls((crawl,))
        return self._crawls.open(crawl)

    def _existing(self, crawl: str) -> CrawlEngine | None:
        """Return a crawl to change it, if it exists: no verb but those two creates one (I1)."""
        if crawl == STORE_VALUES:
            validate_crawls((crawl,))
        return self._crawls.existing(crawl)

    def _reading(self, crawl: str, *, totals: bool = False) -> CrawlEngine:
        """Return a crawl, to read it only."""
        validate_crawls((crawl,))
        return self._crawls.reading(crawl, totals=totals)

    # ---- Store

    def add(self, tasks: Sequence[Task]) -> list[Added]:
        if len({task.crawl for task in tasks}) == 1:
            return self._add_to(tasks[0].crawl, list(tasks))
        names = dict.fromkeys(task.crawl for task in tasks)
        validate_crawls(names)
        by_crawl = {n: iter(self._add_to(n, [t for t in tasks if t.crawl == n])) for n in names}
        return [next(by_crawl[task.crawl]) for task in tasks]

    def _add_to(self, name: str, tasks: list[Task]) -> list[Added]:
        crawl, now = self._existing(name), self._now()
        if crawl is None:
            return [Added(task.url, False, "cancelled") for task in tasks]
        crawl.tasks.prefetch(tasks)
        answers = crawl.adder.add(tasks, now)
        crawl.finisher.check_limits(now)
        return answers

    def claim(self, request: ClaimRequest) -> ClaimResult:
        validate_claim(request)
        crawl = self._existing(request.crawl)
        if crawl is None:
            return ClaimResult([], None, CANCELLED, request.streak)
        return crawl.claimer.claim(request, self._now())

    def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        extended: set[LeaseId] = set()
        for crawl, of_crawl in self._by_crawl(leases):
            deadline = self._now() + to_ms(lease_for)
            if crawl.fast_path is not None:
                extended |= crawl.fast_path.extend(of_crawl, deadline)
                continue
            for lease in of_crawl:
                record = crawl.finisher.lease_by_token(lease.task, lease.token)
                if record is not None:
                    crawl.leases.set_deadline(record, deadline)
                    extended.add(lease)
                    if record.process == NO_PROCESS:  # H4: its deadline must outlive this process
                        crawl.tasks.update(record)
        return extended

    def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        names = sorted({v.crawl for v in verdicts})
        validate_crawls(names)
        only = self._crawls.existing(names[0]) if len(names) == 1 else None
        if only is not None and only.fast_path is None:  # the common case
            now, finish = self._now(), only.finisher.finish
            only.tasks.prefetch(
                [task for v in verdicts if v.tasks for task in v.tasks], [v.task for v in verdicts]
            )
            return [finish(v, now) for v in verdicts]
        found_crawls = {name: self._crawls.existing(name) for name in names}
        crawls = {name: crawl for name, crawl in found_crawls.items() if crawl is not None}
        now = self._now()
        finished: set[tuple[str, int, int]] = set()  # by a fast path
        for name, crawl in crawls.items():
            rest = [v for v in verdicts if v.crawl == name]
            if crawl.fast_path is not None:
                done = crawl.fast_path.finish(rest, now)
                finished |= {(name, *lease) for lease in done}
                rest = [v for v in rest if (v.task, v.token) not in done]
            if rest:
                found = [task for v in rest if v.tasks for task in v.tasks]
                crawl.tasks.prefetch(found, [v.task for v in rest])
        if not finished and len(crawls) == len(names):
            return [crawls[v.crawl].finisher.finish(v, now) for v in verdicts]
        return [
            Finished(True, v.state)
            if (v.crawl, v.task, v.token) in finished
            else crawls[v.crawl].finisher.finish(v, now)
            if v.crawl in crawls  # H3: one that was removed has no leases
            else Finished(False)
            for v in verdicts
        ]

    def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        released: set[LeaseId] = set()
        for crawl, of_crawl in self._by_crawl(leases):
            now = self._now()
            crawl.tasks.load([lease.task for lease in of_crawl])
            for lease in of_crawl:
                record = crawl.finisher.lease_by_token(lease.task, lease.token)
                if record is not None:
                    crawl.finisher.release(record, now)
                    released.add(lease)
        return released

    def expire(self, *, limit: int) -> int:
        now, count = self._now(), 0
        for crawl in self._crawls.expiring():
            if crawl.loader is not None and crawl.state.status is not CANCELLED:
                crawl.loader.load_overdue(limit - count, now)
            count += crawl.finisher.expire_overdue(limit - count, now)
        return count

    def _by_crawl(self, leases: Sequence[LeaseId]) -> Iterator[tuple[CrawlEngine, list[LeaseId]]]:
        names = {lease.crawl for lease in leases}
        validate_crawls(names)
        for name in sorted(names):
            crawl = self._crawls.existing(name)
            if crawl is not None:
                yield crawl, [lease for lease in leases if lease.crawl == name]

    # ---- Admin

    @contextmanager
    def _signed(self, crawl: CrawlEngine, by: str, act: Act | None = None) -> Iterator[None]:
        """Let the events of this verb carry `by`, and log the act they follow from (O3)."""
        state = crawl.state
        state.by = by
        try:
            if by and act is not None:
                state.add_event(self._now(), *act)
            yield
        finally:
            state.by = ""

    def configure(
        self,
        crawl: str,
        rules: CrawlRules,
        settings: str = "",
        *,
        only: WhichCrawl = "any",
        by: str = "",
    ) -> bool:
        validate_by(by)
        if only == ("known" if self._existing(crawl) is None else "new"):
            return False
        engine, rules = self._open(crawl), self._crawls.as_stored(rules)
        with self._signed(engine, by, act_of_configure(crawl)):
            engine.state.settings = settings or engine.state.settings
            engine.configure(msgspec.structs.replace(rules, runtime=engine.state.rules.runtime))
        return not engine.state.rules_applied

    def steer(
        self,
        crawl: str,
        target: str,
        act: QueueAction,
        *,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        validate_by(by)
        engine, now = self._existing(crawl), self._now()
        if engine is None:
            return _NO_STEP
        with self._signed(engine, by, act_of_steer(target, act, after)):
            return admin.steer(engine, target, act, now, after=after, limit=limit)

    def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        engine = self._existing(crawl)
        if engine is not None:
            engine.journal.add_roots(mode, roots)

    def set_status(
        self, crawl: str, status: CrawlStatus, reason: str = "operator", *, by: str = ""
    ) -> CrawlStatus:
        validate_by(by)
        engine = self._existing(crawl)
        if engine is None:
            return CANCELLED
        state = engine.state
        if status in OPERATOR_MOVES[state.status]:
            with self._signed(engine, by):
                state.set_status(status, reason, self._now())
        return state.status

    def drop(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        return self._for_each(crawl, which, PENDING, CrawlEngine.drop, (dry_run, after, limit), by)

    def replay(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        return self._for_each(crawl, which, DEAD, CrawlEngine.replay, (dry_run, after, limit), by)

    def purge(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        return self._for_each(crawl, which, DEAD, CrawlEngine.purge, (dry_run, after, limit), by)

    def forget(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        return self._for_each(crawl, which, None, CrawlEngine.forget, (dry_run, after, limit), by)

    def delete(self, crawl: str, *, limit: int = 1000, by: str = "") -> Step:
        validate_by(by)
        engine = self._existing(crawl)
        if engine is None:
            return _NO_STEP
        state = engine.state
        if not state.is_being_removed:
            with self._signed(engine, by):
                state.set_status(CANCELLED, DELETING, self._now())
            return Step(0, 1)
        return self._crawls.delete(crawl, max(1, limit))

    def _for_each(
        self,
        name: str,
        which: TaskFilter,
        state: TaskState | None,
        change: Callable[[CrawlEngine, TaskRecord, int], None],
        step: tuple[bool, int, int],
        by: str,
    ) -> Step:
        validate_by(by)
        dry_run, after, limit = step
        act = act_of_filter(change.__name__, which, after, dry_run=dry_run)
        crawl, now = self._existing(name), self._now()
        if crawl is None:
            return _NO_STEP
        if crawl.loader is not None:
            crawl.loader.load_last_numbers()
        wanted = None if dry_run else lambda record: change(crawl, record, now)
        with self._signed(crawl, by, act):
            return admin.for_each(crawl, which, state, wanted, now, after=after, limit=limit)

    def put_values(self, crawl: str, values: Sequence[SharedValueWrite]) -> list[int]:
        validate_shared_values(values)
        own = crawl == STORE_VALUES
        engine = self._crawls.open(crawl) if own else self._crawls.existing(crawl)
        if engine is None:
            return [0] * len(values)
        return engine.journal.put_values(values, self._now())

    def publish(self, crawl: str, batch: EventBatch) -> None:
        validate_crawls((crawl,))
        validate_batch(batch)
        found = self._crawls.existing(crawl)
        if found is not None and not found.state.is_being_removed:
            found.journal.publish(batch)

    def update_priorities(self, crawl: str, updates: Sequence[PriorityUpdate]) -> int:
        validate_priority_updates(updates)
        engine = self._existing(crawl)
        return 0 if engine is None else engine.priorities.update(updates, self._now())

    def heartbeat(self, crawl: str, heartbeat: Heartbeat) -> None:
        validate_heartbeat(heartbeat)
        engine = self._existing(crawl)
        if engine is not None:
            engine.journal.heartbeat(heartbeat, self._now())

    def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        validate_items(saved)
        if not saved:
            return 0
        refusal = self._reading(crawl, totals=True).restorer.refusal(saved)
        if refusal is not None:
            raise InvalidInput(refusal)
        return self._open(crawl).restorer.restore(saved, self._now())

    # ---- Inspect

    def crawls(self) -> list[str]:
        return [name for name in self._crawls.names() if name != STORE_VALUES]

    def crawl(self, crawl: str) -> CrawlView:
        state = self._reading(crawl, totals=True).state
        state.count_queues()
        view = views.crawl_view(state)
        if self._crawls.exists(crawl):
            return view
        return msgspec.structs.replace(view, status=CANCELLED, reason=UNKNOWN)

    def queue_states(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueState]:
        return self._queue_page(crawl, after, limit, _state_of)

    def queues(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[QueueView]:
        return self._queue_page(crawl, after, limit, views.queue_view)

    def _queue_page(
        self, name: str, after: int, limit: int, show: Callable[[CrawlEngine, Queue, int], object]
    ) -> ResultPage[Any]:
        crawl, now = self._reading(name), self._now()
        last = crawl.state.last_queue
        upto = min(after + limit, last)
        page = [show(crawl, queue, now) for queue in crawl.queues.read(range(after + 1, upto + 1))]
        return ResultPage(page, upto if upto < last else None)

    def queues_in_order(
        self,
        crawl: str,
        order: QueueOrder,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 1000,
    ) -> CursorPage[QueueView]:
        validate_order(order, prefix, after)
        validate_limit(limit)
        engine, now = self._reading(crawl), self._now()
        if order == "key":
            return views.queues_by_key(engine, prefix, after, limit, now)
        return views.queues_by_wake(engine, after, limit, now)

    def queue(self, crawl: str, key: str) -> QueueView:
        engine, now = self._reading(crawl), self._now()
        queue = engine.queue(key)
        if queue is None:
            return views.unknown_queue_view(engine, key, now)
        return views.queue_view(engine, queue, now)

    def tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[TaskView]:
        engine = self._reading(crawl)
        state = engine.state
        upto = min(after + limit, state.last_task)
        matches = admin.matcher(state, which, self._now())
        numbers: Iterable[int] = range(after + 1, upto + 1)
        if which.state is not None and state.status is not CANCELLED:  # I3: shown as dropped
            numbers = engine.tasks.in_state(range(after + 1, upto + 1), which.state)
        records, upto = read_within(engine.tasks, numbers, upto)
        chosen = [
            views.task_view(state, record)
            for record in records
            if which.state in (None, views.shown_state(state, record)[0]) and matches(record)
        ]
        return ResultPage(chosen, upto if upto < state.last_task else None)

    def queue_tasks(
        self,
        crawl: str,
        key: str,
        *,
        state: TaskState | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> ResultPage[TaskView]:
        validate_page(after, limit)
        engine = self._reading(crawl)
        queue, is_cancelled = engine.queue(key), engine.state.status is CANCELLED
        if queue is None or (is_cancelled and state in views.OPEN):  # I3: shown as dropped
            return ResultPage([], None)
        stored = None if is_cancelled else state  # E8: other queues are not looked at
        numbers, more = engine.tasks.in_queue(queue.number, stored, after, limit)
        last = numbers[-1] if numbers else 0
        records, read = read_within(engine.tasks, numbers, last)
        more = more if read == last else read
        chosen = [
            views.task_view(engine.state, record)
            for record in records
            if state in (None, views.shown_state(engine.state, record)[0])
        ]
        return ResultPage(chosen, more)

    def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        engine = self._reading(crawl)
        number = engine.tasks.find(fingerprint)
        found = () if number is None else engine.tasks.read((number,))
        return next((views.task_view(engine.state, record) for record in found), None)

    def leases(
        self,
        crawl: str,
        which: LeaseFilter = ALL_LEASES,
        *,
        after: int = 0,
        limit: int = 1000,
    ) -> ResultPage[LeaseView]:
        validate_page(after, limit)
        engine, now = self._reading(crawl), self._now()
        state = engine.state
        if state.status is CANCELLED:  # I3
            return ResultPage([], None)
        records, more = _examined_leases(engine, which, after, limit)
        fits = views.lease_matcher(which, now)
        shown = [
            views.lease_view(state.store, one, one.queue.rules, one.queue.politeness, now)
            for one in records
        ]
        return ResultPage([view for view in shown if fits(view)], more)

    def pending_tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Pending]:
        engine = self._reading(crawl)
        state, tasks = engine.state, engine.tasks
        upto, is_all = min(after + limit, state.last_task), which == _ALL
        matches = admin.matcher(state, which, self._now())
        has_none = state.status is CANCELLED or which.state not in (None, PENDING)
        numbers = () if has_none else tasks.in_state(range(after + 1, upto + 1), PENDING)
        records, upto = read_within(tasks, numbers, upto)
        chosen = [
            Pending(record.number, record.task)
            for record in records
            if record.state is PENDING and (is_all or matches(record))
        ]
        return ResultPage(chosen, upto if upto < state.last_task else None)

    def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        engine = self._reading(crawl)
        queue = engine.queue(key)
        return [] if queue is None else views.upcoming(engine, queue, limit, self._now())

    def position(self, crawl: str, number: int) -> QueuePosition:
        engine = self._reading(crawl)
        return views.position_of(engine, engine.tasks.get(number), self._now())

    def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        return self._reading(crawl).journal.roots(mode, after)

    def heatmap(self, crawl: str) -> Heat:
        return views.heatmap(self._reading(crawl, totals=True).state, self._now())

    def settings(self, crawl: str) -> str:
        return self._reading(crawl).state.settings

    def values_since(self, crawl: str, *, after: int = 0, limit: int = 1000) -> list[SharedValue]:
        return self._crawls.reading(crawl).journal.values_since(after, limit)

    def workers(self, crawl: str) -> list[WorkerView]:
        return self._reading(crawl).journal.workers(self._now())

    def worker_totals(self, crawl: str) -> WorkerTotals:
        return self._reading(crawl).journal.worker_totals()

    def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[Saved]:
        engine = self._reading(crawl, totals=True)
        if engine.loader is not None:
            engine.loader.load_leases(after, limit)
        return export_page(engine, after, limit, self._now())

    def event_log(self, crawl: str, *, after: int = 0, limit: int = 1000) -> EventPage:
        validate_page(after, limit)
        return self._reading(crawl).journal.event_log(after, limit)

    def events_since(self, crawl: str, *, after: int = 0, limit: int = 1000) -> list[StoreEvent]:
        return self._reading(crawl).journal.events(after, limit)


def _examined_leases(
    engine: CrawlEngine, which: LeaseFilter, after: int, limit: int
) -> tuple[list[TaskRecord], int | None]:
    """H1: return the leases to look at, and the next cursor; one that is named needs no scan."""
    if which.task is None and which.fingerprint is None:
        if engine.loader is not None:
            engine.loader.load_lease_page(after, limit)
        records, more = engine.leases.page(after, limit)
        count = count_within((task_bytes(one.task) for one in records), MAX_RESULT_BYTES)
        return records[:count], more if count == len(records) else records[count - 1].lease_turn
    number = which.task
    if number is None and which.fingerprint is not None:
        number = engine.tasks.find(which.fingerprint)
    engine.tasks.load(() if number is None else (number,))
    record = engine.leases.held.get(number or 0)
    return [] if record is None else [record], None


def _state_of(crawl: CrawlEngine, queue: Queue, now: int) -> QueueState:
    return views.state_of(crawl.state, queue, now)[0]
