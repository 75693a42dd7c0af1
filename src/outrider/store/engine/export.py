"""Export of a crawl in result pages; nothing here changes anything.

The cursor has the number of exported queues in its upper half and of tasks in its lower half: a
queue that is created during an export comes before the remaining tasks, so before all of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

import msgspec

from outrider.core.order import NUMBER_BITS, TIE_MASK
from outrider.core.outcome import Answer
from outrider.core.states import CrawlStatus, TaskState
from outrider.store.engine import fields
from outrider.store.engine.admin import read_within
from outrider.store.engine.engine import CrawlEngine
from outrider.store.engine.fields import QUEUE_FIELDS, TASK_FIELDS
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
    records, tasks_to = read_within(crawl.tasks, range(tasks + 1, tasks_to + 1), tasks_to)
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
    return _queue_item(_released(queue, leases, now) if leases else queue)


def _compile_queue_item() -> Callable[[Queue], SavedQueue]:
    computed = {
        "standing": "LISTS[queue.list_state]",
        "place": "queue.inactive_turn if queue.list_state == INACTIVE else 0",
        "said": "(rules.paused, rules.retired)",
    }
    values = fields.exported_values(QUEUE_FIELDS, "queue")
    arguments = fields.arguments(SavedQueue.__struct_fields__, values, computed)
    body = [
        *fields.load_parts(QUEUE_FIELDS, "queue"),
        f"return SavedQueue({', '.join(arguments)})",
    ]
    scope = {"SavedQueue": SavedQueue, "LISTS": _LISTS, "INACTIVE": INACTIVE}
    return fields.compile_function("_queue_item", "queue", body, scope)  # type: ignore[no-any-return]


def _compile_export_task() -> Callable[[TaskRecord, int], SavedTask]:
    computed = {
        "key": "task.key",
        "tie": f"record.key >> {NUMBER_BITS} & {TIE_MASK}",
        "due": "None if due == record.discovered or state is not PENDING else due",
        "state": "state.value",
        "meta": "task.meta.decode()",
        "breakdown": "None if breakdown is None else (breakdown.source, breakdown.terms)",
        "answer": "None if record.answer is None else answer_item(record.answer)",
    }
    values = fields.exported_values(TASK_FIELDS, "record")
    arguments = fields.arguments(SavedTask.__struct_fields__, values, computed)
    body = [
        *fields.load_parts(TASK_FIELDS, "record"),
        "breakdown, state, due = task.breakdown, record.state, record.due",
        "if state is LEASED:",
        "    state, due = PENDING, now",
        f"return SavedTask({', '.join(arguments)})",
    ]
    scope = {
        "SavedTask": SavedTask,
        "PENDING": TaskState.PENDING,
        "LEASED": TaskState.LEASED,
        "answer_item": _answer_item,
    }
    return fields.compile_function("export_task", "record, now", body, scope)  # type: ignore[no-any-return]


def _answer_item(answer: Answer) -> SavedAnswer:
    return SavedAnswer(*msgspec.structs.astuple(answer))


_queue_item: Final = _compile_queue_item()
export_task: Final = _compile_export_task()  # a task at a time; a leased one is pending (H5)


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
        crawl.recovered,
    )


def or_none(value: int) -> int | None:
    """Return a value, or None if it is below 0."""
    return None if value < 0 else value
