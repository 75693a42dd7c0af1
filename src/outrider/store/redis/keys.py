"""Every key of a store on Redis, named here and nowhere else.

All begin with one prefix that holds a hash tag, so that a script may touch any of them on one node
of a cluster. A crawl has a number, and its keys that number: names may be long, and queues many.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "outrider"

# Of the store, after its prefix.
META: Final = "meta"  # hash: format, id, shard, shards
CRAWLS: Final = "crawls"  # hash: name → number

# Of a crawl, after the prefix and its number. A trailing colon: one for each of many.
OF_A_CRAWL: Final = {
    "crawl": "c",  # a `CrawlRow`
    "rules": "rules",  # its CrawlRules as JSON; absent: the default ones
    "settings": "settings",
    "outcomes": "outcomes",  # hash: outcome → visits
    "timeline": "timeline",  # list of msgpack: at, status, reason
    "log": "log",  # list of msgpack: sequence, at, name, subject, detail
    "kinds": "kinds",  # hash: kind, as msgpack → number
    "kind_names": "kindnames",  # hash: number → the same
    "counts": "counts",  # hash: number of a kind × 8 + state → tasks
    "orders": "orders",  # hash: number of queue rules → their `RulesRow`
    "rulings": "rulings",  # hash: the same number → those rules as JSON
    "ruled": "ruled",  # hash: rules as JSON → number
    "modes": "modes",  # set: the modes of its scope that have roots
    "roots": "roots:",  # sorted set: root, by its coming
    "workers": "workers",  # hash: worker → msgpack of its beat
    "notes": "notes",  # hash: topic, NUL, name → msgpack of its number, at, text
    "noted": "noted",  # sorted set: the same label, by number
    "known": "k:",  # hash, a bucket: fingerprint → number of a task
    "keys": "n:",  # hash, a bucket: digest of a key → number of a queue
    "tasks": "t:",  # hash, a chunk by number: `TaskRow`
    "queues": "q:",  # hash, a chunk by number: `QueueRow`
    "lane0": "a:",  # sorted set of a queue: due tasks of discovery, by order key
    "lane1": "b:",  # the same, acquisition
    "delayed": "d:",  # sorted set of a queue: tasks not due, by instant
    "ready0": "r0",  # sorted set: queues that stand ready for discovery, by rank
    "ready1": "r1",  # the same, acquisition
    "parked": "parked",  # sorted set: inactive queues
    "alarms": "alarms",  # sorted set: queues that time brings, by instant
    "deadlines": "deadlines",  # sorted set: leased tasks, by the end of their lease
}


def base_of(prefix: str = PREFIX, shard: int = 0) -> str:
    """What the keys of one shard begin with."""
    return f"{prefix}:{{{prefix}.{shard}}}:"


def channel_of(base: str, crawl: str) -> str:
    """Where it is told that somebody may have brought work."""
    return f"{base}work:{crawl}"
