"""The executor's housekeeping: leases renewed, overdue ones swept, slots scaled, hangers seen.

Any worker sweeps, and all say how they are: there is no leader to lose.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider.errors import OutriderError
from outrider.executor.holding import Holding
from outrider.executor.scaling import EVERY, Reading
from outrider.frontier import Frontier
from outrider.store.protocol import Heartbeat, WorkerState

if TYPE_CHECKING:
    from outrider.executor.executor import Executor

TICK: Final = 0.25
HEAR: Final = 1.0  # seconds between two looks at what others noted
BEAT: Final = 5.0  # seconds between two beats,
LASTS: Final = 30.0  # and those after which silence reads as gone
FAREWELL: Final = 2.0  # seconds for the last one
_STATM: Final = Path("/proc/self/statm")


class Keeping:
    """Two tasks beside the loop, one of which speaks to the store; they end by being cancelled."""

    def __init__(self, executor: Executor, frontier: Frontier, holding: Holding) -> None:
        self._executor = executor
        self._frontier = frontier
        self._holding = holding
        self._lag = 0.0

    async def run(self) -> None:
        """For ever; while the store is away, what needs none of it goes on."""
        both = [asyncio.ensure_future(work) for work in (self._tick(), self._speak())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in both:
                if task.done():
                    task.result()
        finally:
            for task in both:
                task.cancel()
            await asyncio.wait(both)

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        scaled = loop.time()
        while True:
            before = loop.time()
            await asyncio.sleep(TICK)
            now = loop.time()
            self._lag = max(now - before - TICK, self._lag * 0.9)
            self._executor.ticks += 1
            self._executor.watch()
            if now - scaled >= EVERY:
                scaled = now
                self._scale(now)

    async def _speak(self) -> None:
        """Leases renewed, overdue ones swept, others told how we are, and asked what is new."""
        loop, call, frontier = (
            asyncio.get_running_loop(),
            self._executor.outage.call,
            self._frontier,
        )
        swept, told, heard = loop.time(), -inf, loop.time()
        while True:
            if self._holding.is_due:  # else the store is not asked: no sign that it is back
                self._executor.lost(await call(self._holding.renew))
            if loop.time() - swept >= self._holding.seconds / 2:
                swept = loop.time()
                await call(frontier.expire)
            if loop.time() - told >= BEAT:
                told = loop.time()
                await call(lambda: frontier.store.heartbeat(frontier.crawl, self._beat()))
                await call(frontier.learn)
                heard = loop.time()
            elif loop.time() - heard >= HEAR:
                heard = loop.time()
                await call(frontier.listen)
                await frontier.keep()
            await asyncio.sleep(TICK)

    def _beat(self, state: WorkerState | None = None) -> Heartbeat:
        executor = self._executor
        working: WorkerState = "busy" if executor.in_flight else "idle"
        return Heartbeat(
            self._frontier.worker,
            state or ("draining" if executor.is_stopping else working),
            socket.gethostname(),
            os.getpid(),
            executor.slots.count,
            executor.slots.busy,
            executor.visits,
            LASTS,
        )

    async def say_goodbye(self) -> None:
        """So that nobody waits for us; a store that is away learns it by our silence."""
        with suppress(OutriderError, TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await self._frontier.store.heartbeat(self._frontier.crawl, self._beat("gone"))

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
