"""What holds of a store at all times: `check` reads it off its views, a `Witness` off its calls.

Both go through the seam alone, so they serve any store. Wrap the store itself; put faults outside
of the witness, so that it sees what really happened.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from itertools import groupby
from typing import Any

from outrider.clock import Clock
from outrider.core.policy.rules import CrawlRules, covers
from outrider.core.queue_action import QueueAction, Set, Snooze, Wake
from outrider.core.states import CrawlStatus
from outrider.core.task import Added, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.store.protocol import (
    ClaimRequest,
    ClaimResult,
    CrawlView,
    FullStore,
    Heartbeat,
    Heat,
    PriorityUpdate,
    QueuePosition,
    QueueView,
    ResultPage,
    SharedValue,
    SharedValueWrite,
    Step,
    StoreEvent,
    TaskFilter,
    TaskView,
    Upcoming,
    WorkerView,
)
from outrider.store.saved import Saved
from outrider.testing.audit import check
from outrider.testing.lease_history import (
    SURELY_TAKEN_BACK,
    InvariantBroken,
    Ledger,
    require,
)

__all__ = ["InvariantBroken", "Witness", "check"]


class Witness:
    """A store that watches itself: hands every call on, and complains at a broken promise."""

    def __init__(self, store: FullStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.ledger = Ledger()
        self._calls = self._open = self._loans = 0

    @property
    def id(self) -> str:
        """The store's own."""
        return self.store.id

    @property
    def is_inline(self) -> bool:
        """The store's own."""
        return self.store.is_inline

    @property
    def _is_spread(self) -> bool:
        """M1: over several shards, some promises hold within each."""
        return hasattr(self.store, "shares_order")

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """Hand on."""
        return self.store.subscribe(crawl, notify)

    async def close(self) -> None:
        """Close the store."""
        await self.store.close()

    async def check(self, crawl: str) -> None:
        """Counters and views, and that nothing added was lost and no verdict applied twice."""
        await check(self.store, crawl)
        book, view = self.ledger.book(crawl), await self.store.crawl(crawl)
        if not book.is_whole:
            return
        known = len(book.entries)
        require(known == view.known, "B3", f"{known} were added to {crawl}, known: {view.known}")
        for fingerprint, entry in book.entries.items():
            kept = await self.store.task(crawl, fingerprint)
            require(kept is not None, "B3", f"{entry.url} was added and is lost")
        crashed = view.outcomes.get("crashed", 0)
        applied = view.visits - crashed
        require(applied == book.applied, "H3", f"{book.applied} applied, counted: {applied}")
        few = crashed <= book.crashes
        require(few, "C7", f"{crashed} crashes were counted, and {book.crashes} can have been")

    async def _call(self, verb: Coroutine[Any, Any, Any]) -> tuple[Any, bool]:
        """The answer, and whether no other call overlapped this one."""
        self._calls += 1
        self._open += 1
        began, was_alone = self._calls, self._open == 1
        try:
            answer = await verb
        finally:
            self._open -= 1
        return answer, was_alone and self._calls == began

    # ---- Store

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """Nothing known is added twice."""
        now = self.clock.now_ms()
        answers, alone = await self._call(self.store.add(tasks))
        require(len(answers) == len(tasks), "B4", f"{len(tasks)} asked, {len(answers)} answered")
        pairs = zip(tasks, answers, strict=True)
        for crawl, group in groupby(pairs, key=lambda pair: pair[0].crawl):
            self._note_order(crawl, alone=alone)
            self.ledger.added(crawl, group, now)
        return list(answers)

    def _note_order(self, crawl: str, *, alone: bool) -> None:
        if not alone:
            self.ledger.book(crawl).ties = "unknown"

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """At most one lease a task, spacing, concurrency, budget, order; runs end when done."""
        began = self.clock.now_ms()
        answer, alone = await self._call(self.store.claim(request))
        claimed: ClaimResult = answer
        book, now = self.ledger.book(request.crawl), self.clock.now_ms()
        is_partial = self._is_spread and len(claimed.leases) >= request.limit
        certain = len(book.overdue(began)) <= SURELY_TAKEN_BACK and not is_partial  # M1: by shard
        self.ledger.taken_back(request.crawl, began, certain=certain)
        require(len(claimed.leases) <= request.limit, "C6", f"{len(claimed.leases)} leases")
        self._loans += 1
        loan = self._loans if request.lend and not request.fingerprints else 0
        for lease in claimed.leases:
            fair = not request.fingerprints or lease.fingerprint in request.fingerprints
            require(fair, "D5", f"{lease.url} was lent by name, and was not named")
            self.ledger.lent(lease, now, alone=alone, named=bool(request.fingerprints), loan=loan)
        await self._see_the_end(claimed, request.crawl, now, alone=alone)
        return claimed

    async def _see_the_end(
        self, claimed: ClaimResult, crawl: str, now: int, *, alone: bool
    ) -> None:
        """I2: a run is closed when nothing unretired is left."""
        book = self.ledger.book(crawl)
        if claimed.status is not CrawlStatus.FINISHED:
            book.is_finished = False
        elif alone and not book.is_finished:
            self.ledger.closes_run(crawl, now)
            view = await self.store.crawl(crawl)
            left = view.pending - view.held + view.leased
            require(left == 0, "I2", f"{crawl} finished with {left} unretired tasks left")

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """Only what is held can be renewed."""
        now = self.clock.now_ms()
        kept, _ = await self._call(self.store.extend(leases, lease_for=lease_for))
        require(kept <= set(leases), "H2", "a lease was renewed that nobody asked for")
        for lease in kept:
            self.ledger.extended(lease, lease_for, now)
        return set(kept)

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """An applied verdict is applied once."""
        now = self.clock.now_ms()
        self.ledger.closing(LeaseId(v.crawl, v.task, v.token) for v in verdicts)
        answers, alone = await self._call(self.store.finish(verdicts))
        for verdict, answer in zip(verdicts, answers, strict=True):
            if answer.state is not None:  # H6: links first
                in_order = len(verdicts) == 1 or not self._is_spread  # else page by page
                self._note_order(verdict.crawl, alone=alone and in_order)
                pairs = zip(verdict.tasks, answer.answers, strict=True)
                self.ledger.added(verdict.crawl, pairs, now)
            self.ledger.finished(verdict, answer, now, alone=alone)
        return list(answers)

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """Only what is held can be given back."""
        now = self.clock.now_ms()
        self.ledger.closing(leases)
        freed, _ = await self._call(self.store.release(leases))
        require(freed <= set(leases), "H5", "a lease was released that nobody asked for")
        for lease in freed:
            self.ledger.released(lease, now)
        for lease in set(leases) - freed:
            self.ledger.kept(lease)
        return set(freed)

    async def expire(self, *, limit: int) -> int:
        """Only overdue leases are taken back."""
        now = self.clock.now_ms()
        count, alone = await self._call(self.store.expire(limit=limit))
        overdue = sum(len(book.overdue(now)) for book in self.ledger.books.values())
        whole = alone and all(book.is_whole for book in self.ledger.books.values())
        fair = count <= min(limit, overdue) or not whole
        require(fair, "H4", f"{count} leases expired, and {overdue} were overdue")
        if count:
            for crawl in self.ledger.books:
                self.ledger.taken_back(crawl, now, certain=count == overdue)
        return int(count)

    # ---- Admin

    async def configure(self, crawl: str, rules: CrawlRules, settings: str = "") -> bool:
        """Hand on; from now on ties may mix."""
        changed, _ = await self._call(self.store.configure(crawl, rules, settings))
        book = self.ledger.book(crawl)
        if book.arrivals and rules.tie != book.ties:
            book.ties = "unknown"
        elif book.ties != "unknown":
            book.ties = rules.tie
        return bool(changed)

    async def steer(
        self, crawl: str, target: str, act: QueueAction, *, after: int = 0, limit: int = 1000
    ) -> Step:
        """What a person does to queues changes what may be expected of them."""
        now = self.clock.now_ms()
        answer, _ = await self._call(self.store.steer(crawl, target, act, after=after, limit=limit))
        step: Step = answer
        for key, line in self.ledger.book(crawl).lines.items():
            if covers(target, key):
                if isinstance(act, Set):
                    line.rules = None
                if isinstance(act, Snooze) and (after, step.after) == (0, None):
                    line.postpone(now + int(act.seconds * 1000))
                if isinstance(act, Wake):
                    line.wake()
        return step

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        """Hand on."""
        await self.store.add_roots(crawl, mode, roots)

    async def set_status(
        self, crawl: str, status: CrawlStatus, reason: str = "operator"
    ) -> CrawlStatus:
        """Hand on; a cancelled crawl's leases are void."""
        answer, _ = await self._call(self.store.set_status(crawl, status, reason))
        if answer is CrawlStatus.CANCELLED:
            self.ledger.cancelled(crawl)
        return CrawlStatus(answer)

    async def drop(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """Hand on; who was dropped is not told."""
        verb = self.store.drop(crawl, which, dry_run=dry_run, after=after, limit=limit)
        return await self._filter(crawl, which, verb, dry_run=dry_run)

    async def replay(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """Hand on; who came back is not told."""
        verb = self.store.replay(crawl, which, dry_run=dry_run, after=after, limit=limit)
        return await self._filter(crawl, which, verb, dry_run=dry_run)

    async def purge(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """Hand on."""
        verb = self.store.purge(crawl, which, dry_run=dry_run, after=after, limit=limit)
        return await self._filter(crawl, which, verb, dry_run=dry_run)

    async def _filter(
        self, crawl: str, which: TaskFilter, verb: Coroutine[Any, Any, Step], *, dry_run: bool
    ) -> Step:
        answer, _ = await self._call(verb)
        step: Step = answer
        if step.count and not dry_run:
            self._doubt(crawl, which)
        return step

    def _doubt(self, crawl: str, which: TaskFilter) -> None:
        """Those that may have matched are no longer surely pending."""
        for entry in self.ledger.book(crawl).entries.values():
            if which.key is None or covers(which.key, entry.key):
                entry.is_sure = False

    async def put_values(self, crawl: str, values: Sequence[SharedValueWrite]) -> list[int]:
        """Hand on."""
        return await self.store.put_values(crawl, values)

    async def update_priorities(self, crawl: str, updates: Sequence[PriorityUpdate]) -> int:
        """Hand on; who was pending is not told."""
        count, _ = await self._call(self.store.update_priorities(crawl, updates))
        if count:
            self._doubt(crawl, TaskFilter())
        return int(count)

    async def heartbeat(self, crawl: str, heartbeat: Heartbeat) -> None:
        """Hand on."""
        await self.store.heartbeat(crawl, heartbeat)

    async def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        """Hand on; what comes back has a history we did not see."""
        count, _ = await self._call(self.store.restore(crawl, saved))
        book = self.ledger.book(crawl)
        book.is_whole, book.ties = book.is_whole and not count, "unknown"
        return int(count)

    # ---- Inspect

    async def crawls(self) -> list[str]:
        """Hand on."""
        return await self.store.crawls()

    async def crawl(self, crawl: str) -> CrawlView:
        """Hand on."""
        return await self.store.crawl(crawl)

    async def queue_states(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Any]:
        """Hand on."""
        return await self.store.queue_states(crawl, after=after, limit=limit)

    async def queue(self, crawl: str, key: str) -> QueueView:
        """Hand on."""
        return await self.store.queue(crawl, key)

    async def queues(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueView]:
        """Hand on."""
        return await self.store.queues(crawl, after=after, limit=limit)

    async def tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[TaskView]:
        """Hand on."""
        return await self.store.tasks(crawl, which, after=after, limit=limit)

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        """Hand on."""
        return await self.store.task(crawl, fingerprint)

    async def pending_tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Any]:
        """Hand on."""
        return await self.store.pending_tasks(crawl, which, after=after, limit=limit)

    async def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        """Hand on."""
        return await self.store.upcoming(crawl, key, limit=limit)

    async def position(self, crawl: str, number: int) -> QueuePosition:
        """Hand on."""
        return await self.store.position(crawl, number)

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        """Hand on."""
        return await self.store.roots(crawl, mode, after=after)

    async def heatmap(self, crawl: str) -> Heat:
        """Hand on."""
        return await self.store.heatmap(crawl)

    async def settings(self, crawl: str) -> str:
        """Hand on."""
        return await self.store.settings(crawl)

    async def values_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[SharedValue]:
        """Hand on."""
        return await self.store.values_since(crawl, after=after, limit=limit)

    async def workers(self, crawl: str) -> list[WorkerView]:
        """Hand on."""
        return await self.store.workers(crawl)

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[Saved]:
        """Hand on."""
        return await self.store.export(crawl, after=after, limit=limit)

    async def events_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[StoreEvent]:
        """Hand on."""
        return await self.store.events_since(crawl, after=after, limit=limit)
