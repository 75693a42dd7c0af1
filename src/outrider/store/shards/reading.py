"""What readers see: shard after shard, or the sum of all; nothing here changes anything.

A change is numbered by how far each shard's log was read, packed into one number: whoever goes on
from it misses nothing of any shard, and every next number is greater.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from outrider.store.protocol import (
    CrawlView,
    Heat,
    Pending,
    QueuePosition,
    QueueView,
    ResultPage,
    SharedValue,
    StoreEvent,
    TaskFilter,
    TaskView,
    Upcoming,
    WorkerView,
)
from outrider.store.shards.footing import Footing
from outrider.store.shards.shard import HOME, joined, parted

DIGIT: Final = 64  # bits of one shard's position in a number that has all of them
_MASK: Final = (1 << DIGIT) - 1
_SUMS: Final = (
    *("known", "pending", "leased", "done", "dead", "dropped", "held", "visits", "bytes"),
)

replace = msgspec.structs.replace
Known = TypeVar("Known", TaskView, Pending)


class Reading(Footing):
    """Inspect, but for the export."""

    async def crawls(self) -> list[str]:
        """See `protocol.Inspect`."""
        return await self._home.crawls()

    async def crawl(self, crawl: str) -> CrawlView:
        """See `protocol.Inspect`: what is counted is counted everywhere, the rest is home's."""
        views = await self._all(shard.crawl(crawl) for shard in self._shards)
        return replace(
            views[HOME],
            **{name: sum(getattr(view, name) for view in views) for name in _SUMS},
            outcomes=_sum(view.outcomes for view in views),
            types=_table(view.types for view in views),
            tags=_table(view.tags for view in views),
        )

    async def queue_states(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Any]:
        """See `protocol.Inspect`."""
        pages, more = await self._walk(
            crawl, lambda s, at, most: s.queue_states(crawl, after=at, limit=most), after, limit
        )
        return ResultPage([state for _, page in pages for state in page.items], more)

    async def queue(self, crawl: str, key: str) -> QueueView:
        """See `protocol.Inspect`."""
        return await self._at(key).queue(crawl, key)

    async def queues(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueView]:
        """See `protocol.Inspect`."""
        pages, more = await self._walk(
            crawl, lambda s, at, most: s.queues(crawl, after=at, limit=most), after, limit
        )
        return ResultPage([view for _, page in pages for view in page.items], more)

    async def tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[TaskView]:
        """See `protocol.Inspect`."""
        pages, more = await self._walk(
            crawl, lambda s, at, most: s.tasks(crawl, which, after=at, limit=most), after, limit
        )
        return ResultPage([_as_known(shard, v) for shard, page in pages for v in page.items], more)

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        """See `protocol.Inspect`: any shard may know it."""
        found = await self._all(shard.task(crawl, fingerprint) for shard in self._shards)
        views = (_as_known(number, view) for number, view in enumerate(found) if view is not None)
        return next(views, None)

    async def pending_tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Pending]:
        """See `protocol.Inspect`."""
        pages, more = await self._walk(
            crawl,
            lambda s, at, most: s.pending_tasks(crawl, which, after=at, limit=most),
            after,
            limit,
        )
        return ResultPage([_as_known(shard, v) for shard, page in pages for v in page.items], more)

    async def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        """See `protocol.Inspect`."""
        return await self._at(key).upcoming(crawl, key, limit=limit)

    async def position(self, crawl: str, number: int) -> QueuePosition:
        """See `protocol.Inspect`."""
        shard, local = parted(number)
        return await self._shards[shard].position(crawl, local)

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        """See `protocol.Inspect`."""
        return await self._home.roots(crawl, mode, after=after)

    async def heatmap(self, crawl: str) -> Heat:
        """See `protocol.Inspect`."""
        heats = await self._all(shard.heatmap(crawl) for shard in self._shards)
        return Heat(
            sum(heat.total for heat in heats),
            _table(heat.cells for heat in heats),
            _sum(heat.depth for heat in heats),
            max(heat.updated_at for heat in heats),
        )

    async def settings(self, crawl: str) -> str:
        """See `protocol.Inspect`."""
        return await self._home.settings(crawl)

    async def values_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[SharedValue]:
        """See `protocol.Inspect`."""
        return await self._home.values_since(crawl, after=after, limit=limit)

    async def workers(self, crawl: str) -> list[WorkerView]:
        """See `protocol.Inspect`."""
        return await self._home.workers(crawl)

    async def events_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[StoreEvent]:
        """See `protocol.Inspect`: in the order of their instants, as far as shards told them."""
        seen = unpacked(after, len(self._shards))
        logs = await self._all(
            shard.events_since(crawl, after=at, limit=limit)
            for shard, at in zip(self._shards, seen, strict=True)
        )
        found = [(c.at, n, c) for n, log in enumerate(logs) for c in log]
        told: list[StoreEvent] = []
        for _, number, change in sorted(found, key=lambda entry: entry[:2]):
            seen[number] = change.sequence
            if number == HOME or not change.name.startswith("crawl-"):
                told.append(replace(change, sequence=packed(seen)))
        return told[:limit]


def packed(positions: Iterable[int]) -> int:
    """Positions in all shards as one number; home's are its lowest bits."""
    return sum(at << DIGIT * place for place, at in enumerate(positions))


def unpacked(number: int, count: int) -> list[int]:
    """The positions again."""
    return [number >> DIGIT * place & _MASK for place in range(count)]


def _as_known(shard: int, view: Known) -> Known:
    return replace(view, number=joined(shard, view.number)) if shard else view


def _sum(rows: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row)
    return dict(total)


def _table(tables: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    rows: dict[str, list[Mapping[str, int]]] = {}
    for table in tables:
        for name, row in table.items():
            rows.setdefault(name, []).append(row)
    return {name: _sum(found) for name, found in rows.items()}
