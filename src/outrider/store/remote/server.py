"""The server of a file's store: the process that holds the file answers clients on a socket.

Requests of one client are answered in order, a verb that has started is never interrupted, and no
client can make the others or the holder wait.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio import StreamReader, StreamReaderProtocol, StreamWriter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from outrider.errors import InvalidInput, OutriderError
from outrider.store.protocol import FullStore
from outrider.store.remote import frames
from outrider.store.remote.signatures import SIGNATURES
from outrider.store.remote.socket_address import bind_for, is_same_user

MAX_CONNECTIONS: Final = 64  # at one time
BACKLOG: Final = 100  # clients waiting to be accepted
ACCEPT_INTERVAL: Final = 1.0  # seconds before the next attempt after an accept failed
HELLO_TIMEOUT: Final = 5.0  # seconds
WRITE_TIMEOUT: Final = 30.0  # seconds a client may leave an answer unread
CLOSE_TIMEOUT: Final = 5.0  # seconds for started verbs when the server closes
MAX_SUBSCRIPTIONS: Final = 1000  # crawls of one client
NOTIFY_INTERVAL: Final = 0.001  # seconds between two notifications to one client
MAX_UNREAD: Final = 1 << 16  # bytes a client leaves unread, above which notifications wait
UNREAD_INTERVAL: Final = 0.05  # seconds until they are tried again

# The client disconnected, was too slow (TimeoutError is an OSError), or sent invalid frames.
_SESSION_ENDS: Final = (EOFError, OSError, OutriderError, msgspec.DecodeError, RecursionError)


class StoreServer:
    """Serves a store to other processes of this user, until it is closed."""

    def __init__(self, store: FullStore, path: Path) -> None:
        self.path = path
        self._store = store
        self._accepting: asyncio.Task[None] | None = None
        self._inode = 0
        self._connections: dict[asyncio.Task[None], _ClientSession] = {}

    @classmethod
    async def open(cls, store: FullStore, path: str) -> StoreServer:
        """Serve this store as that of the file at `path`, which the caller holds."""
        listener, socket_file = bind_for(Path(path))
        server = cls(store, socket_file)
        try:
            server._inode = socket_file.lstat().st_ino
            listener.listen(BACKLOG)
            listener.setblocking(False)
            server._accepting = asyncio.create_task(server._accept(listener))
        except BaseException:
            server._remove_socket()
            listener.close()
            raise
        server._accepting.add_done_callback(lambda _: listener.close())
        return server

    async def _accept(self, listener: socket.socket) -> None:
        """Accept clients; without a free descriptor, leave them in the backlog.

        asyncio's own server would try a hundred times at once, and log each failure.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError:  # no descriptor, or no memory
                await asyncio.sleep(ACCEPT_INTERVAL)
            else:
                await self._connect_client(client)

    async def _connect_client(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(self._protocol, client)
        except BaseException as error:
            client.close()
            if not isinstance(error, OSError):
                raise

    def _protocol(self) -> StreamReaderProtocol:
        return StreamReaderProtocol(StreamReader(limit=frames.BUFFER), self._start_session)

    async def close(self) -> None:
        """Stop accepting, answer what has started, end all sessions; the store stays open."""
        if self._accepting is None:
            return
        accepting, self._accepting = self._accepting, None
        self._remove_socket()
        accepting.cancel()
        await asyncio.wait([accepting])
        await self._end_sessions()

    def _remove_socket(self) -> None:
        """Remove the socket, unless the path is another holder's socket by now."""
        with suppress(FileNotFoundError):
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()

    async def _end_sessions(self) -> None:
        for task, connection in self._connections.items():
            connection.end(task)
        if self._connections:
            _, busy = await asyncio.wait(self._connections, timeout=CLOSE_TIMEOUT)
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)

    def _start_session(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._accepting is None or not is_same_user(writer.get_extra_info("socket")):
            writer.transport.abort()
            return
        full = len(self._connections) >= MAX_CONNECTIONS
        connection = _ClientSession(self._store, reader, writer)
        serving = connection.serve(f"it serves {MAX_CONNECTIONS} others already" if full else "")
        task = asyncio.get_running_loop().create_task(serving)
        self._connections[task] = connection
        task.add_done_callback(self._connections.pop)


class _Notifier:
    """Sends one client the names of crawls where a claim may find more; never waits for it.

    A crawl is named once an interval at most, and once when the client has read what came before.
    """

    def __init__(self, store: FullStore, writer: StreamWriter) -> None:
        self._store = store
        self._writer = writer
        self._unsubscribers: dict[str, Callable[[], None]] = {}
        self._unsent: dict[str, None] = {}
        self._sending: asyncio.TimerHandle | None = None

    def subscribe(self, crawl: str) -> None:
        """Notify of a crawl from now on, and once now."""
        if crawl in self._unsubscribers:
            return
        if len(self._unsubscribers) >= MAX_SUBSCRIPTIONS:
            raise InvalidInput(
                f"subscribe: {MAX_SUBSCRIPTIONS} crawls are the most for one connection; "
                "unsubscribe from others first"
            )
        notify = partial(self._notify, crawl)
        self._unsubscribers[crawl] = self._store.subscribe(crawl, notify)
        notify()

    def unsubscribe(self, crawl: str) -> None:
        """Notify of a crawl no more."""
        end = self._unsubscribers.pop(crawl, None)
        if end is not None:
            end()

    def _notify(self, crawl: str) -> None:
        self._unsent[crawl] = None
        if self._sending is None:
            self._send_in(NOTIFY_INTERVAL)

    def _send_in(self, seconds: float) -> None:
        self._sending = asyncio.get_running_loop().call_later(seconds, self._send)

    def _send(self) -> None:
        self._sending = None
        transport = self._writer.transport
        if transport.is_closing():
            return
        if transport.get_write_buffer_size() > MAX_UNREAD:
            self._send_in(UNREAD_INTERVAL)
            return
        unsent, self._unsent = self._unsent, {}
        for crawl in unsent:
            self._writer.write(frames.frame(frames.answer(frames.NOTIFICATION, crawl)))

    def close(self) -> None:
        """Notify of nothing more."""
        for crawl in tuple(self._unsubscribers):
            self.unsubscribe(crawl)
        if self._sending is not None:
            self._sending.cancel()


class _ClientSession:
    """One client: a hello, then its requests in order."""

    def __init__(self, store: FullStore, reader: StreamReader, writer: StreamWriter) -> None:
        self._store = store
        self._notifier = _Notifier(store, writer)
        self._reader = reader
        self._writer = writer
        self._is_reading = self._is_ending = False

    def end(self, task: asyncio.Task[None]) -> None:
        """End after the answer in progress; at once if there is none."""
        self._is_ending = True
        if self._is_reading:
            task.cancel()

    async def serve(self, refusal: str) -> None:
        """Answer until the client disconnects or misbehaves, or the server closes."""
        try:
            with suppress(*_SESSION_ENDS):
                is_accepted = await self._exchange_hello(refusal)
                while is_accepted and not self._is_ending:
                    await self._serve_one()
        finally:
            self._notifier.close()
            await self._disconnect()

    async def _exchange_hello(self, refusal: str) -> bool:
        async with asyncio.timeout(HELLO_TIMEOUT):
            theirs = frames.read_hello(await self._read_frame())
        await self._send(frames.frame(frames.hello(self._store.id, refusal)))
        return theirs.protocol == frames.PROTOCOL and not refusal

    async def _serve_one(self) -> None:
        request = frames.read_request(await self._read_frame())
        await self._send(await self._answer_frame(request))
        # Reading buffered requests never suspends: without this, a client that sends without
        # waiting would keep the holder's loop to itself.
        await asyncio.sleep(0)

    async def _read_frame(self) -> bytes:
        self._is_reading = True
        try:
            return await frames.read_frame(self._reader)
        finally:
            self._is_reading = False

    async def _answer_frame(self, request: frames.Request) -> bytes:
        try:
            return frames.frame(await self._run_verb(request))
        except Exception as error:  # noqa: BLE001 - the answer carries any error
            return frames.frame(frames.error_answer(request.id, error))

    async def _run_verb(self, request: frames.Request) -> frames.Answer:
        if request.verb in ("subscribe", "unsubscribe"):
            crawl = frames.read_subscription(request)
            getattr(self._notifier, request.verb)(crawl)
            return frames.answer(request.id, None)
        verb = SIGNATURES.get(request.verb)
        if verb is None:
            raise InvalidInput(f"the store protocol has no verb {request.verb[:50]!r}")
        call = getattr(self._store, verb.name)
        return frames.answer(request.id, await call(**verb.arguments(request.arguments)))

    async def _send(self, frame: bytes) -> None:
        self._writer.write(frame)
        try:
            async with asyncio.timeout(WRITE_TIMEOUT):
                await self._writer.drain()
        except TimeoutError:
            self._writer.transport.abort()
            raise

    async def _disconnect(self) -> None:
        """Flush the answers written, unless the client does not read them."""
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._writer.wait_closed()
        except (OSError, asyncio.CancelledError):
            self._writer.transport.abort()
