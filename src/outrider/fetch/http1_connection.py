"""Connections as aiohttp makes them, but for this: whatever breaks one ends it at once, addresses
come from our resolver and past our guard, and of those nobody uses only so many are kept. When
descriptors run short, the oldest of these are closed.

One request has one answer. Bytes that come before the request was sent, or after the last byte of
its answer, end the connection: kept, they would answer the next URL.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Sequence
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

CONNECTING_NOTE: Final = "while connecting"  # marks what ended the wait
PARSE_SLICE: Final = 64 * 1024  # bytes parsed at a time: surplus answers in them are parsed in vain

_SWITCHING: Final = 101
_FINAL: Final = 200
CLOSED_PER_SHORTAGE: Final = 8  # idle connections, to make room for one


class ConnectionHandler(ResponseHandler):
    """One connection; among the idle ones, it leaves them when it ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, idle: dict[ResponseHandler, None]) -> None:
        super().__init__(loop)
        self._idle = idle
        self._unparsed = b""  # came while reading was paused
        self._is_parsing = False
        self._is_ended = False
        self._is_exact = True  # no byte that came is behind those that were parsed last
        self._is_asked = False  # a request was sent whose answer is not over
        self._is_answered = False  # the head of its answer came
        self.is_used = False  # an answer came over it before
        self.interim = 0

    def begin_answer(self) -> None:
        """Take what comes from now on for the answer to the request that was just sent."""
        self.interim = 0
        self._is_asked, self._is_answered = True, False

    def end_answer(self) -> bool:
        """Say whether another request may be sent: no byte came behind the answer."""
        self._is_asked = False
        return self._is_exact

    def is_spoilt(self) -> bool:
        """Say whether something came over this connection though nothing was asked."""
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
        """End; what came before, and waits for reading to be resumed, belongs to the answer."""
        self._idle.pop(self, None)
        self._is_ended = True
        if self._is_asked and not self._is_over():
            super().data_received(self._unparsed)
        self._unparsed = b""
        super().connection_lost(exc)

    def pause_reading(self) -> None:
        """Let what comes wait in the socket; behind the end nothing comes."""
        if not self._is_ended:
            super().pause_reading()

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Fail, and whoever waits for the body too: aiohttp would let them wait in vain."""
        exc.__cause__ = next((each for each in cause if isinstance(each, Exception)), None)
        super().set_exception(exc)
        payload = self._payload
        if payload is not None and not payload.is_eof() and payload.exception() is None:
            payload.set_exception(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the answer that was asked for, and no others."""
        if data:
            self._unparsed += data
            self._parse()
        else:  # aiohttp continues with what its parser had put aside
            self._is_exact = not self._unparsed
            super().data_received(data)

    def resume_reading(self, *how: Any, **more: Any) -> None:
        """Continue with what came before reading was paused."""
        super().resume_reading(*how, **more)
        self._parse()

    def _parse(self) -> None:
        """Parse what came, the last byte on its own: an answer that is over before has surplus."""
        if self._is_parsing:
            return
        data, at = self._unparsed, 0
        self._is_parsing = True
        while at < len(data) and not self._reading_paused:
            if not self._is_asked or self._is_over():
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
        return self._is_answered and (self._payload is None or self._payload.is_eof())

    def _refuse(self) -> None:
        """End the connection at once; an answer that is whole can still be read."""
        self._is_exact = False
        transport = self.transport
        if transport is not None:
            transport.abort()
        self.set_exception(ServerDisconnectedError("bytes came that were not asked for"))

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Take a message in, unless it is one of a flood, or the second answer."""
        status = data[0].code
        if self._is_answered:
            self._refuse()
            return
        self._is_answered = status >= _FINAL or status == _SWITCHING
        if not self._is_answered:
            self.interim += 1
            if self.interim > MAX_INTERIM_RESPONSES:
                self.set_exception(BadHttpMessage("too many interim answers"))
                return
        super().feed_data(data, size)


def _is_readable(descriptor: int) -> bool:
    """Look whether a socket has bytes, an end or an error to tell, without waiting."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _has_bytes(descriptor: int) -> bool:
    """Look whether a socket has bytes, and leave them there."""
    with socket.socket(fileno=os.dup(descriptor)) as same, suppress(OSError):
        return bool(same.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    return False


class Connector(TCPConnector):
    """All connections: `most` are kept for reuse. Literal addresses go to the resolver too."""

    def __init__(
        self, resolver: AbstractResolver, guard: AddressGuard, most: int, **options: Any
    ) -> None:
        super().__init__(
            resolver=resolver,
            use_dns_cache=False,
            socket_factory=guard.socket,
            limit=0,  # how many are in use is the executor's affair
            keepalive_timeout=IDLE_SECONDS,
            **options,
        )
        self.idle: dict[ResponseHandler, None] = {}  # the oldest first
        self._factory = cast(
            "partial[ResponseHandler]", partial(ConnectionHandler, self._loop, self.idle)
        )
        self._most = most

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 - aiohttp's signature
    ) -> Connection:
        """A connection over which nothing came unasked; whatever ends the wait for it is marked.

        The request is written before the loop turns again, so nothing comes in between.
        """
        while True:
            try:
                connection = await self._connected(req, traces, timeout)
            except asyncio.CancelledError as error:
                error.add_note(CONNECTING_NOTE)
                raise
            handler = cast("ConnectionHandler", connection.protocol)
            self.idle.pop(handler, None)
            if not handler.is_spoilt():
                return connection
            connection.close()
            if not handler.is_used:
                raise BadHttpMessage("the host answered before it was asked")

    async def _connected(
        self, req: ClientRequest, traces: list[Trace], limits: ClientTimeout
    ) -> Connection:
        """As `connect`; while descriptors are short, idle connections give theirs."""
        while True:
            try:
                return await super().connect(req, traces, limits)
            except ClientConnectorError as error:
                if local_reason_of(error) != EMFILE or not self.idle:
                    raise
            self.close_idle(CLOSED_PER_SHORTAGE)
            await asyncio.sleep(0)  # a socket is closed in the turn after its connection,
            await asyncio.sleep(0)  # and with TLS one later

    def close_idle(self, count: int | None = None) -> None:
        """Close so many connections that nobody uses, the oldest first; None: all of them."""
        for protocol in list(self.idle)[:count]:
            del self.idle[protocol]
            if protocol.transport is not None:
                protocol.transport.abort()

    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        is_exact = cast("ConnectionHandler", protocol).end_answer()
        is_crowded = len(self.idle) >= self._most
        if protocol.is_connected() and is_exact and not is_crowded:
            self.idle[protocol] = None  # until it is used, or closed, be it at once
        super()._release(key, protocol, should_close=should_close or is_crowded or not is_exact)

    async def _resolve_host(
        self,
        host: str,
        port: int,
        traces: Sequence[Trace] | None = None,  # noqa: ARG002 - aiohttp's signature
    ) -> list[ResolveResult]:
        return await self._resolver.resolve(host, port)
