"""The choice of the next queue among candidates: lane, activation, or the end of the claim.

One pure step shared by every store that can call Python (C3, C4, E2). The store passes the best
key of each lane and of the inactive list, and does what the step returns.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from outrider.core.order import queue_precedence
from outrider.core.task import DISCOVERY

NOTHING: Final = -1
ACTIVATE: Final = -2


class Streak(NamedTuple):
    """The leases in a row that a claimer took from a lane; it travels with its claims (C4)."""

    lane: int = DISCOVERY
    taken: int = 0


def pick(
    first: int, second: int, head: int | None, lane: int, count: int, burst: int
) -> tuple[int, int]:
    """Return the next step (NOTHING, ACTIVATE, or the lane to lease from) and the count after it.

    `first` and `second` are the smallest queue keys of the two lanes (0: no ready queue), `head` is
    the precedence of the best inactive queue; lane and count are the streak so far.
    """
    if head is not None and not _has_precedence(first, head) and not _has_precedence(second, head):
        return ACTIVATE, count  # E2: no ready queue of its precedence or better
    if count >= burst:
        lane, count = 1 - lane, 0
    if second if lane else first:
        return lane, count + 1
    if first if lane else second:
        return 1 - lane, 1  # C4: an empty lane is passed at once, and the count restarts
    return NOTHING, count


def _has_precedence(top: int, head: int) -> bool:
    return top != 0 and queue_precedence(top) <= head
