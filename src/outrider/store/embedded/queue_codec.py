"""Queues as bytes: packed queues in memory, and the pieces of long lists for snapshots."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
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
    TASK_RANK_SHIFT,
    unordered,
)
from outrider.store.embedded import log_pages
from outrider.store.engine.records import EMPTY_LIST, INACTIVE, Queue
from outrider.store.engine.schedule import inactive_key
from outrider.store.engine.sorted_list import SortedList, Tail, pack, unpack

PIECE_BYTES: Final = 1 << 17
_PRIORITY_BITS: Final = (1 << 64) - 1
_LISTS: Final = (("lane0", LANE_BYTES), ("lane1", LANE_BYTES), ("delayed", DELAYED_BYTES))


class Entries(msgspec.Struct, array_like=True):
    """A sorted list or a part of it: its head, then blocks with their bounds."""

    head: bytes
    bounds: bytes
    blocks: list[bytes]


class PackedQueueHeader(msgspec.Struct, array_like=True):
    """The beginning of a packed queue: what the schedule needs to know of it."""

    key: str
    number: int
    pending: int
    wake_at: int
    ready_keys: tuple[bytes, bytes]  # in the ready lists; empty: not in them
    inactive_key: bytes  # in the inactive list; empty: not in it
    by_turn: bool  # whether the ready keys were computed for round-robin

    def list_keys(self) -> tuple[int, int, int]:
        """Return the two ready keys and the inactive key; 0: not in that list."""
        keys = (*self.ready_keys, self.inactive_key)
        first, second, inactive = (int.from_bytes(key, "big") for key in keys)
        return first, second, inactive


class PackedQueue(PackedQueueHeader, array_like=True):
    """A packed queue: its header, its row, and its lists if they are not too long."""

    row: bytes
    lane0: Entries | None
    lane1: Entries | None
    delayed: Entries | None


_encode = msgspec.msgpack.Encoder().encode
decode_header = msgspec.msgpack.Decoder(PackedQueueHeader).decode
decode_packed = msgspec.msgpack.Decoder(PackedQueue).decode


def pack_queue(queue: Queue, *, by_turn: bool) -> tuple[bytes, bool]:
    """Return a queue as bytes, and whether its lists are too long to be in them."""
    cuts = [cut(entries, 0) for entries in lists_of(queue)]
    is_long = any(rest is not None for _, rest in cuts)
    lists = [None] * len(cuts) if is_long else [entries for entries, _ in cuts]
    inactive = _key_bytes(inactive_key(queue) if queue.list_state == INACTIVE else 0)
    ready = _key_bytes(queue.ready_key0), _key_bytes(queue.ready_key1)
    header = (queue.key, queue.number, queue.pending, queue.wake_at, ready, inactive, by_turn)
    return _encode((*header, log_pages.encode_queue(queue), *lists)), is_long


def _key_bytes(key: int) -> bytes:
    return key.to_bytes(QUEUE_BYTES, "big") if key else b""


def lists_of(queue: Queue) -> tuple[SortedList, SortedList, SortedList]:
    """Return the three lists of a queue."""
    return queue.lane0, queue.lane1, queue.delayed


def pending_count(queue: Queue) -> int:
    """Return the number of tasks in its lists."""
    return sum(entries.count() for entries in lists_of(queue))


def priorities(queue: Queue) -> Iterator[float]:
    """Return the priorities of its pending tasks, in no order."""
    for lane in (queue.lane0, queue.lane1):
        for entry in lane:
            yield unordered(entry >> DUE_BITS + TASK_RANK_SHIFT & _PRIORITY_BITS)
    for entry in queue.delayed:
        yield unordered((entry >> 1 & KEY_MASK) >> TASK_RANK_SHIFT & _PRIORITY_BITS)


def cut(items: SortedList, start: int) -> tuple[Entries | None, int | None]:
    """Return a part of a list from an entry on, and the entry the next part starts with.

    Between two cuts entries are added and removed, and move to the head; one that only moves is
    cut once.
    """
    if not items.head:
        return None, None
    head = pack([entry for entry in items.head if entry >= start], items.width)
    if items.tail is None:
        return (Entries(bytes(head), b"", []) if head else None), None
    bounds = items.tail.bounds
    first = max(0, bisect_right(bounds, start) - 1)
    sizes = accumulate(map(len, items.tail.blocks[first:]))
    last = first + sum(1 for _ in takewhile(lambda size: size < PIECE_BYTES, sizes)) + 1
    chosen, blocks = bounds[first:last], [bytes(block) for block in items.tail.blocks[first:last]]
    if chosen[0] < start:  # smaller entries have been added to its block since
        chosen[0], blocks[0] = start, _not_below(start, blocks[0], items.width)
    if not blocks[0]:
        del chosen[0], blocks[0]
    entries = Entries(bytes(head), bytes(pack(chosen, items.width)), blocks)
    return entries, bounds[last] if last < len(bounds) else None


def _not_below(start: int, block: bytes, width: int) -> bytes:
    return bytes(pack([entry for entry in unpack(block, width) if entry >= start], width))


def insert_entries(queue: Queue, index: int, entries: Entries) -> None:
    """Insert a part of one of its lists, in the order of the cuts."""
    name, width = _LISTS[index]
    if getattr(queue, name) is EMPTY_LIST:
        setattr(queue, name, SortedList(width, []))
    items: SortedList = getattr(queue, name)
    head = unpack(entries.head, width)
    if not items.head:
        items.head, head = head, []
    if entries.blocks:
        _insert_blocks(items, unpack(entries.bounds, width), [bytearray(b) for b in entries.blocks])
    for entry in head:  # moved to the head since the first cut
        items.push(entry)


def remove_promoted(queue: Queue) -> None:
    """Remove delayed entries that became due between two cuts, and so are in a lane as well."""
    if not queue.delayed.head:
        return
    due = {(lane, entry) for lane in (0, 1) for entry in queue.lane(lane)}
    for entry in list(queue.delayed):
        key, at = entry >> 1 & KEY_MASK, entry >> DELAYED_SHIFT
        if (entry & 1, key << DUE_BITS | at) in due:
            queue.delayed.discard(entry)


def _insert_blocks(items: SortedList, bounds: list[int], blocks: list[bytearray]) -> None:
    if items.tail is None:
        items.tail = Tail(items.width, bounds, blocks)
    else:
        items.tail.bounds += bounds
        items.tail.blocks += blocks
    if not items.head:  # its head was empty when this part was cut
        items.refill()
