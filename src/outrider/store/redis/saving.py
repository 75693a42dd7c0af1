"""A crawl as it is saved, page by page; nothing here changes anything (I5).

A cursor counts the queues told in its upper half and the tasks in its lower: a queue that is born
while tasks are told comes before the tasks that are left, so before all of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from outrider.core.policy.rules import QueueRules
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Task
from outrider.store.protocol import Page
from outrider.store.redis.keys import OF_A_CRAWL
from outrider.store.redis.knowing import crawl_row_of, queue_row_of
from outrider.store.redis.operating import Operating
from outrider.store.redis.reading import moment_of
from outrider.store.redis.rows import CrawlRow, QueueRow, TaskRow
from outrider.store.redis.ruling import rules_of
from outrider.store.redis.texts import STATES, answer_of, row_of, tie_of
from outrider.store.redis.views import delay_ms, pairs
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
_STANDINGS: Final[Mapping[int, Any]] = {0: None, 1: "ready", 2: "inactive"}
_INACTIVE: Final = 2


class Saving(Operating):
    """What is told of a crawl."""

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> Page:
        """See `protocol.Inspect`."""
        items, upto, around = await self.saved_items(crawl, after, limit)
        if around is None:
            now = await self._moment(crawl)
            return Page([SavedCrawl(crawl, now), SavedEnd()], None)
        row, first, last = around
        begun: list[Saved] = [_crawl(row, first)] if first else []
        if last:
            return Page([*begun, *items, _end(row, *last)], None)
        return Page([*begun, *items], upto)

    async def saved_items(
        self, crawl: str, after: int, limit: int
    ) -> tuple[list[Saved], int, tuple[CrawlRow, Any, Any] | None]:
        """Queues and tasks after a cursor, the next one, and what was told around them."""
        told = (after >> _HALF, after & _TASKS)
        found, now, *rest = await self.line.run("see_export", crawl, *told, max(1, limit))
        if found is None:
            return [], after, None
        row, (queues_to, tasks_to, queues, leases, tasks, first, last) = crawl_row_of(found), rest
        items = await self._saved_queues(crawl, queues, leases, now)
        read = await self.read_tasks(crawl, tasks[1::2])
        items += [_task(row, kept, task, now) for kept, task in read]
        return items, queues_to << _HALF | tasks_to, (row, first, last)

    async def _moment(self, crawl: str) -> int:
        _, now, *_ = await self.line.run("see", crawl, "EXISTS", OF_A_CRAWL["crawl"])
        return int(now)

    async def _saved_queues(
        self, crawl: str, rows: Sequence[bytes], leases: Sequence[bytes], now: int
    ) -> list[Saved]:
        queues = [queue_row_of(row) for row in rows]
        rules = await self.rulings(crawl, {queue.rules for queue in queues})
        held: dict[int, list[TaskRow]] = {}
        for lease in map(row_of, leases):
            held.setdefault(lease.queue, []).append(lease)
        for queue in queues:
            _release(queue, rules[queue.rules], held.get(queue.number, ()), now)
        return [_queue(queue, rules[queue.rules]) for queue in queues]


def _crawl(row: CrawlRow, first: Sequence[Any]) -> SavedCrawl:
    rules, settings, *roots = first
    found = {mode.decode(): [root.decode() for root in some] for mode, some in pairs(roots)}
    return SavedCrawl(
        row.name, row.created, plain_rules(rules_of(rules)), row.told, found, settings.decode()
    )


def _release(queue: QueueRow, rules: QueueRules, leases: Sequence[TaskRow], now: int) -> None:
    """H5, D7, E3: as if its leases were given back now; whether it stands, the next claim says."""
    for lease in leases:
        queue.spent = max(0, queue.spent - lease.cost)
        queue.session = max(0, queue.session - lease.cost) if queue.session >= 0 else -1
        if not lease.named:
            _end_visit(queue, rules, lease, now)
    if leases and queue.retired == "budget" and not _is_over_budget(queue, rules):
        queue.retired = ""
    if leases and queue.next_ready > now:
        queue.standing = 0


def _end_visit(queue: QueueRow, rules: QueueRules, lease: TaskRow, now: int) -> None:
    from_start = rules.politeness.count_from == "start" and not lease.lent
    until = (lease.claimed if from_start else now) + delay_ms(queue, rules)
    if until > queue.next_ready:
        queue.next_ready, queue.why = until, "delay"
    queue.last_end = now
    queue.last_start = now if lease.lent else queue.last_start


def _is_over_budget(queue: QueueRow, rules: QueueRules) -> bool:
    return rules.budget.balance == 0 or 0 <= rules.budget.total_budget <= queue.spent


def _queue(queue: QueueRow, rules: QueueRules) -> SavedQueue:
    return SavedQueue(
        queue.key,
        queue.turn,
        _STANDINGS[queue.standing],
        queue.place if queue.standing == _INACTIVE else 0,
        _given(queue.session),
        queue.spent,
        queue.next_ready,
        queue.why,  # type: ignore[arg-type] # one of the reasons of `core.states`
        _given(queue.last_start),
        _given(queue.last_end),
        queue.paused,
        queue.retired or None,  # type: ignore[arg-type] # as above
        (rules.paused, rules.retired),
        queue.level,
        queue.calm,
        queue.throttles_in_row,
        queue.unreachable_in_row,
        queue.blocks_in_row,
        None if queue.last_delay < 0 else queue.last_delay,
        queue.crawl_delay,
        queue.errors,
        queue.dones,
        queue.bytes,
        queue.last_cost,
        queue.cost_sum,
        queue.cost_count,
    )


def _task(row: CrawlRow, kept: TaskRow, task: Task, now: int) -> SavedTask:
    discovered, state, answer = row.created + kept.discovered, STATES[kept.state], answer_of(kept)
    due = kept.due or discovered
    if state is TaskState.LEASED:
        state, due = TaskState.PENDING, now
    breakdown = task.breakdown
    return SavedTask(
        task.url,
        task.key,
        task.fingerprint,
        tie_of(kept),
        discovered,
        None if due == discovered or state is not TaskState.PENDING else due,
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
        kept.attempts,
        kept.failures,
        kept.crashes,
        kept.throttles,
        _given(kept.claimed),
        _given(kept.finished),
        None if kept.reason is False else kept.reason,
        None if answer is None else SavedAnswer(*msgspec.structs.astuple(answer)),
        _given(kept.answered),
        tuple(kept.history),
    )


def _end(row: CrawlRow, outcomes: Sequence[bytes], timeline: Sequence[bytes]) -> SavedEnd:
    return SavedEnd(
        CrawlStatus(row.status),
        None if row.reason is False else row.reason,
        row.at_finish,
        row.counter,
        row.arrivals,
        row.dones,
        row.bytes,
        row.runs,
        _given(row.first),
        _given(row.finished),
        row.logged,
        {name.decode(): int(count) for name, count in pairs(outcomes)},
        tuple(map(moment_of, timeline)),
    )


def _given(value: int) -> int | None:
    return None if value < 0 else value
