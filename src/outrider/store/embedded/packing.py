"""Lines as bytes: whole ones of queues that sleep, and pieces of long ones for snapshots."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, takewhile
from typing import Final

import msgspec

from outrider.core.order import (
    DELAYED_BYTES,
    DELAYED_SHIFT,
    DUE_BITS,
    KEY_MASK,
    LANE_BYTES,
    QUEUE_BYTES,
)
from outrider.store.embedded import pages
from outrider.store.heads.lines import Deep, Line, packed, unpacked
from outrider.store.heads.records import INACTIVE, NO_LINE, Queue
from outrider.store.heads.standing import parked_key

PIECE_BYTES: Final = 1 << 17
_LINES: Final = (("lane0", LANE_BYTES), ("lane1", LANE_BYTES), ("delayed", DELAYED_BYTES))


class Entries(msgspec.Struct, array_like=True):
    """A line, or what follows of it: its head, then blocks with their floors."""

    head: bytes
    floors: bytes
    blocks: list[bytes]


class Brief(msgspec.Struct, array_like=True):
    """The beginning of a packed queue: what others must know of it while it sleeps."""

    key: str
    number: int
    pending: int
    alarm: int
    ranks: tuple[bytes, bytes]  # its places among the ready; empty: it has none
    place: bytes  # and among the parked
    by_turn: bool  # whether the order those places are in is round-robin

    def places(self) -> tuple[int, int, int]:
        """All three as numbers; 0: none."""
        first, second, third = (int.from_bytes(place, "big") for place in (*self.ranks, self.place))
        return first, second, third


class Packed(Brief, array_like=True):
    """All of a packed queue: its row and its lines, if they are not too long."""

    row: bytes
    lane0: Entries | None
    lane1: Entries | None
    delayed: Entries | None


_encode = msgspec.msgpack.Encoder().encode
brief_of = msgspec.msgpack.Decoder(Brief).decode
packed_of = msgspec.msgpack.Decoder(Packed).decode


def pack(queue: Queue, *, by_turn: bool) -> tuple[bytes, bool]:
    """A queue as bytes, and whether its lines are too long to be with it."""
    cuts = [cut(line, 0) for line in lines_of(queue)]
    is_long = any(onward is not None for _, onward in cuts)
    lines = [None] * len(cuts) if is_long else [entries for entries, _ in cuts]
    place = parked_key(queue) if queue.standing == INACTIVE else 0
    first, second, third = (_packed(key) for key in (queue.rank0, queue.rank1, place))
    brief = (queue.key, queue.number, queue.pending, queue.alarm, (first, second), third, by_turn)
    return _encode((*brief, pages.encode_queue(queue), *lines)), is_long


def _packed(key: int) -> bytes:
    return key.to_bytes(QUEUE_BYTES, "big") if key else b""


def lines_of(queue: Queue) -> tuple[Line, Line, Line]:
    """The three lines of a queue."""
    return queue.lane0, queue.lane1, queue.delayed


def length_of(queue: Queue) -> int:
    """How many tasks wait in its lines."""
    return sum(line.count() for line in lines_of(queue))


def cut(line: Line, start: int) -> tuple[Entries | None, int | None]:
    """A piece of a line from an entry on, and where to go on.

    Between two cuts entries come, go, and move to the head; one that only moves is cut once.
    """
    if not line.head:
        return None, None
    head = packed([entry for entry in line.head if entry >= start], line.width)
    if line.deep is None:
        return (Entries(bytes(head), b"", []) if head else None), None
    floors = line.deep.floors
    first = max(0, bisect_right(floors, start) - 1)
    sizes = accumulate(map(len, line.deep.blocks[first:]))
    last = first + sum(1 for _ in takewhile(lambda size: size < PIECE_BYTES, sizes)) + 1
    chosen, blocks = floors[first:last], [bytes(block) for block in line.deep.blocks[first:last]]
    if chosen[0] < start:  # smaller ones have joined its block meanwhile
        chosen[0], blocks[0] = start, _not_below(start, blocks[0], line.width)
    if not blocks[0]:
        del chosen[0], blocks[0]
    entries = Entries(bytes(head), bytes(packed(chosen, line.width)), blocks)
    return entries, floors[last] if last < len(floors) else None


def _not_below(start: int, block: bytes, width: int) -> bytes:
    return bytes(packed([entry for entry in unpacked(block, width) if entry >= start], width))


def join(queue: Queue, place: int, entries: Entries) -> None:
    """Put back what was cut of one of its lines, in the order of the cuts."""
    name, width = _LINES[place]
    if getattr(queue, name) is NO_LINE:
        setattr(queue, name, Line(width, []))
    line: Line = getattr(queue, name)
    head = unpacked(entries.head, width)
    if not line.head:
        line.head, head = head, []
    if entries.blocks:
        _join_blocks(line, unpacked(entries.floors, width), [bytearray(b) for b in entries.blocks])
    for entry in head:  # moved there since the first cut, whose head is not the line's any more
        line.push(entry)


def sort_out(queue: Queue) -> None:
    """What became due between two cuts is in both lines: it waits no more."""
    if not queue.delayed.head:
        return
    due = {(lane, entry) for lane in (0, 1) for entry in queue.lane(lane)}
    for entry in list(queue.delayed):
        key, at = entry >> 1 & KEY_MASK, entry >> DELAYED_SHIFT
        if (entry & 1, key << DUE_BITS | at) in due:
            queue.delayed.discard(entry)


def _join_blocks(line: Line, floors: list[int], blocks: list[bytearray]) -> None:
    if line.deep is None:
        line.deep = Deep(line.width, floors, blocks)
    else:
        line.deep.floors += floors
        line.deep.blocks += blocks
    if not line.head:  # its head was empty when this was cut, and the blocks are what follows
        line.refill()
