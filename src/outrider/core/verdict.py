"""Verdict: the changes a store must apply after a visit, in plain numbers (G3, H6)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outrider.core.breakdown import Breakdown
from outrider.core.outcome import Answer
from outrider.core.states import TaskState
from outrider.core.task import Added, Task


class Revisit(msgspec.Struct, frozen=True, gc=False):
    """When and as what a done task comes back (G3)."""

    after: float
    type: str
    lane: int
    precedence: int
    priority: float
    breakdown: Breakdown | None


class Requeue(msgspec.Struct, frozen=True, gc=False):
    """When and as what a leased task goes back to its queue, as its worker wants it (G1).

    It keeps its tie; `front`: its tie is 0, before everything else of its precedence and priority.
    """

    after: float
    type: str
    lane: int
    precedence: int
    priority: float
    breakdown: Breakdown | None
    meta: bytes | None = None  # None: as it was
    front: bool = False


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The changes to apply, whole or not at all, with the links of the page (H6)."""

    crawl: str
    task: int
    token: int
    outcome: str  # the outcome's name, for counters and events
    state: TaskState
    delay: float = 0.0  # next-ready is at least the visit's end (or start) + this
    answer: Answer | None = None
    throttles_in_row: int | None = None  # None: leave the queue's count as it is
    unreachable_in_row: int | None = None
    blocks_in_row: int | None = None
    calm: int | None = None  # 0: the row of Done ends; n: one more, the n-th lowers the level
    crawl_delay: float | None = None
    revisit: Revisit | None = None
    level: int | None = None
    counts: bool = True  # the attempt counts, and so its cost stays charged (E3)
    failed: int = 0  # added to the task's failures
    throttled: int = 0  # added to the task's throttles
    retry_in: float = 0.0
    reason: str | None = None
    penalty: int = 0
    touched: bool = (
        True  # False: the host was not visited (from cache), so its politeness state stays
    )
    snooze: float = 0.0  # next-ready is also at least the visit's end + this, for this reason:
    snooze_reason: str | None = None
    retire: str | None = None
    tasks: Sequence[Task] = ()
    requeue: Requeue | None = None


class Finished(msgspec.Struct, frozen=True, gc=False):
    """A store's answer to a verdict; not applied means the lease was lost, and nothing changed."""

    applied: bool
    state: TaskState | None = None  # None: repeated, or not applied
    answers: Sequence[Added] = ()
