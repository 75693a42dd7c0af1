"""What is not settled yet, said beside the output before it is written, and read after a kill.

Every statement is a block of its own that begins on a page of the file, never over the one before
it: a kill in the middle leaves that one. Blocks are JSON, which has no NUL, so nothing that a host
sent can look like the beginning of one.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, NamedTuple, TypeAlias, assert_never

import msgspec
from msgspec import Meta

from outrider.core.task import LeaseId
from outrider.errors import OutputError
from outrider.output.faults import unwritable

SUFFIX: Final = ".journal"
VERSION: Final = 1
PAGE: Final = 4096

_MAGIC: Final = b"\0outrider output"
_HEAD: Final = struct.Struct("<16sIQI")  # magic, version, sequence, bytes
_SUM: Final = 4  # bytes of checksum between head and payload
_Count: TypeAlias = Annotated[int, Meta(ge=0)]


class Mark(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How long a file was, and its last bytes: another file is not taken for it."""

    name: str
    length: _Count
    end: bytes


class Piece(NamedTuple):
    """Bytes of one record: whose visit it is of, by its place in `leases` (-1: nobody's), where."""

    lease: Annotated[int, Meta(ge=-1)]
    file: _Count
    length: _Count


class Patch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A file becomes what it was, and this."""

    mark: Mark
    data: bytes


class Resting(msgspec.Struct, frozen=True, tag="resting"):
    """All that is written stays."""

    marks: list[Mark]


class Open(msgspec.Struct, frozen=True, tag="open"):
    """Behind the marks stand, or soon will, these pieces; a visit's stay if it was finished."""

    marks: list[Mark]
    store: str
    leases: list[LeaseId]
    pieces: list[Piece]


class Redo(msgspec.Struct, frozen=True, tag="redo"):
    """What stays of a batch is known; until the files say so, it is kept here."""

    patches: list[Patch]


Statement: TypeAlias = Resting | Open | Redo


def names_of(statement: Statement) -> list[str]:
    """The files it is about."""
    match statement:
        case Resting(marks) | Open(marks):
            return [mark.name for mark in marks]
        case Redo(patches):
            return [patch.mark.name for patch in patches]
        case _:
            assert_never(statement)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Statement).decode


class Journal:
    """The file, locked by who writes the output; `last` is what was said last, None if nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _locked(path)
        self._sequence = self._at = self._end = 0
        self.last: Statement | None = None
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        newest = max(_blocks(self.path, data), default=None)
        if newest is not None:
            self._sequence, self._at, payload = newest
            self._end = self._at + _HEAD.size + _SUM + len(payload)
            self.last = self._statement(payload)
        elif not _is_begun(data):
            raise self._damaged()

    def _statement(self, payload: bytes) -> Statement:
        try:
            statement: Statement = _decode(payload)
        except msgspec.MsgspecError as error:
            raise self._damaged() from error
        return statement

    def _damaged(self) -> OutputError:
        return OutputError(
            f"{self.path} is damaged, or is no journal of Outrider: it would tell whether the last "
            "records are to stay. Look at the end of the output, then delete this journal to go on "
            "with it as it is, or name another output"
        )

    def say(self, statement: Statement, *, sync: bool = False) -> None:
        """From now on this holds; if it cannot be written, what was said before does."""
        block = _block(self._sequence + 1, _encode(statement))
        at = 0 if len(block) <= self._at else -(-self._end // PAGE) * PAGE
        try:
            self._put(block, at)
            if sync:
                os.fsync(self._file)
        except OSError as error:
            raise unwritable(self.path, error) from error
        self._sequence, self._at, self._end = self._sequence + 1, at, at + len(block)
        self.last = statement

    def _put(self, block: bytes, at: int) -> None:
        left = memoryview(block)
        while left:
            written = os.pwrite(self._file, left, at)
            left, at = left[written:], at + written

    def forget(self) -> None:
        """Nothing is in doubt: it need not be there."""
        if self._file >= 0:  # else it may be another's by now
            with suppress(FileNotFoundError):
                os.unlink(self.path)  # noqa: PTH108 - as all else here

    def close(self) -> None:
        """Anyone else may take it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def last_said(path: Path) -> Statement | None:
    """What a journal says that may be another's; None if nothing, or nothing that can be read."""
    try:
        newest = max(_blocks(path, path.read_bytes()), default=None)
        return None if newest is None else _decode(newest[2])
    except (OSError, msgspec.MsgspecError):
        return None


def is_held(path: Path) -> bool:
    """Whether somebody writes there."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _locked(path: Path) -> int:
    """Ours alone; one that was deleted between opening and locking is not the one others see."""
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(file)):
                return file
        except BlockingIOError as error:
            os.close(file)
            raise OutputError(
                f"{path} is held by another process that writes the same output; end it, or name "
                "another output"
            ) from error
        os.close(file)


def _block(sequence: int, payload: bytes) -> bytes:
    head = _HEAD.pack(_MAGIC, VERSION, sequence, len(payload))
    return head + _checksum(head, payload) + payload


def _checksum(head: bytes, payload: bytes) -> bytes:
    return zlib.crc32(payload, zlib.crc32(head)).to_bytes(_SUM, "little")


def _is_begun(data: bytes) -> bool:
    """Whether this is all there is of a first statement: before it nothing is written."""
    if len(data) < _HEAD.size:
        return data[: len(_MAGIC)] == _MAGIC[: len(data)]
    magic, _, sequence, length = _HEAD.unpack_from(data)
    return (magic, sequence) == (_MAGIC, 1) and len(data) < _HEAD.size + _SUM + length


def _blocks(path: Path, data: bytes) -> Iterator[tuple[int, int, bytes]]:
    for at in range(0, len(data) - _HEAD.size, PAGE):
        start = at + _HEAD.size + _SUM
        head, checksum = data[at : at + _HEAD.size], data[at + _HEAD.size : start]
        magic, version, sequence, length = _HEAD.unpack(head)
        if magic != _MAGIC:
            continue
        if version > VERSION:
            raise OutputError(f"{path} was written by a newer release of Outrider; use that one")
        payload = data[start : start + length]
        if _checksum(head, payload) == checksum:
            yield sequence, at, payload
