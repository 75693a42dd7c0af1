"""What all verbs over shards stand on: who is asked, at one time or in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from outrider.errors import InvalidInput, OutriderError
from outrider.store.shards.shard import HOME, SHARDS_MOST, Pulse, Shard, joined, parted, shard_of

T = TypeVar("T")


class Part(Protocol):
    """A page or a step: whatever has a cursor."""

    @property
    def after(self) -> int | None: ...  # noqa: D102


P = TypeVar("P", bound=Part)


class Footing:
    """The shards, and how to reach them."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        if not 0 < len(shards) <= SHARDS_MOST:
            raise InvalidInput(f"shards = {len(shards)} must be 1 to {SHARDS_MOST}")
        self._shards = tuple(shards)
        self._others = self._shards[HOME + 1 :]
        self._home = self._shards[HOME]
        self.id = self._home.id
        self.is_inline = all(shard.is_inline for shard in shards)

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """See `protocol.FullStore`."""
        ends = [shard.subscribe(crawl, notify) for shard in self._shards]

        def end() -> None:
            for each in ends:
                each()

        return end

    async def close(self) -> None:
        """See `protocol.FullStore`."""
        await self._all(shard.close() for shard in self._shards)

    def shares_order(self, key: str, other: str) -> bool:
        """M1: whether two queues stand in the same lines."""
        return self._shard_of(key) == self._shard_of(other)

    def _shard_of(self, key: str) -> int:
        return shard_of(key, len(self._shards))

    def _at(self, key: str) -> Shard:
        return self._shards[self._shard_of(key)]

    async def _all(self, calls: Iterable[Awaitable[T]]) -> list[T]:
        """All answers, or the first error once nobody is at work any more."""
        if self.is_inline:
            answers = [await _tried(call) for call in calls]
        else:
            answers = await asyncio.gather(*map(_tried, calls))
        for answer in answers:
            if isinstance(answer, OutriderError):
                raise answer
        return answers  # type: ignore[return-value] # no error is among them

    async def _pulses(self, crawl: str) -> list[Pulse]:
        return await self._all(shard.pulse(crawl) for shard in self._shards)

    async def _walk(
        self, crawl: str, ask: Callable[[Shard, int, int], Awaitable[P]], after: int, limit: int
    ) -> tuple[list[tuple[int, P]], int | None]:
        """Pages from shard to shard until `limit` was looked at, and where to go on."""
        (number, local), pages = parted(after), []
        known: list[int] = []
        while True:
            page = await ask(self._shards[number], local, limit)
            pages.append((number, page))
            if page.after is not None:
                return pages, joined(number, page.after)
            known = known or [pulse.known for pulse in await self._pulses(crawl)]
            limit -= known[number] - local
            following = (n for n in range(number + 1, len(known)) if known[n])
            number, local = next(following, HOME), 0
            if number == HOME:
                return pages, None
            if limit <= 0:
                return pages, joined(number, 0)


async def _tried(call: Awaitable[T]) -> T | OutriderError:
    try:
        return await call
    except OutriderError as error:
        return error
