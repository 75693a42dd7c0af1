"""Examining a file: what is intact and what is not, told whole; only reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import apsw
import msgspec

from outrider.clock import Clock
from outrider.errors import StoreDamaged, StoreError
from outrider.store.embedded import log_pages
from outrider.store.embedded.crawl import FileCrawl
from outrider.store.embedded.file import PIECE_BITS
from outrider.store.embedded.inventory import Inventory
from outrider.store.embedded.loader import FileLoader
from outrider.store.embedded.lock import holder_of, remembered_beside
from outrider.store.embedded.read_only_file import (
    ReadOnlyFile,
    find_fault,
    format_of,
    is_piece,
    read_file,
)
from outrider.store.embedded.salvage_index import CrawlIndex, Snapshot, build_index
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

LARGE: Final = 256 << 20  # bytes of a file whose indexes SQLite does not compare with its tables
PATIENCE: Final = 30.0  # seconds for SQLite's own check
BESIDE: Final = 5.0  # the same beside a holder, whose log only grows meanwhile
PROGRESS: Final = 20_000  # steps of SQLite between two looks at the clock
_HIDDEN: Final = (
    "{:,} intact pages at its end are not seen by SQLite: they were never acknowledged, or the "
    "log is hurt before them, and --rescue has more than the file"
)
_META: Final = ("id", "secret", "snapshot")


def examine(path: Path, clock: Clock, tell: Tell = lambda _: None) -> Diagnosis:
    """Look at everything; raises `StoreUnusable` if it is no file of ours, or cannot be read."""
    wrong = find_fault(path)
    if wrong is not None:
        return Examination(path, None, clock, tell).all(wrong)
    try:
        return read_file(path, lambda look: Examination(path, look, clock, tell).all())
    except StoreDamaged as error:
        return Examination(path, None, clock, tell).all(f"SQLite cannot open it: {error}")


class Examination:
    """One look at one file; without a `Look`, at what can be carved out of it."""

    def __init__(self, path: Path, look: ReadOnlyFile | None, clock: Clock, tell: Tell) -> None:
        self.path, self._look, self._clock, self._tell = path, look, clock, tell
        self._holder = look.holder if look else holder_of(path)
        self._wanted = remembered_beside(path)
        self._head = _first_bytes(path)
        self._findings: list[Finding] = []
        self._loaded: list[FileCrawl] | None = None
        self.snapshot = Snapshot()

    def all(self, wrong: str = "") -> Diagnosis:
        """Everything, from the outside in."""
        self._say(
            "file", "damaged" if wrong else "ok", wrong or f"of Outrider, format {self._format}"
        )
        if self._holder is not None:
            self._say("held", "note", f"by {self._holder.name}; looked at beside it")
        self._see_size()
        if self._look is not None:
            self._see_sqlite(self._look)
            self._see_meta(self._look)
        inventory = self.inventory()
        try:
            self._see_pages(inventory)
            self._see_lock(inventory)
            if self._look is not None:
                self._see_rest(self._look)
            return self._diagnosis(inventory)
        finally:
            inventory.close()

    def inventory(self, *, with_hidden: bool = False) -> Inventory:
        """Its pages, each read and checked."""
        return Inventory(
            self.path,
            self._look,
            wanted=self._wanted,
            with_hidden=with_hidden,
            tell=lambda number: self._tell(f"page {number:,}"),
        )

    def _say(self, what: str, state: State, detail: str) -> None:
        self._findings.append(Finding(what, state, detail))

    @property
    def _format(self) -> int:
        return format_of(self._head)

    # ---- the outside

    def _see_size(self) -> None:
        size, log = self.path.stat().st_size, _log_size(self.path)
        width = int.from_bytes(self._head[16:18], "big")
        wanted = int.from_bytes(self._head[28:32], "big") * (65_536 if width == 1 else width)
        is_told = self._head[24:28] == self._head[92:96]
        if size < wanted and is_told and not log:
            self._say("size", "damaged", f"cut short: {size:,} of {wanted:,} bytes")
        else:
            self._say("size", "ok", f"{size:,} bytes, and {log:,} in its log")

    def _see_lock(self, inventory: Inventory) -> None:
        last = inventory.intact.rfind(1)
        if not self._wanted:
            self._say(
                "lock", "note", "no acknowledged page is remembered since the machine started"
            )
        elif last < self._wanted:
            what = (
                f"page {self._wanted:,} was acknowledged, and the last one here is {max(last, 0):,}"
            )
            self._say("lock", "damaged", f"{what}: its log ({self.path}-wal) is gone or hurt")
        else:
            self._say("lock", "ok", f"page {self._wanted:,} was acknowledged, and is here")

    # ---- SQLite's part

    def _see_sqlite(self, look: ReadOnlyFile) -> None:
        check = "quick_check" if self.path.stat().st_size > LARGE else "integrity_check"
        seconds = BESIDE if look.holder else PATIENCE
        self._tell(f"SQLite's {check}")
        deadline = self._clock.now_ms() + seconds * 1000
        look.connection.set_progress_handler(lambda: self._clock.now_ms() > deadline, PROGRESS)
        try:
            wrong = [row[0] for row in look.connection.execute(f"PRAGMA {check}(10)")]
        except apsw.InterruptError:
            self._say(
                "sqlite", "note", f"{check} found nothing in {seconds:g} s, and was ended then"
            )
            return
        except apsw.Error as error:
            wrong = [str(error)]
        finally:
            look.connection.set_progress_handler(None)
        is_well = wrong == ["ok"]
        self._say(
            "sqlite",
            "ok" if is_well else "damaged",
            f"{check}: " + "; ".join(wrong).replace("\n", " "),
        )

    def _see_meta(self, look: ReadOnlyFile) -> None:
        wrong = [text for name in _META if (text := _wrong_with(look, name))]
        self._say(
            "meta", "damaged" if wrong else "ok", "; ".join(wrong) or "id, secret and snapshot"
        )

    # ---- our part

    def _see_pages(self, inventory: Inventory) -> None:
        if inventory.hidden:
            self._say("log", "note", _HIDDEN.format(inventory.hidden))
        if not (inventory.lost or inventory.broken or inventory.hurt):
            self._say("pages", "ok", f"{inventory.last:,}, none missing, every checksum right")
            return
        found = f"{inventory.last - inventory.lost:,} of {inventory.last:,} are intact"
        named = ", ".join(map(str, inventory.first_lost()[:10]))
        lost = f"; lost: {named}" + (", …" if inventory.lost > 10 else "") if named else ""
        broken = f"; SQLite's tree is broken: {inventory.broken}" if inventory.broken else ""
        self._say("pages", "damaged", found + lost + broken)

    def _see_rest(self, look: ReadOnlyFile) -> None:
        try:
            with look.steady():
                self.check_snapshot(look)
                self._see_load(look)
        except StoreError as error:
            self._say("load", "damaged", self._plain(error))

    def check_snapshot(self, look: ReadOnlyFile) -> None:
        """The snapshot that holds, and every piece of it."""
        self._tell("the snapshot")
        try:
            mark = current_snapshot(look)
            whole = self._read_pieces(look, mark)
        except (StoreError, msgspec.MsgspecError) as error:
            self._say("snapshot", "damaged", self._plain(error))
            return
        if not mark.snapshot:
            self._say("snapshot", "ok", "none was taken yet")
            return
        self.snapshot = self.snapshot._replace(is_whole=whole == mark.pieces)
        text = (
            f"{whole:,} of {mark.pieces:,} pieces are intact; the tail begins at {mark.page + 1:,}"
        )
        self._say("snapshot", "ok" if whole == mark.pieces else "damaged", text)

    def _read_pieces(self, look: ReadOnlyFile, mark: SnapshotMark) -> int:
        """How many are intact; what they tell of crawls and pages is kept."""
        self.snapshot, count = Snapshot(mark.page, [], []), 0
        for piece in _pieces(look, mark):
            count += 1
            if isinstance(piece, CrawlPiece):
                self.snapshot.extras.append((piece.crawl, piece.update))
            elif isinstance(piece, SpanPiece):
                self.snapshot.spans.append(piece)
        return count

    def _see_load(self, look: ReadOnlyFile) -> None:
        self._tell("loading it, in memory only")
        try:
            look.identify()
            shelf = PageCache(look)
            make = lambda index, name, created: FileCrawl(  # noqa: E731
                name, look.id, created, index=index, reader=shelf, secret=look.secret
            )
            self._loaded = FileLoader(look, make).load()
            tasks = sum(crawl.state.last_task for crawl in self._loaded)
            self._say("load", "ok", f"{len(self._loaded):,} crawls, {tasks:,} tasks")
        except Exception as error:  # noqa: BLE001 - whatever a damaged file makes of a reader
            self._say("load", "damaged", f"it cannot be opened: {self._plain(error)}")

    def _plain(self, error: Exception) -> str:
        """Without what every other command adds: to ask the doctor."""
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
            crawls=[counted(crawl) for crawl in self._loaded or ()]
            if is_healthy
            else self._surveyed(inventory),
            next=list(self._advice(inventory, is_healthy=is_healthy)),
        )

    def _surveyed(self, inventory: Inventory) -> list[CrawlHealth]:
        self._tell("the last word on every task")
        found = build_index(inventory, self.snapshot, lambda *_: None)
        loaded = {crawl.index: crawl for crawl in self._loaded or ()}
        return [
            health_of(index, words, self.snapshot, inventory, loaded.get(index))
            for index, words in found.items()
        ]

    def _advice(self, inventory: Inventory, *, is_healthy: bool) -> Iterator[str]:
        if is_healthy:
            yield "nothing is wrong"
            return
        if self._holder is not None:
            yield f"end {self._holder.name}, and look again: nothing is rescued from a file in use"
        if inventory.intact.rfind(1) < self._wanted:
            yield f"if {self.path}-wal was moved or deleted, put it back, and look again"
        yield "if there is a checkpoint of it, examine that too: outrider doctor COPY"
        yield f"write what is intact to a new file: outrider doctor {self.path} --rescue NEW"
        if untold := self.snapshot.untold(inventory):
            yield (
                f"what stood on {untold:,} of the lost pages nothing tells: up to "
                f"{untold * log_pages.PAGE_ITEMS:,} more tasks may come back as they were before"
            )


def counted(crawl: FileCrawl) -> CrawlHealth:
    """A crawl that loads, and of which nothing is lost."""
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
    words: CrawlIndex,
    snapshot: Snapshot,
    inventory: Inventory,
    loaded: FileCrawl | None = None,
) -> CrawlHealth:
    """A crawl of a damaged file; one that loads all the same tells its counts."""
    outdated = words.outdated(snapshot.of(index), inventory.intact)
    name, lost = words.name or f"crawl {index}", words.lost
    intact = words.known - lost - outdated
    if loaded is not None:
        return msgspec.structs.replace(counted(loaded), intact=intact, outdated=outdated, lost=lost)
    return CrawlHealth(crawl=name, known=words.known, intact=intact, outdated=outdated, lost=lost)


def _pieces(look: ReadOnlyFile, mark: SnapshotMark) -> Iterator[Piece]:
    low, high = mark.snapshot << PIECE_BITS, mark.snapshot + 1 << PIECE_BITS
    for name, data in look.rows("piece", low - 1):
        if name >= high:
            return
        if is_piece(name, data):
            yield decode_piece(data[4:])


def _wrong_with(look: ReadOnlyFile, name: str) -> str:
    try:
        is_missing = look.meta(name) is None and name != "snapshot"
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
