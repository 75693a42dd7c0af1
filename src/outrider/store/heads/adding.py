"""Links become tasks: known once, in line at once (B3, B4, C2)."""

from __future__ import annotations

from outrider.clock import to_ms
from outrider.core.order import DUE_BITS, task_key, tie_of
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Added, Task
from outrider.store.heads.ledger import SHARD_MASK
from outrider.store.heads.pricing import Pricing
from outrider.store.heads.records import (
    COLUMNS,
    INACTIVE,
    NEITHER,
    NO_LINE,
    READY,
    Queue,
    Record,
)

PENDING, LEASED = TaskState.PENDING, TaskState.LEASED
_P = COLUMNS[PENDING]


class Adding(Pricing):
    """How tasks come in."""

    def add(self, tasks: list[Task], now: int) -> list[Added]:  # noqa: C901, PLR0912, PLR0915
        """B3, B4, link by link in batch order; the first of the two hot loops."""
        answers: list[Added] = []
        answer, born = answers.append, self.born
        known, keys, kinds, rules = self.known, self.keys, self.kinds, self.rules
        tie, most, most_each = rules.tie, rules.max_pending, rules.max_pending_per_queue
        if self.status is CrawlStatus.CANCELLED:
            return [Added(task.url, False, "cancelled") for task in tasks]
        for task in tasks:
            fingerprint = task.fingerprint
            shard = known[fingerprint[0]]
            old = shard.get(fingerprint)
            if old is not None and not (task.known != "keep" and self._again(old, task, now)):
                answer(Added(task.url, False, "duplicate"))
                continue
            key = task.key
            queue = keys[hash(key) & SHARD_MASK].get(key)
            if (most and self.pending - self.held >= most) or (
                most_each and queue is not None and queue.pending >= most_each
            ):
                answer(Added(task.url, False, "queue-full"))
                continue
            if queue is None:
                queue = self._new_queue(key)
            if self.is_idle:
                self._worked(now)
            if old is not None:
                self._readmit(self.record(old), task, queue, now)
                answer(Added(task.url, True, None, task.priority))
                continue
            self.count = number = self.count + 1
            self.arrivals = arrival = self.arrivals + 1
            order = task_key(
                task.precedence,
                task.priority,
                arrival if tie == "fifo" else tie_of(tie, arrival, task.roll),
                number,
            )
            depth = task.depth
            kind = kinds.get((task.type, task.tag, task.origin, depth if depth < 3 else 3))  # noqa: FURB136 - a call costs more
            if kind is None:
                kind = self._kind(task)
            due = now + to_ms(task.delay) if task.delay else now
            shard[fingerprint] = number
            born(Record(number, task, queue, kind, order, due, now))
            if not kind.is_marked:
                self._mark_kind(kind)
            kind.counts[_P] += 1
            self.pending += 1
            queue.pending += 1
            if queue.retired is not None:
                self.held += 1
            if due > now:
                queue.enter(task.lane, order, due, now)
                self.touch(queue, now)
                answer(Added(task.url, True, None, task.priority))
                continue
            line = queue.lane1 if task.lane else queue.lane0
            entry = order << DUE_BITS | due
            if line is NO_LINE:
                queue.enter(task.lane, order, due, now)
                line = queue.lane1 if task.lane else queue.lane0
            else:
                line.push(entry)
            # A queue that stands ready only needs a look when its lane has a new top.
            if queue.standing == READY:
                if line.head[0] == entry:
                    self._rank(queue)
            elif queue.standing == NEITHER and queue.in_flight < queue.slots:
                self.touch(queue, now)
            elif queue.standing == INACTIVE:
                self.hasten(queue, now)
            answer(Added(task.url, True, None, task.priority))
        return answers

    def _again(self, number: int, task: Task, now: int) -> bool:
        """B3, F10: whether a known task is to be visited again; one that waits may move."""
        old = self.record(number)
        if task.known == "revisit":
            return old.state is not PENDING and old.state is not LEASED
        if old.state is PENDING:
            move = self._raise if task.known == "raise" else self._gather
            move(old, task, now)
        return False

    def _readmit(self, record: Record, task: Task, queue: Queue, now: int) -> None:
        """B3: a done, dead or dropped task becomes pending again, as the new link describes it."""
        self.mark(record.queue)
        self._count_settled(record.queue, record.state, -1)
        self._count_settled(queue, record.state, 1)
        record.queue = queue
        self._describe(record, task)
        record.history, record.reason = (), None
        record.claimed = -1
        self._reinsert(record, task.delay, now)
        self.touch(queue, now)

    def _describe(self, record: Record, task: Task) -> None:
        """Let a task be what this description says, counted with its new kind."""
        column = COLUMNS[record.state]
        self._mark_kind(record.kind)
        record.kind.counts[column] -= 1
        record.task, record.kind, record.body = task, self._kind(task), 0
        self._mark_kind(record.kind)
        record.kind.counts[column] += 1

    def _reinsert(self, record: Record, delay: float, now: int) -> None:
        """C2: inserted anew, so with a new tie; B2: attempts restart at 0."""
        self.arrivals += 1
        task = record.task
        tie = tie_of(self.rules.tie, self.arrivals, task.roll)
        record.key = task_key(task.precedence, task.priority, tie, record.number)
        record.restart()
        self._move(record, PENDING)
        self._line_up(record, now + to_ms(delay), now)

    def _line_up(self, record: Record, due: int, now: int) -> None:
        """Where a pending task waits: with the delayed, or in its lane."""
        record.due = due
        record.queue.enter(record.task.lane, record.key, due, now)
