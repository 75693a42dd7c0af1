"""What rows look like to a reader; nothing here asks anybody anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from outrider.clock import to_ms
from outrider.core.policy.politeness import least_delay
from outrider.core.policy.rules import QueueRules, covers
from outrider.core.policy.score import breakdown_of
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import LANES, Task
from outrider.store.protocol import Beat, QueueView, TaskView, Which, WorkerView
from outrider.store.redis.rows import CrawlRow, QueueRow, TaskRow
from outrider.store.redis.texts import STATES, Kind, answer_of

_HUBS: Final = frozenset({"hub", "hub-seed", "nav"})
_OPEN: Final = (TaskState.PENDING, TaskState.LEASED)
_INACTIVE: Final = 2

Seen: TypeAlias = tuple[int, TaskRow, Task]  # a task: its number, what happened to it, what it is


def pairs(found: Any) -> list[tuple[Any, Any]]:
    """A hash as a script tells it."""
    return list(zip(found[::2], found[1::2], strict=True))


def by_state(row: CrawlRow, counted: dict[int, int], kind: int) -> dict[str, int]:
    """O5, I3: a cancelled crawl's pending and leased tasks read as dropped."""
    counts = {state.value: counted.get(kind * 8 + column, 0) for column, state in enumerate(STATES)}
    if row.status == CrawlStatus.CANCELLED:
        counts["dropped"] += counts["pending"] + counts["leased"]
        counts["pending"] = counts["leased"] = 0
    return {name: count for name, count in counts.items() if count}


def group_of(kind: Kind) -> str:
    """Which column of the heatmap it is in (O2)."""
    if kind.type == "article":
        return "article"
    return "hub" if kind.type in _HUBS else "other"


def worker_view(first: int, last: int, beat: Beat, now: int) -> WorkerView:
    """One worker as all others see it (M6)."""
    said = msgspec.structs.asdict(beat)
    if now - last >= to_ms(said.pop("lasts")):
        said["state"] = "gone"
    return WorkerView(**said, started_at=first / 1000, seen_at=last / 1000)


# ---- a queue


class Waiting(NamedTuple):
    """What waits in a queue: how many, how many of them are not due, and where the next leads."""

    pending: int
    delayed: int
    url: str


def state_of(
    row: CrawlRow, queue: QueueRow, slots: int, pending: int, now: int
) -> tuple[QueueState, str | None]:
    """C1: the first that holds."""
    if queue.retired:
        return QueueState.RETIRED, queue.retired
    if queue.paused:
        return QueueState.PAUSED, "operator"
    is_over = row.status == CrawlStatus.CANCELLED
    if is_over or not (pending or queue.in_flight or queue.named):
        return QueueState.EMPTY, None
    if queue.lent or queue.in_flight >= slots or not pending:
        return QueueState.BUSY, None
    if _first_due(queue, now) > max(now, queue.next_ready):
        return QueueState.SNOOZED, "waiting"
    if queue.next_ready > now:
        return QueueState.SNOOZED, queue.why
    return QueueState.INACTIVE if queue.standing == _INACTIVE else QueueState.READY, None


def _first_due(queue: QueueRow, now: int) -> int:
    """When the earliest task is due; anything up to now is as good as now."""
    has_due = len(bytes(queue.top0)) > 1 or len(bytes(queue.top1)) > 1
    return now if has_due or queue.soon < 0 else queue.soon


def queue_view(
    row: CrawlRow, queue: QueueRow, rules: QueueRules, waiting: Waiting, now: int
) -> QueueView:
    """E8."""
    manners, budget = rules.politeness, rules.budget
    state, reason = state_of(row, queue, manners.max_in_flight, waiting.pending, now)
    is_over, in_flight = row.status == CrawlStatus.CANCELLED, queue.in_flight + queue.named
    return QueueView(
        key=queue.key,
        state=state,
        reason=reason,
        pending=0 if is_over else waiting.pending,
        delayed=0 if is_over else waiting.delayed,
        in_flight=0 if is_over else in_flight,
        named=0 if is_over else queue.named,
        precedence=rules.precedence,
        balance=max(0, budget.balance - queue.session) if queue.session >= 0 else 0,
        grant=budget.balance,
        spent=queue.spent,
        total_budget=budget.total_budget,
        last_cost=queue.last_cost,
        average_cost=queue.cost_sum / queue.cost_count if queue.cost_count else 0.0,
        done=queue.done,
        dead=queue.dead,
        dropped=queue.dropped + (waiting.pending + in_flight if is_over else 0),
        bytes=queue.bytes,
        errors_in_row=queue.errors,
        level=queue.level,
        delay=delay_ms(queue, rules) / 1000,
        max_in_flight=manners.max_in_flight,
        last_visit_at=instant(queue.last_end),
        wakes_in=_wakes_in(queue, state, now),
        next_url=None if is_over else waiting.url or None,
        lent=0 if is_over else queue.lent,
    )


def delay_ms(queue: QueueRow, rules: QueueRules) -> int:
    """D7: the last delay, or the least if none."""
    if queue.last_delay >= 0:
        return to_ms(queue.last_delay)
    return to_ms(least_delay(rules.politeness, queue.crawl_delay))


def _wakes_in(queue: QueueRow, state: QueueState, now: int) -> float | None:
    if state in (QueueState.READY, QueueState.INACTIVE):
        return 0.0
    if state is not QueueState.SNOOZED:
        return None
    return (max(queue.next_ready, _first_due(queue, now)) - now) / 1000


# ---- a task


def reads_as(row: CrawlRow, task: TaskRow) -> tuple[TaskState, str | None]:
    """I3: a cancelled crawl's pending and leased tasks read as dropped."""
    state = STATES[task.state]
    if row.status == CrawlStatus.CANCELLED and state in _OPEN:
        return TaskState.DROPPED, "cancelled"
    return state, None if task.reason is False else task.reason


def task_view(row: CrawlRow, number: int, kept: TaskRow, task: Task) -> TaskView:
    """B1."""
    state, reason = reads_as(row, kept)
    discovered = row.created + kept.discovered
    return TaskView(
        number=number,
        url=task.url,
        key=task.key,
        fingerprint=task.fingerprint,
        state=state,
        type=task.type,
        lane=LANES[task.lane],
        depth=task.depth,
        precedence=task.precedence,
        priority=task.priority,
        breakdown=breakdown_of(task),
        cost=task.cost,
        origin=task.origin,
        via=task.via,
        tag=task.tag,
        meta=msgspec.json.decode(task.meta) if task.meta else {},
        attempts=kept.attempts,
        failures=kept.failures,
        crashes=kept.crashes,
        reason=reason,
        worker=kept.worker if state is TaskState.LEASED else None,
        discovered_at=discovered / 1000,
        due_at=(kept.due or discovered) / 1000 if state in _OPEN else None,
        claimed_at=instant(kept.claimed),
        finished_at=instant(kept.finished),
        answer=answer_of(kept),
        history=tuple(kept.history),
    )


def matcher(row: CrawlRow, which: Which, now: int) -> Callable[[Seen], bool]:
    """C10: all that match every field given, as they read (I3)."""
    tests = list(_tests(row, which, now))
    return lambda seen: all(test(seen) for test in tests)


def _tests(row: CrawlRow, which: Which, now: int) -> Iterator[Callable[[Seen], bool]]:
    if which.key is not None:
        key = which.key
        yield lambda seen: covers(key, seen[2].key)
    for name in ("fingerprint", "url", "type", "tag"):
        wanted = getattr(which, name)
        if wanted is not None:
            yield lambda seen, name=name, wanted=wanted: getattr(seen[2], name) == wanted  # type: ignore[misc] # a lambda's defaults have no types
    if which.reason is not None:
        yield lambda seen: reads_as(row, seen[1])[1] == which.reason
    if which.pattern is not None:
        search = re.compile(which.pattern).search
        yield lambda seen: search(seen[2].url) is not None
    if which.older_than is not None:
        oldest = now - which.older_than * 1000
        yield lambda seen: row.created + seen[1].discovered < oldest


def instant(at: int) -> float | None:
    """Seconds since the epoch, or none."""
    return None if at < 0 else at / 1000
