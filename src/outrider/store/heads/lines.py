"""A line of packed integers in order: a few at its head, the rest as plain bytes.

What lies deep is not smaller than its first floor, in blocks of ordered ranges, unsorted inside: a
push appends, a pop takes from the head, and a block is sorted only when it is split or comes to the
head. So a million entries cost their own bytes, and nothing ever touches more than one block. A
line that holds anything has something at its head.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

HEAD_MOST: Final = 4  # entries at the head before the larger ones go deep: integers are large
REFILL: Final = 16  # entries that come to the head at a time
BLOCK_MOST: Final = 256  # entries of a block before it is split
FEW: Final = 32  # fewer than that, or less than one for so many: they join one by one


class Deep(msgspec.Struct, gc=False, eq=False):
    """What lies behind a head: block i holds what is ≥ floors[i] and < floors[i + 1]."""

    width: int  # bytes of an entry
    floors: list[int]
    blocks: list[bytearray]

    def push(self, entry: int) -> None:
        """One that is not smaller than the first floor."""
        place = bisect_right(self.floors, entry) - 1
        block = self.blocks[place]
        block += entry.to_bytes(self.width, "big")
        if len(block) > BLOCK_MOST * self.width:
            self.split(place)

    def split(self, place: int) -> None:
        """A block has become too long."""
        entries = in_order(self.blocks[place], self.width)
        middle = len(entries) // self.width // 2 * self.width
        self.blocks[place : place + 1] = [bytearray(entries[:middle]), bytearray(entries[middle:])]
        self.floors.insert(place + 1, _first(entries[middle:], self.width))

    def put_first(self, floor: int, entries: bytearray) -> None:
        """Smaller ones than all that lie here."""
        if self.blocks and len(self.blocks[0]) <= BLOCK_MOST // 2 * self.width:
            self.blocks[0] += entries
            self.floors[0] = floor
        else:
            self.blocks.insert(0, entries)
            self.floors.insert(0, floor)

    def take(self, most: int) -> list[int]:
        """The smallest leave."""
        entries, size = in_order(self.blocks[0], self.width), most * self.width
        if len(entries) > size:
            self.blocks[0] = bytearray(entries[size:])
            self.floors[0] = _first(entries[size:], self.width)
        else:
            del self.floors[0], self.blocks[0]
        return unpacked(entries[:size], self.width)

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
    head: list[int]  # in order
    deep: Deep | None = None
    most: int = HEAD_MOST

    def push(self, entry: int) -> None:
        """Join the line."""
        deep = self.deep
        if deep is not None and entry >= deep.floors[0]:
            deep.push(entry)
            return
        head = self.head
        insort(head, entry)
        if len(head) > self.most:
            self._spill()

    def extend(self, more: bytes, *, is_new: bool) -> None:
        """Many join at once, as the bytes of a block; if not new, some may be there already."""
        if len(more) // self.width < max(FEW, self.count() // FEW):
            for entry in unpacked(more, self.width):
                _ = is_new or self.discard(entry)
                self.push(entry)
        elif more:
            self._make_anew(more)

    def _make_anew(self, more: bytes) -> None:
        blocks = () if self.deep is None else self.deep.blocks
        every = b"".join((packed(self.head, self.width), *blocks, more))
        entries = _once_each(every, self.width)
        size, step = self.most * self.width, BLOCK_MOST * 3 // 4 * self.width
        self.head, rest = unpacked(entries[:size], self.width), entries[size:]
        cut = [bytearray(rest[at : at + step]) for at in range(0, len(rest), step)]
        floors = [_first(block, self.width) for block in cut]
        self.deep = Deep(self.width, floors, cut) if cut else None

    def _spill(self) -> None:
        """The larger ones go deep."""
        kept = self.most // 3 + 1
        entries, self.head = self.head[kept:], self.head[:kept]
        if self.deep is None:
            self.deep = Deep(self.width, [], [])
        self.deep.put_first(entries[0], packed(entries, self.width))

    def pop(self) -> int:
        """The first leaves."""
        entry = self.head.pop(0)
        if not self.head and self.deep is not None:
            self.refill()
        return entry

    def refill(self) -> None:
        """Its head has run empty: the smallest of the rest become its head."""
        deep = self.deep
        if deep is None:
            return
        self.head = deep.take(max(REFILL, self.most))
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
        place = bisect_left(head, entry)
        if place == len(head) or head[place] != entry:
            return False
        del head[place]
        if not head:
            self.refill()
        return True

    def swap(self, old: int, new: int) -> bool:
        """One leaves and another joins, if it was there; nothing is dug for that need not be."""
        head, deep = self.head, self.deep
        if deep is not None and old >= deep.floors[0]:
            found = self.discard(old)
            if found:
                self.push(new)
            return found
        place = bisect_left(head, old)
        if place == len(head) or head[place] != old:
            return False
        del head[place]
        if deep is None or new < deep.floors[0]:
            insort(head, new)
            return True
        deep.push(new)
        if not head:
            self.refill()
        return True

    def count(self) -> int:
        """How many there are."""
        blocks = () if self.deep is None else self.deep.blocks
        return len(self.head) + sum(map(len, blocks)) // (self.width or 1)

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

    def below(self, bound: int) -> list[int]:
        """Those that are smaller, in no order; only blocks that may hold some are opened."""
        found = [entry for entry in self.head if entry < bound]
        if self.deep is not None:
            for block in self.deep.blocks[: bisect_left(self.deep.floors, bound)]:
                found += [entry for entry in unpacked(block, self.width) if entry < bound]
        return found

    def first(self, count: int) -> list[int]:
        """The smallest, in order, and nobody leaves; only blocks that hold some are opened."""
        found = self.head[:count]
        blocks = iter(() if self.deep is None else self.deep.blocks)
        while len(found) < count and (block := next(blocks, None)) is not None:
            found += unpacked(in_order(block, self.width), self.width)
        return found[:count]

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
    pieces = struct.unpack(f"{width}s" * (len(block) // width), block)
    return [number(piece, "big") for piece in pieces]


def in_order(block: bytearray | bytes, width: int) -> bytes:
    """The same block, sorted."""
    # Fixed bytes compare as the integers do, and an array of them sorts at a tenth of the cost.
    return np.sort(np.frombuffer(block, f"S{width}")).tobytes()


def _once_each(block: bytes, width: int) -> bytes:
    entries = np.sort(np.frombuffer(block, f"S{width}"), kind="stable")
    kept: bytes = entries[np.append(True, entries[1:] != entries[:-1])].tobytes()
    return kept


def _first(block: bytes | bytearray, width: int) -> int:
    return int.from_bytes(block[:width], "big")


def _find(block: bytearray, wanted: bytes, width: int) -> int:
    """Where an entry begins; its bytes may also appear across two others."""
    at = block.find(wanted)
    while at > 0 and at % width:
        at = block.find(wanted, at + 1)
    return at
