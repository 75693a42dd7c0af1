"""A crawl as it is saved, page by page; nothing here changes anything.

A cursor counts the queues told in its upper half and the tasks in its lower: a queue that is born
while tasks are told comes before the tasks that are left, so before all of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

import msgspec

from outrider.core.order import NUMBER_BITS, TIE_MASK
from outrider.core.outcome import Answer
from outrider.core.states import CrawlStatus, TaskState
from outrider.store.export_items import (
    Saved,
    SavedAnswer,
    SavedCrawl,
    SavedEnd,
    SavedQueue,
    SavedTask,
    plain_rules,
)
from outrider.store.heads.crawl import Crawl
from outrider.store.heads.records import INACTIVE, NEITHER, READY, Queue, Record
from outrider.store.protocol import ResultPage

HALF: Final = 32
TASKS: Final = (1 << HALF) - 1
_STANDINGS: Final[Mapping[int, Any]] = {NEITHER: None, READY: "ready", INACTIVE: "inactive"}
LEASED: Final = TaskState.LEASED


class Held(NamedTuple):
    """What a queue must know of a lease that is given back."""

    cost: int
    claimed: int
    named: bool
    lent: bool


def saved_page(crawl: Crawl, after: int, limit: int, now: int) -> ResultPage[Any]:
    """What follows the cursor: queues not told yet, then tasks, and at last the end."""
    queues, tasks = after >> HALF, after & TASKS
    queues_to = min(queues + max(1, limit), crawl.queue_count)
    tasks_to = min(tasks + max(1, limit) - (queues_to - queues), crawl.count)
    items: list[Saved] = [] if after else [_crawl(crawl)]
    items += _queues(crawl, range(queues + 1, queues_to + 1), now)
    items += [saved_task(record, now) for record in crawl.seen(range(tasks + 1, tasks_to + 1))]
    if (queues_to, tasks_to) == (crawl.queue_count, crawl.count):
        return ResultPage([*items, _end(crawl)], None)
    return ResultPage(items, queues_to << HALF | tasks_to)


def _crawl(crawl: Crawl) -> SavedCrawl:
    roots = {mode: list(found) for mode, found in crawl.roots.items()}
    rules, settings = plain_rules(crawl.rules), crawl.settings
    return SavedCrawl(crawl.name, crawl.created, rules, crawl.is_told, roots, settings)


def _queues(crawl: Crawl, numbers: range, now: int) -> Iterator[SavedQueue]:
    leased: dict[int, list[Held]] = {}
    is_over = crawl.status is CrawlStatus.CANCELLED  # I3: its leases are void, and nothing returns
    for record in crawl.leases.values() if numbers and not is_over else ():
        held = Held(record.task.cost, record.claimed, record.named, record.lent)
        leased.setdefault(record.queue.number, []).append(held)
    for queue in crawl.glimpses(numbers):
        yield saved_queue(queue, leased.get(queue.number, ()), now)


def _released(queue: Queue, leases: Sequence[Held], now: int) -> Queue:
    """H5, D7, E3: as if its leases were given back now; whether it stands, the next claim says."""
    queue = copy(queue)
    for held in leases:
        queue.refund(held.cost)
        if not held.named:
            start = held.claimed if queue.from_start and not held.lent else now
            queue.postpone(start + queue.delay_ms(), "delay")
            queue.last_end = now
            queue.last_start = now if held.lent else queue.last_start
            queue.keep_pace()
    if queue.retired == "budget" and not queue.over_budget():
        queue.retired = None
    if queue.next_ready > now:
        queue.standing = NEITHER
    return queue


def saved_queue(queue: Queue, leases: Sequence[Held], now: int) -> SavedQueue:
    """A queue, but for its tasks, as if these leases of it were given back now."""
    queue = _released(queue, leases, now) if leases else queue
    manners = queue.manners
    return SavedQueue(
        queue.key,
        queue.turn,
        _STANDINGS[queue.standing],
        queue.place if queue.standing == INACTIVE else 0,
        given(queue.session),
        queue.spent,
        queue.next_ready,
        queue.why,  # type: ignore[arg-type] # one of the reasons of `core.states`
        given(queue.last_start),
        given(queue.last_end),
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


def saved_task(record: Record, now: int) -> SavedTask:
    """A task; one that was leased is pending (H5)."""
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
        given(record.claimed),
        given(record.finished),
        record.reason,
        None if record.answer is None else _answer(record.answer),
        given(record.answered),
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
        given(crawl.first),
        given(crawl.finished),
        crawl.logged,
        dict(crawl.outcomes),
        tuple(crawl.timeline),
    )


def given(value: int) -> int | None:
    """-1 is none."""
    return None if value < 0 else value
