"""One crawl: what it holds, where its queues stand, how tasks come, go, end and come back."""

from __future__ import annotations

from outrider.core.states import TaskState
from outrider.store.heads.claiming import Claiming
from outrider.store.heads.records import Record
from outrider.store.heads.restoring import Restoring

PENDING, DROPPED = TaskState.PENDING, TaskState.DROPPED


class Crawl(Claiming, Restoring):
    """All of it, with what operators do to single tasks."""

    def drop(self, record: Record, now: int) -> None:
        """C10."""
        record.reason, record.finished = "operator", now
        record.queue.leave(record.task.lane, record.key, record.due)
        self._move(record, DROPPED)
        self.settle(record.queue, now)

    def replay(self, record: Record, now: int) -> None:
        """G2: dead becomes pending in its old place, attempts at 0; the next claim judges it."""
        record.restart()
        self._move(record, PENDING)
        self._line_up(record, now, now)
        self._worked(now)
        self.settle(record.queue, now)

    def purge(self, record: Record, now: int) -> None:  # noqa: ARG002 - as its two neighbours
        """G2."""
        record.reason = "purged"
        self._move(record, DROPPED)
