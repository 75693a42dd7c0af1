"""The keys of a crawl's queues in order, for listings: built by the first one, then kept.

Keys are in as many sorted lists as `QueueTable.by_key` has dicts, and by the same hash: a new key
is inserted into a short list, and a page takes the first keys of all of them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, final

from outrider.store.engine.records import SHARD_MASK, SHARDS

MAX_SORTED: Final = 200_000  # keys that one listing sorts while the index is built


@final
class KeyIndex:
    """All keys of a crawl in order. `keys_of` returns the keys of one dict."""

    __slots__ = ("_keys_of", "_shards")

    def __init__(self, keys_of: Callable[[int], Iterable[str]]) -> None:
        self._keys_of = keys_of
        self._shards: list[list[str]] = []  # those that are built

    def add(self, key: str) -> None:
        """Insert a new key, unless its list is still to be built."""
        shard = hash(key) & SHARD_MASK
        if shard < len(self._shards):
            insort(self._shards[shard], key)

    def between(self, low: str, high: str, limit: int) -> list[str] | None:
        """Return the first keys ≥ low and < high; None: the index is not complete yet."""
        if not self._build():
            return None
        parts = [
            islice(keys, bisect_left(keys, low), bisect_left(keys, high)) for keys in self._shards
        ]
        return list(islice(heapq.merge(*parts), limit))

    def _build(self) -> bool:
        """Sort more keys; return whether all are."""
        left = MAX_SORTED
        while len(self._shards) < SHARDS and left > 0:
            self._shards.append(sorted(self._keys_of(len(self._shards))))
            left -= len(self._shards[-1])
        return len(self._shards) == SHARDS
