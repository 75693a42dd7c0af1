"""Views of crawls, queues and tasks for readers; nothing here changes anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from outrider.core.order import DELAYED_SHIFT, DUE_BITS, KEY_MASK, NUMBER_MASK
from outrider.core.outcome import Last
from outrider.core.policy.rules import QueueRules, covers
from outrider.core.policy.score import breakdown_of
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import LANES, PRIORITIES, Lease, PolitenessState
from outrider.store.engine import fields
from outrider.store.engine.engine import CrawlEngine
from outrider.store.engine.fields import TASK_FIELDS
from outrider.store.engine.records import (
    COLUMNS,
    INACTIVE,
    QUEUE_COLUMNS,
    Queue,
    TaskCounts,
    TaskRecord,
    new_queue,
)
from outrider.store.engine.state import CrawlState
from outrider.store.protocol import (
    CrawlView,
    CursorPage,
    Heat,
    LeaseFilter,
    LeaseView,
    QueuePosition,
    QueueView,
    TaskView,
    Upcoming,
)
from outrider.store.queue_order import key_cursor, key_range, wake_cursor, wake_of_cursor

_HUBS: Final = frozenset({"hub", "hub-seed", "nav"})
_DEPTHS: Final = ("0", "1", "2", "3+", "unknown")
_AT_WORK: Final = ("busy", "snoozed", "ready", "inactive")  # states of queues with open tasks
MORE_WAKES: Final = 250  # wake times read beside those of a page: some queues have others by now
OPEN: Final = (TaskState.PENDING, TaskState.LEASED)


class HasStatus(Protocol):
    """Anything that has a crawl's status."""

    @property
    def status(self) -> CrawlStatus: ...  # noqa: D102


class PendingTasks(NamedTuple):
    """The pending tasks of a queue: when the first is due, how many are delayed, the next URL."""

    first_due: int  # any time up to now means now
    delayed: int
    url: str | None


def shown_counts(crawl: HasStatus, task_counts: TaskCounts) -> dict[str, int]:
    """O5, I3: counts by state; pending and leased tasks of a cancelled crawl count as dropped."""
    by_state = task_counts.by_state
    counts = {state.value: by_state[column] for state, column in COLUMNS.items()}
    if crawl.status is CrawlStatus.CANCELLED:
        counts["dropped"] += counts["pending"] + counts["leased"]
        counts["pending"] = counts["leased"] = 0
    return counts


def crawl_view(crawl: CrawlState) -> CrawlView:
    """Return status and counters, summed over `TaskCounts`, never over tasks."""
    totals = {state.value: 0 for state in TaskState}
    types: dict[str, dict[str, int]] = {}
    tags: dict[str, dict[str, int]] = {}
    for task_counts in crawl.task_counts.values():
        shown = shown_counts(crawl, task_counts)
        counts = {name: count for name, count in shown.items() if count}
        add_counts(totals, counts)
        add_counts(types.setdefault(task_counts.type, {}), counts)
        if task_counts.tag is not None:
            add_counts(tags.setdefault(task_counts.tag, {}), counts)
    return CrawlView(
        crawl=crawl.name,
        status=crawl.status,
        reason=crawl.reason,
        known=crawl.known,
        **totals,
        held=0 if crawl.status is CrawlStatus.CANCELLED else crawl.retired_pending,
        visits=crawl.visits,
        bytes=crawl.bytes,
        outcomes=dict(crawl.outcomes),
        types={name: counts for name, counts in types.items() if counts},
        tags={name: counts for name, counts in tags.items() if counts},
        runs=crawl.runs,
        created_at=crawl.created / 1000,
        finished_at=instant(crawl.finished),
        timeline=tuple(crawl.timeline),
        queues=shown_queues(crawl, crawl.queue_counts),
        bands=shown_bands(crawl, crawl.pending, crawl.critical, crawl.high, crawl.low),
        recovered=crawl.recovered,
    )


def add_counts(sums: dict[str, int], counts: Mapping[str, int]) -> None:
    """Add counts by name: a fifth of the cost of a `Counter`, of which a million may be needed."""
    for name, count in counts.items():
        sums[name] = sums.get(name, 0) + count


def shown_queues(crawl: HasStatus, counts: Sequence[int]) -> dict[str, int]:
    """C1, I3: queues by state; those of a cancelled crawl are empty, retired or paused."""
    shown = {state.value: counts[column] for state, column in QUEUE_COLUMNS.items()}
    if crawl.status is CrawlStatus.CANCELLED:
        shown["empty"] += sum(shown[name] for name in _AT_WORK)
        shown.update(dict.fromkeys(_AT_WORK, 0))
    return shown


def shown_bands(
    crawl: HasStatus, pending: int, critical: int, high: int, low: int
) -> dict[str, int]:
    """F8, I3: pending tasks by named priority; a cancelled crawl has none."""
    if crawl.status is CrawlStatus.CANCELLED:
        return dict.fromkeys(PRIORITIES, 0)
    normal = pending - critical - high - low
    return {"critical": critical, "high": high, "normal": normal, "low": low}


def state_of(crawl: HasStatus, queue: Queue, now: int) -> tuple[QueueState, str | None]:
    """C1: return the state of a loaded queue, and the reason."""
    return state_at(crawl, queue, _first_due(queue, now), now)


def state_at(
    crawl: HasStatus, queue: Queue, first_due: int, now: int
) -> tuple[QueueState, str | None]:
    """C1: return the first state that applies, and the reason."""
    if queue.retired is not None:
        return QueueState.RETIRED, queue.retired
    if queue.paused:
        return QueueState.PAUSED, "operator"
    is_over = crawl.status is CrawlStatus.CANCELLED
    if is_over or not (queue.pending or queue.in_flight or queue.named):
        return QueueState.EMPTY, None
    if queue.loaned or queue.in_flight >= queue.slots or not queue.pending:
        return QueueState.BUSY, None
    if first_due > max(now, queue.next_ready):
        return QueueState.SNOOZED, "waiting"
    if queue.next_ready > now:
        return QueueState.SNOOZED, queue.wait_reason
    return QueueState.INACTIVE if queue.list_state == INACTIVE else QueueState.READY, None


def _first_due(queue: Queue, now: int) -> int:
    """Return when the earliest task is due; any time up to now means now."""
    if queue.lane0.head or queue.lane1.head or not queue.delayed.head:
        return now
    return queue.delayed.head[0] >> DELAYED_SHIFT


def queue_view(crawl: CrawlEngine, queue: Queue, now: int) -> QueueView:
    """E8: return the view of a loaded queue."""
    delayed = queue.delayed.count_from(now + 1 << DELAYED_SHIFT)
    pending = PendingTasks(_first_due(queue, now), delayed, _next_url(crawl, queue, now))
    return show_queue(crawl.state, queue, pending, now)


def show_queue(crawl: HasStatus, queue: Queue, tasks: PendingTasks, now: int) -> QueueView:
    """E8: return the view of a queue whose pending tasks are described by `tasks`."""
    state, reason = state_at(crawl, queue, tasks.first_due, now)
    cancelled = crawl.status is CrawlStatus.CANCELLED
    in_flight = queue.in_flight + queue.named
    gone = queue.pending + in_flight if cancelled else 0
    return QueueView(
        key=queue.key,
        state=state,
        reason=reason,
        pending=0 if cancelled else queue.pending,
        delayed=0 if cancelled else tasks.delayed,
        in_flight=0 if cancelled else in_flight,
        named=0 if cancelled else queue.named,
        precedence=queue.precedence,
        balance=max(0, queue.balance - queue.session) if queue.session >= 0 else 0,
        grant=queue.balance,
        spent=queue.spent,
        total_budget=queue.total,
        last_cost=queue.last_cost,
        average_cost=queue.cost_sum / queue.cost_count if queue.cost_count else 0.0,
        done=queue.done,
        dead=queue.dead,
        dropped=queue.dropped + gone,
        bytes=queue.bytes,
        errors_in_row=queue.errors_in_row,
        level=queue.politeness.level,
        delay=queue.delay_ms() / 1000,
        max_in_flight=queue.slots,
        last_visit_at=instant(queue.last_end),
        wakes_in=_wakes_in(queue, state, tasks.first_due, now),
        next_url=None if cancelled else tasks.url,
        lent=0 if cancelled else queue.loaned,
    )


def queues_by_key(
    crawl: CrawlEngine, prefix: str, after: str, limit: int, now: int
) -> CursorPage[QueueView]:
    """E8: return queues in the order of their keys."""
    found = crawl.queues.keys_between(*key_range(prefix, after), limit + 1)
    if found is None:  # the keys are being sorted
        return CursorPage([], [], after)
    shown = [queue_view(crawl, q, now) for q in crawl.queues.read([n for _, n in found[:limit]])]
    cursors = [key_cursor(view.key) for view in shown]
    return CursorPage(shown, cursors, cursors[-1] if len(found) > limit else None)


def queues_by_wake(crawl: CrawlEngine, after: str, limit: int, now: int) -> CursorPage[QueueView]:
    """E8: return the queues that wait for nothing but time, the earliest first."""
    if crawl.state.status is CrawlStatus.CANCELLED:
        return CursorPage([], [], None)
    most, source = limit + MORE_WAKES, crawl.loader or crawl.schedule
    wakes = source.wakes_after(*max(wake_of_cursor(after), (now, NUMBER_MASK)), most)
    current = wakes
    if crawl.loader is None:  # an entry of the heap may be outdated
        current = [(at, number) for at, number in wakes if crawl.queues.wake_at(number) == at]
    queues = {q.number: q for q in crawl.queues.read([number for _, number in current])}
    shown = [
        (view, wake_cursor(at, number))
        for at, number in current
        if (view := queue_view(crawl, queues[number], now)).state is QueueState.SNOOZED
    ]
    more = wake_cursor(*wakes[-1]) if len(wakes) == most else None
    if len(shown) > limit:
        more = shown[limit - 1][1]
    page = shown[:limit]
    return CursorPage([view for view, _ in page], [cursor for _, cursor in page], more)


def unknown_queue_view(crawl: CrawlEngine, key: str, now: int) -> QueueView:
    """Return the view of a queue that does not exist: an empty one under the rules of its key."""
    return queue_view(crawl, new_queue(key, 0, 0, crawl.state.rules.of(key)), now)


def _wakes_in(queue: Queue, state: QueueState, first_due: int, now: int) -> float | None:
    if state in (QueueState.READY, QueueState.INACTIVE):
        return 0.0
    if state is not QueueState.SNOOZED:
        return None
    return (max(queue.next_ready, first_due) - now) / 1000


def _next_url(crawl: CrawlEngine, queue: Queue, now: int) -> str | None:
    """Return the URL of the best due task, or of the first delayed one."""
    keys = [lane.head[0] >> DUE_BITS for lane in (queue.lane0, queue.lane1) if lane.head]
    first = queue.delayed.head[:1]
    if first and first[0] >> DELAYED_SHIFT <= now:  # due since the queue was last rescheduled
        first = [entry for entry in queue.delayed if entry >> DELAYED_SHIFT <= now]
    if not keys or (first and first[0] >> DELAYED_SHIFT <= now):
        keys += [entry >> 1 & KEY_MASK for entry in first]
    return crawl.tasks.url(min(keys) & NUMBER_MASK) if keys else None


def upcoming(crawl: CrawlEngine, queue: Queue, limit: int, now: int) -> list[Upcoming]:
    """D5: return the first due tasks of both lanes; a cancelled crawl has none (I3)."""
    if crawl.state.status is CrawlStatus.CANCELLED:
        return []
    lanes = (queue.lane0.first(limit), queue.lane1.first(limit))
    keys = [entry >> DUE_BITS for lane in lanes for entry in lane]
    promoted = queue.delayed.below(now + 1 << DELAYED_SHIFT)  # due since it was last rescheduled
    keys += [entry >> 1 & KEY_MASK for entry in promoted]
    numbers = [key & NUMBER_MASK for key in sorted(keys)[:limit]]
    return [Upcoming(r.task.fingerprint, r.task.url) for r in crawl.tasks.read(numbers)]


def shown_state(crawl: HasStatus, record: TaskRecord) -> tuple[TaskState, str | None]:
    """I3: pending and leased tasks of a cancelled crawl are shown as dropped."""
    if crawl.status is CrawlStatus.CANCELLED and record.state in OPEN:
        return TaskState.DROPPED, "cancelled"
    return record.state, record.reason


def lease_view(
    store: str, record: TaskRecord, rules: QueueRules, manners: PolitenessState, now: int
) -> LeaseView:
    """H1: return the view of a leased task, under its queue's rules and politeness state."""
    claimed = record.leased if record.named else record.claimed
    lasts = record.lasts or record.deadline - claimed  # 0: leased by an earlier build
    answer = record.answer
    lease = Lease(
        store=store,
        task=record.number,
        token=record.token,
        about=record.task,
        attempt=record.attempts + 1,
        worker=record.worker or "",
        lease_for=lasts / 1000,
        failures=record.failures,
        throttles=record.throttles,
        rules=rules,
        manners=manners,
        last=None if answer is None else Last(answer, max(0, now - record.answered) / 1000),
        delay=record.drawn,
        waited=(claimed - record.due) / 1000,
    )
    return LeaseView(lease, claimed / 1000, record.deadline / 1000, record.named, record.loaned)


def lease_matcher(which: LeaseFilter, now: int) -> Callable[[LeaseView], bool]:
    """H1: return a test for leases that match every field given."""
    tests = list(_lease_tests(which, now))
    return lambda view: all(test(view) for test in tests)


def _lease_tests(which: LeaseFilter, now: int) -> Iterator[Callable[[LeaseView], bool]]:
    for name in ("task", "fingerprint", "token", "worker"):
        wanted = getattr(which, name)
        if wanted is not None:
            yield lambda view, name=name, wanted=wanted: getattr(view.lease, name) == wanted  # type: ignore[misc]
    if which.key is not None:
        key = which.key
        yield lambda view: covers(key, view.lease.key)
    if which.older_than is not None:
        oldest = now / 1000 - which.older_than
        yield lambda view: view.claimed_at < oldest


def _compile_task_view() -> Callable[[HasStatus, TaskRecord], TaskView]:
    computed = {
        "key": "task.key",
        "state": "state",
        "lane": "LANES[task.lane]",
        "breakdown": "breakdown_of(task)",
        "meta": "decode(task.meta) if task.meta else {}",
        "reason": "reason",
        "worker": "record.worker if state is LEASED else None",
        "discovered_at": "record.discovered / 1000",
        "due_at": "record.due / 1000 if state in OPEN else None",
        "claimed_at": "None if record.claimed < 0 else record.claimed / 1000",
        "finished_at": "None if record.finished < 0 else record.finished / 1000",
    }
    names = TaskView.__struct_fields__
    shown = [f for f in TASK_FIELDS if f.name.removeprefix("task.") in names]
    values = {f.last_name: fields.read(f, "record") for f in shown}
    arguments = fields.arguments(names, values, computed)
    body = [
        *fields.load_parts(TASK_FIELDS, "record"),
        "state, reason = shown_state(crawl, record)",
        f"return TaskView({', '.join(arguments)})",
    ]
    scope = {
        "TaskView": TaskView,
        "LANES": LANES,
        "LEASED": TaskState.LEASED,
        "OPEN": OPEN,
        "breakdown_of": breakdown_of,
        "decode": msgspec.json.decode,
        "shown_state": shown_state,
    }
    return fields.compile_function("task_view", "crawl, record", body, scope)  # type: ignore[no-any-return]


task_view: Final = _compile_task_view()  # B1: the view of a task


def position_of(crawl: CrawlEngine, record: TaskRecord, now: int) -> QueuePosition:
    """O4: return how many tasks of its queue and lane precede it; scans that queue alone."""
    queue, lane, ahead = record.queue, record.task.lane, 0
    if record.state is TaskState.PENDING:
        keys = [entry >> DUE_BITS for entry in queue.lane(lane)]
        keys += [entry >> 1 & KEY_MASK for entry in queue.delayed if entry & 1 == lane]
        ahead = sum(key < record.key for key in keys)
    return QueuePosition(ahead, queue_view(crawl, queue, now))


def heatmap(crawl: CrawlState, now: int) -> Heat:
    """O2: count pending tasks; total = sum of cells = sum of depths."""
    cells: dict[str, dict[str, int]] = {}
    depth = dict.fromkeys(_DEPTHS, 0)
    for counts in crawl.task_counts.values():
        pending = shown_counts(crawl, counts)["pending"]
        if pending:
            row = cells.setdefault(counts.origin, {"article": 0, "hub": 0, "other": 0})
            row[group_of(counts.type)] += pending
            depth[_DEPTHS[counts.depth]] += pending
    return Heat(sum(depth.values()), cells, depth, now / 1000)


def group_of(type_: str) -> str:
    """O2: return the column of the heatmap a task type belongs to."""
    if type_ == "article":
        return "article"
    return "hub" if type_ in _HUBS else "other"


def instant(at: int) -> float | None:
    """Return milliseconds as seconds since the epoch; None if below 0."""
    return None if at < 0 else at / 1000
