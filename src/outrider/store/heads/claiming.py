"""Tasks are lent: the claim algorithm of ARCHITECTURE.md (C3 to C6, E2, H1)."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from outrider.clock import to_ms
from outrider.core.order import NUMBER_BITS, NUMBER_MASK
from outrider.core.pick import ACTIVATE, NOTHING, Streak, pick
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Lease
from outrider.store.heads.naming import Naming, recall
from outrider.store.heads.records import (
    CHUNK_BITS,
    COLUMNS,
    INACTIVE,
    NEITHER,
    READY,
    Queue,
    Record,
)
from outrider.store.heads.standing import parked_key
from outrider.store.protocol import ClaimRequest, ClaimResult

EXPIRE_STEP: Final = 1000  # overdue leases one claim takes back
WAKE_STEP: Final = 4096  # queues one claim wakes; the rest are woken by the next

LEASED = TaskState.LEASED
_P, _L = COLUMNS[TaskState.PENDING], COLUMNS[LEASED]


class Claiming(Naming):
    """How tasks go out."""

    def claim(self, request: ClaimRequest, now: int) -> ClaimResult:
        """The algorithm of ARCHITECTURE.md; only a claim wakes queues and closes a run."""
        self.take_back(EXPIRE_STEP, now)
        self.check_limits(now)
        if self.status is not CrawlStatus.RUNNING:  # I1: lends nothing
            return ClaimResult([], None, self.status, request.streak)
        leases, streak = self._lend(request, now)
        is_cut = len(leases) >= request.limit
        return ClaimResult(leases, 0.0 if is_cut else self._wake_in(now), self.status, streak)

    def _lend(self, request: ClaimRequest, now: int) -> tuple[list[Lease], Streak]:
        if request.fingerprints:
            return self.lend_named(request, now), request.streak
        self._wake(now)
        leases, streak = self._pick(request, now)
        self._close_run(now)
        return leases, streak

    def _wake(self, now: int) -> None:
        """E1: what time brought is judged in (instant, queue number) order."""
        alarms, queues, due = self.alarms, self.queues, (now + 1) << NUMBER_BITS
        for _ in range(WAKE_STEP):
            if not alarms or alarms[0] >= due:
                break
            entry = heappop(alarms)
            number = entry & NUMBER_MASK
            queue = queues[number >> CHUNK_BITS].get(number)
            alarm = self.alarm_of(number) if queue is None else queue.alarm
            if alarm != entry >> NUMBER_BITS:
                continue
            if queue is None:
                queue = self.queue_of(number)
            queue.alarm = 0
            if queue.standing == NEITHER and not queue.delayed.head:
                self._judge(queue, now)  # the common case: its snooze is over, its tasks are due
            elif queue.standing == NEITHER:
                self.touch(queue, now)
            else:
                self.settle(queue, now)  # C9: time alone hastens nobody

    def _pick(  # noqa: C901, PLR0912
        self, request: ClaimRequest, now: int
    ) -> tuple[list[Lease], Streak]:
        """Steps 2 to 5, until the limit or nothing is left; the second of the two hot loops."""
        leases: list[Lease] = []
        (lane, count), burst, cap = request.streak, self.rules.burst, request.per_queue
        limit, discount, lend = request.limit, self.rules.breadth_discount, request.lend
        deadline = now + to_ms(request.lease_for)
        taken: dict[int, int] = {}
        skipped: list[Queue] = []
        queues, (ready0, ready1) = self.queues, self.ready
        while len(leases) < limit:
            first = ready0.head[0] if ready0.head else 0
            second = ready1.head[0] if ready1.head else 0
            head = self._best_parked(taken, cap, skipped) if self.parked else None
            step, after = pick(
                first, second, None if head is None else head.precedence, lane, count, burst
            )
            if step == ACTIVATE:
                self._activate(now)
                continue
            if step == NOTHING:
                break
            lane, count = step, after
            number = (ready1 if lane else ready0).pop() & NUMBER_MASK
            queue = queues[number >> CHUNK_BITS].get(number) or self.queue_of(number)
            if lane:
                queue.rank1 = 0
                entry = queue.lane1.pop()
            else:
                queue.rank0 = 0
                entry = queue.lane0.pop()
            record = self.due(queue, entry)
            if lend:
                record.lent = True
                queue.lent += 1
            leases.append(self._lease(queue, record, request, deadline, now))
            if cap or discount or lend:
                taken[number] = times = taken.get(number, 0) + 1
                if lend:
                    self._go_on(queue)
                if queue.standing == READY:
                    if times == cap:
                        self._unrank(queue)
                    else:
                        self._rank(queue, discount * times)
        for number in taken:
            queue = queues[number >> CHUNK_BITS][number]
            if queue.standing == READY:
                if lend:
                    self._stand_down(queue)
                else:
                    self._rank(queue)
        for queue in skipped:
            heappush(self.parked, parked_key(queue))
        return leases, Streak(lane, count)

    def _go_on(self, queue: Queue) -> None:
        """C7: in the claim that lends it, while it has due tasks and may spend."""
        may_spend = queue.session < queue.balance and not queue.over_budget()
        if may_spend and (queue.lane0.head or queue.lane1.head):
            self.standing += 1
            queue.standing = READY

    def _best_parked(self, taken: dict[int, int], cap: int, skipped: list[Queue]) -> Queue | None:
        """E2: the head of the best inactive FIFO; one at its cap is passed over (C5)."""
        parked = self.parked
        while parked:
            number = parked[0] & NUMBER_MASK
            queue = self.queue_of(number)
            if queue.standing == INACTIVE and parked[0] == parked_key(queue):
                if not cap or taken.get(number, 0) < cap:
                    return queue
                skipped.append(queue)
            heappop(parked)
        return None

    def _activate(self, now: int) -> None:
        """E2: the best head opens a session; over its budget it retires instead."""
        queue = self.queue_of(heappop(self.parked) & NUMBER_MASK)
        if queue.over_budget():
            self.retire(queue, "budget", now)
        else:
            self.mark(queue)
            queue.session, queue.standing = 0, READY
            self._rank(queue)

    def _lease(
        self, queue: Queue, record: Record, request: ClaimRequest, deadline: int, now: int
    ) -> Lease:
        """H1, E3, C3, D1: token, deadline, charge, turn, next-ready; then judged again."""
        self.tokens = token = self.tokens + 1
        self.counter = queue.turn = self.counter + 1
        record.token, record.worker, record.process = token, request.worker, request.process
        record.claimed = queue.last_start = now
        record.state, record.deadline = LEASED, deadline
        self.leases[record.number] = record
        self.changed(record)
        heappush(self.deadlines, deadline << NUMBER_BITS | record.number)
        self._count_lease(queue, record)
        lease = Lease(  # `_lent` written out: every visit begins here
            self.store,
            record.number,
            token,
            record.task,
            record.attempts + 1,
            request.worker,
            request.lease_for,
            record.failures,
            record.throttles,
            queue.rules,
            queue.manners,
        )
        if record.answer is not None:
            recall(lease, record.answer, now - record.answered)
        self.standing -= 1
        queue.standing = NEITHER
        if queue.rank0 or queue.rank1:
            self._unrank(queue)
        queue.alarm = 0
        if queue.gap >= 0:
            queue.postpone(now + queue.gap, "delay")
        if queue.in_flight < queue.slots:
            self.touch(queue, now)
        return lease

    def _count_lease(self, queue: Queue, record: Record) -> None:
        """E3, O5: from pending to leased, and charged."""
        kind = record.kind
        if not queue.is_marked:
            self.mark(queue)
        if not kind.is_marked:
            self._mark_kind(kind)
        cost, counts = record.task.cost, kind.counts
        counts[_P] -= 1
        counts[_L] += 1
        self.pending -= 1
        self.leased += 1
        queue.pending -= 1
        queue.in_flight += 1
        queue.spent += cost
        queue.session += cost
        queue.last_cost = cost
        queue.cost_sum += cost
        queue.cost_count += 1

    def _wake_in(self, now: int) -> float | None:
        """C6: seconds to the earliest deadline or alarm; None if time alone brings nothing."""
        if self.status is not CrawlStatus.RUNNING:
            return None
        if self.standing:
            return 0.0
        times = [at for at in (self._next_alarm(), self._next_deadline()) if at is not None]
        return max(0, min(times) - now) / 1000 if times else None

    def _next_alarm(self) -> int | None:
        alarms = self.alarms
        while alarms:
            number = alarms[0] & NUMBER_MASK
            if self.alarm_of(number) == alarms[0] >> NUMBER_BITS:
                return alarms[0] >> NUMBER_BITS
            heappop(alarms)
        return None
