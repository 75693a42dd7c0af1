"""Priority updates: another priority for a pending task (B3, C8, F10).

A task keeps its tie and its due time, so only its place in its list changes, and perhaps that of
its queue in the ready list; no wake time changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Final, final

from msgspec.structs import replace

from outrider.core.order import NUMBER_BITS, TIE_BITS, rank, task_key
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Task
from outrider.store.engine.port import TaskTable
from outrider.store.engine.records import INACTIVE, READY, TaskRecord
from outrider.store.engine.schedule import RANK_SHIFT, Schedule
from outrider.store.engine.state import CrawlState
from outrider.store.protocol import PriorityUpdate

PENDING: Final = TaskState.PENDING
_TIE_AND_NUMBER: Final = (1 << NUMBER_BITS + TIE_BITS) - 1


@final
class Priorities:
    """Moves pending tasks within their queues."""

    __slots__ = ("_schedule", "_state", "_tasks")

    def __init__(self, state: CrawlState, tasks: TaskTable, schedule: Schedule) -> None:
        self._state, self._tasks, self._schedule = state, tasks, schedule

    def update(  # noqa: C901 - a hot loop
        self, updates: Sequence[PriorityUpdate], now: int
    ) -> int:
        """C8: return how many tasks were pending at the priority seen; cancelled: none (I3).

        A hot loop: a rescoring passes a million tasks through here between claims.
        """
        state = self._state
        if state.status is CrawlStatus.CANCELLED:
            return 0
        count, last, moved = 0, state.last_task, {}
        self._tasks.load([update.task for update in updates])
        get, save, schedule = self._tasks.get, self._tasks.update, self._schedule
        for update in updates:
            if not 0 < update.task <= last:
                continue
            try:
                record = get(update.task)
            except KeyError:  # a gap in the numbers
                continue
            if record.state is not PENDING or record.task.priority != update.seen:
                continue
            task, queue, old = record.task, record.queue, record.key
            key = task_key(task.precedence, update.priority, 0, 0) | old & _TIE_AND_NUMBER
            record.stored_key, record.body_page = record.stored_key or old, 0
            record.key = key
            state.count_priority(task.priority, -1)
            state.count_priority(update.priority, 1)
            record.task = replace(task, priority=update.priority, breakdown=update.breakdown)
            if key != old:
                head = (queue.lane1 if task.lane else queue.lane0).head
                first = head[0] >> RANK_SHIFT if head else -1
                queue.rekey(task.lane, old, key, record.due, now)
                head = (queue.lane1 if task.lane else queue.lane0).head
                if queue.list_state == INACTIVE:
                    schedule.activate_for_focus(queue, now)
                elif queue.list_state == READY and head and head[0] >> RANK_SHIFT != first:
                    moved[queue.number] = queue
            save(record)
            count += 1
        for queue in moved.values():  # once for all tasks of a queue: ready keys are costly
            schedule.update_ready_keys(queue)
        return count

    def raise_to(self, record: TaskRecord, task: Task, now: int) -> None:
        """B3: give a pending task a better priority, never a worse one."""
        if rank(task_key(task.precedence, task.priority, 0, 0)) < rank(record.key):
            raised = replace(
                record.task,
                precedence=task.precedence,
                priority=task.priority,
                breakdown=task.breakdown,
            )
            self._change(record, raised, now)

    def add_to(self, record: TaskRecord, task: Task, now: int) -> None:
        """F10: add a link's priority to a pending task's, if that moves the task forward."""
        total = record.task.priority + task.priority
        if task.priority < 0 and isfinite(total):
            self._change(record, replace(record.task, priority=total), now)

    def _change(self, record: TaskRecord, task: Task, now: int) -> None:
        """C2: replace a pending task and move it to the place of its priority."""
        queue, old = record.queue, record.key
        record.key = key = task_key(task.precedence, task.priority, 0, 0) | old & _TIE_AND_NUMBER
        record.stored_key, record.body_page = record.stored_key or old, 0
        self._state.count_priority(record.task.priority, -1)
        self._state.count_priority(task.priority, 1)
        record.task = task
        if key != old:
            queue.rekey(task.lane, old, key, record.due, now)
        self._tasks.update(record)
        if queue.list_state == INACTIVE:
            self._schedule.activate_for_focus(queue, now)
        if queue.list_state == READY:
            self._schedule.update_ready_keys(queue)
