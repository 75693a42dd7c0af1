"""The lease history of a store, recorded from calls and answers, and the invariants of leases.

`LeaseHistory` records what was asked and answered, and raises `InvariantBroken` at the first answer
that cannot be true. Where the truth is unknown (overlapping calls, lost answers, changed rules) it
accepts the answer: it may miss a fault, and never reports a false one. So an instant that a store
chose during a call is taken as the earliest or as the latest possible, whichever accepts more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil
from typing import Final, NamedTuple, TypeAlias

from outrider.core.policy.politeness import (
    delay_at_start,
    draws_at_start,
    min_delay_between,
    pace,
)
from outrider.core.policy.rules import QueueRules
from outrider.core.states import FORGOTTEN
from outrider.core.task import Added, Lease, LeaseId, Task
from outrider.core.verdict import Finished, Verdict

MAX_SURELY_EXPIRED: Final = 100  # overdue leases that every claim expires


class InvariantBroken(AssertionError):
    """An invariant of ARCHITECTURE.md does not hold: its rule, and the facts."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail


def require(holds: object, rule: str, detail: str) -> None:
    """Raise `InvariantBroken` unless it holds."""
    if not holds:
        raise InvariantBroken(rule, detail)


def whole_ms(seconds: float) -> int:
    """Convert seconds to whole milliseconds, rounded up (H7)."""
    return ceil(seconds * 1000 - 1e-6)


class Instants(NamedTuple):
    """When a call was made and when it was answered, in milliseconds: it was applied between."""

    began: int
    ended: int


@dataclass(slots=True, eq=False)
class LeaseRecord:
    """One lease, from claim to end."""

    id: LeaseId
    key: str
    cost: int
    started: int
    deadline: int
    named: bool = False  # D5: claimed by fingerprint: it takes no slot and does not touch its host
    loan: int = 0  # C7: the claim that lent its queue; 0: none
    fate: str = "held"  # held, closing, applied, released, lost, unsure
    outlives: bool = False  # H4: it lasts until its deadline, whichever process ends

    def began(self, now: int) -> int:
        """Return the latest start of its visit: a named or lent task may be visited late."""
        return now if self.named or self.loan else self.started

    def is_valid(self, now: int) -> bool:
        """Whether no other lease of its task may exist."""
        return self.fate == "held" and self.deadline > now


@dataclass(slots=True, eq=False)
class TaskRecord:
    """One task; `version` invalidates older entries of it in the heaps of its queue."""

    url: str
    key: str
    lane: int
    order: tuple[int, float]  # precedence and priority
    arrival: int
    due: int
    is_pending: bool = True
    is_sure: bool = True  # whether its state and its order are known
    version: int = 0
    lease: LeaseRecord | None = None

    def is_current(self, version: int) -> bool:
        """Whether a heap entry of this version still describes the task."""
        return self.version == version and self.is_pending and self.is_sure


# Order key or due time, then arrival, id, version and the record.
DueEntry: TypeAlias = tuple[tuple[int, float], int, int, int, TaskRecord]
DelayedEntry: TypeAlias = tuple[int, int, int, int, TaskRecord]


@dataclass(slots=True, eq=False)
class QueueRecord:
    """One queue; instants in milliseconds."""

    rules: QueueRules | None = None  # of the last lease; None: changed since, or no lease yet
    not_before: int = 0
    last_start: int = 0
    last_lease: int | None = None  # D5: without leases by fingerprint
    last_end: int | None = None
    last_delay: float = -1.0
    crawl_delay: float = 0.0
    charged: int = 0  # costs less refunds
    penalties: int = 0
    was_parallel: bool = False
    loan: int = 0  # C7: the last claim that lent it
    losses: int = 0  # expired leases of that loan
    due: dict[int, list[DueEntry]] = field(default_factory=dict)  # one heap per lane
    delayed: dict[int, list[DelayedEntry]] = field(default_factory=dict)

    def postpone(self, until: int) -> None:
        """Move the earliest next lease to an instant; it never moves back (D1)."""
        self.not_before = max(self.not_before, until)

    def visit_ended(self, start: int, now: int, delay: float) -> None:
        """Apply the delay after a visit, from its end or its start (D1).

        If the rules are not known, it is counted from the start, which is earlier.
        """
        from_end = self.rules is not None and self.rules.politeness.count_from == "end"
        self.postpone((now if from_end else start) + whole_ms(delay))
        self.last_start, self.last_end = max(start, self.last_start), now

    def usual_delay(self) -> float:
        """Return the last delay, or the least allowed if there was none (D7).

        Where leases draw it, of leases in flight at the same time it is not sure whose is the last.
        """
        draws = self.rules is not None and draws_at_start(self.rules.politeness)
        if self.last_delay >= 0 and not draws:
            return self.last_delay
        return min_delay_between(self.rules.politeness, self.crawl_delay) if self.rules else 0.0

    def wake(self) -> None:
        """Apply a wake: back to the last visit's end (or start) + delay (D1)."""
        if self.rules is None:
            self.not_before = 0
            return
        earliest = 0
        if self.last_end is not None:
            from_end = self.rules.politeness.count_from == "end"
            base = self.last_end if from_end else self.last_start
            earliest = base + whole_ms(self.usual_delay())
        self.not_before = min(self.not_before, earliest)


@dataclass(slots=True, eq=False)
class CrawlRecord:
    """One crawl: its tasks, queues and leases."""

    tasks: dict[bytes, TaskRecord] = field(default_factory=dict)
    numbers: dict[int, TaskRecord] = field(default_factory=dict)
    queues: dict[str, QueueRecord] = field(default_factory=dict)
    leases: dict[LeaseId, LeaseRecord] = field(default_factory=dict)
    open: dict[LeaseId, LeaseRecord] = field(default_factory=dict)  # those that may still be valid
    adding: Counter[bytes] = field(default_factory=Counter)  # adds without an answer so far
    ties: str = "fifo"
    arrivals: int = 0
    applied: int = 0
    crashes: int = 0  # the most that can have been counted
    is_complete: bool = True  # every known task was added under observation
    is_finished: bool = False
    is_kept_open: bool = False  # I2: by its rules, surely
    stays_open: bool = False  # I2: it ran since, so no run may end

    def queue(self, key: str) -> QueueRecord:
        """Return the queue of that key."""
        return self.queues.setdefault(key, QueueRecord())

    def held(self, now: int) -> Iterator[LeaseRecord]:
        """Yield the leases that are surely valid."""
        return (lease for lease in self.open.values() if lease.is_valid(now))

    def overdue(self, now: int) -> list[LeaseRecord]:
        """Return the leases that may be expired, in the order of H4."""
        fates = ("held", "unsure")
        late = [one for one in self.open.values() if one.fate in fates and one.deadline <= now]
        return sorted(late, key=lambda lease: (lease.deadline, lease.id.task))

    def mark(self, lease: LeaseRecord, fate: str) -> None:
        """Set the fate of a lease."""
        lease.fate = fate
        if fate in ("applied", "released", "lost"):
            self.open.pop(lease.id, None)


class LeaseHistory:
    """What must hold of every lease, for any number of callers in any order."""

    def __init__(self) -> None:
        self.crawls: dict[str, CrawlRecord] = {}

    def crawl(self, name: str) -> CrawlRecord:
        """Return the crawl of that name."""
        return self.crawls.setdefault(name, CrawlRecord())

    # ---- add

    def begin_add(self, tasks: Iterable[Task]) -> None:
        """Record that tasks may become known from now on, answered or not."""
        for task in tasks:
            self.crawl(task.crawl).adding[task.fingerprint] += 1

    def end_add(self, tasks: Iterable[Task]) -> None:
        """Record that an add was answered: its tasks are known by the answer, or not at all."""
        for task in tasks:
            self.crawl(task.crawl).adding[task.fingerprint] -= 1

    def added(
        self, crawl: str, pairs: Iterable[tuple[Task, Added]], at: Instants, *, alone: bool = True
    ) -> None:
        """Check that no known task is added twice, and that a duplicate is known (B3)."""
        record, now = self.crawl(crawl), at.ended
        for task, answer in pairs:
            known = record.tasks.get(task.fingerprint)
            if not answer.added:
                self._refused(record, task, answer, known)
            elif known is None or not (known.arrival or _may_return(task, known, now)):
                self._inserted(record, task, known, now)
            else:
                is_sure = bool(known.arrival)
                if task.known == "set" and known.lease is not None:
                    self._end_unpunished(record, known.lease, at.began, certain=alone)
                self._revisited(record, task, known, now)
                known.is_sure = is_sure

    def _refused(
        self, record: CrawlRecord, task: Task, answer: Added, known: TaskRecord | None
    ) -> None:
        if answer.reason == "duplicate":
            may_be = record.adding[task.fingerprint] > 0 or not record.is_complete
            is_known = known is not None or may_be
            require(is_known, "B3", f"{task.url} is called a duplicate and was never added")
        if known is not None and task.known == "raise":
            order = (task.precedence, task.priority + 0.0)
            if known.is_pending and order < known.order:
                known.order = order
                self._enqueue(record, known)
        elif known is not None and task.known == "gather":
            known.is_sure = False  # F10: its order changed if it was pending

    def _inserted(
        self, record: CrawlRecord, task: Task, known: TaskRecord | None, now: int
    ) -> None:
        """Record a new task; one that was leased before its add was answered is leased already."""
        record.arrivals += 1
        if known is not None:
            known.arrival = record.arrivals
            return
        order = (task.precedence, task.priority + 0.0)
        due = now + whole_ms(task.delay)
        known = TaskRecord(task.url, task.key, task.lane, order, record.arrivals, due)
        record.tasks[task.fingerprint] = known
        known.is_pending = not task.done
        if known.is_pending:
            self._enqueue(record, known)

    def _revisited(self, record: CrawlRecord, task: Task, known: TaskRecord, now: int) -> None:
        may_return = task.known in ("revisit", "set") or not known.is_sure  # or it is forgotten
        require(may_return, "B3", f"{task.url} is known and was added again")
        in_flight = known.lease is not None and known.lease.is_valid(now)
        require(not in_flight, "B3", f"{task.url} is leased and was added again")
        record.arrivals += 1
        known.key, known.lane, known.arrival = task.key, task.lane, record.arrivals
        known.order = (task.precedence, task.priority + 0.0)
        known.due = now + whole_ms(task.delay)
        known.is_pending, known.is_sure = not task.done, True
        known.version += 1
        if known.is_pending:
            self._enqueue(record, known)

    def _enqueue(self, record: CrawlRecord, task: TaskRecord) -> None:
        """Put a task into its queue; older entries of it become invalid."""
        task.version += 1
        delayed = record.queue(task.key).delayed.setdefault(task.lane, [])
        heappush(delayed, (task.due, task.arrival, id(task), task.version, task))

    # ---- claim

    def leased(
        self, lease: Lease, at: Instants, *, alone: bool, named: bool = False, loan: int = 0
    ) -> None:
        """Check one lease: single, budget; concurrency, spacing and order unless by fingerprint.

        `loan` numbers the claim that lent whole queues (C7); 0: it leased single tasks.
        """
        record = self.crawl(lease.crawl)
        queue, task = record.queue(lease.key), self._task_of(record, lease)
        self._check_single(task, lease, at.ended)
        self._check_budget(queue, lease)
        _check_draw(lease, is_drawn=not named and not loan)
        if not named:
            self._check_concurrency(record, lease, at.ended, loan)
        if alone and not named:
            self._check_order(record, queue, task, at.began)
            if not loan or loan != queue.loan:
                self._check_spacing(queue, lease, at.ended)
                self._check_pace(queue, lease, at.ended)
        if loan and loan != queue.loan:
            queue.loan, queue.losses = loan, 0
        self._record_lease(record, task, lease, at.began, named=named, loan=loan)
        if not named:
            self._begin_visit(queue, lease, at.began)

    def _task_of(self, record: CrawlRecord, lease: Lease) -> TaskRecord:
        task = record.tasks.get(lease.about.fingerprint)
        if task is None:
            record.is_complete &= record.adding[lease.about.fingerprint] > 0
            order = (lease.about.precedence, lease.priority + 0.0)
            task = TaskRecord(lease.url, lease.key, lease.about.lane, order, 0, 0)
            record.tasks[lease.about.fingerprint] = task
        return record.numbers.setdefault(lease.task, task)

    def _check_single(self, task: TaskRecord, lease: Lease, now: int) -> None:
        other = task.lease
        valid = other is not None and other.is_valid(now)
        require(not valid, "H1", f"{lease.url} is leased twice: {lease.id} while {other}")
        require(other is None or other.id != lease.id, "H1", f"the token of {lease.id} is not new")

    def _check_concurrency(self, record: CrawlRecord, lease: Lease, now: int, loan: int) -> None:
        """Check that a queue has no more visits than slots (D2).

        A lent queue belongs to its borrower alone, and takes one slot whatever its size (C7).
        """
        same = [one for one in record.held(now) if one.key == lease.key and not one.named]
        others = [one for one in same if not loan or one.loan != loan]
        lent = next((one for one in others if one.loan), None)
        require(lent is None, "C7", f"{lease.url} is leased while its queue is lent: {lent}")
        count = 1 + len(others)
        limit = lease.rules.politeness.max_in_flight
        require(count <= limit, "D2", f"{lease.key} has {count} visits in flight, of {limit}")

    def _check_budget(self, queue: QueueRecord, lease: Lease) -> None:
        """Check that a queue exceeds its total by the cost of its last task at most (E1, E3).

        With several slots, penalties of visits in flight may be added to that.
        """
        total = lease.rules.budget.total_budget
        queue.was_parallel |= lease.rules.politeness.max_in_flight > 1 or queue.loan > 0
        spent = queue.charged + (0 if queue.was_parallel else queue.penalties)
        holds = total < 0 or spent < total
        require(holds, "E1", f"{lease.key} spent {spent} of {total} and is leased: {lease.url}")

    def _check_spacing(self, queue: QueueRecord, lease: Lease, now: int) -> None:
        early = queue.not_before - now
        require(early <= 0, "D1", f"{lease.url} is leased {early} ms before {lease.key} is ready")

    def _check_pace(self, queue: QueueRecord, lease: Lease, now: int) -> None:
        """Check that 1/visits_per_second passes between two leases, over all slots (D1)."""
        rate = lease.rules.politeness.visits_per_second
        if rate and queue.last_lease is not None:
            early = queue.last_lease + whole_ms(pace(lease.rules.politeness)) - now
            detail = f"{lease.url} is leased {early} ms too soon for {rate} visits a second"
            require(early <= 0, "D1", detail)

    def _check_order(
        self, record: CrawlRecord, queue: QueueRecord, task: TaskRecord, now: int
    ) -> None:
        """Check that no due and pending task of the lane comes before the leased one (C2)."""
        first = self._first_due(queue, task.lane, now)
        if first is None or first is task or not task.arrival or not task.is_sure:
            return
        holds = task.order < first.order
        if task.order == first.order:
            holds = record.ties != "fifo" or task.arrival < first.arrival
        detail = f"{task.url} {task.order} is leased before {first.url} {first.order}"
        require(holds, "C2", detail)

    def _first_due(self, queue: QueueRecord, lane: int, now: int) -> TaskRecord | None:
        """Return the first due task of a lane, after removing invalid heap entries."""
        delayed, due = queue.delayed.setdefault(lane, []), queue.due.setdefault(lane, [])
        while delayed and delayed[0][0] <= now:
            _, arrival, number, version, task = heappop(delayed)
            heappush(due, (task.order, arrival, number, version, task))
        while due and not due[0][4].is_current(due[0][3]):
            heappop(due)
        return due[0][4] if due else None

    def _record_lease(
        self,
        record: CrawlRecord,
        task: TaskRecord,
        lease: Lease,
        began: int,
        *,
        named: bool,
        loan: int,
    ) -> None:
        until = began + whole_ms(lease.lease_for)
        made = LeaseRecord(lease.id, lease.key, lease.about.cost, began, until, named, loan)
        if task.lease is not None and task.lease.fate in ("held", "unsure"):
            record.mark(task.lease, "lost")
        task.lease, task.is_pending = made, False
        record.leases[lease.id] = record.open[lease.id] = made
        queue = record.queue(lease.key)
        queue.charged += lease.about.cost
        queue.rules, queue.crawl_delay = lease.rules, lease.manners.crawl_delay
        if not record.is_complete:  # there were visits before the observation
            queue.last_delay = lease.manners.last_delay

    def _begin_visit(self, queue: QueueRecord, lease: Lease, began: int) -> None:
        """Space leases if several may be in flight, or if delays count from the start (D1)."""
        queue.last_start = queue.last_lease = began
        politeness, state = lease.rules.politeness, lease.manners
        if lease.delay >= 0:
            delay = delay_at_start(politeness, lease.delay, state.crawl_delay, state.level)
            queue.postpone(began + whole_ms(delay))
        if politeness.count_from == "start" or politeness.max_in_flight > 1:
            queue.postpone(
                began + whole_ms(min_delay_between(politeness, lease.manners.crawl_delay))
            )

    # ---- the end of a lease

    def begin_end(self, leases: Iterable[LeaseId]) -> None:
        """Record that an end was asked for: a lease is unsure until the answer comes."""
        for lease in set(leases):
            known = self.crawl(lease.crawl).leases.get(lease)
            if known is not None and known.fate in ("held", "closing"):
                known.fate = "closing" if known.fate == "held" else "unsure"

    def end_refused(self, lease: LeaseId) -> None:
        """Record that an end was refused and changed nothing: the lease is as before."""
        known = self.crawl(lease.crawl).leases.get(lease)
        if known is not None and known.fate == "closing":
            known.fate = "held"

    def finished(self, verdict: Verdict, answer: Finished, at: Instants, *, alone: bool) -> None:
        """Check that a verdict is applied once, and only by the current token (H3)."""
        record = self.crawl(verdict.crawl)
        id_ = LeaseId(verdict.crawl, verdict.task, verdict.token)
        lease = record.leases.get(id_)
        if lease is None:
            require(not (answer.applied and record.is_complete), "H3", f"{id_} was never given")
        elif not answer.applied:
            self._finish_refused(lease, at.ended, alone=alone)
        elif answer.state is None:
            again = lease.fate in ("applied", "unsure")
            require(again, "H3", f"{id_} is called finished before, and was {lease.fate}")
        else:
            fits = lease.fate in ("closing", "unsure")
            require(fits, "H3", f"{id_} is finished, and was {lease.fate}")
            self._apply(record, lease, verdict, at)

    def _finish_refused(self, lease: LeaseRecord, now: int, *, alone: bool) -> None:
        held = lease.fate == "closing" and lease.deadline > now and alone
        require(not held, "H3", f"{lease.id} was held until {lease.deadline}, and was refused")
        lease.fate = "unsure" if lease.fate == "closing" else lease.fate

    def _apply(
        self, record: CrawlRecord, lease: LeaseRecord, verdict: Verdict, at: Instants
    ) -> None:
        now = at.began
        record.mark(lease, "applied")
        record.applied += 1
        queue = record.queue(lease.key)
        queue.charged -= 0 if verdict.counts else lease.cost
        queue.penalties += verdict.penalty
        if verdict.touched:
            queue.last_delay = verdict.delay
            if verdict.crawl_delay is not None:
                queue.crawl_delay = verdict.crawl_delay
            queue.visit_ended(lease.began(now), now, verdict.delay)
            queue.postpone(now + whole_ms(verdict.snooze))
        task = record.numbers[lease.id.task]
        if task.lease is lease:
            self._return_to_queue(record, task, verdict, at.ended)

    def _return_to_queue(
        self, record: CrawlRecord, task: TaskRecord, verdict: Verdict, now: int
    ) -> None:
        task.is_pending = verdict.state == "pending"
        if not task.is_pending:
            task.is_sure = verdict.reason != FORGOTTEN  # else the next add admits it (C10)
            return
        task.due = now + whole_ms(verdict.retry_in)
        revisit = verdict.revisit
        if revisit is not None:
            record.arrivals += 1
            task.arrival, task.lane = record.arrivals, revisit.lane
            task.order = (revisit.precedence, revisit.priority + 0.0)
            task.due = now + whole_ms(revisit.after)
        requeue = verdict.requeue
        if requeue is not None:
            if requeue.front and task.arrival:  # before all that arrived, in order of numbers
                task.arrival = task.lease.id.task - (1 << 60) if task.lease else task.arrival
            task.lane, task.order = requeue.lane, (requeue.precedence, requeue.priority + 0.0)
            task.due = now + whole_ms(requeue.after)
        self._enqueue(record, task)

    def extended(self, lease: LeaseId, lease_for: float, now: int) -> None:
        """Check that only a valid lease is extended (H2)."""
        known = self.crawl(lease.crawl).leases.get(lease)
        if known is None:
            return
        holds = known.fate in ("held", "closing", "unsure")
        require(holds, "H2", f"{lease} is extended, and was {known.fate}")
        known.fate, known.deadline = "held", now + whole_ms(lease_for)

    def released(self, lease: LeaseId, at: Instants) -> None:
        """Check that only a valid lease is released (H5); its visit ends now (D7)."""
        record = self.crawl(lease.crawl)
        known = record.leases.get(lease)
        if known is None:
            return
        fits = known.fate in ("closing", "unsure")
        require(fits, "H5", f"{lease} is released, and was {known.fate}")
        record.mark(known, "released")
        queue = record.queue(known.key)
        queue.charged -= known.cost
        if not known.named:
            queue.visit_ended(known.began(at.began), at.began, queue.usual_delay())
        task = record.numbers[lease.task]
        if task.lease is known:
            task.is_pending, task.due = True, at.ended
            self._enqueue(record, task)

    def _end_unpunished(
        self, record: CrawlRecord, lease: LeaseRecord, now: int, *, certain: bool
    ) -> None:
        """Record that a lease ended as if it was released, because its task was set (B3)."""
        if not certain:
            self.doubt_lease(record, lease)
        elif lease.fate in ("held", "closing", "unsure"):
            was_sure = lease.fate == "held"
            record.mark(lease, "released")
            queue = record.queue(lease.key)
            queue.charged, lease.cost = queue.charged - lease.cost, 0
            if was_sure and not lease.named and lease.deadline > now:
                queue.visit_ended(lease.began(now), now, queue.usual_delay())

    def doubt_lease(self, record: CrawlRecord, lease: LeaseRecord) -> None:
        """Stop relying on a lease that may have ended unpunished, with a refund of its cost."""
        if lease.fate in ("held", "closing", "unsure"):
            lease.fate = "unsure"
            queue = record.queue(lease.key)
            queue.charged, lease.cost = queue.charged - lease.cost, 0
            queue.last_delay = -1.0
            record.numbers[lease.id.task].is_sure = False

    def removed(self, crawl: str, *, alone: bool) -> None:
        """Record that nothing is left of a crawl: its leases are void (I1)."""
        self.crawls[crawl] = CrawlRecord(is_complete=alone)

    def not_released(self, lease: LeaseId) -> None:
        """Record that a lease was not released: it was lost before, or may still hold (H5)."""
        known = self.crawl(lease.crawl).leases.get(lease)
        if known is not None and known.fate == "closing":
            known.fate = "unsure"

    def cancelled(self, crawl: str) -> None:
        """Record that all leases of a crawl are void (I3)."""
        record = self.crawl(crawl)
        for lease in list(record.open.values()):
            record.mark(lease, "lost")

    def expired(self, crawl: str, now: int, *, certain: bool) -> None:
        """Record that overdue leases are lost, and that their visits end now (H4, D7)."""
        record = self.crawl(crawl)
        for lease in record.overdue(now):
            self._expire(record, lease, now, certain=certain)

    def reopened(self, crawl: str, now: int) -> None:
        """Record that a file was opened again: all leases of its last holder expire (H4, D7).

        Those that outlive every process stay, and so do their deadlines.
        """
        record = self.crawl(crawl)
        for lease in list(record.open.values()):
            if not lease.outlives:
                self._expire(record, lease, now, certain=True)

    def outlives(self, lease: LeaseId) -> None:
        """Record that a lease outlives every process (H4)."""
        self.crawl(lease.crawl).leases[lease].outlives = True

    def _expire(self, record: CrawlRecord, lease: LeaseRecord, now: int, *, certain: bool) -> None:
        was_unsure = lease.fate in ("closing", "unsure")
        record.mark(lease, "lost" if certain else "unsure")
        if was_unsure:
            record.crashes += 1
            return  # its visit may have ended before
        queue = record.queue(lease.key)
        self._count_crash(record, queue, lease, certain=certain)
        if not lease.named:
            queue.visit_ended(lease.began(now), now, queue.usual_delay())
        task = record.numbers[lease.id.task]
        if task.lease is lease:
            task.is_pending = task.is_sure = False

    def _count_crash(
        self, record: CrawlRecord, queue: QueueRecord, lease: LeaseRecord, *, certain: bool
    ) -> None:
        """Count a crash (H4); of a loan the first `max_in_flight`, others are refunded (C7)."""
        if not lease.loan:
            record.crashes += 1
            return
        limit = queue.rules.politeness.max_in_flight if queue.rules else None
        is_known = limit is not None and lease.loan == queue.loan
        may_count = not is_known or queue.losses < (limit or 0)
        queue.losses += 1
        record.crashes += may_count
        if not (certain and is_known and may_count):
            queue.charged -= lease.cost

    def run_ended(self, crawl: str, now: int) -> None:
        """Check that no lease is valid when a run ends (I2)."""
        record = self.crawl(crawl)
        held = next(record.held(now), None)
        require(held is None, "I2", f"{crawl} finished while {held} holds")
        require(not record.stays_open, "I2", f"{crawl} finished, and is to stay open")
        record.is_finished = True


def _may_return(task: Task, known: TaskRecord, now: int) -> bool:
    """Whether a task known only by a lease was restored and revisited, not just added."""
    in_flight = known.lease is not None and known.lease.is_valid(now)
    return task.known == "set" or (task.known == "revisit" and not in_flight)


def _check_draw(lease: Lease, *, is_drawn: bool) -> None:
    """Check that a lease draws a uniform delay from the start, and no other does (D1)."""
    rules = lease.rules.politeness
    holds = lease.delay < 0
    if is_drawn and draws_at_start(rules):
        holds = rules.delay <= lease.delay <= rules.delay_to
    require(holds, "D1", f"{lease.url} drew {lease.delay} s under {rules}")
