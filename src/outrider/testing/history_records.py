"""What a history remembers: visits, tasks, queues and crawls, as calls and answers told them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import TypeAlias

from outrider.core.policy.politeness import min_delay_between
from outrider.core.policy.rules import QueueRules
from outrider.core.task import LeaseId


def whole_ms(seconds: float) -> int:
    """H7: whole milliseconds, waits rounded up."""
    return ceil(seconds * 1000 - 1e-6)


@dataclass(slots=True, eq=False)
class Visit:
    """One lease, from claim to end."""

    id: LeaseId
    key: str
    cost: int
    started: int
    deadline: int
    named: bool = False  # D5: lent by name, so it takes no slot and does not touch its host
    loan: int = 0  # C7: the claim that lent its queue; 0: none did
    fate: str = "held"  # held, closing, applied, released, lost, unsure

    def began(self, now: int) -> int:
        """D5, C7: whoever need not visit at once may have begun just now."""
        return now if self.named or self.loan else self.started

    def is_valid(self, now: int) -> bool:
        """Whether nobody else may have its task."""
        return self.fate == "held" and self.deadline > now


@dataclass(slots=True, eq=False)
class Entry:
    """A task as its history tells; `version` outdates what stands of it in a line."""

    url: str
    key: str
    lane: int
    place: tuple[int, float]
    arrival: int
    due: int
    is_pending: bool = True
    is_sure: bool = True  # that it is pending, and where
    version: int = 0
    visit: Visit | None = None

    def stands_as(self, version: int) -> bool:
        """Whether what was put in line is still true of it."""
        return self.version == version and self.is_pending and self.is_sure


# Where it stands, and when; its number, its version and itself.
Ripe: TypeAlias = tuple[tuple[int, float], int, int, int, Entry]
Unripe: TypeAlias = tuple[int, int, int, int, Entry]


@dataclass(slots=True, eq=False)
class Line:
    """A queue as its history tells."""

    rules: QueueRules | None = None  # as of the last lease; None: changed since, or none yet
    not_before: int = 0
    last_start: int = 0
    last_lease: int | None = None  # D5: not by name
    last_end: int | None = None
    last_delay: float = -1.0
    crawl_delay: float = 0.0
    charged: int = 0  # costs less refunds
    penalties: int = 0
    was_parallel: bool = False
    loan: int = 0  # C7: the last claim that lent it
    losses: int = 0  # of that loan
    ripe: dict[int, list[Ripe]] = field(default_factory=dict)  # heaps, one a lane
    unripe: dict[int, list[Unripe]] = field(default_factory=dict)

    def postpone(self, until: int) -> None:
        """D1: it never moves back."""
        self.not_before = max(self.not_before, until)

    def ended(self, start: int, now: int, delay: float) -> None:
        """D1: end (or start) + delay; the earlier of the two if the rules are not known."""
        from_end = self.rules is not None and self.rules.politeness.count_from == "end"
        self.postpone((now if from_end else start) + whole_ms(delay))
        self.last_start, self.last_end = max(start, self.last_start), now

    def usual_delay(self) -> float:
        """D7: the last delay, or the least if none."""
        if self.last_delay >= 0:
            return self.last_delay
        return min_delay_between(self.rules.politeness, self.crawl_delay) if self.rules else 0.0

    def wake(self) -> None:
        """D1: back to the last visit's end (or start) + delay."""
        if self.rules is None:
            self.not_before = 0
            return
        manners, floor = self.rules.politeness, 0
        if self.last_end is not None:
            from_end = manners.count_from == "end"
            floor = (self.last_end if from_end else self.last_start) + whole_ms(self.usual_delay())
        self.not_before = min(self.not_before, floor)


@dataclass(slots=True, eq=False)
class Book:
    """A crawl as its history tells."""

    entries: dict[bytes, Entry] = field(default_factory=dict)
    numbers: dict[int, Entry] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    visits: dict[LeaseId, Visit] = field(default_factory=dict)
    open: dict[LeaseId, Visit] = field(default_factory=dict)  # those that may still hold
    ties: str = "fifo"
    arrivals: int = 0
    applied: int = 0
    crashes: int = 0  # at most so many were counted
    is_whole: bool = True  # everything known was added through us
    is_finished: bool = False

    def line(self, key: str) -> Line:
        """The queue of that key."""
        return self.lines.setdefault(key, Line())

    def held(self, now: int) -> Iterator[Visit]:
        """The leases nobody else may have."""
        return (visit for visit in self.open.values() if visit.is_valid(now))

    def overdue(self, now: int) -> list[Visit]:
        """The leases that may be taken back, in the order of H4."""
        fates = ("held", "unsure")
        late = [v for v in self.open.values() if v.fate in fates and v.deadline <= now]
        return sorted(late, key=lambda visit: (visit.deadline, visit.id.task))

    def mark(self, visit: Visit, fate: str) -> None:
        """What became of a lease."""
        visit.fate = fate
        if fate in ("applied", "released", "lost"):
            self.open.pop(visit.id, None)
