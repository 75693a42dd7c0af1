"""Bodies unpacked: whatever a host sends, hardly more than the limit is ever made of it.

What both clients are made of: who we say we are, whom we may speak to, how much we read.
"""

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

# ==== body

ACCEPT_ENCODING: Final = "gzip, deflate, br"
MAX_ENCODINGS: Final = 3  # encodings on top of each other
MAX_GZIP_MEMBERS: Final = 100  # of one gzip body: each costs a copy of what follows
CUT_BODY: Final = "cut: packed body"

_GZIP: Final = 16 + zlib.MAX_WBITS
_MAGIC: Final = b"\x1f\x8b"


def unpack(body: bytes, encoding: str, most: int) -> bytes | str:
    """What was packed as the header `Content-Encoding` says, or the reason why it cannot be had.

    An encoding we do not know, and all beneath it, is left as it is: what servers write there is
    often no encoding at all.
    """
    layers = [name for name in encoding.lower().replace(" ", "").split(",") if name != "identity"]
    if not body:
        return body
    if len(layers) > MAX_ENCODINGS:
        return BAD_ENCODING
    for name in reversed(layers):
        if name not in _UNPACKERS:
            return body
        unpacked = _try_unpack(body, _UNPACKERS[name], most)
        if isinstance(unpacked, str):
            return unpacked
        body = unpacked
    return body


def _try_unpack(body: bytes, unpacker: _Unpacker, most: int) -> bytes | str:
    try:
        return unpacker(body, most)
    except (zlib.error, brotli.error):
        return BAD_ENCODING


def _gunzip(body: bytes, most: int) -> bytes | str:
    pieces, room = [], most
    for _ in range(MAX_GZIP_MEMBERS):
        member = zlib.decompressobj(_GZIP)
        pieces.append(member.decompress(body, room + 1))
        room -= len(pieces[-1])
        if room < 0:
            return BODY_TOO_LARGE
        if not member.eof:
            return CUT_BODY
        body = member.unused_data
        if not body.startswith(_MAGIC):  # padding, which every browser ignores
            return b"".join(pieces)
    return BAD_ENCODING


def _inflate(body: bytes, most: int) -> bytes | str:
    # By the standard it has zlib's frame; many servers leave that out.
    framed = body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:2], "big") % 31 == 0
    stream = zlib.decompressobj(zlib.MAX_WBITS if framed else -zlib.MAX_WBITS)
    unpacked = stream.decompress(body, most + 1)
    if len(unpacked) > most:
        return BODY_TOO_LARGE
    return unpacked if stream.eof else CUT_BODY


def _unbrotli(body: bytes, most: int) -> bytes | str:
    stream = brotli.Decompressor()
    # It stops within one block of the limit, and blocks double: less than twice the limit is made.
    unpacked: bytes = stream.process(body, output_buffer_limit=most + 1)
    if len(unpacked) > most:
        return BODY_TOO_LARGE
    return unpacked if stream.is_finished() else CUT_BODY


_Unpacker = Callable[[bytes, int], bytes | str]
_UNPACKERS: Final[dict[str, _Unpacker]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
}


# ==== getting

ACCEPT: Final = (
    "text/html,application/xhtml+xml,application/atom+xml,application/rss+xml,"
    "application/xml;q=0.9,*/*;q=0.8"
)


NO_ROUTE: Final = "connect: no route"
# What a host's reasons look like when it is the network of this machine that is gone.
_NETWORK_SUSPECTED: Final = (
    "dns:",
    NO_ROUTE,
    "connect: time limit",
    "connect: failed",
    "time limit:",
    "cut:",
)


class HttpClient(ABC):
    """To be closed in the end, or opened with `async with`.

    `keep_packed` keeps compressed bodies as they were sent, beside the unpacked.
    """

    def __init__(
        self,
        settings: FetchSettings,
        *,
        allow_private: bool = False,
        keep_packed: bool = False,
        _clock: Clock | None = None,
        _lookup: Lookup | None = None,
        _network: Network | None = None,
    ) -> None:
        self._settings = settings
        self._network = _network or Network()
        self._keep_packed = keep_packed
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

    def _most(self, asked: int | None) -> int:
        """Bytes of a body, unpacked."""
        limit = self._settings.max_body
        return limit if asked is None else min(asked, limit)

    async def _trouble(self, reason: str, seconds: float, host: str) -> RequestFailure:
        """A reason as the outcome it is, or a `LocalFault` if this machine is at fault."""
        judged = await self._judged(reason, host)
        if not is_local(judged):
            return outcome_of_reason(judged, seconds)
        if judged == EMFILE:
            self.close_idle()
        raise local_fault(judged)

    async def _judged(self, reason: str, host: str) -> str:
        """The same reason, unless it is another's fault than it seems."""
        addresses = self._resolver.known(host)
        if reason == PORTS and not self._network.leads_to(addresses):
            reason = NO_ROUTE  # of that family this machine has no address at all
        if reason.startswith(_NETWORK_SUSPECTED) and self._network.is_gone(addresses):
            return NETWORK
        if reason in RESOLVER_SUSPECTED and await self._resolver.is_out(host):
            return RESOLVER
        return reason

    @abstractmethod
    def close_idle(self) -> None:
        """Close connections that are kept for reuse: descriptors are short."""

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
    """What hosts read: the product as set, or with our version and the contact."""
    product = settings.user_agent
    if "/" in product:
        return product
    contact = f" (+{settings.contact})" if settings.contact else ""
    return f"{product}/{version('outrider')}{contact}"


MAX_HEADER_FIELDS: Final = 256  # header fields of one answer


def request_url(url: str) -> URL:
    """The URL as it is spelt, or `InvalidURL`."""
    try:
        if url.find("?") == len(url) - 1:  # yarl forgets a query without a character
            bare = URL(url[:-1], encoded=True)
            return bare.with_path(bare.raw_path + "?", encoded=True)
        return URL(url, encoded=True)
    except ValueError as error:
        raise InvalidURL(url) from error


def sendable_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Those that can be sent: an ETag of a host may hold anything."""
    return {name: value for name, value in headers.items() if _SENDABLE(value)}


_SENDABLE: Final = re.compile(r"[\t -~\x80-\U0010ffff]*").fullmatch


NO_HEADERS: Final[Mapping[str, str]] = {}


def header_text(value: bytes) -> str:
    """UTF-8 if it is, else Latin-1: any bytes at all are text then, and can be written down."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


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


MAX_INTERIM_RESPONSES: Final = 16  # answers such as 100 and 103 before the real one


IDLE_SECONDS: Final = 15.0  # seconds an unused connection is kept
