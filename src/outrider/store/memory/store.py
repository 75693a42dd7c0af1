"""The memory store: engines over plain objects. Nothing survives the process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, final

from outrider.clock import Clock
from outrider.core.policy.rules import CrawlRules
from outrider.store.engine.engine import CrawlEngine
from outrider.store.engine.journal import MemoryJournal
from outrider.store.engine.leases import Leases
from outrider.store.engine.state import CrawlState
from outrider.store.engine.verbs import EngineVerbs
from outrider.store.forwarding import ForwardingStore
from outrider.store.memory.tables import MemoryQueues, MemoryTasks
from outrider.store.protocol import Notifies, Step
from outrider.store.subscriptions import SILENT_VERBS, Subscriptions

MAX_UNCOUNTED: Final = 16_384  # changed queues that are counted at a time: some milliseconds


@final
class MemoryCrawls:
    """See `port.Crawls`."""

    __slots__ = ("_clock", "_engines", "_freeing", "_last_now", "_last_token", "_store")

    def __init__(self, store: str, clock: Clock) -> None:
        self._store, self._clock, self._last_now = store, clock, 0
        self._engines: dict[str, CrawlEngine] = {}
        self._freeing: dict[str, MemoryTasks] = {}  # of crawls that are being removed
        self._last_token = 0  # of all crawls that were removed

    def now(self) -> int:
        """See `port.Crawls`."""
        self._last_now = max(self._last_now, self._clock.now_ms())
        return self._last_now

    def open(self, name: str) -> CrawlEngine:
        """See `port.Crawls`."""
        engine = self._engines.get(name)
        if engine is None:
            engine = self._engines[name] = self._new(name)
            engine.state.last_token = self._last_token  # no lease of a removed crawl fits
        elif len(engine.state.dirty_queues) > MAX_UNCOUNTED:
            engine.state.count_queues()
        return engine

    def existing(self, name: str) -> CrawlEngine | None:
        """See `port.Crawls`."""
        return self.open(name) if name in self._engines else None

    def exists(self, name: str) -> bool:
        """See `port.Crawls`."""
        return name in self._engines

    def reading(self, name: str, *, totals: bool = False) -> CrawlEngine:  # noqa: ARG002 - always complete
        """See `port.Crawls`."""
        return self._engines.get(name) or self._new(name)

    def names(self) -> list[str]:
        """See `port.Crawls`."""
        return list(self._engines)

    def delete(self, name: str, limit: int) -> Step:
        """See `port.Crawls`: an empty crawl takes its place until its tasks are freed."""
        old = self._engines[name]
        tasks = self._freeing.get(name)
        if tasks is None:
            assert isinstance(old.tasks, MemoryTasks)  # noqa: S101 - see `_new`
            tasks = self._freeing[name] = old.tasks
            empty = self._engines[name] = self._new(name)
            empty.state.status, empty.state.reason = old.state.status, old.state.reason
            self._last_token = max(self._last_token, old.state.last_token)
        freed = tasks.free(limit)
        if freed == limit:
            return Step(freed, 1)
        del self._engines[name], self._freeing[name]
        return Step(freed, None)

    def expiring(self) -> Iterable[CrawlEngine]:
        """See `port.Crawls`."""
        return self._engines.values()

    def as_stored(self, rules: CrawlRules) -> CrawlRules:
        """See `port.Crawls`."""
        return rules

    def among(self, names: Iterable[str]) -> Iterator[CrawlEngine]:
        """Return those of these crawls that exist."""
        return (self._engines[name] for name in names if name in self._engines)

    def _new(self, name: str) -> CrawlEngine:
        state = CrawlState(name, self._store, CrawlRules(), self.now(), has_all_tasks=True)
        journal = MemoryJournal(state)
        return CrawlEngine(state, Leases(), MemoryTasks(), MemoryQueues(), journal)


class MemoryStore(ForwardingStore):
    """`Store`, `Admin` and `Inspect` in memory: a verb is a plain call."""

    is_inline = True
    notifies: Notifies = "always"

    def __init__(self, clock: Clock) -> None:
        self.id = uuid.uuid4().hex
        self._crawls = MemoryCrawls(self.id, clock)
        self._verbs = EngineVerbs(self._crawls)
        self._subscriptions = Subscriptions()

    async def _forward(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        answer = getattr(self._verbs, verb)(*args, **kwargs)
        if self._subscriptions.by_crawl and verb not in SILENT_VERBS:
            self._notify(verb)
        return answer

    def _notify(self, verb: str) -> None:
        crawls, by_claim = self._crawls.among(self._subscriptions.by_crawl), verb == "claim"
        self._subscriptions.ring([c.state.name for c in crawls if c.take_news(by_claim=by_claim)])

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """See `protocol.FullStore`."""
        return self._subscriptions.subscribe(crawl, notify)

    async def close(self) -> None:
        """See `protocol.FullStore`."""
        self._subscriptions.clear()
