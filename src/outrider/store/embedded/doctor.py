"""Examination of a file: what is intact and what is not; only reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import apsw
import msgspec

from outrider.clock import Clock
from outrider.errors import StoreDamaged, StoreError
from outrider.store.embedded import log_pages
from outrider.store.embedded.crawl import FileCrawl
from outrider.store.embedded.file import PIECE_BITS
from outrider.store.embedded.loader import FileLoader
from outrider.store.embedded.lock import holder_of, remembered_beside
from outrider.store.embedded.read_only_file import (
    ReadOnlyFile,
    find_fault,
    format_of,
    is_piece,
    read_file,
)
from outrider.store.embedded.salvage import CrawlIndex, Inventory, Snapshot, build_index
from outrider.store.embedded.snapshot import (
    CrawlPiece,
    Piece,
    SnapshotMark,
    SpanPiece,
    current_snapshot,
    decode_piece,
)
from outrider.store.embedded.store import PageCache
from outrider.store.engine.views import crawl_view
from outrider.store.health import CrawlHealth, Diagnosis, Finding, PageHealth, State, Tell
from outrider.store.protocol import STORE_VALUES, SharedValue

# Receives a crawl's name, its settings as text, and its shared values.
SeeSettings: TypeAlias = Callable[[str, str, Sequence[SharedValue]], object]

LARGE_FILE: Final = 256 << 20  # bytes; above, SQLite does not compare indexes with tables
CHECK_TIMEOUT: Final = 30.0  # seconds for SQLite's own check
HELD_CHECK_TIMEOUT: Final = 5.0  # the same beside a holder, whose log only grows meanwhile
PROGRESS: Final = 20_000  # steps of SQLite between two readings of the clock
_HIDDEN: Final = (
    "{:,} intact pages at its end are not seen by SQLite: they were never acknowledged, or the "
    "log is damaged before them, and --rescue has more than the file"
)
_META: Final = ("id", "secret", "snapshot", "removed")


def examine(
    path: Path,
    clock: Clock,
    tell: Tell = lambda _: None,
    see_settings: SeeSettings = lambda *_: None,
) -> Diagnosis:
    """Examine a file; raises `StoreUnusable` if it is not one of Outrider, or cannot be read."""

    def examine_all(file: ReadOnlyFile) -> Diagnosis:
        examination = Examination(path, file, clock, tell)
        found = examination.all()
        for crawl in examination.loaded():
            see_settings(crawl.name, crawl.state.settings, crawl.journal.values.since(0))
        return found

    wrong = find_fault(path)
    if wrong is not None:
        return Examination(path, None, clock, tell).all(wrong)
    try:
        return read_file(path, examine_all)
    except StoreDamaged as error:
        return Examination(path, None, clock, tell).all(f"SQLite cannot open it: {error}")


class Examination:
    """One examination of a file; without a `ReadOnlyFile`, of what can be carved out of it."""

    def __init__(self, path: Path, file: ReadOnlyFile | None, clock: Clock, tell: Tell) -> None:
        self.path, self._file, self._clock, self._tell = path, file, clock, tell
        self._holder = file.holder if file else holder_of(path)
        self._wanted = remembered_beside(path)
        self._head = _first_bytes(path)
        self._findings: list[Finding] = []
        self._loaded: list[FileCrawl] | None = None
        self.snapshot = Snapshot()

    def all(self, wrong: str = "") -> Diagnosis:
        """Examine everything, from the outside in."""
        self._add(
            "file", "damaged" if wrong else "ok", wrong or f"of Outrider, format {self._format}"
        )
        if self._holder is not None:
            self._add("held", "note", f"by {self._holder.name}; examined while it holds it")
        self._check_size()
        if self._file is not None:
            self._check_sqlite(self._file)
            self._check_meta(self._file)
        inventory = self.inventory()
        try:
            self._check_pages(inventory)
            self._check_lock(inventory)
            if self._file is not None:
                self._check_rest(self._file)
            return self._diagnosis(inventory)
        finally:
            inventory.close()

    def inventory(self, *, with_hidden: bool = False) -> Inventory:
        """Return its pages, each read and checked."""
        return Inventory(
            self.path,
            self._file,
            wanted=self._wanted,
            with_hidden=with_hidden,
            tell=lambda number: self._tell(f"page {number:,}"),
        )

    def _add(self, what: str, state: State, detail: str) -> None:
        self._findings.append(Finding(what, state, detail))

    @property
    def _format(self) -> int:
        return format_of(self._head)

    # ---- the outside

    def _check_size(self) -> None:
        size, log = self.path.stat().st_size, _log_size(self.path)
        width = int.from_bytes(self._head[16:18], "big")
        wanted = int.from_bytes(self._head[28:32], "big") * (65_536 if width == 1 else width)
        is_told = self._head[24:28] == self._head[92:96]
        if size < wanted and is_told and not log:
            self._add("size", "damaged", f"cut short: {size:,} of {wanted:,} bytes")
        else:
            self._add("size", "ok", f"{size:,} bytes, and {log:,} in its log")

    def _check_lock(self, inventory: Inventory) -> None:
        last = inventory.intact.rfind(1)
        if not self._wanted:
            self._add(
                "lock", "note", "no acknowledged page is remembered since the machine started"
            )
        elif last < self._wanted:
            what = (
                f"page {self._wanted:,} was acknowledged, and the last one here is {max(last, 0):,}"
            )
            self._add("lock", "damaged", f"{what}: its log ({self.path}-wal) is missing or damaged")
        else:
            self._add("lock", "ok", f"page {self._wanted:,} was acknowledged, and is here")

    # ---- SQLite

    def _check_sqlite(self, file: ReadOnlyFile) -> None:
        check = "quick_check" if self.path.stat().st_size > LARGE_FILE else "integrity_check"
        seconds = HELD_CHECK_TIMEOUT if file.holder else CHECK_TIMEOUT
        self._tell(f"SQLite's {check}")
        deadline = self._clock.now_ms() + seconds * 1000
        file.connection.set_progress_handler(lambda: self._clock.now_ms() > deadline, PROGRESS)
        try:
            wrong = [row[0] for row in file.connection.execute(f"PRAGMA {check}(10)")]
        except apsw.InterruptError:
            self._add(
                "sqlite", "note", f"{check} found nothing in {seconds:g} s, and was ended then"
            )
            return
        except apsw.Error as error:
            wrong = [str(error)]
        finally:
            file.connection.set_progress_handler(None)
        is_well = wrong == ["ok"]
        self._add(
            "sqlite",
            "ok" if is_well else "damaged",
            f"{check}: " + "; ".join(wrong).replace("\n", " "),
        )

    def _check_meta(self, file: ReadOnlyFile) -> None:
        wrong = [text for name in _META if (text := _wrong_with(file, name))]
        self._add(
            "meta", "damaged" if wrong else "ok", "; ".join(wrong) or "id, secret and snapshot"
        )

    # ---- pages and snapshot

    def _check_pages(self, inventory: Inventory) -> None:
        if inventory.hidden:
            self._add("log", "note", _HIDDEN.format(inventory.hidden))
        if not (inventory.lost or inventory.broken or inventory.bad_rows):
            self._add("pages", "ok", f"{inventory.last:,}, none missing, every checksum right")
            return
        found = f"{inventory.last - inventory.lost:,} of {inventory.last:,} are intact"
        named = ", ".join(map(str, inventory.first_lost()[:10]))
        lost = f"; lost: {named}" + (", …" if inventory.lost > 10 else "") if named else ""
        broken = f"; SQLite's tree is broken: {inventory.broken}" if inventory.broken else ""
        self._add("pages", "damaged", found + lost + broken)

    def _check_rest(self, file: ReadOnlyFile) -> None:
        try:
            with file.transaction():
                self.check_snapshot(file)
                self._check_load(file)
        except StoreError as error:
            self._add("load", "damaged", self._plain(error))

    def check_snapshot(self, file: ReadOnlyFile) -> None:
        """Check every piece of the current snapshot."""
        self._tell("the snapshot")
        try:
            mark = current_snapshot(file.reader)
            whole = self._read_pieces(file, mark)
        except (StoreError, msgspec.MsgspecError) as error:
            self._add("snapshot", "damaged", self._plain(error))
            return
        if not mark.snapshot:
            self._add("snapshot", "ok", "none was taken yet")
            return
        self.snapshot = self.snapshot._replace(is_whole=whole == mark.pieces)
        text = (
            f"{whole:,} of {mark.pieces:,} pieces are intact; the tail begins at {mark.page + 1:,}"
        )
        self._add("snapshot", "ok" if whole == mark.pieces else "damaged", text)

    def _read_pieces(self, file: ReadOnlyFile, mark: SnapshotMark) -> int:
        """Return how many pieces are intact; keeps updates and spans."""
        self.snapshot, count = Snapshot(mark.page, [], []), 0
        for piece in _pieces(file, mark):
            count += 1
            if isinstance(piece, CrawlPiece):
                self.snapshot.updates.append((piece.crawl, piece.update))
            elif isinstance(piece, SpanPiece):
                self.snapshot.spans.append(piece)
        return count

    def _check_load(self, file: ReadOnlyFile) -> None:
        self._tell("loading it, in memory only")
        try:
            reader, pages = file.reader, PageCache(file.reader)
            store, secret = reader.required_meta("id").decode(), reader.required_meta("secret")
            make = lambda index, name, created: FileCrawl(  # noqa: E731
                name, store, created, index=index, reader=pages, secret=secret
            )
            self._loaded = FileLoader(reader, make).load()
            crawls = [crawl for crawl in self._loaded if crawl.name != STORE_VALUES]
            tasks = sum(crawl.state.last_task for crawl in crawls)
            self._add("load", "ok", f"{len(crawls):,} crawls, {tasks:,} tasks")
        except Exception as error:  # noqa: BLE001 - whatever a damaged file makes of a reader
            self._add("load", "damaged", f"it cannot be opened: {self._plain(error)}")

    def loaded(self) -> list[FileCrawl]:
        """Return its crawls as they were loaded; none if that failed."""
        return [crawl for crawl in self._loaded or () if crawl.name != STORE_VALUES]

    def _plain(self, error: Exception) -> str:
        """Return an error without the advice to run the doctor."""
        text = (
            str(error)
            .removeprefix(f"{self.path} is damaged: ")
            .partition("; see what is intact")[0]
        )
        return text or type(error).__name__

    # ---- what follows

    def _diagnosis(self, inventory: Inventory) -> Diagnosis:
        is_healthy = not any(finding.state == "damaged" for finding in self._findings)
        intact = inventory.last - inventory.lost
        return Diagnosis(
            file=str(self.path),
            is_healthy=is_healthy,
            format=self._format,
            size=self.path.stat().st_size,
            log_size=_log_size(self.path),
            holder=self._holder,
            findings=self._findings,
            pages=PageHealth(inventory.last, intact, inventory.lost, inventory.first_lost()),
            crawls=[intact_health(crawl) for crawl in self.loaded()]
            if is_healthy
            else self._surveyed(inventory),
            next=list(self._advice(inventory, is_healthy=is_healthy)),
        )

    def _surveyed(self, inventory: Inventory) -> list[CrawlHealth]:
        self._tell("the last word on every task")
        found = build_index(inventory, self.snapshot, lambda *_: None)
        loaded = {crawl.index: crawl for crawl in self._loaded or ()}
        return [
            health_of(index, crawl, self.snapshot, inventory, loaded.get(index))
            for index, crawl in found.items()
            if crawl.name != STORE_VALUES
        ]

    def _advice(self, inventory: Inventory, *, is_healthy: bool) -> Iterator[str]:
        if is_healthy:
            yield "nothing is wrong"
            return
        if self._holder is not None:
            yield (
                f"end {self._holder.name}, and run doctor again: "
                "nothing is rescued from a file in use"
            )
        if inventory.intact.rfind(1) < self._wanted:
            yield f"if {self.path}-wal was moved or deleted, put it back, and run doctor again"
        yield "if there is a checkpoint of it, examine that too: outrider doctor COPY"
        yield f"write what is intact to a new file: outrider doctor {self.path} --rescue NEW"
        if untold := self.snapshot.untold(inventory):
            yield (
                f"{untold:,} of the lost pages are in no snapshot: up to "
                f"{untold * log_pages.PAGE_ITEMS:,} more tasks may come back as they were before"
            )


def intact_health(crawl: FileCrawl) -> CrawlHealth:
    """Return the health of a crawl that loads without loss."""
    view = crawl_view(crawl.state)
    return CrawlHealth(
        crawl=crawl.name,
        known=view.known,
        intact=view.known,
        outdated=0,
        lost=0,
        status=view.status.value,
        pending=view.pending,
        leased=view.leased,
        done=view.done,
        dead=view.dead,
        dropped=view.dropped,
        queues=crawl.state.last_queue,
    )


def health_of(
    index: int,
    crawl: CrawlIndex,
    snapshot: Snapshot,
    inventory: Inventory,
    loaded: FileCrawl | None = None,
) -> CrawlHealth:
    """Return the health of a crawl of a damaged file; with its counts if it loads."""
    outdated = crawl.outdated(snapshot.of(index), inventory.intact)
    name, lost = crawl.name or f"crawl {index}", crawl.lost
    intact = crawl.known - lost - outdated
    if loaded is not None:
        return msgspec.structs.replace(
            intact_health(loaded), intact=intact, outdated=outdated, lost=lost
        )
    return CrawlHealth(crawl=name, known=crawl.known, intact=intact, outdated=outdated, lost=lost)


def _pieces(file: ReadOnlyFile, mark: SnapshotMark) -> Iterator[Piece]:
    low, high = mark.snapshot << PIECE_BITS, mark.snapshot + 1 << PIECE_BITS
    for name, data in file.rows("piece", low - 1):
        if name >= high:
            return
        if is_piece(name, data):
            yield decode_piece(data[4:])


def _wrong_with(file: ReadOnlyFile, name: str) -> str:
    try:
        is_missing = file.reader.meta(name) is None and name in ("id", "secret")
    except StoreError as error:
        return str(error)
    return f"the file's {name!r} is missing" if is_missing else ""


def _log_size(path: Path) -> int:
    log = Path(f"{path}-wal")
    return log.stat().st_size if log.exists() else 0


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(100)


__all__: Sequence[str] = ("examine",)
