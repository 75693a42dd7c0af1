"""Task moves, queue states and crawl statuses, as tables (B2, C1, I1).

Stores, documentation and tests read them. A move that is not in the table changes nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TaskState(StrEnum):
    """The state of a task."""

    PENDING = "pending"
    LEASED = "leased"
    DONE = "done"
    DEAD = "dead"
    DROPPED = "dropped"


class QueueState(StrEnum):
    """The state of a queue; derived, the first that holds in this order."""

    RETIRED = "retired"
    PAUSED = "paused"
    EMPTY = "empty"
    BUSY = "busy"
    SNOOZED = "snoozed"
    READY = "ready"
    INACTIVE = "inactive"


class CrawlStatus(StrEnum):
    """The status of a crawl."""

    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"


MOVES: Final[dict[TaskState, frozenset[TaskState]]] = {
    # An add with known="set" moves any task to pending or done; `forget` drops any task.
    TaskState.PENDING: frozenset({TaskState.LEASED, TaskState.DONE, TaskState.DROPPED}),
    TaskState.LEASED: frozenset(
        {TaskState.PENDING, TaskState.DONE, TaskState.DEAD, TaskState.DROPPED}
    ),
    TaskState.DONE: frozenset({TaskState.PENDING, TaskState.DROPPED}),  # a revisit, forget
    # replay or revisit, set as done, purge
    TaskState.DEAD: frozenset({TaskState.PENDING, TaskState.DONE, TaskState.DROPPED}),
    TaskState.DROPPED: frozenset({TaskState.PENDING, TaskState.DONE}),  # a revisit, set as done
}

STATUS_MOVES: Final[dict[CrawlStatus, frozenset[CrawlStatus]]] = {
    CrawlStatus.RUNNING: frozenset(
        {CrawlStatus.PAUSED, CrawlStatus.FINISHED, CrawlStatus.CANCELLED}
    ),
    CrawlStatus.PAUSED: frozenset({CrawlStatus.RUNNING, CrawlStatus.CANCELLED}),
    CrawlStatus.FINISHED: frozenset({CrawlStatus.RUNNING, CrawlStatus.CANCELLED}),
    CrawlStatus.CANCELLED: frozenset(),
}

# What an operator may ask for: only work starts a new run, and only a claim finishes one (I2).
OPERATOR_MOVES: Final[dict[CrawlStatus, frozenset[CrawlStatus]]] = {
    CrawlStatus.RUNNING: frozenset({CrawlStatus.PAUSED, CrawlStatus.CANCELLED}),
    CrawlStatus.PAUSED: frozenset({CrawlStatus.RUNNING, CrawlStatus.CANCELLED}),
    CrawlStatus.FINISHED: frozenset({CrawlStatus.CANCELLED}),
    CrawlStatus.CANCELLED: frozenset(),
}

RETIRED_REASONS: Final = ("budget", "quota", "unreachable", "throttled", "operator")
FORGOTTEN: Final = "forgotten"  # the reason of dropped tasks that the next add admits again (C10)
DELETING: Final = "deleting"  # the reason of a cancelled crawl that is being removed (I1)
UNKNOWN: Final = "unknown"  # of one that does not exist, or not any more, which shows as cancelled
SNOOZED_REASONS: Final = ("delay", "throttled", "unreachable", "blocked", "waiting", "operator")


def may_move(before: TaskState, after: TaskState) -> bool:
    """Tell whether the table allows the move."""
    return after in MOVES[before]
