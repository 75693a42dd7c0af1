"""What one poll borrowed, laid out in a memory store that keeps its queues' pace (C7, J5).

A lease of this store stands for a borrowed one: whoever is given it gets the borrowed one, with the
manners its queue has here by now. A task leaves for good, however its visit ends: what comes next
for it, the real store says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from outrider.clock import Clock
from outrider.core.policy.rules import Budget, CrawlRules, Limits, Override, QueueRules
from outrider.core.states import TaskState
from outrider.core.task import Lease, LeaseId, Task
from outrider.core.verdict import Verdict
from outrider.store.opening import open_store
from outrider.store.protocol import ClaimRequest, ClaimResult, FullStore, TaskFilter
from outrider.store.saved import Saved, SavedCrawl, SavedEnd, SavedQueue

FOREVER: Final = 1e9  # seconds: leases of this store end with those they stand for
_UNLIMITED: Final = Budget(balance=2**53)  # what is borrowed was charged already


class Out(NamedTuple):
    """A lease that somebody visits: what stands for it here, and itself."""

    here: LeaseId
    lease: Lease


class Loan:
    """The tasks of one poll: those that wait, and those that are being visited."""

    def __init__(self, store: FullStore, leases: Sequence[Lease], until: float) -> None:
        self._store = store
        self._waiting = {lease.fingerprint: lease for lease in leases}
        self._left = Counter(lease.key for lease in leases)
        self._out: dict[LeaseId, Out] = {}
        self.tasks, self.queues = len(leases), len(self._left)
        self.until = until  # what waits is surely held so long, in seconds of the clock

    @property
    def tasks_left(self) -> int:
        """Tasks that nobody has begun."""
        return len(self._waiting)

    @property
    def queues_left(self) -> int:
        """Queues with such a task."""
        return len(self._left)

    def waiting(self, keys: Iterable[str] | None = None) -> list[Lease]:
        """What nobody has begun, of these queues or of all."""
        wanted = None if keys is None else set(keys)
        return [v for v in self._waiting.values() if wanted is None or v.key in wanted]

    async def claim(self, request: ClaimRequest, now: float) -> ClaimResult:
        """The next tasks at their queues' pace, as the leases that were borrowed."""
        claimed = await self._store.claim(replace(request, lease_for=FOREVER))
        claimed.leases = [self._handed_out(lease, now) for lease in claimed.leases]
        return claimed

    def _handed_out(self, here: Lease, now: float) -> Lease:
        lease = self._taken(here.fingerprint)
        self._out[lease.id] = Out(here.id, lease)
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
        )

    def _taken(self, fingerprint: bytes) -> Lease:
        lease = self._waiting.pop(fingerprint)
        self._left[lease.key] -= 1
        if not self._left[lease.key]:
            del self._left[lease.key]
        return lease

    async def finish(self, verdicts: Iterable[Verdict]) -> None:
        """Visits are over: their queues wait as the verdicts say."""
        over = [(self._out.get(_id(verdict)), verdict) for verdict in verdicts]
        here = [_for_the_pace(verdict, out.here) for out, verdict in over if out is not None]
        if here:
            await self._store.finish(here)

    def settled(self, verdicts: Iterable[Verdict]) -> set[str]:
        """The real store has answered; the queues whose hosts want to be left alone."""
        shy = set()
        for verdict in verdicts:
            out = self._out.pop(_id(verdict), None)
            if out is not None and (verdict.snooze or verdict.retire):
                shy.add(out.lease.key)
        return shy

    async def give_up(self, leases: Iterable[LeaseId]) -> None:
        """Visits that nobody told the end of: it is now (D7)."""
        gone = [self._out.pop(lease) for lease in leases if lease in self._out]
        await self._store.release([out.here for out in gone])
        for out in gone:
            await self._drop(out.lease)

    async def take_away(self, leases: Iterable[Lease]) -> list[Lease]:
        """To be given back, or lost: nobody begins them any more. Those that nobody had."""
        gone = [lease for lease in leases if lease.fingerprint in self._waiting]
        for lease in gone:
            await self._drop(self._taken(lease.fingerprint))
        return gone

    async def _drop(self, lease: Lease) -> None:
        which = TaskFilter(fingerprint=lease.fingerprint)
        await self._store.drop(lease.crawl, which, dry_run=False)


async def laid_out(
    leases: Sequence[Lease], rules: CrawlRules, crawl: str, clock: Clock, until: float
) -> Loan:
    """A loan of these leases, under the rules that each brought with it."""
    store = await open_store("memory://", clock)
    await store.restore(crawl, list(_saved(leases, rules, crawl, clock.now_ms())))
    await store.add([_due(lease.about) for lease in leases])
    return Loan(store, leases, until)


def _saved(leases: Sequence[Lease], rules: CrawlRules, crawl: str, now: int) -> Iterator[Saved]:
    firsts: dict[str, Lease] = {}
    for lease in leases:
        firsts.setdefault(lease.key, lease)
    yield SavedCrawl(crawl, now, _own_rules(rules, firsts.values()))
    for turn, lease in enumerate(firsts.values(), 1):
        yield _queue(lease, turn)
    yield SavedEnd(counter=len(firsts))


def _own_rules(rules: CrawlRules, leases: Iterable[Lease]) -> CrawlRules:
    """Order and lanes of the crawl, manners and precedence of each queue, and no budget."""
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


def _queue(lease: Lease, turn: int) -> SavedQueue:
    manners = msgspec.structs.asdict(lease.manners)
    if manners["last_delay"] < 0:
        manners["last_delay"] = None
    return SavedQueue(lease.key, turn, **manners)


def _due(task: Task) -> Task:
    """What was lent was due."""
    return replace(task, delay=0.0) if task.delay else task


def _id(verdict: Verdict) -> LeaseId:
    return LeaseId(verdict.crawl, verdict.task, verdict.token)


def _for_the_pace(verdict: Verdict, here: LeaseId) -> Verdict:
    """What it says of the queue; of the task, that it is no longer here."""
    return replace(
        verdict,
        task=here.task,
        token=here.token,
        state=TaskState.DROPPED,
        answer=None,
        revisit=None,
        retire=None,
        tasks=(),
    )
