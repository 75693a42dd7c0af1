"""What a process remembers of a store between calls: rules, kinds, and nothing that can be wrong.

Rules have an epoch, and the numbers of a queue's rules and of a kind always mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from outrider.core.policy.rules import QueueRules
from outrider.store.redis.calling import Line, encode
from outrider.store.redis.keys import CRAWLS, OF_A_CRAWL
from outrider.store.redis.rows import CrawlRow, QueueRow
from outrider.store.redis.ruling import KEYS_KEPT, Rulebook, queue_rules_of, rules_of
from outrider.store.redis.texts import Kind, read_kind

crawl_row_of: Final = msgspec.msgpack.Decoder(CrawlRow).decode
queue_row_of: Final = msgspec.msgpack.Decoder(QueueRow).decode


class Knowing:
    """The ground of all verbs."""

    def __init__(self, store_id: str, line: Line) -> None:
        self.id = store_id
        self.line = line
        self._books: dict[str, Rulebook] = {}
        self._rulings: dict[tuple[str, int], QueueRules] = {}
        self._kinds: dict[tuple[str, int], Kind] = {}
        self._keys: dict[tuple[str, int], str] = {}

    async def crawls(self) -> list[str]:
        """See `protocol.Inspect`."""
        found = await self.line.command("HGETALL", self.line.base + CRAWLS)
        numbers = found.items() if isinstance(found, dict) else _pairs(found)
        return [name.decode() for name, _ in sorted(numbers, key=lambda one: int(one[1]))]

    # ---- rules

    def book(self, crawl: str) -> Rulebook:
        """The rules of a crawl as they were last heard of."""
        return self._books.get(crawl) or self._books.setdefault(crawl, Rulebook())

    async def learn_rules(self, crawl: str) -> Rulebook:
        """The rules that hold."""
        row, _, *text = await self.line.run("see", crawl, "GET", OF_A_CRAWL["rules"])
        epoch = crawl_row_of(row).epoch if row else 0
        book = self._books.get(crawl)
        if book is None or book.epoch != epoch:
            book = self._books[crawl] = Rulebook(epoch, rules_of(text[0] if text else b""))
        return book

    async def rulings(self, crawl: str, numbers: AbstractSet[int]) -> Mapping[int, QueueRules]:
        """Queue rules by their numbers."""
        missing = [number for number in numbers if (crawl, number) not in self._rulings]
        if missing:
            key = OF_A_CRAWL["rulings"]
            _, _, texts = await self.line.run("see", crawl, "HMGET", key, *missing)
            for number, text in zip(missing, texts, strict=True):
                self._rulings[crawl, number] = queue_rules_of(text.decode())
        return {number: self._rulings[crawl, number] for number in numbers}

    # ---- kinds

    async def learn_kinds(self, crawl: str, numbers: AbstractSet[int]) -> None:
        """Make sure that these kinds are known."""
        missing = [number for number in numbers if (crawl, number) not in self._kinds]
        if missing:
            key = OF_A_CRAWL["kind_names"]
            _, _, texts = await self.line.run("see", crawl, "HMGET", key, *missing)
            for number, text in zip(missing, texts, strict=True):
                self._kinds[crawl, number] = read_kind(text)

    # ---- keys

    async def keys_of(self, crawl: str, numbers: AbstractSet[int]) -> Mapping[int, str]:
        """The keys of queues by their numbers."""
        if len(self._keys) > KEYS_KEPT:
            self._keys.clear()
        missing = [number for number in numbers if (crawl, number) not in self._keys]
        if missing:
            found = await self.line.run("see_keys", crawl, encode(missing))
            for number, key in zip(missing, found, strict=True):
                self._keys[crawl, number] = key.decode()
        return {number: self._keys[crawl, number] for number in numbers}

    def kind(self, crawl: str, number: int) -> Kind:
        """A kind that is known."""
        return self._kinds[crawl, number]


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
