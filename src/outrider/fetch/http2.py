"""Answers as curl hands them over, line by line and piece by piece: no more than is allowed.

What curl says went wrong, as reasons: the one place that knows its codes.

One request over curl, to an address that was checked before.

curl asks no DNS: it connects to a name that exists nowhere but in the addresses it is told with
it, so nothing can come in between; and it takes no proxy from the environment.

Makes HTTP requests as `Client` does, but in HTTP/2 where a host speaks it; needs curl_cffi (K1).

Nothing is followed, nothing is read beyond the limits, nobody is impersonated, and nothing is kept
from one request to the next but connections and addresses.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2s
from typing import Any, Final, NamedTuple, TypeAlias

from aiohttp import InvalidURL
from aiohttp.abc import ResolveResult
from curl_cffi import (
    AsyncCurl,
    Curl,
    CurlECode,
    CurlError,
    CurlHttpVersion,
    CurlInfo,
    CurlMOpt,
    CurlOpt,
    ffi,
    lib,
)
from yarl import URL

from outrider.clock import Clock
from outrider.errors import SettingsError
from outrider.fetch.dns import Lookup
from outrider.fetch.http_client import (
    CONNECT_ERRNOS,
    IDLE_SECONDS,
    MAX_HEADER_FIELDS,
    MAX_INTERIM_RESPONSES,
    NO_HEADERS,
    HttpClient,
    header_text,
    request_url,
    sendable_headers,
    unpack,
)
from outrider.fetch.local_faults import CERTIFICATES, ENOMEM, ERRNOS, Network
from outrider.fetch.response import (
    BAD_URL,
    BODY_TOO_LARGE,
    HEADERS_TOO_LARGE,
    PRIVATE_ADDRESS,
    PROTOCOL_SWITCHED,
    NoConnection,
    RequestFailure,
    Response,
    outcome_of_reason,
)
from outrider.settings.environment import is_set
from outrider.settings.worker_schema import FetchSettings

# ==== incoming

_ABORT: Final = 0xFFFFFFFF  # what curl takes for "no more"
_SWITCHING: Final = 101
_FINAL: Final = 200
_BODILESS_STATUSES: Final = (204, 304)  # a 304 tells the length of another
_STATUS_LINE: Final = re.compile(rb"HTTP/(\d(?:\.\d)?) (\d{3})(?: ([^\r\n]*))?\r?\n")
_MAX_LENGTH_DIGITS: Final = 19  # of a length; curl cannot count further


class CurlResponse:
    """One answer; `trouble` is the reason why the rest of it is not wanted."""

    def __init__(self, most: int, most_field: int, now: Callable[[], float]) -> None:
        self._most, self._most_field, self._now = most, most_field, now
        self._head_size = self._interim = 0
        # One buffer: a list of pieces costs up to 85 bytes for each byte that comes on its own.
        self._body = bytearray()
        self.trouble = ""
        self.heard = 0.0  # when the last of it came
        self.status = 0
        self.version = self.reason = ""
        self.fields: list[tuple[str, str]] = []
        self.is_headed = False  # the head is whole

    def line(self, line: bytes) -> int:
        """Take a line of a head, or of trailers."""
        self.heard = self._now()
        self._head_size += len(line)
        is_long = len(line) > self._most_field or self._head_size > 4 * self._most_field
        self.trouble = self.trouble or (HEADERS_TOO_LARGE if is_long else self._lined(line))
        return _ABORT if self.trouble else len(line)

    def piece(self, piece: bytes) -> int:
        """Take a piece of the body."""
        self.heard = self._now()
        self._body += piece
        if len(self._body) > self._most:
            self.trouble = self.trouble or BODY_TOO_LARGE
        return _ABORT if self.trouble else len(piece)

    def _lined(self, line: bytes) -> str:
        if self.is_headed:
            return ""  # a trailer
        if not self.status:
            return self._began(line)
        if not line.strip():
            return self._headed()
        name, _, value = line.partition(b":")
        self.fields.append((name.decode("latin-1"), header_text(value.strip())))
        return HEADERS_TOO_LARGE if len(self.fields) > MAX_HEADER_FIELDS else ""

    def _began(self, line: bytes) -> str:
        parts = _STATUS_LINE.fullmatch(line)
        if parts is None:
            return "protocol: status line"
        self.version, self.status = parts[1].decode(), int(parts[2])
        self.reason = header_text((parts[3] or b"").strip())
        return PROTOCOL_SWITCHED if self.status == _SWITCHING else ""

    def _headed(self) -> str:
        if self.status >= _FINAL:
            self.is_headed = True
            return self._judged(set(self._values("content-length")))
        self.status, self.fields = 0, []
        self._interim += 1
        return "protocol: message" if self._interim > MAX_INTERIM_RESPONSES else ""

    def _judged(self, lengths: set[str]) -> str:
        if self.status in _BODILESS_STATUSES or not lengths:
            return ""
        length = lengths.pop()
        is_odd = len(length) > _MAX_LENGTH_DIGITS or not length.isdecimal()
        if lengths or is_odd or self._values("transfer-encoding"):
            return "protocol: message"
        return BODY_TOO_LARGE if int(length) > self._most else ""

    def _values(self, wanted: str) -> list[str]:
        return [value for name, value in self.fields if name.lower() == wanted]

    def cut(self) -> str:
        """The reason if the connection ends here."""
        if self.is_headed:
            return "cut: body"
        return "cut: head" if self.status else "cut: no answer"

    def payload(self) -> bytes:
        """The body as it was sent."""
        return bytes(self._body)

    def unpacked(self, payload: bytes) -> bytes | str:
        """The body, or the reason why it cannot be had."""
        encodings = self._values("content-encoding")
        return unpack(payload, ",".join(encodings), self._most) if encodings else payload


# ==== curl_codes

CurlInfoGetter: TypeAlias = Callable[[CurlInfo], Any]

_REASONS: Final = {
    CurlECode.UNSUPPORTED_PROTOCOL: "protocol: status line",  # HTTP/0.9, or no HTTP at all
    CurlECode.URL_MALFORMAT: BAD_URL,
    CurlECode.COULDNT_RESOLVE_HOST: "dns: failed",
    CurlECode.WEIRD_SERVER_REPLY: "protocol: message",
    CurlECode.HTTP2: "protocol: message",
    CurlECode.OUT_OF_MEMORY: ENOMEM,
    CurlECode.SSL_CACERT_BADFILE: CERTIFICATES,
    CurlECode.OPERATION_TIMEDOUT: "connect: time limit",  # it is told of no other
    CurlECode.SSL_CONNECT_ERROR: "tls: handshake failed",
    CurlECode.TOO_LARGE: HEADERS_TOO_LARGE,
}

# What OpenSSL calls them.
_VERIFY_RESULTS: Final = {
    9: "certificate is not yet valid",
    10: "certificate has expired",
    18: "self-signed certificate",
    19: "self-signed certificate in certificate chain",
    20: "unable to get local issuer certificate",
}
_NO_SOCKET: Final = "failed to open socket"
_BY_NAME: Final = {os.strerror(number): reason for number, reason in ERRNOS.items()}
_MISMATCH: Final = "subject name"  # curl compares names itself, and has no code for it


def curl_reason(error: CurlError, ask: CurlInfoGetter, incoming: CurlResponse) -> str:
    """Why there is no response."""
    code = error.code
    if code == CurlECode.PEER_FAILED_VERIFICATION:
        return "tls: " + _tls_reason(error, ask)
    if code in _REASONS:
        return _REASONS[CurlECode(code)]
    if code == CurlECode.COULDNT_CONNECT or not ask(CurlInfo.PRETRANSFER_TIME):
        return _socket_reason(str(error)) or CONNECT_ERRNOS.get(
            ask(CurlInfo.OS_ERRNO), "connect: failed"
        )
    is_reset = code != CurlECode.GOT_NOTHING and not incoming.status
    return "cut: reset" if is_reset else incoming.cut()


def is_lost_request(error: CurlError, ask: CurlInfoGetter, incoming: CurlResponse) -> bool:
    """Whether an old connection broke before a word came; in HTTP/1 curl itself asks again."""
    is_old = not ask(CurlInfo.NUM_CONNECTS)
    return error.code == CurlECode.HTTP2 and is_old and not incoming.heard


def _socket_reason(text: str) -> str:
    """Why there was no socket to connect with: curl has no number for it, only its name."""
    if _NO_SOCKET not in text:
        return ""
    return next((reason for name, reason in _BY_NAME.items() if name in text), "")


def _tls_reason(error: CurlError, ask: CurlInfoGetter) -> str:
    if _MISMATCH in str(error):
        return "hostname mismatch"
    return _VERIFY_RESULTS.get(ask(CurlInfo.SSL_VERIFYRESULT), "certificate verify failed")


# ==== transfer

_CURL_OPTIONS: Final = {
    CurlOpt.HTTP_VERSION: CurlHttpVersion.V2TLS,
    CurlOpt.HTTP_CONTENT_DECODING: 0,
    CurlOpt.FOLLOWLOCATION: 0,
    CurlOpt.PROTOCOLS_STR: "http,https",
    CurlOpt.PROXY: "",  # not even the environment's
    CurlOpt.NOSIGNAL: 1,
    CurlOpt.DNS_CACHE_TIMEOUT: 1,  # seconds; an address is told when it is needed
    CurlOpt.MAXAGE_CONN: int(IDLE_SECONDS),
}


class Deadlines(NamedTuple):
    """When a request has taken too long, on the loop's clock."""

    connected: float
    done: float
    silence: float  # seconds


class CurlRequest(NamedTuple):
    """What is asked for, and of whom."""

    url: str
    target: URL  # the same, taken apart
    headers: Mapping[str, str]
    places: Sequence[ResolveResult]  # checked


class CurlConnections(AsyncCurl):
    """All connections; `most` are kept for reuse."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self.keep(most)

    def keep(self, most: int) -> None:
        """Keep so many; what is beyond that is closed when the next request ends."""
        # AsyncCurl.setopt would hand over where the number is instead of the number.
        lib.curl_multi_setopt(self._curlm, CurlMOpt.MAXCONNECTS, ffi.cast("void *", most))

    def close_idle(self) -> None:
        """Keep half as many from now on, and one at least: descriptors are short."""
        self._most = max(1, self._most // 2)
        self.keep(self._most)

    @property
    def is_closed(self) -> bool:
        """Whether all have ended; those who waited are told so as if they were done."""
        return self._curlm is None


class _CurlHandle(Curl):
    _WS_RECV_BUFFER_SIZE = 1  # we speak no WebSocket: 128 KiB saved a request


class CurlTransfer:
    """One request; to be closed in the end."""

    def __init__(
        self, request: CurlRequest, incoming: CurlResponse, authorities: str, *, is_fresh: bool
    ) -> None:
        self.is_lost = False  # with a connection that had served before, and nothing came
        self._incoming = incoming
        self._began = asyncio.get_running_loop().time()
        self._curl = _CurlHandle(authorities)
        self._info: CurlInfoGetter = self._curl.getinfo
        self._detour = ffi.NULL
        for option, value in _CURL_OPTIONS.items():
            self._curl.setopt(option, value)
        self._curl.setopt(CurlOpt.FRESH_CONNECT, int(is_fresh))
        self._curl.setopt(CurlOpt.HEADERFUNCTION, incoming.line)
        self._curl.setopt(CurlOpt.WRITEFUNCTION, incoming.piece)
        self._ask_for(request.target, request.headers)
        self._pin(request.target.raw_host or "", request.places)

    def _ask_for(self, target: URL, headers: Mapping[str, str]) -> None:
        self._curl.setopt(CurlOpt.URL, str(target.origin()))
        self._curl.setopt(CurlOpt.REQUEST_TARGET, target.raw_path_qs)
        fields = [f"{name}: {value}".encode() for name, value in headers.items()]
        self._curl.setopt(CurlOpt.HTTPHEADER, fields)

    def _pin(self, host: str, places: Sequence[ResolveResult]) -> None:
        # 64 letters are more than DNS allows between two dots.
        name = f"{blake2s(host.encode()).hexdigest()}.invalid"
        port = places[0]["port"]
        addresses = ",".join(_bracketed(place["host"]) for place in places)
        self._detour = lib.curl_slist_append(ffi.NULL, f"::{name}:{port}".encode())
        self._curl.setopt(CurlOpt.CONNECT_TO, self._detour)
        self._curl.setopt(CurlOpt.RESOLVE, [f"+{name}:{port}:{addresses}"])

    async def run(self, connections: CurlConnections, patience: Deadlines) -> str:
        """Wait until it is over: empty, or the reason why there is no answer."""
        loop = asyncio.get_running_loop()
        self._limit(patience)
        future = connections.add_handle(self._curl)
        try:
            while not future.done():
                due, reason = self._due(patience)
                if due <= loop.time():
                    return reason
                # Nobody tells when it is connected, and silence counts from then on.
                await asyncio.wait((future,), timeout=min(due - loop.time(), patience.silence))
        finally:
            if not future.done():
                connections.remove_handle(self._curl)
        return self._incoming.cut() if connections.is_closed else self._ended(future.exception())

    def _limit(self, patience: Deadlines) -> None:
        """Tell curl the time to connect too: it shares that out among the addresses."""
        left = min(patience.connected, patience.done) - self._began
        self._curl.setopt(CurlOpt.CONNECTTIMEOUT_MS, max(int(left * 1000), 1))

    def _due(self, patience: Deadlines) -> tuple[float, str]:
        if not self.sent:
            return min(patience.connected, patience.done), "connect: time limit"
        # curl tells of whole lines: a head that takes longer for one counts as silent.
        silent = max(self.sent, self._incoming.heard) + patience.silence
        return min((silent, "time limit: read"), (patience.done, "time limit: total"))

    def _ended(self, error: BaseException | None) -> str:
        if self._incoming.trouble:
            return self._incoming.trouble
        if isinstance(error, CurlError):
            self.is_lost = is_lost_request(error, self._info, self._incoming)
            return curl_reason(error, self._info, self._incoming)
        if error is not None:
            raise error
        return "" if self._incoming.is_headed else self._incoming.cut()

    @property
    def sent(self) -> float:
        """When the request was sent, on the loop's clock; 0: it was not."""
        seconds: float = self._info(CurlInfo.PRETRANSFER_TIME)
        return self._began + seconds if seconds else 0.0

    @property
    def peer(self) -> tuple[str, int]:
        """Whom we spoke to."""
        return self._info(CurlInfo.PRIMARY_IP).decode(), self._info(CurlInfo.PRIMARY_PORT)

    def close(self) -> None:
        """Forget it; its connection stays."""
        self._curl.close()
        lib.curl_slist_free_all(self._detour)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


# ==== http2

_IMPERSONATE_VARIABLE: Final = "CURL_IMPERSONATE"
_CURL_URL: Final = re.compile(r"https?://[!-~]+").fullmatch


class Http2Client(HttpClient):
    """Gets URLs; see `Client`. `_authorities` is a file of certificates to trust."""

    def __init__(
        self,
        settings: FetchSettings,
        *,
        allow_private: bool = False,
        keep_packed: bool = False,
        _clock: Clock | None = None,
        _lookup: Lookup | None = None,
        _authorities: str = "",
        _network: Network | None = None,
    ) -> None:
        if is_set(_IMPERSONATE_VARIABLE):
            raise SettingsError(
                f"{_IMPERSONATE_VARIABLE} is set, and curl would imitate a browser: unset it"
            )
        super().__init__(
            settings,
            allow_private=allow_private,
            keep_packed=keep_packed,
            _clock=_clock,
            _lookup=_lookup,
            _network=_network,
        )
        self._authorities = _authorities
        self._connections: CurlConnections | None = None

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        within: float | None = None,
        most: int | None = None,
    ) -> Response | RequestFailure:
        """Ask for a URL exactly as it is spelt; `within` and `most` narrow what settings allow."""
        began = asyncio.get_running_loop().time()
        patience = self._patience(began, within)
        try:
            target = _curl_target(url)
        except InvalidURL:
            return outcome_of_reason(BAD_URL, 0.0)
        try:
            places = await self._places(target, patience)
        except NoConnection as error:
            return await self._trouble(error.reason, 0.0, target.raw_host or "")
        request = CurlRequest(url, target, self._headers | sendable_headers(headers), places)
        got, is_lost = await self._asked(request, patience, most)
        if is_lost:
            got, _ = await self._asked(request, patience, most, is_fresh=True)
        return got

    async def _asked(
        self, request: CurlRequest, patience: Deadlines, most: int | None, *, is_fresh: bool = False
    ) -> tuple[Response | RequestFailure, bool]:
        """What came of it, and whether it cannot have been heard."""
        incoming = self._incoming(most)
        transfer = CurlTransfer(request, incoming, self._authorities, is_fresh=is_fresh)
        try:
            reason = await transfer.run(self._open(), patience)
            told = await self._told(request, transfer, incoming, reason or self._misled(transfer))
            return told, transfer.is_lost
        finally:
            transfer.close()

    def _patience(self, began: float, within: float | None) -> Deadlines:
        settings = self._settings
        total = settings.total_timeout if within is None else min(within, settings.total_timeout)
        return Deadlines(began + settings.connect_timeout, began + total, settings.read_timeout)

    async def _places(self, target: URL, patience: Deadlines) -> Sequence[ResolveResult]:
        """Where to connect to; no other address is ever told to curl."""
        try:
            async with asyncio.timeout_at(min(patience.connected, patience.done)):
                places = await self._resolver.resolve(target.raw_host or "", target.port or 0)
        except TimeoutError:
            raise NoConnection("dns: time limit") from None
        if not all(self._guard.allows(place["host"], place["port"]) for place in places):
            raise NoConnection(PRIVATE_ADDRESS)
        return places

    def _incoming(self, most: int | None) -> CurlResponse:
        headers, time = self._settings.max_headers, asyncio.get_running_loop().time
        return CurlResponse(self._most(most), headers, time)

    def _open(self) -> CurlConnections:
        if self._connections is None:
            self._connections = CurlConnections(self._settings.connections)
        return self._connections

    def _misled(self, transfer: CurlTransfer) -> str:
        """The belt: whom we spoke to is somebody we may speak to."""
        return "" if self._guard.allows(*transfer.peer) else PRIVATE_ADDRESS

    async def _told(
        self, request: CurlRequest, transfer: CurlTransfer, incoming: CurlResponse, reason: str
    ) -> Response | RequestFailure:
        now = asyncio.get_running_loop().time()
        seconds = now - (transfer.sent or now)
        payload = incoming.payload()
        body = reason or incoming.unpacked(payload)
        if isinstance(body, str):
            return await self._trouble(body, seconds, request.target.raw_host or "")
        self._network.reached(transfer.peer[0])
        return Response(
            request.url,
            incoming.status,
            tuple(incoming.fields),
            body,
            seconds,
            self._clock.now_ms() / 1000 - seconds,
            incoming.reason,
            incoming.version,
            transfer.peer[0],
            payload if self._keep_packed and body is not payload else None,
        )

    def close_idle(self) -> None:
        """See `Getting`."""
        if self._connections is not None:
            self._connections.close_idle()

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()  # type: ignore[no-untyped-call]  # it has no types
        await self._resolver.close()


def _curl_target(url: str) -> URL:
    """What curl takes as it is: no blank, no control character, a host."""
    target = request_url(url.partition("#")[0])
    if not _CURL_URL(str(target)) or not target.raw_host:
        raise InvalidURL(url)
    return target
