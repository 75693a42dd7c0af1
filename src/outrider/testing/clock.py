"""The fake clock: time in tests is a number that `advance` changes."""

from __future__ import annotations

import asyncio
import heapq
import math


class FakeClock:
    """A clock that moves only by `advance`; sleepers wake in the order of their instants."""

    is_virtual = True  # stores on a server use it instead of their own clock

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._ns = round(start * 1_000_000_000)
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    def now_ms(self) -> int:
        """Return the time in whole milliseconds, rounded down."""
        return self._ns // 1_000_000

    def now(self) -> float:
        """Return the time in seconds."""
        return self._ns / 1_000_000_000

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        if not (math.isfinite(seconds) and seconds >= 0):
            raise ValueError(f"a clock advances by seconds ≥ 0, not {seconds!r}")
        self._ns += round(seconds * 1_000_000_000)
        self._wake()

    def next_in(self) -> float | None:
        """Return the seconds until the first sleeper is due; None if there is none."""
        self._forget_cancelled()
        if not self._sleepers:
            return None
        return max(0, self._sleepers[0][0] - self._ns) / 1_000_000_000

    async def sleep(self, seconds: float) -> None:
        """Sleep until the clock was advanced so far."""
        until = self._ns + math.ceil(seconds * 1_000_000_000)
        future = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (until, self._count, future))
        self._wake()
        await future

    def _wake(self) -> None:
        while self._sleepers and self._sleepers[0][0] <= self._ns:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.get_loop().call_soon_threadsafe(_resolve, future)

    def _forget_cancelled(self) -> None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
