"""A witness with books of its own: manners, spending, attempts, turns and waits, counted apart.

It stands between the faults and the store, so it sees what was really applied, and when. Numbers
are reckoned from outcomes and answers; only who is ready is asked of the store, now and then.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from outrider.clock import Clock, to_ms
from outrider.core.policy.politeness import THROTTLES_TO_RETIRE, UNREACHABLE_TO_RETIRE
from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import QueueAction, Revive, Snooze, Wake
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import Added, Lease, LeaseId, PolitenessState, Task
from outrider.core.verdict import Finished, Verdict
from outrider.simulation.task_records import Lent, Row, Tale
from outrider.simulation.trace import Trace
from outrider.store.protocol import (
    ClaimRequest,
    ClaimResult,
    FullStore,
    QueueView,
    Step,
    StoreEvent,
    TaskFilter,
)
from outrider.testing.invariants import Witness
from outrider.testing.lease_history import Entry, require

# Shares of claims after which every queue is looked at: of those that chose one task, of others.
CLOSE_LOOKS: Final = 0.25
LOOKS: Final = 0.05
_SERVABLE: Final = (QueueState.READY, QueueState.INACTIVE)
_ROWS: Final = ("level", "calm", "throttles_in_row", "unreachable_in_row", "blocks_in_row")


class Umpire(Witness):
    """Complains like a witness, about more."""

    def __init__(
        self, store: FullStore, clock: Clock, dice: random.Random, rules: CrawlRules
    ) -> None:
        super().__init__(store, clock)
        self._dice = dice
        self._rules = rules  # its order, lanes and crashes hold throughout; the rest may change
        self._counter = 0
        self._turns: dict[str, int] = {}
        self._rows: dict[str, Row] = {}
        self._marks: dict[str, bytes] = {}
        self.tales: dict[bytes, Tale] = {}
        self.spent: Counter[str] = Counter()
        self._lent_out: Counter[str] = Counter()  # C7: what of it is refunded if a loan is lost
        self.lent: dict[LeaseId, Lent] = {}
        self.snoozes: list[tuple[str, int, int]] = []  # key, by which call, until when
        self.wakes: list[tuple[str, int]] = []  # key, by which call
        self.trace: Trace | None = None

    def _say(self, verb: str, *details: object) -> None:
        if self.trace is not None:
            self.trace.say(verb, *details)

    # ---- add

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """C3: a queue has a turn from its creation on."""
        answers = await super().add(tasks)
        if self.trace is not None:
            self.trace.added(answers)
        self._see_added(tasks, answers)
        return answers

    def _see_added(self, tasks: Sequence[Task], answers: Sequence[Added]) -> None:
        for task, answer in zip(tasks, answers, strict=True):
            if answer.added:
                self._marks[task.url] = task.fingerprint
                if task.key not in self._turns:
                    self._take_turn(task.key)
                self._see_known(task.fingerprint)

    def _see_known(self, fingerprint: bytes) -> None:
        tale = self.tales.get(fingerprint)
        if tale is None:
            self.tales[fingerprint] = Tale()
        else:
            tale.causes += 1
            tale.restart()

    def _take_turn(self, key: str) -> None:
        self._counter += 1
        self._turns[key] = self._counter

    # ---- claim

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """C3, C6, D3, D4, H4."""
        claimed = await super().claim(request)
        if self.trace is not None:
            self.trace.claimed(request, claimed)
        self._check_patience(request, claimed)
        self._check_streak(request, claimed)
        chose_one = request.limit == 1 and claimed.leases
        if self._dice.random() < (CLOSE_LOOKS if chose_one else LOOKS):
            await self._look(request, claimed)
        for lease in claimed.leases:
            self._see_lease(lease, is_loan=request.lend)
        return claimed

    def _check_patience(self, request: ClaimRequest, claimed: ClaimResult) -> None:
        """C6: a claim that got nothing must not be told to ask again at once."""
        futile = not claimed.leases and request.limit and claimed.wake_in == 0
        require(not futile, "C6", "a claim brought nothing, and wake_in is 0")

    def _check_streak(self, request: ClaimRequest, claimed: ClaimResult) -> None:
        """C4: the count travels with the claimer and is what its leases add up to."""
        lane, count = request.streak
        for lease in claimed.leases:
            goes_on = lease.about.lane == lane and count < self._rules.burst
            lane, count = lease.about.lane, count + 1 if goes_on else 1
        same = (lane, count) == tuple(claimed.streak)
        require(same, "C4", f"the streak is {claimed.streak}, and should be {lane, count}")

    async def _look(self, request: ClaimRequest, claimed: ClaimResult) -> None:
        page = await self.store.queues(request.crawl)
        views: Sequence[QueueView] = page.items
        self._check_spent(views, claimed.leases)
        if claimed.status is CrawlStatus.RUNNING:
            if len(claimed.leases) < request.limit:
                self._check_wake_in(request, claimed, views)
            if request.limit == 1 and claimed.leases:
                rivals = self._rivals(claimed.leases[0], views)
                self._check_choice(claimed.leases[0], rivals)
                self._check_lane(request, claimed.leases[0], rivals)

    def _rivals(self, lease: Lease, views: Sequence[QueueView]) -> Sequence[QueueView]:
        """M1: over several shards, queues and lanes are in order within each."""
        shares_order = getattr(self.store, "shares_order", None)
        if shares_order is None:
            return views
        return [view for view in views if shares_order(view.key, lease.key)]

    def _check_spent(self, views: Sequence[QueueView], leases: Sequence[Lease]) -> None:
        """E3: what is charged stays exactly when the attempt counts."""
        new = Counter[str]()
        for lease in leases:
            new[lease.key] += lease.about.cost
        for view in views:
            spent = self.spent[view.key] + new[view.key]
            is_so = spent - self._lent_out[view.key] <= view.spent <= spent
            require(is_so, "E3", f"{view.key} spent {spent}, told: {view.spent}")

    def _check_wake_in(
        self, request: ClaimRequest, claimed: ClaimResult, views: Sequence[QueueView]
    ) -> None:
        """C6: never late; and what could be served now was."""
        left = [view for view in views if view.state in _SERVABLE and not request.per_queue]
        require(not left, "C6", f"a claim ended early, and could be served: {left[:1]}")
        wakes = [view.wakes_in for view in views if view.wakes_in is not None]
        now = self.clock.now_ms()
        held = self.ledger.book(request.crawl).held(now)
        times = [*wakes, *((visit.deadline - now) / 1000 for visit in held)]
        told = float("inf") if claimed.wake_in is None else claimed.wake_in
        late = times and told > min(times) + 0.0005
        require(not late, "C6", f"wake_in = {claimed.wake_in}, and something comes in {times}")

    def _check_choice(self, lease: Lease, views: Sequence[QueueView]) -> None:
        """C3: no ready queue that comes before it was passed over."""
        precedences = {view.key: view.precedence for view in views}
        chosen = self._rank(lease.key, precedences[lease.key], lease.about)
        for view in views:
            if view.state is QueueState.READY and view.key != lease.key:
                other = self._rival(view, lease)
                fair = other is None or chosen < other
                require(fair, "C3", f"{view.key} {other} was passed over for {lease.key} {chosen}")

    def _check_lane(self, request: ClaimRequest, lease: Lease, views: Sequence[QueueView]) -> None:
        """C4: the lane whose turn it is gets it, if any queue stands ready there."""
        (lane, count), taken = request.streak, lease.about.lane
        lane = 1 - lane if count >= self._rules.burst else lane
        for view in views:
            if taken != lane and view.state is QueueState.READY and view.key != lease.key:
                entry = self._entry(lease.crawl, view.next_url)
                missed = entry is not None and entry.is_sure and entry.lane == lane
                require(not missed, "C4", f"lane {lane} was passed over, {view.key} was ready")

    def _rival(self, view: QueueView, lease: Lease) -> tuple[float, ...] | None:
        """Where a ready queue stood in the lease's lane; None if that is not sure."""
        entry = self._entry(lease.crawl, view.next_url)
        if entry is None or entry.lane != lease.about.lane or not entry.is_sure:
            return None
        precedence, priority = entry.place
        return self._place(view.key, view.precedence, precedence, priority)

    def _entry(self, crawl: str, url: str | None) -> Entry | None:
        mark = self._marks.get(url or "")
        return None if mark is None else self.ledger.book(crawl).entries.get(mark)

    def _rank(self, key: str, queue_precedence: int, task: Task) -> tuple[float, ...]:
        return self._place(key, queue_precedence, task.precedence, task.priority)

    def _place(
        self, key: str, queue_precedence: int, precedence: int, priority: float
    ) -> tuple[float, ...]:
        if self._rules.order == "round-robin":
            return queue_precedence, self._turns[key]
        return queue_precedence, precedence, priority, self._turns[key]

    # ---- what a lease says

    def _see_lease(self, lease: Lease, *, is_loan: bool) -> None:
        self._check_manners(lease)
        tale = self.tales.setdefault(lease.about.fingerprint, Tale())
        self._check_attempt(lease, tale)
        tale.open, tale.state = lease.id, TaskState.LEASED
        self._take_turn(lease.key)
        self.spent[lease.key] += lease.about.cost
        self.lent[lease.id] = Lent(lease, self.clock.now_ms(), self._calls, is_loan=is_loan)
        self._lent_out[lease.key] += lease.about.cost if is_loan else 0

    def _check_manners(self, lease: Lease) -> None:
        """D3, D4: counts in a row and the level are what the visits add up to."""
        row = self._rows.setdefault(lease.key, Row())
        for name in _ROWS:
            told, kept = getattr(lease.manners, name), getattr(row, name)
            require(told == kept, "D4", f"{lease.key}: {name} is {told}, and should be {kept}")

    def _check_attempt(self, lease: Lease, tale: Tale) -> None:
        """H4: a lease that was lost counts as an attempt; B2: what is over stays over."""
        if tale.open is not None:
            self._see_loss(lease, self.lent[tale.open], tale)
        if tale.may_restart and lease.attempt == 1:
            tale.restart()
        is_over = tale.state not in (TaskState.PENDING, TaskState.LEASED)
        require(not is_over, "B2", f"{lease.url} is {tale.state}, and is leased")
        same = lease.attempt == tale.attempts + 1
        require(same, "H4", f"{lease.url}: attempt {lease.attempt} after {tale.attempts}")
        alive = tale.crashes < self._rules.max_crashes
        require(alive, "H4", f"{lease.url} crashed {tale.crashes} times, and is leased")

    def _see_loss(self, lease: Lease, lost: Lent, tale: Tale) -> None:
        """H4; C7: of a loan, what did not count a crash was refunded."""
        is_counted = not lost.is_loan or lease.attempt > tale.attempts + 1
        tale.attempts += is_counted
        tale.crashes += is_counted
        if not is_counted and not tale.may_restart:
            self.spent[lost.lease.key] -= lost.lease.about.cost
        if not tale.may_restart:
            self._loan_over(lost)

    def _loan_over(self, lent: Lent) -> None:
        if lent.is_loan:
            lent.is_loan = False
            self._lent_out[lent.lease.key] -= lent.lease.about.cost

    # ---- the ends of a visit

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """D3, D4, E3: what a visit adds to the books."""
        answers = await super().finish(verdicts)
        for verdict, answer in zip(verdicts, answers, strict=True):
            if self.trace is not None:
                self.trace.finished(verdict, answer)
            if answer.state is not None:
                self._see_added(verdict.tasks, answer.answers)
                self._see_end(verdict)
        return answers

    def _see_end(self, verdict: Verdict) -> None:
        lent = self.lent[LeaseId(verdict.crawl, verdict.task, verdict.token)]
        lease, lent.finished_by = lent.lease, self._calls
        self._loan_over(lent)
        self.spent[lease.key] += verdict.penalty - (0 if verdict.counts else lease.about.cost)
        if verdict.touched:
            row = self._rows[lease.key]
            row.after(_felt(verdict), lease.manners)
            _check_retirement(verdict, lease.manners)
        self._see_task(self.tales[lease.about.fingerprint], lease.id, verdict)

    def _see_task(self, tale: Tale, lease: LeaseId, verdict: Verdict) -> None:
        if tale.open == lease:
            tale.open, tale.state = None, verdict.state
        tale.attempts += verdict.counts
        tale.done += verdict.answer is not None
        if verdict.revisit is not None:
            tale.causes += 1
            tale.restart()

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """E3: refunded."""
        freed = await super().release(leases)
        self._say("release", leases, freed)
        for lease in leases:
            if lease in freed:
                self._loan_over(self.lent[lease])
                self._see_release(self.lent[lease].lease)
        return freed

    def _see_release(self, lease: Lease) -> None:
        self.spent[lease.key] -= lease.about.cost
        tale = self.tales[lease.about.fingerprint]
        tale.open, tale.state = None, TaskState.PENDING

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """Only written down."""
        kept = await super().extend(leases, lease_for=lease_for)
        self._say("extend", leases, kept)
        return kept

    async def expire(self, *, limit: int) -> int:
        """Only written down."""
        count = await super().expire(limit=limit)
        self._say("expire", count)
        return count

    # ---- operators

    async def steer(
        self, crawl: str, target: str, act: QueueAction, *, after: int = 0, limit: int = 1000
    ) -> Step:
        """D1: a wake ends a snooze; D4: a revival clears counts."""
        step = await super().steer(crawl, target, act, after=after, limit=limit)
        if self.trace is not None:
            self.trace.steered(target, act, step.count)
        for key in self._turns:
            if matches(target, key):
                self._see_act(key, act)
        return step

    def _see_act(self, key: str, act: QueueAction) -> None:
        match act:
            case Snooze(seconds):
                self.snoozes.append((key, self._calls, self.clock.now_ms() + to_ms(seconds)))
            case Wake():
                self.wakes.append((key, self._calls))
            case Revive():
                self._rows.setdefault(key, Row()).revived()
            case _:
                pass  # says nothing about when and how its host is visited

    async def set_status(
        self, crawl: str, status: CrawlStatus, reason: str = "operator"
    ) -> CrawlStatus:
        """Only written down."""
        answer = await super().set_status(crawl, status, reason)
        self._say("turn", status, answer)
        return answer

    async def replay(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """G2: who came back is not told, so any of the dead may have."""
        step = await super().replay(crawl, which, dry_run=dry_run, after=after, limit=limit)
        self._say("replay", which, step.count)
        if step.count and not dry_run:
            for tale in self.tales.values():
                tale.may_restart = True
        return step

    async def drop(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """Only written down."""
        step = await super().drop(crawl, which, dry_run=dry_run, after=after, limit=limit)
        self._say("drop", which, step.count)
        return step

    # ---- at the end

    async def check(self, crawl: str) -> None:
        """All that a witness checks; E3 to the last coin; and nothing was done without a cause."""
        await super().check(crawl)
        page = await self.store.queues(crawl)
        self._check_spent(page.items, ())
        self._check_causes(self.tales.items())
        self._check_runs(await self.store.events_since(crawl, limit=10_000))

    def _check_runs(self, changes: Sequence[StoreEvent]) -> None:
        """I2: each run ends once; only work begins another."""
        is_running = True
        for change in changes:
            if change.name == "crawl-finished":
                require(is_running, "I2", f"the end of {change.detail} was told twice")
                is_running = False
            elif change.name == "crawl-running":
                is_running = True

    def _check_causes(self, tales: Iterable[tuple[bytes, Tale]]) -> None:
        for mark, tale in tales:
            fine = tale.done <= tale.causes
            require(fine, "B3", f"{mark.hex()} was done {tale.done} times for {tale.causes} causes")


def _felt(verdict: Verdict) -> str:
    """What the host did to us: a page from the cache may hide a throttle (D5)."""
    return "throttled" if verdict.snooze_reason == "throttled" else verdict.outcome


def _check_retirement(verdict: Verdict, seen: PolitenessState) -> None:
    """D3, D4: so many in a row, and no fewer."""
    enough = {
        "unreachable": seen.unreachable_in_row + 1 >= UNREACHABLE_TO_RETIRE,
        "throttled": seen.throttles_in_row + 1 >= THROTTLES_TO_RETIRE,
        None: True,
    }
    require(enough[verdict.retire], "D4", f"retired as {verdict.retire} too early: {seen}")


def matches(target: str, key: str) -> bool:
    """A4: a key, a suffix, or everything."""
    if not target.startswith("."):
        return target in ("", key)
    return key.endswith(target) or key == target[1:]
