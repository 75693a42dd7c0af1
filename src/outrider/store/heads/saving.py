"""A crawl as it is saved, page by page; nothing here changes anything.

A cursor counts the queues told in its upper half and the tasks in its lower: a queue that is born
while tasks are told comes before the tasks that are left, so before all of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, Final

import msgspec

from outrider.core.answer import Answer
from outrider.core.order import NUMBER_BITS, TIE_MASK
from outrider.core.states import CrawlStatus, TaskState
from outrider.store.heads.crawl import Crawl
from outrider.store.heads.records import INACTIVE, NEITHER, READY, Queue, Record
from outrider.store.protocol import Page
from outrider.store.saved import (
    Saved,
    SavedAnswer,
    SavedCrawl,
    SavedEnd,
    SavedQueue,
    SavedTask,
    plain_rules,
)

_HALF: Final = 32
_TASKS: Final = (1 << _HALF) - 1
_STANDINGS: Final[Mapping[int, Any]] = {NEITHER: None, READY: "ready", INACTIVE: "inactive"}
LEASED: Final = TaskState.LEASED


def saved_page(crawl: Crawl, after: int, limit: int, now: int) -> Page:
    """What follows the cursor: queues not told yet, then tasks, and at last the end."""
    queues, tasks = after >> _HALF, after & _TASKS
    queues_to = min(queues + max(1, limit), crawl.queue_count)
    tasks_to = min(tasks + max(1, limit) - (queues_to - queues), crawl.count)
    items: list[Saved] = [] if after else [_crawl(crawl)]
    items += _queues(crawl, range(queues + 1, queues_to + 1), now)
    items += [_task(record, now) for record in crawl.seen(range(tasks + 1, tasks_to + 1))]
    if (queues_to, tasks_to) == (crawl.queue_count, crawl.count):
        return Page([*items, _end(crawl)], None)
    return Page(items, queues_to << _HALF | tasks_to)


def _crawl(crawl: Crawl) -> SavedCrawl:
    roots = {mode: list(found) for mode, found in crawl.roots.items()}
    rules, settings = plain_rules(crawl.rules), crawl.settings
    return SavedCrawl(crawl.name, crawl.created, rules, crawl.is_told, roots, settings)


def _queues(crawl: Crawl, numbers: range, now: int) -> Iterator[SavedQueue]:
    leased: dict[int, list[Record]] = {}
    is_over = crawl.status is CrawlStatus.CANCELLED  # I3: its leases are void, and nothing returns
    for record in crawl.leases.values() if numbers and not is_over else ():
        leased.setdefault(record.queue.number, []).append(record)
    for queue in crawl.glimpses(numbers):
        held = leased.get(queue.number)
        yield _queue(_released(queue, held, now) if held else queue)


def _released(queue: Queue, leases: list[Record], now: int) -> Queue:
    """H5, D7, E3: as if its leases were given back now; whether it stands, the next claim says."""
    queue = copy(queue)
    for record in leases:
        queue.refund(record.task.cost)
        if not record.named:
            start = record.claimed if queue.from_start and not record.lent else now
            queue.postpone(start + queue.delay_ms(), "delay")
            queue.last_end = now
            queue.last_start = now if record.lent else queue.last_start
    if queue.retired == "budget" and not queue.over_budget():
        queue.retired = None
    if queue.next_ready > now:
        queue.standing = NEITHER
    return queue


def _queue(queue: Queue) -> SavedQueue:
    manners = queue.manners
    return SavedQueue(
        queue.key,
        queue.turn,
        _STANDINGS[queue.standing],
        queue.place if queue.standing == INACTIVE else 0,
        _given(queue.session),
        queue.spent,
        queue.next_ready,
        queue.why,  # type: ignore[arg-type] # one of the reasons of `core.states`
        _given(queue.last_start),
        _given(queue.last_end),
        queue.paused,
        queue.retired,  # type: ignore[arg-type] # as above
        (queue.rules.paused, queue.rules.retired),
        manners.level,
        manners.calm,
        manners.throttles_in_row,
        manners.unreachable_in_row,
        manners.blocks_in_row,
        None if manners.last_delay < 0 else manners.last_delay,
        manners.crawl_delay,
        queue.errors,
        queue.dones,
        queue.bytes,
        queue.last_cost,
        queue.cost_sum,
        queue.cost_count,
    )


def _task(record: Record, now: int) -> SavedTask:
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
        _given(record.claimed),
        _given(record.finished),
        record.reason,
        None if record.answer is None else _answer(record.answer),
        _given(record.answered),
        record.history,
    )


def _answer(answer: Answer) -> SavedAnswer:
    return SavedAnswer(*msgspec.structs.astuple(answer))


def _end(crawl: Crawl) -> SavedEnd:
    return SavedEnd(
        crawl.status,
        crawl.reason,
        crawl.at_finish,
        crawl.counter,
        crawl.arrivals,
        crawl.dones,
        crawl.bytes,
        crawl.runs,
        _given(crawl.first),
        _given(crawl.finished),
        crawl.logged,
        dict(crawl.outcomes),
        tuple(crawl.timeline),
    )


def _given(value: int) -> int | None:
    return None if value < 0 else value
