"""Carving: reads pages from SQLite's leaves in file and log, where its trees are broken.

Every leaf is read, whether or not the tree still refers to it; a row counts if its checksum, which
covers its number, is that of a page. Rows of Outrider never change, so an old leaf is as good as a
new one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from outrider.store.embedded.file import Row
from outrider.store.embedded.read_only_file import MAX_ROW_BYTES, is_page

_LEAF: Final = 0x0D  # of a table
_WIDTH: Final = 4096  # SQLite's own choice
_LOG_HEAD: Final = 32
_FRAME_HEAD: Final = 24
_CELL_BITS: Final = 17  # of a place: where in its leaf a row begins
_CELL_MASK: Final = (1 << _CELL_BITS) - 1


class Carving:
    """The intact pages of a file, by number."""

    def __init__(self, path: Path, *, only_log: bool = False) -> None:
        self._file = path.open("rb")
        self.width = _width(self._file.read(100))
        self._log = _Log(Path(f"{path}-wal"), self.width)
        self._leaves = self._file.seek(0, 2) // self.width
        self._places: array[int] = array("Q", [0])  # leaf and cell of each page; 0: not found
        for leaf in range(self._leaves if only_log else 1, self._leaves + self._log.count):
            self._search(leaf)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def last(self) -> int:
        """The highest number found."""
        return len(self._places) - 1

    @property
    def count(self) -> int:
        """The number of pages found."""
        return sum(map(bool, self._places))

    def has(self, number: int) -> bool:
        """Return whether that page was found."""
        return number <= self.last and bool(self._places[number])

    def page(self, number: int) -> bytes:
        """Return a page that was found."""
        place = self._places[number]
        found = self._row(self._leaf(place >> _CELL_BITS), place & _CELL_MASK)
        assert found is not None  # noqa: S101 - it was read before
        return found.data

    def rows(self) -> Iterator[Row]:
        """Return all pages found, in order."""
        found = (number for number in range(1, self.last + 1) if self.has(number))
        return (Row(number, self.page(number)) for number in found)

    def close(self) -> None:
        """Close file and log."""
        self._file.close()
        self._log.close()

    # ---- leaves and rows

    def _leaf(self, leaf: int) -> bytes:
        if leaf >= self._leaves:
            return self._log.frame(leaf - self._leaves)
        self._file.seek(leaf * self.width)
        return self._file.read(self.width)

    def _search(self, leaf: int) -> None:
        data = self._leaf(leaf)
        if len(data) < self.width or data[0] != _LEAF:
            return
        count = int.from_bytes(data[3:5], "big")
        for at in range(8, min(8 + 2 * count, self.width - 1), 2):
            cell = int.from_bytes(data[at : at + 2], "big")
            row = self._row(data, cell)
            if row is not None and is_page(*row):
                self._keep(row.number, leaf << _CELL_BITS | cell)

    def _keep(self, number: int, place: int) -> None:
        missing = number + 1 - len(self._places)
        if missing > 0:
            self._places.frombytes(bytes(8 * missing))
        self._places[number] = self._places[number] or place

    def _row(self, data: bytes, cell: int) -> Row | None:
        """Return a row of two columns: its number, which is not in its content, and a blob."""
        try:
            size, at = _varint(data, cell)
            number, at = _varint(data, at)
            content = self._content(data, at, size) if 3 <= size < MAX_ROW_BYTES else b""
            return Row(number, _blob(content)) if content else None
        except IndexError:
            return None

    def _content(self, data: bytes, at: int, size: int) -> bytes:
        """Return what is in the leaf, and what overflowed."""
        here = _kept_in_leaf(size, self.width)
        parts, left = [data[at : at + here]], size - here
        onward = int.from_bytes(data[at + here : at + here + 4], "big") if left else 0
        while left > 0 and onward:
            more = self._overflow(onward)
            parts.append(more[4 : 4 + left])
            left, onward = left - len(parts[-1]), int.from_bytes(more[:4], "big")
            if len(parts[-1]) == 0:
                break
        return b"".join(parts) if left == 0 else b""

    def _overflow(self, number: int) -> bytes:
        frame = self._log.last_of(number)
        return self._leaf(number - 1 if frame is None else self._leaves + frame)


class _Log:
    """The frames of a write-ahead log, with those behind a broken one, which SQLite ignores."""

    def __init__(self, path: Path, width: int) -> None:
        self._file = path.open("rb") if path.exists() else None
        self._step = _FRAME_HEAD + width
        self._frames: list[int] = []  # where each begins
        self._last: dict[int, int] = {}
        if self._file is not None:
            self._index(self._file.read(_LOG_HEAD)[16:24], self._file.seek(0, 2))

    @property
    def count(self) -> int:
        return len(self._frames)

    def _index(self, salt: bytes, size: int) -> None:
        starts = range(_LOG_HEAD, size - self._step + 1, self._step)
        heads = [(at, self._read(at, _FRAME_HEAD)) for at in starts]
        mine = [(at, head) for at, head in heads if head[8:16] == salt]
        for at, head in mine or heads:  # a salt that fits no frame is damaged itself
            self._last[int.from_bytes(head[:4], "big")] = len(self._frames)
            self._frames.append(at)

    def _read(self, at: int, size: int) -> bytes:
        assert self._file is not None  # noqa: S101 - without a file there are no frames
        self._file.seek(at)
        return self._file.read(size)

    def frame(self, place: int) -> bytes:
        return self._read(self._frames[place] + _FRAME_HEAD, self._step - _FRAME_HEAD)

    def last_of(self, number: int) -> int | None:
        return self._last.get(number)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _width(head: bytes) -> int:
    width = int.from_bytes(head[16:18], "big") if len(head) > 18 else 0
    width = 65_536 if width == 1 else width
    return width if width >= 512 and not width & width - 1 else _WIDTH


def _kept_in_leaf(size: int, width: int) -> int:
    """Return how much of a row does not overflow, by the formula of the file format."""
    most, least = width - 35, (width - 12) * 32 // 255 - 23
    if size <= most:
        return size
    kept = least + (size - least) % (width - 4)
    return kept if kept <= most else least


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for _ in range(8):
        byte, at = data[at], at + 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    return value << 8 | data[at], at + 1


def _blob(content: bytes) -> bytes:
    """Return the second column: the first is the number, stored as NULL."""
    head, at = _varint(content, 0)
    first, at = _varint(content, at)
    second, _ = _varint(content, at)
    if first or second < 12 or second & 1:
        return b""
    return content[head : head + (second - 12) // 2]
