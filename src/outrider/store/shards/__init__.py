"""The sharded store: one store over several, with the queues of a crawl spread over them by key."""

from outrider.store.shards.shard_set import (
    MAX_SHARDS,
    CrawlTotals,
    RunEnd,
    Shard,
    ShardSummary,
)
from outrider.store.shards.store import ShardedStore

__all__ = ["MAX_SHARDS", "CrawlTotals", "RunEnd", "Shard", "ShardSummary", "ShardedStore"]
