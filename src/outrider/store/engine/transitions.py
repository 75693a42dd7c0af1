"""State changes of tasks: the one place, but for the hot loops, where they are counted (B2, O5)."""

from __future__ import annotations

from typing import final

from outrider.core.states import TaskState
from outrider.store.engine.leases import Leases
from outrider.store.engine.port import TaskTable
from outrider.store.engine.records import COLUMNS, Queue, TaskRecord
from outrider.store.engine.state import CrawlState

PENDING, LEASED, DONE, DEAD = TaskState.PENDING, TaskState.LEASED, TaskState.DONE, TaskState.DEAD
_LEASED = COLUMNS[LEASED]


@final
class Transitions:
    """Moves tasks between states; the counts of types, queues and crawl agree at all times."""

    __slots__ = ("_held", "_state", "_update")

    def __init__(self, state: CrawlState, leases: Leases, tasks: TaskTable) -> None:
        self._state, self._held, self._update = state, leases.held, tasks.update

    def move(self, record: TaskRecord, after: TaskState) -> None:
        """Move a task from any state to any other."""
        state, before, queue, counts = self._state, record.state, record.queue, record.counts
        state.mark_dirty(queue)
        state.mark_counts_dirty(counts)
        record.state = after
        counts.by_state[COLUMNS[before]] -= 1
        counts.by_state[COLUMNS[after]] += 1
        self.count(queue, before, -1)
        self.count(queue, after, 1)
        if before is LEASED:
            del self._held[record.number]
            record.drawn = -1.0
        elif before is PENDING:
            state.count_priority(record.task.priority, -1)
        if after is PENDING:
            state.count_priority(record.task.priority, 1)
        self._update(record)

    def end_lease(self, record: TaskRecord, after: TaskState) -> None:
        """Move a leased task to done, dead or dropped: the frequent case of `move`.

        The caller has marked the queue dirty.
        """
        queue, counts, state = record.queue, record.counts, self._state
        if not counts.is_dirty:
            state.mark_counts_dirty(counts)
        by_state = counts.by_state
        record.state = after
        record.drawn = -1.0
        del self._held[record.number]
        self._update(record)
        by_state[_LEASED] -= 1
        by_state[COLUMNS[after]] += 1
        state.leased -= 1
        queue.in_flight -= 1
        count_final(queue, after, 1)

    def count(self, queue: Queue, state: TaskState, by: int) -> None:
        """Add to a queue's and its crawl's number of tasks in a state."""
        totals = self._state
        if state is LEASED:
            totals.leased += by
            queue.in_flight += by
        elif state is PENDING:
            totals.pending += by
            queue.pending += by
            totals.retired_pending += by if queue.retired is not None else 0
        else:
            count_final(queue, state, by)

    def enqueue(self, record: TaskRecord, due: int, now: int) -> None:
        """Insert a pending task into its lane, or into the delayed list."""
        record.due = due
        record.queue.enter(record.task.lane, record.key, due, now)


def count_final(queue: Queue, state: TaskState, by: int) -> None:
    """Add to a queue's number of done, dead or dropped tasks."""
    if state is DONE:
        queue.done += by
    elif state is DEAD:
        queue.dead += by
    else:
        queue.dropped += by
