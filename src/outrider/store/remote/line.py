"""One connection to the owner: requests go out at once, answers find their caller by number.

A frame is written whole or not at all, so a caller may leave at any time and the order stays.
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
from outrider.store.remote import wire
from outrider.store.remote.address import is_same_user, socket_path

CONNECT_WITHIN: Final = 3.0  # seconds, hello included: a holder answers it between two verbs
AGAIN: Final = 0.05  # seconds between two tries to be let in by a holder with a full backlog


class Line:
    """Spoken over until it is lost; then there has to be a new one."""

    def __init__(self, store: str, reader: StreamReader, writer: StreamWriter) -> None:
        self.store = store
        self.is_lost = self.is_silent = False
        self.end = "went away"  # once it is lost: what the other side did
        self._reader = reader
        self._writer = writer
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[wire.Answer | None]] = {}
        self._listener = asyncio.get_running_loop().create_task(self._listen())

    @classmethod
    async def open(cls, file: str, explain: Callable[[float], str] | None = None) -> Line:
        """Find the process that holds the file, and agree with it on how to speak.

        `explain` says who does not answer, given for how many seconds, and what to do.
        """
        path = socket_path(Path(file))
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                reader, writer = await _let_in(path)
                return cls(await _greeted(file, reader, writer), reader, writer)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise StoreUnattended(_unreached(file, path, error)) from error
        except TimeoutError as error:
            text = explain(CONNECT_WITHIN) if explain else _unreached(file, path, error)
            raise StoreUnresponsive(text) from error
        except (EOFError, OSError) as error:
            raise StoreUnavailable(_unreached(file, path, error)) from error

    @contextmanager
    def asked(
        self, verb: str, arguments: msgspec.Raw
    ) -> Iterator[asyncio.Future[wire.Answer | None]]:
        """The answer, whenever it comes; None if the line was lost before it came."""
        number = next(self._numbers)
        frame = wire.frame(wire.Request(number, verb, arguments))
        answer: asyncio.Future[wire.Answer | None] = asyncio.get_running_loop().create_future()
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

    def hang_up(self, end: str = "", *, is_silent: bool = False) -> None:
        """Lose the line, because of what the other side did: no caller waits any longer."""
        if not self.is_lost:
            self.end, self.is_silent = end or self.end, is_silent
        self.is_lost = True
        self._listener.cancel()
        self._writer.transport.abort()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result(None)

    async def close(self) -> None:
        """Hang up, and leave nothing behind."""
        self.hang_up()
        await asyncio.wait([self._listener])
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _listen(self) -> None:
        try:
            while True:
                self._hand_on(wire.read_answer(await wire.read_frame(self._reader)))
        except (EOFError, OSError, OutriderError, msgspec.DecodeError, RecursionError):
            self.hang_up()

    def _hand_on(self, answer: wire.Answer) -> None:
        caller = self._waiting.get(answer.id)
        if caller is not None and not caller.done():
            caller.set_result(answer)


async def _let_in(path: Path) -> tuple[StreamReader, StreamWriter]:
    """Connect; a holder whose backlog is full is asked again until the caller's time is over."""
    while True:
        reader, writer = await asyncio.open_unix_connection(path, limit=wire.BUFFER)
        try:
            writer.get_extra_info("socket").getpeername()
        except OSError:  # not let in: asyncio takes that for a connection
            writer.transport.abort()
            await asyncio.sleep(AGAIN)
        else:
            return reader, writer


async def _greeted(file: str, reader: StreamReader, writer: StreamWriter) -> str:
    """The id of the store at the other end, once both sides have said hello."""
    try:
        _require_same_user(file, writer)
        writer.write(wire.frame(wire.hello()))
        return _checked(file, wire.read_hello(await wire.read_frame(reader))).store
    except msgspec.DecodeError as error:
        writer.transport.abort()
        raise StoreError(f"what serves the socket of {file} is no Outrider: {error}") from error
    except BaseException:
        writer.transport.abort()
        raise


def _require_same_user(file: str, writer: StreamWriter) -> None:
    if not is_same_user(writer.get_extra_info("socket")):
        raise StoreError(f"the socket of {file} is served by another user: nothing was sent")


def _unreached(file: str, path: Path, error: Exception) -> str:
    match error:
        case FileNotFoundError() | ConnectionRefusedError():
            return f"no process serves {file} (at {path}): open it in one, then ask again"
        case TimeoutError():
            return f"the process that holds {file} does not answer: is it stopped, or very busy?"
        case EOFError():
            return f"the process that holds {file} went away before it said hello: ask again"
        case _:
            return f"the process that holds {file} cannot be reached at {path}: {error}"


def _checked(file: str, theirs: wire.Hello) -> wire.Hello:
    ours = wire.hello()
    if theirs.protocol != ours.protocol:
        raise StoreError(
            f"the process that holds {file} runs Outrider {theirs.version} (protocol "
            f"{theirs.protocol}), this is {ours.version} ({ours.protocol}): use one release in both"
        )
    if theirs.refusal:
        raise StoreUnavailable(f"the process that holds {file} refuses: {theirs.refusal}")
    return theirs
