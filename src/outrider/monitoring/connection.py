"""A connection to a crawl that other processes run: through the process that holds its store, or,
for a file that no process holds, by opening it briefly.

Such a file is opened for one call and closed again, and the process declares that to those who
find the file held: a crawl that starts meanwhile waits, and is not refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from outrider.clock import SystemClock
from outrider.errors import InvalidInput, StoreError, StoreUnavailable
from outrider.frontier import Frontier
from outrider.settings import person
from outrider.store.address import check_address, show_address
from outrider.store.factory import join_store, open_store, peek_file
from outrider.store.protocol import FullStore

T = TypeVar("T")
Work = Callable[[Frontier], Awaitable[T]]

ATTACH_TIMEOUT: Final = 10.0  # seconds
GRACE: Final = 3.0  # seconds after the holder of a file ended, before the file is opened here
_MAX_NAMES: Final = 10  # crawls that an error message lists


def check_store(store: str, *, creates: bool) -> str | FullStore:
    """Return the store to open; raise InvalidInput if it would have to be created and may not."""
    check_address(store)
    if store.startswith("memory:"):
        raise InvalidInput("memory:// ends with its process, so no command sees it; name a file")
    if "://" not in store and not creates and not Path(store).exists():
        raise InvalidInput(f"no such file: {show_address(store)}; `outrider add` creates one")
    return store


@asynccontextmanager
async def opened_for_command(source: str | FullStore) -> AsyncIterator[FullStore]:
    """Open a store for one command; an open one is left open.

    A crawl waits for such a holder of its file, as the command ends soon (M3).
    """
    if not isinstance(source, str):
        yield source
        return
    store = await open_store(source, SystemClock(), purpose="command")
    try:
        yield store
    finally:
        await store.close()


async def check_crawl(frontier: Frontier, store: str) -> None:
    """Raise InvalidInput, naming the crawls there are, if the store does not have this one."""
    names = await frontier.store.crawls()
    if frontier.crawl in names:
        return
    fix = "; choose one with --crawl NAME" if names else "; `outrider add` creates one"
    listed = list_names(names) or "none"
    raise InvalidInput(
        f"no crawl {frontier.crawl!r} in {show_address(store)}: it has {listed}{fix}"
    )


def list_names(names: Sequence[str]) -> str:
    """Return the first names of crawls, for an error; "": there are none."""
    return ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")


class Presence(StrEnum):
    """What a connection reaches."""

    ATTACHED = "attached"  # a process that holds the store
    ALONE = "alone"  # a file that no process holds
    LOST = "lost"  # nothing at the moment


class CrawlConnection:
    """A connection to one crawl of one store; calls are made one at a time."""

    def __init__(self, store: str, crawl: str, *, grace: float = GRACE) -> None:
        self.store, self.crawl = store, crawl
        self.presence = Presence.LOST
        self._grace = grace
        self._frontier: Frontier | None = None
        self._joined: FullStore | None = None  # the store of the process that holds the file
        self._lock = asyncio.Lock()
        self._traces: tuple[object, ...] = ()  # of the file when it was last closed here
        self._detached_at: float | None = None

    async def call(self, work: Work[T]) -> T:
        """Call `work` with a frontier of the crawl, in whichever process holds it."""
        async with self._lock:
            try:
                return await self._call(work)
            except (StoreError, OSError):
                await self._detach()
                raise

    async def call_if_changed(self, work: Work[T], *, force: bool = False) -> T | None:
        """As `call`; None if no process holds the file and it is unchanged since the last call."""
        if self._frontier is None and self._is_file() and not self._lock.locked():
            holder, traces = peek_file(self.store)
            if holder is None and traces == self._traces and not force:
                self.presence = Presence.ALONE
                return None
            if holder is None and self._has_just_detached():
                raise StoreUnavailable(
                    f"the process that held {show_address(self.store)} has ended"
                )
        answer = await self.call(work)
        if self.presence is Presence.ALONE:
            self._traces = peek_file(self.store)[1]
        return answer

    def is_served(self) -> bool:
        """Whether a process is there to answer; it may still end before it is asked."""
        return not self._is_file() or peek_file(self.store)[0] is not None

    async def close(self) -> None:
        """Close the connection."""
        async with self._lock:
            await self._detach()

    async def _call(self, work: Work[T]) -> T:
        if self._frontier is None and self.is_served():
            self._frontier = await self._attach()
        if self._frontier is None:
            return await self._call_alone(work)
        answer = await work(self._frontier)
        self.presence = Presence.ATTACHED
        return answer

    def _is_file(self) -> bool:
        source = check_store(self.store, creates=False)
        return isinstance(source, str) and "://" not in source

    async def _attach(self) -> Frontier | None:
        """Attach to the process that holds the store; None if it ended before it was asked."""
        frontier = await self._open()
        if frontier is None:
            return None
        try:
            await check_crawl(frontier, self.store)
        except BaseException:
            await self._close(frontier)
            raise
        return frontier

    async def _open(self) -> Frontier | None:
        """Open a frontier on a joined store: a file whose holder ends must not be held here."""
        if self._is_file():
            self._joined = await join_store(self.store)
            if self._joined is None:
                return None
        try:
            async with asyncio.timeout(ATTACH_TIMEOUT):
                return await self._attach_to(self._joined or check_store(self.store, creates=False))
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

    async def _call_alone(self, work: Work[T]) -> T:
        """Open the file in a thread: a large one takes seconds, and a view has keys to handle."""

        async def call() -> T:
            source = check_store(self.store, creates=False)
            async with opened_for_command(source) as store, self._attach_to(store) as frontier:
                await check_crawl(frontier, self.store)
                return await work(frontier)

        answer = await asyncio.to_thread(lambda: asyncio.run(call()))
        self.presence = Presence.ALONE
        return answer

    def _attach_to(self, source: str | FullStore) -> Frontier:
        return Frontier.attach(source, crawl=self.crawl, by=person())

    async def _detach(self) -> None:
        presence, self.presence = self.presence, Presence.LOST
        if presence is Presence.ATTACHED:
            self._detached_at = asyncio.get_running_loop().time()
        if self._frontier is not None:
            frontier, self._frontier = self._frontier, None
            await self._close(frontier)

    def _has_just_detached(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self._detached_at is not None and now < self._detached_at + self._grace
