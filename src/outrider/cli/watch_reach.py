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
from outrider.store.opening import glance

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
        """None if whoever held the file ended before we came."""
        frontier = await self._opened()
        if frontier.store.is_inline and self._is_file():
            await frontier.close()
            return None
        try:
            await opening.check_crawl(frontier, self.store)
        except BaseException:
            await frontier.close()
            raise
        return frontier

    async def _opened(self) -> Frontier:
        try:
            async with asyncio.timeout(ATTACH_WITHIN):
                return await self._opening()
        except TimeoutError as error:
            raise StoreUnavailable(
                f"the process that holds {show_address(self.store)} does not answer: "
                "is it stopped, or very busy?"
            ) from error

    async def _alone(self, work: Work[T]) -> T:
        """In a thread: a large file takes seconds to open, and a view has keys to answer."""

        async def worked() -> T:
            async with self._opening() as frontier:
                await opening.check_crawl(frontier, self.store)
                return await work(frontier)

        answer = await asyncio.to_thread(lambda: asyncio.run(worked()))
        self.presence = Presence.ALONE
        return answer

    def _opening(self) -> Frontier:
        return Frontier.attach(opening.source_of(self.store, creates=False), crawl=self.crawl)

    async def _part(self) -> None:
        presence, self.presence = self.presence, Presence.LOST
        if presence is Presence.ATTACHED:
            self._parted_at = asyncio.get_running_loop().time()
        if self._frontier is not None:
            frontier, self._frontier = self._frontier, None
            await frontier.close()

    def _has_just_parted(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self._parted_at is not None and now < self._parted_at + self._grace
