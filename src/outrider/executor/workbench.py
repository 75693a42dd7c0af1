"""A workbench (J5): a source of leases that borrows whole queues of the store and paces them here.

The frontier claims, finishes and releases through it; all other verbs go to the store directly.
Claims are answered from the loan, the tasks that the last poll borrowed. A visit is finished at the
store, so a kill costs what it costs without a workbench: leases that expire. What is left of a loan
is released at the next poll, and at the end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from outrider.clock import Clock
from outrider.core.pick import Streak
from outrider.core.policy.rules import Budget, CrawlRules, Limits, Override, QueueRules
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Lease, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.errors import StoreError
from outrider.executor.poll import Reading, strategy_of
from outrider.frontier import Frontier
from outrider.settings import Settings
from outrider.store.export_items import Saved, SavedCrawl, SavedEnd, SavedQueue
from outrider.store.factory import open_store
from outrider.store.protocol import ClaimRequest, ClaimResult, FullStore, TaskFilter

if TYPE_CHECKING:
    from types import TracebackType

RENEW_SHARE: Final = 6  # waiting leases are renewed when a sixth of their time has passed
MAX_CHECK_INTERVAL: Final = 5.0  # seconds between two checks of the crawl's status and the leases
EMPTY_POLL_WAIT: Final = 1.0  # seconds to the next poll if one found nothing, and no wake time
UNLIMITED_SECONDS: Final = 1e9  # leases of the loan's store end with the borrowed ones
_UNLIMITED: Final = Budget(balance=2**53)  # borrowed tasks were charged already


class BorrowedLease(NamedTuple):
    """A borrowed lease that is being visited, and the lease that represents it in the loan."""

    here: LeaseId
    lease: Lease


class Loan:
    """The tasks of one poll, in a memory store that paces their queues (C7).

    A lease of that store represents a borrowed one: a claim returns the borrowed lease, with the
    politeness state its queue has here by now. A task leaves the loan however its visit ends: its
    next state is decided by the real store.
    """

    def __init__(self, store: FullStore, leases: Sequence[Lease], until: float) -> None:
        self._store = store
        self._waiting = {lease.fingerprint: lease for lease in leases}
        self._left = Counter(lease.key for lease in leases)
        self._visited: dict[LeaseId, BorrowedLease] = {}
        self.tasks, self.queues = len(leases), len(self._left)
        self.until = until  # waiting leases are held at least so long, by the clock

    @property
    def tasks_left(self) -> int:
        """Tasks that have not begun."""
        return len(self._waiting)

    @property
    def queues_left(self) -> int:
        """Queues with a task that has not begun."""
        return len(self._left)

    def waiting(self, keys: Iterable[str] | None = None) -> list[Lease]:
        """Return leases whose tasks have not begun, of these queues or of all."""
        wanted = None if keys is None else set(keys)
        return [v for v in self._waiting.values() if wanted is None or v.key in wanted]

    async def claim(self, request: ClaimRequest, now: float) -> ClaimResult:
        """Claim the next tasks at their queues' pace; return the borrowed leases."""
        claimed = await self._store.claim(replace(request, lease_for=UNLIMITED_SECONDS))
        claimed.leases = [self._borrowed_lease(lease, now) for lease in claimed.leases]
        return claimed

    def _borrowed_lease(self, here: Lease, now: float) -> Lease:
        lease = self._take(here.fingerprint)
        self._visited[lease.id] = BorrowedLease(here.id, lease)
        return Lease(
            lease.store,
            lease.task,
            lease.token,
            lease.about,
            lease.attempt,
            here.worker,
            self.until - now,
            lease.failures,
            lease.throttles,
            lease.rules,
            here.manners,
            last=lease.last,
            delay=here.delay,
            waited=lease.waited + here.waited,  # here it was due when it was borrowed
            gap=lease.gap + here.waited if here.gap < 0 <= lease.gap else here.gap,
        )

    def _take(self, fingerprint: bytes) -> Lease:
        lease = self._waiting.pop(fingerprint)
        self._left[lease.key] -= 1
        if not self._left[lease.key]:
            del self._left[lease.key]
        return lease

    async def finish(self, verdicts: Iterable[Verdict]) -> None:
        """Apply the verdicts of visits to their queues' pace."""
        over = [(self._visited.get(_lease_id(verdict)), verdict) for verdict in verdicts]
        here = [_pacing_verdict(verdict, out.here) for out, verdict in over if out is not None]
        if here:
            await self._store.finish(here)

    def forget_finished(self, verdicts: Iterable[Verdict]) -> set[str]:
        """Forget visits that the store finished; return the queues that were snoozed or retired."""
        waiting_keys = set()
        for verdict in verdicts:
            out = self._visited.pop(_lease_id(verdict), None)
            if out is not None and (verdict.snooze or verdict.retire):
                waiting_keys.add(out.lease.key)
        return waiting_keys

    async def end_without_outcome(self, leases: Iterable[LeaseId]) -> None:
        """End visits without an outcome: their queues' delays begin now (D7)."""
        gone = [self._visited.pop(lease) for lease in leases if lease in self._visited]
        await self._store.release([out.here for out in gone])
        for out in gone:
            await self._drop(out.lease)

    async def remove(self, leases: Iterable[Lease]) -> list[Lease]:
        """Remove tasks that have not begun from the loan; return their leases."""
        gone = [lease for lease in leases if lease.fingerprint in self._waiting]
        for lease in gone:
            await self._drop(self._take(lease.fingerprint))
        return gone

    async def _drop(self, lease: Lease) -> None:
        which = TaskFilter(fingerprint=lease.fingerprint)
        await self._store.drop(lease.crawl, which, dry_run=False)


async def open_loan(
    leases: Sequence[Lease], rules: CrawlRules, crawl: str, clock: Clock, until: float
) -> Loan:
    """Put leases into a new loan, under the rules that each brought with it."""
    store = await open_store("memory://", clock)
    await store.restore(crawl, list(_export_items(leases, rules, crawl, clock.now_ms())))
    await store.add([_due_now(lease.about) for lease in leases])
    return Loan(store, leases, until)


def _export_items(
    leases: Sequence[Lease], rules: CrawlRules, crawl: str, now: int
) -> Iterator[Saved]:
    firsts: dict[str, Lease] = {}
    for lease in leases:
        firsts.setdefault(lease.key, lease)
    yield SavedCrawl(crawl, now, _loan_rules(rules, firsts.values()))
    for turn, lease in enumerate(firsts.values(), 1):
        yield _export_queue(lease, turn)
    yield SavedEnd(counter=len(firsts))


def _loan_rules(rules: CrawlRules, leases: Iterable[Lease]) -> CrawlRules:
    """Return the crawl's order and lanes, each queue's politeness and precedence, and no budget."""
    usual = QueueRules(rules.queue.politeness, _UNLIMITED)
    apart: dict[str, Override] = {
        lease.key.lower(): {
            **msgspec.structs.asdict(lease.rules.politeness),
            "precedence": lease.rules.precedence,
        }
        for lease in leases
        if replace(lease.rules, budget=_UNLIMITED, paused=False, retired=False) != usual
    }
    return CrawlRules(
        usual,
        runtime=apart,
        order=rules.order,
        breadth_discount=rules.breadth_discount,
        burst=rules.burst,
        limits=Limits(),
    )


def _export_queue(lease: Lease, turn: int) -> SavedQueue:
    politeness = msgspec.structs.asdict(lease.manners)
    if politeness["last_delay"] < 0:
        politeness["last_delay"] = None
    return SavedQueue(lease.key, turn, **politeness)


def _due_now(task: Task) -> Task:
    """Return the task without a delay: a borrowed task was due."""
    return replace(task, delay=0.0) if task.delay else task


def _is_for_store(request: ClaimRequest) -> bool:
    """Return whether a claim is by name or key, for whole or so many queues, or longer leases."""
    is_limited = request.keys or request.max_queues
    return bool(request.fingerprints or request.lend or request.outlives_process or is_limited)


def _lease_id(verdict: Verdict) -> LeaseId:
    return LeaseId(verdict.crawl, verdict.task, verdict.token)


def _pacing_verdict(verdict: Verdict, here: LeaseId) -> Verdict:
    """Return what a verdict says of the queue; the task itself is dropped from the loan."""
    return replace(
        verdict,
        task=here.task,
        token=here.token,
        state=TaskState.DROPPED,
        answer=None,
        revisit=None,
        requeue=None,
        retire=None,
        tasks=(),
    )


class Workbench:
    """What a frontier leases through while this is entered (`Frontier.lease_through`)."""

    is_inline = False

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._store = frontier.store
        self._crawl, self._clock = frontier.crawl, frontier.clock
        self._strategy = strategy_of(frontier.settings.executor)
        self._loan: Loan
        self._unreleased: list[LeaseId] = []  # to be released as soon as the store answers
        self._streak = Streak()
        self._status = CrawlStatus.RUNNING
        self._polled_at = self._read_at = 0.0
        self._is_stale = False  # the loan was made under other rules
        self._polling = asyncio.Lock()
        self._renewal: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._open_loan((), self._now())
        await self._frontier.lease_through(self)
        self._renewal = asyncio.create_task(self._renew_until_cancelled())
        self._end_watch = self._frontier.watch_settings(self._apply_settings)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_watch()
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait([self._renewal])
        await self._frontier.lease_through(None)
        with suppress(StoreError):  # a store that is unavailable lets them expire
            await self._give_back(self._loan)

    # ---- the verbs of a source of leases

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """Claim from the loan, at its queues' pace; what no loan can serve, from the store."""
        if _is_for_store(request) or request.crawl != self._crawl:
            return await self._store.claim(request)
        if self._renewal is not None and self._renewal.done():
            self._renewal.result()
        async with self._polling:
            wait = await self._poll_if_due(request)
        claimed = await self._loan.claim(request, self._now())
        claimed.status = self._status
        claimed.wake_in = wait if claimed.wake_in is None else min(wait, claimed.wake_in)
        return claimed

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """Finish in the loan for the pace, then at the store; give back queues that must wait."""
        loan = self._loan
        await loan.finish(verdicts)
        answers = await self._store.finish(verdicts)
        waiting_keys = loan.forget_finished(verdicts)
        if waiting_keys:
            await self._give_back(loan, waiting_keys)
        return answers

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """Release at the store, and remove the tasks from the loan."""
        freed = await self._store.release(leases)
        await self._loan.end_without_outcome(leases)
        return freed

    # ---- polling

    async def _poll_if_due(self, request: ClaimRequest) -> float:
        """Poll if the strategy says so; return the seconds to the next reading."""
        await self._drop_lost()
        now = self._now()
        if self._loan.tasks_left and now < self._read_at and not self._is_stale:
            return self._read_at - now
        wait = 0.0 if self._is_stale else self._strategy(self._reading(now))
        if wait <= 0:
            wait = await self._poll(request)
            self._is_stale = False
        self._read_at = now + wait
        return wait

    def _apply_settings(self, _old: Settings, _new: Settings) -> None:
        """Mark the loan as stale if it was made under other rules (N3)."""
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
        await self._open_loan(claimed.leases, asked_at + request.lease_for)
        wait = max(0.0, self._strategy(self._reading(asked_at)))
        if claimed.leases:
            return wait
        return max(wait, EMPTY_POLL_WAIT if claimed.wake_in is None else claimed.wake_in)

    async def _open_loan(self, leases: Sequence[Lease], until: float) -> None:
        self._rules = self._frontier.rules
        self._loan = await open_loan(leases, self._rules, self._crawl, self._clock, until)

    # ---- renewal

    async def _renew_until_cancelled(self) -> None:
        while True:
            seconds = self._frontier.settings.lease.seconds
            await self._clock.sleep(min(MAX_CHECK_INTERVAL, seconds / RENEW_SHARE))
            with suppress(StoreError):  # repeated soon; tasks lost by then are not begun
                await self._check_crawl(self._loan, seconds)

    async def _check_crawl(self, loan: Loan, seconds: float) -> None:
        """Give back the loan of a crawl that does not run (I1); else renew its leases (H2)."""
        self._status = (await self._store.crawl(self._crawl)).status
        if self._status is not CrawlStatus.RUNNING:
            await self._give_back(loan)
        elif loan.until - self._now() <= seconds * (1 - 1 / RENEW_SHARE):
            await self._renew(loan, seconds)
        await self._release_unreleased()

    async def _renew(self, loan: Loan, seconds: float) -> None:
        waiting, asked_at = loan.waiting(), self._now()
        kept = await self._store.extend([lease.id for lease in waiting], lease_for=seconds)
        await loan.remove(lease for lease in waiting if lease.id not in kept)
        loan.until = asked_at + seconds

    async def _drop_lost(self) -> None:
        """Remove tasks whose leases were not renewed in time: other workers may have them (D7)."""
        if self._loan.tasks_left and self._now() >= self._loan.until:
            await self._loan.remove(self._loan.waiting())

    async def _give_back(self, loan: Loan, keys: Iterable[str] | None = None) -> None:
        """Give back tasks that have not begun, of these queues or of all."""
        gone = await loan.remove(loan.waiting(keys))
        self._unreleased += [lease.id for lease in gone]
        await self._release_unreleased()

    async def _release_unreleased(self) -> None:
        owed, self._unreleased = self._unreleased, []
        try:
            if owed:
                await self._store.release(owed)
        except BaseException:
            self._unreleased += owed
            raise

    def _now(self) -> float:
        return self._clock.now_ms() / 1000
