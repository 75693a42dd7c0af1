"""REMEMBERS in Redis or Valkey: every transition is one script."""

from outrider.store.redis.cluster import ClusterStore
from outrider.store.redis.store import RedisStore

__all__ = ["ClusterStore", "RedisStore"]
