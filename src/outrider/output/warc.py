"""Output as WARC 1.1: each response as it was sent, one gzip member per record.

If requests are kept, each has a record behind that of its response. Both are written as one piece,
so a kill leaves both or none.

An unchanged page is written as a revisit record only if this process wrote the record that it
refers to, so an archive never refers to a record that may be missing.
"""

from __future__ import annotations

import re
import zlib
from base64 import b32encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha1
from io import BytesIO
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from warcio.warcwriter import WARCWriter  # type: ignore[import-untyped]  # it has no types

from outrider.core.outcome import Done
from outrider.fetch.response import Response
from outrider.output.file_sink import NO_VISIT, FileSink, Record
from outrider.output.sink import Visit

NOT_MODIFIED: Final = 304
MAX_CAPTURES: Final = 50_000  # pages that a later visit may refer to
COMPRESSION: Final = 6  # level 9 takes twice as long and saves one percent

_SUFFIX: Final = ".warc"
_UNCHANGED: Final = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
_NEWLINES: Final = re.compile(r"[\r\n]+")
_KNOWN_CODINGS: Final = {"gzip", "deflate"}  # warcio fails on brotli
_KNOWN_VERSIONS: Final = {"1.0", "1.1"}  # of HTTP, that readers of archives know


class Capture(NamedTuple):
    """A written response that a later visit of the same page may refer to."""

    url: str
    date: str
    digest: str


class _Head:
    """An HTTP head as warcio expects it, byte for byte: its own class rewrites non-ASCII bytes."""

    def __init__(self, data: bytes) -> None:
        self.headers_buff = data

    def compute_headers_buffer(self, header_filter: object = None) -> None:
        """Do nothing: the bytes are complete."""


def warc_sink(
    path: str | Path, *, info: Mapping[str, str], max_bytes: int = 10**9, sync: bool = False
) -> FileSink:
    """Write responses to `<path>-00001.warc.gz` and on; each file begins with `info`."""
    stem = Path(path)
    name = stem.name.removesuffix(".gz").removesuffix(_SUFFIX)
    return FileSink(stem.with_name(name + _SUFFIX), Warc(name, info, max_bytes), sync=sync)


class Warc:
    """Implements `Format` as WARC files."""

    def __init__(self, stem: str, info: Mapping[str, str], max_bytes: int) -> None:
        self._stem, self._info, self._max_bytes = stem, info, max_bytes
        self._number = 1
        self._writer = WARCWriter(BytesIO(), gzip=False, warc_version="1.1")
        self._captures: dict[bytes, Capture] = {}
        self._fresh: dict[int, tuple[bytes, Capture]] = {}  # of the last batch

    @property
    def names(self) -> tuple[str]:
        """See `Format`."""
        return (f"{self._stem}-{self._number:05}{_SUFFIX}.gz",)

    def owns(self, name: str) -> bool:
        """See `Format`."""
        return self._number_in(name) > 0

    def _number_in(self, name: str) -> int:
        found = re.fullmatch(rf"{re.escape(self._stem)}-([0-9]{{5,}})\.warc\.gz", name)
        return int(found[1]) if found else 0

    def open(self, folder: Path, *, is_fresh: bool) -> None:
        """See `Format`; without a journal, existing files are left alone and a new one used."""
        last = max((self._number_in(path.name) for path in folder.iterdir()), default=0)
        self._number = last + 1 if is_fresh or not last else last

    def records(self, visits: Sequence[Visit], length_of: Callable[[str], int]) -> list[Record]:
        """See `Format`."""
        self._fresh = {}
        chosen = [
            (index, visit)
            for index, visit in enumerate(visits)
            if isinstance(visit.outcome, Done) and getattr(visit.page, "response", None)
        ]
        if not chosen:
            return []
        if length_of(self.names[0]) >= self._max_bytes:
            self._number += 1
        (name,) = self.names
        first = [] if length_of(name) else [Record(NO_VISIT, name, self._warcinfo(name))]
        return first + [Record(index, name, self._page(index, visit)) for index, visit in chosen]

    def confirm(self, visits: Iterable[int]) -> None:
        """See `Format`."""
        for index in visits:
            if index in self._fresh:
                fingerprint, capture = self._fresh[index]
                self._captures.pop(fingerprint, None)
                self._captures[fingerprint] = capture
        while len(self._captures) > MAX_CAPTURES:
            del self._captures[next(iter(self._captures))]

    def _warcinfo(self, name: str) -> bytes:
        return self._compress(self._writer.create_warcinfo_record(name, dict(self._info)))

    def _page(self, index: int, visit: Visit) -> bytes:
        """Return the record of a response, and of its request if that is kept."""
        response: Response = visit.page.response
        headers = {"WARC-Date": _date(response.at), **_address(response.address)}
        if response.request is None:
            return self._response(index, visit, headers)
        ours, theirs = f"<urn:uuid:{uuid4()}>", f"<urn:uuid:{uuid4()}>"
        linked = {"WARC-Record-ID": theirs, "WARC-Concurrent-To": ours}
        answer = self._response(index, visit, headers | linked)
        request = self._writer.create_warc_record(
            response.url,
            "request",
            warc_headers_dict={**headers, "WARC-Record-ID": ours, "WARC-Concurrent-To": theirs},
            http_headers=_Head(response.request),
        )
        return answer + self._compress(request)

    def _response(self, index: int, visit: Visit, headers: dict[str, str]) -> bytes:
        response: Response = visit.page.response
        fingerprint, date = visit.lease.fingerprint, headers["WARC-Date"]
        before = self._captures.get(fingerprint)
        if response.status == NOT_MODIFIED:
            return self._not_modified(response, headers, before)
        payload, coding = _payload(response)
        digest = f"sha1:{b32encode(sha1(payload, usedforsecurity=False).digest()).decode()}"
        if before is not None and payload and before.digest == digest:
            return self._same(response, headers, before)
        self._fresh[index] = fingerprint, Capture(response.url, date, digest)
        record = self._writer.create_warc_record(
            response.url,
            "response",
            payload=BytesIO(payload),
            length=len(payload),
            warc_headers_dict={**headers, "WARC-Payload-Digest": digest},
            http_headers=_Head(_head(response, _stored_headers(response, coding, len(payload)))),
        )
        return self._compress(record)

    def _not_modified(
        self, response: Response, headers: dict[str, str], before: Capture | None
    ) -> bytes:
        profile = {"WARC-Profile": _UNCHANGED, **({} if before is None else _refers_to(before))}
        record = self._writer.create_warc_record(
            response.url,
            "revisit",
            warc_headers_dict=headers | profile,
            http_headers=_Head(_head(response, response.headers)),
        )
        return self._compress(record)

    def _same(self, response: Response, headers: dict[str, str], before: Capture) -> bytes:
        record = self._writer.create_revisit_record(
            response.url,
            before.digest,
            before.url,
            before.date,
            http_headers=_Head(_head(response, response.headers)),
            warc_headers_dict=headers,
        )
        return self._compress(record)

    def _compress(self, record: Any) -> bytes:
        self._writer.out = out = BytesIO()
        self._writer.write_record(record)
        return zlib.compress(out.getvalue(), COMPRESSION, wbits=zlib.MAX_WBITS | 16)


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _refers_to(capture: Capture) -> dict[str, str]:
    return {
        "WARC-Refers-To-Target-URI": capture.url,
        "WARC-Refers-To-Date": capture.date,
        "WARC-Payload-Digest": capture.digest,
    }


def _address(address: str) -> dict[str, str]:
    try:
        return {"WARC-IP-Address": str(ip_address(address))}
    except ValueError:
        return {}


def _payload(response: Response) -> tuple[bytes, str | None]:
    """The body as it is stored and its encoding: as it was sent, if every reader can decode it."""
    coding = (response.header("Content-Encoding") or "").strip().lower()
    if response.packed is None or coding not in _KNOWN_CODINGS:
        return response.body, None
    return response.packed, coding


def _stored_headers(response: Response, coding: str | None, length: int) -> list[tuple[str, str]]:
    """The header fields for the stored body; fields that do not fit it become `X-Crawler-…`."""
    fits = {"transfer-encoding": None, "content-encoding": coding, "content-length": str(length)}
    fields, is_changed = [], False
    for name, value in response.headers:
        is_off = name.lower() in fits and fits[name.lower()] != value.strip().lower()
        is_changed = is_changed or is_off
        fields.append((f"X-Crawler-{name}" if is_off else name, value))
    return [*fields, ("Content-Length", str(length))] if is_changed else fields


def _head(response: Response, headers: Iterable[tuple[str, str]]) -> bytes:
    version = response.version if response.version in _KNOWN_VERSIONS else "1.1"
    lines = [f"HTTP/{version} {response.status} {response.reason}".rstrip()]
    lines += [f"{name}: {value}" for name, value in headers]
    text = "".join(f"{_NEWLINES.sub(' ', line)}\r\n" for line in lines) + "\r\n"
    return text.encode("utf-8", "surrogateescape")  # as aiohttp decodes bytes that are not UTF-8
