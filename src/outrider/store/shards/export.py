"""Export and restore over shards: a crawl is exported as one, and spread again when restored (I5).

An export goes from shard to shard until none has anything new, since a page that was exported as
done on one shard may have links that were added to another meanwhile. A restore begins at home
first and ends there last: until then the crawl leases no tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from outrider.errors import InvalidInput
from outrider.store.export_items import (
    RESTORING,
    Saved,
    SavedCrawl,
    SavedEnd,
    SavedQueue,
    SavedTask,
    task_of,
    validate_items,
)
from outrider.store.protocol import ResultPage
from outrider.store.shards.admin import rules_of_shard
from outrider.store.shards.copies import COPY, IdentityCopies
from outrider.store.shards.inspector import POSITION_BITS, pack_positions, unpack_positions
from outrider.store.shards.shard_set import (
    FINISHED,
    HOME,
    RUNNING,
    RunStatus,
    Shard,
    ShardSet,
    ShardSummary,
    totals_of,
)

_SHARD_BITS: Final = 16  # of the next shard's number, and of how many shards had nothing new


class ShardedExport:
    """Exports shard after shard, under one cursor."""

    def __init__(self, shards: ShardSet) -> None:
        self._shards = shards

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[Saved]:
        """See `protocol.Inspect`."""
        cursor = _Cursor.of(after, len(self._shards))
        items: list[Saved] = [] if after else [await self._first_item(crawl)]
        while cursor.quiet < len(self._shards):
            shard = self._shards[cursor.shard]
            page = await shard.export_items(crawl, after=cursor.position, limit=limit)
            if page.items:
                cursor.advance(page.after or 0)
                shown = [item for item in page.items if item.key != COPY]
                return ResultPage([*items, *shown], cursor.number)
            cursor.next_shard()
        ends = await self._shards.gather(
            _end_of(shard, crawl, at)
            for shard, at in zip(self._shards.all, cursor.positions, strict=True)
        )
        return ResultPage([*items, _merge_ends(ends)], None)

    async def _first_item(self, crawl: str) -> SavedCrawl:
        page = await self._shards.home.export(crawl, limit=1)
        return next(item for item in page.items if isinstance(item, SavedCrawl))


class ShardedRestore:
    """Restores queues and tasks on their shards, the crawl itself at home."""

    def __init__(self, shards: ShardSet, status: RunStatus, copies: IdentityCopies) -> None:
        self._shards = shards
        self._status = status
        self._copies = copies

    async def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        """See `protocol.Admin`: a faulty batch is refused whole, or by each shard."""
        validate_items(saved)
        if not saved:
            return 0
        _check_order(saved)
        first, last = saved[0], saved[-1]
        count = await self._begin(crawl, first, saved) if isinstance(first, SavedCrawl) else 0
        count += await self._restore_on_shards(crawl, saved)
        if isinstance(last, SavedEnd):
            count += await self._end(crawl, last)
        return count

    async def _begin(self, crawl: str, saved: SavedCrawl, batch: Sequence[Saved]) -> int:
        summaries = await self._shards.summaries(crawl)
        if not _is_restoring(summaries[HOME]):
            _check_empty(crawl, totals_of(summaries).known)
            _check_queues_first(batch)
        count = await self._shards.home.restore(crawl, [saved])
        part = msgspec.structs.replace(
            saved, rules=rules_of_shard(saved.rules), roots={}, settings=""
        )
        await self._shards.gather(
            shard.restore(crawl, [part])
            for shard, one in zip(self._shards.others, summaries[HOME + 1 :], strict=True)
            if not one.known or _is_restoring(one)  # otherwise its restore has ended already
        )
        return count

    async def _restore_on_shards(self, crawl: str, saved: Sequence[Saved]) -> int:
        parts: dict[int, list[Saved]] = {}
        for item in saved:
            if not isinstance(item, (SavedCrawl, SavedEnd)):
                parts.setdefault(self._shards.number_of(item.key), []).append(item)
        counts = await self._shards.gather(
            self._shards[number].restore(crawl, part) for number, part in parts.items()
        )
        tasks = [item for item in saved if isinstance(item, SavedTask) and not item.url]
        await self._copies.add([task_of(crawl, item) for item in tasks])
        return sum(counts)

    async def _end(self, crawl: str, saved: SavedEnd) -> int:
        """End on the other shards with counters at 0: the counters of the export are home's."""
        status, reason = (
            (RUNNING, None) if saved.status is FINISHED else (saved.status, saved.reason)
        )
        part = SavedEnd(status, reason, counter=saved.counter, arrivals=saved.arrivals)
        await self._shards.gather(shard.restore(crawl, [part]) for shard in self._shards.others)
        count = await self._shards.home.restore(crawl, [saved])
        await self._status.queues_returned(crawl)
        return count


class _Cursor(msgspec.Struct):
    """The position in each shard, the shard to ask next, and how many in a row had nothing new."""

    positions: list[int]
    shard: int
    quiet: int

    @classmethod
    def of(cls, number: int, count: int) -> _Cursor:
        positions = unpack_positions(number, count)
        rest = number >> POSITION_BITS * count
        return cls(positions, rest & (1 << _SHARD_BITS) - 1, rest >> _SHARD_BITS)

    @property
    def number(self) -> int:
        return pack_positions([*self.positions, self.quiet << _SHARD_BITS | self.shard])

    @property
    def position(self) -> int:
        return self.positions[self.shard]

    def advance(self, position: int) -> None:
        self.positions[self.shard], self.quiet = position, 0

    def next_shard(self) -> None:
        self.shard, self.quiet = (self.shard + 1) % len(self.positions), self.quiet + 1


async def _end_of(shard: Shard, crawl: str, after: int) -> SavedEnd:
    """Return the last item of a shard's export; tasks added this very moment are skipped."""
    while True:
        page = await shard.export(crawl, after=after, limit=1)
        if page.after is None:
            return next(item for item in page.items if isinstance(item, SavedEnd))
        after = page.after


def _merge_ends(ends: Sequence[SavedEnd]) -> SavedEnd:
    outcomes: Counter[str] = Counter()
    for end in ends:
        outcomes.update(end.outcomes)
    return msgspec.structs.replace(
        ends[HOME],
        counter=max(end.counter for end in ends),
        arrivals=max(end.arrivals for end in ends),
        dones=sum(end.dones for end in ends),
        recovered=sum(end.recovered for end in ends),
        bytes=sum(end.bytes for end in ends),
        logged=sum(end.logged for end in ends),
        outcomes=dict(outcomes),
    )


def _is_restoring(summary: ShardSummary) -> bool:
    return summary.reason == RESTORING


def _check_order(saved: Sequence[Saved]) -> None:
    if any(isinstance(item, SavedCrawl) for item in saved[1:]):
        raise InvalidInput("saved: a SavedCrawl comes first, and once")
    if any(isinstance(item, SavedEnd) for item in saved[:-1]):
        raise InvalidInput("saved: a SavedEnd comes last")


def _check_empty(crawl: str, known: int) -> None:
    """Refuse a crawl that has tasks on any shard: home counts only its own."""
    if known:
        raise InvalidInput(
            f"crawl {crawl!r} has {known} tasks: restore into one that has none, by another name"
        )


def _check_queues_first(saved: Sequence[Saved]) -> None:
    """Refuse a task before its queue: in the first batch, no queue is known from before."""
    keys: set[str] = set()
    for item in saved:
        if isinstance(item, SavedQueue):
            keys.add(item.key)
        elif isinstance(item, SavedTask) and item.key not in keys:
            raise InvalidInput(f"task {item.url}: its queue {item.key!r} comes before it")
