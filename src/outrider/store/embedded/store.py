"""The embedded store: engines in memory over one file; nothing acknowledged is lost.

What a verb changed is appended before it returns. If that fails, or a verb breaks off, memory and
file differ: memory is discarded, and the next verb reads the file again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self, final

from outrider.clock import Clock
from outrider.core.policy.rules import CrawlRules
from outrider.errors import Closed, InvalidInput, StoreDamaged, StoreError, StoreFull, StoreUnusable
from outrider.store.embedded import snapshot
from outrider.store.embedded.crawl import FileCrawl, decode_rules, encode_rules
from outrider.store.embedded.deletion import (
    Removed,
    RemovedCrawl,
    read_removed,
    remove_some,
    write_removed,
)
from outrider.store.embedded.file import CrawlFile, FileReader, Row, check_file, damaged
from outrider.store.embedded.group_commit import GroupCommit
from outrider.store.embedded.loader import FileLoader, removed_crawl
from outrider.store.embedded.lock import Lock
from outrider.store.engine.engine import CrawlEngine
from outrider.store.engine.verbs import EngineVerbs
from outrider.store.forwarding import ForwardingStore
from outrider.store.health import Purpose
from outrider.store.protocol import NO_PROCESS, Notifies, Step
from outrider.store.subscriptions import SILENT_VERBS, Subscriptions

SNAPSHOT_AFTER: Final = 400_000  # items written since the last snapshot, so reopening is quick
SNAPSHOT_AT_CLOSE: Final = 20_000
SLICE_BYTES: Final = 1 << 21  # of a snapshot, at most, after one verb
SLICE_SECONDS: Final = 0.01  # after which no further piece is begun
MAX_CACHED_PAGES: Final = 4096
MAX_CACHED_BYTES: Final = 8 << 20


@final
class PageCache:
    """Reads pages: recently read ones, those not yet written, and the file."""

    __slots__ = ("_reader", "_recent", "_size", "unwritten")

    def __init__(self, reader: FileReader, unwritten: dict[int, bytes] | None = None) -> None:
        self._reader = reader
        self.unwritten = {} if unwritten is None else unwritten
        self._recent: dict[int, bytes] = {}
        self._size = 0

    def page(self, number: int) -> bytes:
        """Return a page, its checksum verified."""
        data = self._recent.get(number) or self.unwritten.get(number)
        if data is None:
            data = self._reader.page(number)
            self._size += len(data)
            if len(self._recent) >= MAX_CACHED_PAGES or self._size > MAX_CACHED_BYTES:
                self._recent.clear()  # cheaper than to track which was used last
                self._size = len(data)
            self._recent[number] = data
        return data


@final
class FileCrawls:
    """See `port.Crawls`. A verb may have changed the crawls it opened: these are in `used`."""

    __slots__ = (
        "_clock",
        "_file",
        "_reader",
        "by_name",
        "has_removed",
        "last_now",
        "removed",
        "used",
    )

    def __init__(self, file: CrawlFile, reader: PageCache, clock: Clock) -> None:
        self._file, self._reader, self._clock = file, reader, clock
        self.by_name: dict[str, FileCrawl] = {}
        self.used: dict[str, FileCrawl] = {}
        self.last_now = 0
        self.removed = read_removed(file.reader)
        self.has_removed = False  # a crawl since the current snapshot was begun

    def now(self) -> int:
        """See `port.Crawls`."""
        self.last_now = max(self.last_now, self._clock.now_ms())
        return self.last_now

    def make(self, index: int, name: str, created: int) -> FileCrawl:
        """Return a new crawl."""
        file = self._file
        return FileCrawl(
            name, file.id, created, index=index, reader=self._reader, secret=file.secret
        )

    def open(self, name: str) -> CrawlEngine:
        """See `port.Crawls`."""
        crawl = self.by_name.get(name)
        if crawl is None:
            crawl = self.by_name[name] = self.make(self._next_index(), name, self.now())
            crawl.state.last_token = self.removed.last_token  # no lease of a removed crawl fits
        if not crawl.is_removed:
            self.used[name] = crawl
        return crawl.engine

    def _next_index(self) -> int:
        return max((crawl.index for crawl in self.by_name.values()), default=-1) + 1

    def existing(self, name: str) -> CrawlEngine | None:
        """See `port.Crawls`."""
        return self.open(name) if name in self.by_name else None

    def exists(self, name: str) -> bool:
        """See `port.Crawls`."""
        return name in self.by_name

    def reading(self, name: str, *, totals: bool = False) -> CrawlEngine:  # noqa: ARG002 - always complete
        """See `port.Crawls`."""
        crawl = self.by_name.get(name) or self.make(self._next_index(), name, self.now())
        return crawl.engine

    def names(self) -> list[str]:
        """See `port.Crawls`."""
        return list(self.by_name)

    def delete(self, name: str, limit: int) -> Step:
        """See `port.Crawls`: an empty crawl takes its place until its pages are replaced."""
        crawl = self.by_name[name]
        if not crawl.is_removed:
            return self._begin_removal(crawl)
        (removed,) = (one for one in self.removed.crawls if one.index == crawl.index)
        left = remove_some(self._file, removed, limit)
        if left is None and self._reader.unwritten:  # the last of its pages may be among them
            left = removed
        others = tuple(one for one in self.removed.crawls if one is not removed)
        crawls = others if left is None else (*others, left)
        self._set_removed(Removed(crawls, self.removed.last_token))
        if left is None:
            del self.by_name[name]
            self._file.checkpoint_soon()
        return Step(0, None if left is None else 1)

    def _begin_removal(self, crawl: FileCrawl) -> Step:
        state, known = crawl.state, crawl.state.known
        removed = RemovedCrawl(crawl.index, crawl.name, state.created)
        last_token = max(self.removed.last_token, state.last_token)
        self._set_removed(Removed((*self.removed.crawls, removed), last_token))
        self.by_name[crawl.name] = removed_crawl(self.make, removed)
        self.used.pop(crawl.name, None)
        self.has_removed = True
        return Step(known, 1)

    def _set_removed(self, removed: Removed) -> None:
        write_removed(self._file, removed)
        self.removed = removed

    def expiring(self) -> Iterable[CrawlEngine]:
        """See `port.Crawls`."""
        return [self.open(name) for name in self.by_name]

    def as_stored(self, rules: CrawlRules) -> CrawlRules:
        """See `port.Crawls`: a cost function is not stored."""
        return decode_rules(encode_rules(rules))


class EmbeddedStore(ForwardingStore):
    """`Store`, `Admin` and `Inspect` over a file that one process holds."""

    notifies: Notifies = "always"

    def __init__(
        self,
        path: str | os.PathLike[str],
        clock: Clock,
        lock: Lock,
        *,
        durability: str,
        vfs: str | None,
    ) -> None:
        self.path = Path(path)
        self._lock = lock
        self._file = CrawlFile(self.path, is_synced=durability == "sync", vfs=vfs)
        self.id = self._file.id
        try:
            self._check_last_page()
        except BaseException:
            self._file.abandon()
            raise
        self._group = GroupCommit(self._append) if durability == "sync" else None
        self.is_inline = self._group is None
        unwritten = None if self._group is None else self._group.unwritten
        self._crawls = FileCrawls(self._file, PageCache(self._file.reader, unwritten), clock)
        self._verbs = EngineVerbs(self._crawls)
        self._snapshot: Iterator[int] | None = None  # under way
        self._new_items = 0  # written since the last snapshot
        self._next_page = 0
        self._is_stale = False
        self._is_closed = False
        self._subscriptions = Subscriptions()
        self._before_close: list[Callable[[], Awaitable[None]]] = []

    def before_close(self, end: Callable[[], Awaitable[None]]) -> None:
        """Register what uses this store and must end before it is closed."""
        self._before_close.append(end)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        clock: Clock,
        *,
        durability: str = "process",
        vfs: str | None = None,
        process: str = "",
        purpose: Purpose = "",
    ) -> Self | None:
        """Open or create the file; None if another process holds it.

        `process` names the one that holds it from now on, as `ClaimRequest.process` does, and
        `purpose` says what for.
        """
        if Path(path).exists():
            check_file(Path(path))
        elif not Path(path).absolute().parent.is_dir():
            raise StoreUnusable(f"{path}: there is no directory {Path(path).parent}; make it first")
        lock = Lock(Path(path))
        if not lock.take():
            return None
        lock.declare(purpose)  # before the file is read, which takes seconds if it is large
        try:
            store = cls(path, clock, lock, durability=durability, vfs=vfs)
            try:
                store._load()
                store._expire_dead(lock.last_holder(), process)
                lock.sign(process)
            except BaseException:
                store._abandon()
                raise
        except BaseException:
            lock.free()
            raise
        return store

    def _abandon(self) -> None:
        """Release the file as it is, after a failed opening."""
        self._is_closed = True
        if self._group is not None:
            with suppress(StoreError):
                self._group.close()
        self._file.abandon()

    def _check_last_page(self) -> None:
        wanted, found = self._lock.remembered(), self._file.last_page
        if found < wanted:
            what = f"its last page is {found}, but {wanted} was acknowledged"
            what = f"{what}: its log is missing or damaged"
            raise StoreDamaged(damaged(self.path, what))

    def _load(self) -> None:
        loader, crawls = FileLoader(self._file.reader, self._crawls.make), self._crawls
        crawls.removed = read_removed(self._file.reader)
        crawls.by_name = {crawl.name: crawl for crawl in loader.load()}
        crawls.used = {}
        crawls.last_now = max(crawls.last_now, loader.now)
        self._new_items, self._next_page = loader.items, self._file.last_page + 1
        self._snapshot, self._is_stale = None, False

    def _expire_dead(self, last: str | None, process: str) -> None:
        """H4: expire the leases of the process that held the file last, and of no other.

        Where that process is not known (another machine start, a copy of a file), no process can
        come back for its leases, and all expire.
        """

        def is_dead(holder: str) -> bool:
            return not holder or last is None or last == _process_in(holder) != process

        now = self._crawls.now()
        for name, crawl in self._crawls.by_name.items():
            if not crawl.is_removed:
                self._crawls.used[name] = crawl
            crawl.expire_dead(now, is_dead)
        rows = self._build_pages()
        if rows:
            self._append(rows)
        self._mark_written(rows)

    # ---- verbs

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """See `protocol.FullStore`."""
        return self._subscriptions.subscribe(crawl, notify)

    def _take_news(self, verb: str) -> list[str]:
        """Return the crawls whose subscribers are notified once the verb is durable (C6)."""
        crawls, by_claim = self._crawls.by_name, verb == "claim"
        names = [name for name in self._subscriptions.by_crawl if name in crawls]
        return [name for name in names if crawls[name].engine.take_news(by_claim=by_claim)]

    async def _forward(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Run a verb, append what it changed, return its answer; all of it or nothing."""
        self._check_usable()
        try:
            result = getattr(self._verbs, verb)(*args, **kwargs)
            rows = self._build_pages()
            if rows and self._group is None:
                self._append(rows)
            self._mark_written(rows)
            self._file.reader.end_transaction()
        except BaseException as error:
            # A verb refuses invalid input before it opens a crawl, or at least before it changes
            # one: memory is discarded only in the second case, for it may have created a crawl.
            self._is_stale = bool(self._crawls.used) or not isinstance(error, InvalidInput)
            with suppress(StoreError):
                self._file.reader.end_transaction()
            raise
        hears = self._subscriptions.by_crawl and verb not in SILENT_VERBS
        news = self._take_news(verb) if hears else ()
        if self._group is not None and (rows or self._group.unwritten):
            await self._wait_for_disk(self._group, rows)  # also for pages of verbs it depends on
        if news:
            self._subscriptions.ring(news)
        if self._snapshot is not None or self._new_items > SNAPSHOT_AFTER:
            self._continue_snapshot()
        return result

    async def _wait_for_disk(self, group: GroupCommit, rows: list[Row]) -> None:
        try:
            await group.submit(rows)
        except StoreError:
            self._is_stale = True
            raise

    def _check_usable(self) -> None:
        if self._is_closed:
            raise Closed(f"{self.path} was closed")
        if self._is_stale:
            self._reload()

    def _reload(self) -> None:
        """Read the file again; workers, and deadlines that the file does not have, are kept."""
        if not self._file.is_writable():
            raise StoreFull(f"{self.path}: still cannot be written; make room on its disk")
        old = self._crawls.by_name
        if self._group is not None:
            self._group.clear_error()
        self._load()
        for name, crawl in self._crawls.by_name.items():
            if name in old:
                _keep_workers_and_deadlines(old[name], crawl)

    # ---- writing

    def _build_pages(self) -> list[Row]:
        rows: list[Row] = []
        for crawl in self._crawls.used.values():
            rows += crawl.build_pages(self._next_page + len(rows), self._crawls.last_now)
        return rows

    def _append(self, rows: list[Row]) -> None:
        self._file.append(rows)
        self._lock.remember(rows[-1].number)

    def _mark_written(self, rows: list[Row]) -> None:
        if rows:
            for crawl in self._crawls.used.values():
                self._new_items += crawl.mark_written()
            self._next_page = rows[-1].number + 1
        self._crawls.used.clear()

    # ---- snapshots

    def _continue_snapshot(self) -> None:
        """Write some more pieces of a snapshot; one that fails is begun again later."""
        if self._crawls.has_removed:  # the snapshot under way has parts of it
            self._snapshot, self._crawls.has_removed = None, False
        if self._snapshot is None:
            self._snapshot, self._new_items = self._begin_snapshot(), 0
        moved, until = 0, time.perf_counter() + SLICE_SECONDS
        try:
            while (
                self._snapshot is not None and moved < SLICE_BYTES and time.perf_counter() < until
            ):
                size = next(self._snapshot, None)
                if size is None:
                    self._snapshot = None
                else:
                    moved += size
        except StoreError:
            self._snapshot = None

    def _begin_snapshot(self) -> Iterator[int]:
        crawls = [crawl for crawl in self._crawls.by_name.values() if not crawl.is_removed]
        now = self._crawls.last_now
        return snapshot.take(self._file, crawls, now, lambda: self._next_page - 1)

    async def close(self) -> None:
        """See `protocol.FullStore`: a snapshot shortens the next opening."""
        if self._is_closed:
            return
        for end in self._before_close:
            await end()
        self._is_closed = True
        self._subscriptions.clear()
        try:
            if self._group is not None:
                self._group.close()
            if not self._is_stale:
                self._finish_snapshots()
            self._lock.sign("")
        finally:
            self._file.close()
            self._lock.free()

    def _finish_snapshots(self) -> None:
        while self._snapshot is not None:
            self._continue_snapshot()
        if self._new_items > SNAPSHOT_AT_CLOSE:
            self._continue_snapshot()
            while self._snapshot is not None:
                self._continue_snapshot()


def _keep_workers_and_deadlines(old: FileCrawl, new: FileCrawl) -> None:
    new.journal.adopt_workers(old.journal)
    for number, record in old.leases.held.items():
        found = new.leases.held.get(number)
        if found is not None and found.process != NO_PROCESS:
            new.leases.set_deadline(found, record.deadline)


def _process_in(holder: str) -> str:
    """Return the process of a lease's holder: what precedes the number of its connection."""
    return holder.partition("/")[0]
