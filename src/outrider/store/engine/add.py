"""Adding tasks: links become tasks, known once and pending at once (B3, B4, C2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from msgspec.structs import replace

from outrider.clock import to_ms
from outrider.core.order import DUE_BITS, task_key, tie_of
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import HIGH, LOW, Added, Task
from outrider.store.byte_limits import MAX_SHORT_URL
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
from outrider.store.engine.transitions import Transitions

PENDING, LEASED, DONE = TaskState.PENDING, TaskState.LEASED, TaskState.DONE
_PENDING = COLUMNS[PENDING]


@final
class Adder:
    """Inserts new tasks, and makes known ones pending again."""

    __slots__ = (
        "_priorities",
        "_queues",
        "_schedule",
        "_state",
        "_tasks",
        "_transitions",
        "release",
    )

    release: Callable[[TaskRecord, int], None]  # H5: the finisher's, set when the engine is built

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

    def add(  # noqa: C901, PLR0912, PLR0915
        self, tasks: list[Task], now: int, finishing: int = 0
    ) -> list[Added]:
        """B3, B4: add tasks in batch order; the first of the two hot loops.

        `finishing` is the task whose page has these links; 0: none.
        """
        state, schedule = self._state, self._schedule
        if state.status is CrawlStatus.CANCELLED:
            return [Added(task.url, False, "cancelled") for task in tasks]
        answers: list[Added] = []
        answer, insert = answers.append, self._tasks.insert
        known, by_key, rules = self._tasks.known, self._queues.by_key, state.rules
        task_counts = state.task_counts
        tie, limit, queue_limit = rules.tie, rules.max_pending, rules.max_pending_per_queue
        has_forgotten, notes_texts = state.forgotten > 0, not state.has_long_texts
        for task in tasks:
            fingerprint = task.fingerprint
            shard = known[fingerprint[0]]
            old = shard.get(fingerprint)
            if old is not None and not (
                (task.known != "keep" and self._is_again(old, task, now, finishing))
                or (has_forgotten and self._tasks.is_forgotten(old))
            ):
                answer(Added(task.url, False, "duplicate"))
                continue
            key = task.key
            queue = by_key[hash(key) & SHARD_MASK].get(key)
            if (
                (limit and state.pending - state.retired_pending >= limit)
                or (queue_limit and queue is not None and queue.pending >= queue_limit)
            ) and not self._adds_no_pending(old, task):
                answer(Added(task.url, False, "queue-full"))
                continue
            if old is not None or task.done:
                self._admit_known(old, task, now)
                answer(Added(task.url, True, None, task.priority))
                continue
            if queue is None:
                queue = self.new_queue(key)
            if state.is_idle:
                state.start_run(now)
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
            if notes_texts and (task.meta or task.text or len(task.url) > MAX_SHORT_URL):
                state.has_long_texts, notes_texts = True, False  # `note_texts` written out
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

    def _is_again(self, number: int, task: Task, now: int, finishing: int) -> bool:
        """B3, F10: whether a known task becomes what the link says; a pending one may move."""
        if task.known == "set":
            return number != finishing  # H6: a page does not set itself
        old = self._tasks.get(number)
        if task.known == "revisit":
            return old.state is not PENDING and old.state is not LEASED
        if old.state is PENDING:
            priorities = self._priorities
            change = priorities.raise_to if task.known == "raise" else priorities.add_to
            change(old, task, now)
        return False

    def _adds_no_pending(self, number: int | None, task: Task) -> bool:
        """B4: whether a limit of pending tasks does not concern this one."""
        return task.done or (number is not None and self._tasks.get(number).state is PENDING)

    def _admit_known(self, number: int | None, task: Task, now: int) -> None:
        """B3: change a known task into what a link says, or make a URL known as done."""
        record = None if number is None else self._tasks.get(number)
        if record is not None and record.state is LEASED:
            self.release(record, now)
        queue = self._queues.find(task.key) or self.new_queue(task.key)
        is_done = task.done
        task = replace(task, done=False) if is_done else task
        if record is None:
            self._insert_done(task, queue, now)
            return
        self._readmit(record, task, queue, now, is_done=is_done)

    def _insert_done(self, task: Task, queue: Queue, now: int) -> None:
        """B3: a URL becomes known as done now, without a visit."""
        state, fingerprint = self._state, task.fingerprint
        state.last_task = number = state.last_task + 1
        key, due = self._new_key(task, number), now + to_ms(task.delay)
        state.note_texts(task)
        counts = state.counts_of(task)
        record = TaskRecord(number, task, queue, counts, key, due, now, DONE, finished=now)
        self._tasks.known[fingerprint[0]][fingerprint] = number
        self._tasks.insert(record)
        self._tasks.update(record)
        state.mark_counts_dirty(counts)
        counts.by_state[COLUMNS[DONE]] += 1
        state.mark_dirty(queue)
        self._transitions.count(queue, DONE, 1)

    def _readmit(
        self, record: TaskRecord, task: Task, queue: Queue, now: int, *, is_done: bool
    ) -> None:
        """B3: make a known task that is not leased what the new link says: pending, or done."""
        state, transitions, schedule = self._state, self._transitions, self._schedule
        old, was_pending = record.queue, record.state is PENDING
        state.forgotten -= record.is_forgotten()
        state.mark_dirty(old)
        if was_pending:
            self._leave_queue(record)
        transitions.count(old, record.state, -1)
        transitions.count(queue, record.state, 1)
        if old is not queue:
            record.queue = queue
            self._tasks.set_queue(record)
        self.describe(record, task)
        record.history, record.reason = (), None
        record.claimed = -1
        if is_done:
            self._end_as_done(record, now)
        if was_pending and (is_done or old is not queue):
            schedule.refresh(old, now)
        if is_done:
            return
        if state.is_idle:
            state.start_run(now)
        self.reinsert(record, task.delay, now)
        schedule.reschedule(queue, now)

    def _leave_queue(self, record: TaskRecord) -> None:
        """Take a pending task out of its list, and note the entry that may be stored of it."""
        queue, lane = record.queue, record.task.lane
        queue.leave(lane, record.key, record.due)
        stored = record.stored_key or record.key
        record.left = record.left or (queue.number, lane, stored, record.due)
        record.stored_key = 0

    def _end_as_done(self, record: TaskRecord, now: int) -> None:
        record.key = self._new_key(record.task, record.number)
        record.restart()
        self._transitions.move(record, DONE)
        record.due, record.finished = now + to_ms(record.task.delay), now
        self._tasks.set_tie(record)

    def _new_key(self, task: Task, number: int) -> int:
        """C2: return an order key with a new tie."""
        state = self._state
        state.last_arrival += 1
        tie = tie_of(state.rules.tie, state.last_arrival, task.roll)
        return task_key(task.precedence, task.priority, tie, number)

    def describe(self, record: TaskRecord, task: Task) -> None:
        """Replace a record's task, and count it with its new type, tag, origin and depth."""
        state, column = self._state, COLUMNS[record.state]
        state.note_texts(task)
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
        record.key = self._new_key(record.task, record.number)
        record.restart()
        self._transitions.move(record, PENDING)
        self._transitions.enqueue(record, now + to_ms(delay), now)
        self._tasks.set_tie(record)
