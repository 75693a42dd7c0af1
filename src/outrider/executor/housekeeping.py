"""The executor's housekeeping: renews leases, expires overdue ones, scales slots, sends heartbeats.

Every worker expires overdue leases and sends heartbeats: there is no leader.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from outrider.core.worker_totals import ScalingDecision
from outrider.errors import OutriderError
from outrider.executor.lease_renewal import LeaseRenewer
from outrider.executor.slots import SCALING_INTERVAL, SlotReading
from outrider.frontier import Frontier
from outrider.store.protocol import Heartbeat, WorkerState

if TYPE_CHECKING:
    from outrider.executor.executor import Executor

TICK_INTERVAL: Final = 0.25
LISTEN_INTERVAL: Final = 1.0  # seconds between two reads of shared values
HEARTBEAT_INTERVAL: Final = 5.0
HEARTBEAT_LASTS: Final = 30.0  # seconds without a heartbeat after which a worker counts as gone
LAST_HEARTBEAT_TIMEOUT: Final = 2.0
_STATM: Final = Path("/proc/self/statm")


class Housekeeping:
    """Two tasks beside the executor's loop, one of which calls the store; cancel it to end."""

    def __init__(self, executor: Executor, frontier: Frontier, renewer: LeaseRenewer) -> None:
        self._executor = executor
        self._frontier = frontier
        self._renewer = renewer
        self._host = socket.gethostname()  # it names this process, whatever the host is named later
        self._lag = 0.0

    async def run(self) -> None:
        """Run both tasks until cancelled; ticks continue while the store is unavailable."""
        both = [asyncio.ensure_future(work) for work in (self._tick(), self._call_store())]
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
            await asyncio.sleep(TICK_INTERVAL)
            now = loop.time()
            self._lag = max(now - before - TICK_INTERVAL, self._lag * 0.9)
            self._executor.ticks += 1
            self._executor.watch()
            if now - scaled >= SCALING_INTERVAL:
                scaled = now
                self._scale(now)

    async def _call_store(self) -> None:
        """Renew leases, expire overdue ones, send heartbeats, read settings and shared values."""
        loop, frontier = asyncio.get_running_loop(), self._frontier
        call = self._executor.outage.call
        expired, sent, listened = loop.time(), -inf, loop.time()
        while True:
            # Only if due: a renewal without a store call must not end an outage.
            if self._renewer.is_due:
                self._executor.lost(await call(self._renewer.renew))
            if loop.time() - expired >= self._renewer.seconds / 2:
                expired = loop.time()
                await call(frontier.expire)
            if loop.time() - sent >= HEARTBEAT_INTERVAL:
                sent = loop.time()
                await call(self._send_heartbeat)
                await call(frontier.learn)
                listened = loop.time()
            elif loop.time() - listened >= LISTEN_INTERVAL:
                listened = loop.time()
                await call(frontier.listen)
                await frontier.keep()
            await asyncio.sleep(TICK_INTERVAL)

    async def _send_heartbeat(self, state: WorkerState | None = None) -> None:
        """Send a heartbeat; its scaling decisions are sent again until one was answered."""
        decisions = tuple(self._executor.scaler.decisions)
        heartbeat = self._heartbeat(state, decisions)
        await self._frontier.store.heartbeat(self._frontier.crawl, heartbeat)
        self._executor.counts.sent(decisions)

    def _heartbeat(
        self, state: WorkerState | None, decisions: Sequence[ScalingDecision]
    ) -> Heartbeat:
        executor, frontier, now = self._executor, self._frontier, asyncio.get_running_loop().time()
        epoch = frontier.clock.now_ms() / 1000 - now
        totals = executor.counts.totals(frontier.refused, decisions, epoch, now)
        working: WorkerState = "busy" if executor.in_flight else "idle"
        return Heartbeat(
            frontier.worker,
            state or ("draining" if executor.is_stopping else working),
            self._host,
            os.getpid(),
            executor.slots.count,
            executor.slots.busy,
            executor.visits,
            HEARTBEAT_LASTS,
            replace(
                totals,
                retried=frontier.retried,
                slots={**executor.slots.by_state(), "parked": executor.parked_count},
            ),
        )

    async def send_last_heartbeat(self) -> None:
        """Tell the store that this worker is gone; if that fails, its heartbeat expires."""
        with suppress(OutriderError, TimeoutError):
            async with asyncio.timeout(LAST_HEARTBEAT_TIMEOUT):
                await self._send_heartbeat("gone")

    def _scale(self, now: float) -> None:
        executor, slots = self._executor, self._executor.slots
        reading = SlotReading(
            now, slots.count, slots.free, executor.has_ready, self._lag, resident_memory()
        )
        count = executor.scaler.decide(reading)
        if count != slots.count:
            executor.resize(count)


def resident_memory() -> int:
    """Return the bytes of memory this process holds; where unknown, the most it ever held."""
    try:
        return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
