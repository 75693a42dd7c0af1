"""The views of the model: the verbs of `Inspect`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from outrider.clock import Clock
from outrider.core.outcome import Last
from outrider.core.policy.rules import CrawlRules, covers
from outrider.core.policy.score import breakdown_of
from outrider.core.states import UNKNOWN, CrawlStatus, QueueState, TaskState
from outrider.core.task import LANES, Lease, Task
from outrider.core.worker_totals import WorkerTotals, sum_of_totals
from outrider.store.byte_limits import MAX_RESULT_BYTES, count_within, task_bytes
from outrider.store.event_ring import data_of
from outrider.store.protocol import (
    ALL_LEASES,
    STORE_VALUES,
    WORKER_KEPT_SECONDS,
    CrawlView,
    CursorPage,
    EventPage,
    Heat,
    LeaseFilter,
    LeaseView,
    LoggedEvent,
    Pending,
    QueuePosition,
    QueueView,
    ResultPage,
    SharedValue,
    StoreEvent,
    TaskFilter,
    TaskView,
    Upcoming,
    WorkerView,
)
from outrider.store.queue_order import (
    QueueOrder,
    key_cursor,
    key_range,
    validate_order,
    wake_cursor,
    wake_of_cursor,
)
from outrider.store.validation import validate_crawls, validate_limit, validate_page
from outrider.testing.model.records import C, Q, T, W, ms

HUBS = ("hub", "hub-seed", "nav")

# Fields of a task that its view shows as they are.
SHOWN_OF_A_TASK = {*Task.__struct_fields__} & {*TaskView.__struct_fields__}
SHOWN_OF_A_TASK -= {"lane", "meta", "breakdown"}


class Views(ABC):
    """Views of crawls, queues and tasks."""

    id: str
    clock: Clock
    all: dict[str, C]
    own: C

    def crawl_or_empty(self, name: str) -> C:
        """Return a crawl, or an empty one: reading creates no crawl; not the store itself (N1)."""
        validate_crawls((name,))
        return self.all.get(name) or C(name, CrawlRules(), self.clock.now_ms())

    def shown_status(self, c: C) -> tuple[CrawlStatus, str | None]:
        """Return status and reason; a crawl that does not exist shows as cancelled (I1)."""
        return (c.status, c.reason) if c.name in self.all else (CrawlStatus.CANCELLED, UNKNOWN)

    def within(self, tasks: list[T]) -> list[T]:
        """Return the tasks up to the one whose texts fill a result page or a step (M2)."""
        return tasks[: count_within((task_bytes(t.task) for t in tasks), MAX_RESULT_BYTES)]

    @abstractmethod
    def matches(self, c: C, t: T, which: TaskFilter) -> bool:
        """Whether a task matches every given field."""

    async def crawls(self) -> list[str]:
        """Return the names of all crawls (I1)."""
        return list(self.all)

    def visible_state(self, c: C, t: T) -> tuple[TaskState, str | None]:
        """Return state and reason; open tasks of a cancelled crawl are shown as dropped (I3)."""
        if c.status is CrawlStatus.CANCELLED and t.state in (TaskState.PENDING, TaskState.LEASED):
            return TaskState.DROPPED, "cancelled"
        return t.state, t.reason

    async def crawl(self, crawl: str) -> CrawlView:
        """Return the view of a crawl: known = pending + leased + done + dead + dropped (O5)."""
        c = self.crawl_or_empty(crawl)
        states = Counter(self.visible_state(c, t)[0].value for t in c.tasks)
        types: dict[str, Counter[str]] = {}
        tags: dict[str, Counter[str]] = {}
        for t in c.tasks:
            state = self.visible_state(c, t)[0].value
            types.setdefault(t.task.type, Counter())[state] += 1
            if t.task.tag is not None:
                tags.setdefault(t.task.tag, Counter())[state] += 1
        held = sum(len(q.of(TaskState.PENDING)) for q in c.queues.values() if q.retired)
        status, reason = self.shown_status(c)
        return CrawlView(
            crawl=crawl,
            status=status,
            reason=reason,
            known=len(c.tasks),
            **{state.value: states[state.value] for state in TaskState},
            held=0 if c.status is CrawlStatus.CANCELLED else held,
            visits=c.visits,
            bytes=c.bytes,
            outcomes=dict(c.outcomes),
            types={name: dict(counts) for name, counts in types.items()},
            tags={name: dict(counts) for name, counts in tags.items()},
            runs=c.runs,
            created_at=c.created / 1000,
            finished_at=None if c.finished is None else c.finished / 1000,
            timeline=tuple(c.timeline),
            queues={
                state.value: sum(self.counted_state(c, q) is state for q in c.queues.values())
                for state in QueueState
            },
            bands=self.bands(c),
            recovered=c.recovered,
        )

    def bands(self, c: C) -> dict[str, int]:
        """Count pending tasks by named priority (F8); a cancelled crawl has none (I3)."""
        bands = dict.fromkeys(("critical", "high", "normal", "low"), 0)
        for t in c.all(TaskState.PENDING) if c.status is not CrawlStatus.CANCELLED else ():
            priority = t.task.priority
            urgent = "critical" if priority <= -1000 else "high" if priority <= -100 else "normal"
            bands["low" if priority >= 100 else urgent] += 1
        return bands

    def counted_state(self, c: C, q: Q) -> QueueState:
        """Return the state with which a queue is counted: no time is compared (C1).

        A queue that could be served and is on no list is snoozed until a claim looks at it (E1).
        """
        state = self.state_of(c, q)[0]
        if state in (QueueState.SNOOZED, QueueState.READY, QueueState.INACTIVE):
            return QueueState(q.list_state or "snoozed")
        return state

    def state_of(self, c: C, q: Q) -> tuple[QueueState, str | None]:
        """Return the state of a queue: the first that holds (C1)."""
        now, cancelled = self.clock.now_ms(), c.status is CrawlStatus.CANCELLED
        pending, leased = q.of(TaskState.PENDING), q.of(TaskState.LEASED)
        if q.retired:
            return QueueState.RETIRED, q.retired
        if q.paused:
            return QueueState.PAUSED, "operator"
        if cancelled or not (pending or leased):
            return QueueState.EMPTY, None
        if not q.has_slot() or not pending:
            return QueueState.BUSY, None
        if q.first_due() > max(now, q.next_ready):
            return QueueState.SNOOZED, "waiting"
        if q.next_ready > now:
            return QueueState.SNOOZED, q.why
        return QueueState.INACTIVE if q.list_state == "inactive" else QueueState.READY, None

    async def queue_states(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueState]:
        """Return the states of a page of queues."""
        c = self.crawl_or_empty(crawl)
        queues = list(c.queues.values())[after : after + limit]
        states = [self.state_of(c, q)[0] for q in queues]
        return ResultPage(states, after + limit if after + limit < len(c.queues) else None)

    async def queue(self, crawl: str, key: str) -> QueueView:
        """Return the view of a queue (E8)."""
        c = self.crawl_or_empty(crawl)
        found = c.queues.get(key) or c.queues.get(key.lower())
        if found:
            return self.view(c, found)
        rules = c.rules.of(key)
        return self.view(
            c, Q(key, 0, rules, 0, rules.paused, "operator" if rules.retired else None)
        )

    async def queues(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueView]:
        """Return views of queues, by number (E8)."""
        c = self.crawl_or_empty(crawl)
        queues = list(c.queues.values())[after : after + limit]
        more = after + limit if after + limit < len(c.queues) else None
        return ResultPage([self.view(c, q) for q in queues], more)

    async def queues_in_order(
        self,
        crawl: str,
        order: QueueOrder,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 1000,
    ) -> CursorPage[QueueView]:
        """Return views of queues by key, or of those that only wait for time by wake time (E8)."""
        validate_order(order, prefix, after)
        validate_limit(limit)
        c = self.crawl_or_empty(crawl)
        numbered = [*enumerate(c.queues.values(), 1)]
        if order == "key":
            low, high = key_range(prefix, after)
            keyed = [(q.key, key_cursor(q.key), q) for q in c.queues.values()]
            found = sorted(one for one in keyed if low <= one[0] < high)
        else:
            snoozed = [one for one in numbered if self.state_of(c, one[1])[0] is QueueState.SNOOZED]
            wakes = sorted((max(q.next_ready, q.first_due()), n, q) for n, q in snoozed)
            found = [
                ("", wake_cursor(at, n), q) for at, n, q in wakes if (at, n) > wake_of_cursor(after)
            ]
        page, cursors = found[:limit], [cursor for _, cursor, _ in found[:limit]]
        more = cursors[-1] if len(found) > limit else None
        return CursorPage([self.view(c, q) for _, _, q in page], cursors, more)

    def view(self, c: C, q: Q) -> QueueView:
        """Return the view of a queue (E8)."""
        now, cancelled = self.clock.now_ms(), c.status is CrawlStatus.CANCELLED
        state, reason = self.state_of(c, q)
        pending = [] if cancelled else q.of(TaskState.PENDING)
        wakes: float | None = None
        if state in (QueueState.READY, QueueState.INACTIVE):
            wakes = 0.0
        elif state is QueueState.SNOOZED:
            wakes = (max(q.next_ready, q.first_due()) - now) / 1000
        line = sorted(pending, key=lambda t: (t.due > now, t.due if t.due > now else 0, t.key()))
        budget = q.rules.budget
        return QueueView(
            key=q.key,
            state=state,
            reason=reason,
            pending=len(pending),
            delayed=sum(t.due > now for t in pending),
            in_flight=0 if cancelled else len(q.of(TaskState.LEASED)),
            named=0 if cancelled else sum(t.named for t in q.of(TaskState.LEASED)),
            precedence=q.rules.precedence,
            balance=0 if q.session is None else max(0, budget.balance - q.session),
            grant=budget.balance,
            spent=q.spent,
            total_budget=budget.total_budget,
            last_cost=q.last_cost,
            average_cost=q.cost_sum / q.cost_count if q.cost_count else 0.0,
            done=len(q.of(TaskState.DONE)),
            dead=len(q.of(TaskState.DEAD)),
            dropped=sum(self.visible_state(c, t)[0] is TaskState.DROPPED for t in q.tasks),
            bytes=q.bytes,
            errors_in_row=q.errors,
            level=q.politeness.level,
            delay=q.delay_ms() / 1000,
            max_in_flight=q.rules.politeness.max_in_flight,
            last_visit_at=None if q.last_end is None else q.last_end / 1000,
            wakes_in=wakes,
            next_url=line[0].task.url if line else None,
            lent=0 if cancelled else len(q.lent_tasks()),
        )

    async def tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[TaskView]:
        """Return views of tasks, by number (B1)."""
        c = self.crawl_or_empty(crawl)
        span = self.within(c.tasks[after : after + limit])
        chosen = [
            self.task_view(c, t)
            for t in span
            if which.state in (None, self.visible_state(c, t)[0]) and self.matches(c, t, which)
        ]
        upto = after + len(span)
        return ResultPage(chosen, upto if upto < len(c.tasks) else None)

    async def queue_tasks(
        self,
        crawl: str,
        key: str,
        *,
        state: TaskState | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> ResultPage[TaskView]:
        """Return views of the tasks of one queue, by number, in the state that is shown (E8)."""
        validate_page(after, limit)
        c = self.crawl_or_empty(crawl)
        q = c.queues.get(key) or c.queues.get(key.lower())
        later = [t for t in c.tasks[after:] if t.queue is q]
        chosen = [t for t in later if state in (None, self.visible_state(c, t)[0])]
        page = self.within(chosen[:limit])
        more = page[-1].number if len(chosen) > len(page) else None
        return ResultPage([self.task_view(c, t) for t in page], more)

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        """Return the view of a known task (B3)."""
        c = self.crawl_or_empty(crawl)
        t = c.known.get(fingerprint)
        return None if t is None else self.task_view(c, t)

    def task_view(self, c: C, t: T) -> TaskView:
        """Return the view of a task (B1)."""
        state, reason = self.visible_state(c, t)
        waiting = state in (TaskState.PENDING, TaskState.LEASED)
        shared: dict[str, Any] = {name: getattr(t.task, name) for name in SHOWN_OF_A_TASK}
        return TaskView(
            number=t.number,
            state=state,
            lane=LANES[t.task.lane],
            meta=msgspec.json.decode(t.task.meta) if t.task.meta else {},
            attempts=t.attempts,
            failures=t.failures,
            crashes=t.crashes,
            blocks=t.blocks,
            reason=reason,
            worker=t.worker if state is TaskState.LEASED else None,
            discovered_at=t.discovered / 1000,
            due_at=t.due / 1000 if waiting else None,
            claimed_at=None if t.claimed is None else t.claimed / 1000,
            finished_at=None if t.finished is None else t.finished / 1000,
            answer=t.answer,
            history=tuple(t.history),
            breakdown=breakdown_of(t.task),
            **shared,
        )

    def lease_of(self, t: T) -> Lease:
        """Return the lease of a leased task, with what `decide` needs of its queue (H1)."""
        return Lease(
            store=self.id,
            task=t.number,
            token=t.token,
            about=t.task,
            attempt=t.attempts + 1,
            worker=t.worker or "",
            lease_for=t.lasts / 1000,
            failures=t.failures,
            throttles=t.throttles,
            rules=t.queue.rules,
            manners=t.queue.politeness,
            last=self.last(t),
            delay=t.drawn,
            waited=(t.leased - t.due) / 1000,
        )

    def last(self, t: T) -> Last | None:
        """Return the last answer of a page that is visited again, and its age (G3)."""
        if t.answer is None or t.answered is None:
            return None
        return Last(t.answer, max(0, self.clock.now_ms() - t.answered) / 1000)

    async def leases(
        self,
        crawl: str,
        which: LeaseFilter = ALL_LEASES,
        *,
        after: int = 0,
        limit: int = 1000,
    ) -> ResultPage[LeaseView]:
        """Return leases in the order they were made (H1); a cancelled crawl has none (I3)."""
        validate_page(after, limit)
        c = self.crawl_or_empty(crawl)
        held = [] if c.status is CrawlStatus.CANCELLED else c.all(TaskState.LEASED)
        one = which.task is not None or which.fingerprint is not None
        later = sorted((t for t in held if one or t.turn > after), key=lambda t: t.turn)
        examined = later if one else self.within(later[:limit])
        views = [self.lease_view(t) for t in examined if self.fits(t, which)]
        return ResultPage(views, examined[-1].turn if len(examined) < len(later) else None)

    def fits(self, t: T, which: LeaseFilter) -> bool:
        """Whether a leased task matches every field given (H1)."""
        oldest = self.clock.now_ms() / 1000 - (which.older_than or 0.0)
        return (
            which.task in (None, t.number)
            and which.fingerprint in (None, t.task.fingerprint)
            and which.token in (None, t.token)
            and which.worker in (None, t.worker)
            and (which.key is None or covers(which.key, t.task.key))
            and (which.older_than is None or t.leased / 1000 < oldest)
        )

    def lease_view(self, t: T) -> LeaseView:
        """Return the view of a lease (H1)."""
        at, until = t.leased / 1000, t.deadline / 1000
        return LeaseView(self.lease_of(t), at, until, named=t.named, lent=t.lent)

    async def pending_tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Pending]:
        """Return pending tasks with their priorities (C8); a cancelled crawl has none (I3)."""
        c = self.crawl_or_empty(crawl)
        span = self.within(c.tasks[after : after + limit])
        chosen = [
            Pending(t.number, t.task)
            for t in span
            if self.visible_state(c, t)[0] is TaskState.PENDING
            and which.state in (None, TaskState.PENDING)
            and self.matches(c, t, which)
        ]
        upto = after + len(span)
        return ResultPage(chosen, upto if upto < len(c.tasks) else None)

    async def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        """Return the due tasks of a queue in order (D5, C2); a cancelled crawl has none (I3)."""
        c = self.crawl_or_empty(crawl)
        q = c.queues.get(key) or c.queues.get(key.lower())
        if q is None or c.status is CrawlStatus.CANCELLED:
            return []
        due = q.due(self.clock.now_ms())[:limit]
        return [Upcoming(t.task.fingerprint, t.task.url) for t in due]

    async def position(self, crawl: str, number: int) -> QueuePosition:
        """Return the position of a task within its queue and lane (O4)."""
        c = self.crawl_or_empty(crawl)
        t = c.tasks[number - 1]
        line = [o for o in t.queue.of(TaskState.PENDING) if o.task.lane == t.task.lane]
        ahead = sum(o.key() < t.key() for o in line) if t.state is TaskState.PENDING else 0
        return QueuePosition(ahead, self.view(c, t.queue))

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        """Return recorded roots (A5)."""
        return self.crawl_or_empty(crawl).roots.get(mode, [])[after:]

    async def heatmap(self, crawl: str) -> Heat:
        """Return the heatmap of pending tasks: total = sum of cells = sum of depths (O2)."""
        c = self.crawl_or_empty(crawl)
        cells: dict[str, dict[str, int]] = {}
        depth = {"0": 0, "1": 0, "2": 0, "3+": 0, "unknown": 0}
        pending = [t for t in c.tasks if self.visible_state(c, t)[0] is TaskState.PENDING]
        for t in pending:
            kind = t.task.type
            group = "article" if kind == "article" else "hub" if kind in HUBS else "other"
            row = cells.setdefault(t.task.origin, {"article": 0, "hub": 0, "other": 0})
            row[group] += 1
            depth[str(t.task.depth) if t.task.depth < 3 else "3+"] += 1
        return Heat(len(pending), cells, depth, self.clock.now_ms() / 1000)

    async def settings(self, crawl: str) -> str:
        """Return the settings text stored with the rules."""
        return self.crawl_or_empty(crawl).settings

    async def values_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[SharedValue]:
        """Return the current shared values, by number."""
        c = self.own if crawl == STORE_VALUES else self.crawl_or_empty(crawl)
        newer = [note for note in c.values.values() if note.number > after]
        return sorted(newer, key=lambda note: note.number)[:limit]

    async def workers(self, crawl: str) -> list[WorkerView]:
        """Return workers by their first heartbeat, then by name (M6)."""
        now, known = self.clock.now_ms(), self.crawl_or_empty(crawl).workers.values()
        recent = [w for w in known if now - w.seen < ms(WORKER_KEPT_SECONDS)]
        return [
            self.worker_view(w, now)
            for w in sorted(recent, key=lambda w: (w.started, w.heartbeat.worker))
        ]

    def worker_view(self, w: W, now: int) -> WorkerView:
        """Return the view of a worker; without a heartbeat in time it is shown as gone (M6)."""
        said = msgspec.structs.asdict(w.heartbeat)
        if now - w.seen >= ms(said.pop("lasts")):
            said["state"] = "gone"
        return WorkerView(**said, started_at=w.started / 1000, seen_at=w.seen / 1000)

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        """Never notify: notifications may be lost (C6)."""
        return lambda: None

    async def worker_totals(self, crawl: str) -> WorkerTotals:
        """Return the sum over all workers there ever were (M6)."""
        c = self.crawl_or_empty(crawl)
        return sum_of_totals([c.gone, *(w.heartbeat.totals for w in c.workers.values())])

    async def events_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[StoreEvent]:
        """Return events of the store (O3)."""
        c = self.crawl_or_empty(crawl)
        new = [entry for entry in c.log if entry[0] > after][:limit]
        return [
            StoreEvent(sequence, at / 1000, name, subject, detail, by, counts)
            for sequence, at, name, subject, detail, by, counts in new
        ]

    async def event_log(self, crawl: str, *, after: int = 0, limit: int = 1000) -> EventPage:
        """Return all events by number, and a gap for numbers without one (O3).

        Behind the end of the log, where only an earlier crawl of that name can have been read, are
        a gap of unknown size and the log from its beginning.
        """
        validate_page(after, limit)
        c = self.crawl_or_empty(crawl)
        events = []
        if after > c.last_event:
            events, after = [LoggedEvent(0, 0.0, "gap", _json({"missing": None}))], 0
        known = {event.sequence: event for event in await self.events_since(crawl, limit=10**6)}
        found = {n: LoggedEvent(n, e.at, e.name, _json(data_of(e))) for n, e in known.items()}
        for last, batch in c.ring:
            first = last - len(batch.events) + 1
            for n, e in enumerate(batch.events, first):
                found[n] = LoggedEvent(n, e.at, e.name, e.data, batch.worker)
        numbers = sorted(n for n in found if n > after)[:limit]
        for n in numbers:
            events += [*self.gap(after, n - 1), found[n]]
            after = n
        events += self.gap(after, c.last_event) if len(numbers) < limit else []
        return EventPage(events, c.last_event)

    def gap(self, after: int, upto: int) -> list[LoggedEvent]:
        """Return what stands for missing events: nothing, if none is (O3)."""
        missing = _json({"missing": upto - after})
        return [LoggedEvent(upto, 0.0, "gap", missing)] if upto > after else []


def _json(data: object) -> str:
    return msgspec.json.encode(data).decode()
