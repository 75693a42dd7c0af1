"""The stores on Redis or Valkey, one server or a cluster: every change of state is one script."""

from outrider.store.redis.cluster import ClusterStore
from outrider.store.redis.store import RedisStore

__all__ = ["ClusterStore", "RedisStore"]
