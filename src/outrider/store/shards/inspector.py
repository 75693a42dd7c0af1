"""Readers' verbs over shards: shard after shard, the sum of all, or home's; nothing is changed.

The number of an event packs the position in every shard's log into one number: reading on from it
misses no event of any shard, and every later number is greater.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from outrider.core.states import TaskState
from outrider.core.worker_totals import WorkerTotals
from outrider.events import GAP
from outrider.store.acts import PREFIX
from outrider.store.byte_limits import task_bytes, view_bytes
from outrider.store.protocol import (
    ALL_LEASES,
    COUNTS_AT_END,
    CrawlView,
    CursorPage,
    EventPage,
    Heat,
    LeaseFilter,
    LeaseView,
    LoggedEvent,
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
from outrider.store.queue_order import QueueOrder, validate_order
from outrider.store.shards.copies import COPY, is_copy, without_copies
from outrider.store.shards.ordered_pages import OrderedCursors, merge_pages
from outrider.store.shards.shard_set import HOME, ShardSet, global_number, split_number
from outrider.store.validation import validate_limit, validate_page

POSITION_BITS: Final = 64  # of one shard's position in a number that has all of them
_MASK: Final = (1 << POSITION_BITS) - 1
_SUMMED: Final = (
    *("known", "pending", "leased", "done", "dead", "dropped", "held", "visits", "bytes"),
    "recovered",
)


replace = msgspec.structs.replace
Numbered = TypeVar("Numbered", TaskView, Pending)


class ShardedInspector:
    """Inspect, without `export`."""

    def __init__(self, shards: ShardSet) -> None:
        self._shards = shards

    async def crawls(self) -> list[str]:
        """See `protocol.Inspect`."""
        return await self._shards.home.crawls()

    async def crawl(self, crawl: str) -> CrawlView:
        """See `protocol.Inspect`: counters are summed over all shards, the rest is home's."""
        found = await self._shards.gather(shard.crawl(crawl) for shard in self._shards.all)
        shards = zip(self._shards.all, found, strict=True)
        views = await self._shards.gather(without_copies(shard, view) for shard, view in shards)
        return replace(
            views[HOME],
            **{name: sum(getattr(view, name) for view in views) for name in _SUMMED},
            outcomes=_sum(view.outcomes for view in views),
            types=_sum_by_name(view.types for view in views),
            tags=_sum_by_name(view.tags for view in views),
            queues=_sum(view.queues for view in views),
            bands=_sum(view.bands for view in views),
        )

    async def counts_at_end(self, crawl: str) -> dict[str, int]:
        """I2, O3: return what the end of a run reports, summed over all shards."""
        view = await self.crawl(crawl)
        return {name: getattr(view, name) for name in COUNTS_AT_END}

    async def queue_states(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Any]:
        """See `protocol.Inspect`."""
        pages, more = await self._shards.walk(
            crawl,
            lambda s, at, most: s.queues(crawl, after=at, limit=most),
            after,
            limit,
            of_tasks=False,
        )
        views = (view for _, page in pages for view in page.items)
        return ResultPage([view.state for view in views if view.key != COPY], more)

    async def queue(self, crawl: str, key: str) -> QueueView:
        """See `protocol.Inspect`."""
        return await self._shards.of_key(key).queue(crawl, key)

    async def queues(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueView]:
        """See `protocol.Inspect`."""
        pages, more = await self._shards.walk(
            crawl,
            lambda s, at, most: s.queues(crawl, after=at, limit=most),
            after,
            limit,
            of_tasks=False,
        )
        views = (view for _, page in pages for view in page.items)
        return ResultPage([view for view in views if view.key != COPY], more)

    async def queues_in_order(
        self,
        crawl: str,
        order: QueueOrder,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 1000,
    ) -> CursorPage[QueueView]:
        """See `protocol.Inspect`: a page of every shard, merged."""
        validate_order(order, prefix, after)
        validate_limit(limit)
        cursors = OrderedCursors(order)
        pages = await self._shards.gather(
            shard.queues_in_order(
                crawl, order, prefix=prefix, after=cursors.local(after, number), limit=limit
            )
            for number, shard in enumerate(self._shards.all)
        )
        page = merge_pages(pages, cursors, limit)
        shown = [at for at, view in enumerate(page.items) if view.key != COPY]
        views = [page.items[at] for at in shown]
        return CursorPage(views, [page.cursors[at] for at in shown], page.after)

    async def tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[TaskView]:
        """See `protocol.Inspect`."""
        pages, more = await self._shards.walk(
            crawl,
            lambda s, at, most: s.tasks(crawl, which, after=at, limit=most),
            after,
            limit,
            lambda page: sum(map(view_bytes, page.items)),
        )
        views = ((shard, view) for shard, page in pages for view in page.items)
        shown = [_with_global_number(shard, view) for shard, view in views if not is_copy(view)]
        return ResultPage(shown, more)

    async def leases(
        self,
        crawl: str,
        which: LeaseFilter = ALL_LEASES,
        *,
        after: int = 0,
        limit: int = 1000,
    ) -> ResultPage[LeaseView]:
        """See `protocol.Inspect`: shard after shard, in the order they were made on each."""
        validate_page(after, limit)
        if which.task is not None:
            return await self._lease_of(crawl, which, which.task)
        number, local = split_number(after)
        views: list[LeaseView] = []
        while number < len(self._shards):
            left = max(1, limit - len(views))
            page = await self._shards[number].leases(crawl, which, after=local, limit=left)
            views += [self._with_global_task(number, view) for view in page.items]
            if page.after is not None:
                return ResultPage(views, global_number(number, page.after))
            number, local = number + 1, 0
            is_full = len(views) >= limit and which.fingerprint is None
            if is_full and number < len(self._shards):
                return ResultPage(views, global_number(number, 0))
        return ResultPage(views, None)

    async def _lease_of(self, crawl: str, which: LeaseFilter, task: int) -> ResultPage[LeaseView]:
        number, local = split_number(task)
        if not self._shards.has(number):
            return ResultPage([], None)
        page = await self._shards[number].leases(crawl, replace(which, task=local))
        return ResultPage([self._with_global_task(number, view) for view in page.items], None)

    def _with_global_task(self, shard: int, view: LeaseView) -> LeaseView:
        task, home = global_number(shard, view.lease.task), self._shards.home.id
        return replace(view, lease=replace(view.lease, store=home, task=task))

    async def queue_tasks(
        self,
        crawl: str,
        key: str,
        *,
        state: TaskState | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> ResultPage[TaskView]:
        """See `protocol.Inspect`: all are on the queue's shard."""
        validate_page(after, limit)
        shard = self._shards.number_of(key)
        local = max(0, after - global_number(shard, 0))
        page = await self._shards[shard].queue_tasks(
            crawl, key, state=state, after=local, limit=limit
        )
        more = None if page.after is None else global_number(shard, page.after)
        return ResultPage([_with_global_number(shard, view) for view in page.items], more)

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        """See `protocol.Inspect`: any shard may have it."""
        found = await self._shards.gather(
            shard.task(crawl, fingerprint) for shard in self._shards.all
        )
        views = (
            _with_global_number(number, view)
            for number, view in enumerate(found)
            if view is not None and not is_copy(view)
        )
        return next(views, None)

    async def pending_tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Pending]:
        """See `protocol.Inspect`."""
        pages, more = await self._shards.walk(
            crawl,
            lambda s, at, most: s.pending_tasks(crawl, which, after=at, limit=most),
            after,
            limit,
            lambda page: sum(task_bytes(one.task) for one in page.items),
        )
        return ResultPage(
            [_with_global_number(shard, v) for shard, page in pages for v in page.items], more
        )

    async def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        """See `protocol.Inspect`."""
        return await self._shards.of_key(key).upcoming(crawl, key, limit=limit)

    async def position(self, crawl: str, number: int) -> QueuePosition:
        """See `protocol.Inspect`."""
        shard, local = split_number(number)
        return await self._shards[shard].position(crawl, local)

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        """See `protocol.Inspect`."""
        return await self._shards.home.roots(crawl, mode, after=after)

    async def heatmap(self, crawl: str) -> Heat:
        """See `protocol.Inspect`."""
        heats = await self._shards.gather(shard.heatmap(crawl) for shard in self._shards.all)
        return Heat(
            sum(heat.total for heat in heats),
            _sum_by_name(heat.cells for heat in heats),
            _sum(heat.depth for heat in heats),
            max(heat.updated_at for heat in heats),
        )

    async def settings(self, crawl: str) -> str:
        """See `protocol.Inspect`."""
        return await self._shards.home.settings(crawl)

    async def values_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[SharedValue]:
        """See `protocol.Inspect`."""
        return await self._shards.home.values_since(crawl, after=after, limit=limit)

    async def workers(self, crawl: str) -> list[WorkerView]:
        """See `protocol.Inspect`."""
        return await self._shards.home.workers(crawl)

    async def worker_totals(self, crawl: str) -> WorkerTotals:
        """See `protocol.Inspect`."""
        return await self._shards.home.worker_totals(crawl)

    async def events_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[StoreEvent]:
        """See `protocol.Inspect`: in the order of their times, as far as each shard was read."""
        positions = unpack_positions(after, len(self._shards))
        logs = await self._shards.gather(
            self._log_of(number, crawl, at, limit) for number, at in enumerate(positions)
        )
        found = [(event.at, number, event) for number, log in enumerate(logs) for event in log]
        events: list[StoreEvent] = []
        for _, number, event in sorted(found, key=lambda entry: entry[:2]):
            positions[number] = event.sequence
            if _is_shown(number, event):
                events.append(replace(event, sequence=pack_positions(positions)))
        return events[:limit]

    async def event_log(self, crawl: str, *, after: int = 0, limit: int = 1000) -> EventPage:
        """See `protocol.Inspect`: home has what workers published; in the order of their times."""
        validate_limit(limit)
        positions = unpack_positions(after, len(self._shards))
        pages = await self._shards.gather(
            shard.event_log(crawl, after=at, limit=limit)
            for shard, at in zip(self._shards.all, positions, strict=True)
        )
        events: list[LoggedEvent] = []
        for _, number, event in sorted(_timed(pages), key=lambda entry: entry[:2]):
            positions[number] = event.sequence
            if _is_shown(number, event):
                events.append(replace(event, sequence=pack_positions(positions)))
                limit -= event.name != GAP
            if not limit:
                break
        return EventPage(events, pack_positions(page.last for page in pages))

    async def _log_of(self, number: int, crawl: str, after: int, limit: int) -> list[StoreEvent]:
        """Read one shard's log up to events that are shown, so that a reader always gets on."""
        while True:
            log = await self._shards[number].events_since(crawl, after=after, limit=limit)
            if len(log) < limit or any(_is_shown(number, event) for event in log):
                return log
            after = log[-1].sequence


def _timed(pages: Iterable[EventPage]) -> Iterator[tuple[float, int, LoggedEvent]]:
    """Yield entries with the number of their shard and times in the order of its log.

    Clocks of workers differ from those of servers, and gaps have no time.
    """
    for number, page in enumerate(pages):
        latest = 0.0
        for event in page.events:
            latest = max(latest, event.at)
            yield latest, number, event


def _is_shown(shard: int, event: StoreEvent | LoggedEvent) -> bool:
    """O3: tell whether an event is one of the crawl's: home alone logs its status and acts."""
    return shard == HOME or not event.name.startswith(("crawl-", PREFIX))


def pack_positions(positions: Iterable[int]) -> int:
    """Return the positions in all shards as one number; home's are its lowest bits."""
    return sum(at << POSITION_BITS * place for place, at in enumerate(positions))


def unpack_positions(number: int, count: int) -> list[int]:
    """Return what `pack_positions` was given."""
    return [number >> POSITION_BITS * place & _MASK for place in range(count)]


def _with_global_number(shard: int, view: Numbered) -> Numbered:
    return replace(view, number=global_number(shard, view.number)) if shard else view


def _sum(rows: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row)
    return dict(total)


def _sum_by_name(tables: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    rows: dict[str, list[Mapping[str, int]]] = {}
    for table in tables:
        for name, row in table.items():
            rows.setdefault(name, []).append(row)
    return {name: _sum(found) for name, found in rows.items()}
