"""Connections as aiohttp makes them, but for this: whatever breaks one ends it at once, addresses
come from our resolver and past our guard, and of those nobody uses only so many are kept. When
descriptors run short, the oldest of these are closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

from aiohttp import ClientConnectorError, ClientRequest, ClientTimeout, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.tracing import Trace

from outrider.fetch.guard import Guard
from outrider.fetch.local_faults import EMFILE, local_reason_of

INTERIM: Final = 16  # answers such as 100 and 103 before the real one
IDLE: Final = 15.0  # seconds an unused connection is kept
CONNECTING: Final = "while connecting"  # marks what ended the wait
CLOSED_AT_ONCE: Final = 8  # idle connections, to make room for one


class Handler(ResponseHandler):
    """One connection; among the idle ones, it leaves them when it ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, idle: dict[ResponseHandler, None]) -> None:
        super().__init__(loop)
        self._idle = idle
        self.is_used = False  # an answer came over it before
        self.interim = 0

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._idle.pop(self, None)
        super().connection_lost(exc)

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Fail, and whoever waits for the body too: aiohttp would let them wait in vain."""
        exc.__cause__ = next((each for each in cause if isinstance(each, Exception)), None)
        super().set_exception(exc)
        payload = self._payload
        if payload is not None and not payload.is_eof() and payload.exception() is None:
            payload.set_exception(exc)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Take a message in, unless it is one of a flood."""
        if data[0].code < 200:
            self.interim += 1
            if self.interim > INTERIM:
                self.set_exception(BadHttpMessage("too many interim answers"))
                return
        super().feed_data(data, size)


class Connector(TCPConnector):
    """All connections: `most` are kept for reuse. Literal addresses go to the resolver too."""

    def __init__(self, resolver: AbstractResolver, guard: Guard, most: int, **options: Any) -> None:
        super().__init__(
            resolver=resolver,
            use_dns_cache=False,
            socket_factory=guard.socket,
            limit=0,  # how many are in use is the executor's affair
            keepalive_timeout=IDLE,
            **options,
        )
        self.idle: dict[ResponseHandler, None] = {}  # the oldest first
        self._factory = cast("partial[ResponseHandler]", partial(Handler, self._loop, self.idle))
        self._most = most

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 - aiohttp's signature
    ) -> Connection:
        """A connection; whatever ends the wait for one is marked."""
        try:
            connection = await self._connected(req, traces, timeout)
        except asyncio.CancelledError as error:
            error.add_note(CONNECTING)
            raise
        self.idle.pop(cast("ResponseHandler", connection.protocol), None)
        return connection

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
            self.close_idle(CLOSED_AT_ONCE)
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
        is_crowded = len(self.idle) >= self._most
        if protocol.is_connected() and not is_crowded:
            self.idle[protocol] = None  # until it is used, or closed, be it at once
        super()._release(key, protocol, should_close=should_close or is_crowded)

    async def _resolve_host(
        self,
        host: str,
        port: int,
        traces: Sequence[Trace] | None = None,  # noqa: ARG002 - aiohttp's signature
    ) -> list[ResolveResult]:
        return await self._resolver.resolve(host, port)
