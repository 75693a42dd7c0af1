"""Connections of the HTTP/1.1 client: aiohttp's, hardened against hosts that send too much.

Addresses come from Outrider's resolver and guard. An error ends a connection at once; only so many
idle ones are kept, and when descriptors run short the oldest of these are closed.

One request has one response. Bytes that come before the request was sent, or after the last byte of
its response, end the connection: otherwise they would be the response to the next request.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from aiohttp import (
    ClientConnectorError,
    ClientRequest,
    ClientTimeout,
    ServerDisconnectedError,
    TCPConnector,
)
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.tracing import Trace

from outrider.fetch.dns import AddressGuard
from outrider.fetch.http_client import IDLE_SECONDS, MAX_INTERIM_RESPONSES
from outrider.fetch.local_faults import EMFILE, local_reason_of

CONNECTING_NOTE: Final = "while connecting"  # added to the exception that ended the wait
PARSE_SLICE: Final = 64 * 1024  # bytes parsed at once: surplus responses in them are parsed in vain

_SWITCHING: Final = 101
_FINAL: Final = 200
CLOSED_PER_SHORTAGE: Final = 8  # idle connections, to free descriptors for one


class _KeptWrites:
    """A transport that also keeps what is written to it: the bytes of a request, for archives."""

    def __init__(self, transport: asyncio.Transport, sent: bytearray) -> None:
        self._transport, self._sent = transport, sent

    def write(self, data: bytes) -> None:
        self._sent += data
        self._transport.write(data)

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class ConnectionHandler(ResponseHandler):
    """One connection; it removes itself from the idle ones when it ends.

    `keep_request`: what is sent for the current request is kept in `sent`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        idle: dict[ResponseHandler, None],
        *,
        keep_request: bool = False,
    ) -> None:
        super().__init__(loop)
        self.sent = bytearray() if keep_request else None
        self._idle = idle
        self._unparsed = b""  # received while reading was paused
        self._is_parsing = False
        self._is_ended = False
        self._is_exact = True  # no byte was received after those that were parsed last
        self._is_requested = False  # a request was sent whose response has not ended
        self._has_header = False  # the response's header came
        self.is_used = False  # it has served a request before
        self.interim = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; what is written from now on may be kept."""
        super().connection_made(transport)
        if self.sent is not None:
            kept = _KeptWrites(cast("asyncio.Transport", transport), self.sent)
            self.transport = cast("asyncio.Transport", kept)

    def begin_request(self) -> None:
        """Forget what was sent before."""
        if self.sent is not None:
            self.sent.clear()

    def begin_response(self) -> None:
        """Take the bytes from now on for the response to the request that was just sent."""
        self.interim = 0
        self._is_requested, self._has_header = True, False

    def end_response(self) -> bool:
        """Return whether another request may be sent: no byte came after the response."""
        self._is_requested = False
        return self._is_exact

    def has_unrequested_bytes(self) -> bool:
        """Return whether bytes came over this connection without a request."""
        transport = self.transport
        if transport is None or self.exception() is not None:
            return True
        descriptor = transport.get_extra_info("socket").fileno()
        if self.is_used:
            return _is_readable(descriptor)
        # After its handshake a TLS host may send tickets for later connections.
        is_plain = transport.get_extra_info("sslcontext") is None
        return is_plain and _is_readable(descriptor) and _has_bytes(descriptor)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End; bytes that wait for reading to be resumed belong to the response."""
        self._idle.pop(self, None)
        self._is_ended = True
        if self._is_requested and not self._is_over():
            super().data_received(self._unparsed)
        self._unparsed = b""
        super().connection_lost(exc)

    def pause_reading(self) -> None:
        """Leave bytes in the socket; after the end none come."""
        if not self._is_ended:
            super().pause_reading()

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Fail, and fail the wait for the body too: aiohttp would never end it."""
        exc.__cause__ = next((each for each in cause if isinstance(each, Exception)), None)
        super().set_exception(exc)
        payload = self._payload
        if payload is not None and not payload.is_eof() and payload.exception() is None:
            payload.set_exception(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the response that was requested, and no others."""
        if data:
            self._unparsed += data
            self._parse()
        else:  # aiohttp continues with what its parser had kept
            self._is_exact = not self._unparsed
            super().data_received(data)

    def resume_reading(self, *how: Any, **more: Any) -> None:
        """Continue with bytes that came while reading was paused."""
        super().resume_reading(*how, **more)
        self._parse()

    def _parse(self) -> None:
        """Parse the received bytes, the last one alone: so surplus after a response is seen."""
        if self._is_parsing:
            return
        data, at = self._unparsed, 0
        self._is_parsing = True
        while at < len(data) and not self._reading_paused:
            if not self._is_requested or self._is_over():
                self._refuse()
            else:
                end = max(min(at + PARSE_SLICE, len(data) - 1), at + 1)
                self._is_exact = end == len(data)
                super().data_received(data[at:end])
                at = end
            if not self.is_connected():
                at = len(data)
        self._unparsed = data[at:]
        self._is_parsing = False

    def _is_over(self) -> bool:
        return self._has_header and (self._payload is None or self._payload.is_eof())

    def _refuse(self) -> None:
        """End the connection at once; a complete response can still be read."""
        self._is_exact = False
        transport = self.transport
        if transport is not None:
            transport.abort()
        self.set_exception(ServerDisconnectedError("bytes came without a request"))

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Take a message, unless it is one interim response too many, or a second response."""
        status = data[0].code
        if self._has_header:
            self._refuse()
            return
        self._has_header = status >= _FINAL or status == _SWITCHING
        if not self._has_header:
            self.interim += 1
            if self.interim > MAX_INTERIM_RESPONSES:
                self.set_exception(BadHttpMessage("too many interim responses"))
                return
        super().feed_data(data, size)


def _is_readable(descriptor: int) -> bool:
    """Return whether a socket has bytes, an end or an error to read, without waiting."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _has_bytes(descriptor: int) -> bool:
    """Return whether a socket has bytes to read, leaving them there."""
    with socket.socket(fileno=os.dup(descriptor)) as same, suppress(OSError):
        return bool(same.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    return False


class Connector(TCPConnector):
    """All connections; `max_idle` are kept for reuse. Literal addresses use the resolver too."""

    def __init__(
        self,
        resolver: AbstractResolver,
        guard: AddressGuard,
        max_idle: int,
        *,
        keep_request: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            resolver=resolver,
            use_dns_cache=False,
            socket_factory=guard.socket,
            limit=0,  # the executor limits how many are in use
            keepalive_timeout=IDLE_SECONDS,
            **options,
        )
        self.idle: dict[ResponseHandler, None] = {}  # oldest first
        self._factory = cast(
            "partial[ResponseHandler]",
            partial(ConnectionHandler, self._loop, self.idle, keep_request=keep_request),
        )
        self._max_idle = max_idle

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 - aiohttp's signature
    ) -> Connection:
        """Return a connection over which no byte came without a request.

        The request is written before the loop turns again, so none can come in between. A note is
        added to the exception that ends the wait.
        """
        while True:
            try:
                connection = await self._connect(req, traces, timeout)
            except asyncio.CancelledError as error:
                error.add_note(CONNECTING_NOTE)
                raise
            handler = cast("ConnectionHandler", connection.protocol)
            self.idle.pop(handler, None)
            if not handler.has_unrequested_bytes():
                handler.begin_request()
                return connection
            connection.close()
            if not handler.is_used:
                raise BadHttpMessage("the host responded before the request")

    async def _connect(
        self, req: ClientRequest, traces: list[Trace], limits: ClientTimeout
    ) -> Connection:
        """As `connect`; while descriptors run short, idle connections are closed."""
        while True:
            try:
                return await super().connect(req, traces, limits)
            except ClientConnectorError as error:
                if local_reason_of(error) != EMFILE or not self.idle:
                    raise
            self.close_idle(CLOSED_PER_SHORTAGE)
            await asyncio.sleep(0)  # a socket is closed one turn after its connection,
            await asyncio.sleep(0)  # and with TLS one later

    def close_idle(self, count: int | None = None) -> None:
        """Close so many idle connections, the oldest first; None: all of them."""
        for protocol in list(self.idle)[:count]:
            del self.idle[protocol]
            if protocol.transport is not None:
                protocol.transport.abort()

    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        is_exact = cast("ConnectionHandler", protocol).end_response()
        is_full = len(self.idle) >= self._max_idle
        if protocol.is_connected() and is_exact and not is_full:
            self.idle[protocol] = None  # until it is used or closed, which may be at once
        super()._release(key, protocol, should_close=should_close or is_full or not is_exact)

    async def _resolve_host(
        self,
        host: str,
        port: int,
        traces: Sequence[Trace] | None = None,  # noqa: ARG002 - aiohttp's signature
    ) -> list[ResolveResult]:
        return await self._resolver.resolve(host, port)
