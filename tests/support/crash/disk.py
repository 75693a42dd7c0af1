"""Virtual disks between SQLite and the real one: with a trace, full, or killing the process.

They see the requests of SQLite, by the part of the file, and pass on what they allow.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

SECTOR: Final = 512
_SUFFIXES: Final = ("-wal", "-journal")


class Disk(apsw.VFS):
    """Passes everything on; creating it registers it, keep a reference while it is used."""

    waits = True  # for the real disk, when SQLite asks for a sync

    def __init__(self, name: str, *, is_default: bool = False) -> None:
        self.name = name
        self.base = apsw.vfs_names()[0]  # by name: the default may be this one
        self.turn = threading.RLock()
        super().__init__(name, self.base, makedefault=is_default)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        """Open a file for SQLite."""
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        """Delete a file for SQLite."""
        with self.turn:
            self.delete(filename)
            super().xDelete(filename, syncdir)

    # Overridden by a kind of disk; raising `apsw.Error` refuses the request.

    def write(self, path: str, data: bytes, offset: int) -> None:
        """Called before bytes are written."""

    def truncate(self, path: str, size: int) -> None:
        """Called before a file is truncated."""

    def sync(self, path: str) -> None:
        """Called before a file is synced."""

    def delete(self, path: str) -> None:
        """Called before a file is deleted."""


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__(disk.base, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        with self._disk.turn:
            self._disk.write(self._path, bytes(data), offset)
            super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        with self._disk.turn:
            self._disk.truncate(self._path, newsize)
            super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        with self._disk.turn:
            if self._disk.waits:
                super().xSync(flags)
            self._disk.sync(self._path)


def part_of(path: str) -> str:
    """Return the part of a store that a file is: "" is the main file."""
    return next((suffix for suffix in _SUFFIXES if path.endswith(suffix)), "")


# ---- a power cut


class Write(msgspec.Struct, frozen=True):
    """Bytes were written."""

    part: str
    data: bytes
    offset: int


class Truncate(msgspec.Struct, frozen=True):
    """A part was truncated."""

    part: str
    size: int


class Sync(msgspec.Struct, frozen=True):
    """A part was synced."""

    part: str


class Delete(msgspec.Struct, frozen=True):
    """A part was deleted; SQLite does not wait for it."""

    part: str


Move = Write | Truncate | Sync | Delete


class Traced(Disk):
    """Records every request in order."""

    waits = False

    def __init__(self, name: str) -> None:
        self.trace: list[Move] = []
        super().__init__(name)

    def write(self, path: str, data: bytes, offset: int) -> None:
        """See `Disk`."""
        self.trace.append(Write(part_of(path), data, offset))

    def truncate(self, path: str, size: int) -> None:
        """See `Disk`."""
        self.trace.append(Truncate(part_of(path), size))

    def sync(self, path: str) -> None:
        """See `Disk`."""
        self.trace.append(Sync(part_of(path)))

    def delete(self, path: str) -> None:
        """See `Disk`."""
        self.trace.append(Delete(part_of(path)))


def after_power_cut(
    first: bytes, trace: list[Move], dice: random.Random, *, sector: int = SECTOR
) -> dict[str, bytes]:
    """Return the parts as a disk may have them after a power cut at the end of this trace.

    What was synced is there. Of what was not, every sector of every write, and every cut and
    deletion, came through or did not, as the dice say; what lies beside a write is never hurt.
    """
    parts: dict[str, bytearray | None] = {"": bytearray(first)}
    kept = dice.choice((0.0, 0.1, 0.5, 0.9, 1.0))
    safe = {move.part: place for place, move in enumerate(trace) if isinstance(move, Sync)}
    for place, move in enumerate(trace):
        is_safe = place < safe.get(move.part, 0)
        _apply(parts, move, lambda sure=is_safe: sure or dice.random() < kept, sector)  # type: ignore[misc]
    return {part: bytes(data) for part, data in parts.items() if data is not None}


def _apply(
    parts: dict[str, bytearray | None], move: Move, comes_through: Callable[[], bool], sector: int
) -> None:
    match move:
        case Write():
            for piece in filter(lambda _: comes_through(), _sectors(move, sector)):
                _put(_bytes_of(parts, move.part), piece)
        case Truncate(part, size):
            if comes_through():
                del _bytes_of(parts, part)[size:]
        case Delete(part):
            if comes_through():
                parts[part] = None
        case Sync():
            pass  # decides which moves before it are safe


def _bytes_of(parts: dict[str, bytearray | None], part: str) -> bytearray:
    found = parts.get(part)
    if found is None:
        found = parts[part] = bytearray()
    return found


def _sectors(write: Write, sector: int) -> Iterator[Write]:
    for start in range(0, len(write.data), sector):
        yield Write(write.part, write.data[start : start + sector], write.offset + start)


def _put(content: bytearray, write: Write) -> None:
    if len(content) < write.offset:
        content.extend(bytes(write.offset - len(content)))
    content[write.offset : write.offset + len(write.data)] = write.data


def lay_out(path: Path, parts: dict[str, bytes]) -> None:
    """Write the parts of a file."""
    for part, data in parts.items():
        Path(f"{path}{part}").write_bytes(data)


# ---- a full disk


class Full(Disk):
    """Has room for so many more bytes; a part of a write may succeed, as on a real disk."""

    def __init__(self, name: str, *, error: type[apsw.Error] = apsw.FullError) -> None:
        self.room: int | None = None  # None: unlimited
        self.refused = 0
        self._error = error
        super().__init__(name)

    def write(self, path: str, data: bytes, offset: int) -> None:
        """See `Disk`."""
        if self.room is None:
            return
        if len(data) > self.room:
            self.refused += 1
            raise self._error(f"no room for {len(data)} bytes at {offset} of {path}")
        self.room -= len(data)


# ---- a disk that kills


class Watched(Disk):
    """Calls a function before every write to one part."""

    def __init__(self, name: str, part: str, tell: Callable[[], None]) -> None:
        self._part = part
        self._tell = tell
        super().__init__(name, is_default=True)

    def write(self, path: str, data: bytes, offset: int) -> None:
        """See `Disk`."""
        if part_of(path) == self._part:
            self._tell()
