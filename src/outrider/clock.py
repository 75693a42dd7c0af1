"""Clocks of stores and of waiting: whole milliseconds that never step back (H7)."""

from __future__ import annotations

import asyncio
import time
from math import ceil
from typing import Protocol


def to_ms(seconds: float) -> int:
    """Return a wait in whole milliseconds, rounded up; less than a nanosecond is ignored."""
    return ceil(seconds * 1000 - 1e-6)


class Clock(Protocol):
    """The clock that a store reads and the shell waits on."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch; a clock stepping back counts as no time."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait until that much time has passed on this clock."""
        ...


def is_virtual(clock: Clock) -> bool:
    """Tell whether the time is virtual: a store on a server then uses it, not its own clock."""
    return bool(getattr(clock, "is_virtual", False))


class SystemClock:
    """The wall clock at the start, monotonic from then on."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, as this process counts them."""
        return (self._offset + time.monotonic_ns()) // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Wait in real time."""
        await asyncio.sleep(seconds)


def uptime() -> float:
    """Return the seconds of the machine's steady clock: the same for all its processes."""
    return time.monotonic()
