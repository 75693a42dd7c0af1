"""Every key of a store on Redis.

All begin with one prefix that holds a hash tag, so that a script may use any of them on one node of
a cluster. A crawl has a number, which its keys contain instead of its name: names may be long.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "outrider"

# Of the store, after its prefix.
META: Final = "meta"  # hash: format, id, shard, shards
CRAWLS: Final = "crawls"  # hash: name → number
UPGRADE: Final = "upgrade"  # hash: number of a crawl → its tasks that were brought up to date

# Of a crawl, after the prefix and its number; the keys are durable, their names here are not. A
# trailing colon: many such keys, each with a number or a name behind it.
CRAWL_KEYS: Final = {
    "crawl": "c",  # a `CrawlRow`
    "rules": "rules",  # its CrawlRules as JSON; absent: the default ones
    "settings": "settings",
    "outcomes": "outcomes",  # hash: outcome → visits
    "timeline": "timeline",  # list of msgpack: at, status, reason
    "events": "log",  # list of msgpack: sequence, at, name, subject, detail
    "published": "published",  # sorted set: batches of workers' events, by their last number
    "publishers": "publishers",  # hash: publisher → its last serial; "" → bytes so far
    "kind_numbers": "kinds",  # hash: kind of task, as msgpack → number
    "kinds": "kindnames",  # hash: number → the same
    "counts": "counts",  # hash: number of a kind × 8 + state → tasks
    "rules_rows": "orders",  # hash: number of queue rules → their `RulesRow`
    "rules_texts": "rulings",  # hash: the same number → those rules as JSON
    "rules_numbers": "ruled",  # hash: rules as JSON → number
    "modes": "modes",  # set: the modes of its scope that have roots
    "roots": "roots:",  # sorted set: root, in the order they were added
    "workers": "workers",  # hash: worker → msgpack of its first and last time, and heartbeat
    "gone_workers": "goneworkers",  # list: workers that were removed, their heartbeats as JSON
    "values": "notes",  # hash: topic, NUL, name → msgpack of its number, at, text
    "value_numbers": "noted",  # sorted set: the same label, by number
    "known": "k:",  # hash, a bucket: fingerprint → number of a task
    "keys": "n:",  # hash, a bucket: digest of a key → number of a queue
    "tasks": "t:",  # hash, a chunk by number: `TaskRow`
    "queues": "q:",  # hash, a chunk by number: `QueueRow`
    "queue_names": "names",  # sorted set: a queue's key, NUL and its number in five bytes, by key
    "queue_tasks": "m:",  # of a queue: numbers of its tasks in order, five bytes each
    "lane0": "a:",  # sorted set of a queue: due tasks of discovery, by order key
    "lane1": "b:",  # the same, acquisition
    "delayed": "d:",  # sorted set of a queue: tasks not due, by due time
    "ready0": "r0",  # sorted set: the ready list of discovery, by ready key
    "ready1": "r1",  # the same, acquisition
    "inactive": "parked",  # sorted set: the inactive list, by inactive key
    "wake_times": "alarms",  # sorted set: queues, by wake time
    "deadlines": "deadlines",  # sorted set: leased tasks, by the end of their lease
    "leases": "leases",  # sorted set: leased tasks by turn, from their first listing on
}
# Those of a crawl that are one key each.
SINGLE_KEYS: Final = tuple(key for key in CRAWL_KEYS.values() if not key.endswith(":"))


def base_of(prefix: str = PREFIX, shard: int = 0) -> str:
    """Return what the keys of one shard begin with."""
    return f"{prefix}:{{{prefix}.{shard}}}:"


def channel_of(base: str, crawl: str) -> str:
    """Return the channel on which scripts publish that work was added to a crawl."""
    return f"{base}work:{crawl}"
