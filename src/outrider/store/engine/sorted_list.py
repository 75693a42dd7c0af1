"""A sorted list of packed integers: a short head of Python integers, and a tail of byte blocks.

Every entry of the tail is at least as large as the tail's first bound. Blocks hold consecutive
ranges and are unsorted inside: a push appends, a pop takes from the head, and a block is sorted
only when it is split or moves to the head. So a million entries cost their own bytes, and no
operation handles more than one block. A list that is not empty has a head that is not empty.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

MAX_HEAD: Final = 4  # entries of the head before the larger ones move to the tail
REFILL: Final = 16  # entries that move to the head at a time
MAX_BLOCK: Final = 256  # entries of a block before it is split
SMALL_BATCH: Final = 32  # below this, or below 1/32 of the list, a batch is inserted one by one


class Tail(msgspec.Struct, gc=False, eq=False):
    """The entries behind the head: block i holds those ≥ bounds[i] and < bounds[i + 1]."""

    width: int  # bytes of an entry
    bounds: list[int]
    blocks: list[bytearray]

    def push(self, entry: int) -> None:
        """Insert an entry that is not smaller than the first bound."""
        at = bisect_right(self.bounds, entry) - 1
        block = self.blocks[at]
        block += entry.to_bytes(self.width, "big")
        if len(block) > MAX_BLOCK * self.width:
            self.split(at)

    def split(self, at: int) -> None:
        """Split a block that is too long into two halves."""
        entries = sort_block(self.blocks[at], self.width)
        middle = len(entries) // self.width // 2 * self.width
        self.blocks[at : at + 1] = [bytearray(entries[:middle]), bytearray(entries[middle:])]
        self.bounds.insert(at + 1, _first(entries[middle:], self.width))

    def push_front(self, bound: int, entries: bytearray) -> None:
        """Insert entries that are smaller than all others of the tail."""
        if self.blocks and len(self.blocks[0]) <= MAX_BLOCK // 2 * self.width:
            self.blocks[0] += entries
            self.bounds[0] = bound
        else:
            self.blocks.insert(0, entries)
            self.bounds.insert(0, bound)

    def pop_front(self, count: int) -> list[int]:
        """Remove and return the smallest entries, in order, from the first block."""
        entries, size = sort_block(self.blocks[0], self.width), count * self.width
        if len(entries) > size:
            self.blocks[0] = bytearray(entries[size:])
            self.bounds[0] = _first(entries[size:], self.width)
        else:
            del self.bounds[0], self.blocks[0]
        return unpack(entries[:size], self.width)

    def discard(self, entry: int) -> bool:
        """Remove an entry; return whether it was there."""
        index = bisect_right(self.bounds, entry) - 1
        block, width = self.blocks[index], self.width
        at = _find(block, entry.to_bytes(width, "big"), width)
        if at < 0:
            return False
        del block[at : at + width]
        if not block:
            del self.blocks[index], self.bounds[index]
        return True


class SortedList(msgspec.Struct, gc=False, eq=False):
    """Entries in order; `head[0]` is the smallest, and an empty head means an empty list."""

    width: int
    head: list[int]  # in order
    tail: Tail | None = None
    max_head: int = MAX_HEAD

    def push(self, entry: int) -> None:
        """Insert an entry."""
        tail = self.tail
        if tail is not None and entry >= tail.bounds[0]:
            tail.push(entry)
            return
        head = self.head
        insort(head, entry)
        if len(head) > self.max_head:
            self._overflow()

    def extend(self, more: bytes, *, is_new: bool) -> None:
        """Insert many entries, given as a block; if not new, some may be in the list already."""
        if len(more) // self.width < max(SMALL_BATCH, self.count() // SMALL_BATCH):
            for entry in unpack(more, self.width):
                _ = is_new or self.discard(entry)
                self.push(entry)
        elif more:
            self._rebuild(more)

    def _rebuild(self, more: bytes) -> None:
        blocks = () if self.tail is None else self.tail.blocks
        every = b"".join((pack(self.head, self.width), *blocks, more))
        entries = _sort_unique(every, self.width)
        size, step = self.max_head * self.width, MAX_BLOCK * 3 // 4 * self.width
        self.head, rest = unpack(entries[:size], self.width), entries[size:]
        cut = [bytearray(rest[at : at + step]) for at in range(0, len(rest), step)]
        bounds = [_first(block, self.width) for block in cut]
        self.tail = Tail(self.width, bounds, cut) if cut else None

    def _overflow(self) -> None:
        """Move the larger entries of the head to the tail."""
        kept = self.max_head // 3 + 1
        entries, self.head = self.head[kept:], self.head[:kept]
        if self.tail is None:
            self.tail = Tail(self.width, [], [])
        self.tail.push_front(entries[0], pack(entries, self.width))

    def pop(self) -> int:
        """Remove and return the smallest entry."""
        entry = self.head.pop(0)
        if not self.head and self.tail is not None:
            self.refill()
        return entry

    def refill(self) -> None:
        """Move the smallest entries of the tail to the empty head."""
        tail = self.tail
        if tail is None:
            return
        self.head = tail.pop_front(max(REFILL, self.max_head))
        if not tail.blocks:
            self.tail = None

    def discard(self, entry: int) -> bool:
        """Remove an entry; return whether it was there."""
        tail = self.tail
        if tail is not None and entry >= tail.bounds[0]:
            found = tail.discard(entry)
            if not tail.blocks:
                self.tail = None
            return found
        head = self.head
        at = bisect_left(head, entry)
        if at == len(head) or head[at] != entry:
            return False
        del head[at]
        if not head:
            self.refill()
        return True

    def swap(self, old: int, new: int) -> bool:
        """Replace an entry, if it is there; return whether it was. Avoids needless refills."""
        head, tail = self.head, self.tail
        if tail is not None and old >= tail.bounds[0]:
            found = self.discard(old)
            if found:
                self.push(new)
            return found
        at = bisect_left(head, old)
        if at == len(head) or head[at] != old:
            return False
        del head[at]
        if tail is None or new < tail.bounds[0]:
            insort(head, new)
            return True
        tail.push(new)
        if not head:
            self.refill()
        return True

    def count(self) -> int:
        """Return the number of entries."""
        blocks = () if self.tail is None else self.tail.blocks
        return len(self.head) + sum(map(len, blocks)) // (self.width or 1)

    def count_from(self, bound: int) -> int:
        """Return the number of entries ≥ bound; reads only the block the bound falls into."""
        count = sum(entry >= bound for entry in self.head)
        if self.tail is None:
            return count
        ends = [*self.tail.bounds[1:], None]
        for start, end, block in zip(self.tail.bounds, ends, self.tail.blocks, strict=True):
            if start >= bound:
                count += len(block) // self.width
            elif end is None or end > bound:
                count += sum(entry >= bound for entry in unpack(block, self.width))
        return count

    def below(self, bound: int) -> list[int]:
        """Return the entries < bound, unsorted; reads only blocks that may hold some."""
        found = [entry for entry in self.head if entry < bound]
        if self.tail is not None:
            for block in self.tail.blocks[: bisect_left(self.tail.bounds, bound)]:
                found += [entry for entry in unpack(block, self.width) if entry < bound]
        return found

    def first(self, count: int) -> list[int]:
        """Return the smallest entries, in order, without removing them."""
        found = self.head[:count]
        blocks = iter(() if self.tail is None else self.tail.blocks)
        while len(found) < count and (block := next(blocks, None)) is not None:
            found += unpack(sort_block(block, self.width), self.width)
        return found[:count]

    def __iter__(self) -> Iterator[int]:
        """Iterate over all entries, unsorted."""
        yield from self.head
        if self.tail is not None:
            for block in self.tail.blocks:
                yield from unpack(block, self.width)


def pack(entries: list[int], width: int) -> bytearray:
    """Return entries as the bytes of a block."""
    return bytearray().join([entry.to_bytes(width, "big") for entry in entries])


def unpack(block: bytearray | bytes, width: int) -> list[int]:
    """Return the entries of a block."""
    number = int.from_bytes
    pieces = struct.unpack(f"{width}s" * (len(block) // width), block)
    return [number(piece, "big") for piece in pieces]


def sort_block(block: bytearray | bytes, width: int) -> bytes:
    """Return the same block, sorted."""
    # Fixed-width bytes compare as the integers do, and numpy sorts them at a tenth of the cost.
    return np.sort(np.frombuffer(block, f"S{width}")).tobytes()


def _sort_unique(block: bytes, width: int) -> bytes:
    entries = np.sort(np.frombuffer(block, f"S{width}"), kind="stable")
    kept: bytes = entries[np.append(True, entries[1:] != entries[:-1])].tobytes()
    return kept


def _first(block: bytes | bytearray, width: int) -> int:
    return int.from_bytes(block[:width], "big")


def _find(block: bytearray, wanted: bytes, width: int) -> int:
    """Return the offset of an entry; its bytes may also appear across two others."""
    at = block.find(wanted)
    while at > 0 and at % width:
        at = block.find(wanted, at + 1)
    return at
