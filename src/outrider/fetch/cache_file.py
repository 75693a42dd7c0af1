"""A file of ours that may forget: values by key, each with a checksum, the oldest out first.

It is only a cache, so whatever it cannot read is a miss and whatever it cannot write is left; but
a file that is not ours is refused and never touched.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from outrider.errors import InvalidInput

APPLICATION: Final = 0x4F555443  # "OUTC"
FORMAT: Final = 1
MOST_VALUE: Final = 4 * 2**20

_MAGIC: Final = b"SQLite format 3\0"
_PAGE: Final = 4096
_OUT: Final = 64  # entries that go at a time
_SCHEMA: Final = """
CREATE TABLE entry (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, data BLOB NOT NULL);
"""
_GET: Final = "SELECT CAST(data AS BLOB) FROM entry WHERE key = ?"
_PUT: Final = "REPLACE INTO entry (key, data) VALUES (?, ?)"
_OLDEST: Final = "DELETE FROM entry WHERE id IN (SELECT id FROM entry ORDER BY id LIMIT ?)"
_PAGES: Final = "SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count"


class CacheFile:
    """Values by key; `path` None keeps them in memory. `trouble` says what went wrong last."""

    def __init__(self, path: str | Path | None, most_bytes: int = 2**30) -> None:
        self.path = None if path is None else Path(path)
        self.most_bytes = most_bytes
        self.trouble: str | None = None
        if self.path is not None:
            _look_at(self.path)
        self._db: apsw.Connection | None = None
        try:
            self._db = _opened(self.path)
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self._begin_anew(error)
        except apsw.Error as error:
            raise InvalidInput(_unopened(path, error)) from error

    def get(self, key: bytes) -> bytes | None:
        """A value as it was put; None if there is none, or not as it was put."""
        if self._db is None:
            return None
        try:
            data = self._db.execute(_GET, (key,)).get
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self._begin_anew(error)
            return None
        except apsw.Error as error:
            self.trouble = str(error)
            return None
        return _checked(key, data)

    def put_many(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Put values, replacing those of the same keys; too long ones are left out."""
        if self._db is None:
            return
        rows = [(key, _summed(key, value)) for key, value in entries if len(value) <= MOST_VALUE]
        try:
            with self._db:
                self._db.executemany(_PUT, rows)
                self._make_room()
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self._begin_anew(error)
        except apsw.Error as error:  # full, busy, gone: what is not kept is fetched again
            self.trouble = str(error)

    @property
    def bytes(self) -> int:
        """What the entries take."""
        pages = None if self._db is None else self._db.execute(_PAGES).get
        return (pages or 0) * _PAGE

    def _make_room(self) -> None:
        while self.bytes > self.most_bytes and self._db is not None:
            self._db.execute(_OLDEST, (_OUT,))
            if not self._db.changes():
                return

    def _begin_anew(self, error: apsw.Error) -> None:
        """A damaged file of ours is thrown away: all it held can be fetched again."""
        self.trouble = f"{self.path} was damaged ({error}) and is begun anew"
        self.close()
        if self.path is not None:
            for part in ("", "-wal", "-shm"):
                Path(f"{self.path}{part}").unlink(missing_ok=True)
        with suppress(apsw.Error):
            self._db = _opened(self.path)

    def close(self) -> None:
        """Let go; nothing is found or put any more."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(apsw.Error):
                db.close()


def _opened(path: Path | None) -> apsw.Connection:
    db = apsw.Connection(":memory:" if path is None else str(path))
    try:
        db.set_busy_timeout(100)
        db.execute(f"PRAGMA page_size = {_PAGE}")
        db.execute("PRAGMA synchronous = OFF")  # power lost: begun anew, at worst
        db.execute("PRAGMA cache_size = -4096")
        with db:
            if not db.execute("PRAGMA user_version").get:
                db.execute(_SCHEMA)
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                db.execute(f"PRAGMA user_version = {FORMAT}")
        db.execute("PRAGMA journal_mode = WAL")  # now that the file says whose it is
    except apsw.Error:
        db.close()
        raise
    return db


def _look_at(path: Path) -> None:
    """Refuse what is not ours before SQLite touches it; an empty file holds nothing to lose."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidInput(_unopened(path, error)) from error
    if not head:
        return
    if head[:16] != _MAGIC or int.from_bytes(head[68:72], "big") != APPLICATION:
        raise InvalidInput(f"{path} is not a cache of Outrider; name another file as fetch.cache")
    if int.from_bytes(head[60:64], "big") > FORMAT:
        raise InvalidInput(
            f"{path} was written by a newer release of Outrider; name another file as fetch.cache"
        )


def _unopened(path: object, error: Exception) -> str:
    return f"{path} cannot be used as a cache ({error}); name another file as fetch.cache"


def _summed(key: bytes, value: bytes) -> bytes:
    return zlib.crc32(value, zlib.crc32(key)).to_bytes(4, "little") + value


def _checked(key: bytes, data: object) -> bytes | None:
    if not isinstance(data, bytes) or _summed(key, data[4:]) != data:
        return None
    return data[4:]
