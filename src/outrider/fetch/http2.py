"""The HTTP/2 client, over curl: as `Http1Client`, but in HTTP/2 where a host offers it (K1).

It needs curl_cffi, and imitates no browser. No redirect is followed, nothing is read beyond the
limits, and nothing is kept from one request to the next but connections and addresses. curl makes
no DNS lookup: each request gets a name that exists nowhere else and the checked addresses for it.
It uses no proxy of the environment.
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

# ---- responses

_ABORT: Final = 0xFFFFFFFF  # makes curl abort the transfer
_SWITCHING: Final = 101
_FINAL: Final = 200
_BODILESS_STATUSES: Final = (204, 304)  # a 304 gives the length of another response
_STATUS_LINE: Final = re.compile(rb"HTTP/(\d(?:\.\d)?) (\d{3})(?: ([^\r\n]*))?\r?\n")
_MAX_LENGTH_DIGITS: Final = 19  # of Content-Length; curl's counter holds no more


class CurlResponse:
    """One response, as curl passes it, within the limits; `failure` is why it was aborted."""

    def __init__(self, max_body: int, max_field: int, now: Callable[[], float]) -> None:
        self._max_body, self._max_field, self._now = max_body, max_field, now
        self._head_size = self._interim = 0
        # One buffer: a list of chunks costs up to 85 bytes for each byte that comes separately.
        self._body = bytearray()
        self.failure = ""
        self.received_at = 0.0  # when the last bytes came
        self.status = 0
        self.version = self.reason = ""
        self.fields: list[tuple[str, str]] = []
        self.has_header = False  # the header is complete

    def line(self, line: bytes) -> int:
        """Take a line of the header, or of trailers."""
        self.received_at = self._now()
        self._head_size += len(line)
        is_long = len(line) > self._max_field or self._head_size > 4 * self._max_field
        self.failure = self.failure or (
            HEADERS_TOO_LARGE if is_long else self._take_header_line(line)
        )
        return _ABORT if self.failure else len(line)

    def chunk(self, chunk: bytes) -> int:
        """Take a chunk of the body."""
        self.received_at = self._now()
        self._body += chunk
        if len(self._body) > self._max_body:
            self.failure = self.failure or BODY_TOO_LARGE
        return _ABORT if self.failure else len(chunk)

    def _take_header_line(self, line: bytes) -> str:
        if self.has_header:
            return ""  # a trailer
        if not self.status:
            return self._take_status_line(line)
        if not line.strip():
            return self._end_header()
        name, _, value = line.partition(b":")
        self.fields.append((name.decode("latin-1"), header_text(value.strip())))
        return HEADERS_TOO_LARGE if len(self.fields) > MAX_HEADER_FIELDS else ""

    def _take_status_line(self, line: bytes) -> str:
        parts = _STATUS_LINE.fullmatch(line)
        if parts is None:
            return "protocol: status line"
        self.version, self.status = parts[1].decode(), int(parts[2])
        self.reason = header_text((parts[3] or b"").strip())
        return PROTOCOL_SWITCHED if self.status == _SWITCHING else ""

    def _end_header(self) -> str:
        if self.status >= _FINAL:
            self.has_header = True
            return self._check_length(set(self._values("content-length")))
        self.status, self.fields = 0, []
        self._interim += 1
        return "protocol: message" if self._interim > MAX_INTERIM_RESPONSES else ""

    def _check_length(self, lengths: set[str]) -> str:
        if self.status in _BODILESS_STATUSES or not lengths:
            return ""
        length = lengths.pop()
        is_odd = len(length) > _MAX_LENGTH_DIGITS or not length.isdecimal()
        if lengths or is_odd or self._values("transfer-encoding"):
            return "protocol: message"
        return BODY_TOO_LARGE if int(length) > self._max_body else ""

    def _values(self, wanted: str) -> list[str]:
        return [value for name, value in self.fields if name.lower() == wanted]

    def cut_reason(self) -> str:
        """Return the reason if the connection ends here."""
        if self.has_header:
            return "cut: body"
        return "cut: head" if self.status else "cut: no answer"

    def payload(self) -> bytes:
        """Return the body as sent."""
        return bytes(self._body)

    def unpack_body(self, payload: bytes) -> bytes | str:
        """Return the decompressed body, or the reason why that failed."""
        encodings = self._values("content-encoding")
        return unpack(payload, ",".join(encodings), self._max_body) if encodings else payload


# ---- curl's error codes as reasons

CurlInfoGetter: TypeAlias = Callable[[CurlInfo], Any]

_REASONS: Final = {
    CurlECode.UNSUPPORTED_PROTOCOL: "protocol: status line",  # HTTP/0.9, or not HTTP
    CurlECode.URL_MALFORMAT: BAD_URL,
    CurlECode.COULDNT_RESOLVE_HOST: "dns: failed",
    CurlECode.WEIRD_SERVER_REPLY: "protocol: message",
    CurlECode.HTTP2: "protocol: message",
    CurlECode.OUT_OF_MEMORY: ENOMEM,
    CurlECode.SSL_CACERT_BADFILE: CERTIFICATES,
    CurlECode.OPERATION_TIMEDOUT: "connect: time limit",  # no other limit is set in curl
    CurlECode.SSL_CONNECT_ERROR: "tls: handshake failed",
    CurlECode.TOO_LARGE: HEADERS_TOO_LARGE,
}

# OpenSSL's verification results.
_VERIFY_RESULTS: Final = {
    9: "certificate is not yet valid",
    10: "certificate has expired",
    18: "self-signed certificate",
    19: "self-signed certificate in certificate chain",
    20: "unable to get local issuer certificate",
}
_NO_SOCKET: Final = "failed to open socket"
_BY_NAME: Final = {os.strerror(number): reason for number, reason in ERRNOS.items()}
_MISMATCH: Final = "subject name"  # curl compares names itself, without a code


def curl_reason(error: CurlError, get_info: CurlInfoGetter, response: CurlResponse) -> str:
    """Return why there is no response."""
    code = error.code
    if code == CurlECode.PEER_FAILED_VERIFICATION:
        return "tls: " + _tls_reason(error, get_info)
    if code in _REASONS:
        return _REASONS[CurlECode(code)]
    if code == CurlECode.COULDNT_CONNECT or not get_info(CurlInfo.PRETRANSFER_TIME):
        return _socket_reason(str(error)) or CONNECT_ERRNOS.get(
            get_info(CurlInfo.OS_ERRNO), "connect: failed"
        )
    is_reset = code != CurlECode.GOT_NOTHING and not response.status
    return "cut: reset" if is_reset else response.cut_reason()


def is_lost_request(error: CurlError, get_info: CurlInfoGetter, response: CurlResponse) -> bool:
    """Whether a reused connection broke before a byte came; in HTTP/1 curl repeats the request."""
    is_old = not get_info(CurlInfo.NUM_CONNECTS)
    return error.code == CurlECode.HTTP2 and is_old and not response.received_at


def _socket_reason(text: str) -> str:
    """Return why no socket could be opened: curl gives the error's text only."""
    if _NO_SOCKET not in text:
        return ""
    return next((reason for name, reason in _BY_NAME.items() if name in text), "")


def _tls_reason(error: CurlError, get_info: CurlInfoGetter) -> str:
    if _MISMATCH in str(error):
        return "hostname mismatch"
    return _VERIFY_RESULTS.get(get_info(CurlInfo.SSL_VERIFYRESULT), "certificate verify failed")


# ---- one transfer

_HEADER_SENT: Final = 2  # CURLINFO_HEADER_OUT, of debug functions
_METHOD: Final = b"GET "  # of every request
_CURL_OPTIONS: Final = {
    CurlOpt.HTTP_VERSION: CurlHttpVersion.V2TLS,
    CurlOpt.HTTP_CONTENT_DECODING: 0,
    CurlOpt.FOLLOWLOCATION: 0,
    CurlOpt.PROTOCOLS_STR: "http,https",
    CurlOpt.PROXY: "",  # none, not even the environment's
    CurlOpt.NOSIGNAL: 1,
    CurlOpt.DNS_CACHE_TIMEOUT: 1,  # seconds; each request brings its addresses
    CurlOpt.MAXAGE_CONN: int(IDLE_SECONDS),
}


class Deadlines(NamedTuple):
    """When a request has taken too long, on the loop's clock."""

    connected: float
    done: float
    silence: float  # seconds


class CurlRequest(NamedTuple):
    """What to request, and at which addresses."""

    url: str
    target: URL  # the same, parsed
    headers: Mapping[str, str]
    addresses: Sequence[ResolveResult]  # checked by the guard


class CurlConnections(AsyncCurl):
    """All connections; `max_idle` are kept for reuse."""

    def __init__(self, max_idle: int) -> None:
        super().__init__()
        self._max_idle = max_idle
        self.keep(max_idle)

    def keep(self, count: int) -> None:
        """Keep so many for reuse; others are closed when the next request ends."""
        # AsyncCurl.setopt would pass a pointer to the number instead of the number.
        lib.curl_multi_setopt(self._curlm, CurlMOpt.MAXCONNECTS, ffi.cast("void *", count))

    def close_idle(self) -> None:
        """Keep half as many from now on, and at least one, to free descriptors."""
        self._max_idle = max(1, self._max_idle // 2)
        self.keep(self._max_idle)

    @property
    def is_closed(self) -> bool:
        """Whether all were closed; transfers then end as if they were complete."""
        return self._curlm is None


class _CurlHandle(Curl):
    _WS_RECV_BUFFER_SIZE = 1  # WebSocket is not used: saves 128 KiB a request


class CurlTransfer:
    """One request; close it at the end."""

    def __init__(
        self,
        request: CurlRequest,
        response: CurlResponse,
        authorities: str,
        *,
        is_fresh: bool,
        keep_request: bool,
    ) -> None:
        self._request = bytearray()
        self.is_lost = False  # the reused connection broke before a byte came
        self._response = response
        self._began = asyncio.get_running_loop().time()
        self._curl = _CurlHandle(authorities)
        self._info: CurlInfoGetter = self._curl.getinfo
        self._connect_to = ffi.NULL
        for option, value in _CURL_OPTIONS.items():
            self._curl.setopt(option, value)
        self._curl.setopt(CurlOpt.FRESH_CONNECT, int(is_fresh))
        self._curl.setopt(CurlOpt.HEADERFUNCTION, response.line)
        self._curl.setopt(CurlOpt.WRITEFUNCTION, response.chunk)
        if keep_request:
            self._curl.setopt(CurlOpt.DEBUGFUNCTION, self._keep_request)
            self._curl.setopt(CurlOpt.VERBOSE, 1)
        self._set_request(request.target, request.headers)
        self._set_addresses(request.target.raw_host or "", request.addresses)

    def _set_request(self, target: URL, headers: Mapping[str, str]) -> None:
        self._curl.setopt(CurlOpt.URL, str(target.origin()))
        self._curl.setopt(CurlOpt.REQUEST_TARGET, target.raw_path_qs)
        fields = [f"{name}: {value}".encode() for name, value in headers.items()]
        self._curl.setopt(CurlOpt.HTTPHEADER, fields)

    def _set_addresses(self, host: str, addresses: Sequence[ResolveResult]) -> None:
        # DNS allows no label of 64 letters.
        name = f"{blake2s(host.encode()).hexdigest()}.invalid"
        port = addresses[0]["port"]
        listed = ",".join(_bracketed(address["host"]) for address in addresses)
        self._connect_to = lib.curl_slist_append(ffi.NULL, f"::{name}:{port}".encode())
        self._curl.setopt(CurlOpt.CONNECT_TO, self._connect_to)
        self._curl.setopt(CurlOpt.RESOLVE, [f"+{name}:{port}:{listed}"])

    async def run(self, connections: CurlConnections, deadlines: Deadlines) -> str:
        """Wait until it is over; return "", or the reason why there is no response."""
        loop = asyncio.get_running_loop()
        self._set_connect_timeout(deadlines)
        future = connections.add_handle(self._curl)
        try:
            while not future.done():
                due, reason = self._next_deadline(deadlines)
                if due <= loop.time():
                    return reason
                # curl does not report the connection, from which on silence counts.
                await asyncio.wait((future,), timeout=min(due - loop.time(), deadlines.silence))
        finally:
            if not future.done():
                connections.remove_handle(self._curl)
        if connections.is_closed:
            return self._response.cut_reason()
        return self._reason(future.exception())

    def _set_connect_timeout(self, deadlines: Deadlines) -> None:
        """Set the connect timeout in curl too: it divides that among the addresses."""
        left = min(deadlines.connected, deadlines.done) - self._began
        self._curl.setopt(CurlOpt.CONNECTTIMEOUT_MS, max(int(left * 1000), 1))

    def _next_deadline(self, deadlines: Deadlines) -> tuple[float, str]:
        if not self.sent:
            return min(deadlines.connected, deadlines.done), "connect: time limit"
        # curl reports complete lines: a longer wait for one counts as silence.
        silent = max(self.sent, self._response.received_at) + deadlines.silence
        return min((silent, "time limit: read"), (deadlines.done, "time limit: total"))

    def _reason(self, error: BaseException | None) -> str:
        if self._response.failure:
            return self._response.failure
        if isinstance(error, CurlError):
            self.is_lost = is_lost_request(error, self._info, self._response)
            return curl_reason(error, self._info, self._response)
        if error is not None:
            raise error
        return "" if self._response.has_header else self._response.cut_reason()

    def _keep_request(self, kind: int, data: bytes) -> None:
        """Keep the header that curl sends; it repeats one itself if a kept connection broke."""
        if kind == _HEADER_SENT:
            if data.startswith(_METHOD):
                self._request.clear()
            self._request += data

    @property
    def request(self) -> bytes | None:
        """The request, if it is kept; of HTTP/2 the fields, written as HTTP/1.1."""
        line, newline, fields = bytes(self._request).partition(b"\r\n")
        return line.replace(b" HTTP/2", b" HTTP/1.1") + newline + fields if line else None

    @property
    def sent(self) -> float:
        """When the request was sent, on the loop's clock; 0: it was not."""
        seconds: float = self._info(CurlInfo.PRETRANSFER_TIME)
        return self._began + seconds if seconds else 0.0

    @property
    def peer(self) -> tuple[str, int]:
        """The address and port of the host."""
        return self._info(CurlInfo.PRIMARY_IP).decode(), self._info(CurlInfo.PRIMARY_PORT)

    def close(self) -> None:
        """Free the handle; its connection is kept."""
        self._curl.close()
        lib.curl_slist_free_all(self._connect_to)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


# ---- the client

_IMPERSONATE_VARIABLE: Final = "CURL_IMPERSONATE"
_CURL_URL: Final = re.compile(r"https?://[!-~]+").fullmatch


class Http2Client(HttpClient):
    """Requests URLs; see `Http1Client`. `_authorities` is a file of certificates to trust."""

    def __init__(
        self,
        settings: FetchSettings,
        *,
        allow_private: bool = False,
        keep_packed: bool = False,
        keep_request: bool = False,
        _clock: Clock | None = None,
        _lookup: Lookup | None = None,
        _authorities: str = "",
        _network: Network | None = None,
    ) -> None:
        if is_set(_IMPERSONATE_VARIABLE):
            raise SettingsError(
                f"{_IMPERSONATE_VARIABLE} is set, so curl would imitate a browser; unset it"
            )
        super().__init__(
            settings,
            allow_private=allow_private,
            keep_packed=keep_packed,
            keep_request=keep_request,
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
        max_body: int | None = None,
    ) -> Response | RequestFailure:
        """Request a URL exactly as written; `within` and `max_body` narrow what settings allow."""
        began = asyncio.get_running_loop().time()
        deadlines = self._deadlines(began, within)
        try:
            target = _curl_target(url)
        except InvalidURL:
            return outcome_of_reason(BAD_URL, 0.0)
        try:
            addresses = await self._addresses(target, deadlines)
        except NoConnection as error:
            return await self._failure(error.reason, 0.0, target.raw_host or "")
        request = CurlRequest(url, target, self._headers | sendable_headers(headers), addresses)
        got, is_lost = await self._transfer(request, deadlines, max_body)
        if is_lost:
            got, _ = await self._transfer(request, deadlines, max_body, is_fresh=True)
        return got

    async def _transfer(
        self,
        request: CurlRequest,
        deadlines: Deadlines,
        max_body: int | None,
        *,
        is_fresh: bool = False,
    ) -> tuple[Response | RequestFailure, bool]:
        """Return the result, and whether the host cannot have received the request."""
        response = self._new_response(max_body)
        transfer = CurlTransfer(
            request,
            response,
            self._authorities,
            is_fresh=is_fresh,
            keep_request=self._keep_request,
        )
        try:
            reason = await transfer.run(self._open(), deadlines)
            result = await self._result(
                request, transfer, response, reason or self._unallowed_peer(transfer)
            )
            return result, transfer.is_lost
        finally:
            transfer.close()

    def _deadlines(self, began: float, within: float | None) -> Deadlines:
        settings = self._settings
        total = settings.total_timeout if within is None else min(within, settings.total_timeout)
        return Deadlines(began + settings.connect_timeout, began + total, settings.read_timeout)

    async def _addresses(self, target: URL, deadlines: Deadlines) -> Sequence[ResolveResult]:
        """Return the addresses to connect to; curl gets no others."""
        try:
            async with asyncio.timeout_at(min(deadlines.connected, deadlines.done)):
                addresses = await self._resolver.resolve(target.raw_host or "", target.port or 0)
        except TimeoutError:
            raise NoConnection("dns: time limit") from None
        if not all(self._guard.allows(address["host"], address["port"]) for address in addresses):
            raise NoConnection(PRIVATE_ADDRESS)
        return addresses

    def _new_response(self, max_body: int | None) -> CurlResponse:
        headers, time = self._settings.max_headers, asyncio.get_running_loop().time
        return CurlResponse(self._body_limit(max_body), headers, time)

    def _open(self) -> CurlConnections:
        if self._connections is None:
            self._connections = CurlConnections(self._settings.connections)
        return self._connections

    def _unallowed_peer(self, transfer: CurlTransfer) -> str:
        """Check the address curl connected to once more; return a reason if it is not allowed."""
        return "" if self._guard.allows(*transfer.peer) else PRIVATE_ADDRESS

    async def _result(
        self, request: CurlRequest, transfer: CurlTransfer, response: CurlResponse, reason: str
    ) -> Response | RequestFailure:
        now = asyncio.get_running_loop().time()
        seconds = now - (transfer.sent or now)
        payload = response.payload()
        body = reason or response.unpack_body(payload)
        if isinstance(body, str):
            return await self._failure(body, seconds, request.target.raw_host or "")
        self._network.reached(transfer.peer[0])
        return Response(
            request.url,
            response.status,
            tuple(response.fields),
            body,
            seconds,
            self._clock.now_ms() / 1000 - seconds,
            response.reason,
            response.version,
            transfer.peer[0],
            payload if self._keep_packed and body is not payload else None,
            transfer.request,
        )

    def close_idle(self) -> None:
        """See `HttpClient`."""
        if self._connections is not None:
            self._connections.close_idle()

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()  # type: ignore[no-untyped-call]  # it has no types
        await self._resolver.close()


def _curl_target(url: str) -> URL:
    """Parse a URL that curl takes as it is: no blank, no control character, a host."""
    target = request_url(url.partition("#")[0])
    if not _CURL_URL(str(target)) or not target.raw_host:
        raise InvalidURL(url)
    return target
