"""Copying a crawl from one store to another: page by page, resumable, and verified.

Both sides are read again and compared before the copy may run: until then it leases no tasks. The
checksum does not depend on the order of items. A leased task is exported as released at the moment
it is read, so its due time, and what depends on it, is left out of the checksum; and so are samples
of the crawl's progress, which workers that wait at the source still take.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias, assert_never

import msgspec

from outrider.core.states import CrawlStatus, TaskState
from outrider.errors import InvalidInput
from outrider.frontier.export import EarlyValues, shared_values
from outrider.frontier.shared_state import PROGRESS
from outrider.store.export_items import (
    RESTORING,
    Saved,
    SavedCrawl,
    SavedEnd,
    SavedQueue,
    SavedTask,
)
from outrider.store.protocol import CrawlView, FullStore, TaskFilter, TaskView

PAGE: Final = 500  # items per page: with all they may carry, far below what a connection takes
PAUSED_FOR: Final = "copy"  # the reason of a pause that the copy does not keep
_SUM_BYTES: Final = 16
_SUM_MASK: Final = (1 << 8 * _SUM_BYTES) - 1

Part: TypeAlias = Literal["copied", "source read", "copy read"]
Progress: TypeAlias = Callable[[Part, int, int], None]  # given: part, tasks done, all tasks

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_values = msgspec.structs.astuple


class Summary(msgspec.Struct, frozen=True):
    """What one side holds: counts, and a checksum that does not depend on the order."""

    queues: int = 0
    tasks: int = 0
    checksum: str = ""


class CopyReport(msgspec.Struct, frozen=True):
    """The result of copying one crawl; `fault` is None if both sides hold the same."""

    crawl: str
    into: str
    queues: int
    tasks: int
    new: int  # items that were not there yet
    leased: int  # tasks that were leased, and were exported as released
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
    """Copy a crawl; with `pause` the source is paused first, and the copy is not.

    After a failure, call it again: items that are there already are not changed.
    """
    into = into or crawl
    await _check(source, target, crawl, into)
    if pause:
        await source.set_status(crawl, CrawlStatus.PAUSED, PAUSED_FOR)
    view = await source.crawl(crawl)
    leased = await _LeasedItems.of(source, view)
    return await _Copy(source, target, view, into, leased, progress).run()


async def _check(source: FullStore, target: FullStore, crawl: str, into: str) -> None:
    if source.id == target.id and crawl == into:
        raise InvalidInput(f"crawl {crawl!r} would be copied onto itself: name another store")
    names = await source.crawls()
    if crawl not in names:
        there = ", ".join(names[:10]) or "none"
        raise InvalidInput(f"no crawl {crawl!r} to copy: there is {there}")
    if (await source.crawl(crawl)).reason == RESTORING:
        raise InvalidInput(f"crawl {crawl!r} is half restored itself: restore it first")


class _Copy:
    """One run of copying a crawl."""

    def __init__(
        self,
        source: FullStore,
        target: FullStore,
        view: CrawlView,
        into: str,
        leased: _LeasedItems,
        progress: Progress,
    ) -> None:
        self._source = source
        self._target = target
        self._view = view
        self._into = into
        self._leased = leased
        self._progress = progress
        self._end = SavedEnd()

    async def run(self) -> CopyReport:
        """Copy what is not there, compare both sides, and only then let the copy run."""
        there = await self._target.crawl(self._into)
        is_done = there.known > 0 and there.reason != RESTORING
        new = 0 if is_done else await self._copy_items()
        source = await self._summarise(self._source, self._view.crawl, "source read")
        copy = await self._summarise(self._target, self._into, "copy read")
        fault = await self._fault(source, copy, is_done=is_done)
        if fault is None and not is_done:
            new += await self._target.restore(self._into, [self._end])
        return CopyReport(
            self._view.crawl,
            self._into,
            copy.queues,
            copy.tasks,
            new,
            self._view.leased,
            copy.checksum,
            (await self._target.crawl(self._into)).status,
            fault,
        )

    async def _copy_items(self) -> int:
        new = tasks = 0
        values, target, into = EarlyValues(), self._target, self._into
        async for some in shared_values(self._source, self._view.crawl):
            await values.write(target, into, some, has_crawl=False)
        async for items in _pages(self._source, self._view.crawl):
            if isinstance(items[-1], SavedEnd):
                self._end = self._end_of_copy(items.pop())
            new += await target.restore(into, items) if items else 0
            await values.write(target, into, (), has_crawl=True)
            tasks += sum(isinstance(item, SavedTask) for item in items)
            self._progress("copied", tasks, self._view.known)
        return new

    def _end_of_copy(self, end: Saved) -> SavedEnd:
        """Return the end of the copy: a crawl that was paused to be copied runs there."""
        assert isinstance(end, SavedEnd)  # noqa: S101 - checked by the caller
        if end.reason != PAUSED_FOR:
            return end
        return msgspec.structs.replace(end, status=CrawlStatus.RUNNING, reason=None)

    async def _summarise(self, store: FullStore, crawl: str, part: Part) -> Summary:
        queues = tasks = total = 0
        async for values in shared_values(store, crawl):
            total += sum(_digest(_values(one)) for one in values if one.topic != PROGRESS)
        async for items in _pages(store, crawl):
            for item in items:
                total += self._leased.digest(item)
            queues += sum(isinstance(item, SavedQueue) for item in items)
            tasks += sum(isinstance(item, SavedTask) for item in items)
            self._progress(part, tasks, self._view.known)
        return Summary(queues, tasks, f"{total & _SUM_MASK:032x}")

    async def _fault(self, source: Summary, copy: Summary, *, is_done: bool) -> str | None:
        """Return why the copy is not valid, and what to do; None: it is."""
        now = await self._source.crawl(self._view.crawl)
        if now != self._view:
            return (
                f"crawl {self._view.crawl!r} changed while it was copied: pause it and wait until "
                "its visits end (or use --pause), then copy again; if that is refused, copy into "
                "another name"
            )
        if source == copy:
            return None
        counts = (
            f"{source.queues} queues and {source.tasks} tasks against "
            f"{copy.queues} and {copy.tasks}"
        )
        if is_done:
            return (
                f"crawl {self._into!r} exists already and differs ({counts}): "
                "copy into another name"
            )
        return (
            f"the copy differs from its source ({counts}; checksums {source.checksum} and "
            f"{copy.checksum}): it leases no tasks; copy into another name or another store"
        )


class _LeasedItems:
    """Leased tasks of the source and their queues: they are exported differently each time."""

    def __init__(self, leases: Iterable[TaskView]) -> None:
        found = list(leases)
        self._tasks = {lease.fingerprint for lease in found}
        self._queues = {lease.key for lease in found}

    @classmethod
    async def of(cls, store: FullStore, view: CrawlView) -> _LeasedItems:
        """Read all leased tasks of a crawl, if it has any."""
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
        """Return one number for an item; 0 for the end, which is not compared."""
        if isinstance(item, SavedEnd):
            return 0
        return _digest(self._compared(item))

    def _compared(self, item: SavedCrawl | SavedQueue | SavedTask) -> Any:
        """Return the values that are the same in every store."""
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
    """Return a struct as its fields and a number as a float: settings 5 and 5.0 are the same."""
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
