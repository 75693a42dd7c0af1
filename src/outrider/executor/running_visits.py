"""Running visits: each is a task that calls its handler, within a time limit and in a slot.

A visit ends once: with an outcome it goes to the finisher, without one its lease is released. A
visit that met a fault of this machine has no outcome, and the executor pauses (`FaultPause`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Final

from outrider.core.outcome import Again, Dropped, Failed, Outcome
from outrider.core.task import Lease
from outrider.errors import LocalFault, StoreError
from outrider.executor.fault_pause import FaultPause
from outrider.executor.finisher import Finisher
from outrider.executor.handlers import HandlerFault, Handlers
from outrider.executor.lease_renewal import LeaseRenewer
from outrider.executor.outage import Outage
from outrider.executor.slots import Slots
from outrider.executor.visit import Visit
from outrider.executor.wake_event import WakeEvent
from outrider.fetch.response import Response

BATCH_WAIT: Final = 0.002  # seconds an ended visit waits for others: batches are cheaper
CANCEL_GRACE: Final = 5.0  # seconds a cancelled handler may take to return
MAX_NAMED: Final = 10  # visits named in a message
MAX_PARKED_PER_SLOT: Final = 16  # visits without a slot; beyond that, parked visits keep theirs
TIME_LIMIT: Final = "time limit: handler"
MAX_HANDLER_FAULTS: Final = 10  # local faults of a handler over one page, then the page failed
MAX_FAULT_COUNTS: Final = 10_000  # pages whose faults are counted
_NOT_CACHED: Final[Mapping[bytes, Response]] = {}


class RunningVisits:
    """The visits of one executor that have not ended, parked ones included."""

    def __init__(
        self,
        handlers: Handlers,
        slots: Slots,
        renewer: LeaseRenewer,
        finisher: Finisher,
        outage: Outage,
        pause: FaultPause,
        wake: WakeEvent,
    ) -> None:
        self._handlers = handlers
        self._slots = slots
        self._renewer = renewer
        self._finisher = finisher
        self._outage = outage
        self._pause = pause
        self._wake = wake
        self._tasks: dict[Visit, asyncio.Task[None]] = {}
        self._overdue: set[Visit] = set()
        self._handler_faults: Counter[bytes] = Counter()  # local faults, by fingerprint
        self._cancel_at = inf
        self.parked_count = 0  # visits that wait without a slot
        self.stuck = ""  # what should have ended long ago; "": nothing

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(
        self,
        leases: Sequence[Lease],
        claimed_at: float,
        timeout: float,
        cached: Mapping[bytes, Response] = _NOT_CACHED,
    ) -> None:
        """Visit these leases; release those whose slots were removed during the claim (J3).

        `cached` has the responses, by fingerprint, of leases by name.
        """
        if not leases:
            return
        loop, count = asyncio.get_running_loop(), self._slots.available
        self._finisher.release(leases[count:])
        until = loop.time() + timeout
        visits = [Visit(lease, self, cached.get(lease.fingerprint)) for lease in leases[:count]]
        self._renewer.add(visits, claimed_at)
        for visit in visits:
            visit.began, visit.until = loop.time(), until
            self._slots.take(visit)
            self._tasks[visit] = loop.create_task(self._run(visit))

    async def _run(self, visit: Visit) -> None:
        try:
            visit.outcome = await self._handlers.outcome_of(visit)
        except asyncio.CancelledError:
            visit.outcome = Failed(TIME_LIMIT) if visit in self._overdue else None
        except LocalFault as fault:
            visit.outcome = self._outcome_of_fault(visit, fault)
        self._end(visit)

    def _outcome_of_fault(self, visit: Visit, fault: LocalFault) -> Outcome | None:
        """Pause claims and return None, so that the lease is released (H5).

        A handler's fault may be caused by the page alone and would never end: after
        `MAX_HANDLER_FAULTS` the page has failed.
        """
        if isinstance(fault, HandlerFault):
            if len(self._handler_faults) > MAX_FAULT_COUNTS:
                self._handler_faults.clear()
            self._handler_faults[visit.lease.fingerprint] += 1
            if self._handler_faults[visit.lease.fingerprint] >= MAX_HANDLER_FAULTS:
                del self._handler_faults[visit.lease.fingerprint]
                return Failed(fault.as_failure)
        self._pause.met(fault, self._slots.busy, asyncio.get_running_loop().time())
        return None

    def _end(self, visit: Visit) -> None:
        """Hand a visit on; only the first call for a visit counts."""
        if self._tasks.pop(visit, None) is None:
            return
        self._overdue.discard(visit)
        self._renewer.remove(visit)
        self._slots.give(visit)
        if visit.outcome is None:
            self._finisher.release([visit.lease])
        else:
            self._finisher.add(visit)
            if _sent_request(visit, visit.outcome):
                now = asyncio.get_running_loop().time()
                self._pause.visited(visit.began, self._slots.count, now)
        self._wake.set_in(BATCH_WAIT)

    async def holds(self, visit: Visit, seconds: float) -> bool:
        """Return whether a visit's lease lasts that long; without the store, wait for it (D7)."""
        if visit not in self._tasks:
            return False
        try:
            return await self._renewer.lasts(visit, seconds)
        except StoreError:
            async with self.parked(visit):
                return await self._outage.call(lambda: self._renewer.lasts(visit, seconds))

    @asynccontextmanager
    async def parked(self, visit: Visit) -> AsyncIterator[None]:
        """Free the visit's slot and stop its time limit while the block lasts."""
        loop = asyncio.get_running_loop()
        parked_at = loop.time()
        left, visit.until = visit.until - parked_at, inf
        gives = self.parked_count < MAX_PARKED_PER_SLOT * self._slots.count
        self.parked_count += gives
        if gives:
            self._slots.give(visit)
            self._wake.set_in(BATCH_WAIT)
        try:
            yield
            if gives:
                await self._slots.take_again(visit)
        finally:
            self.parked_count -= gives
            now = loop.time()
            visit.until, visit.parked_for = now + left, visit.parked_for + now - parked_at

    def watch(self) -> None:
        """Cancel visits that are overdue; end those that do not return then (J6)."""
        now = asyncio.get_running_loop().time()
        if now >= self._cancel_at:
            self.cancel(list(self._tasks))
        for visit in [visit for visit in self._tasks if now >= visit.until]:
            if visit not in self._overdue:
                self._overdue.add(visit)
                self._tasks[visit].cancel()
            elif now >= visit.until + CANCEL_GRACE:
                visit.outcome = Failed(TIME_LIMIT)
                self._end(visit)
        self.stuck = self._stuck(now)

    def _stuck(self, now: float) -> str:
        late = [visit.url for visit in self._tasks if now >= visit.until + 2 * CANCEL_GRACE]
        if late:
            return f"{len(late)} visits do not end: {', '.join(late[:MAX_NAMED])}"
        is_empty = not self._tasks and self._finisher.is_empty
        return "slots are busy without a visit" if is_empty and self._slots.busy else ""

    def cancel(self, visits: Sequence[Visit]) -> None:
        """Cancel those of these visits that still run."""
        for visit in visits:
            if visit in self._tasks:
                self._tasks[visit].cancel()

    def cancel_by(self, at: float) -> None:
        """Cancel all visits at that time of the loop's clock; the earliest call holds."""
        self._cancel_at = min(self._cancel_at, at)

    async def close(self) -> None:
        """Cancel all visits, and release the leases of those that do not return."""
        tasks = list(self._tasks.values())
        self.cancel(list(self._tasks))
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_GRACE)
        self._finisher.release([visit.lease for visit in self._tasks])


def _sent_request(visit: Visit, outcome: Outcome) -> bool:
    """Whether the visit shows that this machine can fetch pages again."""
    is_without = isinstance(outcome, Dropped | Again) and not outcome.visited
    return visit.cached is None and not is_without
