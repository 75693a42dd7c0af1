"""Read-only access to a file: nothing is written to it, to its log or to its lock.

A file that a process holds is read beside that process, in short reads. One that no process holds
is read without SQLite's locks and shared memory, which would be written; if a process takes it
meanwhile, it is read again.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar, final

import apsw

from outrider.errors import StoreDamaged, StoreError, StoreUnavailable, StoreUnusable
from outrider.store.embedded import log_pages
from outrider.store.embedded.file import APPLICATION, FORMAT, FileReader, Row
from outrider.store.embedded.lock import holder_of
from outrider.store.health import Holder

T = TypeVar("T")

MAX_ATTEMPTS: Final = 3
STEP: Final = 1000  # rows of one read beside a holder, whose log cannot be reset meanwhile
MAX_PAGES: Final = 1 << 32  # no number of a page reaches it
MAX_ROW_BYTES: Final = 1 << 30  # no row of Outrider comes near
_MAGIC: Final = b"SQLite format 3\0"
_SCHEMA: Final = b"CREATE TABLE piece (id INTEGER PRIMARY KEY"


@final
class ReadOnlyFile:
    """A file of Outrider, to read only."""

    def __init__(self, path: Path, holder: Holder | None) -> None:
        self.path, self.holder = path, holder
        try:
            self.connection = _open_shared(path) if holder else _open_unlocked(path)
        except apsw.Error as error:
            raise self._translate(error) from error
        # Each page is read by itself: a transaction would keep the holder's log from shrinking.
        self.reader = FileReader(path, self.connection, self._translate, single_reads=sys.maxsize)
        with self.reader.translating():
            self.connection.set_busy_timeout(10_000)
            self.connection.execute("PRAGMA cache_size = -16384")
        self.last_page = self.reader.last_page()

    def rows(self, table: str = "page", after: int = -1) -> Iterator[Row]:
        """Return all rows in order, with bounded reads; raises if their order is broken."""
        query = f"SELECT id, data FROM {table} WHERE id > ? ORDER BY id LIMIT {STEP}"  # noqa: S608
        last: int | None = None
        while last != after:
            last = after
            with self.reader.translating():
                for number, data in self.connection.execute(query, (last,)):
                    if number <= after:
                        raise StoreDamaged(f"{table} {number} comes after {after}")
                    after = number
                    yield Row(number, data)

    def _translate(self, error: Exception) -> StoreError:
        """A reader meets damage, or a program that keeps the file locked."""
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            return StoreUnavailable(f"{self.path}: another program keeps it locked")
        return error if isinstance(error, StoreError) else StoreDamaged(str(error))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Let all reads inside see one state of the file."""
        with self.reader.translating():
            self.connection.execute("BEGIN")
            self.connection.execute("SELECT max(id) FROM page").fetchall()
        try:
            yield
        finally:
            with suppress(apsw.Error):  # a damaged file may refuse even this
                self.connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def _open_shared(path: Path) -> apsw.Connection:
    return _without_checkpoint(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY))


def _open_unlocked(path: Path) -> apsw.Connection:
    """Without a log SQLite would make one; with one, the exclusive mode needs no shared memory."""
    if not _size(Path(f"{path}-wal")):
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return apsw.Connection(f"{path.resolve().as_uri()}?immutable=1", flags=flags)
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs="unix-none")
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    return _without_checkpoint(db)


def _without_checkpoint(db: apsw.Connection) -> apsw.Connection:
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return db


def read_file(path: Path, work: Callable[[ReadOnlyFile], T]) -> T:
    """Run `work` on a file; again, if a process took it or let it go meanwhile."""
    for _ in range(MAX_ATTEMPTS):
        holder, before = holder_of(path), traces(path)
        try:
            result = _read(path, holder, work)
        except StoreError:
            if holder or traces(path) == before:
                raise
            continue
        if holder or traces(path) == before:
            return result
    raise StoreUnavailable(f"{path} is opened and closed all the time; try again")


def _read(path: Path, holder: Holder | None, work: Callable[[ReadOnlyFile], T]) -> T:
    file = ReadOnlyFile(path, holder)
    try:
        return work(file)
    finally:
        file.close()


def traces(path: Path) -> tuple[object, ...]:
    """Return what changes when a file or its log is written."""
    return tuple(_trace(Path(f"{path}{end}")) for end in ("", "-wal"))


def _trace(path: Path) -> tuple[int, int, int] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return (info.st_ino, info.st_size, info.st_mtime_ns) if info.st_size else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def is_page(number: int, data: bytes) -> bool:
    """Return whether a row is a page as it was written."""
    try:
        return 0 < number < MAX_PAGES and bool(log_pages.check_page(number, data))
    except StoreDamaged:
        return False


def is_piece(key: int, data: bytes) -> bool:
    """Return whether a row is a piece as it was written."""
    if not isinstance(data, bytes):  # in a damaged file SQLite may return any type
        return False
    return zlib.crc32(data[4:], key & 0xFFFFFFFF) == int.from_bytes(data[:4], "little")


# ---- the kind of file


def find_fault(path: Path) -> str | None:
    """Return what is wrong with a file of Outrider, or None; raises if it is no such file."""
    head = _beginning(path)
    if not head:
        return "it is empty, which no file of Outrider ever is"
    if head[:16] == _MAGIC and int.from_bytes(head[68:72], "big") == APPLICATION:
        _check_format(path, head)
        return None
    if _SCHEMA in head:
        return "its beginning is not what was written"
    raise StoreUnusable(f"{path} is not a file of Outrider; name another")


def _beginning(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise StoreUnusable(
                f"{path}: " + ("is not a file" if path.exists() else "no such file")
            )
        with path.open("rb") as file:
            return file.read(1 << 16)
    except OSError as error:
        raise StoreUnusable(f"{path}: cannot be read ({error.strerror})") from error


def _check_format(path: Path, head: bytes) -> None:
    if format_of(head) > FORMAT:
        raise StoreUnusable(f"{path} was written by a newer release of Outrider; use that one")


def format_of(head: bytes) -> int:
    """Return the format in a head."""
    return int.from_bytes(head[60:64], "big")
