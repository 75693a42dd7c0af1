"""A line of packed integers in order: a few at its head as a heap, the rest as plain bytes.

What lies deep is not smaller than its first floor, in blocks of ordered ranges, unsorted inside: a
push appends, a pop takes from the head, and a block is sorted only when it is split. So a million
entries cost their own bytes, and nothing ever touches more than one block. A line that holds
anything has something at its head.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec
import numpy as np

HEAD_MOST: Final = 16  # entries at the head before the larger ones go deep
HEAD_KEPT: Final = 6
BLOCK_MOST: Final = 256  # entries of a block before it is split


class Deep(msgspec.Struct, gc=False, eq=False):
    """What lies behind a head: block i holds what is ≥ floors[i] and < floors[i + 1]."""

    width: int  # bytes of an entry
    floors: list[int]
    blocks: list[bytearray]

    def put(self, entry: int) -> None:
        """Into the block of its range."""
        place = bisect_right(self.floors, entry) - 1
        block = self.blocks[place]
        block += entry.to_bytes(self.width, "big")
        if len(block) > BLOCK_MOST * self.width:
            self._split(place)

    def _split(self, place: int) -> None:
        # Fixed bytes compare as the integers do, and an array of them sorts at a tenth of the cost.
        entries = np.sort(np.frombuffer(self.blocks[place], f"S{self.width}")).tobytes()
        middle = len(entries) // self.width // 2 * self.width
        self.blocks[place : place + 1] = [bytearray(entries[:middle]), bytearray(entries[middle:])]
        floor = int.from_bytes(entries[middle : middle + self.width], "big")
        self.floors.insert(place + 1, floor)

    def take(self) -> list[int]:
        """The first block leaves."""
        del self.floors[0]
        return unpacked(self.blocks.pop(0), self.width)

    def discard(self, entry: int) -> bool:
        """Whether it was there."""
        place = bisect_right(self.floors, entry) - 1
        block, width = self.blocks[place], self.width
        at = _find(block, entry.to_bytes(width, "big"), width)
        if at < 0:
            return False
        del block[at : at + width]
        if not block:
            del self.blocks[place], self.floors[place]
        return True


class Line(msgspec.Struct, gc=False, eq=False):
    """Entries in order; `head[0]` is the first, and an empty head is an empty line."""

    width: int
    head: list[int]
    deep: Deep | None = None

    def push(self, entry: int) -> None:
        """Join the line."""
        deep = self.deep
        if deep is not None and entry >= deep.floors[0]:
            deep.put(entry)
            return
        head = self.head
        heappush(head, entry)
        if len(head) > HEAD_MOST:
            self._spill()

    def _spill(self) -> None:
        """The larger ones go deep, as a block before all others."""
        entries = sorted(self.head)
        self.head = entries[:HEAD_KEPT]
        block, floor = packed(entries[HEAD_KEPT:], self.width), entries[HEAD_KEPT]
        if self.deep is None:
            self.deep = Deep(self.width, [floor], [block])
        else:
            self.deep.floors.insert(0, floor)
            self.deep.blocks.insert(0, block)

    def pop(self) -> int:
        """The first leaves."""
        entry = heappop(self.head)
        if not self.head and self.deep is not None:
            self.refill()
        return entry

    def refill(self) -> None:
        """Its head has run empty: the first block becomes its head."""
        deep = self.deep
        if deep is None:
            return
        self.head = deep.take()
        heapify(self.head)
        if not deep.blocks:
            self.deep = None

    def discard(self, entry: int) -> bool:
        """Leave the line, wherever it stood; whether it was there."""
        deep = self.deep
        if deep is not None and entry >= deep.floors[0]:
            found = deep.discard(entry)
            if not deep.blocks:
                self.deep = None
            return found
        head = self.head
        if entry not in head:
            return False
        head.remove(entry)
        heapify(head)
        if not head:
            self.refill()
        return True

    def beyond(self, bound: int) -> int:
        """How many are not smaller; only blocks the bound falls into are opened."""
        count = sum(entry >= bound for entry in self.head)
        if self.deep is None:
            return count
        tops = [*self.deep.floors[1:], None]
        for floor, top, block in zip(self.deep.floors, tops, self.deep.blocks, strict=True):
            if floor >= bound:
                count += len(block) // self.width
            elif top is None or top > bound:
                count += sum(entry >= bound for entry in unpacked(block, self.width))
        return count

    def __iter__(self) -> Iterator[int]:
        """All of it, in no order."""
        yield from self.head
        if self.deep is not None:
            for block in self.deep.blocks:
                yield from unpacked(block, self.width)


def packed(entries: list[int], width: int) -> bytearray:
    """Entries as the bytes of a block."""
    return bytearray().join([entry.to_bytes(width, "big") for entry in entries])


def unpacked(block: bytearray | bytes, width: int) -> list[int]:
    """The entries of a block."""
    number = int.from_bytes
    return [number(piece, "big") for piece in _slices(block, width)]


def _slices(block: bytearray | bytes, width: int) -> list[bytearray | bytes]:
    return [block[at : at + width] for at in range(0, len(block), width)]


def _find(block: bytearray, wanted: bytes, width: int) -> int:
    """Where an entry begins; its bytes may also appear across two others."""
    at = block.find(wanted)
    while at > 0 and at % width:
        at = block.find(wanted, at + 1)
    return at
