"""A workbench (J5): a source of leases that borrows whole queues of the store and paces them here.

The frontier claims, finishes and releases through it; all other verbs go to the store directly.
Claims are answered from what was borrowed. A visit is over when the store says so, so a kill costs
what it always does: leases that expire. What is left of one poll is released at the next one, and
at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from outrider.core.pick import Streak
from outrider.core.states import CrawlStatus
from outrider.core.task import Lease, LeaseId
from outrider.core.verdict import Finished, Verdict
from outrider.errors import StoreError
from outrider.executor.poll import Reading, strategy_of
from outrider.executor.workbench_loan import Loan, laid_out
from outrider.frontier import Frontier
from outrider.settings import Settings
from outrider.store.protocol import ClaimRequest, ClaimResult

if TYPE_CHECKING:
    from types import TracebackType

SHARE: Final = 6  # what waits is renewed when a sixth of its lease has passed,
OFTEN: Final = 5.0  # and never less often than this: then the crawl's status is learned as well
PATIENCE: Final = 1.0  # seconds until a poll that brought nothing, and knows of nothing, is due


class Workbench:
    """What a frontier leases through while this is entered (`Frontier.lease_through`)."""

    is_inline = False

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._store = frontier.store
        self._crawl, self._clock = frontier.crawl, frontier.clock
        self._strategy = strategy_of(frontier.settings.executor)
        self._loan: Loan  # what lies on it
        self._owed: list[LeaseId] = []  # to be released as soon as the store can be told
        self._streak = Streak()
        self._status = CrawlStatus.RUNNING
        self._polled_at = self._look_at = 0.0
        self._is_stale = False  # other rules hold than those it was laid out under
        self._polling = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._lay_out((), self._now())
        await self._frontier.lease_through(self)
        self._keeper = asyncio.create_task(self._keep())
        self._end_following = self._frontier.watch_settings(self._follow)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_following()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        await self._frontier.lease_through(None)
        with suppress(StoreError):  # whoever is away learns it when the leases expire
            await self._give_back(self._loan)

    # ---- the three verbs that are its own

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """What was borrowed, at its pace; by name, and whole queues, from the store itself."""
        if request.fingerprints or request.lend or request.crawl != self._crawl:
            return await self._store.claim(request)
        if self._keeper is not None and self._keeper.done():
            self._keeper.result()
        async with self._polling:
            wait = await self._polled(request)
        claimed = await self._loan.claim(request, self._now())
        claimed.status = self._status
        claimed.wake_in = wait if claimed.wake_in is None else min(wait, claimed.wake_in)
        return claimed

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """Here for the pace, there for good; a host that wants rest gives back its queue."""
        loan = self._loan
        await loan.finish(verdicts)
        answers = await self._store.finish(verdicts)
        shy = loan.settled(verdicts)
        if shy:
            await self._give_back(loan, shy)
        return answers

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """There, and here it does not come again."""
        freed = await self._store.release(leases)
        await self._loan.give_up(leases)
        return freed

    # ---- polling

    async def _polled(self, request: ClaimRequest) -> float:
        """Seconds to the next look; when the strategy says so, another loan takes its place."""
        await self._forget_lost()
        now = self._now()
        if self._loan.tasks_left and now < self._look_at and not self._is_stale:
            return self._look_at - now
        wait = 0.0 if self._is_stale else self._strategy(self._reading(now))
        if wait <= 0:
            wait = await self._poll(request)
            self._is_stale = False
        self._look_at = now + wait
        return wait

    def _follow(self, _old: Settings, _new: Settings) -> None:
        """N3: what lies here was laid out under rules that may hold no more."""
        self._is_stale |= self._frontier.rules != self._rules

    def _reading(self, now: float) -> Reading:
        loan, since = self._loan, now - self._polled_at
        return Reading(since, loan.tasks, loan.queues, loan.tasks_left, loan.queues_left)

    async def _poll(self, request: ClaimRequest) -> float:
        await self._give_back(self._loan)
        wanted, asked_at = self._frontier.settings.executor, self._now()
        claimed = await self._store.claim(
            ClaimRequest(
                self._crawl,
                request.worker,
                wanted.workbench_tasks,
                request.lease_for,
                wanted.workbench_per_queue,
                self._streak,
                lend=True,
            )
        )
        self._streak, self._status, self._polled_at = claimed.streak, claimed.status, asked_at
        await self._lay_out(claimed.leases, asked_at + request.lease_for)
        wait = max(0.0, self._strategy(self._reading(asked_at)))
        if claimed.leases:
            return wait
        return max(wait, PATIENCE if claimed.wake_in is None else claimed.wake_in)

    async def _lay_out(self, leases: Sequence[Lease], until: float) -> None:
        self._rules = self._frontier.rules
        self._loan = await laid_out(leases, self._rules, self._crawl, self._clock, until)

    # ---- keeping

    async def _keep(self) -> None:
        while True:
            seconds = self._frontier.settings.lease.seconds
            await self._clock.sleep(min(OFTEN, seconds / SHARE))
            with suppress(StoreError):  # again soon; what is lost by then is not begun
                await self._look_around(self._loan, seconds)

    async def _look_around(self, loan: Loan, seconds: float) -> None:
        """I1: what a crawl that does not run has lent goes back; H2: else it is held on."""
        self._status = (await self._store.crawl(self._crawl)).status
        if self._status is not CrawlStatus.RUNNING:
            await self._give_back(loan)
        elif loan.until - self._now() <= seconds * (1 - 1 / SHARE):
            await self._renew(loan, seconds)
        await self._pay_back()

    async def _renew(self, loan: Loan, seconds: float) -> None:
        waiting, asked_at = loan.waiting(), self._now()
        kept = await self._store.extend([lease.id for lease in waiting], lease_for=seconds)
        await loan.take_away(lease for lease in waiting if lease.id not in kept)
        loan.until = asked_at + seconds

    async def _forget_lost(self) -> None:
        """D7: what was not renewed in time may be somebody else's."""
        if self._loan.tasks_left and self._now() >= self._loan.until:
            await self._loan.take_away(self._loan.waiting())

    async def _give_back(self, loan: Loan, keys: Iterable[str] | None = None) -> None:
        """What nobody has begun, of these queues or of all; from now on nobody does."""
        gone = await loan.take_away(loan.waiting(keys))
        self._owed += [lease.id for lease in gone]
        await self._pay_back()

    async def _pay_back(self) -> None:
        owed, self._owed = self._owed, []
        try:
            if owed:
                await self._store.release(owed)
        except BaseException:
            self._owed += owed
            raise

    def _now(self) -> float:
        return self._clock.now_ms() / 1000
