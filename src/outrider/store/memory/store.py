"""The memory store: engines over plain objects. Nothing survives the process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any, final

from outrider.clock import Clock
from outrider.core.policy.rules import CrawlRules
from outrider.store.engine.engine import CrawlEngine
from outrider.store.engine.journal import MemoryJournal
from outrider.store.engine.leases import Leases
from outrider.store.engine.state import CrawlState
from outrider.store.engine.verbs import EngineVerbs
from outrider.store.forwarding import ForwardingStore
from outrider.store.memory.tables import MemoryQueues, MemoryTasks


@final
class MemoryCrawls:
    """See `port.Crawls`."""

    __slots__ = ("_clock", "_engines", "_last_now", "_store")

    def __init__(self, store: str, clock: Clock) -> None:
        self._store, self._clock, self._last_now = store, clock, 0
        self._engines: dict[str, CrawlEngine] = {}

    def now(self) -> int:
        """See `port.Crawls`."""
        self._last_now = max(self._last_now, self._clock.now_ms())
        return self._last_now

    def open(self, name: str) -> CrawlEngine:
        """See `port.Crawls`."""
        engine = self._engines.get(name)
        if engine is None:
            engine = self._engines[name] = self._new(name)
        return engine

    def existing(self, name: str) -> CrawlEngine | None:
        """See `port.Crawls`."""
        return self._engines.get(name)

    def reading(self, name: str, *, totals: bool = False) -> CrawlEngine:  # noqa: ARG002 - always complete
        """See `port.Crawls`."""
        return self._engines.get(name) or self._new(name)

    def names(self) -> list[str]:
        """See `port.Crawls`."""
        return list(self._engines)

    def expiring(self) -> Iterable[CrawlEngine]:
        """See `port.Crawls`."""
        return self._engines.values()

    def as_stored(self, rules: CrawlRules) -> CrawlRules:
        """See `port.Crawls`."""
        return rules

    def _new(self, name: str) -> CrawlEngine:
        state = CrawlState(name, self._store, CrawlRules(), self.now())
        journal = MemoryJournal(state)
        return CrawlEngine(state, Leases(), MemoryTasks(), MemoryQueues(), journal)


class MemoryStore(ForwardingStore):
    """`Store`, `Admin` and `Inspect` in memory: a verb is a plain call."""

    is_inline = True

    def __init__(self, clock: Clock) -> None:
        self.id = uuid.uuid4().hex
        self._verbs = EngineVerbs(MemoryCrawls(self.id, clock))

    async def _forward(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._verbs, verb)(*args, **kwargs)

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        """See `protocol.FullStore`: a claim costs so little here that it needs no notification."""
        return lambda: None

    async def close(self) -> None:
        """See `protocol.FullStore`: there is nothing to close."""
