"""One client connection of the test web: answers requests in turn and records each hit.

A hit is recorded exactly once: when the last byte of its answer is handed to the socket, or when
the client disconnects before. While an answer is sent, later requests wait in the buffer.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from struct import pack
from typing import Final, Protocol

import msgspec

from outrider.testing.web.hits import Hit
from outrider.testing.web.http_wire import (
    MAX_HEAD_BYTES,
    NO_REQUEST,
    TOO_LONG,
    Request,
    encode_reply,
    read_request,
    reply_steps,
    retry_header,
)
from outrider.testing.web.messages import Answer, Hangup, Reply, Script, Step

_END: Final = b"\r\n\r\n"
_NO_LINGER: Final = pack("ii", 1, 0)  # a close becomes a reset


class ConnectionHandler(Protocol):
    """What a connection needs from the server."""

    def now(self) -> float:
        """Return seconds since 1970; never goes back."""
        ...

    def date(self, at: float) -> str:
        """Return the Date header field of an instant."""
        ...

    def answer(self, request: Request, at: float) -> Answer:
        """Return the answer to a request that began at an instant."""
        ...

    def record(self, hit: Hit) -> None:
        """Record a finished hit."""
        ...

    def connection_opened(self, connection: Connection) -> None:
        """Register an open connection."""
        ...

    def connection_closed(self, connection: Connection) -> None:
        """Remove a closed connection."""
        ...


class Connection(asyncio.Protocol):
    """Serves one client connection."""

    def __init__(self, handler: ConnectionHandler) -> None:
        self._handler = handler
        self._buffer = b""
        self._received_at = 0.0  # when the first byte of the buffer arrived
        self._player: asyncio.Task[None] | None = None
        self._current: _Open | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection (asyncio)."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # `pause_writing` is called whenever the socket has not taken every byte.
        transport.set_write_buffer_limits(0)
        self._peer: int = transport.get_extra_info("peername")[1]
        self._handler.connection_opened(self)

    def data_received(self, data: bytes) -> None:
        """Take in bytes of a request (asyncio)."""
        if not self._buffer:
            self._received_at = self._handler.now()
        self._buffer += data
        self._serve()
        if len(self._buffer) > MAX_HEAD_BYTES:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """Stop sending: the socket is full (asyncio)."""
        self._flowing.clear()

    def resume_writing(self) -> None:
        """Continue sending: the socket took everything (asyncio)."""
        self._flowing.set()

    def connection_lost(self, _: Exception | None) -> None:
        """Record the request in progress as cut off (asyncio)."""
        if self._player is not None:
            self._player.cancel()
        self._flowing.set()
        if self._current is not None:
            self._current.ended_at = self._handler.now()
            self._record(self._current, is_cut=True)
        self._handler.connection_closed(self)

    def close(self) -> None:
        """Abort the connection."""
        self._transport.abort()

    def _serve(self) -> None:
        """Answer the complete requests of the buffer, one after the other."""
        while self._current is None and not self._transport.is_closing():
            head, end, rest = self._buffer.partition(_END)
            if not end and len(head) <= MAX_HEAD_BYTES:
                return
            began_at, self._received_at = self._received_at, self._handler.now()
            self._buffer = rest
            self._begin(read_request(head) if end else TOO_LONG, began_at)

    def _begin(self, request: Request | Reply, began_at: float) -> None:
        if isinstance(request, Reply):
            self._current = _Open(NO_REQUEST, began_at)
            self._send_answer(request, self._current)
            return
        self._current = _Open(request, began_at)
        self._send_answer(self._handler.answer(request, began_at), self._current)

    def _send_answer(self, answer: Answer, opened: _Open) -> None:
        opened.status = answer.status
        if isinstance(answer, Script):
            self._play(answer.steps, opened)
            return
        now = opened.ended_at = self._handler.now()
        retry, opened.wait_until = retry_header(answer, now)
        parts = encode_reply(answer, opened.request, self._handler.date(now) + retry)
        opened.closes = answer.close or not opened.request.keep_alive
        if not answer.is_plain:
            self._play(reply_steps(answer, parts), opened)
            return
        self._send(b"".join(parts), opened)
        if self._flowing.is_set():
            self._finish(opened)
        else:
            self._play((), opened)

    def _send(self, data: bytes, opened: _Open) -> None:
        # Read the clock first: the client may have the bytes before this process runs again.
        opened.ended_at = self._handler.now()
        opened.bytes += len(data)
        self._transport.write(data)

    def _play(self, steps: Iterable[Step], opened: _Open) -> None:
        self._player = asyncio.get_running_loop().create_task(self._play_steps(steps, opened))

    async def _play_steps(self, steps: Iterable[Step], opened: _Open) -> None:
        for step in steps:
            if isinstance(step, Hangup):
                self._reset(opened)
                return
            await self._step(step, opened)
        await self._wait_until_sent(opened)
        self._player = None
        self._finish(opened)
        self._serve()
        if len(self._buffer) <= MAX_HEAD_BYTES:
            self._transport.resume_reading()

    async def _step(self, step: bytes | float, opened: _Open) -> None:
        if isinstance(step, bytes):
            self._send(step, opened)
            await self._wait_until_sent(opened)
            await asyncio.sleep(0)  # an endless answer must not block the event loop
        elif step:
            await asyncio.sleep(step)
            opened.ended_at = self._handler.now()

    async def _wait_until_sent(self, opened: _Open) -> None:
        if not self._flowing.is_set():
            await self._flowing.wait()
            opened.ended_at = self._handler.now()

    def _finish(self, opened: _Open) -> None:
        self._record(opened, is_cut=False)
        if opened.closes:
            self._transport.close()

    def _reset(self, opened: _Open) -> None:
        self._record(opened, is_cut=False)
        self._transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER
        )
        self._transport.abort()

    def _record(self, opened: _Open, *, is_cut: bool) -> None:
        self._current = None
        request = opened.request
        self._handler.record(
            Hit(
                opened.began_at,
                opened.ended_at,
                request.host,
                request.target,
                opened.status,
                opened.bytes,
                self._peer,
                request.headers.get("user-agent", ""),
                request.method,
                opened.wait_until,
                is_cut,
            )
        )


class _Open(msgspec.Struct, gc=False):
    """A request that is being answered."""

    request: Request
    began_at: float
    ended_at: float = 0.0
    status: int = 0
    bytes: int = 0
    wait_until: float = 0.0
    closes: bool = True
