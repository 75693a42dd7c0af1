"""One crawl in memory: what it holds, where its queues stand, how tasks come, go and end."""

from __future__ import annotations

from outrider.core.states import TaskState
from outrider.store.memory.claiming import Claiming
from outrider.store.memory.records import Record

PENDING, DROPPED = TaskState.PENDING, TaskState.DROPPED


class Crawl(Claiming):
    """All of it, with what operators do to single tasks."""

    def drop(self, record: Record, now: int) -> None:
        """C10."""
        record.reason, record.finished = "operator", now
        record.queue.has_stale = True
        self._move(record, DROPPED)
        self.settle(record.queue, now)

    def replay(self, record: Record, now: int) -> None:
        """G2: dead becomes pending in its old place, attempts at 0; the next claim judges it."""
        record.restart()
        self._move(record, PENDING)
        self._line_up(record, now, now)
        self._worked(now)
        self.settle(record.queue, now)

    def purge(self, record: Record) -> None:
        """G2."""
        record.reason = "purged"
        self._move(record, DROPPED)
