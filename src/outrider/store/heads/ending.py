"""Visits end: finished, released or expired; the verdict is applied, then the queue is judged.

A token that is no longer current changes nothing (H3).
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TypeVar

import msgspec

from outrider.clock import to_ms
from outrider.core.order import NUMBER_BITS, NUMBER_MASK
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import PolitenessState
from outrider.core.verdict import Finished, Revisit, Verdict
from outrider.store.heads.adding import Adding
from outrider.store.heads.records import Queue, Record

PENDING, DEAD = TaskState.PENDING, TaskState.DEAD
_Count = TypeVar("_Count", int, float)


class Ending(Adding):
    """How leases come back."""

    def take_back(self, limit: int, now: int) -> int:
        """H4: overdue leases, in (deadline, arrival) order."""
        count = 0
        if self.status is CrawlStatus.CANCELLED:
            return 0
        while count < limit:
            deadline = self._next_deadline()
            if deadline is None or deadline > now:
                break
            number = heappop(self.deadlines) & NUMBER_MASK
            self._lose(self.leases[number], now)
            count += 1
        return count

    def _next_deadline(self) -> int | None:
        deadlines = self.deadlines
        while deadlines:
            record = self.leases.get(deadlines[0] & NUMBER_MASK)
            if record is not None and record.deadline == deadlines[0] >> NUMBER_BITS:
                return record.deadline
            heappop(deadlines)
        return None

    def _lose(self, record: Record, now: int) -> None:
        """H4: each is a crash; C7: of a loan as many as can have been under way."""
        queue = record.queue
        if record.lent and queue.crashed >= queue.slots:
            self.release(record, now)
        else:
            queue.crashed += record.lent
            self._crash(record, now)

    def _crash(self, record: Record, now: int) -> None:
        """H4: counts as an attempt, due at once; dead after too many."""
        queue, rules, was_named = record.queue, self.rules, self._end_named(record)
        record.attempts += 1
        record.crashes += 1
        record.reason = "lease expired"
        record.remember(now, record.reason)
        self.visits += 1
        self.outcomes["crashed"] += 1
        queue.errors += 1
        dead = record.failures > rules.max_retries or record.crashes >= rules.max_crashes
        self.note(now, "died" if dead else "expired", record.task.url, record.worker or "")
        if dead:
            self._retoken(record)
            record.finished = now
            self._move(record, DEAD)
        else:
            record.finished = -1
            self._give_back(record, now)
        if not was_named:
            self._visit_ended(record, queue.delay_ms(), now)
        if record.lent:
            self._end_lent(record, now)
        self.touch(queue, now)

    def release(self, record: Record, now: int) -> None:
        """H5, E3, D7: unpunished, refunded, in its old place; the visit's end is now."""
        queue, was_named = record.queue, self._end_named(record)
        self._give_back(record, now)
        record.worker = None
        queue.refund(record.task.cost)
        if not was_named:
            self._visit_ended(record, queue.delay_ms(), now)
        if record.lent:
            self._end_lent(record, now)
        if queue.retired == "budget" and not queue.over_budget():
            self.bring_back(queue, now)
        self.touch(queue, now)

    def _end_named(self, record: Record) -> bool:
        """D5: one lent by name ends as any other does, and did not touch its host by itself."""
        if not record.named:
            return False
        record.named = False
        record.queue.named -= 1
        record.queue.in_flight += 1
        return True

    def _end_lent(self, record: Record, now: int) -> None:
        """C7: a loan ends with the last of its tasks; D1: its pace counts from each one's end."""
        queue = record.queue
        if queue.rules.politeness.visits_per_second:
            queue.last_start = now
            queue.keep_pace()
        record.lent = False
        queue.lent -= 1
        if not queue.lent:
            queue.crashed = 0

    def extend(self, record: Record, lease_for: float, now: int) -> None:
        """H2."""
        self.lasts(record, now + to_ms(lease_for))

    def lasts(self, record: Record, deadline: int) -> None:
        """A lease ends then."""
        record.deadline = deadline
        heappush(self.deadlines, deadline << NUMBER_BITS | record.number)

    def _retoken(self, record: Record) -> None:
        self.tokens += 1
        record.token = self.tokens

    def _give_back(self, record: Record, now: int) -> None:
        self._retoken(record)
        self._move(record, PENDING)
        self._line_up(record, now, now)

    def _visit_ended(self, record: Record, delay: int, now: int) -> None:
        """D1: next-ready is at least end (or start) + delay; C7: lent, it counts as begun now."""
        queue = record.queue
        if record.lent:
            queue.last_start = now
        until = (record.claimed if queue.from_start and not record.lent else now) + delay
        if until > queue.next_ready:
            queue.next_ready, queue.why = until, "delay"
        queue.last_end = now

    def finish(self, verdict: Verdict, now: int) -> Finished:
        """H3: current and leased → applied; current and finished → True again; else False."""
        record = self.held_by(verdict.task, verdict.token)
        if record is None:
            return Finished(self.has_ended(verdict.task, verdict.token))
        answers = self.add(list(verdict.tasks), now) if verdict.tasks else ()
        if record.named and self._end_named(record) and verdict.touched:
            record.claimed = record.queue.last_start = now  # after all: it began and ended now
        self._apply(record, verdict, now)
        if self.is_limited:
            self.check_limits(now)
        return Finished(True, record.state, answers)

    def _apply(  # noqa: C901 - every visit ends here
        self, record: Record, verdict: Verdict, now: int
    ) -> None:
        queue = record.queue
        if not queue.is_marked:
            self.mark(queue)
        self.visits += 1
        self.outcomes[verdict.outcome] += 1
        if verdict.counts and not verdict.failed:
            record.attempts += 1
        else:
            self._charge(record, queue, verdict)
        self._apply_to_task(record, verdict, now)
        if verdict.touched:
            self._apply_manners(queue, verdict)
            self._visit_ended(record, to_ms(verdict.delay), now)
            if verdict.snooze:
                queue.postpone(now + to_ms(verdict.snooze), verdict.snooze_reason or "delay")
        if record.lent:
            self._end_lent(record, now)
        if verdict.retire:  # D3, D4
            self.retire(queue, verdict.retire, now)
        if queue.has_quota and queue.over_quota():  # E6
            self.retire(queue, "quota", now)
        if queue.retired == "budget" and not queue.over_budget():  # E3: a refund may bring it back
            self.bring_back(queue, now)
        self.touch(queue, now)

    def _charge(self, record: Record, queue: Queue, verdict: Verdict) -> None:
        """E3: the cost stays charged exactly when the attempt counts."""
        if verdict.counts:
            record.attempts += 1
            record.failures += verdict.failed
        else:
            queue.refund(record.task.cost)
        record.throttles += verdict.throttled
        if verdict.penalty:
            queue.spent += verdict.penalty
            queue.session += verdict.penalty if queue.session >= 0 else 0

    def _apply_to_task(self, record: Record, verdict: Verdict, now: int) -> None:
        """B2: the move; G3: a revisit comes back as another type, its attempts at 0."""
        record.reason = verdict.reason
        if verdict.reason is not None and verdict.counts:
            record.remember(now, verdict.reason)
        answer = verdict.answer
        if answer is not None:
            record.answer, record.answered = answer, now
            self.dones += 1
            self.bytes += answer.bytes
            record.queue.dones += 1
            record.queue.bytes += answer.bytes
        if verdict.state is not PENDING:
            record.finished = now
            self._settle_lease(record, verdict.state)
        elif verdict.revisit is not None:
            self._come_again(record, verdict.revisit, now)
        else:
            record.finished = -1
            self._move(record, PENDING)
            self._line_up(record, now + to_ms(verdict.retry_in), now)

    def _come_again(self, record: Record, revisit: Revisit, now: int) -> None:
        task = msgspec.structs.replace(
            record.task,
            type=revisit.type,
            lane=revisit.lane,
            precedence=revisit.precedence,
            priority=revisit.priority,
            breakdown=revisit.breakdown,
        )
        self._describe(record, task)
        record.history = ()
        self._reinsert(record, revisit.after, now)
        record.finished = now

    def _apply_manners(self, queue: Queue, verdict: Verdict) -> None:
        """D3, D4: set from what the lease saw; None leaves a count alone."""
        old = queue.manners
        level, calm = old.level, old.calm
        if verdict.level is not None:
            level = verdict.level
        if verdict.calm is not None:
            calm = calm + 1 if verdict.calm else 0
            if 0 < verdict.calm <= calm:  # D3: so many Done in a row lower the level by one
                level, calm = max(0, level - 1), 0
        queue.manners = PolitenessState(
            level,
            calm,
            _said(verdict.throttles_in_row, old.throttles_in_row),
            _said(verdict.unreachable_in_row, old.unreachable_in_row),
            _said(verdict.blocks_in_row, old.blocks_in_row),
            verdict.delay,
            _said(verdict.crawl_delay, old.crawl_delay),
        )
        if verdict.crawl_delay is not None:
            queue.measure_gap()
        if verdict.outcome != "dropped":
            queue.errors = 0 if verdict.outcome == "done" else queue.errors + 1


def _said(new: _Count | None, old: _Count) -> _Count:
    return old if new is None else new
