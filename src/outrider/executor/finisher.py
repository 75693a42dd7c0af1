"""The finisher: writes visits that ended to the sink, finishes them at the store, settles them.

One batch is written and finished at a time, so a sink knows which records are unsettled. Without
disk space for the output a batch may be kept, with its leases, until it can be written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import Final, NamedTuple, Protocol, TypeAlias

from outrider.core.decide import new_meta_error
from outrider.core.outcome import Done, Failed, Outcome
from outrider.core.task import Lease, Link
from outrider.errors import LocalFault, OutputError, OutriderError, StoreError
from outrider.executor.fault_pause import OUTPUT, FaultPause
from outrider.executor.lease_renewal import LeaseRenewer
from outrider.executor.outage import Outage
from outrider.executor.slots import Slots
from outrider.executor.visit import Visit
from outrider.executor.wake_event import WakeEvent
from outrider.executor.worker_counts import WorkerCounts
from outrider.frontier import Frontier

MAX_SETTLE_WAIT: Final = 1.0  # seconds between two attempts to settle output without disk space

Observer: TypeAlias = Callable[[Sequence[Visit]], None]


class Sink(Protocol):
    """Where pages are written; see outrider.output."""

    def write(self, visits: Sequence[Visit]) -> None:
        """Write visits before they are finished."""
        ...

    def settle(self, answers: Sequence[bool] | None) -> None:
        """Confirm the last batch: True where a visit counts; None if that is unknown."""
        ...

    def close(self) -> None:
        """Write no more."""
        ...


class Outputs(NamedTuple):
    """Where visits that ended are reported."""

    sink: Sink | None = None
    observers: Sequence[Observer] = ()


class Finisher:
    """The visits of one executor that ended, and the leases it gives back."""

    def __init__(
        self,
        frontier: Frontier,
        renewer: LeaseRenewer,
        outage: Outage,
        pause: FaultPause,
        slots: Slots,
        outputs: Outputs,
        counts: WorkerCounts,
    ) -> None:
        self._frontier = frontier
        self._renewer = renewer
        self._outage = outage
        self._pause = pause
        self._slots = slots
        self._sink, self._observers = outputs
        self._counts = counts
        self._ended: list[Visit] = []
        self._to_release: list[Lease] = []
        self._batch_size = 0  # of the batch that is being finished
        self._task: asyncio.Task[None] | None = None
        self._deadline = inf  # from then on nothing is waited for
        self.done = 0  # of the whole crawl, as far as this worker knows
        self.visits = 0  # finished by this worker

    def add(self, visit: Visit) -> None:
        """Finish this visit, which ended now, with the next batch."""
        visit.outcome = self._within_limits(visit.outcome)
        self._counts.ended(visit, asyncio.get_running_loop().time())
        self._ended.append(visit)

    def release(self, leases: Iterable[Lease]) -> None:
        """Release these leases with the next batch."""
        self._to_release += leases

    def end_by(self, at: float) -> None:
        """Wait for nothing from that time of the loop's clock on; the earliest call holds."""
        self._deadline = min(self._deadline, at)

    @property
    def unfinished(self) -> int:
        """How many visits ended and are not finished."""
        return len(self._ended) + self._batch_size

    @property
    def is_empty(self) -> bool:
        """Whether no visit or lease waits for the next batch."""
        return not (self._ended or self._to_release)

    @property
    def is_idle(self) -> bool:
        """Whether no visit waits and no batch is under way."""
        return not (self._ended or self._task)

    @property
    def is_due(self) -> bool:
        """Whether a batch can be started now."""
        return self._task is None and self._may_write()

    async def finish_beside(self, wake: WakeEvent) -> None:
        """Finish a batch in a task of its own, one at a time; raise what the last one raised."""
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            task.result()
        if self._task is None and (self._may_write() or self._to_release):
            self._task = asyncio.create_task(self.finish())
            self._task.add_done_callback(lambda _: wake.set())

    async def finish(self) -> None:
        """Release leases, then write, finish and settle the visits that ended."""
        await self._release()
        if not self._may_write():
            return
        ended, self._ended = self._ended, []
        if not self._write(ended):
            return
        self._batch_size = len(ended)
        try:
            answers = await self._finish(ended)
        finally:
            self._batch_size = 0
        if self._sink is not None:
            await self._settle(self._sink, answers)
        for observer in self._observers:
            observer(ended)

    async def wait_for_batch(self, seconds: float) -> None:
        """Wait for the batch that is being finished beside the loop, if there is one."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=seconds)

    async def close(self) -> None:
        """Finish and release what is possible without waiting; the rest expires at the store."""
        self.end_by(-inf)
        with suppress(StoreError):
            try:
                await self.finish()
            finally:
                await self._release()

    async def _release(self) -> None:
        if self._to_release:
            leases, self._to_release = self._to_release, []
            await self._outage.call(lambda: self._frontier.release(leases))

    def _may_write(self) -> bool:
        """Whether visits have ended, and no pause for the sink's sake is on."""
        now = asyncio.get_running_loop().time()
        return bool(self._ended) and (now >= self._deadline or not self._pause.wait(now))

    def _write(self, ended: list[Visit]) -> bool:
        """Write a batch; without disk space, keep it with its leases and return False."""
        if self._sink is None:
            return True
        now = asyncio.get_running_loop().time()
        try:
            self._sink.write(ended)
        except OutriderError as error:  # nothing of the batch was written
            if self._is_waited_for(error) and now < self._deadline:
                self._keep_unwritten(ended, error, now)
                return False
            self._to_release += [visit.lease for visit in ended]  # to be visited again
            raise
        self._pause.written(now)
        for visit in ended:
            self._renewer.remove(visit)
        return True

    def _keep_unwritten(self, ended: list[Visit], error: OutriderError, now: float) -> None:
        self._ended = ended + self._ended
        self._renewer.add_unwritten(ended)
        self._pause.met(LocalFault(str(error), OUTPUT), self._slots.busy, now)

    async def _finish(self, ended: Sequence[Visit]) -> list[bool]:
        """Finish a batch at the store, repeated until its answer is known (H3)."""
        try:
            answers = await self._outage.call(lambda: self._frontier.finish_many(self._ends(ended)))
        except StoreError:
            if self._sink is not None:
                self._sink.settle(None)
            raise
        self.done += sum(isinstance(visit.outcome, Done) for visit in ended)
        self.visits += len(ended)
        self._counts.finished(ended)
        return answers

    def _ends(self, ended: Sequence[Visit]) -> list[tuple[Lease, Outcome, list[Link]]]:
        """Return the visits as the frontier takes them, by the limits it has now."""
        checked = ((one, self._within_limits(one.outcome)) for one in ended)
        return [(one.lease, outcome, one.links) for one, outcome in checked if outcome is not None]

    def _within_limits(self, outcome: Outcome | None) -> Outcome | None:
        """Let a visit fail whose outcome the frontier would refuse, since that ends the run."""
        fault = new_meta_error(outcome, self._frontier.settings.queue.max_meta)
        return outcome if fault is None else Failed(f"handler: {fault}"[:500])

    async def _settle(self, sink: Sink, answers: list[bool]) -> None:
        """Settle the batch at the sink; removing records that do not count needs space as well."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return sink.settle(answers)
            except OutputError as error:
                if not self._is_waited_for(error) or loop.time() >= self._deadline:
                    raise
                self._pause.met(LocalFault(str(error), OUTPUT), self._slots.busy, loop.time())
            await asyncio.sleep(min(self._pause.wait(loop.time()), MAX_SETTLE_WAIT))

    def _is_waited_for(self, error: OutriderError) -> bool:
        is_short = isinstance(error, OutputError) and error.retryable
        return is_short and self._pause.waits_for_space
