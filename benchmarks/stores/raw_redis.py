"""The raw engine on Redis: minimal scripts for dedup, enqueue, one task per host, finish.

No politeness, budgets, lanes, leases that expire, counters or answers: what is left is the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import redis

from outrider.core.task import Task

ADD = """
local known, bodies, ready = KEYS[1], KEYS[2], KEYS[3]
local added = 0
for i = 1, #ARGV, 4 do
  local name, host, priority = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if redis.call('HSETNX', known, name, '1') == 1 then
    added = added + 1
    redis.call('HSET', bodies, name, ARGV[i + 3])
    if redis.call('ZADD', 'raw:q:' .. host, priority, name) == 1
        and redis.call('ZCARD', 'raw:q:' .. host) == 1 then
      redis.call('ZADD', ready, priority, host)
    end
  end
end
return added
"""
CLAIM = """
local bodies, ready, leased = KEYS[1], KEYS[2], KEYS[3]
local answer = {}
local hosts = redis.call('ZPOPMIN', ready, ARGV[1])
for i = 1, #hosts, 2 do
  local name = redis.call('ZPOPMIN', 'raw:q:' .. hosts[i])[1]
  redis.call('HSET', leased, name, hosts[i])
  answer[#answer + 1] = name
  answer[#answer + 1] = redis.call('HGET', bodies, name)
end
return answer
"""
FINISH = """
local bodies, ready, leased = KEYS[1], KEYS[2], KEYS[3]
for i = 1, #ARGV do
  local host = redis.call('HGET', leased, ARGV[i])
  redis.call('HDEL', leased, ARGV[i])
  redis.call('HDEL', bodies, ARGV[i])
  local top = redis.call('ZRANGE', 'raw:q:' .. host, 0, 0, 'WITHSCORES')
  if top[1] then
    redis.call('ZADD', ready, top[2], host)
  end
end
return #ARGV
"""


class RawRedis:
    """Three scripts over one client."""

    def __init__(self, url: str) -> None:
        self.client: Any = redis.Redis.from_url(url)
        self._add = self.client.register_script(ADD)
        self._claim = self.client.register_script(CLAIM)
        self._finish = self.client.register_script(FINISH)

    def add(self, tasks: Sequence[Task]) -> int:
        """How many were new."""
        words: list[Any] = []
        for task in tasks:
            words += (task.fingerprint, task.key, task.priority, record(task))
        added: int = self._add(keys=["raw:known", "raw:bodies", "raw:ready"], args=words)
        return added

    def claim(self, limit: int) -> list[bytes]:
        """At most one a host, the best hosts first."""
        answer = self._claim(keys=["raw:bodies", "raw:ready", "raw:leased"], args=[limit])
        return [(name, msgspec.msgpack.decode(body))[0] for name, body in _pairs(answer)]

    def finish(self, names: Sequence[bytes]) -> None:
        """Their hosts are ready again."""
        self._finish(keys=["raw:bodies", "raw:ready", "raw:leased"], args=names)


def record(task: Task) -> bytes:
    """What anybody must keep of a task."""
    return msgspec.msgpack.encode((task.url, task.type, task.depth, task.priority, task.meta))


def _pairs(words: Sequence[bytes]) -> Any:
    return zip(words[::2], words[1::2], strict=True)
