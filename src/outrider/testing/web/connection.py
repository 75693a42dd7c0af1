"""One visitor's connection: requests in turn, each answered, played out and written down.

A request's hit is recorded exactly once: when its last byte is handed over, or when the visitor
hangs up before. While an answer is played, later requests wait in the buffer.
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
    MOST_HEAD,
    NOBODY,
    TOO_LONG,
    Request,
    read_request,
    retry_header,
    timed,
    written,
)
from outrider.testing.web.messages import Answer, Hangup, Reply, Script, Step

_END: Final = b"\r\n\r\n"
_NO_LINGER: Final = pack("ii", 1, 0)  # a close becomes a reset


class Desk(Protocol):
    """Where connections ask and report."""

    def now(self) -> float:
        """Seconds since 1970, never stepping back."""
        ...

    def date(self, at: float) -> str:
        """The Date field of an instant."""
        ...

    def answer(self, request: Request, at: float) -> Answer:
        """What the web says to a request that began at an instant."""
        ...

    def record(self, hit: Hit) -> None:
        """A hit is over."""
        ...

    def joined(self, connection: Connection) -> None:
        """A visitor is there."""
        ...

    def left(self, connection: Connection) -> None:
        """And is gone."""
        ...


class Connection(asyncio.Protocol):
    """Serves one visitor."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._buffer = b""
        self._seen_at = 0.0  # when the first byte of the buffer came
        self._player: asyncio.Task[None] | None = None
        self._current: _Open | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A visitor is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # So `pause_writing` is called whenever a byte is left that the socket did not take.
        transport.set_write_buffer_limits(0)
        self._peer: int = transport.get_extra_info("peername")[1]
        self._desk.joined(self)

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        if not self._buffer:
            self._seen_at = self._desk.now()
        self._buffer += data
        self._serve()
        if len(self._buffer) > MOST_HEAD:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """The socket is full."""
        self._flowing.clear()

    def resume_writing(self) -> None:
        """The socket took everything."""
        self._flowing.set()

    def connection_lost(self, _: Exception | None) -> None:
        """The visitor hung up, or was told to go."""
        if self._player is not None:
            self._player.cancel()
        self._flowing.set()
        if self._current is not None:
            self._current.ended_at = self._desk.now()
            self._record(self._current, is_cut=True)
        self._desk.left(self)

    def close(self) -> None:
        """Tell the visitor to go."""
        self._transport.abort()

    def _serve(self) -> None:
        """Answer the requests that are whole, one after the other."""
        while self._current is None and not self._transport.is_closing():
            head, end, rest = self._buffer.partition(_END)
            if not end and len(head) <= MOST_HEAD:
                return
            began_at, self._seen_at = self._seen_at, self._desk.now()
            self._buffer = rest
            self._begin(read_request(head) if end else TOO_LONG, began_at)

    def _begin(self, request: Request | Reply, began_at: float) -> None:
        if isinstance(request, Reply):
            self._current = _Open(NOBODY, began_at)
            self._say(request, self._current)
            return
        self._current = _Open(request, began_at)
        self._say(self._desk.answer(request, began_at), self._current)

    def _say(self, answer: Answer, opened: _Open) -> None:
        opened.status = answer.status
        if isinstance(answer, Script):
            self._play(answer.steps, opened)
            return
        now = opened.ended_at = self._desk.now()
        retry, opened.wait_until = retry_header(answer, now)
        parts = written(answer, opened.request, self._desk.date(now) + retry)
        opened.closes = answer.close or not opened.request.keep_alive
        if not answer.is_plain:
            self._play(timed(answer, parts), opened)
            return
        self._send(b"".join(parts), opened)
        if self._flowing.is_set():
            self._finish(opened)
        else:
            self._play((), opened)

    def _send(self, data: bytes, opened: _Open) -> None:
        # Read before the bytes go: the visitor may have them before this process runs again.
        opened.ended_at = self._desk.now()
        opened.bytes += len(data)
        self._transport.write(data)

    def _play(self, steps: Iterable[Step], opened: _Open) -> None:
        self._player = asyncio.get_running_loop().create_task(self._played(steps, opened))

    async def _played(self, steps: Iterable[Step], opened: _Open) -> None:
        for step in steps:
            if isinstance(step, Hangup):
                self._reset(opened)
                return
            await self._step(step, opened)
        await self._drained(opened)
        self._player = None
        self._finish(opened)
        self._serve()
        if len(self._buffer) <= MOST_HEAD:
            self._transport.resume_reading()

    async def _step(self, step: bytes | float, opened: _Open) -> None:
        if isinstance(step, bytes):
            self._send(step, opened)
            await self._drained(opened)
            await asyncio.sleep(0)  # an endless answer leaves the loop to others
        elif step:
            await asyncio.sleep(step)
            opened.ended_at = self._desk.now()

    async def _drained(self, opened: _Open) -> None:
        if not self._flowing.is_set():
            await self._flowing.wait()
            opened.ended_at = self._desk.now()

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
        self._desk.record(
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
