"""An export as JSON lines: whatever was not written so is refused by its line, before it is used.

The first line says what this is, the last one how much it was. Between them stand the items of the
store, and after each block of them a line with the SHA-256 of all bytes before that line. So a
block is believed only when it is whole, and a file that was cut is known by its missing last line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Annotated, Final, NamedTuple, NoReturn, TypeAlias

import msgspec
from msgspec import Meta

from outrider.errors import InvalidInput
from outrider.store.saved import Saved, SavedNote, SavedQueue, SavedTask

VERSION: Final = 1
BLOCK_BYTES: Final = 1 << 26  # between two sums, so that no stranger's file fills the memory
BLOCK_LINES: Final = 2_000

_OURS: Final = b'{"outrider":'
_GZIP: Final = b"\x1f\x8b"
Line: TypeAlias = Saved | SavedNote
_Sum: TypeAlias = Annotated[str, Meta(min_length=64, max_length=64)]


class Head(msgspec.Struct, frozen=True, tag_field="outrider", tag="export"):
    """What this is; fields are only ever added, so that every release can read the version."""

    version: Annotated[int, Meta(ge=1)]
    crawl: str = ""
    at: float = 0.0


class Sum(msgspec.Struct, frozen=True, tag_field="outrider", tag="sum"):
    """Nothing before this line was changed."""

    sha256: _Sum


class Tail(msgspec.Struct, frozen=True, tag_field="outrider", tag="end"):
    """This was all."""

    queues: int
    tasks: int
    sha256: _Sum


class Block(NamedTuple):
    """Items that were read and are whole, and the lines they stood on."""

    items: list[Line]
    lines: list[int]


_encode = msgspec.json.Encoder().encode_lines
_decode = msgspec.json.Decoder(Line).decode
_decode_head = msgspec.json.Decoder(Head).decode
_decode_ours = msgspec.json.Decoder(Sum | Tail).decode


class Writer:
    """Items in, lines out."""

    def __init__(self) -> None:
        self._sum = sha256()
        self.queues = self.tasks = 0

    def head(self, crawl: str, at: float) -> bytes:
        """The first line."""
        return self._summed(_encode([Head(VERSION, crawl, at)]))

    def block(self, items: Sequence[Line]) -> bytes:
        """Some items, and their sum."""
        queues, tasks = counted(items)
        self.queues, self.tasks = self.queues + queues, self.tasks + tasks
        lines = self._summed(_encode(items))
        return lines + self._summed(_encode([Sum(self._sum.hexdigest())]))

    def tail(self) -> bytes:
        """The last line."""
        return _encode([Tail(self.queues, self.tasks, self._sum.hexdigest())])

    def _summed(self, lines: bytes) -> bytes:
        self._sum.update(lines)
        return lines


class Reader:
    """Bytes in, as they come; whole blocks out. Raises `InvalidInput`, which names the line."""

    def __init__(self) -> None:
        self.lines = 0
        self._rest: list[bytes] = []  # the beginning of a line
        self._size = 0
        self._sum = sha256()
        self._block = Block([], [])
        self._counts = (0, 0)
        self._is_whole = False

    def feed(self, chunk: bytes) -> Iterator[Block]:
        """The blocks that these bytes complete."""
        first, *others = chunk.split(b"\n")
        self._hold(first)
        for line in others:
            whole = b"".join(self._rest)
            self._rest = []
            yield from self._read(whole)
            self._hold(line)

    def _hold(self, piece: bytes) -> None:
        self._rest.append(piece)
        self._size += len(piece)
        if self._size > BLOCK_BYTES or len(self._block.items) > BLOCK_LINES:
            self._refuse("no checksum for too long; this is no export, or a damaged one", 1)

    def end(self) -> None:
        """No more bytes come."""
        if not (self.lines or any(self._rest)):
            raise InvalidInput("this is no export: it is empty")
        if any(self._rest) and not self.lines:
            list(self._read(b"".join(self._rest)))
        if not self._is_whole or any(self._rest):
            self._refuse("the export was cut: its last line is missing", 1)

    def _read(self, line: bytes) -> Iterator[Block]:
        self.lines += 1
        if self.lines == 1:
            _check_head(line)
        elif self._is_whole:
            self._refuse("something follows the end of the export")
        elif line.startswith(_OURS):
            yield from self._read_ours(line)
        else:
            self._read_item(line)
        self._sum.update(line + b"\n")

    def _read_item(self, line: bytes) -> None:
        try:
            self._block.items.append(_decode(line))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            self._refuse(str(error))
        self._block.lines.append(self.lines)

    def _read_ours(self, line: bytes) -> Iterator[Block]:
        try:
            ours = _decode_ours(line)
        except (msgspec.MsgspecError, UnicodeError) as error:
            self._refuse(str(error))
        if ours.sha256 != self._sum.hexdigest():
            self._refuse("something before this line is not what was written: checksums differ")
        self._size = 0
        if isinstance(ours, Tail):
            self._check_tail(ours)
            return
        block, self._block = self._block, Block([], [])
        queues, tasks = counted(block.items)
        self._counts = (self._counts[0] + queues, self._counts[1] + tasks)
        yield block

    def _check_tail(self, tail: Tail) -> None:
        if self._block.items or (tail.queues, tail.tasks) != self._counts:
            self._refuse("the export has other queues and tasks than its last line tells of")
        self._is_whole = True

    def _refuse(self, what: str, ahead: int = 0) -> NoReturn:
        raise InvalidInput(f"line {self.lines + ahead}: {what}")


def counted(items: Sequence[Line]) -> tuple[int, int]:
    """How many queues and tasks."""
    kinds = Counter(map(type, items))
    return kinds[SavedQueue], kinds[SavedTask]


def _check_head(line: bytes) -> None:
    if line.startswith(_GZIP):
        raise InvalidInput("line 1: this is compressed; unpack it, or name a file that ends in .gz")
    try:
        head = _decode_head(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise InvalidInput("line 1: this is no export of Outrider") from None
    if head.version > VERSION:
        raise InvalidInput(
            f"line 1: this export was written by a newer release (format {head.version}; "
            f"this one reads {VERSION}): upgrade Outrider"
        )
