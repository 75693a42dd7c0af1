"""What makes a store a shard: it tells how it is, and is told what all shards count together."""

from __future__ import annotations

from typing import Any

from outrider.core.states import CrawlStatus
from outrider.store.protocol import ResultPage
from outrider.store.redis.calling import encode
from outrider.store.redis.keys import OF_A_CRAWL
from outrider.store.redis.knowing import crawl_row_of
from outrider.store.redis.restoring import Restoring
from outrider.store.redis.rows import CrawlRow
from outrider.store.shards import Pulse, Whole


class Sharing(Restoring):
    """See `shards.Shard`."""

    async def pulse(self, crawl: str) -> Pulse:
        """How it is; one read of one key."""
        found, _, *_ = await self.line.run("see", crawl, "EXISTS", OF_A_CRAWL["crawl"])
        row = CrawlRow(name=crawl) if found is None else crawl_row_of(found)
        limits = (row.limit_tasks, row.limit_done, row.limit_bytes, row.limit_seconds)
        return Pulse(
            status=CrawlStatus(row.status),
            reason=None if row.reason is False else row.reason,
            known=row.count,
            leased=row.leased,
            open=row.pending - row.held,
            dones=row.dones,
            bytes=row.bytes,
            moves=row.tokens + row.arrivals + row.visits + row.logged,
            is_idle=row.at_finish or row.first < 0 or row.status == CrawlStatus.FINISHED,
            max_pending=row.max_pending,
            is_limited=any(limits),
        )

    async def reckon(self, crawl: str, whole: Whole, moves: int | None) -> CrawlStatus:
        """I4, I2: what no shard can see alone."""
        since = "" if moves is None else moves
        status = await self.line.run("reckon", crawl, encode(whole), since)
        return CrawlStatus(status.decode())

    async def work(self, crawl: str) -> None:
        """I2: a task came somewhere."""
        await self.line.run("work", crawl)

    async def saved(self, crawl: str, *, after: int, limit: int) -> ResultPage[Any]:
        """Queues and tasks of an export; its cursor never ends."""
        items, upto, _ = await self.saved_items(crawl, after, limit)
        return ResultPage(items, upto)
