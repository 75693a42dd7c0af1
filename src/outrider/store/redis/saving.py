"""A crawl as it is saved, page by page; nothing here changes anything (I5).

A cursor counts the queues told in its upper half and the tasks in its lower: a queue that is born
while tasks are told comes before the tasks that are left, so before all of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outrider.store.heads.saving import HALF, TASKS, Held, given, saved_queue, saved_task
from outrider.store.protocol import ResultPage
from outrider.store.redis.keys import OF_A_CRAWL
from outrider.store.redis.knowing import crawl_row_of, queue_row_of
from outrider.store.redis.noting import Noting
from outrider.store.redis.reading import moment_of
from outrider.store.redis.rows import CrawlRow
from outrider.store.redis.ruling import rules_of
from outrider.store.redis.texts import row_of
from outrider.store.redis.views import pairs, queue_of, record_of
from outrider.store.saved import Saved, SavedCrawl, SavedEnd, plain_rules


class Saving(Noting):
    """What is told of a crawl."""

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[Saved]:
        """See `protocol.Inspect`."""
        items, upto, around = await self.saved_items(crawl, after, limit)
        if around is None:
            now = await self._moment(crawl)
            return ResultPage([SavedCrawl(crawl, now), SavedEnd()], None)
        row, first, last = around
        begun: list[Saved] = [_crawl(row, first)] if first else []
        if last:
            return ResultPage([*begun, *items, _end(row, *last)], None)
        return ResultPage([*begun, *items], upto)

    async def saved_items(
        self, crawl: str, after: int, limit: int
    ) -> tuple[list[Saved], int, tuple[CrawlRow, Any, Any] | None]:
        """Queues and tasks after a cursor, the next one, and what was told around them."""
        told = (after >> HALF, after & TASKS)
        found, now, *rest = await self.line.run("see_export", crawl, *told, max(1, limit))
        if found is None:
            return [], after, None
        row, (queues_to, tasks_to, queues, leases, tasks, first, last) = crawl_row_of(found), rest
        items = await self._saved_queues(crawl, queues, leases, now)
        read = await self.read_tasks(crawl, tasks[1::2])
        items += [saved_task(record_of(row, 0, *one), now) for one in read]
        return items, queues_to << HALF | tasks_to, (row, first, last)

    async def _moment(self, crawl: str) -> int:
        _, now, *_ = await self.line.run("see", crawl, "EXISTS", OF_A_CRAWL["crawl"])
        return int(now)

    async def _saved_queues(
        self, crawl: str, rows: Sequence[bytes], leases: Sequence[bytes], now: int
    ) -> list[Saved]:
        queues = [queue_row_of(row) for row in rows]
        rules = await self.rulings(crawl, {queue.rules for queue in queues})
        leased: dict[int, list[Held]] = {}
        for row in map(row_of, leases):
            held = Held(row.cost, row.claimed, row.named, row.lent)
            leased.setdefault(row.queue, []).append(held)
        return [
            saved_queue(queue_of(one, rules[one.rules]), leased.get(one.number, ()), now)
            for one in queues
        ]


def _crawl(row: CrawlRow, first: Sequence[Any]) -> SavedCrawl:
    rules, settings, *roots = first
    found = {mode.decode(): [root.decode() for root in some] for mode, some in pairs(roots)}
    return SavedCrawl(
        row.name, row.created, plain_rules(rules_of(rules)), row.told, found, settings.decode()
    )


def _end(row: CrawlRow, outcomes: Sequence[bytes], timeline: Sequence[bytes]) -> SavedEnd:
    return SavedEnd(
        row.status,
        None if row.reason is False else row.reason,
        row.at_finish,
        row.counter,
        row.arrivals,
        row.dones,
        row.bytes,
        row.runs,
        given(row.first),
        given(row.finished),
        row.logged,
        {name.decode(): int(count) for name, count in pairs(outcomes)},
        tuple(map(moment_of, timeline)),
    )
