"""The crawls of a store: how each is doing, and which were removed (I1)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from outrider.clock import Clock, SystemClock
from outrider.core.progress import ProgressRates
from outrider.core.states import DELETING, CrawlStatus
from outrider.errors import InvalidInput
from outrider.frontier.progress import read_progress
from outrider.frontier.store_calls import values_of
from outrider.store.address import show_address
from outrider.store.factory import open_store
from outrider.store.protocol import (
    STORE_VALUES,
    CrawlView,
    FullStore,
    SharedValue,
    SharedValueWrite,
)

AT_ONCE: Final = 16  # crawls that are read together where a call is a round trip
REMOVED: Final = "removed-crawls"  # the topic of the store's own values that names them
MAX_REMOVED: Final = 1000  # removals that are remembered; the oldest is replaced first
MAX_ATTEMPTS: Final = 50  # to write a value that other processes write too


class CrawlSummary(msgspec.Struct, frozen=True):
    """One crawl of a store."""

    crawl: str
    status: CrawlStatus
    reason: str | None
    known: int
    pending: int
    leased: int
    done: int
    dead: int
    dropped: int
    held: int  # of the pending, in retired queues
    visits: int
    bytes: int
    runs: int  # how often it finished
    created_at: float
    finished_at: float | None
    age: float  # seconds since it was created
    rates: ProgressRates | None  # of the last minute of work; None: nothing works on it
    time_left: float | None  # seconds; None: it cannot be told

    @property
    def settled(self) -> int:
        """Tasks that are done, dead or dropped."""
        return self.done + self.dead + self.dropped

    @property
    def progress(self) -> float:
        """The share of the known tasks that are settled."""
        return _share(self.settled, self.known)

    @property
    def progress_unheld(self) -> float:
        """The share of those that are settled, leaving out tasks that are held."""
        return _share(self.settled, self.known - self.held)


class RemovedCrawl(msgspec.Struct, frozen=True):
    """A crawl that was removed, as it was when that began."""

    crawl: str
    at: float  # when its removal began
    by: str = ""  # who did it, if that was said
    known: int = 0
    status: str = ""


async def crawls(
    store: str | os.PathLike[str] | FullStore,
    *,
    status: str | Collection[str] | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[CrawlSummary]:
    """Iterate over the crawls of a store, in order of their creation; all, or of some statuses.

    `store` is a path, a URL, or an open store. A file is not created. Crawls are read some at a
    time, as far as you iterate.
    """
    wanted = _statuses(status)
    async with AsyncExitStack() as stack:
        opened = await _opened(stack, store, clock or SystemClock())
        names = await opened.crawls()
        at_once = 1 if opened.is_inline else AT_ONCE
        for start in range(0, len(names), at_once):
            part = names[start : start + at_once]
            found = await asyncio.gather(*(_summary(opened, name, wanted) for name in part))
            for one in found:
                if one is not None:
                    yield one
            await asyncio.sleep(0)


async def removed_crawls(
    store: str | os.PathLike[str] | FullStore, *, clock: Clock | None = None
) -> AsyncIterator[RemovedCrawl]:
    """Iterate over the last thousand crawls that were removed from a store, the oldest first."""
    async with AsyncExitStack() as stack:
        opened = await _opened(stack, store, clock or SystemClock())
        async for value in values_of(opened, STORE_VALUES, REMOVED):
            removed = _removed_of(value)
            if removed is not None:
                yield removed


async def remember_removal(store: FullStore, view: CrawlView, by: str) -> int:
    """Write into the store's own values that a crawl is being removed, and by whom, once.

    Returns how many tasks it had when that was written.
    """
    for _ in range(MAX_ATTEMPTS):
        values = [value async for value in values_of(store, STORE_VALUES, REMOVED)]
        removed = _removal_of(view, values)
        if removed is not None or view.reason == DELETING:
            return view.known if removed is None else removed.known
        slots = {value.name: value.number for value in values}
        free = (name for name in map(str, range(MAX_REMOVED)) if name not in slots)
        slot = next(free, None) or min(slots, key=lambda name: slots[name])
        text = msgspec.json.encode([view.crawl, by, view.known, view.status]).decode()
        write = SharedValueWrite(REMOVED, slot, text, slots.get(slot, 0))
        if (await store.put_values(STORE_VALUES, [write]))[0]:
            break
    return view.known


def _removal_of(view: CrawlView, values: Sequence[SharedValue]) -> RemovedCrawl | None:
    """Return what was written of this removal, by whichever process, or by one that was killed."""
    named = [one for one in map(_removed_of, values) if one is not None and one.crawl == view.crawl]
    if not named or (view.reason != DELETING and named[-1].at <= view.created_at):
        return None  # those before were of other crawls of that name
    return named[-1]


async def _opened(
    stack: AsyncExitStack, store: str | os.PathLike[str] | FullStore, clock: Clock
) -> FullStore:
    if not isinstance(store, str | os.PathLike):
        return store
    opened = await open_store(_existing(os.fspath(store)), clock)
    stack.push_async_callback(opened.close)
    return opened


def _existing(url: str) -> str:
    if "://" not in url and not Path(url).exists():
        raise InvalidInput(f"no such file: {show_address(url)}")
    return url


def _statuses(wanted: str | Collection[str] | None) -> frozenset[str]:
    """Return the statuses asked for; InvalidInput if there is no such one."""
    if wanted is None:
        return frozenset(CrawlStatus)
    names = frozenset([wanted] if isinstance(wanted, str) else wanted)
    for name in names - frozenset(CrawlStatus):
        raise InvalidInput(f"crawls(status={name!r}): one of {', '.join(CrawlStatus)}")
    return names


async def _summary(store: FullStore, name: str, wanted: frozenset[str]) -> CrawlSummary | None:
    """Return a crawl's summary; None: it is not wanted."""
    view = await store.crawl(name)
    if view.status not in wanted:
        return None
    now = (await store.heatmap(name)).updated_at
    rates, left = None, 0.0 if view.status is CrawlStatus.FINISHED else None
    if view.status is CrawlStatus.RUNNING and view.visits:
        progress = await read_progress(store, view, now)
        rates, left = progress.rates(), progress.time_left()
    shared = CrawlSummary.__struct_fields__[: CrawlSummary.__struct_fields__.index("age")]
    fields = {field: getattr(view, field) for field in shared}
    return CrawlSummary(**fields, age=max(0.0, now - view.created_at), rates=rates, time_left=left)


def _share(part: int, whole: int) -> float:
    """Return a share of at most 1: a crawl that is being removed may have lost tasks already."""
    return min(1.0, part / whole) if whole > 0 else 0.0


def _removed_of(value: SharedValue) -> RemovedCrawl | None:
    try:
        crawl, by, known, status = _decode(value.text)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return RemovedCrawl(crawl, value.at, by, known, status)


_decode: Final = msgspec.json.Decoder(tuple[str, str, int, str]).decode
