"""The owner's side: a socket beside the file, behind which the store is.

The requests of one connection are answered in order, a verb that has begun is never cut short, and
whatever a connection does, neither the others nor the owner wait for it.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio import StreamReader, StreamReaderProtocol, StreamWriter
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from outrider.errors import InvalidInput, OutriderError
from outrider.store.protocol import FullStore
from outrider.store.remote import wire
from outrider.store.remote.address import bound_for, is_same_user
from outrider.store.remote.verbs import SIGNATURES

MOST: Final = 64  # connections at one time
BACKLOG: Final = 100  # clients that wait to be let in
ACCEPT_INTERVAL: Final = 1.0  # seconds until it is tried again when none could be let in
HELLO_WITHIN: Final = 5.0  # seconds
READ_WITHIN: Final = 30.0  # seconds that an answer may lie about unread
END_WITHIN: Final = 5.0  # seconds for what has begun, when the door closes

# A client that left, that was too slow (TimeoutError is an OSError), or that makes no sense.
_GONE: Final = (EOFError, OSError, OutriderError, msgspec.DecodeError, RecursionError)


class Door:
    """Lets other processes of this user speak to a store, until it is closed."""

    def __init__(self, store: FullStore, path: Path) -> None:
        self.path = path
        self._store = store
        self._accepting: asyncio.Task[None] | None = None
        self._inode = 0
        self._connections: dict[asyncio.Task[None], _Connection] = {}

    @classmethod
    async def open(cls, store: FullStore, path: str) -> Door:
        """Serve this store to those who look for the file at `path`; the caller holds that file."""
        listener, place = bound_for(Path(path))
        door = cls(store, place)
        try:
            door._inode = place.lstat().st_ino
            listener.listen(BACKLOG)
            listener.setblocking(False)
            door._accepting = asyncio.create_task(door._accept(listener))
        except BaseException:
            door._take_away()
            listener.close()
            raise
        door._accepting.add_done_callback(lambda _: listener.close())
        return door

    async def _accept(self, listener: socket.socket) -> None:
        """Let clients in; while there is no descriptor for one, they wait outside.

        asyncio's own server would try a hundred times at once, and complain each time.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError:  # no descriptor, or no memory
                await asyncio.sleep(ACCEPT_INTERVAL)
            else:
                await self._let_in(client)

    async def _let_in(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(self._protocol, client)
        except BaseException as error:
            client.close()
            if not isinstance(error, OSError):
                raise

    def _protocol(self) -> StreamReaderProtocol:
        return StreamReaderProtocol(StreamReader(limit=wire.BUFFER), self._meet)

    async def close(self) -> None:
        """Let nobody in any more, answer what has begun, and part; the store stays open."""
        if self._accepting is None:
            return
        accepting, self._accepting = self._accepting, None
        self._take_away()
        accepting.cancel()
        await asyncio.wait([accepting])
        await self._part()

    def _take_away(self) -> None:
        """By now the path may be that of a new owner's socket."""
        with suppress(FileNotFoundError):
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()

    async def _part(self) -> None:
        for task, connection in self._connections.items():
            connection.end(task)
        if self._connections:
            _, busy = await asyncio.wait(self._connections, timeout=END_WITHIN)
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)

    def _meet(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._accepting is None or not is_same_user(writer.get_extra_info("socket")):
            writer.transport.abort()
            return
        full = len(self._connections) >= MOST
        connection = _Connection(self._store, reader, writer)
        serving = connection.serve(f"it serves {MOST} others already" if full else "")
        task = asyncio.get_running_loop().create_task(serving)
        self._connections[task] = connection
        task.add_done_callback(self._connections.pop)


class _Connection:
    """One client: a hello, then request after request."""

    def __init__(self, store: FullStore, reader: StreamReader, writer: StreamWriter) -> None:
        self._store = store
        self._reader = reader
        self._writer = writer
        self._is_reading = self._is_ending = False

    def end(self, task: asyncio.Task[None]) -> None:
        """Part after the answer that is being made; at once, if nothing was asked."""
        self._is_ending = True
        if self._is_reading:
            task.cancel()

    async def serve(self, refusal: str) -> None:
        """Until the client goes, makes no sense, leaves answers unread, or the door is closed."""
        try:
            with suppress(*_GONE):
                is_welcome = await self._greet(refusal)
                while is_welcome and not self._is_ending:
                    await self._turn()
        finally:
            await self._hang_up()

    async def _greet(self, refusal: str) -> bool:
        async with asyncio.timeout(HELLO_WITHIN):
            theirs = wire.read_hello(await self._next())
        await self._send(wire.frame(wire.hello(self._store.id, refusal)))
        return theirs.protocol == wire.PROTOCOL and not refusal

    async def _turn(self) -> None:
        request = wire.read_request(await self._next())
        await self._send(await self._answered(request))
        # Requests that wait in the buffer suspend nobody: without this, a client that never waits
        # would have the owner's loop to itself.
        await asyncio.sleep(0)

    async def _next(self) -> bytes:
        self._is_reading = True
        try:
            return await wire.read_frame(self._reader)
        finally:
            self._is_reading = False

    async def _answered(self, request: wire.Request) -> bytes:
        try:
            return wire.frame(await self._asked(request))
        except Exception as error:  # noqa: BLE001 - whatever went wrong is the answer
            return wire.frame(wire.complaint(request.id, error))

    async def _asked(self, request: wire.Request) -> wire.Answer:
        verb = SIGNATURES.get(request.verb)
        if verb is None:
            raise InvalidInput(f"a store has no verb {request.verb[:50]!r}")
        call = getattr(self._store, verb.name)
        return wire.answer(request.id, await call(**verb.arguments(request.arguments)))

    async def _send(self, frame: bytes) -> None:
        self._writer.write(frame)
        try:
            async with asyncio.timeout(READ_WITHIN):
                await self._writer.drain()
        except TimeoutError:
            self._writer.transport.abort()
            raise

    async def _hang_up(self) -> None:
        """What was answered still goes out, unless the client does not take it."""
        self._writer.close()
        try:
            async with asyncio.timeout(END_WITHIN):
                await self._writer.wait_closed()
        except (OSError, asyncio.CancelledError):
            self._writer.transport.abort()
