"""What a crawl looks like to a reader; nothing here changes anything."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple, Protocol

import msgspec

from outrider.core.order import DELAYED_SHIFT, DUE_BITS, KEY_MASK, NUMBER_MASK
from outrider.core.policy.score import breakdown_of
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import LANES
from outrider.store.heads.crawl import Crawl
from outrider.store.heads.records import COLUMNS, INACTIVE, Kind, Queue, Record, new_queue
from outrider.store.protocol import CrawlView, Heat, QueuePosition, QueueView, TaskView, Upcoming

_HUBS: Final = frozenset({"hub", "hub-seed", "nav"})
_DEPTHS: Final = ("0", "1", "2", "3+", "unknown")
_OPEN: Final = (TaskState.PENDING, TaskState.LEASED)


class Turned(Protocol):
    """Whatever has a crawl's status."""

    @property
    def status(self) -> CrawlStatus: ...  # noqa: D102


class Waiting(NamedTuple):
    """What waits in a queue: when the first is due, how many are not, where the next leads."""

    first_due: int  # anything up to now is as good as now
    delayed: int
    url: str | None


def counts_of(crawl: Crawl, kind: Kind) -> dict[str, int]:
    """O5, I3: by state; a cancelled crawl's pending and leased tasks read as dropped."""
    counts = {state.value: kind.counts[column] for state, column in COLUMNS.items()}
    if crawl.status is CrawlStatus.CANCELLED:
        counts["dropped"] += counts["pending"] + counts["leased"]
        counts["pending"] = counts["leased"] = 0
    return counts


def crawl_view(crawl: Crawl) -> CrawlView:
    """Status and counters; sums over kinds, never over tasks."""
    totals: Counter[str] = Counter({state.value: 0 for state in TaskState})
    types: dict[str, Counter[str]] = {}
    tags: dict[str, Counter[str]] = {}
    for kind in crawl.kinds.values():
        counts = {name: count for name, count in counts_of(crawl, kind).items() if count}
        totals.update(counts)
        types.setdefault(kind.type, Counter()).update(counts)
        if kind.tag is not None:
            tags.setdefault(kind.tag, Counter()).update(counts)
    return CrawlView(
        crawl=crawl.name,
        status=crawl.status,
        reason=crawl.reason,
        known=crawl.count,
        **totals,
        held=0 if crawl.status is CrawlStatus.CANCELLED else crawl.held,
        visits=crawl.visits,
        bytes=crawl.bytes,
        outcomes=dict(crawl.outcomes),
        types={name: dict(counts) for name, counts in types.items() if counts},
        tags={name: dict(counts) for name, counts in tags.items() if counts},
        runs=crawl.runs,
        created_at=crawl.created / 1000,
        finished_at=instant(crawl.finished),
        timeline=tuple(crawl.timeline),
    )


def state_of(crawl: Crawl, queue: Queue, now: int) -> tuple[QueueState, str | None]:
    """C1, of a queue whose lines are at hand."""
    return state_when(crawl, queue, _first_due(queue, now), now)


def state_when(
    crawl: Turned, queue: Queue, first_due: int, now: int
) -> tuple[QueueState, str | None]:
    """C1: the first that holds."""
    if queue.retired is not None:
        return QueueState.RETIRED, queue.retired
    if queue.paused:
        return QueueState.PAUSED, "operator"
    is_over = crawl.status is CrawlStatus.CANCELLED
    if is_over or not (queue.pending or queue.in_flight or queue.named):
        return QueueState.EMPTY, None
    if queue.lent or queue.in_flight >= queue.slots or not queue.pending:
        return QueueState.BUSY, None
    if first_due > max(now, queue.next_ready):
        return QueueState.SNOOZED, "waiting"
    if queue.next_ready > now:
        return QueueState.SNOOZED, queue.why
    return QueueState.INACTIVE if queue.standing == INACTIVE else QueueState.READY, None


def _first_due(queue: Queue, now: int) -> int:
    """When the earliest task is due; anything up to now is as good as now."""
    if queue.lane0.head or queue.lane1.head or not queue.delayed.head:
        return now
    return queue.delayed.head[0] >> DELAYED_SHIFT


def queue_view(crawl: Crawl, queue: Queue, now: int) -> QueueView:
    """E8, of a queue whose lines are at hand."""
    delayed = queue.delayed.beyond(now + 1 << DELAYED_SHIFT)
    waiting = Waiting(_first_due(queue, now), delayed, _next_url(crawl, queue, now))
    return shown(crawl, queue, waiting, now)


def shown(crawl: Turned, queue: Queue, waiting: Waiting, now: int) -> QueueView:
    """E8."""
    state, reason = state_when(crawl, queue, waiting.first_due, now)
    cancelled = crawl.status is CrawlStatus.CANCELLED
    in_flight = queue.in_flight + queue.named
    gone = queue.pending + in_flight if cancelled else 0
    return QueueView(
        key=queue.key,
        state=state,
        reason=reason,
        pending=0 if cancelled else queue.pending,
        delayed=0 if cancelled else waiting.delayed,
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
        errors_in_row=queue.errors,
        level=queue.manners.level,
        delay=queue.delay_ms() / 1000,
        max_in_flight=queue.slots,
        last_visit_at=instant(queue.last_end),
        wakes_in=_wakes_in(queue, state, waiting.first_due, now),
        next_url=None if cancelled else waiting.url,
        lent=0 if cancelled else queue.lent,
    )


def unborn_view(crawl: Crawl, key: str, now: int) -> QueueView:
    """A key nobody added to is an empty queue under its rules."""
    return queue_view(crawl, new_queue(key, 0, 0, crawl.rules.of(key)), now)


def _wakes_in(queue: Queue, state: QueueState, first_due: int, now: int) -> float | None:
    if state in (QueueState.READY, QueueState.INACTIVE):
        return 0.0
    if state is not QueueState.SNOOZED:
        return None
    return (max(queue.next_ready, first_due) - now) / 1000


def _next_url(crawl: Crawl, queue: Queue, now: int) -> str | None:
    """The best due task's, or the first delayed one's."""
    keys = [line.head[0] >> DUE_BITS for line in (queue.lane0, queue.lane1) if line.head]
    first = queue.delayed.head[:1]
    if first and first[0] >> DELAYED_SHIFT <= now:  # due since the last look at this queue
        first = [entry for entry in queue.delayed if entry >> DELAYED_SHIFT <= now]
    if not keys or (first and first[0] >> DELAYED_SHIFT <= now):
        keys += [entry >> 1 & KEY_MASK for entry in first]
    return crawl.url_of(min(keys) & NUMBER_MASK) if keys else None


def upcoming(crawl: Crawl, queue: Queue, limit: int, now: int) -> list[Upcoming]:
    """D5: the first due tasks of both lanes, in order; a cancelled crawl has none (I3)."""
    if crawl.status is CrawlStatus.CANCELLED:
        return []
    lanes = (queue.lane0.first(limit), queue.lane1.first(limit))
    keys = [entry >> DUE_BITS for line in lanes for entry in line]
    ripe = queue.delayed.below(now + 1 << DELAYED_SHIFT)  # due since the last look at this queue
    keys += [entry >> 1 & KEY_MASK for entry in ripe]
    numbers = [key & NUMBER_MASK for key in sorted(keys)[:limit]]
    return [Upcoming(r.task.fingerprint, r.task.url) for r in crawl.seen(numbers)]


def reads_as(crawl: Turned, record: Record) -> tuple[TaskState, str | None]:
    """I3: a cancelled crawl's pending and leased tasks read as dropped."""
    if crawl.status is CrawlStatus.CANCELLED and record.state in _OPEN:
        return TaskState.DROPPED, "cancelled"
    return record.state, record.reason


def task_view(crawl: Turned, record: Record) -> TaskView:
    """B1."""
    task = record.task
    state, reason = reads_as(crawl, record)
    return TaskView(  # by place: whoever reads them reads many, and names cost more than the rest
        record.number,
        task.url,
        task.key,
        task.fingerprint,
        state,
        task.type,
        LANES[task.lane],
        task.depth,
        task.precedence,
        task.priority,
        breakdown_of(task),
        task.cost,
        task.origin,
        task.via,
        task.tag,
        msgspec.json.decode(task.meta) if task.meta else {},
        record.attempts,
        record.failures,
        record.crashes,
        reason,
        record.worker if state is TaskState.LEASED else None,
        record.discovered / 1000,
        record.due / 1000 if state in _OPEN else None,
        instant(record.claimed),
        instant(record.finished),
        record.answer,
        record.history,
    )


def place_of(crawl: Crawl, record: Record, now: int) -> QueuePosition:
    """O4: how many of its queue and lane are before it; scans that queue alone."""
    queue, lane, ahead = record.queue, record.task.lane, 0
    if record.state is TaskState.PENDING:
        keys = [entry >> DUE_BITS for entry in queue.lane(lane)]
        keys += [entry >> 1 & KEY_MASK for entry in queue.delayed if entry & 1 == lane]
        ahead = sum(key < record.key for key in keys)
    return QueuePosition(ahead, queue_view(crawl, queue, now))


def heat_of(crawl: Crawl, now: int) -> Heat:
    """O2: pending only; total = sum of cells = sum of depths."""
    cells: dict[str, dict[str, int]] = {}
    depth = dict.fromkeys(_DEPTHS, 0)
    for kind in crawl.kinds.values():
        pending = counts_of(crawl, kind)["pending"]
        if pending:
            row = cells.setdefault(kind.origin, {"article": 0, "hub": 0, "other": 0})
            row[group_of(kind.type)] += pending
            depth[_DEPTHS[kind.depth]] += pending
    return Heat(sum(depth.values()), cells, depth, now / 1000)


def group_of(kind: str) -> str:
    """Which column of the heatmap a type is in (O2)."""
    if kind == "article":
        return "article"
    return "hub" if kind in _HUBS else "other"


def instant(at: int) -> float | None:
    """Seconds since the epoch, or none."""
    return None if at < 0 else at / 1000
