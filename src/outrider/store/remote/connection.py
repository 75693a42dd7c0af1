"""A client's connection to the process that holds the file.

Requests are sent at once; an answer is matched to its caller by number. A frame is written whole
or not at all, so a caller may be cancelled at any time.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from outrider.errors import (
    OutriderError,
    StoreError,
    StoreUnattended,
    StoreUnavailable,
    StoreUnresponsive,
)
from outrider.store.remote import frames
from outrider.store.remote.socket_address import is_same_user, socket_path

CONNECT_TIMEOUT: Final = 3.0  # seconds, hello included, which a holder answers between two verbs
RECONNECT_INTERVAL: Final = 0.05  # seconds between attempts while the holder's backlog is full


class Connection:
    """An open connection; once lost it stays lost, and the client opens another."""

    def __init__(self, store: str, reader: StreamReader, writer: StreamWriter) -> None:
        self.store = store
        self.notify: Callable[[str], None] | None = None  # called with the name of a crawl (C6)
        self.is_lost = self.is_silent = False
        self.end = "went away"  # once it is lost: what the holder did
        self._reader = reader
        self._writer = writer
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[frames.Answer | None]] = {}
        self._reader_task = asyncio.get_running_loop().create_task(self._read_answers())

    @classmethod
    async def open(cls, file: str, explain: Callable[[float], str] | None = None) -> Connection:
        """Connect to the process that holds the file and exchange hellos.

        `explain` turns seconds without an answer into a message that names the process and a fix.
        """
        path = socket_path(Path(file))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                reader, writer = await _connect_client(path)
                return cls(await _exchange_hello(file, reader, writer), reader, writer)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise StoreUnattended(_unreachable_message(file, path, error)) from error
        except TimeoutError as error:
            text = explain(CONNECT_TIMEOUT) if explain else _unreachable_message(file, path, error)
            raise StoreUnresponsive(text) from error
        except (EOFError, OSError) as error:
            raise StoreUnavailable(_unreachable_message(file, path, error)) from error

    @contextmanager
    def request(
        self, verb: str, arguments: msgspec.Raw
    ) -> Iterator[asyncio.Future[frames.Answer | None]]:
        """Send a request; its future gets the answer, or None if the connection is lost first."""
        number = next(self._numbers)
        frame = frames.frame(frames.Request(number, verb, arguments))
        answer: asyncio.Future[frames.Answer | None] = asyncio.get_running_loop().create_future()
        if self.is_lost:
            answer.set_result(None)
            yield answer
            return
        self._waiting[number] = answer
        try:
            self._writer.write(frame)
            yield answer
        finally:
            self._waiting.pop(number, None)

    def disconnect(self, end: str = "", *, is_silent: bool = False) -> None:
        """Drop the connection for the reason `end`, and wake every waiting caller."""
        if not self.is_lost:
            self.end, self.is_silent = end or self.end, is_silent
        self.is_lost = True
        self._reader_task.cancel()
        self._writer.transport.abort()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result(None)

    async def close(self) -> None:
        """Disconnect and wait until the socket is closed."""
        self.disconnect()
        await asyncio.wait([self._reader_task])
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _read_answers(self) -> None:
        try:
            while True:
                self._deliver(frames.read_answer(await frames.read_frame(self._reader)))
        except (EOFError, OSError, OutriderError, msgspec.DecodeError, RecursionError):
            self.disconnect()

    def send(self, verb: str, arguments: msgspec.Raw) -> None:
        """Send a request whose answer nothing waits for."""
        if not self.is_lost:
            self._writer.write(frames.frame(frames.Request(next(self._numbers), verb, arguments)))

    def _deliver(self, answer: frames.Answer) -> None:
        if answer.id == frames.NOTIFICATION:
            if self.notify is not None:
                self.notify(frames.read_crawl(answer.value))
            return
        caller = self._waiting.get(answer.id)
        if caller is not None and not caller.done():
            caller.set_result(answer)


async def _connect_client(path: Path) -> tuple[StreamReader, StreamWriter]:
    """Connect, trying again while the holder's backlog is full, until the caller's timeout."""
    while True:
        reader, writer = await asyncio.open_unix_connection(path, limit=frames.BUFFER)
        try:
            writer.get_extra_info("socket").getpeername()
        except OSError:  # the backlog is full: asyncio reports it as connected
            writer.transport.abort()
            await asyncio.sleep(RECONNECT_INTERVAL)
        else:
            return reader, writer


async def _exchange_hello(file: str, reader: StreamReader, writer: StreamWriter) -> str:
    """Exchange hellos and return the id of the holder's store."""
    try:
        _require_same_user(file, writer)
        writer.write(frames.frame(frames.hello()))
        return _check_hello(file, frames.read_hello(await frames.read_frame(reader))).store
    except msgspec.DecodeError as error:
        writer.transport.abort()
        raise StoreError(
            f"the process that serves the socket of {file} is not Outrider: {error}"
        ) from error
    except BaseException:
        writer.transport.abort()
        raise


def _require_same_user(file: str, writer: StreamWriter) -> None:
    if not is_same_user(writer.get_extra_info("socket")):
        raise StoreError(f"the socket of {file} is served by another user: nothing was sent")


def _unreachable_message(file: str, path: Path, error: Exception) -> str:
    match error:
        case FileNotFoundError() | ConnectionRefusedError():
            return f"no process serves {file} (at {path}): open it in one, then try again"
        case TimeoutError():
            return f"the process that holds {file} does not answer: is it stopped, or very busy?"
        case EOFError():
            return (
                f"the process that holds {file} closed the connection before its hello: try again"
            )
        case _:
            return f"the process that holds {file} cannot be reached at {path}: {error}"


def _check_hello(file: str, theirs: frames.Hello) -> frames.Hello:
    ours = frames.hello()
    if theirs.protocol != ours.protocol:
        raise StoreError(
            f"the process that holds {file} runs Outrider {theirs.version} (protocol "
            f"{theirs.protocol}), this is {ours.version} ({ours.protocol}): "
            "use the same release in both"
        )
    if theirs.refusal:
        raise StoreUnavailable(f"the process that holds {file} refuses: {theirs.refusal}")
    return theirs
