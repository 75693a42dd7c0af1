"""One store over several: queues are spread by key, and whatever is one crawl's is kept at home."""

from outrider.store.shards.shard import SHARDS_MOST, Pulse, Shard, Whole
from outrider.store.shards.store import ShardedStore

__all__ = ["SHARDS_MOST", "Pulse", "Shard", "ShardedStore", "Whole"]
