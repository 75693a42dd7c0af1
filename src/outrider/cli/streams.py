"""Files and pipes of exports: plain, or compressed if the name says so; "-" is a pipe."""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from threading import Thread
from typing import Final, Protocol, TypeAlias

from outrider.errors import InvalidInput, OutriderError

CHUNK: Final = 1 << 18  # bytes read at a time

Read: TypeAlias = Callable[[], bytes]


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


@contextmanager
def reading(source: str) -> Iterator[Read]:
    """What reads the next bytes, and none at the end; complains by the name of the source."""
    if source == "-":
        # Unbuffered: a reader that still waits when the command ends holds no lock.
        pipe = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        yield lambda: _read(pipe, "standard input")
        return
    with _opened(source) as stream:
        yield lambda: _read(stream, source)


def _opened(source: str) -> gzip.GzipFile | FileIO:
    try:
        return gzip.GzipFile(source) if source.endswith(".gz") else FileIO(source)
    except OSError as error:
        raise InvalidInput(f"{source}: {error.strerror}") from error


def _read(stream: _Readable, name: str) -> bytes:
    try:
        return bytes(stream.read(CHUNK) or b"")
    except EOFError as error:
        raise InvalidInput(f"{name}: it was cut: {error}") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInput(f"{name}: it cannot be unpacked: {error}") from error
    except OSError as error:
        raise InvalidInput(f"{name}: {error.strerror}") from error


async def chunks(begin: bytes, read: Read) -> AsyncIterator[bytes]:
    """What was read already, then all that follows; the store goes on while a pipe is slow."""
    while begin:
        yield begin
        begin = await _off_the_loop(read)


async def _off_the_loop(read: Read) -> bytes:
    """Nobody waits for the reader at the end: it may wait for a pipe that never ends."""
    future: Future[bytes] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(read())
        except OutriderError as error:
            future.set_exception(error)

    Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(future)


@contextmanager
def writing(target: str) -> Iterator[Callable[[bytes], object]]:
    """What writes bytes; the file appears under its name when it is whole."""
    if target == "-":
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
        return
    part = Path(f"{target}.part")
    try:
        with gzip.open(part, "wb", 6) if target.endswith(".gz") else part.open("wb") as stream:
            yield stream.write
        part.rename(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def check_target(target: str) -> None:
    """Refuse what is there before anything is written."""
    if target != "-" and os.path.lexists(target):
        raise InvalidInput(f"{target} exists; name another file, or remove it")
