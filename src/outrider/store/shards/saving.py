"""A crawl over several shards is told as one, and one that was told is spread again (I5).

An export goes from shard to shard until none has anything new, since a page that was told as done
on one may have links that came to another meanwhile. A restored crawl begins at home first and ends
there last: until then it lends nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from outrider.errors import InvalidInput
from outrider.store.protocol import ResultPage
from outrider.store.saved import (
    RESTORING,
    Saved,
    SavedCrawl,
    SavedEnd,
    SavedQueue,
    SavedTask,
    checked,
)
from outrider.store.shards.reading import DIGIT, packed, unpacked
from outrider.store.shards.runs import FINISHED, RUNNING, Runs
from outrider.store.shards.shard import HOME, Pulse, Shard, together
from outrider.store.shards.steering import of_a_shard

_TURN: Final = 16  # bits for whose turn it is, and for how many had nothing new


class Saving(Runs):
    """Export and restore."""

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[Saved]:
        """See `protocol.Inspect`."""
        cursor = _Cursor.of(after, len(self._shards))
        head = [] if after else [await self._saved_crawl(crawl)]
        while cursor.quiet < len(self._shards):
            shard = self._shards[cursor.turn]
            page = await shard.saved(crawl, after=cursor.told[cursor.turn], limit=limit)
            if page.items:
                cursor.told[cursor.turn], cursor.quiet = page.after or 0, 0
                return ResultPage([*head, *page.items], cursor.number)
            cursor.go_on()
        ends = await self._all(
            _end_of(shard, crawl, at) for shard, at in zip(self._shards, cursor.told, strict=True)
        )
        return ResultPage([*head, _one_end(ends)], None)

    async def _saved_crawl(self, crawl: str) -> SavedCrawl:
        page = await self._home.export(crawl, limit=1)
        return next(item for item in page.items if isinstance(item, SavedCrawl))

    async def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        """See `protocol.Admin`: a batch is refused whole for what it is, or by each shard."""
        checked(saved)
        if not saved:
            return 0
        _refuse_disorder(saved)
        first, last = saved[0], saved[-1]
        count = await self._begin(crawl, first, saved) if isinstance(first, SavedCrawl) else 0
        count += await self._spread_saved(crawl, saved)
        if isinstance(last, SavedEnd):
            count += await self._end_restoring(crawl, last)
        return count

    async def _begin(self, crawl: str, saved: SavedCrawl, batch: Sequence[Saved]) -> int:
        pulses = await self._pulses(crawl)
        if not _is_restoring(pulses[HOME]):
            _refuse_known(crawl, together(pulses).known)
            _refuse_orphans(batch)
        count = await self._home.restore(crawl, [saved])
        part = msgspec.structs.replace(saved, rules=of_a_shard(saved.rules), roots={}, settings="")
        await self._all(
            shard.restore(crawl, [part])
            for shard, pulse in zip(self._others, pulses[HOME + 1 :], strict=True)
            if not pulse.known or _is_restoring(pulse)  # else it has had its end already
        )
        return count

    async def _spread_saved(self, crawl: str, saved: Sequence[Saved]) -> int:
        parts: dict[int, list[Saved]] = {}
        for item in saved:
            if not isinstance(item, (SavedCrawl, SavedEnd)):
                parts.setdefault(self._shard_of(item.key), []).append(item)
        counts = await self._all(
            self._shards[number].restore(crawl, part) for number, part in parts.items()
        )
        return sum(counts)

    async def _end_restoring(self, crawl: str, saved: SavedEnd) -> int:
        """The others count what they see from now on; what was counted before is home's."""
        status, reason = (
            (RUNNING, None) if saved.status is FINISHED else (saved.status, saved.reason)
        )
        part = SavedEnd(status, reason, counter=saved.counter, arrivals=saved.arrivals)
        await self._all(shard.restore(crawl, [part]) for shard in self._others)
        count = await self._home.restore(crawl, [saved])
        await self._heed(crawl)
        return count


class _Cursor(msgspec.Struct):
    """How far each shard was told, whose turn it is, and how many in a row had nothing new."""

    told: list[int]
    turn: int
    quiet: int

    @classmethod
    def of(cls, number: int, count: int) -> _Cursor:
        told = unpacked(number, count)
        rest = number >> DIGIT * count
        return cls(told, rest & (1 << _TURN) - 1, rest >> _TURN)

    @property
    def number(self) -> int:
        return packed([*self.told, self.quiet << _TURN | self.turn])

    def go_on(self) -> None:
        self.turn, self.quiet = (self.turn + 1) % len(self.told), self.quiet + 1


async def _end_of(shard: Shard, crawl: str, after: int) -> SavedEnd:
    """What a shard counted; tasks that came this very moment are not waited for."""
    while True:
        page = await shard.export(crawl, after=after, limit=1)
        if page.after is None:
            return next(item for item in page.items if isinstance(item, SavedEnd))
        after = page.after


def _one_end(ends: Sequence[SavedEnd]) -> SavedEnd:
    outcomes: Counter[str] = Counter()
    for end in ends:
        outcomes.update(end.outcomes)
    return msgspec.structs.replace(
        ends[HOME],
        counter=max(end.counter for end in ends),
        arrivals=max(end.arrivals for end in ends),
        dones=sum(end.dones for end in ends),
        bytes=sum(end.bytes for end in ends),
        logged=sum(end.logged for end in ends),
        outcomes=dict(outcomes),
    )


def _is_restoring(pulse: Pulse) -> bool:
    return pulse.reason == RESTORING


def _refuse_disorder(saved: Sequence[Saved]) -> None:
    if any(isinstance(item, SavedCrawl) for item in saved[1:]):
        raise InvalidInput("saved: a SavedCrawl comes first, and once")
    if any(isinstance(item, SavedEnd) for item in saved[:-1]):
        raise InvalidInput("saved: a SavedEnd comes last")


def _refuse_known(crawl: str, known: int) -> None:
    """What home cannot see: that there are tasks elsewhere."""
    if known:
        raise InvalidInput(
            f"crawl {crawl!r} has {known} tasks: restore into one that has none, by another name"
        )


def _refuse_orphans(saved: Sequence[Saved]) -> None:
    """In a crawl that only begins, a queue is told in the same batch as its tasks."""
    keys: set[str] = set()
    for item in saved:
        if isinstance(item, SavedQueue):
            keys.add(item.key)
        elif isinstance(item, SavedTask) and item.key not in keys:
            raise InvalidInput(f"task {item.url}: its queue {item.key!r} comes before it")
