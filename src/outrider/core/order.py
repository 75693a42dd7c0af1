"""The order key: precedence, priority and tie as one integer; lower is sooner (C2, C3).

Packed integers compare in one machine-friendly step: heaps of them are several times faster than
heaps of tuples. Every key ends in the number it belongs to, so no two are equal.
"""

from __future__ import annotations

import struct
from typing import Final

_PACK = struct.Struct(">d").pack
_UNPACK = struct.Struct(">Q").unpack
_BITS = struct.Struct(">Q").pack
_FLOAT = struct.Struct(">d").unpack
_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1

TIE_BITS: Final = 48
TIE_MASK: Final = (1 << TIE_BITS) - 1
NUMBER_BITS: Final = 40  # of a task or a queue within its crawl: 10^12
NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1
TURN_BITS: Final = 53  # Lua numbers are exact up to here
PRECEDENCE_LIMIT: Final = 1 << 31  # of a queue, either side of 0
DUE_BITS: Final = 48  # an instant in milliseconds: some 8,900 years

TASK_RANK_SHIFT: Final = TIE_BITS + NUMBER_BITS
_PRECEDENCE_SHIFT: Final = 64 + TASK_RANK_SHIFT
QUEUE_RANK_SHIFT: Final = TURN_BITS + NUMBER_BITS
QUEUE_PRECEDENCE_SHIFT: Final = 80 + QUEUE_RANK_SHIFT

# How a pending task waits: in a lane by its key, or among the delayed by its instant.
KEY_BITS: Final = 16 + _PRECEDENCE_SHIFT
KEY_MASK: Final = (1 << KEY_BITS) - 1
DUE_MASK: Final = (1 << DUE_BITS) - 1
DELAYED_SHIFT: Final = KEY_BITS + 1
LANE_BYTES: Final = (KEY_BITS + DUE_BITS) // 8
DELAYED_BYTES: Final = LANE_BYTES + 1
QUEUE_BYTES: Final = (32 + QUEUE_PRECEDENCE_SHIFT + 7) // 8


def ordered(priority: float) -> int:
    """A 64-bit integer that sorts as the float does; -0.0 is 0.0."""
    bits: int = _UNPACK(_PACK(priority + 0.0))[0]
    return bits ^ _ALL if bits & _SIGN else bits | _SIGN


def unordered(bits: int) -> float:
    """The float behind `ordered`."""
    bits = bits ^ _SIGN if bits & _SIGN else bits ^ _ALL
    value: float = _FLOAT(_BITS(bits))[0]
    return value


def task_key(precedence: int, priority: float, tie: int, number: int) -> int:
    """The place of a task within its queue and lane (C2)."""
    bits: int = _UNPACK(_PACK(priority + 0.0))[0]
    bits = bits ^ _ALL if bits & _SIGN else bits | _SIGN
    return precedence << _PRECEDENCE_SHIFT | bits << TASK_RANK_SHIFT | tie << NUMBER_BITS | number


def task_number(key: int) -> int:
    """Which task a key belongs to."""
    return key & NUMBER_MASK


def rank(key: int) -> int:
    """Precedence and priority of a task key, without tie and number: what compares queues (C3)."""
    return key >> TASK_RANK_SHIFT


def discounted(precedence: int, priority: float) -> int:
    """The rank of a task whose priority was moved by the breadth discount (C5)."""
    return precedence << 64 | ordered(priority)


def moved(rank_: int, by: float) -> int:
    """A rank whose priority is that much worse (C5)."""
    return discounted(rank_ >> 64, unordered(rank_ & _ALL) + by)


def queue_key(precedence: int, rank_: int, turn: int, number: int) -> int:
    """The place of a queue among the ready ones: precedence, top task's rank, turn (C3)."""
    return (
        (precedence + PRECEDENCE_LIMIT) << QUEUE_PRECEDENCE_SHIFT
        | rank_ << QUEUE_RANK_SHIFT
        | turn << NUMBER_BITS
        | number
    )


def queue_precedence(key: int) -> int:
    """The queue precedence inside a queue key."""
    return (key >> QUEUE_PRECEDENCE_SHIFT) - PRECEDENCE_LIMIT


def queue_number(key: int) -> int:
    """Which queue a key belongs to."""
    return key & NUMBER_MASK


def tie_of(rule: str, arrival: int, roll: int) -> int:
    """The tie a task gets at insertion: arrival number, its complement, or the caller's roll."""
    if rule == "fifo":
        return arrival
    if rule == "lifo":
        return TIE_MASK - arrival
    return roll
