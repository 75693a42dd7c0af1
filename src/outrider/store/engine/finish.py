"""The end of leases: finished by a verdict, released by the worker, or expired (H3 to H6).

A token that is no longer current changes nothing (H3).
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from outrider.clock import to_ms
from outrider.core.order import NUMBER_BITS, TIE_MASK, task_key
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import PolitenessState
from outrider.core.verdict import Finished, Requeue, Revisit, Verdict
from outrider.store.engine.add import Adder
from outrider.store.engine.leases import Leases
from outrider.store.engine.port import Loader, TaskTable
from outrider.store.engine.records import Queue, TaskRecord
from outrider.store.engine.schedule import Schedule
from outrider.store.engine.state import CrawlState
from outrider.store.engine.transitions import Transitions

PENDING, DEAD, DROPPED = TaskState.PENDING, TaskState.DEAD, TaskState.DROPPED
RUNNING, CANCELLED = CrawlStatus.RUNNING, CrawlStatus.CANCELLED
_NO_SIGN: Final = ("dropped", "again")  # outcomes that say nothing of how a host is


@final
class Finisher:
    """Ends leases and applies verdicts; then the queue is rescheduled."""

    __slots__ = (
        "_adder",
        "_held",
        "_leases",
        "_loader",
        "_schedule",
        "_state",
        "_tasks",
        "_transitions",
    )

    def __init__(
        self,
        state: CrawlState,
        leases: Leases,
        tasks: TaskTable,
        schedule: Schedule,
        transitions: Transitions,
        adder: Adder,
        loader: Loader | None,
    ) -> None:
        self._state, self._leases, self._held = state, leases, leases.held
        self._tasks, self._schedule, self._transitions = tasks, schedule, transitions
        self._adder, self._loader = adder, loader

    # ---- finding leases

    def lease_by_token(self, number: int, token: int) -> TaskRecord | None:
        """H3: return the leased task whose current token this is; none if cancelled (I3)."""
        record = self._held.get(number)
        if record is None or record.token != token or self._state.status is CANCELLED:
            return None
        return record

    def _was_finished(self, number: int, token: int) -> bool:
        """H3: whether this very lease was finished before; asked of lost leases, so may read."""
        if not 0 < number <= self._state.last_task or self._state.status is CANCELLED:
            return False
        if number in self._held:
            return False
        return any(record.token == token for record in self._tasks.read((number,)))

    # ---- expiry

    def expire_overdue(self, limit: int, now: int) -> int:
        """H4: expire overdue leases, in (deadline, arrival) order; return how many."""
        if self._state.status is CANCELLED:
            return 0
        count = 0
        while count < limit and (record := self._leases.pop_overdue(now)) is not None:
            self.expire_lease(record, now)
            count += 1
        return count

    def expire_lease(self, record: TaskRecord, now: int) -> None:
        """H4: count a crash; C7: of a loan only as many as can have been in flight."""
        queue = record.queue
        if record.loaned and queue.loan_crashes >= queue.slots:
            self.release(record, now)
        else:
            queue.loan_crashes += record.loaned
            self._crash(record, now)

    def _crash(self, record: TaskRecord, now: int) -> None:
        """H4: count an attempt; the task is due at once, or dead after too many."""
        state, queue, was_named = self._state, record.queue, self._end_named(record)
        rules = state.rules
        record.attempts += 1
        record.crashes += 1
        record.reason = "lease expired"
        record.add_error(now, record.reason)
        state.visits += 1
        state.outcomes["crashed"] += 1
        queue.errors_in_row += 1
        is_dead = record.failures > rules.max_retries or 0 < rules.max_crashes <= record.crashes
        event = "died" if is_dead else "expired"
        state.add_event(now, event, record.task.url, record.worker or "")
        if is_dead:
            self._set_new_token(record)
            record.finished = now
            self._transitions.move(record, DEAD)
        else:
            record.finished = -1
            self._return_to_pending(record, now)
        if not was_named:
            self._end_visit(record, queue.delay_ms(), now)
        if record.loaned:
            self._end_loaned(record, now)
        self._schedule.reschedule(queue, now)

    # ---- release

    def release(self, record: TaskRecord, now: int) -> None:
        """H5, E3, D7: pending again in its old place, refunded; the visit ends now."""
        queue, was_named = record.queue, self._end_named(record)
        self._return_to_pending(record, now)
        record.worker = None
        queue.refund(record.task.cost)
        if not was_named:
            self._end_visit(record, queue.delay_ms(), now)
        if record.loaned:
            self._end_loaned(record, now)
        if queue.retired == "budget" and not queue.is_over_budget():
            self._schedule.revive(queue, now)
        self._schedule.reschedule(queue, now)

    def _end_named(self, record: TaskRecord) -> bool:
        """D5: count a lease by fingerprint as an ordinary one; return whether it was by name."""
        if not record.named:
            return False
        record.named = False
        record.queue.named -= 1
        record.queue.in_flight += 1
        return True

    def _end_loaned(self, record: TaskRecord, now: int) -> None:
        """C7: a loan ends with the last of its leases; D1: its pace counts from each one's end."""
        queue = record.queue
        if queue.rules.politeness.visits_per_second:
            queue.last_start = now
            queue.apply_pace()
        record.loaned = False
        queue.loaned -= 1
        if not queue.loaned:
            queue.loan_crashes = 0

    def _set_new_token(self, record: TaskRecord) -> None:
        self._state.last_token += 1
        record.token = self._state.last_token

    def _return_to_pending(self, record: TaskRecord, now: int) -> None:
        self._set_new_token(record)
        self._transitions.move(record, PENDING)
        self._transitions.enqueue(record, now, now)

    def _end_visit(self, record: TaskRecord, delay: int, now: int) -> None:
        """D1: next-ready is at least end (or start) + delay; C7: on loan, the start is now."""
        queue = record.queue
        if record.loaned:
            queue.last_start = now
        until = (record.claimed if queue.from_start and not record.loaned else now) + delay
        if until > queue.next_ready:
            queue.next_ready, queue.wait_reason = until, "delay"
        queue.last_end = now

    # ---- verdicts

    def check_limits(self, now: int) -> None:
        """I4: pause a running crawl that has reached one of its limits."""
        state = self._state
        if state.is_limited and state.status is RUNNING:
            if self._loader is not None:
                self._loader.load_totals()
            state.check_limits(now)

    def finish(self, verdict: Verdict, now: int) -> Finished:
        """H3: current and leased → applied; current and finished → True again; else False."""
        record = self.lease_by_token(verdict.task, verdict.token)
        if record is None:
            return Finished(self._was_finished(verdict.task, verdict.token))
        tasks, number = verdict.tasks, verdict.task
        answers = self._adder.add(list(tasks), now, number) if tasks else ()
        if record.named and self._end_named(record) and verdict.touched:
            record.claimed = record.queue.last_start = now  # it contacted the host: begun now
        self._apply(record, verdict, now)
        if self._state.is_limited:
            self.check_limits(now)
        return Finished(True, record.state, answers)

    def _apply(  # noqa: C901 - every visit ends here
        self, record: TaskRecord, verdict: Verdict, now: int
    ) -> None:
        queue, state = record.queue, self._state
        if not queue.is_dirty:
            state.mark_dirty(queue)
        state.visits += 1
        state.outcomes[verdict.outcome] += 1
        if verdict.counts and not verdict.failed:
            record.attempts += 1
        else:
            self._charge(record, queue, verdict)
        drawn = record.drawn
        if record.blocks or verdict.outcome == "blocked":
            self._count_blocks(record, verdict.outcome)
        self._apply_to_task(record, verdict, now)
        if verdict.touched:
            last_delay = verdict.delay
            if drawn >= 0 and queue.draws:
                last_delay = _drawn_delay(queue, record, verdict)
            self._apply_politeness(queue, verdict, last_delay)
            self._end_visit(record, to_ms(verdict.delay), now)
            if verdict.snooze:
                queue.postpone(now + to_ms(verdict.snooze), verdict.snooze_reason or "delay")
        if record.loaned:
            self._end_loaned(record, now)
        schedule = self._schedule
        if verdict.retire:  # D3, D4
            schedule.retire(queue, verdict.retire, now)
        if queue.has_quota and queue.is_over_quota():  # E6
            schedule.retire(queue, "quota", now)
        if queue.retired == "budget" and not queue.is_over_budget():  # E3: after a refund
            schedule.revive(queue, now)
        schedule.reschedule(queue, now)

    def _count_blocks(self, record: TaskRecord, outcome: str) -> None:
        """O1: count the visits of tasks that were blocked, and are done now."""
        if outcome == "blocked":
            record.blocks += 1
        elif outcome == "done":
            self._state.recovered += 1
            record.blocks = 0

    def _charge(self, record: TaskRecord, queue: Queue, verdict: Verdict) -> None:
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

    def _apply_to_task(self, record: TaskRecord, verdict: Verdict, now: int) -> None:
        """B2: change the state; G3: a revisit is pending as another type, its attempts at 0."""
        record.reason = verdict.reason
        if verdict.reason is not None and verdict.counts:
            record.add_error(now, verdict.reason)
        answer = verdict.answer
        if answer is not None:
            state, queue = self._state, record.queue
            record.answer, record.answered = answer, now
            state.visits_done += 1
            state.bytes += answer.bytes
            queue.visits_done += 1
            queue.bytes += answer.bytes
        if verdict.state is not PENDING:
            record.finished = now
            self._transitions.end_lease(record, verdict.state)
            if verdict.state is DROPPED and record.is_forgotten():
                self._state.forgotten += 1
        elif verdict.revisit is not None:
            self._revisit(record, verdict.revisit, now)
        elif verdict.requeue is not None:
            self._requeue(record, verdict.requeue, now)
        else:
            record.finished = -1
            self._transitions.move(record, PENDING)
            self._transitions.enqueue(record, now + to_ms(verdict.retry_in), now)

    def _revisit(self, record: TaskRecord, revisit: Revisit, now: int) -> None:
        task = msgspec.structs.replace(
            record.task,
            type=revisit.type,
            lane=revisit.lane,
            precedence=revisit.precedence,
            priority=revisit.priority,
            breakdown=revisit.breakdown,
        )
        self._adder.describe(record, task)
        record.history = ()
        self._adder.reinsert(record, revisit.after, now)
        record.finished = now

    def _requeue(self, record: TaskRecord, requeue: Requeue, now: int) -> None:
        """G1: pending again as its worker wants it; C2: it keeps its tie, or is the first."""
        old = record.task
        task = msgspec.structs.replace(
            old,
            type=requeue.type,
            lane=requeue.lane,
            precedence=requeue.precedence,
            priority=requeue.priority,
            breakdown=requeue.breakdown,
            meta=old.meta if requeue.meta is None else requeue.meta,
        )
        if task != old:
            self._adder.describe(record, task)
        tie = 0 if requeue.front else record.key >> NUMBER_BITS & TIE_MASK
        record.key = task_key(task.precedence, task.priority, tie, record.number)
        record.finished = -1
        self._transitions.move(record, PENDING)
        self._transitions.enqueue(record, now + to_ms(requeue.after), now)

    def _apply_politeness(self, queue: Queue, verdict: Verdict, last_delay: float) -> None:
        """D3, D4: set the queue's politeness state from the verdict; None leaves a value alone."""
        old = queue.politeness
        level, calm = old.level, old.calm
        if verdict.level is not None:
            level = verdict.level
        if verdict.calm is not None:
            calm = calm + 1 if verdict.calm else 0
            if 0 < verdict.calm <= calm:  # D3: so many Done in a row lower the level by one
                level, calm = max(0, level - 1), 0
        throttles, unreachable = verdict.throttles_in_row, verdict.unreachable_in_row
        blocks, crawl_delay = verdict.blocks_in_row, verdict.crawl_delay
        queue.politeness = PolitenessState(
            level,
            calm,
            old.throttles_in_row if throttles is None else throttles,
            old.unreachable_in_row if unreachable is None else unreachable,
            old.blocks_in_row if blocks is None else blocks,
            last_delay,
            old.crawl_delay if crawl_delay is None else crawl_delay,
        )
        if crawl_delay is not None:
            queue.update_gap()
        if verdict.outcome == "done":
            queue.errors_in_row = 0
        elif verdict.outcome not in _NO_SIGN:
            queue.errors_in_row += 1


def _drawn_delay(queue: Queue, record: TaskRecord, verdict: Verdict) -> float:
    """D1: return the last delay where leases draw it: that of the last start, or the verdict's.

    A verdict may raise it, since the page or the host asked for more than what was drawn.
    """
    last_delay = queue.politeness.last_delay
    return max(verdict.delay, last_delay) if record.claimed >= queue.last_start else last_delay
