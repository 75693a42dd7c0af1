"""The visit history of one crawl: attempts, politeness counts, spending and turns, counted again.

It is recorded from calls and answers, by the rules and not by the store, and needs all of them: a
crawl observed from its first add, by calls that do not overlap. Order among queues, lanes and waits
are compared with the store's queue views, where the caller reads them (`check_claim`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from outrider.clock import to_ms
from outrider.core.policy.politeness import DONE_TO_CALM, THROTTLES_TO_RETIRE, UNREACHABLE_TO_RETIRE
from outrider.core.policy.rules import CrawlRules, covers
from outrider.core.queue_action import QueueAction, Revive, Snooze, Wake
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import Added, Lease, LeaseId, PolitenessState, Task
from outrider.core.verdict import Verdict
from outrider.store.protocol import ClaimRequest, ClaimResult, QueueView, StoreEvent
from outrider.testing.lease_history import CrawlRecord, TaskRecord, require

_SERVABLE: Final = (QueueState.READY, QueueState.INACTIVE)
_COUNTS: Final = ("level", "calm", "throttles_in_row", "unreachable_in_row", "blocks_in_row")


SharesOrder: TypeAlias = Callable[[str, str], bool]


class PolitenessCounts(msgspec.Struct):
    """The politeness state that a queue's visits add up to (D3, D4)."""

    level: int = 0
    calm: int = 0
    throttles_in_row: int = 0
    unreachable_in_row: int = 0
    blocks_in_row: int = 0

    def visited(self, outcome: str, seen: PolitenessState) -> None:
        """Add one visit; counts continue from the state in its lease."""
        if outcome == "done":
            self._done()
        elif outcome == "throttled":
            self.level, self.throttles_in_row = seen.level + 1, seen.throttles_in_row + 1
        if outcome not in ("dropped", "again"):
            unreachable, blocked = outcome == "unreachable", outcome == "blocked"
            self.unreachable_in_row = seen.unreachable_in_row + 1 if unreachable else 0
            self.blocks_in_row = seen.blocks_in_row + 1 if blocked else 0
            self.calm = self.calm if outcome == "done" else 0

    def _done(self) -> None:
        self.throttles_in_row, self.calm = 0, self.calm + 1
        if self.calm >= DONE_TO_CALM:
            self.level, self.calm = max(0, self.level - 1), 0

    def revived(self) -> None:
        """Clear the counts in a row, as `revive` does."""
        self.throttles_in_row = self.unreachable_in_row = self.blocks_in_row = 0


class TaskVisits(msgspec.Struct):
    """The visits of one task so far."""

    open: LeaseId | None = None  # leased, and no end seen
    state: TaskState = TaskState.PENDING
    attempts: int = 0
    crashes: int = 0
    done: int = 0  # visits that ended as done
    causes: int = 1  # reasons to visit it: its discovery, and every revisit
    may_restart: bool = False  # a replay may have matched it

    def restart(self) -> None:
        """Start again at 0 attempts, as a revisit or a replay does; older leases are void (B2)."""
        self.attempts = self.crashes = 0
        self.open, self.state, self.may_restart = None, TaskState.PENDING, False


class VisitLease(msgspec.Struct):
    """A lease: when it began, and the numbers of the calls that began and finished it."""

    lease: Lease
    at: int
    call: int
    finished_by: int | None = None
    is_loan: bool = False  # C7: if lost, it may be refunded and not counted


class VisitHistory:
    """Counts the visits of one crawl under rules whose order, lanes and crash limit stay.

    `shares_order` says whether two keys are in one shard, where only these have an order (M1).
    """

    def __init__(self, rules: CrawlRules, shares_order: SharesOrder | None = None) -> None:
        self._rules = rules
        self._shares_order = shares_order
        self._last_turn = 0
        self._turns: dict[str, int] = {}
        self._turn_before_lease = 0
        self._politeness: dict[str, PolitenessCounts] = {}
        self._fingerprints: dict[str, bytes] = {}
        self.tasks: dict[bytes, TaskVisits] = {}
        self._spent: Counter[str] = Counter()
        self._refundable: Counter[str] = Counter()  # C7: the part that a lost loan may refund
        self.leases: dict[LeaseId, VisitLease] = {}
        self.snoozes: list[tuple[str, int, int]] = []  # key, number of the call, until when
        self.wakes: list[tuple[str, int]] = []  # key, number of the call

    # ---- add

    def added(self, tasks: Sequence[Task], answers: Sequence[Added]) -> None:
        """Record added tasks; a queue gets its first turn with its first task (C3)."""
        for task, answer in zip(tasks, answers, strict=True):
            if answer.added:
                self._fingerprints[task.url] = task.fingerprint
                if task.key not in self._turns:
                    self._take_turn(task.key)
                self._count_cause(task)

    def _count_cause(self, added: Task) -> None:
        task = self.tasks.get(added.fingerprint)
        if task is None:
            task = self.tasks[added.fingerprint] = TaskVisits()
        else:
            if task.open is not None and added.known == "set":
                self.released(task.open)  # B3: its lease ended without punishment
            task.causes += 1
            task.restart()
        if added.done:
            task.state = TaskState.DONE

    def _take_turn(self, key: str) -> None:
        self._last_turn += 1
        self._turns[key] = self._last_turn

    # ---- claim

    def claimed(self, request: ClaimRequest, result: ClaimResult, call: int, now: int) -> None:
        """Check what a claim returned by itself: wait, streak, politeness, attempts."""
        futile = not result.leases and request.limit and result.wake_in == 0
        require(not futile, "C6", "a claim returned no lease, and wake_in is 0")
        self._check_streak(request, result)
        for lease in result.leases:
            self._record_lease(lease, call, now, is_loan=request.lend)

    def _check_streak(self, request: ClaimRequest, result: ClaimResult) -> None:
        """Check that the streak is what the leases add up to (C4)."""
        lane, count = request.streak
        for lease in result.leases:
            continues = lease.about.lane == lane and count < self._rules.burst
            lane, count = lease.about.lane, count + 1 if continues else 1
        same = (lane, count) == tuple(result.streak)
        require(same, "C4", f"the streak is {result.streak}, and should be {lane, count}")

    def _record_lease(self, lease: Lease, call: int, now: int, *, is_loan: bool) -> None:
        self._check_politeness(lease)
        task = self.tasks.setdefault(lease.about.fingerprint, TaskVisits())
        self._check_attempt(lease, task)
        task.open, task.state = lease.id, TaskState.LEASED
        self._turn_before_lease = self._turns.get(lease.key, 0)
        self._take_turn(lease.key)
        self._spent[lease.key] += lease.about.cost
        self.leases[lease.id] = VisitLease(lease, now, call, is_loan=is_loan)
        self._refundable[lease.key] += lease.about.cost if is_loan else 0

    def _check_politeness(self, lease: Lease) -> None:
        """Check that the counts in a row and the level are what the visits add up to (D3, D4)."""
        counts = self._politeness.setdefault(lease.key, PolitenessCounts())
        for name in _COUNTS:
            found, expected = getattr(lease.manners, name), getattr(counts, name)
            detail = f"{lease.key}: {name} is {found}, and should be {expected}"
            require(found == expected, "D4", detail)

    def _check_attempt(self, lease: Lease, task: TaskVisits) -> None:
        """Check that a lost lease counts as an attempt (H4), and a final state is final (B2)."""
        if task.open is not None:
            self._record_loss(lease, self.leases[task.open], task)
        if task.may_restart and lease.attempt == 1:
            task.restart()
        is_over = task.state not in (TaskState.PENDING, TaskState.LEASED)
        require(not is_over, "B2", f"{lease.url} is {task.state}, and is leased")
        same = lease.attempt == task.attempts + 1
        require(same, "H4", f"{lease.url}: attempt {lease.attempt} after {task.attempts}")
        most = self._rules.max_crashes
        alive = not most or task.crashes < most
        require(alive, "H4", f"{lease.url} crashed {task.crashes} times, and is leased")

    def _record_loss(self, lease: Lease, lost: VisitLease, task: TaskVisits) -> None:
        """Count a crash (H4); of a loan, a lease that counted no crash was refunded (C7)."""
        is_counted = not lost.is_loan or lease.attempt > task.attempts + 1
        task.attempts += is_counted
        task.crashes += is_counted
        if not is_counted and not task.may_restart:
            self._spent[lost.lease.key] -= lost.lease.about.cost
        if not task.may_restart:
            self._end_loan(lost)

    def _end_loan(self, record: VisitLease) -> None:
        if record.is_loan:
            record.is_loan = False
            self._refundable[record.lease.key] -= record.lease.about.cost

    # ---- the end of a lease

    def finished(self, verdict: Verdict, call: int) -> None:
        """Record an applied verdict: spending (E3), politeness (D3, D4) and attempts."""
        record = self.leases[LeaseId(verdict.crawl, verdict.task, verdict.token)]
        lease, record.finished_by = record.lease, call
        self._end_loan(record)
        self._spent[lease.key] += verdict.penalty - (0 if verdict.counts else lease.about.cost)
        if verdict.touched:
            # A page from the cache may hide a throttle (D5).
            throttled = verdict.snooze_reason == "throttled"
            outcome = "throttled" if throttled else verdict.outcome
            self._politeness[lease.key].visited(outcome, lease.manners)
            _check_retirement(verdict, lease.manners)
        self._end_visit(self.tasks[lease.about.fingerprint], lease.id, verdict)

    def _end_visit(self, task: TaskVisits, lease: LeaseId, verdict: Verdict) -> None:
        if task.open == lease:
            task.open, task.state = None, verdict.state
        task.attempts += verdict.counts
        task.done += verdict.answer is not None
        if verdict.revisit is not None:
            task.causes += 1
            task.restart()

    def released(self, lease: LeaseId) -> None:
        """Record a release, which refunds (E3)."""
        record = self.leases[lease]
        self._end_loan(record)
        self._spent[record.lease.key] -= record.lease.about.cost
        task = self.tasks[record.lease.about.fingerprint]
        task.open, task.state = None, TaskState.PENDING

    # ---- operators

    def steered(self, target: str, act: QueueAction, call: int, now: int) -> None:
        """Record an operator's action: a wake ends a snooze (D1), a revival clears counts (D4)."""
        for key in self._turns:
            if not covers(target, key):
                continue
            match act:
                case Snooze(seconds):
                    self.snoozes.append((key, call, now + to_ms(seconds)))
                case Wake():
                    self.wakes.append((key, call))
                case Revive():
                    self._politeness.setdefault(key, PolitenessCounts()).revived()
                case _:
                    pass  # changes neither politeness counts nor spacing

    def forgotten(self) -> None:
        """Record that tasks were forgotten: any lease may have ended and been refunded (C10)."""
        for task in self.tasks.values():
            record = self.leases.get(task.open) if task.open is not None else None
            if record is not None and not record.is_loan:
                record.is_loan = True
                self._refundable[record.lease.key] += record.lease.about.cost

    def replayed(self) -> None:
        """Record a replay: the answer does not name its tasks, so any may have matched (G2)."""
        for task in self.tasks.values():
            task.may_restart = True

    # ---- comparisons with views

    def check_spending(self, views: Iterable[QueueView], loans: Iterable[Lease] = ()) -> None:
        """Check that a queue spent what its counted attempts cost (E3).

        `loans` were leased just now, so they cannot have been refunded.
        """
        refundable = self._refundable.copy()
        for lease in loans:
            refundable[lease.key] -= lease.about.cost
        for view in views:
            spent = self._spent[view.key]
            holds = spent - refundable[view.key] <= view.spent <= spent
            require(holds, "E3", f"{view.key} spent {spent}, and its view says {view.spent}")

    def check_claim(
        self,
        request: ClaimRequest,
        result: ClaimResult,
        views: Sequence[QueueView],
        record: CrawlRecord,
        now: int,
    ) -> None:
        """Compare the last claim with the queues as they are right after it."""
        self.check_spending(views, result.leases if request.lend else ())
        if result.status is not CrawlStatus.RUNNING:
            return
        if request.keys:  # C5: others are not looked at
            views = [view for view in views if view.key in request.keys]
        if len(result.leases) < request.limit:
            _check_wake_in(request, result, views, record, now)
        if request.limit == 1 and result.leases:
            self._check_choice(result.leases[0], views, record)
            self._check_lane(request, result.leases[0], views, record)

    def _check_choice(self, lease: Lease, views: Sequence[QueueView], record: CrawlRecord) -> None:
        """Check that no ready queue comes before the chosen one (C3)."""
        (precedence,) = (view.precedence for view in views if view.key == lease.key)
        order = (lease.about.precedence, lease.about.priority)
        chosen = self._rank(precedence, order, self._turn_before_lease)
        for view in self._ready_rivals(lease, views):
            task = self._next_task(view, record)
            if task is not None and task.lane == lease.about.lane:
                other = self._rank(view.precedence, task.order, self._turns[view.key])
                detail = f"{view.key} {other} was passed over for {lease.key} {chosen}"
                require(chosen < other, "C3", detail)

    def _check_lane(
        self, request: ClaimRequest, lease: Lease, views: Sequence[QueueView], record: CrawlRecord
    ) -> None:
        """Check that the lane whose turn it is was served, if a queue was ready there (C4)."""
        (lane, count), taken = request.streak, lease.about.lane
        lane = 1 - lane if count >= self._rules.burst else lane
        for view in self._ready_rivals(lease, views):
            task = self._next_task(view, record)
            missed = taken != lane and task is not None and task.lane == lane
            require(not missed, "C4", f"lane {lane} was passed over, {view.key} was ready")

    def _ready_rivals(self, lease: Lease, views: Iterable[QueueView]) -> Iterable[QueueView]:
        """Yield the other ready queues that have an order with the chosen one."""
        for view in views:
            is_rival = view.state is QueueState.READY and view.key != lease.key
            if is_rival and (self._shares_order is None or self._shares_order(view.key, lease.key)):
                yield view

    def _next_task(self, view: QueueView, record: CrawlRecord) -> TaskRecord | None:
        """Return the next task of a queue, or None if its order is not surely known."""
        fingerprint = self._fingerprints.get(view.next_url or "")
        task = None if fingerprint is None else record.tasks.get(fingerprint)
        return task if task is not None and task.is_sure else None

    def _rank(self, precedence: int, order: tuple[int, float], turn: int) -> tuple[float, ...]:
        if self._rules.order == "round-robin":
            return precedence, turn
        return precedence, *order, turn

    def check_end(self, views: Iterable[QueueView], events: Iterable[StoreEvent]) -> None:
        """Check spending, that no task was done without a cause, and that runs end once."""
        self.check_spending(views)
        for fingerprint, task in self.tasks.items():
            detail = f"{fingerprint.hex()} was done {task.done} times for {task.causes} causes"
            require(task.done <= task.causes, "B3", detail)
        _check_runs(events)


def _check_wake_in(
    request: ClaimRequest,
    result: ClaimResult,
    views: Sequence[QueueView],
    record: CrawlRecord,
    now: int,
) -> None:
    """Check that `wake_in` is never late, and that no queue could be served now (C6)."""
    is_cut = request.per_queue or request.max_queues  # C5
    left = [view for view in views if view.state in _SERVABLE and not is_cut]
    require(not left, "C6", f"a claim ended early, and could be served: {left[:1]}")
    wakes = [view.wakes_in for view in views if view.wakes_in is not None]
    times = [*wakes, *((lease.deadline - now) / 1000 for lease in record.held(now))]
    wake_in = float("inf") if result.wake_in is None else result.wake_in
    late = times and wake_in > min(times) + 0.0005
    require(not late, "C6", f"wake_in = {result.wake_in}, and the next events are in {times}")


def _check_runs(events: Iterable[StoreEvent]) -> None:
    """Check that each run ends once, and that only work begins another (I2)."""
    is_running = True
    for event in events:
        if event.name == "crawl-finished":
            require(is_running, "I2", f"the end of {event.detail} was reported twice")
            is_running = False
        elif event.name == "crawl-running":
            is_running = True


def _check_retirement(verdict: Verdict, seen: PolitenessState) -> None:
    """Check that a queue is retired after so many failures in a row, and no fewer (D3, D4)."""
    enough = {
        "unreachable": seen.unreachable_in_row + 1 >= UNREACHABLE_TO_RETIRE,
        "throttled": seen.throttles_in_row + 1 >= THROTTLES_TO_RETIRE,
        None: True,
    }
    require(enough[verdict.retire], "D4", f"retired as {verdict.retire} too early: {seen}")
