"""Connections as aiohttp makes them, but for this: whatever breaks one ends it at once, addresses
come from our resolver and past our guard, and of those nobody uses only so many are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

from aiohttp import ClientRequest, ClientTimeout, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.tracing import Trace

from outrider.fetch.guard import Guard

INTERIM: Final = 16  # answers such as 100 and 103 before the real one
IDLE: Final = 15.0  # seconds an unused connection is kept
CONNECTING: Final = "while connecting"  # marks what ended the wait


class Handler(ResponseHandler):
    """One connection; among the idle ones, it leaves them when it ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, idle: set[ResponseHandler]) -> None:
        super().__init__(loop)
        self._idle = idle
        self.is_used = False  # an answer came over it before
        self.interim = 0

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._idle.discard(self)
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
        self.idle: set[ResponseHandler] = set()
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
            connection = await super().connect(req, traces, timeout)
        except asyncio.CancelledError as error:
            error.add_note(CONNECTING)
            raise
        self.idle.discard(cast("ResponseHandler", connection.protocol))
        return connection

    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        is_crowded = len(self.idle) >= self._most
        if protocol.is_connected() and not is_crowded:
            self.idle.add(protocol)  # until it is used, or closed, be it at once
        super()._release(key, protocol, should_close=should_close or is_crowded)

    async def _resolve_host(
        self,
        host: str,
        port: int,
        traces: Sequence[Trace] | None = None,  # noqa: ARG002 - aiohttp's signature
    ) -> list[ResolveResult]:
        return await self._resolver.resolve(host, port)
