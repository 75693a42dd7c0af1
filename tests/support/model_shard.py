"""The model as a shard: tests of sharded crawls without a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.clock import Clock
from outrider.core.states import CrawlStatus
from outrider.store.export_items import SavedCrawl, SavedEnd
from outrider.store.protocol import ClaimRequest, ClaimResult, ResultPage
from outrider.store.shards import CrawlTotals, RunEnd, ShardedStore, ShardSummary
from outrider.testing.model import Model
from outrider.testing.model.records import LEASED, C


class ModelShard(Model):
    """The naive model with the verbs of a shard."""

    _closes = True

    async def claim(self, request: ClaimRequest, *, closes: bool = True) -> ClaimResult:
        """Claim; with `closes` it also ends the run."""
        self._closes = closes
        return await super().claim(request)

    def close_run(self, c: C) -> None:
        """Do nothing unless asked: only the sharded store sees all shards (I2)."""
        if self._closes:
            super().close_run(c)

    async def summary(self, crawl: str) -> ShardSummary:
        """See `Shard`."""
        c = self.crawl_or_empty(crawl)
        return ShardSummary(
            status=c.status,
            reason=c.reason,
            known=len(c.tasks),
            queues=len(c.queues),
            leased=len(c.all(LEASED)),
            open=c.open_pending(),
            dones=c.dones,
            bytes=c.bytes,
            revision=self.tokens + c.arrivals + c.counter + c.last_event,
            has_started=c.first is not None,
            is_idle=c.at_finish or c.first is None or c.status is CrawlStatus.FINISHED,
            max_pending=c.rules.max_pending,
            is_limited=any(getattr(c.rules.limits, n) for n in c.rules.limits.__struct_fields__),
            stays_open=c.rules.stay_open,
            exists=self.exists(crawl),
        )

    async def apply_totals(
        self, crawl: str, totals: CrawlTotals, end: RunEnd | None
    ) -> CrawlStatus:
        """See `Shard`."""
        if not self.exists(crawl):  # I1
            return CrawlStatus.CANCELLED
        c = self.all[crawl]
        self._pause_at_limit(c, totals)
        may_end = end is not None and end.revision == (await self.summary(crawl)).revision
        is_over = totals.is_over and c.first is not None and not c.rules.stay_open
        if end is not None and may_end and c.status is CrawlStatus.RUNNING and is_over:
            self._close(c, end.counts)
        return c.status

    def _pause_at_limit(self, c: C, totals: CrawlTotals) -> None:
        age = 0.0 if c.first is None else (self.clock.now_ms() - c.first) / 1000
        reached = {
            "tasks": totals.known,
            "done": totals.dones,
            "bytes": totals.bytes,
            "seconds": age,
        }
        for name, value in reached.items():
            limit = getattr(c.rules.limits, name)
            if limit and value >= limit and c.status is CrawlStatus.RUNNING:
                self.set_crawl_status(c, CrawlStatus.PAUSED, f"limit-{name}")

    def _close(self, c: C, counts: Mapping[str, int]) -> None:
        if c.rules.pause_at_finish and not c.at_finish:
            c.at_finish = True
            self.set_crawl_status(c, CrawlStatus.PAUSED, "finish")
        else:
            c.runs, c.finished = c.runs + 1, self.clock.now_ms()
            self.set_crawl_status(c, CrawlStatus.FINISHED, f"run {c.runs}", counts)

    async def start_run(self, crawl: str, by: str = "") -> None:
        """See `Shard`."""
        if not self.exists(crawl):  # I1
            return
        c = self.all[crawl]
        c.first = self.clock.now_ms() if c.first is None else c.first
        with self.signed(c, by):
            self.reopen(c)

    async def export_items(self, crawl: str, *, after: int, limit: int) -> ResultPage[Any]:
        """See `Shard`."""
        page = await self.export(crawl, after=after, limit=limit)
        items = [item for item in page.items if not isinstance(item, (SavedCrawl, SavedEnd))]
        c = self.crawl_or_empty(crawl)
        return ResultPage(
            items, len(c.queues) * 2**32 + len(c.tasks) if page.after is None else page.after
        )


def sharded_model(clock: Clock, count: int) -> ShardedStore:
    """Return one store over so many models."""
    return ShardedStore([ModelShard(clock) for _ in range(count)])
