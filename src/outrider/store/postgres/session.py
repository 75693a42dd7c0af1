"""The session of one crawl in one transaction: its rows, its locks, and provisional numbers.

What a verb creates gets provisional numbers, which count from far above. They are replaced by
numbers of the sequences when the verb is written: so the numbers are dense while one process works
alone, and no transaction locks a counter. Arrivals are estimated instead: ties made of them are
compared with ties of other rules, and must compare as the final ones will.
"""

from __future__ import annotations

from typing import Final, final

from outrider.core.order import NUMBER_BITS, TURN_BITS, tie_of
from outrider.store.postgres import sql
from outrider.store.postgres.pipeline import Pipeline

# Larger numbers are provisional.
LAST_TASK: Final = 1 << NUMBER_BITS - 1
LAST_QUEUE: Final = 1 << NUMBER_BITS - 1
LAST_TURN: Final = 1 << TURN_BITS - 1


class NeedsExclusiveLock(Exception):
    """The crawl itself changes, and the verb shares it: run it again with an exclusive lock."""


@final
class ProvisionalIds:
    """The numbers that the sequences gave, in the order in which they were asked for."""

    __slots__ = ("arrivals", "first_arrival", "new_ties", "queues", "tasks", "turns")

    def __init__(self) -> None:
        self.tasks: list[int] = []
        self.queues: list[int] = []
        self.turns: list[int] = []
        self.arrivals: list[int] = []
        self.first_arrival = 0  # the last arrival before the verb
        self.new_ties: dict[int, int] = {}  # tasks with a new tie: the arrival it was made of

    def task(self, number: int) -> int:
        """Return the final number of a task."""
        return number if number <= LAST_TASK else self.tasks[number - LAST_TASK - 1]

    def queue(self, number: int) -> int:
        """Return the final number of a queue."""
        return number if number <= LAST_QUEUE else self.queues[number - LAST_QUEUE - 1]

    def turn(self, turn: int) -> int:
        """Return the final turn, or place in the inactive list."""
        return turn if turn <= LAST_TURN else self.turns[turn - LAST_TURN - 1]

    def tie(self, number: int, tie: int, rule: str) -> int:
        """Return the final tie of a task."""
        arrival = self.new_ties.get(number)
        if arrival is None or not self.arrivals:
            return tie
        return tie_of(rule, self.arrivals[arrival - self.first_arrival - 1], tie)


@final
class Session:
    """One crawl in one transaction.

    `clock`: milliseconds, None if the server's clock counts. `is_exclusive`: no other transaction
    works on the crawl. `wakes_waiters`: a claim that waits could be served earlier than it expects.
    """

    __slots__ = (
        "base",
        "clock",
        "crawl",
        "ids",
        "is_exclusive",
        "now",
        "pipeline",
        "wakes_waiters",
        "writes",
    )

    def __init__(
        self,
        pipeline: Pipeline,
        crawl: int,
        now: int,
        *,
        clock: int | None,
        writes: bool,
        is_exclusive: bool,
    ) -> None:
        self.pipeline, self.crawl, self.base = pipeline, crawl, crawl << NUMBER_BITS
        self.now, self.clock = now, clock
        self.writes, self.is_exclusive = writes, is_exclusive
        self.ids = ProvisionalIds()
        self.wakes_waiters = False

    def sequence(self, name: str) -> str:
        """Return the name of a sequence of the crawl."""
        return f"{name}_{self.crawl}"

    def locking(self, statement: sql.Lockable) -> str:
        """Return a statement that locks what it loads, if the verb writes."""
        return statement.lock if self.writes else statement.read
