"""Looking at a file without a trace: nothing is written to it, to its log or to its lock.

A file that somebody holds is read beside them, in short reads. One that nobody holds is read
without SQLite's locks and shared memory, which would be written; should somebody take it meanwhile,
it is looked at again.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import apsw

from outrider.errors import StoreDamaged, StoreError, StoreUnavailable, StoreUnusable
from outrider.store.embedded import log_pages
from outrider.store.embedded.file import APPLICATION, FORMAT, CrawlFile, Row
from outrider.store.embedded.lock import holder_of
from outrider.store.health import Holder

T = TypeVar("T")

TRIES: Final = 3
STEP: Final = 1000  # rows of one read beside a holder, whose log cannot start anew meanwhile
MOST: Final = 1 << 32  # no number of a page reaches it
LARGEST: Final = 1 << 30  # no row of ours comes near
_MAGIC: Final = b"SQLite format 3\0"
_SCHEMA: Final = b"CREATE TABLE piece (id INTEGER PRIMARY KEY"


class ReadOnlyFile(CrawlFile):
    """A file of ours, to read only."""

    def __init__(self, path: Path, holder: Holder | None) -> None:
        self.path, self.holder = path, holder
        with self._translate_errors():
            self._db = _beside(path) if holder else _alone(path)
            self._db.set_busy_timeout(10_000)
            self._db.execute("PRAGMA cache_size = -16384")
            self._cursor, self._reads = self._db.cursor(), -sys.maxsize  # each page by itself
            self._blob = None
            found = self._db.execute("SELECT max(id) FROM page").fetchone()
        self.last_page = (found and found[0]) or 0

    def identify(self) -> None:
        """Its own values, which loading needs."""
        self.id, self.secret = self._required("id").decode(), self._required("secret")

    def rows(self, table: str = "page", after: int = -1) -> Iterator[Row]:
        """All rows in order, a bounded read at a time; raises if their order is broken."""
        query = f"SELECT id, data FROM {table} WHERE id > ? ORDER BY id LIMIT {STEP}"  # noqa: S608
        last: int | None = None
        while last != after:
            last = after
            with self._translate_errors():
                for number, data in self._db.execute(query, (last,)):
                    if number <= after:
                        raise StoreDamaged(f"{table} {number} comes after {after}")
                    after = number
                    yield number, data

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Who only looks meets damage, or somebody who keeps the file locked."""
        try:
            yield
        except (apsw.BusyError, apsw.LockedError) as error:
            raise StoreUnavailable(f"{self.path}: another program keeps it locked") from error
        except apsw.Error as error:
            raise StoreDamaged(str(error)) from error

    @property
    def connection(self) -> apsw.Connection:
        """For SQLite's own checks and copies."""
        return self._db

    @contextmanager
    def steady(self) -> Iterator[None]:
        """What is read inside is of one moment."""
        with self._translate_errors():
            self._db.execute("BEGIN")
            self._db.execute("SELECT max(id) FROM page").fetchall()
        try:
            yield
        finally:
            with suppress(apsw.Error):  # a damaged file may not even let go
                self._db.execute("COMMIT")

    def close(self) -> None:
        """Let go."""
        self._db.close()


def _beside(path: Path) -> apsw.Connection:
    return _untouching(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY))


def _alone(path: Path) -> apsw.Connection:
    """Without a log SQLite would make one; with one, the exclusive mode needs no shared memory."""
    if not _size(Path(f"{path}-wal")):
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return apsw.Connection(f"{path.resolve().as_uri()}?immutable=1", flags=flags)
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs="unix-none")
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    return _untouching(db)


def _untouching(db: apsw.Connection) -> apsw.Connection:
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return db


def read_file(path: Path, work: Callable[[ReadOnlyFile], T]) -> T:
    """Do some reading; again, if the file changed hands meanwhile."""
    for _ in range(TRIES):
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
    look = ReadOnlyFile(path, holder)
    try:
        return work(look)
    finally:
        look.close()


def traces(path: Path) -> tuple[object, ...]:
    """What changes when a file or its log is written."""
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
    """Whether a row is a page as it was written."""
    try:
        return 0 < number < MOST and bool(log_pages.check_page(number, data))
    except StoreDamaged:
        return False


def is_piece(name: int, data: bytes) -> bool:
    """Whether a row is a piece as it was written."""
    if not isinstance(data, bytes):  # SQLite may take a damaged row for anything
        return False
    return zlib.crc32(data[4:], name & 0xFFFFFFFF) == int.from_bytes(data[:4], "little")


# ---- what kind of file it is


def find_fault(path: Path) -> str | None:
    """None: a file of ours. A text: it was one, and this is wrong. Raises if it is none."""
    head = _beginning(path)
    if not head:
        return "it is empty, which no file of ours ever is"
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
    """The format a head tells of."""
    return int.from_bytes(head[60:64], "big")
