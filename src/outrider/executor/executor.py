"""The executor: claims tasks for free slots, runs their visits, and finishes those that ended.

Each turn of its loop finishes a batch of ended visits (`Finisher`) and claims for free slots
(`RunningVisits`). With a workbench, claims need no call to the store, so batches are finished
beside the loop. `Housekeeping` renews leases and sends heartbeats meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal, TypeAlias

import msgspec

from outrider.core.states import DELETING, UNKNOWN, CrawlStatus
from outrider.executor.cached_visits import CachedVisits
from outrider.executor.fault_pause import FaultPause
from outrider.executor.finisher import Finisher, Observer, Outputs, Sink
from outrider.executor.handlers import Handlers
from outrider.executor.housekeeping import Housekeeping
from outrider.executor.lease_renewal import LeaseRenewer
from outrider.executor.outage import Outage
from outrider.executor.running_visits import BATCH_WAIT, CANCEL_GRACE, RunningVisits
from outrider.executor.slots import Scaler, Slots, clamp, slot_bounds
from outrider.executor.visit import Visit
from outrider.executor.wake_event import WakeEvent
from outrider.executor.worker_counts import WorkerCounts
from outrider.frontier import Frontier
from outrider.frontier.reports import Claim
from outrider.settings import Settings
from outrider.store.protocol import CrawlView

POLL_INTERVAL: Final = 1.0  # seconds between two claims at most: other workers may add tasks

EndingKind: TypeAlias = Literal["finished", "paused", "cancelled", "stopped"]


class Ending(msgspec.Struct, frozen=True):
    """Why a run is over."""

    how: EndingKind
    reason: str = ""


class Executor:
    """Runs one crawl's visits in this process until the crawl ends or it is stopped."""

    def __init__(  # noqa: PLR0913 - each is one part of an executor
        self,
        frontier: Frontier,
        handlers: Handlers,
        *,
        sink: Sink | None = None,
        observer: Observer | None = None,
        cached_visits: CachedVisits | None = None,
        outage: Outage | None = None,
        pause: FaultPause | None = None,
        stays: bool = False,
    ) -> None:
        wanted = frontier.settings.executor
        self._frontier = frontier
        self._handlers = handlers
        self._cached_visits = cached_visits
        self._stays = stays  # when the crawl is finished, wait for more tasks
        self.outage = outage or Outage()
        self.pause = pause or FaultPause()
        least, most, memory = slot_bounds(wanted)
        self.slots = Slots(clamp(wanted.slots, least, most))
        self.scaler = Scaler(least, most, memory)
        self.counts = WorkerCounts()
        self._wake = WakeEvent()
        self._renewer = LeaseRenewer(frontier)
        noted = None if cached_visits is None else cached_visits.ended
        self._finisher = Finisher(
            frontier,
            self._renewer,
            self.outage,
            self.pause,
            self.slots,
            Outputs(sink, [one for one in (observer, noted) if one is not None]),
            self.counts,
        )
        self._running = RunningVisits(
            handlers,
            self.slots,
            self._renewer,
            self._finisher,
            self.outage,
            self.pause,
            self._wake,
        )
        self._finishes_beside = wanted.workbench  # a batch is finished during claims
        self._stops = 0
        self._wake_in: float = 0.0
        self.has_ready = False
        self.turns = 0  # of the loop
        self.ticks = 0  # of the housekeeping

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stops > 0

    @property
    def in_flight(self) -> int:
        """Visits that have not ended, parked ones included."""
        return len(self._running)

    @property
    def parked_count(self) -> int:
        """Visits that wait without a slot."""
        return self._running.parked_count

    @property
    def visits(self) -> int:
        """Visits that were finished."""
        return self._finisher.visits

    @property
    def is_waiting(self) -> bool:
        """Whether the store is unavailable."""
        return self.outage.is_on

    @property
    def stuck(self) -> str:
        """What should have ended long ago, in words; "": nothing."""
        return self._running.stuck

    def stop(self) -> None:
        """Claim no more, and end when running visits have; a second call ends at once (J4)."""
        self._stops += 1
        limit = 0.0 if self._stops > 1 else self._frontier.settings.executor.drain
        stop_at = asyncio.get_running_loop().time() + limit
        self._running.cancel_by(stop_at)
        self._finisher.end_by(stop_at)
        self.pause.hurry()
        self.outage.end_by(stop_at)
        self._wake.set()

    async def run(self) -> Ending:
        """Run until the crawl ends, pauses by itself, or `stop` is called."""
        self._finisher.done = (await self._crawl()).outcomes.get("done", 0)
        self.counts.start(asyncio.get_running_loop().time())
        self._frontier.record_calls(self.counts.called)
        housekeeping = Housekeeping(self, self._frontier, self._renewer)
        keeper = asyncio.create_task(housekeeping.run())
        keeper.add_done_callback(lambda _: self._wake.set())
        unsubscribe = self._frontier.store.subscribe(self._frontier.crawl, self._work_available)
        end_watch = self._frontier.watch_settings(self._apply_settings)
        try:
            return await self._loop(keeper)
        finally:
            unsubscribe()
            end_watch()
            self._frontier.record_calls(None)
            self.outage.end_by(asyncio.get_running_loop().time())
            keeper.cancel()
            with suppress(asyncio.CancelledError):
                await keeper
            await self._close()
            await housekeeping.send_last_heartbeat()
            self._handlers.close()

    def _work_available(self) -> None:
        """Claim soon; finishes of this worker notify too, and must not become smaller by that."""
        self._wake.set_in(BATCH_WAIT)

    async def _crawl(self) -> CrawlView:
        frontier = self._frontier
        return await self.outage.call(lambda: frontier.store.crawl(frontier.crawl))

    async def _loop(self, keeper: asyncio.Task[None]) -> Ending:
        while True:
            self.turns += 1
            if self._finishes_beside:
                await self._finisher.finish_beside(self._wake)
            else:
                await self._finisher.finish()
            ending = await self._claim()
            if ending is not None:
                return ending
            if keeper.done():
                keeper.result()
            seconds = 0.0 if self._finisher.is_due else min(self._wake_in, POLL_INTERVAL)
            await self._wake.wait(seconds)

    async def _claim(self) -> Ending | None:
        """Claim for free slots only (D2); None: the run continues."""
        self._wake_in = POLL_INTERVAL
        if self._stops:
            return None if self._has_more() else Ending("stopped", "asked to stop")
        asked = await self.outage.call(self._claim_and_begin) if self._wanted() else None
        if asked is None:
            wait = self.pause.wait(asyncio.get_running_loop().time())
            self.has_ready = not self.slots.free and not self.pause.is_on
            self._wake_in = min(wait, POLL_INTERVAL) if wait else POLL_INTERVAL
            return None
        wanted, claim = asked
        self.has_ready = claim.wake_in == 0 and len(claim) == wanted
        self._wake_in = POLL_INTERVAL if claim.wake_in is None else claim.wake_in
        if self.has_ready and not self.slots.free:
            self._wake_in = POLL_INTERVAL  # only the end of a visit frees a slot
        if claim or self._has_more():
            return None
        return await self._ending(claim.status)

    def _has_more(self) -> bool:
        """Whether visits are running, or not finished."""
        return bool(self._running) or not self._finisher.is_idle

    async def _claim_and_begin(self) -> tuple[int, Claim] | None:
        """Claim and begin visits; return how many were asked for; None: no slot is free."""
        wanted = 0 if self._stops else self._wanted()
        if not wanted:
            return None
        with self.slots.reserved(wanted):  # visits that end parking meanwhile wait
            wanted -= await self._begin_cached(wanted)
            if not wanted or self._stops:
                return None
            asked_at = self._renewer.now()
            claim = await self._frontier.claim(wanted)
            timeout = self._frontier.settings.executor.handler_timeout
            self._running.begin(claim, asked_at, timeout)
        return wanted, claim

    async def _begin_cached(self, limit: int) -> int:
        """Begin visits of cached pages whose queues are throttled, for free slots as well (D5).

        In a pause for a fault the one visit that is tried must show whether fetching works.
        """
        if self._cached_visits is None or self.pause.is_on:
            return 0
        asked_at = self._renewer.now()
        claim = await self._cached_visits.claim(limit)
        if self._stops:
            self._finisher.release(claim.leases)
            return 0
        timeout = self._frontier.settings.executor.handler_timeout
        self._running.begin(claim.leases, asked_at, timeout, claim.responses)
        return len(claim.leases)

    def _wanted(self) -> int:
        """As many tasks as slots are free, within what the crawl's limit still allows (I4)."""
        limit = self._frontier.settings.limits.done
        now = asyncio.get_running_loop().time()
        free = self.pause.claimable(self.slots.busy, self.slots.free, now)
        if not limit or not free:
            return free
        left = limit - self._finisher.done - len(self._running) - self._finisher.unfinished
        return min(free, max(left, 0 if self._has_more() else 1))

    async def _ending(self, status: CrawlStatus) -> Ending | None:
        if status is CrawlStatus.FINISHED:
            # I2: it stays finished until work comes, and then stays open.
            waits = self._stays or self._frontier.settings.crawl.stay_open
            return None if waits else Ending("finished")
        if status is CrawlStatus.CANCELLED:
            reason = (await self._crawl()).reason or UNKNOWN
            return Ending("cancelled", DELETING if reason == UNKNOWN else reason)
        if status is CrawlStatus.PAUSED:
            reason = (await self._crawl()).reason or ""
            waits = reason == "operator" or (reason == "finish" and self._stays)
            return None if waits else Ending("paused", reason)
        return None

    def watch(self) -> None:
        """Cancel overdue visits; `Housekeeping` calls it at every tick."""
        self._running.watch()

    def lost(self, visits: Sequence[Visit]) -> None:
        """Cancel visits that lost their leases: other workers may have their tasks (H3)."""
        self._running.cancel(visits)

    def _apply_settings(self, old: Settings, new: Settings) -> None:
        """Resize to the slots that settings give now (N3); others are read when needed."""
        least, most, memory = slot_bounds(new.executor)
        self.scaler.bound(least, most, memory)
        is_changed = old.executor.slots != new.executor.slots
        count = new.executor.slots if is_changed else self.slots.count
        count = clamp(count, least, most)
        if count != self.slots.count:
            self.resize(count)
        self._wake.set()

    def resize(self, count: int) -> None:
        """Change the number of slots (J3)."""
        self.slots.resize(count)
        self._wake.set()

    async def _close(self) -> None:
        """Finish or release all visits, as far as the store answers."""
        await self._finisher.wait_for_batch(CANCEL_GRACE)
        await self._running.close()
        self.pause.hurry()
        await self._finisher.close()
