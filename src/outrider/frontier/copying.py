"""A crawl from one store into another: page by page, begun again where it broke off, and compared.

Both sides are read through again before the copy is let go: until then it lends nothing. What they
tell is summed up whatever its order. A lease reads as released at the moment it is read, so of what
is leased the instants and what they move are left out of the sum.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias, assert_never

import msgspec

from outrider.core.states import CrawlStatus, TaskState
from outrider.errors import InvalidInput
from outrider.frontier.saving import notes_of, write_notes
from outrider.store.protocol import CrawlView, FullStore, TaskFilter, TaskView
from outrider.store.saved import (
    RESTORING,
    Saved,
    SavedCrawl,
    SavedEnd,
    SavedQueue,
    SavedTask,
)

PAGE: Final = 500  # items of a page: with all they may carry, far below what a wire takes
PAUSED_FOR: Final = "copy"  # why a crawl was paused, so that its copy goes on
_SUM_BYTES: Final = 16
_SUM_MASK: Final = (1 << 8 * _SUM_BYTES) - 1

Part: TypeAlias = Literal["copied", "source read", "copy read"]
Progress: TypeAlias = Callable[[Part, int, int], None]  # what is done, how many tasks, of how many

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_values = msgspec.structs.astuple


class Sum(msgspec.Struct, frozen=True):
    """What a side tells, whatever the order: how many, and one number for all of it."""

    queues: int = 0
    tasks: int = 0
    checksum: str = ""


class CopyReport(msgspec.Struct, frozen=True):
    """What became of one crawl; `fault` is None if both sides tell the same."""

    crawl: str
    into: str
    queues: int
    tasks: int
    new: int  # items that were not there yet
    leased: int  # tasks that were leased, and read as released
    checksum: str
    status: CrawlStatus  # of the copy
    fault: str | None = None


async def copy_crawl(
    source: FullStore,
    target: FullStore,
    crawl: str,
    *,
    into: str = "",
    pause: bool = False,
    progress: Progress = lambda *_: None,
) -> CopyReport:
    """Copy a crawl; `pause` pauses it first, and the copy goes on as it was before.

    After a failure do it again: what is there is left alone.
    """
    into = into or crawl
    await _refuse(source, target, crawl, into)
    if pause:
        await source.set_status(crawl, CrawlStatus.PAUSED, PAUSED_FOR)
    view = await source.crawl(crawl)
    copying = _Copying(source, target, view, into, await _Lent.of(source, view), progress)
    return await copying.run()


async def _refuse(source: FullStore, target: FullStore, crawl: str, into: str) -> None:
    if source.id == target.id and crawl == into:
        raise InvalidInput(f"crawl {crawl!r} would be copied onto itself: name another store")
    names = await source.crawls()
    if crawl not in names:
        there = ", ".join(names[:10]) or "none"
        raise InvalidInput(f"no crawl {crawl!r} to copy: there is {there}")
    if (await source.crawl(crawl)).reason == RESTORING:
        raise InvalidInput(f"crawl {crawl!r} is half restored itself: restore it first")


class _Copying:
    """One crawl on its way."""

    def __init__(
        self,
        source: FullStore,
        target: FullStore,
        view: CrawlView,
        into: str,
        lent: _Lent,
        progress: Progress,
    ) -> None:
        self._source = source
        self._target = target
        self._view = view
        self._into = into
        self._lent = lent
        self._progress = progress
        self._end = SavedEnd()

    async def run(self) -> CopyReport:
        """Take in what is not there, compare, and only then let the copy go."""
        there = await self._target.crawl(self._into)
        is_done = there.known > 0 and there.reason != RESTORING
        new = 0 if is_done else await self._take_in()
        told = await self._summed(self._source, self._view.crawl, "source read")
        kept = await self._summed(self._target, self._into, "copy read")
        fault = await self._fault(told, kept, is_done=is_done)
        if fault is None and not is_done:
            new += await self._target.restore(self._into, [self._end])
        return CopyReport(
            self._view.crawl,
            self._into,
            kept.queues,
            kept.tasks,
            new,
            self._view.leased,
            kept.checksum,
            (await self._target.crawl(self._into)).status,
            fault,
        )

    async def _take_in(self) -> int:
        new = tasks = 0
        async for notes in notes_of(self._source, self._view.crawl):
            await write_notes(self._target, self._into, notes)
        async for items in _pages(self._source, self._view.crawl):
            if isinstance(items[-1], SavedEnd):
                self._end = self._as_before(items.pop())
            new += await self._target.restore(self._into, items) if items else 0
            tasks += sum(isinstance(item, SavedTask) for item in items)
            self._progress("copied", tasks, self._view.known)
        return new

    def _as_before(self, end: Saved) -> SavedEnd:
        """A crawl that was paused for this goes on in its copy."""
        assert isinstance(end, SavedEnd)  # noqa: S101 - just asked
        if end.reason != PAUSED_FOR:
            return end
        return msgspec.structs.replace(end, status=CrawlStatus.RUNNING, reason=None)

    async def _summed(self, store: FullStore, crawl: str, part: Part) -> Sum:
        queues = tasks = total = 0
        async for notes in notes_of(store, crawl):
            total += sum(_digest(_values(note)) for note in notes)
        async for items in _pages(store, crawl):
            for item in items:
                total += self._lent.digest(item)
            queues += sum(isinstance(item, SavedQueue) for item in items)
            tasks += sum(isinstance(item, SavedTask) for item in items)
            self._progress(part, tasks, self._view.known)
        return Sum(queues, tasks, f"{total & _SUM_MASK:032x}")

    async def _fault(self, told: Sum, kept: Sum, *, is_done: bool) -> str | None:
        """Why the copy cannot be trusted, and what to do."""
        now = await self._source.crawl(self._view.crawl)
        if now != self._view:
            return (
                f"crawl {self._view.crawl!r} changed while it was copied: pause it and let its "
                "visits end (or say --pause), then copy again; if that is refused, into another "
                "name"
            )
        if told == kept:
            return None
        counts = (
            f"{told.queues} queues and {told.tasks} tasks against {kept.queues} and {kept.tasks}"
        )
        if is_done:
            return (
                f"crawl {self._into!r} is there already, and is another one ({counts}): "
                "copy into another name"
            )
        return (
            f"the copy differs from what was read ({counts}; checksums {told.checksum} and "
            f"{kept.checksum}): it lends nothing; copy into another name or another store"
        )


class _Lent:
    """What is leased at the source, and so reads differently each time."""

    def __init__(self, leases: Iterable[TaskView]) -> None:
        found = list(leases)
        self._tasks = {lease.fingerprint for lease in found}
        self._queues = {lease.key for lease in found}

    @classmethod
    async def of(cls, store: FullStore, view: CrawlView) -> _Lent:
        """All leases of a crawl; without any nothing is searched."""
        if not view.leased or view.status is CrawlStatus.CANCELLED:
            return cls(())
        which, found = TaskFilter(state=TaskState.LEASED), list[TaskView]()
        more: int | None = 0
        while more is not None:
            page = await store.tasks(view.crawl, which, after=more)
            found += page.items
            more = page.after
        return cls(found)

    def digest(self, item: Saved) -> int:
        """One number for an item; the crawl's name and its end are no part of what is copied."""
        if isinstance(item, SavedEnd):
            return 0
        return _digest(self._told(item))

    def _told(self, item: SavedCrawl | SavedQueue | SavedTask) -> Any:
        """Its values, whichever store they come from."""
        match item:
            case SavedTask():
                due = None if item.fingerprint in self._tasks else item.due
                answer = None if item.answer is None else _values(item.answer)
                return _values(msgspec.structs.replace(item, due=due, answer=None)), answer
            case SavedQueue() if item.key in self._queues:
                return item.key, item.turn
            case SavedQueue():
                return _values(item)
            case SavedCrawl():
                return _plain(item.rules), item.created, item.is_told, item.roots, item.settings
            case _:
                assert_never(item)


def _digest(value: Any) -> int:
    return int.from_bytes(blake2b(_encode(value), digest_size=_SUM_BYTES).digest(), "big")


def _plain(value: Any) -> Any:
    """A struct by its fields, a number as a float: a setting of 5 and one of 5.0 are the same."""
    if isinstance(value, msgspec.Struct):
        return [_plain(each) for each in _values(value)]
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return float(value) if isinstance(value, int) else value


async def _pages(store: FullStore, crawl: str) -> AsyncIterator[list[Saved]]:
    after: int | None = 0
    while after is not None:
        page = await store.export(crawl, after=after, limit=PAGE)
        after = page.after
        yield list(page.items)
