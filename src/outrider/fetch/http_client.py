"""What both HTTP clients share: settings, limits, addresses, reasons, and bounded decompression."""

from __future__ import annotations

import errno
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib.metadata import version
from types import TracebackType
from typing import Final, Self

import brotli  # type: ignore[import-untyped]  # it has no stubs
from aiohttp import InvalidURL
from yarl import URL

from outrider.clock import Clock, SystemClock
from outrider.fetch.dns import RESOLVER_SUSPECTED, AddressGuard, ConnectTo, Lookup, Resolver
from outrider.fetch.local_faults import (
    EMFILE,
    ERRNOS,
    NETWORK,
    PORTS,
    RESOLVER,
    Network,
    is_local,
    local_fault,
)
from outrider.fetch.response import BAD_ENCODING, BODY_TOO_LARGE, RequestFailure, outcome_of_reason
from outrider.settings.worker_schema import FetchSettings

ACCEPT: Final = (
    "text/html,application/xhtml+xml,application/atom+xml,application/rss+xml,"
    "application/xml;q=0.9,*/*;q=0.8"
)
ACCEPT_ENCODING: Final = "gzip, deflate, br"
MAX_HEADER_FIELDS: Final = 256  # of one response
MAX_INTERIM_RESPONSES: Final = 16  # responses such as 100 and 103 before the final one
IDLE_SECONDS: Final = 15.0  # seconds an unused connection is kept
NO_HEADERS: Final[Mapping[str, str]] = {}

NO_ROUTE: Final = "connect: no route"
# Reasons that are also reported when this machine's network is gone.
_NETWORK_SUSPECTED: Final = (
    "dns:",
    NO_ROUTE,
    "connect: time limit",
    "connect: failed",
    "time limit:",
    "cut:",
)
CONNECT_ERRNOS: Final = {
    errno.ECONNREFUSED: "connect: refused",
    errno.ECONNRESET: "connect: reset",
    errno.ECONNABORTED: "connect: reset",
    errno.EPIPE: "connect: reset",
    errno.EHOSTUNREACH: "connect: no route",
    errno.ENETUNREACH: "connect: no route",
    errno.ETIMEDOUT: "connect: time limit",
    errno.EADDRNOTAVAIL: PORTS,
    **ERRNOS,
}

_SENDABLE: Final = re.compile(r"[\t -~\x80-\U0010ffff]*").fullmatch


class HttpClient(ABC):
    """The base of an HTTP client; open it with `async with`, or close it.

    `keep_packed` keeps compressed bodies as sent, beside the decompressed; `keep_request` keeps the
    request as sent.
    """

    def __init__(
        self,
        settings: FetchSettings,
        *,
        allow_private: bool = False,
        keep_packed: bool = False,
        keep_request: bool = False,
        _clock: Clock | None = None,
        _lookup: Lookup | None = None,
        _network: Network | None = None,
    ) -> None:
        self._settings = settings
        self._network = _network or Network()
        self._keep_packed = keep_packed
        self._keep_request = keep_request
        self._clock = _clock or SystemClock()
        self._guard = AddressGuard(allow_private=allow_private)
        self._resolver = Resolver(
            self._guard,
            ConnectTo(settings.connect_to),
            max_age=settings.dns_max_age,
            lookup=_lookup,
        )
        self._headers = {
            "User-Agent": user_agent(settings),
            "Accept": ACCEPT,
            "Accept-Encoding": ACCEPT_ENCODING,
        }

    def _body_limit(self, asked: int | None) -> int:
        """Return how many bytes a decompressed body may have."""
        limit = self._settings.max_body
        return limit if asked is None else min(asked, limit)

    async def _failure(self, reason: str, seconds: float, host: str) -> RequestFailure:
        """Return a reason as an outcome; raise `LocalFault` if this machine is at fault."""
        final = await self._final_reason(reason, host)
        if not is_local(final):
            return outcome_of_reason(final, seconds)
        if final == EMFILE:
            self.close_idle()
        raise local_fault(final)

    async def _final_reason(self, reason: str, host: str) -> str:
        """Return the reason, or another if this machine's network or resolver is the cause."""
        addresses = self._resolver.known(host)
        if reason == PORTS and not self._network.leads_to(addresses):
            reason = NO_ROUTE  # this machine has no address of that family
        if reason.startswith(_NETWORK_SUSPECTED) and self._network.is_gone(addresses):
            return NETWORK
        if reason in RESOLVER_SUSPECTED and await self._resolver.is_failing(host):
            return RESOLVER
        return reason

    @abstractmethod
    def close_idle(self) -> None:
        """Close connections that are kept for reuse, to free descriptors."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections; requests under way fail."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def user_agent(settings: FetchSettings) -> str:
    """Return the User-Agent field: as set, or with Outrider's version and the contact."""
    product = settings.user_agent
    if "/" in product:
        return product
    contact = f" (+{settings.contact})" if settings.contact else ""
    return f"{product}/{version('outrider')}{contact}"


def request_url(url: str) -> URL:
    """Return the URL exactly as it is written; raise `InvalidURL` if it is none."""
    try:
        if url.find("?") == len(url) - 1:  # yarl drops an empty query
            bare = URL(url[:-1], encoded=True)
            return bare.with_path(bare.raw_path + "?", encoded=True)
        return URL(url, encoded=True)
    except ValueError as error:
        raise InvalidURL(url) from error


def sendable_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that can be sent: an ETag from a host may hold any character."""
    return {name: value for name, value in headers.items() if _SENDABLE(value)}


def header_text(value: bytes) -> str:
    """Decode a header field as UTF-8, or else as Latin-1, which decodes any bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


# ---- content encodings
MAX_ENCODINGS: Final = 3  # applied to one body, one after the other
MAX_GZIP_MEMBERS: Final = 100  # each costs a copy of the rest of the body
CUT_BODY: Final = "cut: packed body"

_GZIP: Final = 16 + zlib.MAX_WBITS
_MAGIC: Final = b"\x1f\x8b"


def unpack(body: bytes, encoding: str, limit: int) -> bytes | str:
    """Decompress a body by its Content-Encoding, or return the reason why that failed.

    Little more than `limit` bytes are ever produced. An unknown encoding, and all beneath it, is
    left as it is: what servers write there is often no encoding.
    """
    layers = [name for name in encoding.lower().replace(" ", "").split(",") if name != "identity"]
    if not body:
        return body
    if len(layers) > MAX_ENCODINGS:
        return BAD_ENCODING
    for name in reversed(layers):
        if name not in _UNPACKERS:
            return body
        unpacked = _try_unpack(body, _UNPACKERS[name], limit)
        if isinstance(unpacked, str):
            return unpacked
        body = unpacked
    return body


def _try_unpack(body: bytes, unpacker: _Unpacker, limit: int) -> bytes | str:
    try:
        return unpacker(body, limit)
    except (zlib.error, brotli.error):
        return BAD_ENCODING


def _gunzip(body: bytes, limit: int) -> bytes | str:
    chunks, left = [], limit
    for _ in range(MAX_GZIP_MEMBERS):
        member = zlib.decompressobj(_GZIP)
        chunks.append(member.decompress(body, left + 1))
        left -= len(chunks[-1])
        if left < 0:
            return BODY_TOO_LARGE
        if not member.eof:
            return CUT_BODY
        body = member.unused_data
        if not body.startswith(_MAGIC):  # padding, which browsers ignore
            return b"".join(chunks)
    return BAD_ENCODING


def _inflate(body: bytes, limit: int) -> bytes | str:
    # The standard demands zlib's frame; many servers omit it.
    framed = body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:2], "big") % 31 == 0
    stream = zlib.decompressobj(zlib.MAX_WBITS if framed else -zlib.MAX_WBITS)
    unpacked = stream.decompress(body, limit + 1)
    if len(unpacked) > limit:
        return BODY_TOO_LARGE
    return unpacked if stream.eof else CUT_BODY


def _unbrotli(body: bytes, limit: int) -> bytes | str:
    stream = brotli.Decompressor()
    # It stops within one block of the limit, and blocks double: less than twice the limit.
    unpacked: bytes = stream.process(body, output_buffer_limit=limit + 1)
    if len(unpacked) > limit:
        return BODY_TOO_LARGE
    return unpacked if stream.is_finished() else CUT_BODY


_Unpacker = Callable[[bytes, int], bytes | str]
_UNPACKERS: Final[dict[str, _Unpacker]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
}
