"""The server of the test web: serves a `Web` on loopback sockets and records every hit."""

from __future__ import annotations

import asyncio
import socket
import ssl
from email.utils import formatdate
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from outrider.clock import SystemClock
from outrider.testing.web.connection import Connection
from outrider.testing.web.hits import Hit, Hits
from outrider.testing.web.http_wire import Request
from outrider.testing.web.messages import Answer, Asked
from outrider.testing.web.site import Web

CERTIFICATE: Final = Path(__file__).with_name("certificate.pem")
_LOOPBACK: Final = "127.0.0.1"
_BACKLOG: Final = 4096


class WebServer:
    """`async with WebServer(web) as server:` serves until the block ends.

    Hosts are distinguished by the Host field, all on one port of 127.0.0.1; a web of addresses
    listens on each address.
    """

    def __init__(self, web: Web, *, port: int = 0, record: Path | None = None) -> None:
        self.web = web
        self.port = port
        self.tls_port = 0
        self.hits = Hits(record)
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._closed = socket.socket()  # bound, not listening: connections to it are refused
        self._hosts: dict[str, _Host] = {}
        self._visits: dict[tuple[str, str], int] = {}
        self._date = (0, "")

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        # Half a millisecond ahead of the system's clock on average, which counts whole ones: an
        # instant sent to a client must not come later by this clock than by the client's.
        self._offset = (SystemClock().now_ms() + 1) / 1000 - self._loop.time()
        self._began_at = self.now()
        self._closed.bind((_LOOPBACK, 0))
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.close()
        for server in self._servers:
            await server.wait_closed()
        await asyncio.sleep(0)  # connections record their last hits
        self._closed.close()
        self.hits.close()

    def settings(self) -> dict[str, Any]:
        """Return the settings with which a crawler finds this web."""
        closed = self._closed.getsockname()[1]
        return self.web.settings(self.port, closed=closed, tls=self.tls_port)

    def now(self) -> float:
        """Return seconds since 1970; never goes back."""
        return self._offset + self._loop.time()

    def date(self, at: float) -> str:
        """Return the Date header field of an instant."""
        second = int(at)
        if self._date[0] != second:
            self._date = (second, f"Date: {formatdate(second, usegmt=True)}\r\n")
        return self._date[1]

    def answer(self, request: Request, at: float) -> Answer:
        """Return the web's answer to a request that began at an instant."""
        name, target = request.host, request.target
        host = self._hosts.setdefault(name, _Host())
        host.hits += 1
        host.open += 1
        self._visits[name, target] = visit = self._visits.get((name, target), 0) + 1
        idle = 0.0 if host.open > 1 else at - host.ended_at
        asked = Asked(
            name,
            target,
            request.method,
            request.headers,
            visit,
            host.hits,
            idle,
            at,
            at - self._began_at,
        )
        return self.web.answer(asked)

    def record(self, hit: Hit) -> None:
        """Record a finished hit."""
        self.hits.append(hit)
        host = self._hosts.get(hit.host)
        if host is not None:
            host.open -= 1
            host.ended_at = hit.ended_at

    def connection_opened(self, connection: Connection) -> None:
        """Register an open connection."""
        self._connections.add(connection)

    def connection_closed(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._connections.discard(connection)

    async def _listen(self) -> None:
        addresses = list(self.web.sites) if self.web.is_addressed else [_LOOPBACK]
        for address in addresses:
            self.port = await self._listen_at(address, self.port)
        if self.web.tls:
            self.tls_port = await self._listen_at(_LOOPBACK, 0, _tls())
        self.web = self.web.at(self.port)

    async def _listen_at(self, address: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        server = await self._loop.create_server(
            lambda: Connection(self), address, port, ssl=tls, backlog=_BACKLOG
        )
        self._servers.append(server)
        chosen: int = server.sockets[0].getsockname()[1]
        return chosen


class _Host(msgspec.Struct, gc=False):
    """Request counts of one host."""

    hits: int = 0
    open: int = 0
    ended_at: float = float("-inf")


def _tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context
