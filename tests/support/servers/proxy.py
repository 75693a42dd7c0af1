"""A proxy to a server, whose connections a test can hold, cut, refuse, slow down or encrypt.

It carries bytes and knows nothing of them but how PostgreSQL asks for TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

T = TypeVar("T")

CERTIFICATES: Final = {
    name: Path(__file__).with_name(f"{name}.pem") for name in ("valid", "expired")
}
_CHUNK: Final = 65_536
_MAX_CHUNKS: Final = 64  # chunks in transit in each direction
_ASKS_TLS: Final = (8).to_bytes(4) + (80_877_103).to_bytes(4)
_ASKS_GSS: Final = (8).to_bytes(4) + (80_877_104).to_bytes(4)


class Proxy:
    """`with Proxy(server.url) as proxy:` serves at `proxy.url`, in its own thread.

    `certificate`, "valid" or "expired", makes its side of the line TLS; the server's stays plain.
    """

    def __init__(self, url: str, *, port: int = 0, certificate: str | None = None) -> None:
        self._target = urlsplit(url)
        self.port = port
        self.delay = 0.0  # seconds per chunk, each way
        self._context = _context(certificate) if certificate else None
        self._thread = Thread(target=lambda: asyncio.run(self._serve()), name="proxy", daemon=True)
        self._is_ready = Event()
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The server's URL, through this proxy."""
        user, at, _ = self._target.netloc.rpartition("@")
        scheme = self._target.scheme
        if self._context is not None and scheme == "redis":
            scheme = "rediss"
        return urlunsplit(
            self._target._replace(scheme=scheme, netloc=f"{user}{at}127.0.0.1:{self.port}")
        )

    def pause(self) -> None:
        """Hold every byte, both ways; connections stay, new ones are accepted and held as well."""
        self._do(self._open_gate.clear)

    def resume(self) -> None:
        """Pass on what was held, and all further bytes."""
        self._do(self._open_gate.set)

    def cut(self) -> None:
        """Close every connection; new ones are accepted."""
        self._do(self._cut)

    def refuse(self) -> None:
        """Close every connection, and accept no new one."""
        self._await(self._stop_listening())

    def accept(self) -> None:
        """Accept connections again, at the same port."""
        self._await(self._start_listening())

    def slow_down(self, delay: float) -> None:
        """Delay further bytes by so many seconds, each way."""
        self.delay = delay

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._is_over.set)
        self._thread.join()

    # ---- in its own thread

    def _do(self, act: Callable[[], object]) -> None:
        async def done() -> None:
            act()

        self._await(done())

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _serve(self) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        self._open_gate = asyncio.Event()
        self._open_gate.set()
        await self._start_listening()
        self._is_ready.set()
        await self._is_over.wait()
        await self._stop_listening()

    async def _start_listening(self) -> None:
        self._door = await asyncio.start_server(self._answer, "127.0.0.1", self.port)
        self.port = self._door.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        self._door.close()
        self._cut()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _cut(self) -> None:
        for call in self._calls:
            call.cancel()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.current_task()
        assert call is not None
        self._calls.add(call)
        try:
            await self._carry(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # broken connections are expected
        finally:
            self._calls.discard(call)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await self._start_tls(reader, writer) if self._context else b""
        target = self._target
        there, back = await asyncio.open_connection(target.hostname, target.port)
        try:
            back.write(first)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._flow(reader, back))
                both.create_task(self._flow(there, writer))
        except* (OSError, EOFError):
            pass
        finally:
            back.transport.abort()

    async def _start_tls(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Start TLS, after PostgreSQL's request if one comes; return bytes read too far."""
        assert self._context is not None
        if self._target.scheme.startswith("postgres"):
            asked = await reader.readexactly(8)
            if asked == _ASKS_GSS:
                writer.write(b"N")
                asked = await reader.readexactly(8)
            if asked != _ASKS_TLS:
                return asked
            writer.write(b"S")
        await writer.start_tls(self._context)
        return b""

    async def _flow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes in one direction; the delay of a chunk starts when it arrives."""
        in_transit: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MAX_CHUNKS)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._deliver(in_transit, writer))
            while data := await reader.read(_CHUNK):
                await in_transit.put((self._loop.time() + self.delay, data))
            await in_transit.put((0.0, b""))

    async def _deliver(
        self, in_transit: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due, data = await in_transit.get()
            if (early := due - self._loop.time()) > 0:
                await asyncio.sleep(early)
            await self._open_gate.wait()
            if not data:
                break
            writer.write(data)
            await writer.drain()
        with suppress(OSError, NotImplementedError):  # TLS connections cannot be half closed
            writer.write_eof()
        if self._context is not None:
            raise EOFError


def _context(certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES[certificate])
    return context
