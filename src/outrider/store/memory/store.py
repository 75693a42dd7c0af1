"""Heads in memory over records in memory; the measure of every other store."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from outrider.clock import Clock
from outrider.core.order import DUE_BITS, NUMBER_MASK
from outrider.core.policy.rules import CrawlRules
from outrider.store.heads.crawl import Crawl
from outrider.store.heads.ledger import CHUNK_MASK
from outrider.store.heads.records import CHUNK_BITS, Queue, Record
from outrider.store.heads.verbs import Verbs


class MemoryCrawl(Crawl):
    """A crawl whose records are plain objects, by number in chunks."""

    def __init__(self, name: str, store: str, rules: CrawlRules, now: int) -> None:
        super().__init__(name, store, rules, now)
        self.tasks: list[dict[int, Record]] = [{}]

    def born(self, record: Record) -> None:
        """See `Ledger`."""
        if not record.number & CHUNK_MASK:
            self.tasks.append({})
        self.tasks[-1][record.number] = record

    def record(self, number: int) -> Record:
        """See `Ledger`."""
        return self.tasks[number >> CHUNK_BITS][number]

    def due(self, queue: Queue, entry: int) -> Record:  # noqa: ARG002 - as others use it
        """See `Ledger`."""
        number = entry >> DUE_BITS & NUMBER_MASK
        return self.tasks[number >> CHUNK_BITS][number]

    def changed(self, record: Record) -> None:
        """See `Ledger`: a record is its own keeping."""

    def seen(self, numbers: Iterable[int]) -> Iterable[Record]:
        """See `Ledger`."""
        return (self.tasks[number >> CHUNK_BITS][number] for number in numbers)

    def find(self, fingerprint: bytes) -> int | None:
        """See `Ledger`."""
        return self.known[fingerprint[0]].get(fingerprint)


class MemoryStore(Verbs):
    """Store, Admin and Inspect over plain Python."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(uuid.uuid4().hex, clock)

    def _new_crawl(self, name: str) -> Crawl:
        return MemoryCrawl(name, self.id, CrawlRules(), self._now())
