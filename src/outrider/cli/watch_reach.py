"""The way to a crawl that others run: through whoever holds its store, or briefly alone.

A file that nobody holds is opened for one piece of work and let go of, so that a crawl can start
at any time and never finds its file in the hands of somebody who only looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, TypeVar

from outrider.cli import opening
from outrider.errors import StoreError, StoreUnavailable
from outrider.frontier import Frontier
from outrider.store.address import show_address
from outrider.store.opening import glance, join_store
from outrider.store.protocol import FullStore

T = TypeVar("T")
Work = Callable[[Frontier], Awaitable[T]]

ATTACH_WITHIN: Final = 10.0  # seconds
GRACE: Final = 3.0  # seconds after its holder went before a file is opened here


class Presence(StrEnum):
    """Who is at the other end."""

    ATTACHED = "attached"  # a process that holds the store
    ALONE = "alone"  # nobody; the file was read
    LOST = "lost"  # nobody can be asked now


class Reach:
    """One crawl of one store, asked by one at a time."""

    def __init__(self, store: str, crawl: str, *, grace: float = GRACE) -> None:
        self.store, self.crawl = store, crawl
        self.presence = Presence.LOST
        self._grace = grace
        self._frontier: Frontier | None = None
        self._joined: FullStore | None = None  # the store of the process that holds the file
        self._turn = asyncio.Lock()
        self._traces: tuple[object, ...] = ()  # of the file as we left it
        self._parted_at: float | None = None

    async def ask(self, work: Work[T]) -> T:
        """Have some work done on the crawl, whoever holds it."""
        async with self._turn:
            try:
                return await self._asked(work)
            except (StoreError, OSError):
                await self._part()
                raise

    async def look(self, work: Work[T], *, anyway: bool = False) -> T | None:
        """As `ask`; None where all is as it was: nobody holds the file, and nobody wrote to it."""
        if self._frontier is None and self._is_file() and not self._turn.locked():
            holder, traces = glance(self.store)
            if holder is None and traces == self._traces and not anyway:
                self.presence = Presence.ALONE
                return None
            if holder is None and self._has_just_parted():
                raise StoreUnavailable(
                    f"the process that held {show_address(self.store)} has ended"
                )
        answer = await self.ask(work)
        if self.presence is Presence.ALONE:
            self._traces = glance(self.store)[1]
        return answer

    def is_served(self) -> bool:
        """Whether somebody is there to answer, who may still go before we ask."""
        return not self._is_file() or glance(self.store)[0] is not None

    async def close(self) -> None:
        """Let go of it."""
        async with self._turn:
            await self._part()

    async def _asked(self, work: Work[T]) -> T:
        if self._frontier is None and self.is_served():
            self._frontier = await self._attached()
        if self._frontier is None:
            return await self._alone(work)
        answer = await work(self._frontier)
        self.presence = Presence.ATTACHED
        return answer

    def _is_file(self) -> bool:
        source = opening.source_of(self.store, creates=False)
        return isinstance(source, str) and "://" not in source

    async def _attached(self) -> Frontier | None:
        """None if the process that held the file ended before it was asked."""
        frontier = await self._opened()
        if frontier is None:
            return None
        try:
            await opening.check_crawl(frontier, self.store)
        except BaseException:
            await self._close(frontier)
            raise
        return frontier

    async def _opened(self) -> Frontier | None:
        """With a store of its own: a file whose holder ends must not be held here."""
        if self._is_file():
            self._joined = await join_store(self.store)
            if self._joined is None:
                return None
        try:
            async with asyncio.timeout(ATTACH_WITHIN):
                return await self._opening(self._joined)
        except BaseException as error:
            await self._close(None)
            if isinstance(error, TimeoutError):
                raise StoreUnavailable(f"{show_address(self.store)} does not answer") from error
            raise

    async def _close(self, frontier: Frontier | None) -> None:
        joined, self._joined = self._joined, None
        if frontier is not None:
            await frontier.close()
        if joined is not None:
            await joined.close()

    async def _alone(self, work: Work[T]) -> T:
        """In a thread: a large file takes seconds to open, and a view has keys to answer."""

        async def worked() -> T:
            async with self._opening() as frontier:
                await opening.check_crawl(frontier, self.store)
                return await work(frontier)

        answer = await asyncio.to_thread(lambda: asyncio.run(worked()))
        self.presence = Presence.ALONE
        return answer

    def _opening(self, joined: FullStore | None = None) -> Frontier:
        source = joined or opening.source_of(self.store, creates=False)
        return Frontier.attach(source, crawl=self.crawl)

    async def _part(self) -> None:
        presence, self.presence = self.presence, Presence.LOST
        if presence is Presence.ATTACHED:
            self._parted_at = asyncio.get_running_loop().time()
        if self._frontier is not None:
            frontier, self._frontier = self._frontier, None
            await self._close(frontier)

    def _has_just_parted(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self._parted_at is not None and now < self._parted_at + self._grace
