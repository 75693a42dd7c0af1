"""The file: pages and pieces in SQLite, appended whole or not at all, read with their checksums.

A write that fails has changed nothing. Whatever is not what was written is refused by name, with
the way out; nothing is ever emptied or repaired unasked.
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
from typing import Final

import apsw

from outrider.errors import StoreDamaged, StoreError, StoreFull, StoreUnusable
from outrider.store.embedded import log_pages

APPLICATION: Final = 0x4F555452  # "OUTR"
FORMAT: Final = 1
WAL_PAGES: Final = 2000  # of the write-ahead log before it is folded into the file
READS_ALONE: Final = 3  # pages read by one verb before they are read in one transaction
PIECE_BITS: Final = 32  # of a piece's number; above them its snapshot's

_MAGIC: Final = b"SQLite format 3\0"
_HEAD_BYTES: Final = 100
_SCHEMA: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE page (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE piece (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""

_ADD_PAGE: Final = "INSERT INTO page VALUES (?, ?)"
# Cast: a bit that flipped may have made a text of a blob, which could not even be read.
_GET_PAGE: Final = "SELECT CAST(data AS BLOB) FROM page WHERE id = ?"

Row = tuple[int, bytes]


class CrawlFile:
    """An open file of ours; the caller holds its lock."""

    def __init__(self, path: Path, *, is_synced: bool = False, vfs: str | None = None) -> None:
        self.path = path
        self._vfs = vfs
        self._level = "FULL" if is_synced else "NORMAL"
        if not path.exists():
            _create(path)
        check_file(path)
        self._blob: apsw.Blob | None = None
        self._checkpointer = _Checkpointer(self._connect)
        with self._translate_errors():
            self._db = self._writer = self._connect()
            try:
                self._read_first(is_synced=is_synced)
            except BaseException:
                self.abandon()
                raise
        self._cursor, self._reads = self._db.cursor(), 0
        self._writer.set_wal_hook(self._written)

    def _read_first(self, *, is_synced: bool) -> None:
        self.id = self._required("id").decode()
        self.secret = self._required("secret")
        row = self._db.execute("SELECT max(id) FROM page").fetchone()
        self.last_page: int = row[0] or 0 if row else 0
        if is_synced:  # whoever waits for the disk does so in a thread, while others read
            self._writer = self._connect()

    # ---- pages

    def append(self, rows: Sequence[Row]) -> None:
        """Add pages, all or none; the caller numbers them from `last_page` on."""
        db = self._writer
        if db is self._db:
            self._let_go()
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
            raise explained(self.path, error) from error
        self.last_page = rows[-1][0]

    def page(self, number: int) -> bytes:
        """A page, checked. In one transaction many pages cost half as much, but one costs more."""
        self._reads += 1
        try:
            if self._reads <= READS_ALONE:
                data: bytes = self._cursor.execute(_GET_PAGE, (number,)).get or b""
            elif self._blob is None:
                data = self._first_of_many(number)
            else:  # one handle goes from page to page, without a statement for each
                self._blob.reopen(number)
                data = self._blob.read()
            log_pages.check_page(number, data)
        except StoreDamaged as error:
            raise StoreDamaged(damaged(self.path, str(error))) from None
        except apsw.Error as error:
            raise explained(self.path, error) from error
        return data

    def _let_go(self) -> None:
        blob, self._blob = self._blob, None
        if blob is not None:
            blob.close(True)

    def _first_of_many(self, number: int) -> bytes:
        if not self._db.in_transaction:
            self._db.execute("BEGIN")
        self._blob = self._db.blob_open("main", "page", "data", number, False)
        return self._blob.read()

    def rest(self) -> None:
        """Nothing is read or written for a while: others may fold the log."""
        self._reads = 0
        self._let_go()
        if self._db.in_transaction:
            with self._translate_errors():
                self._db.execute("COMMIT")

    def pages_after(self, number: int) -> Iterator[log_pages.LogPage]:
        """All pages after that one, in order and without a gap."""
        with self._translate_errors():
            for name, data in self._db.execute(
                "SELECT id, CAST(data AS BLOB) FROM page WHERE id > ? ORDER BY id", (number,)
            ):
                number += 1
                if name != number:
                    raise StoreDamaged(f"page {number} is missing")
                yield log_pages.decode_page(name, data or b"")

    # ---- pieces of snapshots

    def put_piece(self, snapshot: int, number: int, data: bytes) -> None:
        """Add a piece to a snapshot."""
        name = snapshot << PIECE_BITS | number
        with self._translate_errors():
            self._db.execute("INSERT INTO piece VALUES (?, ?)", (name, _summed(name, data)))

    def pieces(self, snapshot: int) -> Iterator[bytes]:
        """The pieces of a snapshot, in order and without a gap."""
        low, high = snapshot << PIECE_BITS, snapshot + 1 << PIECE_BITS
        query = "SELECT id, CAST(data AS BLOB) FROM piece WHERE id >= ? AND id < ? ORDER BY id"
        with self._translate_errors():
            for place, (name, data) in enumerate(self._db.execute(query, (low, high))):
                if name != low + place:
                    raise StoreDamaged(f"piece {place} of snapshot {snapshot} is missing")
                yield _checked(f"piece {place} of snapshot {snapshot}", name, data or b"")

    def drop_pieces(self, snapshot: int, limit: int) -> bool:
        """Forget some of the pieces of other snapshots; whether any are left."""
        low, high = snapshot << PIECE_BITS, snapshot + 1 << PIECE_BITS
        others = "SELECT id FROM piece WHERE id < ? OR id >= ? LIMIT ?"
        with self._translate_errors():
            self._db.execute(f"DELETE FROM piece WHERE id IN ({others})", (low, high, limit))  # noqa: S608
            return bool(self._db.execute(others, (low, high, 1)).fetchone())

    # ---- meta

    def meta(self, name: str) -> bytes | None:
        """A value of the file itself."""
        with self._translate_errors():
            query = "SELECT CAST(value AS BLOB) FROM meta WHERE name = ?"
            row = self._db.execute(query, (name,)).fetchone()
            return None if row is None else _checked(f"the file's {name!r}", 0, row[0] or b"")

    def set_meta(self, name: str, value: bytes) -> None:
        """Say it anew."""
        with self._translate_errors():
            self._db.execute("REPLACE INTO meta VALUES (?, ?)", (name, _summed(0, value)))

    def _required(self, name: str) -> bytes:
        value = self.meta(name)
        if value is None:
            raise StoreDamaged(f"the file's {name!r} is missing")
        return value

    # ---- opening and closing

    def _connect(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE
        db = apsw.Connection(str(self.path), flags=flags, vfs=self._vfs)
        try:
            db.set_busy_timeout(10_000)
            # A file that is refused keeps its log as it is: only `close` folds it in.
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {self._level}")
            db.execute("PRAGMA cache_size = -4096")
        except BaseException:
            db.close(True)
            raise
        return db

    def _written(self, _db: apsw.Connection, _name: str, count: int) -> int:
        """After a commit: a long log is folded into the file meanwhile, by another thread."""
        if count > WAL_PAGES:
            self._checkpointer.fold()
        if count > 4 * WAL_PAGES and not self._checkpointer.is_folding:
            with suppress(apsw.Error):  # the commit stands, whatever becomes of this
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        return apsw.SQLITE_OK

    def close(self) -> None:
        """Fold the log into the file, and let go."""
        self._checkpointer.close()
        with suppress(apsw.Error):  # the log is whole, and is folded by whoever opens it next
            self.rest()
            self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            if self._writer is not self._db:
                self._writer.close()
            self._db.close()

    def abandon(self) -> None:
        """Let go of the file as it is, its log included, after an opening that failed."""
        self._checkpointer.close()
        for db in {self._writer, self._db}:
            with suppress(apsw.Error):
                db.close(True)

    def is_writable(self) -> bool:
        """Whether a write would go through now."""
        with suppress(StoreError):
            self.set_meta("tried", b"")
            return True
        return False

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Errors of SQLite and damage are said of this file, with the way out."""
        try:
            yield
        except StoreDamaged as error:
            raise StoreDamaged(damaged(self.path, str(error))) from None
        except apsw.Error as error:
            raise explained(self.path, error) from error


class _Checkpointer:
    """A thread that folds the write-ahead log into the file, so that no verb waits for the disk."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._wanted = threading.Event()
        self._is_closed = False
        self.is_folding = False
        self._thread: threading.Thread | None = None

    def fold(self) -> None:
        """Soon."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="outrider-fold")
            self._thread.start()
        if not self.is_folding:
            self.is_folding = True
            self._wanted.set()

    def _run(self) -> None:
        with suppress(apsw.Error):  # a log that cannot be folded stays, and the next verb will tell
            db = self._connect()
            while self._wanted.wait() and not self._is_closed:
                self._wanted.clear()
                with suppress(apsw.BusyError, apsw.FullError, apsw.IOError):
                    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                self.is_folding = False
            db.close()

    def close(self) -> None:
        self._is_closed = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()


def _create(path: Path) -> None:
    """A new file appears whole or not at all."""
    draft = Path(f"{path}-new-{uuid.uuid4().hex[:8]}")
    try:
        db = apsw.Connection(str(draft))
        try:
            _write_first(db)
        finally:
            db.close()
        with suppress(FileExistsError):  # somebody else was quicker: theirs is as good
            os.link(draft, path)
    except (apsw.Error, OSError) as error:
        raise _not_made(path, error) from error
    finally:
        for part in (draft, Path(f"{draft}-journal")):
            part.unlink(missing_ok=True)


def _write_first(db: apsw.Connection) -> None:
    with db:
        db.execute(_SCHEMA)
        for name, value in (
            ("id", uuid.uuid4().hex.encode()),
            ("secret", secrets.token_bytes(32)),
        ):
            db.execute("INSERT INTO meta VALUES (?, ?)", (name, _summed(0, value)))
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {FORMAT}")


def _not_made(path: Path, error: Exception) -> StoreError:
    if not path.parent.is_dir():
        return StoreUnusable(f"{path}: there is no directory {path.parent}; make it first")
    if isinstance(error, apsw.FullError | apsw.IOError) or _is_want_of_room(error):
        return StoreFull(f"{path}: no room for a new file; make room, and try again")
    return StoreUnusable(f"{path}: a new file cannot be made here ({error}); try another directory")


def _is_want_of_room(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_file(path: Path) -> None:
    """Refuse what is not a file of ours that can be used, before SQLite touches it."""
    try:
        info = path.stat()
        head = b"" if not stat.S_ISREG(info.st_mode) else _first_bytes(path)
    except OSError as error:
        raise StoreUnusable(f"{path}: cannot be read ({error.strerror})") from error
    if not stat.S_ISREG(info.st_mode):
        raise StoreUnusable(f"{path} is not a file; name one, such as {path}/crawl.outrider")
    if not head:
        raise StoreDamaged(damaged(path, "it is empty, which no file of ours ever is"))
    if head[:16] != _MAGIC or int.from_bytes(head[68:72], "big") != APPLICATION:
        raise StoreUnusable(_foreign(path, head))
    if int.from_bytes(head[60:64], "big") > FORMAT:
        raise StoreUnusable(f"{path} was written by a newer release of Outrider; use that one")
    if not info.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise StoreUnusable(f"{path} is read-only; make it writable, or work on a copy")
    _look_for_the_end(path, info.st_size, head)


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)


def _foreign(path: Path, head: bytes) -> str:
    if head[:16] == _MAGIC and len(head) == _HEAD_BYTES:
        return f"{path} is a SQLite database, but not one of Outrider's; name another file"
    return (
        f"{path} is not a file of Outrider, or its beginning is damaged; name another file, or see "
        f"what is left: outrider doctor {path}"
    )


def _look_for_the_end(path: Path, size: int, head: bytes) -> None:
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        return  # the log may still hold what is missing here
    width = int.from_bytes(head[16:18], "big")
    wanted = int.from_bytes(head[28:32], "big") * (65_536 if width == 1 else width)
    if size < wanted and head[24:28] == head[92:96]:
        raise StoreDamaged(damaged(path, f"it is cut short: {size:,} of {wanted:,} bytes"))


def damaged(path: Path, what: str) -> str:
    """What is said of every damage."""
    return f"{path} is damaged: {what}; see what is intact: outrider doctor {path}"


def explained(path: Path, error: apsw.Error) -> StoreError:
    """SQLite's error in our words."""
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
        return StoreUnusable(f"{path}: cannot be written ({error}); check who may write it")
    if isinstance(error, apsw.BusyError):
        return StoreError(f"{path}: another program keeps it locked ({error}); end that program")
    return StoreDamaged(damaged(path, str(error)))


def _lacks_descriptors(error: apsw.Error) -> bool:
    """Whether a file was not opened for want of a descriptor: SQLite has no word for it."""
    if not isinstance(error, apsw.CantOpenError):
        return False
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as failed:
        return failed.errno in (errno.EMFILE, errno.ENFILE)
    return False


def _summed(name: int, data: bytes) -> bytes:
    return zlib.crc32(data, name & 0xFFFFFFFF).to_bytes(4, "little") + data


def _checked(what: str, name: int, data: bytes) -> bytes:
    is_bytes = isinstance(data, bytes)  # SQLite may take a damaged row for anything
    if not is_bytes or zlib.crc32(data[4:], name & 0xFFFFFFFF).to_bytes(4, "little") != data[:4]:
        raise StoreDamaged(f"{what} is not what was written: its checksum differs")
    return data[4:]
