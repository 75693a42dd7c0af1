"""Export of a crawl in result pages; nothing here changes anything.

The cursor has the number of exported queues in its upper half and of tasks in its lower half: a
queue that is created during an export comes before the remaining tasks, so before all of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

import msgspec

from outrider.core.order import NUMBER_BITS, TIE_MASK
from outrider.core.outcome import Answer
from outrider.core.states import CrawlStatus, TaskState
from outrider.store.engine.engine import CrawlEngine
from outrider.store.engine.records import INACTIVE, READY, UNLISTED, Queue, TaskRecord
from outrider.store.engine.state import CrawlState
from outrider.store.export_items import (
    Saved,
    SavedAnswer,
    SavedCrawl,
    SavedEnd,
    SavedQueue,
    SavedTask,
    plain_rules,
)
from outrider.store.protocol import ResultPage

QUEUE_SHIFT: Final = 32
TASK_MASK: Final = (1 << QUEUE_SHIFT) - 1
_LISTS: Final[Mapping[int, Any]] = {UNLISTED: None, READY: "ready", INACTIVE: "inactive"}
LEASED: Final = TaskState.LEASED


class HeldLease(NamedTuple):
    """What a queue needs to know of a lease to release it."""

    cost: int
    claimed: int
    named: bool
    loaned: bool


def export_page(crawl: CrawlEngine, after: int, limit: int, now: int) -> ResultPage[Any]:
    """Return what follows the cursor: queues, then tasks, and at last the end."""
    state, queues, tasks = crawl.state, after >> QUEUE_SHIFT, after & TASK_MASK
    queues_to = min(queues + max(1, limit), state.last_queue)
    tasks_to = min(tasks + max(1, limit) - (queues_to - queues), state.last_task)
    items: list[Saved] = [] if after else [_crawl(crawl)]
    items += _queues(crawl, range(queues + 1, queues_to + 1), now)
    records = crawl.tasks.read(range(tasks + 1, tasks_to + 1))
    items += [export_task(record, now) for record in records]
    if (queues_to, tasks_to) == (state.last_queue, state.last_task):
        return ResultPage([*items, _end(state)], None)
    return ResultPage(items, queues_to << QUEUE_SHIFT | tasks_to)


def _crawl(crawl: CrawlEngine) -> SavedCrawl:
    state, roots = crawl.state, crawl.journal.all_roots()
    rules, settings = plain_rules(state.rules), state.settings
    return SavedCrawl(state.name, state.created, rules, state.rules_applied, roots, settings)


def _queues(crawl: CrawlEngine, numbers: range, now: int) -> Iterator[SavedQueue]:
    leased: dict[int, list[HeldLease]] = {}
    is_over = crawl.state.status is CrawlStatus.CANCELLED  # I3: its leases are void
    for record in crawl.leases.held.values() if numbers and not is_over else ():
        held = HeldLease(record.task.cost, record.claimed, record.named, record.loaned)
        leased.setdefault(record.queue.number, []).append(held)
    for queue in crawl.queues.read(numbers):
        yield export_queue(queue, leased.get(queue.number, ()), now)


def _released(queue: Queue, leases: Sequence[HeldLease], now: int) -> Queue:
    """H5, D7, E3: return a copy as if its leases were released now; the next claim lists it."""
    queue = copy(queue)
    for held in leases:
        queue.refund(held.cost)
        if not held.named:
            start = held.claimed if queue.from_start and not held.loaned else now
            queue.postpone(start + queue.delay_ms(), "delay")
            queue.last_end = now
            queue.last_start = now if held.loaned else queue.last_start
            queue.apply_pace()
    if queue.retired == "budget" and not queue.is_over_budget():
        queue.retired = None
    if queue.next_ready > now:
        queue.list_state = UNLISTED
    return queue


def export_queue(queue: Queue, leases: Sequence[HeldLease], now: int) -> SavedQueue:
    """Return a queue without its tasks, as if these leases of it were released now."""
    queue = _released(queue, leases, now) if leases else queue
    politeness = queue.politeness
    return SavedQueue(
        queue.key,
        queue.turn,
        _LISTS[queue.list_state],
        queue.inactive_turn if queue.list_state == INACTIVE else 0,
        or_none(queue.session),
        queue.spent,
        queue.next_ready,
        queue.wait_reason,  # type: ignore[arg-type] # one of the reasons of `core.states`
        or_none(queue.last_start),
        or_none(queue.last_end),
        queue.paused,
        queue.retired,  # type: ignore[arg-type] # as above
        (queue.rules.paused, queue.rules.retired),
        politeness.level,
        politeness.calm,
        politeness.throttles_in_row,
        politeness.unreachable_in_row,
        politeness.blocks_in_row,
        None if politeness.last_delay < 0 else politeness.last_delay,
        politeness.crawl_delay,
        queue.errors_in_row,
        queue.visits_done,
        queue.bytes,
        queue.last_cost,
        queue.cost_sum,
        queue.cost_count,
    )


def export_task(record: TaskRecord, now: int) -> SavedTask:
    """Return a task; a leased one is exported as pending (H5)."""
    task, state, due = record.task, record.state, record.due
    if state is LEASED:
        state, due = TaskState.PENDING, now
    breakdown = task.breakdown
    return SavedTask(
        task.url,
        task.key,
        task.fingerprint,
        record.key >> NUMBER_BITS & TIE_MASK,
        record.discovered,
        None if due == record.discovered or state is not TaskState.PENDING else due,
        state.value,  # type: ignore[arg-type] # all but leased
        task.type,
        task.lane,  # type: ignore[arg-type] # there are two
        task.depth,
        task.precedence,
        task.priority,
        task.cost,
        task.delay,
        task.known,
        task.roll,
        task.origin,
        task.via,
        task.tag,
        task.meta.decode(),
        None if breakdown is None else (breakdown.source, breakdown.terms),
        record.attempts,
        record.failures,
        record.crashes,
        record.throttles,
        or_none(record.claimed),
        or_none(record.finished),
        record.reason,
        None if record.answer is None else _answer(record.answer),
        or_none(record.answered),
        record.history,
    )


def _answer(answer: Answer) -> SavedAnswer:
    return SavedAnswer(*msgspec.structs.astuple(answer))


def _end(crawl: CrawlState) -> SavedEnd:
    return SavedEnd(
        crawl.status,
        crawl.reason,
        crawl.at_finish,
        crawl.last_turn,
        crawl.last_arrival,
        crawl.visits_done,
        crawl.bytes,
        crawl.runs,
        or_none(crawl.started),
        or_none(crawl.finished),
        crawl.last_event,
        dict(crawl.outcomes),
        tuple(crawl.timeline),
    )


def or_none(value: int) -> int | None:
    """Return a value, or None if it is below 0."""
    return None if value < 0 else value
