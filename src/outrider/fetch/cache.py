"""The response cache: for queues that are throttled (D5), and for "304 Not Modified".

A response is stored only if its host permits that (RFC 9111). The cache is one SQLite file: an
entry that cannot be read is a miss, an entry that cannot be written is left out, and the oldest are
evicted; but a file that is not a cache of Outrider is refused and never touched.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw
import msgspec

from outrider.core.outcome import Last
from outrider.errors import InvalidInput
from outrider.fetch.response import Response, http_date

# ---- freshness: Cache-Control, Expires and Age

MAX_AGE: Final = 365 * 86_400.0

_DIRECTIVE: Final = re.compile(r'([a-z0-9-]{1,40})[ \t]*(?:=[ \t]*"?([^",]{0,40}))?', re.IGNORECASE)


def cache_directives(response: Response) -> dict[str, str]:
    """Return the directives of Cache-Control with values; the first of a name counts."""
    found: dict[str, str] = {}
    for field in response.fields("cache-control"):
        for part in field[:1024].split(","):
            match = _DIRECTIVE.match(part.strip())
            if match is not None:
                found.setdefault(match[1].lower(), (match[2] or "").strip())
    return found


def max_age(response: Response) -> float | None:
    """Return the seconds of max-age, at most a year; None if there is none."""
    text = cache_directives(response).get("max-age", "")
    return min(float(text), MAX_AGE) if text.isascii() and text.isdigit() else None


def may_be_stored(response: Response) -> bool:
    """Whether the host permits storing the response."""
    return "no-store" not in cache_directives(response) and response.header("vary") != "*"


def is_usable(response: Response, now: float, max_stale: float) -> bool:
    """Whether a stored response may be used without a request, `max_stale` seconds too old at most.

    no-cache, no-store and must-revalidate are respected.

    """
    directives = cache_directives(response)
    if "no-cache" in directives or "no-store" in directives:
        return False
    allowance = 0.0 if "must-revalidate" in directives else max_stale
    return max(now - response.at, 0.0) <= _lifetime(response, now) + allowance


def _lifetime(response: Response, now: float) -> float:
    """Return the seconds it is fresh, counted from when it was received."""
    age = response.header("age") or ""
    gone = min(float(age), MAX_AGE) if age.isascii() and age.isdigit() else 0.0
    given = max_age(response)
    if given is not None:
        return max(given - gone, 0.0)
    made = _date_field(response, "date", now)
    made = response.at if made is None else made
    expires = _date_field(response, "expires", now)
    if response.header("expires") is not None:
        return 0.0 if expires is None else min(max(expires - made, 0.0), MAX_AGE)
    return _heuristic_lifetime(made, _date_field(response, "last-modified", now))


def _heuristic_lifetime(made: float, modified: float | None) -> float:
    """Return a tenth of the time since the last change, at most a day."""
    return 0.0 if modified is None else min(max(made - modified, 0.0) / 10, 86_400.0)


def _date_field(response: Response, name: str, now: float) -> float | None:
    text = response.header(name)
    return None if text is None else http_date(text, now)


# ---- the file

APPLICATION_ID: Final = 0x4F555443  # "OUTC"
FORMAT_VERSION: Final = 1
MAX_VALUE_BYTES: Final = 4 * 2**20

_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_PAGE_BYTES: Final = 4096
_EVICTED_AT_ONCE: Final = 64  # entries
_SCHEMA: Final = """
CREATE TABLE entry (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, data BLOB NOT NULL);
"""
_GET: Final = "SELECT CAST(data AS BLOB) FROM entry WHERE key = ?"
_PUT: Final = "REPLACE INTO entry (key, data) VALUES (?, ?)"
_EVICT: Final = "DELETE FROM entry WHERE id IN (SELECT id FROM entry ORDER BY id LIMIT ?)"
_USED_PAGES: Final = (
    "SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count"
)


class CacheFile:
    """Values by key, each with a checksum; `path` None keeps them in memory.

    `trouble` is the last error.
    """

    def __init__(self, path: str | Path | None, max_bytes: int = 2**30) -> None:
        self.path = None if path is None else Path(path)
        self.max_bytes = max_bytes
        self.trouble: str | None = None
        if self.path is not None:
            _check_file_head(self.path)
        self._db: apsw.Connection | None = None
        try:
            self._db = _open_database(self.path)
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self._start_empty(error)
        except apsw.Error as error:
            raise InvalidInput(_unusable(path, error)) from error

    def get(self, key: bytes) -> bytes | None:
        """Return a value; None if it is absent or damaged."""
        if self._db is None:
            return None
        try:
            data = self._db.execute(_GET, (key,)).get
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self._start_empty(error)
            return None
        except apsw.Error as error:
            self.trouble = str(error)
            return None
        return _verified(key, data)

    def put_many(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Put values, replacing those of the same keys; too long ones are left out."""
        if self._db is None:
            return
        rows = [
            (key, _with_checksum(key, value))
            for key, value in entries
            if len(value) <= MAX_VALUE_BYTES
        ]
        try:
            with self._db:
                self._db.executemany(_PUT, rows)
                self._evict_oldest()
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self._start_empty(error)
        except apsw.Error as error:  # full, busy or gone: what is not stored is fetched again
            self.trouble = str(error)

    @property
    def bytes(self) -> int:
        """How many bytes the entries take."""
        pages = None if self._db is None else self._db.execute(_USED_PAGES).get
        return (pages or 0) * _PAGE_BYTES

    def _evict_oldest(self) -> None:
        while self.bytes > self.max_bytes and self._db is not None:
            self._db.execute(_EVICT, (_EVICTED_AT_ONCE,))
            if not self._db.changes():
                return

    def _start_empty(self, error: apsw.Error) -> None:
        """Replace a damaged cache by an empty one: all it held can be fetched again."""
        self.trouble = f"{self.path} was damaged ({error}) and was replaced by an empty cache"
        self.close()
        if self.path is not None:
            for part in ("", "-wal", "-shm"):
                Path(f"{self.path}{part}").unlink(missing_ok=True)
        with suppress(apsw.Error):
            self._db = _open_database(self.path)

    def close(self) -> None:
        """Close the file; nothing is found or put any more."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(apsw.Error):
                db.close()


def _open_database(path: Path | None) -> apsw.Connection:
    db = apsw.Connection(":memory:" if path is None else str(path))
    try:
        db.set_busy_timeout(100)
        db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        db.execute("PRAGMA synchronous = OFF")  # after a power loss the cache may start empty
        db.execute("PRAGMA cache_size = -4096")
        with db:
            if not db.execute("PRAGMA user_version").get:
                db.execute(_SCHEMA)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        db.execute("PRAGMA journal_mode = WAL")  # after the file has its application id
    except apsw.Error:
        db.close()
        raise
    return db


def _check_file_head(path: Path) -> None:
    """Refuse other files before SQLite touches them; an empty file holds nothing to lose."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidInput(_unusable(path, error)) from error
    if not head:
        return
    if head[:16] != _SQLITE_MAGIC or int.from_bytes(head[68:72], "big") != APPLICATION_ID:
        raise InvalidInput(f"{path} is not a cache of Outrider; set fetch.cache to another file")
    if int.from_bytes(head[60:64], "big") > FORMAT_VERSION:
        raise InvalidInput(
            f"{path} was written by a newer release of Outrider; set fetch.cache to another file"
        )


def _unusable(path: object, error: Exception) -> str:
    return f"{path} cannot be used as a cache ({error}); set fetch.cache to another file"


def _with_checksum(key: bytes, value: bytes) -> bytes:
    return zlib.crc32(value, zlib.crc32(key)).to_bytes(4, "little") + value


def _verified(key: bytes, data: object) -> bytes | None:
    if not isinstance(data, bytes) or _with_checksum(key, data[4:]) != data:
        return None
    return data[4:]


# ---- responses

MAX_CACHED_BODY: Final = 2 * 2**20  # bytes; longer ones are not stored
BATCH: Final = 64  # responses written at once, or
BATCH_BYTES: Final = 4 * 2**20  # bytes

_MIN_PACKED_BYTES: Final = 512
_CACHED_STATUSES: Final = frozenset((200, 203))
# Fields that reading a page, its age and its validators needs.
_CACHED_FIELDS: Final = frozenset(
    (
        *("content-disposition", "content-language", "content-location", "content-type"),
        *("age", "cache-control", "date", "etag", "expires", "last-modified", "vary"),
        *("link", "x-robots-tag"),
    )
)
_VALIDATOR: Final = re.compile(r"[\x21-\x7e\x80-\xff][\x20-\x7e\x80-\xff]{0,1023}").fullmatch


class _CachedResponse(msgspec.Struct, array_like=True, gc=False):
    url: str
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    at: float
    is_packed: bool
    body: bytes


class ResponseCache:
    """Responses by the fingerprint of their task."""

    def __init__(self, file: CacheFile) -> None:
        self._file = file
        self._batch: dict[bytes, bytes] = {}
        self._batch_bytes = 0

    def get(self, fingerprint: bytes) -> Response | None:
        """Return the response stored for a task, whether or not it `is_usable`."""
        data = self._batch.get(fingerprint) or self._file.get(fingerprint)
        return None if data is None else _decode_response(data)

    def put(self, fingerprint: bytes, response: Response) -> bool:
        """Store a response in place of the last one, if its host permits that."""
        if response.status not in _CACHED_STATUSES or len(response.body) > MAX_CACHED_BODY:
            return False
        if not may_be_stored(response):
            return False
        data = self._batch[fingerprint] = _encode_response(response)
        self._batch_bytes += len(data)
        if len(self._batch) >= BATCH or self._batch_bytes >= BATCH_BYTES:
            self.flush()
        return True

    def flush(self) -> None:
        """Write the responses of the current batch."""
        if self._batch:
            self._file.put_many(list(self._batch.items()))
            self._batch.clear()
            self._batch_bytes = 0

    def close(self) -> None:
        """Write the rest, and close the file."""
        self.flush()
        self._file.close()


def conditional_headers(last: Last | None) -> dict[str, str]:
    """Return fields that request a page only if it changed since its task's last answer (K1).

    A task without one is not asked about so, whatever is stored: its links are still to be read,
    and a 304 would bring none.
    """
    if last is None:
        return {}
    fields = {"If-None-Match": last.answer.etag, "If-Modified-Since": last.answer.last_modified}
    return {name: text for name, text in fields.items() if text is not None and _VALIDATOR(text)}


def is_last_answer(cached: Response, last: Last | None) -> bool:
    """Whether a stored response is the last answer to its task, by its validators.

    It may be of another crawl, or of a visit that was lost after it was stored.
    """
    if last is None:
        return False
    answer = last.answer.etag, last.answer.last_modified
    return answer == validators_of(cached) != (None, None)


def validators_of(response: Response) -> tuple[str | None, str | None]:
    """Return ETag and Last-Modified."""
    return response.header("etag"), response.header("last-modified")


def merge_not_modified(cached: Response, unchanged: Response) -> Response:
    """Return the stored response as a 304 confirms it: its body, with the new age and fields."""
    directives = {name.lower() for name, _ in unchanged.headers} & _CACHED_FIELDS
    headers = tuple(field for field in cached.headers if field[0].lower() not in directives)
    headers += tuple(field for field in unchanged.headers if field[0].lower() in directives)
    return msgspec.structs.replace(
        cached, headers=headers, at=unchanged.at, seconds=unchanged.seconds
    )


def _encode_response(response: Response) -> bytes:
    body, is_packed = response.body, len(response.body) >= _MIN_PACKED_BYTES
    stored = _CachedResponse(
        response.url,
        response.status,
        response.reason,
        tuple(field for field in response.headers if field[0].lower() in _CACHED_FIELDS),
        response.at,
        is_packed,
        zlib.compress(body, 1) if is_packed else body,
    )
    return msgspec.msgpack.encode(stored)


def _decode_response(data: bytes) -> Response | None:
    try:
        stored = msgspec.msgpack.decode(data, type=_CachedResponse)
        body = (
            zlib.decompressobj().decompress(stored.body, MAX_CACHED_BODY)
            if stored.is_packed
            else stored.body
        )
    except (msgspec.DecodeError, zlib.error):
        return None  # written by another release
    return Response(stored.url, stored.status, stored.headers, body, 0.0, stored.at, stored.reason)
