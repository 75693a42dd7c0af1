"""Lines of a file or a pipe → links, in batches as they come: millions fit, and none is fatal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from difflib import get_close_matches
from errno import EAGAIN
from io import FileIO
from threading import Thread
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from outrider.core.task import Link
from outrider.errors import InvalidInput

_CHUNK: Final = 1 << 17  # bytes read at a time: some thousand lines
_LONGEST: Final = 1 << 20  # bytes of one line; a link's own limits are far below
_FIELDS: Final = frozenset(Link.__struct_fields__)


class BadLine(NamedTuple):
    """A line that is no link: what it begins with, and what is wrong."""

    text: str
    fault: str


class Line(NamedTuple):
    """A link and the line it stood on; None: it was an argument."""

    number: int | None
    link: str | Link | BadLine


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


def link_of(url: str, options: Mapping[str, Any]) -> str | Link:
    """A URL with what the options say of it."""
    return Link(url, **options) if options else url


async def lines_of(source: str, options: Mapping[str, Any]) -> AsyncIterator[list[Line]]:
    """The links of a file, or of standard input for "-"; a slow pipe's are handed on at once."""
    with _opened(source) as stream:
        numbered = _Numbered()
        while chunk := await _off_the_loop(lambda: stream.read(_CHUNK)):
            yield list(_links(numbered.feed(chunk), options))
        yield list(_links(numbered.rest(), options))


class _Numbered:
    """Cuts bytes into lines with their numbers."""

    def __init__(self) -> None:
        self._count = 0
        self._tail = b""

    def feed(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        *whole, tail = (self._tail + chunk).split(b"\n")
        self._tail = tail[: _LONGEST + 1]  # too long already: its end no longer matters
        for line in whole:
            self._count += 1
            yield self._count, line

    def rest(self) -> Iterator[tuple[int, bytes]]:
        yield self._count + 1, self._tail


def _links(lines: Iterator[tuple[int, bytes]], options: Mapping[str, Any]) -> Iterator[Line]:
    for number, line in lines:
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")  # noqa: PLW2901 - a byte order mark is no text
        line = line.strip()  # noqa: PLW2901 - nor is what surrounds it
        if line and not line.startswith(b"#"):
            yield Line(number, _read(line, options))


def _read(line: bytes, options: Mapping[str, Any]) -> str | Link | BadLine:
    if len(line) > _LONGEST:
        return _bad(line, f"longer than {_LONGEST:,} bytes")
    if line.startswith(b"{"):
        return _read_json(line, options)
    try:
        return link_of(line.decode(), options)
    except UnicodeDecodeError:
        return _bad(line, "not UTF-8")


def _read_json(line: bytes, options: Mapping[str, Any]) -> Link | BadLine:
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
        strangers = fields.keys() - _FIELDS
        if strangers:
            return _bad(line, _no_field(min(strangers)))
        return msgspec.convert({**options, **fields}, Link)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _bad(line, str(error))


def _no_field(name: str) -> str:
    close = get_close_matches(name, _FIELDS, 1)
    return f"{name!r} is no field of a link" + (f"; did you mean {close[0]}?" if close else "")


def _bad(line: bytes, fault: str) -> BadLine:
    return BadLine(line[:200].decode(errors="replace"), fault)


def check_source(source: str | None) -> None:
    """Refuse what cannot be read before anything is made for it."""
    if source not in (None, "-"):
        with _opened(source):
            pass


@contextmanager
def _opened(source: str) -> Iterator[_Readable]:
    if source == "-":
        # Unbuffered: a reader that still waits when the command ends holds no lock.
        yield getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        return
    try:
        stream = FileIO(source)
    except OSError as error:
        raise InvalidInput(f"--from {source}: {error.strerror}") from error
    with stream:
        yield stream


async def _off_the_loop(read: Callable[[], bytes | None]) -> bytes:
    """Wait for input while the store goes on; nobody waits for the reader at the end."""
    future: Future[bytes] = Future()
    future.set_running_or_notify_cancel()  # from now on the reader may always answer

    def work() -> None:
        try:
            data = read()
            if data is None:
                raise BlockingIOError(EAGAIN, "nothing to read, and not allowed to wait")
            future.set_result(data)
        except OSError as error:
            future.set_exception(InvalidInput(f"--from: {error.strerror}"))

    Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(future)
