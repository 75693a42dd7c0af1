"""The journal of one crawl in memory: scope roots, shared values, workers, events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import final

from outrider.store.engine.shared_values import SharedValues
from outrider.store.engine.state import CrawlState
from outrider.store.engine.workers import Workers
from outrider.store.protocol import (
    Heartbeat,
    SharedValue,
    SharedValueWrite,
    StoreEvent,
    WorkerView,
)


@final
class MemoryJournal:
    """See `port.Journal`."""

    __slots__ = ("_state", "_workers", "roots_by_mode", "values")

    def __init__(self, state: CrawlState) -> None:
        self._state, self._workers = state, Workers()
        self.roots_by_mode: dict[str, dict[str, None]] = {}
        self.values = SharedValues()

    def add_roots(self, mode: str, roots: Iterable[str]) -> None:
        """See `port.Journal` (A5)."""
        self.roots_by_mode.setdefault(mode, {}).update(dict.fromkeys(roots))

    def roots(self, mode: str, after: int) -> list[str]:
        """See `port.Journal`."""
        return list(islice(self.roots_by_mode.get(mode, ()), after, None))

    def all_roots(self) -> dict[str, list[str]]:
        """See `port.Journal`."""
        return {mode: list(found) for mode, found in self.roots_by_mode.items()}

    def put_values(self, values: Sequence[SharedValueWrite], now: int) -> list[int]:
        """See `port.Journal`."""
        return [self.values.put(value, now) for value in values]

    def values_since(self, after: int, limit: int) -> list[SharedValue]:
        """See `port.Journal`."""
        return self.values.since(after, limit)

    def heartbeat(self, heartbeat: Heartbeat, now: int) -> None:
        """See `port.Journal`."""
        self._workers.heartbeat(heartbeat, now)

    def workers(self, now: int) -> list[WorkerView]:
        """See `port.Journal`."""
        return self._workers.views(now)

    def events(self, after: int, limit: int) -> list[StoreEvent]:
        """See `port.Journal`."""
        found = [event for event in self._state.events if event.number > after][:limit]
        return [StoreEvent(number, at / 1000, *rest) for number, at, *rest in found]

    def adopt_workers(self, old: MemoryJournal) -> None:
        """Take over the workers of a journal that this one replaces."""
        self._workers = old._workers
