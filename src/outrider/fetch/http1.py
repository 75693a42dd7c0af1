"""The HTTP/1.1 client, over aiohttp: one request, one value, whatever the host does (K1).

No redirect is followed, nothing is read beyond the limits, and nothing is kept from one request to
the next but connections and addresses. A request is repeated only where the host cannot have
received it: on a connection that had served before and was closed without a byte, as servers do
with idle ones.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from itertools import chain
from ssl import SSLContext
from typing import Final, cast

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientOSError,
    ClientResponse,
    ClientSession,
    ClientSSLError,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    InvalidURL,
    NonHttpUrlClientError,
    ServerDisconnectedError,
    SocketTimeoutError,
    hdrs,
)
from aiohttp.connector import Connection
from aiohttp.http_exceptions import (
    BadStatusLine,
    ContentLengthError,
    HttpProcessingError,
    InvalidHeader,
    LineTooLong,
    TransferEncodingError,
)

from outrider.clock import Clock
from outrider.fetch.dns import RESOLVING_NOTE, Lookup
from outrider.fetch.http1_connection import CONNECTING_NOTE, ConnectionHandler, Connector
from outrider.fetch.http_client import (
    CONNECT_ERRNOS,
    MAX_HEADER_FIELDS,
    NO_HEADERS,
    HttpClient,
    header_text,
    request_url,
    sendable_headers,
    unpack,
)
from outrider.fetch.local_faults import Network, local_reason_of
from outrider.fetch.response import (
    BAD_URL,
    BODY_TOO_LARGE,
    HEADERS_TOO_LARGE,
    PROTOCOL_SWITCHED,
    NoConnection,
    RequestFailure,
    Response,
    outcome_of_reason,
)
from outrider.settings.worker_schema import FetchSettings

# ---- exceptions of aiohttp as reasons

# All that a request may raise, whatever the host does or this machine lacks.
REQUEST_ERRORS: Final = (ClientError, HttpProcessingError, OSError, MemoryError, RuntimeError)

_TOO_MANY_HEADERS: Final = "Too many headers received"  # aiohttp has no class for it


def reason_of_error(error: BaseException) -> str:
    """Return why there is no response; raise a `RuntimeError` that is no local fault."""
    local = local_reason_of(error)
    if local is not None:
        return local
    match error:
        case RuntimeError():
            raise error
        case TimeoutError():
            return _timeout_reason(error)
        case InvalidURL() | NonHttpUrlClientError():
            return BAD_URL
        case ClientConnectorError() | ClientSSLError():
            return _connect_reason(error.__cause__)
        case _:
            return _broken_reason(_root(error))


def _timeout_reason(error: TimeoutError) -> str:
    """Return what took too long, by the note on the wait that aiohttp cancelled."""
    notes = getattr(_root(error), "__notes__", ())
    if RESOLVING_NOTE in notes:
        return "dns: time limit"
    if CONNECTING_NOTE in notes or isinstance(error, ConnectionTimeoutError):
        return "connect: time limit"
    return "time limit: read" if isinstance(error, SocketTimeoutError) else "time limit: total"


def _connect_reason(cause: BaseException | None) -> str:
    match cause:
        case NoConnection():
            return cause.reason
        case ssl.SSLError():
            return _tls_reason(cause)
        case OSError():
            return CONNECT_ERRNOS.get(cause.errno or 0, "connect: failed")
        case _:
            return "connect: failed"


def _tls_reason(error: ssl.SSLError) -> str:
    text = error.reason or "failed"
    if isinstance(error, ssl.SSLCertVerificationError):
        text = error.verify_message
    # The name that the certificate does not cover follows the comma.
    return "tls: " + text.partition(",")[0].replace("_", " ").lower()


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _broken_reason(root: BaseException) -> str:
    """Return why a connection gave no complete response."""
    match root:
        case ssl.SSLEOFError():
            return "cut: reset"
        case ssl.SSLError():
            return _tls_reason(root)
        case OSError():
            return "cut: reset"
        case ServerDisconnectedError():
            return "cut: no answer" if isinstance(root.message, str) else "cut: head"
        case HttpProcessingError():
            return _protocol_reason(root)
        case _:
            return "cut: body"


def _protocol_reason(root: HttpProcessingError) -> str:
    match root:
        case TransferEncodingError() | ContentLengthError():
            return "cut: body"
        case LineTooLong():
            return HEADERS_TOO_LARGE
        case BadStatusLine():
            return "protocol: status line"
        case InvalidHeader():
            return "protocol: header"
        case _:
            return HEADERS_TOO_LARGE if root.message == _TOO_MANY_HEADERS else "protocol: message"


# ---- responses

_SWITCHING: Final = 101


class ConnectionCut(ClientError):
    """The connection ended before a response; its cause says how."""


class Http1Response(ClientResponse):
    """One response, with the host's address and when its request was sent."""

    began = 0.0  # on the loop's clock
    address = ""
    sent: bytes | None = None  # the request, if it is kept

    async def start(self, connection: Connection) -> ClientResponse:
        """Wait for the status line and header."""
        handler = cast("ConnectionHandler", connection.protocol)
        handler.begin_response()
        self.began = self._loop.time()
        self.address = _peer(connection)
        try:
            await super().start(connection)
        except (ClientOSError, ServerDisconnectedError) as error:
            if handler.is_used and not _has_partial_head(error):
                raise  # aiohttp repeats the request, once
            raise ConnectionCut from error
        handler.is_used = True
        self.sent = None if handler.sent is None else bytes(handler.sent)
        return self

    async def payload(self, max_body: int, max_header: int) -> bytes | str:
        """Return the body as sent, or the reason why it is not read."""
        if sum(map(len, chain.from_iterable(self.raw_headers))) > max_header:
            return HEADERS_TOO_LARGE
        if self.status == _SWITCHING:
            return PROTOCOL_SWITCHED
        if self._is_long(max_body):
            return BODY_TOO_LARGE
        body = bytearray()  # one buffer, however small the chunks are
        while piece := await self.content.readany():
            body += piece
            if len(body) > max_body:
                return BODY_TOO_LARGE
        return bytes(body)

    def _is_long(self, max_body: int) -> bool:
        """Whether Content-Length exceeds the limit; a 304 has no body, but gives a length."""
        length = self.headers.get(hdrs.CONTENT_LENGTH)
        return length is not None and not self.content.is_eof() and int(length) > max_body

    def unpack_body(self, payload: bytes, max_body: int) -> bytes | str:
        """Return the decompressed body, or the reason why that failed."""
        if hdrs.CONTENT_ENCODING not in self.headers:
            return payload
        return unpack(payload, ",".join(self.headers.getall(hdrs.CONTENT_ENCODING)), max_body)

    def response(self, url: str, body: bytes, packed: bytes | None, at: float) -> Response:
        """Return the response as a value; `at` is the loop's time zero in seconds since 1970."""
        return Response(
            url,
            self.status,
            tuple(
                [(name.decode("latin-1"), header_text(value)) for name, value in self.raw_headers]
            ),
            body,
            self._loop.time() - self.began,
            at + self.began,
            header_text((self.reason or "").encode("utf-8", "surrogateescape")),
            f"{self.version.major}.{self.version.minor}" if self.version else "1.1",
            self.address,
            packed,
            self.sent,
        )


def _peer(connection: Connection) -> str:
    transport = connection.transport
    peer = transport.get_extra_info("peername") if transport is not None else None
    return str(peer[0]) if peer else ""


def _has_partial_head(error: ClientError) -> bool:
    """Whether part of a header came: aiohttp attaches it."""
    return isinstance(error, ServerDisconnectedError) and not isinstance(error.message, str)


# ---- the client
_MIN_TIMEOUT: Final = 0.001  # seconds; 0 is no limit to aiohttp
_NO_ROUNDING_BELOW: Final = 1e9  # aiohttp would round longer limits up to whole seconds


class Http1Client(HttpClient):
    """Requests URLs in HTTP/1.1."""

    def __init__(
        self,
        settings: FetchSettings,
        *,
        allow_private: bool = False,
        keep_packed: bool = False,
        keep_request: bool = False,
        _clock: Clock | None = None,
        _lookup: Lookup | None = None,
        _tls: SSLContext | bool = True,
        _network: Network | None = None,
    ) -> None:
        super().__init__(
            settings,
            allow_private=allow_private,
            keep_packed=keep_packed,
            keep_request=keep_request,
            _clock=_clock,
            _lookup=_lookup,
            _network=_network,
        )
        self._tls = _tls
        self._limits = self._limits_of(settings.total_timeout)
        self._session: ClientSession | None = None

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
        at = self._clock.now_ms() / 1000 - began
        try:
            reply = await self._send(url, headers, within)
            try:
                return await self._read(url, reply, max_body, at)
            finally:
                if not reply.closed:
                    reply.close()
        except REQUEST_ERRORS as error:
            reason, seconds = reason_of_error(error), asyncio.get_running_loop().time() - began
        return await self._failure(reason, seconds, _host_of(url))

    async def _send(
        self, url: str, headers: Mapping[str, str], within: float | None
    ) -> Http1Response:
        """Send a request and return the response without its body."""
        session = self._session or self._open()
        request = session.request(
            "GET",
            request_url(url),
            headers=sendable_headers(headers) if headers else None,
            allow_redirects=False,
            timeout=self._limits if within is None else self._limits_of(within),
        )
        return cast("Http1Response", await request)

    async def _read(
        self, url: str, reply: Http1Response, max_body: int | None, at: float
    ) -> Response | RequestFailure:
        limit = self._body_limit(max_body)
        payload = await reply.payload(limit, 4 * self._settings.max_headers)
        body = payload if isinstance(payload, str) else reply.unpack_body(payload, limit)
        if isinstance(payload, str) or isinstance(body, str):
            return outcome_of_reason(str(body), asyncio.get_running_loop().time() - reply.began)
        packed = payload if self._keep_packed and body is not payload else None
        response = reply.response(url, body, packed, at)
        self._network.reached(response.address)
        return response

    def _open(self) -> ClientSession:
        settings = self._settings
        self._session = ClientSession(
            connector=Connector(
                self._resolver,
                self._guard,
                settings.connections,
                keep_request=self._keep_request,
                ssl=self._tls,
            ),
            response_class=Http1Response,
            cookie_jar=DummyCookieJar(),
            headers=self._headers,
            timeout=self._limits,
            auto_decompress=False,
            trust_env=False,
            max_line_size=settings.max_headers,
            max_field_size=settings.max_headers,
            max_headers=MAX_HEADER_FIELDS,
        )
        return self._session

    def _limits_of(self, total: float) -> ClientTimeout:
        settings = self._settings
        total = max(min(total, settings.total_timeout), _MIN_TIMEOUT)
        return ClientTimeout(
            total=total,
            connect=settings.connect_timeout,
            sock_read=settings.read_timeout,
            ceil_threshold=_NO_ROUNDING_BELOW,
        )

    def close_idle(self) -> None:
        """See `HttpClient`."""
        connector = None if self._session is None else self._session.connector
        if isinstance(connector, Connector):
            connector.close_idle()

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        if self._session is not None:
            await self._session.close()
        await self._resolver.close()


def _host_of(url: str) -> str:
    """Return the host of a URL; "" if the URL is invalid."""
    try:
        return request_url(url).raw_host or ""
    except InvalidURL:
        return ""
