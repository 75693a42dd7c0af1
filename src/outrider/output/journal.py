"""The journal beside an output: which records are in doubt, written before them, read after a kill.

Every statement is a block of its own that begins at a page boundary of the file and never
overwrites the block before it, so a kill while a block is written leaves the previous one. Blocks
are JSON, which has no NUL byte, so nothing that a host sent can look like the start of a block.
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
from outrider.output.errors import write_error

SUFFIX: Final = ".journal"
VERSION: Final = 1
PAGE: Final = 4096

_MAGIC: Final = b"\0outrider output"
_HEAD: Final = struct.Struct("<16sIQI")  # magic, version, sequence, bytes
_CHECKSUM_BYTES: Final = 4  # between head and payload
_Count: TypeAlias = Annotated[int, Meta(ge=0)]


class Mark(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A file's length and its last bytes, by which another file of its name is detected."""

    name: str
    length: _Count
    end: bytes


class Piece(NamedTuple):
    """The bytes of one record: index of its visit in `leases` (-1: of no visit), file, length."""

    lease: Annotated[int, Meta(ge=-1)]
    file: _Count
    length: _Count


class Patch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Cut a file back to its mark, then append this data."""

    mark: Mark
    data: bytes


# The tags are stored in files; they keep their first names.
class Settled(msgspec.Struct, frozen=True, tag="resting"):
    """Everything that is written stays."""

    marks: list[Mark]


class InDoubt(msgspec.Struct, frozen=True, tag="open"):
    """These pieces are, or soon will be, behind the marks; those of finished visits stay."""

    marks: list[Mark]
    store: str
    leases: list[LeaseId]
    pieces: list[Piece]


class Redo(msgspec.Struct, frozen=True, tag="redo"):
    """What stays of a batch is decided, and kept here until the files are patched."""

    patches: list[Patch]


Statement: TypeAlias = Settled | InDoubt | Redo


def names_of(statement: Statement) -> list[str]:
    """The files that a statement is about."""
    match statement:
        case Settled(marks) | InDoubt(marks):
            return [mark.name for mark in marks]
        case Redo(patches):
            return [patch.mark.name for patch in patches]
        case _:
            assert_never(statement)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Statement).decode


class Journal:
    """The journal file, locked by its writer; `last` is the last statement, or None."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _open_locked(path)
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
            self._end = self._at + _HEAD.size + _CHECKSUM_BYTES + len(payload)
            self.last = self._statement(payload)
        elif not _is_first_block_torn(data):
            raise self._damage_error()

    def _statement(self, payload: bytes) -> Statement:
        try:
            statement: Statement = _decode(payload)
        except msgspec.MsgspecError as error:
            raise self._damage_error() from error
        return statement

    def _damage_error(self) -> OutputError:
        return OutputError(
            f"{self.path} is damaged, or not a journal of Outrider, so it is unknown whether the "
            "last records are to stay. Check the end of the output, then delete this journal to "
            "continue with the output as it is, or choose another output"
        )

    def write(self, statement: Statement, *, sync: bool = False) -> None:
        """Replace the last statement; if this cannot be written, the one before still holds."""
        block = _block(self._sequence + 1, _encode(statement))
        at = 0 if len(block) <= self._at else -(-self._end // PAGE) * PAGE
        try:
            self._put(block, at)
            if sync:
                os.fsync(self._file)
        except OSError as error:
            raise write_error(self.path, error) from error
        self._sequence, self._at, self._end = self._sequence + 1, at, at + len(block)
        self.last = statement

    def _put(self, block: bytes, at: int) -> None:
        rest = memoryview(block)
        while rest:
            written = os.pwrite(self._file, rest, at)
            rest, at = rest[written:], at + written

    def delete(self) -> None:
        """Remove the file: nothing is in doubt."""
        if self._file >= 0:  # once closed, the path may be another process's journal
            with suppress(FileNotFoundError):
                os.unlink(self.path)  # noqa: PTH108 - as all else here

    def close(self) -> None:
        """Unlock the file for other processes."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_last(path: Path) -> Statement | None:
    """The last statement of a journal without locking it; None if there is none, or unreadable."""
    try:
        newest = max(_blocks(path, path.read_bytes()), default=None)
        return None if newest is None else _decode(newest[2])
    except (OSError, msgspec.MsgspecError):
        return None


def is_locked(path: Path) -> bool:
    """Whether a process writes to this journal's output."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _open_locked(path: Path) -> int:
    """Open and lock a journal; opens again if it was deleted between opening and locking."""
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise write_error(path, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(file)):
                return file
        except BlockingIOError as error:
            os.close(file)
            raise OutputError(
                f"{path} is held by another process that writes the same output; stop that "
                "process, or choose another output"
            ) from error
        os.close(file)


def _block(sequence: int, payload: bytes) -> bytes:
    head = _HEAD.pack(_MAGIC, VERSION, sequence, len(payload))
    return head + _checksum(head, payload) + payload


def _checksum(head: bytes, payload: bytes) -> bytes:
    return zlib.crc32(payload, zlib.crc32(head)).to_bytes(_CHECKSUM_BYTES, "little")


def _is_first_block_torn(data: bytes) -> bool:
    """Whether the file is the beginning of a first block; no output is written before that one."""
    if len(data) < _HEAD.size:
        return data[: len(_MAGIC)] == _MAGIC[: len(data)]
    magic, _, sequence, length = _HEAD.unpack_from(data)
    return (magic, sequence) == (_MAGIC, 1) and len(data) < _HEAD.size + _CHECKSUM_BYTES + length


def _blocks(path: Path, data: bytes) -> Iterator[tuple[int, int, bytes]]:
    for at in range(0, len(data) - _HEAD.size, PAGE):
        start = at + _HEAD.size + _CHECKSUM_BYTES
        head, checksum = data[at : at + _HEAD.size], data[at + _HEAD.size : start]
        magic, version, sequence, length = _HEAD.unpack(head)
        if magic != _MAGIC:
            continue
        if version > VERSION:
            raise OutputError(f"{path} was written by a newer release of Outrider; use that one")
        payload = data[start : start + length]
        if _checksum(head, payload) == checksum:
            yield sequence, at, payload
