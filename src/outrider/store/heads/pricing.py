"""Another priority for a task that waits: raised, gathered or repriced (B3, C8, F10).

It keeps its tie and its due time, so only its place in its line changes, and with that perhaps its
queue's; no alarm moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Final

from msgspec.structs import replace

from outrider.core.order import (
    DUE_BITS,
    NUMBER_BITS,
    TASK_RANK_SHIFT,
    TIE_BITS,
    rank,
    task_key,
)
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Task
from outrider.store.heads.records import INACTIVE, READY, Record
from outrider.store.heads.standing import Standing
from outrider.store.protocol import PriorityUpdate

PENDING: Final = TaskState.PENDING
_TAIL: Final = (1 << NUMBER_BITS + TIE_BITS) - 1
_TOP_SHIFT: Final = TASK_RANK_SHIFT + DUE_BITS  # from an entry of a lane to its rank


class Pricing(Standing):
    """How tasks move within their queue."""

    def reprice(self, prices: Sequence[PriorityUpdate], now: int) -> int:
        """C8: how many were pending at the priority seen; a cancelled crawl has none (I3).

        A hot loop: a million tasks are thought of again while claims go on.
        """
        if self.status is CrawlStatus.CANCELLED:
            return 0
        count, most, moved = 0, self.count, {}
        record_of, changed = self.record, self.changed
        for price in prices:
            record = record_of(price.task) if 0 < price.task <= most else None
            if record is None or record.state is not PENDING or record.task.priority != price.seen:
                continue
            task, queue, old = record.task, record.queue, record.key
            key = task_key(task.precedence, price.priority, 0, 0) | old & _TAIL
            record.left, record.body, record.key = record.left or old, 0, key
            record.task = replace(task, priority=price.priority, breakdown=price.breakdown)
            if key != old:
                head = (queue.lane1 if task.lane else queue.lane0).head
                top = head[0] >> _TOP_SHIFT if head else -1
                queue.move(task.lane, old, key, record.due, now)
                head = (queue.lane1 if task.lane else queue.lane0).head
                if queue.standing == INACTIVE:
                    self.hasten(queue, now)
                elif queue.standing == READY and head and head[0] >> _TOP_SHIFT != top:
                    moved[queue.number] = queue
            changed(record)
            count += 1
        for queue in moved.values():  # once for all of its tasks: places among the ready are dear
            self._rank(queue)
        return count

    def _raise(self, record: Record, task: Task, now: int) -> None:
        """B3: a better priority moves a pending task forward, never back."""
        if rank(task_key(task.precedence, task.priority, 0, 0)) < rank(record.key):
            raised = replace(
                record.task,
                precedence=task.precedence,
                priority=task.priority,
                breakdown=task.breakdown,
            )
            self._describe_anew(record, raised, now)

    def _gather(self, record: Record, task: Task, now: int) -> None:
        """F10: what a link brings is added, if it moves the task forward."""
        total = record.task.priority + task.priority
        if task.priority < 0 and isfinite(total):
            self._describe_anew(record, replace(record.task, priority=total), now)

    def _describe_anew(self, record: Record, task: Task, now: int) -> None:
        if self._stand_elsewhere(record, task, now):
            self._rank(record.queue)

    def _stand_elsewhere(self, record: Record, task: Task, now: int) -> bool:
        """C2: a task gets the place its priority gives it; whether its queue is to be ranked."""
        queue, old = record.queue, record.key
        record.key = key = task_key(task.precedence, task.priority, 0, 0) | old & _TAIL
        record.left, record.body, record.task = record.left or old, 0, task
        if key != old:
            queue.move(task.lane, old, key, record.due, now)
        self.changed(record)
        if queue.standing == INACTIVE:
            self.hasten(queue, now)
        return queue.standing == READY
