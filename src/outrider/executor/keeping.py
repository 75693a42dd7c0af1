"""The executor's housekeeping: leases renewed, overdue ones swept, slots scaled, hangers seen."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider.executor.holding import Holding
from outrider.executor.scaling import EVERY, Reading
from outrider.frontier import Frontier

if TYPE_CHECKING:
    from outrider.executor.executor import Executor

TICK: Final = 0.25
_STATM: Final = Path("/proc/self/statm")


class Keeping:
    """One task beside the loop; it ends by being cancelled."""

    def __init__(self, executor: Executor, frontier: Frontier, holding: Holding) -> None:
        self._executor = executor
        self._frontier = frontier
        self._holding = holding
        self._lag = 0.0

    async def run(self) -> None:
        """Tick for ever."""
        loop = asyncio.get_running_loop()
        scaled = swept = loop.time()
        while True:
            before = loop.time()
            await asyncio.sleep(TICK)
            now = loop.time()
            self._lag = max(now - before - TICK, self._lag * 0.9)
            self._executor.watch()
            self._executor.lost(await self._holding.renew())
            if now - scaled >= EVERY:
                scaled = now
                self._scale(now)
            if now - swept >= self._holding.seconds / 2:
                swept = now
                await self._frontier.expire()

    def _scale(self, now: float) -> None:
        executor, slots = self._executor, self._executor.slots
        reading = Reading(
            now, slots.count, slots.free, executor.has_ready, self._lag, memory_held()
        )
        count = executor.scaler.decide(reading)
        if count != slots.count:
            executor.resize(count)


def memory_held() -> int:
    """Bytes of memory this process holds; where that cannot be read, the most it ever held."""
    try:
        return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
