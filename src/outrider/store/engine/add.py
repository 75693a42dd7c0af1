"""Adding tasks: links become tasks, known once and pending at once (B3, B4, C2)."""

from __future__ import annotations

from typing import final

from outrider.clock import to_ms
from outrider.core.order import DUE_BITS, task_key, tie_of
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import HIGH, LOW, Added, Task
from outrider.store.engine.port import QueueTable, TaskTable
from outrider.store.engine.priorities import Priorities
from outrider.store.engine.records import (
    COLUMNS,
    EMPTY_LIST,
    INACTIVE,
    READY,
    SHARD_MASK,
    UNLISTED,
    Queue,
    TaskRecord,
)
from outrider.store.engine.schedule import Schedule
from outrider.store.engine.state import CrawlState
from outrider.store.engine.transitions import Transitions, count_final

PENDING, LEASED = TaskState.PENDING, TaskState.LEASED
_PENDING = COLUMNS[PENDING]


@final
class Adder:
    """Inserts new tasks, and makes known ones pending again."""

    __slots__ = ("_priorities", "_queues", "_schedule", "_state", "_tasks", "_transitions")

    def __init__(
        self,
        state: CrawlState,
        tasks: TaskTable,
        queues: QueueTable,
        schedule: Schedule,
        transitions: Transitions,
        priorities: Priorities,
    ) -> None:
        self._state, self._tasks, self._queues = state, tasks, queues
        self._schedule, self._transitions, self._priorities = schedule, transitions, priorities

    def add(self, tasks: list[Task], now: int) -> list[Added]:  # noqa: C901, PLR0912, PLR0915
        """B3, B4: add tasks in batch order; the first of the two hot loops."""
        state, schedule = self._state, self._schedule
        if state.status is CrawlStatus.CANCELLED:
            return [Added(task.url, False, "cancelled") for task in tasks]
        answers: list[Added] = []
        answer, insert = answers.append, self._tasks.insert
        known, by_key, rules = self._tasks.known, self._queues.by_key, state.rules
        task_counts = state.task_counts
        tie, limit, queue_limit = rules.tie, rules.max_pending, rules.max_pending_per_queue
        for task in tasks:
            fingerprint = task.fingerprint
            shard = known[fingerprint[0]]
            old = shard.get(fingerprint)
            if old is not None and not (task.known != "keep" and self._is_again(old, task, now)):
                answer(Added(task.url, False, "duplicate"))
                continue
            key = task.key
            queue = by_key[hash(key) & SHARD_MASK].get(key)
            if (limit and state.pending - state.retired_pending >= limit) or (
                queue_limit and queue is not None and queue.pending >= queue_limit
            ):
                answer(Added(task.url, False, "queue-full"))
                continue
            if queue is None:
                queue = self.new_queue(key)
            if state.is_idle:
                state.start_run(now)
            if old is not None:
                self._readmit(self._tasks.get(old), task, queue, now)
                answer(Added(task.url, True, None, task.priority))
                continue
            state.last_task = number = state.last_task + 1
            state.last_arrival = arrival = state.last_arrival + 1
            order = task_key(
                task.precedence,
                task.priority,
                arrival if tie == "fifo" else tie_of(tie, arrival, task.roll),
                number,
            )
            depth = task.depth
            counts = task_counts.get((task.type, task.tag, task.origin, depth if depth < 3 else 3))  # noqa: FURB136 - a call costs more
            if counts is None:
                counts = state.counts_of(task)
            due = now + to_ms(task.delay) if task.delay else now
            shard[fingerprint] = number
            insert(TaskRecord(number, task, queue, counts, order, due, now))
            if not counts.is_dirty:
                state.mark_counts_dirty(counts)
            counts.by_state[_PENDING] += 1
            state.pending += 1
            queue.pending += 1
            if not HIGH < task.priority < LOW:
                state.count_priority(task.priority, 1)
            if queue.retired is not None:
                state.retired_pending += 1
            if due > now:
                queue.enter(task.lane, order, due, now)
                schedule.reschedule(queue, now)
                answer(Added(task.url, True, None, task.priority))
                continue
            lane = queue.lane1 if task.lane else queue.lane0
            entry = order << DUE_BITS | due
            if lane is EMPTY_LIST:
                queue.enter(task.lane, order, due, now)
                lane = queue.lane1 if task.lane else queue.lane0
            else:
                lane.push(entry)
            # A ready queue only needs another key when its lane has a new first task.
            if queue.list_state == READY:
                if lane.head[0] == entry:
                    schedule.update_ready_keys(queue)
            elif queue.list_state == UNLISTED and queue.in_flight < queue.slots:
                schedule.reschedule(queue, now)
            elif queue.list_state == INACTIVE:
                schedule.activate_for_focus(queue, now)
            answer(Added(task.url, True, None, task.priority))
        return answers

    def new_queue(self, key: str) -> Queue:
        """Create the queue of a key under its rules."""
        state = self._state
        state.last_queue += 1
        state.last_turn += 1
        rules = state.rules.of(key)
        queue = self._queues.create(key, state.last_queue, state.last_turn, rules, state.epoch)
        state.mark_dirty(queue)
        return queue

    def _is_again(self, number: int, task: Task, now: int) -> bool:
        """B3, F10: whether a known task is to be visited again; a pending one may move."""
        old = self._tasks.get(number)
        if task.known == "revisit":
            return old.state is not PENDING and old.state is not LEASED
        if old.state is PENDING:
            priorities = self._priorities
            change = priorities.raise_to if task.known == "raise" else priorities.add_to
            change(old, task, now)
        return False

    def _readmit(self, record: TaskRecord, task: Task, queue: Queue, now: int) -> None:
        """B3: make a done, dead or dropped task pending again, as the new link describes it."""
        self._state.mark_dirty(record.queue)
        count_final(record.queue, record.state, -1)
        count_final(queue, record.state, 1)
        record.queue = queue
        self.describe(record, task)
        record.history, record.reason = (), None
        record.claimed = -1
        self.reinsert(record, task.delay, now)
        self._schedule.reschedule(queue, now)

    def describe(self, record: TaskRecord, task: Task) -> None:
        """Replace a record's task, and count it with its new type, tag, origin and depth."""
        state, column = self._state, COLUMNS[record.state]
        state.mark_counts_dirty(record.counts)
        record.counts.by_state[column] -= 1
        if record.state is PENDING:
            state.count_priority(record.task.priority, -1)
            state.count_priority(task.priority, 1)
        record.task, record.counts, record.body_page = task, state.counts_of(task), 0
        state.mark_counts_dirty(record.counts)
        record.counts.by_state[column] += 1

    def reinsert(self, record: TaskRecord, delay: float, now: int) -> None:
        """C2: make a task pending with a new tie; B2: attempts restart at 0."""
        state, task = self._state, record.task
        state.last_arrival += 1
        tie = tie_of(state.rules.tie, state.last_arrival, task.roll)
        record.key = task_key(task.precedence, task.priority, tie, record.number)
        record.restart()
        self._transitions.move(record, PENDING)
        self._transitions.enqueue(record, now + to_ms(delay), now)
        self._tasks.set_tie(record)
