"""Responses kept for reuse: while a host throttles us (D5), and when it says "not modified".

A response is kept only if its host allows that; what was kept is found as it was, or not at all.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

import msgspec

from outrider.core.outcome import Last
from outrider.fetch.cache_file import CacheFile
from outrider.fetch.freshness import may_be_kept
from outrider.fetch.response import Response

MOST_BODY: Final = 2 * 2**20  # longer ones are not kept
BATCH: Final = 64  # responses, or
BATCH_BYTES: Final = 4 * 2**20  # bytes, that are written at a time

_WORTH_PACKING: Final = 512
_KEPT_STATUSES: Final = frozenset((200, 203))
# What readers of a page, of its age and of its validators look at.
_KEPT_FIELDS: Final = frozenset(
    (
        *("content-disposition", "content-language", "content-location", "content-type"),
        *("age", "cache-control", "date", "etag", "expires", "last-modified", "vary"),
        *("link", "x-robots-tag"),
    )
)
_VALIDATOR: Final = re.compile(r"[\x21-\x7e\x80-\xff][\x20-\x7e\x80-\xff]{0,1023}").fullmatch


class _Kept(msgspec.Struct, array_like=True, gc=False):
    url: str
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    at: float
    is_packed: bool
    body: bytes


class Cache:
    """Responses by the fingerprint of their task."""

    def __init__(self, file: CacheFile) -> None:
        self._file = file
        self._unwritten: dict[bytes, bytes] = {}
        self._size = 0

    def get(self, fingerprint: bytes) -> Response | None:
        """The response kept for a task; whether it is still `usable` is another question."""
        data = self._unwritten.get(fingerprint) or self._file.get(fingerprint)
        return None if data is None else _decoded(data)

    def keep(self, fingerprint: bytes, response: Response) -> bool:
        """Keep a response in place of the last one, if its host allows that."""
        if response.status not in _KEPT_STATUSES or len(response.body) > MOST_BODY:
            return False
        if not may_be_kept(response):
            return False
        data = self._unwritten[fingerprint] = _encoded(response)
        self._size += len(data)
        if len(self._unwritten) >= BATCH or self._size >= BATCH_BYTES:
            self.flush()
        return True

    def flush(self) -> None:
        """Write what was not yet written."""
        if self._unwritten:
            self._file.put_many(list(self._unwritten.items()))
            self._unwritten.clear()
            self._size = 0

    def close(self) -> None:
        """Write the rest, and let the file go."""
        self.flush()
        self._file.close()


def conditions(last: Last | None, cached: Response | None) -> dict[str, str]:
    """Header fields that ask for a page only if it changed.

    A kept response is asked about by its own validators, so that on 304 it may stand in; without
    one, the validators of the last answer still save the body.
    """
    if cached is not None:
        etag, modified = cached.header("etag"), cached.header("last-modified")
    elif last is not None:
        etag, modified = last.answer.etag, last.answer.last_modified
    else:
        return {}
    fields = {"If-None-Match": etag, "If-Modified-Since": modified}
    return {name: text for name, text in fields.items() if text is not None and _VALIDATOR(text)}


def renewed(cached: Response, unchanged: Response) -> Response:
    """The kept response as a 304 confirms it: its body, with the age and fields that came now."""
    said = {name.lower() for name, _ in unchanged.headers} & _KEPT_FIELDS
    headers = tuple(field for field in cached.headers if field[0].lower() not in said)
    headers += tuple(field for field in unchanged.headers if field[0].lower() in said)
    return msgspec.structs.replace(
        cached, headers=headers, at=unchanged.at, seconds=unchanged.seconds
    )


def _encoded(response: Response) -> bytes:
    body, is_packed = response.body, len(response.body) >= _WORTH_PACKING
    kept = _Kept(
        response.url,
        response.status,
        response.reason,
        tuple(field for field in response.headers if field[0].lower() in _KEPT_FIELDS),
        response.at,
        is_packed,
        zlib.compress(body, 1) if is_packed else body,
    )
    return msgspec.msgpack.encode(kept)


def _decoded(data: bytes) -> Response | None:
    try:
        kept = msgspec.msgpack.decode(data, type=_Kept)
        body = (
            zlib.decompressobj().decompress(kept.body, MOST_BODY) if kept.is_packed else kept.body
        )
    except (msgspec.DecodeError, zlib.error):
        return None  # of a release that wrote them otherwise
    return Response(kept.url, kept.status, kept.headers, body, 0.0, kept.at, kept.reason)
