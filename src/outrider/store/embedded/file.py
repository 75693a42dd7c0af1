"""The file: log pages and snapshot pieces in SQLite, appended atomically, read with checksums.

A write that fails has changed nothing. Content that differs from what was written raises an error
that names it and the next step; nothing is ever emptied or repaired by itself.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import apsw

from outrider.errors import StoreDamaged, StoreError, StoreFull, StoreUnusable
from outrider.store.embedded import log_pages

APPLICATION: Final = 0x4F555452  # "OUTR"
FORMAT: Final = 1
WAL_PAGES: Final = 2000  # of the write-ahead log before it is checkpointed
SINGLE_READS: Final = 3  # pages read by one verb before they are read in one transaction
PIECE_BITS: Final = 32  # of a piece's number; above them its snapshot's

_AUTO_VACUUM: Final = "INCREMENTAL"  # I1: of new files; freed space is given back when asked
_INCREMENTAL: Final = 2  # the same, as it is read

_MAGIC: Final = b"SQLite format 3\0"
_HEAD_BYTES: Final = 100
_SCHEMA: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE page (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE piece (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""

_ADD_PAGE: Final = "INSERT INTO page VALUES (?, ?)"
_ADD_PIECE: Final = "INSERT INTO piece VALUES (?, ?)"
# CAST: in a damaged file a blob may have become a text, which could not even be read.
_GET_PAGE: Final = "SELECT CAST(data AS BLOB) FROM page WHERE id = ?"

Row: TypeAlias = log_pages.PageRow


@final
class FileReader:
    """Reads pages, pieces of snapshots and metadata through one connection.

    `translate` turns errors of SQLite and damage into errors of the file's user.
    """

    def __init__(
        self,
        path: Path,
        db: apsw.Connection,
        translate: Callable[[Exception], StoreError],
        *,
        single_reads: int = SINGLE_READS,
    ) -> None:
        self.path = path
        self._db, self._translate, self._single_reads = db, translate, single_reads
        self._cursor, self._reads = db.cursor(), 0
        self._blob: apsw.Blob | None = None

    def page(self, number: int) -> bytes:
        """Return a page, its checksum verified.

        In one transaction many pages cost half as much, but a single one costs more.
        """
        self._reads += 1
        try:
            if self._reads <= self._single_reads:
                data: bytes = self._cursor.execute(_GET_PAGE, (number,)).get or b""
            elif self._blob is None:
                data = self._first_of_many(number)
            else:  # one handle moves from page to page, without a statement for each
                self._blob.reopen(number)
                data = self._blob.read()
            log_pages.check_page(number, data)
        except StoreDamaged as error:
            raise StoreDamaged(damaged(self.path, str(error))) from None
        except apsw.Error as error:
            raise explain_error(self.path, error) from error
        return data

    def _first_of_many(self, number: int) -> bytes:
        if not self._db.in_transaction:
            self._db.execute("BEGIN")
        self._blob = self._db.blob_open("main", "page", "data", number, False)
        return self._blob.read()

    def close_blob(self) -> None:
        """Close the handle of the last page read: it would keep a write from committing."""
        blob, self._blob = self._blob, None
        if blob is not None:
            blob.close(True)

    def end_transaction(self) -> None:
        """End a transaction of many reads, so that the log can be checkpointed."""
        self._reads = 0
        self.close_blob()
        if self._db.in_transaction:
            with self.translating():
                self._db.execute("COMMIT")

    def last_page(self) -> int:
        """Return the number of the last page; 0 if there is none."""
        with self.translating():
            row = self._db.execute("SELECT max(id) FROM page").fetchone()
        return row[0] or 0 if row else 0

    def pages_after(self, number: int) -> Iterator[log_pages.LogPage]:
        """Return all pages after that one, in order and without a gap."""
        with self.translating():
            for found, data in self._db.execute(
                "SELECT id, CAST(data AS BLOB) FROM page WHERE id > ? ORDER BY id", (number,)
            ):
                number += 1
                if found != number:
                    raise StoreDamaged(f"page {number} is missing")
                yield log_pages.decode_page(found, data or b"")

    def pieces(self, snapshot: int) -> Iterator[bytes]:
        """Return the pieces of a snapshot, in order and without a gap."""
        low, high = snapshot << PIECE_BITS, snapshot + 1 << PIECE_BITS
        query = "SELECT id, CAST(data AS BLOB) FROM piece WHERE id >= ? AND id < ? ORDER BY id"
        with self.translating():
            for index, (number, data) in enumerate(self._db.execute(query, (low, high))):
                if number != low + index:
                    raise StoreDamaged(f"piece {index} of snapshot {snapshot} is missing")
                what = f"piece {index} of snapshot {snapshot}"
                yield _verify_checksum(what, number, data or b"")

    def meta(self, name: str) -> bytes | None:
        """Return a value of the file itself."""
        with self.translating():
            query = "SELECT CAST(value AS BLOB) FROM meta WHERE name = ?"
            row = self._db.execute(query, (name,)).fetchone()
            return (
                None if row is None else _verify_checksum(f"the file's {name!r}", 0, row[0] or b"")
            )

    def required_meta(self, name: str) -> bytes:
        """Return a value that every file has."""
        value = self.meta(name)
        if value is None:
            raise self._translate(StoreDamaged(f"the file's {name!r} is missing"))
        return value

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Translate errors of SQLite and damage."""
        try:
            yield
        except (StoreDamaged, apsw.Error) as error:
            translated = self._translate(error)
            if translated is error:
                raise
            raise translated from error


class CrawlFile:
    """An open file of Outrider, to read and append; the caller holds its lock."""

    def __init__(self, path: Path, *, is_synced: bool = False, vfs: str | None = None) -> None:
        self.path = path
        self._vfs = vfs
        self._level = "FULL" if is_synced else "NORMAL"
        if not path.exists():
            _create(path)
        check_file(path)
        self._checkpointer = _Checkpointer(self._connect)
        try:
            self._db = self._writer = self._connect()
        except apsw.Error as error:
            raise explain_error(path, error) from error
        self.reader = reader = FileReader(path, self._db, self._translate)
        try:
            self.id = reader.required_meta("id").decode()
            self.secret = reader.required_meta("secret")
            self.last_page = reader.last_page()
            if is_synced:  # a thread waits for the disk with this one, while verbs read
                with reader.translating():
                    self._writer = self._connect()
        except BaseException:
            self.abandon()
            raise
        self._writer.set_wal_hook(self._after_commit)

    def _translate(self, error: Exception) -> StoreError:
        if isinstance(error, apsw.Error):
            return explain_error(self.path, error)
        return StoreDamaged(damaged(self.path, str(error)))

    # ---- writing

    def append(self, rows: Sequence[Row]) -> None:
        """Add pages, all or none; the caller numbers them from `last_page` on."""
        db = self._writer
        if db is self._db:
            self.reader.close_blob()
        try:
            if len(rows) == 1 and not db.in_transaction:
                db.execute(_ADD_PAGE, rows[0])
            else:
                if not db.in_transaction:
                    db.execute("BEGIN IMMEDIATE")
                db.executemany(_ADD_PAGE, rows)
                db.execute("COMMIT")
        except apsw.Error as error:
            with suppress(apsw.Error):  # some errors have rolled back by themselves
                db.execute("ROLLBACK")
            raise explain_error(self.path, error) from error
        self.last_page = rows[-1].number

    def put_piece(self, snapshot: int, number: int, data: bytes) -> None:
        """Add a piece to a snapshot."""
        key = snapshot << PIECE_BITS | number
        with self.reader.translating():
            self._db.execute(_ADD_PIECE, (key, _add_checksum(key, data)))

    def drop_pieces(self, snapshot: int, limit: int) -> bool:
        """Delete some of the pieces of other snapshots; return whether any are left."""
        low, high = snapshot << PIECE_BITS, snapshot + 1 << PIECE_BITS
        others = "SELECT id FROM piece WHERE id < ? OR id >= ? LIMIT ?"
        with self.reader.translating():
            self._db.execute(f"DELETE FROM piece WHERE id IN ({others})", (low, high, limit))  # noqa: S608
            return bool(self._db.execute(others, (low, high, 1)).fetchone())

    # ---- replacing what belongs to removed crawls

    def page_crawls(self, after: int, limit: int) -> list[tuple[int, int]]:
        """Return the next pages, each with the crawl it belongs to."""
        query = "SELECT id, CAST(substr(data, 7, 4) AS BLOB) FROM page WHERE id > ? "
        query += "ORDER BY id LIMIT ?"
        with self.reader.translating():
            found: list[Any] = self._db.execute(query, (after, limit)).fetchall()
        return [(number, int.from_bytes(crawl, "little")) for number, crawl in found]

    def replace_pages(self, rows: Sequence[Row]) -> None:
        """Replace pages, all or none: deleted first, so that SQLite merges what little is left."""
        self.reader.end_transaction()
        with self.reader.translating(), self._db:
            self._db.executemany("DELETE FROM page WHERE id = ?", [(row.number,) for row in rows])
            self._db.executemany(_ADD_PAGE, rows)

    def pieces_after(self, key: int, limit: int) -> list[tuple[int, bytes]]:
        """Return the next pieces of any snapshot, by their keys."""
        query = "SELECT id, CAST(data AS BLOB) FROM piece WHERE id > ? ORDER BY id LIMIT ?"
        with self.reader.translating():
            found: list[Any] = self._db.execute(query, (key, limit)).fetchall()
            return [(k, _verify_checksum(f"piece {k}", k, data or b"")) for k, data in found]

    def replace_piece(self, key: int, data: bytes) -> None:
        """Replace a piece."""
        self.reader.end_transaction()
        with self.reader.translating(), self._db:
            self._db.execute("DELETE FROM piece WHERE id = ?", (key,))
            self._db.execute(_ADD_PIECE, (key, _add_checksum(key, data)))

    def shrink(self, pages: int) -> bool:
        """Give unused space back, if the file was made to; return whether there is more."""
        self.reader.end_transaction()
        with self.reader.translating():
            if self._pragma("auto_vacuum") != _INCREMENTAL:
                return False
            self._db.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
            return self._pragma("freelist_count") > 0

    def checkpoint_soon(self) -> None:
        """Let another thread checkpoint the log: before, a file that shrank is as long on disk."""
        self._checkpointer.start()

    def _pragma(self, name: str) -> int:
        row: Any = self._db.execute(f"PRAGMA {name}").fetchone()
        return int(row[0])

    def set_meta(self, name: str, value: bytes) -> None:
        """Set a value of the file itself."""
        with self.reader.translating():
            self._db.execute("REPLACE INTO meta VALUES (?, ?)", (name, _add_checksum(0, value)))

    def is_writable(self) -> bool:
        """Return whether a write succeeds now."""
        with suppress(StoreError):
            self.set_meta("tried", b"")
            return True
        return False

    # ---- opening and closing

    def _connect(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE
        db = apsw.Connection(str(self.path), flags=flags, vfs=self._vfs)
        try:
            db.set_busy_timeout(10_000)
            # A refused file keeps its log as it is: only `close` checkpoints it.
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {self._level}")
            db.execute("PRAGMA cache_size = -4096")
        except BaseException:
            db.close(True)
            raise
        return db

    def _after_commit(self, _db: apsw.Connection, _name: str, count: int) -> int:
        """Let another thread checkpoint a long log."""
        if count > WAL_PAGES and not self._checkpointer.is_running:
            self._checkpointer.start()
        if count > 4 * WAL_PAGES and not self._checkpointer.is_running:
            with suppress(apsw.Error):  # the commit is done, whatever becomes of this
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        return apsw.SQLITE_OK

    def close(self) -> None:
        """Checkpoint the log, and close the file."""
        self._checkpointer.close()
        with suppress(apsw.Error):  # the log is complete, and the next opening checkpoints it
            self.reader.end_transaction()
            self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            if self._writer is not self._db:
                self._writer.close()
            self._db.close()

    def abandon(self) -> None:
        """Close the file as it is, its log included, after a failed opening."""
        self._checkpointer.close()
        for db in {self._writer, self._db}:
            with suppress(apsw.Error):
                db.close(True)


class _Checkpointer:
    """A thread that checkpoints the write-ahead log, so that no verb waits for it."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._wanted = threading.Event()
        self._is_closed = False
        self.is_running = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Checkpoint soon, and again if one is running: it may not see the last commit."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="outrider-fold")
            self._thread.start()
        self.is_running = True
        self._wanted.set()

    def _run(self) -> None:
        with suppress(apsw.Error):  # the log stays, and the next verb reports the error
            db = self._connect()
            while self._wanted.wait() and not self._is_closed:
                self._wanted.clear()
                with suppress(apsw.BusyError, apsw.FullError, apsw.IOError):
                    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                self.is_running = self._wanted.is_set()
            db.close()

    def close(self) -> None:
        self._is_closed = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()


def _create(path: Path) -> None:
    """Create a new file atomically."""
    draft = Path(f"{path}-new-{uuid.uuid4().hex[:8]}")
    try:
        db = apsw.Connection(str(draft))
        try:
            _write_schema(db)
        finally:
            db.close()
        with suppress(FileExistsError):  # another process was quicker
            os.link(draft, path)
    except (apsw.Error, OSError) as error:
        raise _creation_error(path, error) from error
    finally:
        for part in (draft, Path(f"{draft}-journal")):
            part.unlink(missing_ok=True)


def _write_schema(db: apsw.Connection) -> None:
    db.execute(f"PRAGMA auto_vacuum = {_AUTO_VACUUM}")
    with db:
        db.execute(_SCHEMA)
        for name, value in (
            ("id", uuid.uuid4().hex.encode()),
            ("secret", secrets.token_bytes(32)),
        ):
            db.execute("INSERT INTO meta VALUES (?, ?)", (name, _add_checksum(0, value)))
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {FORMAT}")


def _creation_error(path: Path, error: Exception) -> StoreError:
    if not path.parent.is_dir():
        return StoreUnusable(f"{path}: there is no directory {path.parent}; make it first")
    if isinstance(error, apsw.FullError | apsw.IOError) or _is_disk_full(error):
        return StoreFull(f"{path}: no room for a new file; make room, and try again")
    return StoreUnusable(f"{path}: a new file cannot be made here ({error}); try another directory")


def _is_disk_full(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_file(path: Path) -> None:
    """Refuse what is not a usable file of Outrider, before SQLite opens it."""
    try:
        info = path.stat()
        head = b"" if not stat.S_ISREG(info.st_mode) else _first_bytes(path)
    except OSError as error:
        raise StoreUnusable(f"{path}: cannot be read ({error.strerror})") from error
    if not stat.S_ISREG(info.st_mode):
        raise StoreUnusable(f"{path} is not a file; name one, such as {path}/crawl.outrider")
    if not head:
        raise StoreDamaged(damaged(path, "it is empty, which no file of Outrider ever is"))
    if head[:16] != _MAGIC or int.from_bytes(head[68:72], "big") != APPLICATION:
        raise StoreUnusable(_foreign_file(path, head))
    if int.from_bytes(head[60:64], "big") > FORMAT:
        raise StoreUnusable(f"{path} was written by a newer release of Outrider; use that one")
    if not info.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise StoreUnusable(f"{path} is read-only; make it writable, or work on a copy")
    _check_size(path, info.st_size, head)


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)


def _foreign_file(path: Path, head: bytes) -> str:
    if head[:16] == _MAGIC and len(head) == _HEAD_BYTES:
        return f"{path} is a SQLite database, but not one of Outrider's; name another file"
    return (
        f"{path} is not a file of Outrider, or its beginning is damaged; name another file, or see "
        f"what is left: outrider doctor {path}"
    )


def _check_size(path: Path, size: int, head: bytes) -> None:
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        return  # the log may have what is missing here
    width = int.from_bytes(head[16:18], "big")
    wanted = int.from_bytes(head[28:32], "big") * (65_536 if width == 1 else width)
    if size < wanted and head[24:28] == head[92:96]:
        raise StoreDamaged(damaged(path, f"it is cut short: {size:,} of {wanted:,} bytes"))


def damaged(path: Path, what: str) -> str:
    """Return the message of any damage: what is wrong, and the next step."""
    return f"{path} is damaged: {what}; see what is intact: outrider doctor {path}"


def explain_error(path: Path, error: apsw.Error) -> StoreError:
    """Return an error of SQLite as an error of the store, with the next step."""
    if isinstance(error, apsw.FullError | apsw.IOError):
        return StoreFull(
            f"{path}: could not be written ({error}); nothing was changed: make room on its disk, "
            "and try again"
        )
    if isinstance(error, apsw.NoMemError) or _lacks_descriptors(error):
        return StoreFull(
            f"{path}: could not be opened or written ({error}): this machine is out of memory or "
            "of open files (ulimit -n); nothing was changed"
        )
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError | apsw.CantOpenError):
        return StoreUnusable(f"{path}: cannot be written ({error}); check its permissions")
    if isinstance(error, apsw.BusyError):
        return StoreError(f"{path}: another program keeps it locked ({error}); end that program")
    return StoreDamaged(damaged(path, str(error)))


def _lacks_descriptors(error: apsw.Error) -> bool:
    """Return whether a file was not opened for lack of descriptors: SQLite does not say."""
    if not isinstance(error, apsw.CantOpenError):
        return False
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as failed:
        return failed.errno in (errno.EMFILE, errno.ENFILE)
    return False


def _add_checksum(name: int, data: bytes) -> bytes:
    return zlib.crc32(data, name & 0xFFFFFFFF).to_bytes(4, "little") + data


def _verify_checksum(what: str, name: int, data: bytes) -> bytes:
    is_bytes = isinstance(data, bytes)  # in a damaged file SQLite may return any type
    if not is_bytes or zlib.crc32(data[4:], name & 0xFFFFFFFF).to_bytes(4, "little") != data[:4]:
        raise StoreDamaged(f"{what} is not what was written: its checksum differs")
    return data[4:]
