"""The held leases of one crawl, and their deadlines."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import islice
from typing import final

from outrider.core.order import NUMBER_BITS, NUMBER_MASK
from outrider.store.engine.records import TaskRecord


@final
class Leases:
    """Leased tasks by number, in the order they were leased, and a heap of deadlines.

    An entry of the heap is valid only while its task is leased until that deadline, so that no
    entry is ever searched for. Other parts capture `held` and `deadlines`: never rebind them.
    """

    __slots__ = ("deadlines", "held")

    def __init__(self) -> None:
        self.held: dict[int, TaskRecord] = {}
        self.deadlines: list[int] = []

    def set_deadline(self, record: TaskRecord, deadline: int) -> None:
        """H2: let a lease last until then."""
        record.deadline = deadline
        heappush(self.deadlines, deadline << NUMBER_BITS | record.number)

    def page(self, after: int, limit: int) -> tuple[list[TaskRecord], int | None]:
        """H1: return the next leases after a turn, and the turn to go on from; None: no more."""
        later = (record for record in self.held.values() if record.lease_turn > after)
        found = list(islice(later, limit + 1))
        return found[:limit], found[limit - 1].lease_turn if len(found) > limit else None

    def next_deadline(self) -> int | None:
        """Return the earliest deadline of a held lease."""
        deadlines, held = self.deadlines, self.held
        while deadlines:
            record = held.get(deadlines[0] & NUMBER_MASK)
            if record is not None and record.deadline == deadlines[0] >> NUMBER_BITS:
                return record.deadline
            heappop(deadlines)
        return None

    def pop_overdue(self, now: int) -> TaskRecord | None:
        """H4: return the next overdue lease in (deadline, arrival) order; the caller ends it."""
        deadline = self.next_deadline()
        if deadline is None or deadline > now:
            return None
        return self.held[heappop(self.deadlines) & NUMBER_MASK]
