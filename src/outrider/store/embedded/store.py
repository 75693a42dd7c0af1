"""The embedded store: heads in memory over one file; nothing acknowledged is lost.

What a verb changed is appended before it is answered. If that fails, or a verb breaks off, memory
is behind or ahead of the file: it is thrown away, and the next verb reads the file anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Self, TypeVar

from outrider.clock import Clock
from outrider.core.policy.rules import CrawlRules
from outrider.errors import Closed, StoreDamaged, StoreError, StoreFull, StoreUnusable
from outrider.store.embedded import snapshot
from outrider.store.embedded.crawl import FileCrawl, decode_rules, encode_rules
from outrider.store.embedded.file import CrawlFile, Row, damaged, look_at
from outrider.store.embedded.group import Group
from outrider.store.embedded.loading import Loader
from outrider.store.embedded.lock import Lock
from outrider.store.heads.crawl import Crawl
from outrider.store.heads.verbs import Verbs

T = TypeVar("T")

SNAPSHOT_AFTER: Final = 400_000  # things told since the last snapshot, so that reopening is quick
SNAPSHOT_AT_CLOSE: Final = 20_000
SLICE_BYTES: Final = 1 << 21  # of a snapshot, at most, after one verb
SLICE_SECONDS: Final = 0.01  # and no piece is begun later than that
PAGES_KEPT: Final = 4096  # read lately, at most,
KEPT_BYTES: Final = 8 << 20  # and no more than this of them


class Shelf:
    """Where crawls read pages: those lately read, those not yet written, and the file."""

    def __init__(self, file: CrawlFile) -> None:
        self.file = file
        self.unwritten: dict[int, bytes] = {}
        self._lately: dict[int, bytes] = {}
        self._size = 0

    def page(self, number: int) -> bytes:
        """A page, checked."""
        data = self._lately.get(number) or self.unwritten.get(number)
        if data is None:
            data = self.file.page(number)
            self._size += len(data)
            if len(self._lately) >= PAGES_KEPT or self._size > KEPT_BYTES:
                self._lately.clear()  # cheaper than to know which was used last
                self._size = len(data)
            self._lately[number] = data
        return data


class EmbeddedStore(Verbs):
    """Store, Admin and Inspect over a file that one process holds."""

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
        try:
            super().__init__(self._file.id, clock)
            self._check_the_end()
        except BaseException:
            self._file.abandon()
            raise
        self._shelf = Shelf(self._file)
        self._group = Group(self._append) if durability == "sync" else None
        self.is_inline = self._group is None
        if self._group is not None:
            self._shelf.unwritten = self._group.unwritten
        self._used: dict[str, FileCrawl] = {}
        self._taking: Iterator[int] | None = None
        self._told = 0  # things since the last snapshot
        self._next_page = 0
        self._is_stale = False
        self._is_closed = False
        self._ends: list[Callable[[], Awaitable[None]]] = []

    def before_close(self, end: Callable[[], Awaitable[None]]) -> None:
        """Something that stands on this store, to be ended first."""
        self._ends.append(end)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        clock: Clock,
        *,
        durability: str = "process",
        vfs: str | None = None,
        process: str = "",
    ) -> Self | None:
        """Open or make the file; None if another process holds it.

        `process` names the one that holds it from now on, as `ClaimRequest.process` does.
        """
        if Path(path).exists():
            look_at(Path(path))
        elif not Path(path).absolute().parent.is_dir():
            raise StoreUnusable(f"{path}: there is no directory {Path(path).parent}; make it first")
        lock = Lock(Path(path))
        if not lock.take():
            return None
        try:
            store = cls(path, clock, lock, durability=durability, vfs=vfs)
            try:
                store._load()
                store._take_back(lock.last_holder(), process)
                lock.sign(process)
            except BaseException:
                store._abandon()
                raise
        except BaseException:
            lock.free()
            raise
        return store

    def _abandon(self) -> None:
        """Let go of the file as it is, after an opening that failed."""
        self._is_closed = True
        if self._group is not None:
            with suppress(StoreError):
                self._group.close()
        self._file.abandon()

    def _check_the_end(self) -> None:
        wanted, found = self._lock.remembered(), self._file.last_page
        if found < wanted:
            what = (
                f"its last page is {found}, but {wanted} was acknowledged: its log is gone or hurt"
            )
            raise StoreDamaged(damaged(self.path, what))

    def _load(self) -> None:
        loader = Loader(self._file, self._make)
        crawls = loader.load()
        self._crawls = {crawl.name: crawl for crawl in crawls}
        self._last = max(self._last, loader.now)
        self._told, self._next_page = loader.events, self._file.last_page + 1
        self._taking, self._is_stale, self._used = None, False, {}

    def _make(self, index: int, name: str, created: int) -> FileCrawl:
        return FileCrawl(
            name, self.id, created, index=index, reader=self._shelf, secret=self._file.secret
        )

    def _take_back(self, last: str | None, process: str) -> None:
        """H4: take back the leases of the process that held the file last, and of no other.

        Where that process is not known (another machine start, a copy of a file), no process can
        come back for its leases, and all are taken back.
        """

        def is_dead(holder: str) -> bool:
            return not holder or last is None or last == _process_in(holder) != process

        now = self._now()
        for name in self._crawls:
            crawl = self._crawl(name)
            assert isinstance(crawl, FileCrawl)  # noqa: S101
            crawl.abandon(now, is_dead)
        if rows := self._gathered():
            self._append(rows)
            self._written(rows)

    # ---- what Verbs asks for

    def _new_crawl(self, name: str) -> Crawl:
        return self._make(len(self._crawls), name, self._now())

    def _crawl(self, name: str) -> Crawl:
        crawl = self._used[name] = super()._crawl(name)  # type: ignore[assignment]
        return crawl

    def _configure(self, name: str, rules: CrawlRules, settings: str) -> bool:
        """Rules are compared as they are kept: a cost function is not."""
        return super()._configure(name, decode_rules(encode_rules(rules)), settings)

    async def _run(self, work: Callable[[], T]) -> T:
        """Do it, append what it changed, answer; all of it or nothing."""
        self._ready()
        try:
            result = work()
            rows = self._gathered()
            if rows and self._group is None:
                self._append(rows)
            if rows:
                self._written(rows)
            self._file.rest()
        except BaseException:
            self._is_stale = True
            with suppress(StoreError):
                self._file.rest()
            raise
        if self._group is not None and (rows or self._group.unwritten):
            await self._synced(self._group, rows)  # also if it only rests on what others wrote
        if self._taking is not None or self._told > SNAPSHOT_AFTER:
            self._go_on()
        return result

    async def _synced(self, group: Group, rows: list[Row]) -> None:
        try:
            await group.hand_in(rows)
        except StoreError:
            self._is_stale = True
            raise

    def _ready(self) -> None:
        if self._is_closed:
            raise Closed(f"{self.path} was closed")
        if self._is_stale:
            self._read_anew()

    def _read_anew(self) -> None:
        """Memory is what the file says; leases of this process live on, and who works here."""
        if not self._file.is_writable():
            raise StoreFull(f"{self.path}: still cannot be written; make room on its disk")
        until = {
            (name, number): record.deadline
            for name, crawl in self._crawls.items()
            for number, record in crawl.leases.items()
        }
        workers = {name: crawl.workers for name, crawl in self._crawls.items()}
        if self._group is not None:
            self._group.heal()
        self._load()
        for name, loaded in self._crawls.items():
            loaded.workers = workers.get(name, loaded.workers)
        for (name, number), deadline in until.items():
            crawl = self._crawls.get(name)
            if crawl is not None and number in crawl.leases:
                crawl.lasts(crawl.leases[number], deadline)

    # ---- writing

    def _gathered(self) -> list[Row]:
        rows: list[Row] = []
        for crawl in self._used.values():
            rows += crawl.gathered(self._next_page + len(rows), self._last)
        return rows

    def _append(self, rows: list[Row]) -> None:
        self._file.append(rows)
        self._lock.remember(rows[-1][0])

    def _written(self, rows: list[Row]) -> None:
        for crawl in self._used.values():
            self._told += crawl.written()
        self._next_page = rows[-1][0] + 1
        self._used = {}

    def _go_on(self) -> None:
        """Some more pieces of a snapshot; one that fails is begun again later."""
        if self._taking is None:
            self._taking, self._told = self._take_snapshot(), 0
        moved, until = 0, time.perf_counter() + SLICE_SECONDS
        try:
            while self._taking is not None and moved < SLICE_BYTES and time.perf_counter() < until:
                size = next(self._taking, None)
                if size is None:
                    self._taking = None
                else:
                    moved += size
        except StoreError:
            self._taking = None

    def _take_snapshot(self) -> Iterator[int]:
        crawls = [crawl for crawl in self._crawls.values() if isinstance(crawl, FileCrawl)]
        return snapshot.take(self._file, crawls, self._last, lambda: self._next_page - 1)

    async def close(self) -> None:
        """Let go of the file; what a next opening would have to read again is made short."""
        if self._is_closed:
            return
        for end in self._ends:
            await end()
        self._is_closed = True
        try:
            if self._group is not None:
                self._group.close()
            if not self._is_stale:
                self._leave_in_order()
            self._lock.sign("")
        finally:
            self._file.close()
            self._lock.free()

    def _leave_in_order(self) -> None:
        while self._taking is not None:
            self._go_on()
        if self._told > SNAPSHOT_AT_CLOSE:
            self._go_on()
            while self._taking is not None:
                self._go_on()


def _process_in(holder: str) -> str:
    """The process of a lease's holder: what stands before the number of its connection."""
    return holder.partition("/")[0]
