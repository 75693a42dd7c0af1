"""The loop: what ended is written down and finished, then free slots are claimed for and begun.

An outcome is told to the frontier once, with the page's links; a visit without an outcome goes
back, and so does one that met a fault of this machine (`FaultPause`). What cannot be written for
want of room may be kept, leases and all, until it can. One batch is written and finished at a time,
so a sink knows which records are not settled. On a workbench claims need no store, so they go on
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from outrider.core.outcome import Done, Dropped, Failed, Outcome
from outrider.core.states import CrawlStatus
from outrider.core.task import Lease
from outrider.errors import LocalFault, OutputError, OutriderError, StoreError, StoreUnavailable
from outrider.executor.bell import Bell
from outrider.executor.fault_pause import OUTPUT, FaultPause
from outrider.executor.handlers import HandlerFault, Handlers
from outrider.executor.holding import Holding
from outrider.executor.keeping import Keeping
from outrider.executor.outage import Outage
from outrider.executor.scaling import Scaler
from outrider.executor.slots import Slots
from outrider.executor.visit import Visit
from outrider.frontier import Frontier
from outrider.frontier.reports import Claim
from outrider.settings import Settings
from outrider.settings.worker_schema import ExecutorSettings
from outrider.store.protocol import CrawlView

POLL: Final = 1.0  # seconds after which it looks again: others may share the store
TOGETHER: Final = 0.002  # seconds an ended visit waits for company: a batch is cheaper
GRACE: Final = 5.0  # seconds a handler that was cancelled may take to leave
SHOWN: Final = 10  # visits named in a message
PARKED: Final = 16  # visits without a slot, per slot, before parking keeps the slot
LATE: Final = "time limit: handler"
HANDLER_FAULTS: Final = 10  # local faults of a handler over one page that are not the page's
MAX_COUNTED: Final = 10_000  # pages whose faults are remembered


class Sink(Protocol):
    """Where pages are written down; see outrider.output."""

    def write(self, visits: Sequence[Visit]) -> None:
        """Before the visits are finished."""
        ...

    def settle(self, answers: Sequence[bool] | None) -> None:
        """After: True where the visit counts; None if nobody knows."""
        ...

    def close(self) -> None:
        """No more visits."""
        ...


How: TypeAlias = Literal["finished", "paused", "cancelled", "stopped"]
Observer: TypeAlias = Callable[[Sequence[Visit]], None]
# Visits that ended → more that are over already (D5).
Sparing: TypeAlias = Callable[[Sequence[Visit]], Awaitable[list[Visit]]]


class Ending(msgspec.Struct, frozen=True):
    """Why a run is over."""

    how: How
    reason: str = ""


class Executor:
    """Runs one crawl's visits in this process until the crawl ends or it is stopped."""

    def __init__(  # noqa: PLR0913 - each is one thing an executor is made of
        self,
        frontier: Frontier,
        handlers: Handlers,
        *,
        sink: Sink | None = None,
        observer: Observer | None = None,
        spares: Sparing | None = None,
        outage: Outage | None = None,
        pause: FaultPause | None = None,
        stays: bool = False,
    ) -> None:
        wanted = frontier.settings.executor
        self._frontier = frontier
        self._handlers = handlers
        self._sink = sink
        self._observer = observer
        self._spares = spares
        self._stays = stays  # when the crawl is over: more may come
        self.outage = outage or Outage()
        self.pause = pause or FaultPause()
        least, most, memory = _bounds(wanted)
        self.slots = Slots(_within(wanted.slots, least, most))
        self.scaler = Scaler(least, most, memory)
        self._holding = Holding(frontier)
        self._bell = Bell()
        self._flying: dict[Visit, asyncio.Task[None]] = {}
        self._late: set[Visit] = set()
        self._handler_faults: Counter[bytes] = Counter()  # of this machine, by page
        self._ended: list[Visit] = []
        self._overlaps = wanted.workbench  # a batch is finished while slots are claimed for
        self._settler: asyncio.Task[None] | None = None
        self._settling = 0  # visits of the batch that is being finished
        self._returned: list[Lease] = []
        self._parked = 0
        self._stops = 0
        self._stop_at = inf
        self._done = 0  # of the whole crawl, as far as this worker knows
        self._wake_in: float = 0.0
        self.has_ready = False
        self.visits = 0  # ended
        self.turns = 0  # of the loop
        self.ticks = 0  # of what is beside it
        self.stuck = ""  # what should have ended long ago

    @property
    def is_stopping(self) -> bool:
        """Whether somebody said stop."""
        return self._stops > 0

    @property
    def in_flight(self) -> int:
        """Visits that are not over, parked ones included."""
        return len(self._flying)

    @property
    def parked_count(self) -> int:
        """Visits that wait without a slot."""
        return self._parked

    @property
    def is_waiting(self) -> bool:
        """Whether the store is away."""
        return self.outage.is_on

    def stop(self) -> None:
        """Claim no more, and end when what is in flight has; a second time: at once (J4)."""
        self._stops += 1
        limit = 0.0 if self._stops > 1 else self._frontier.settings.executor.drain
        self._stop_at = min(self._stop_at, asyncio.get_running_loop().time() + limit)
        self.pause.hurry()
        self.outage.end_by(self._stop_at)
        self._bell.ring()

    async def run(self) -> Ending:
        """Until the crawl ends, pauses by itself, or `stop` is called."""
        self._done = (await self._crawl()).outcomes.get("done", 0)
        keeping = Keeping(self, self._frontier, self._holding)
        keeper = asyncio.create_task(keeping.run())
        keeper.add_done_callback(lambda _: self._bell.ring())
        end_watch = self._frontier.store.subscribe(self._frontier.crawl, self._bell.ring)
        end_following = self._frontier.watch_settings(self._follow)
        try:
            return await self._loop(keeper)
        finally:
            end_watch()
            end_following()
            self.outage.end_by(asyncio.get_running_loop().time())
            keeper.cancel()
            with suppress(asyncio.CancelledError):
                await keeper
            await self._abandon()
            await keeping.say_goodbye()
            self._handlers.close()

    async def _crawl(self) -> CrawlView:
        frontier = self._frontier
        return await self.outage.call(lambda: frontier.store.crawl(frontier.crawl))

    async def _loop(self, keeper: asyncio.Task[None]) -> Ending:
        while True:
            self.turns += 1
            await (self._settle_beside() if self._overlaps else self._settle())
            ending = await self._claim()
            if ending is not None:
                return ending
            if keeper.done():
                keeper.result()
            is_due = self._may_write() and self._settler is None
            await self._bell.rest(0.0 if is_due else min(self._wake_in, POLL))

    async def _settle_beside(self) -> None:
        """The same in a task of its own, one batch at a time."""
        if self._settler is not None and self._settler.done():
            settler, self._settler = self._settler, None
            settler.result()
        if self._settler is None and (self._may_write() or self._returned):
            self._settler = asyncio.create_task(self._settle())
            self._settler.add_done_callback(lambda _: self._bell.ring())

    async def _settle(self) -> None:
        """What ended is written, then finished, then known to be settled."""
        await self._give_back()
        if not self._may_write():
            return
        ended, self._ended = self._ended, []
        if not self._write(ended):
            return
        self._settling = len(ended)
        try:
            answers = await self._finish(ended)
        finally:
            self._settling = 0
        if self._sink is not None:
            await self._settle_output(self._sink, answers)
        if self._observer is not None:
            self._observer(ended)
        if self._spares is not None and not self._stops:
            with suppress(StoreUnavailable):  # they will come as visits
                self._ended += await self._spares(ended)

    async def _give_back(self) -> None:
        if self._returned:
            returned, self._returned = self._returned, []
            await self.outage.call(lambda: self._frontier.release(returned))

    def _may_write(self) -> bool:
        """Whether visits have ended, and the sink is not waited for."""
        now = asyncio.get_running_loop().time()
        return bool(self._ended) and (now >= self._stop_at or not self.pause.wait(now))

    def _write(self, ended: list[Visit]) -> bool:
        """Whether it was written; without room for it the batch waits, with its leases."""
        if self._sink is None:
            return True
        now = asyncio.get_running_loop().time()
        try:
            self._sink.write(ended)
        except OutriderError as error:  # nothing of the batch stays
            if self._waits_for(error) and now < self._stop_at:
                self._keep_unwritten(ended, error, now)
                return False
            self._returned += [visit.lease for visit in ended]  # to be visited again
            raise
        self.pause.written(now)
        for visit in ended:
            self._holding.end(visit)
        return True

    async def _settle_output(self, sink: Sink, answers: list[bool]) -> None:
        """What does not count leaves the output, which needs room as well."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return sink.settle(answers)
            except OutputError as error:
                if not self._waits_for(error) or loop.time() >= self._stop_at:
                    raise
                self.pause.met(LocalFault(str(error), OUTPUT), self.slots.busy, loop.time())
            await asyncio.sleep(min(self.pause.wait(loop.time()), POLL))

    def _waits_for(self, error: OutriderError) -> bool:
        is_short = isinstance(error, OutputError) and error.retryable
        return is_short and self.pause.waits_for_room

    def _keep_unwritten(self, ended: list[Visit], error: OutriderError, now: float) -> None:
        self._ended = ended + self._ended
        self._holding.keep(ended)
        self.pause.met(LocalFault(str(error), OUTPUT), self.slots.busy, now)

    async def _finish(self, ended: Sequence[Visit]) -> list[bool]:
        """Repeated until it is known what came of it: a finish may be said twice (H3)."""
        visits = [(one.lease, one.outcome, one.links) for one in ended if one.outcome is not None]
        try:
            answers = await self.outage.call(lambda: self._frontier.finish_many(visits))
        except StoreError:
            if self._sink is not None:
                self._sink.settle(None)
            raise
        self._done += sum(isinstance(visit.outcome, Done) for visit in ended)
        self.visits += len(ended)
        return answers

    async def _claim(self) -> Ending | None:
        """D2: only for free slots. None: go on."""
        self._wake_in = POLL
        if self._stops:
            return None if self._has_more() else Ending("stopped", "asked to stop")
        asked = await self.outage.call(self._asked) if self._wanted() else None
        if asked is None:
            wait = self.pause.wait(asyncio.get_running_loop().time())
            self.has_ready = not self.slots.free and not self.pause.is_on
            self._wake_in = min(wait, POLL) if wait else POLL
            return None
        wanted, claim = asked
        self.has_ready = claim.wake_in == 0 and len(claim) == wanted
        self._wake_in = POLL if claim.wake_in is None else claim.wake_in
        if self.has_ready and not self.slots.free:
            self._wake_in = POLL  # only a visit's end frees a slot
        if claim or self._has_more():
            return None
        return await self._ending(claim.status)

    def _has_more(self) -> bool:
        """Whether visits are under way, or not settled."""
        return bool(self._flying or self._ended or self._settler)

    async def _asked(self) -> tuple[int, Claim] | None:
        """How many were asked for, and what came and was begun; None: for nobody is a slot free."""
        wanted = 0 if self._stops else self._wanted()
        if not wanted:
            return None
        asked_at = self._holding.now()
        with self.slots.reserved(wanted):  # whoever comes back from parking meanwhile waits
            claim = await self._frontier.claim(wanted)
            self._begin(claim, asked_at)
        return wanted, claim

    def _wanted(self) -> int:
        """As many as there are slots, and no more than the crawl's limit still allows (I4)."""
        limit = self._frontier.settings.limits.done
        now = asyncio.get_running_loop().time()
        free = self.pause.room(self.slots.busy, self.slots.free, now)
        if not limit or not free:
            return free
        left = limit - self._done - len(self._flying) - len(self._ended) - self._settling
        return min(free, max(left, 0 if self._has_more() else 1))

    def _begin(self, leases: Sequence[Lease], asked_at: float) -> None:
        """J3: slots that were taken away while the claim was under way are not visited in."""
        if not leases:
            return
        loop, room = asyncio.get_running_loop(), self.slots.room
        self._returned += leases[room:]
        until = loop.time() + self._frontier.settings.executor.handler_timeout
        visits = [Visit(lease, self) for lease in leases[:room]]
        self._holding.begin(visits, asked_at)
        for visit in visits:
            visit.began, visit.until = loop.time(), until
            self.slots.take(visit)
            self._flying[visit] = loop.create_task(self._visit(visit))

    async def _ending(self, status: CrawlStatus) -> Ending | None:
        if status is CrawlStatus.FINISHED:
            return None if self._stays else Ending("finished")
        if status is CrawlStatus.CANCELLED:
            return Ending("cancelled", "operator")
        if status is CrawlStatus.PAUSED:
            reason = (await self._crawl()).reason or ""
            waits = reason == "operator" or (reason == "finish" and self._stays)
            return None if waits else Ending("paused", reason)
        return None

    async def _visit(self, visit: Visit) -> None:
        try:
            visit.outcome = await self._handlers.outcome_of(visit)
        except asyncio.CancelledError:
            visit.outcome = Failed(LATE) if visit in self._late else None
        except LocalFault as fault:
            visit.outcome = self._unpunished(visit, fault)
        self._over(visit)

    def _unpunished(self, visit: Visit, fault: LocalFault) -> Outcome | None:
        """H5: no outcome, so that the lease is released, and claims wait.

        A handler may lack something because of the page alone, which would never end: the tenth
        time, it has failed.
        """
        if isinstance(fault, HandlerFault):
            if len(self._handler_faults) > MAX_COUNTED:
                self._handler_faults.clear()
            self._handler_faults[visit.lease.fingerprint] += 1
            if self._handler_faults[visit.lease.fingerprint] >= HANDLER_FAULTS:
                del self._handler_faults[visit.lease.fingerprint]
                return Failed(fault.as_failure)
        self.pause.met(fault, self.slots.busy, asyncio.get_running_loop().time())
        return None

    def _over(self, visit: Visit) -> None:
        """Once a visit, whoever says so first."""
        if self._flying.pop(visit, None) is None:
            return
        self._late.discard(visit)
        self._holding.end(visit)
        self.slots.give(visit)
        if visit.outcome is None:
            self._returned.append(visit.lease)
        else:
            self._ended.append(visit)
            if not isinstance(visit.outcome, Dropped) or visit.outcome.visited:
                now = asyncio.get_running_loop().time()
                self.pause.visited(visit.began, self.slots.count, now)
        self._bell.ring_in(TOGETHER)

    async def holds(self, visit: Visit, seconds: float) -> bool:
        """D7: asked before every request; while the store is away, the handler's time stands."""
        if visit not in self._flying:
            return False
        try:
            return await self._holding.lasts(visit, seconds)
        except StoreError:
            async with self.parked(visit):
                return await self.outage.call(lambda: self._holding.lasts(visit, seconds))

    @asynccontextmanager
    async def parked(self, visit: Visit) -> AsyncIterator[None]:
        """The handler's time limit stands still, and its slot is free for others meanwhile."""
        loop = asyncio.get_running_loop()
        left, visit.until = visit.until - loop.time(), inf
        gives = self._parked < PARKED * self.slots.count
        self._parked += gives
        if gives:
            self.slots.give(visit)
            self._bell.ring_in(TOGETHER)
        try:
            yield
            if gives:
                await self.slots.take_again(visit)
        finally:
            self._parked -= gives
            visit.until = loop.time() + left

    def watch(self) -> None:
        """J6: what is late is cancelled; what does not leave then is left behind."""
        now = asyncio.get_running_loop().time()
        if now >= self._stop_at:
            self._cancel(list(self._flying))
        for visit in [visit for visit in self._flying if now >= visit.until]:
            if visit not in self._late:
                self._late.add(visit)
                self._flying[visit].cancel()
            elif now >= visit.until + GRACE:
                visit.outcome = Failed(LATE)
                self._over(visit)
        self.stuck = self._stuck(now)

    def _stuck(self, now: float) -> str:
        late = [visit.url for visit in self._flying if now >= visit.until + 2 * GRACE]
        if late:
            return f"{len(late)} visits do not end: {', '.join(late[:SHOWN])}"
        is_empty = not (self._flying or self._ended or self._returned)
        return "slots are held by nobody" if is_empty and self.slots.busy else ""

    def lost(self, visits: Sequence[Visit]) -> None:
        """H3: whoever lost a lease stops; its task is somebody else's now."""
        self._cancel(visits)

    def _cancel(self, visits: Sequence[Visit]) -> None:
        for visit in visits:
            if visit in self._flying:  # not over, and waiting to be written
                self._flying[visit].cancel()

    def _follow(self, old: Settings, new: Settings) -> None:
        """N3: as many slots as the settings say now; all else of them is asked when needed."""
        least, most, memory = _bounds(new.executor)
        self.scaler.bound(least, most, memory)
        is_moved = old.executor.slots != new.executor.slots
        count = new.executor.slots if is_moved else self.slots.count
        count = _within(count, least, most)
        if count != self.slots.count:
            self.resize(count)
        self._bell.ring()

    def resize(self, count: int) -> None:
        """J3: as the scaler says."""
        self.slots.resize(count)
        self._bell.ring()

    async def _abandon(self) -> None:
        """Whatever still flies goes back, as far as the store can be told."""
        if self._settler is not None:
            await asyncio.wait([self._settler], timeout=GRACE)
        tasks = list(self._flying.values())
        self._cancel(list(self._flying))
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)
        self._returned += [visit.lease for visit in self._flying]
        self.pause.hurry()
        self._stop_at = -inf  # what cannot be written now is given back
        with suppress(StoreError):
            try:
                await self._settle()
            finally:
                await self._give_back()


def _bounds(wanted: ExecutorSettings) -> tuple[int, int, int]:
    """Slots at least and at most, and the memory over which none is added.

    A bound that is not set is `slots`, moved to the other bound where it lies beyond that.
    """
    most = wanted.max_slots or max(wanted.slots, wanted.min_slots)
    least = min(wanted.min_slots or wanted.slots, most)
    return least, most, wanted.max_memory


def most_slots(wanted: ExecutorSettings) -> int:
    """How many visits may run at one time, whatever autoscaling does."""
    return _bounds(wanted)[1]


def _within(count: int, least: int, most: int) -> int:
    """The number of slots nearest to `count` that the bounds allow (J3)."""
    return min(max(count, least), most)
