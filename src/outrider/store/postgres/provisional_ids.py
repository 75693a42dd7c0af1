"""Provisional numbers of what a verb creates: replaced by the sequences' numbers when written.

They count from far above while a verb runs, so that the numbers are dense while one process works
alone, and no transaction locks a counter. Arrivals are estimated instead: ties made of them are
compared with ties of other rules, and must compare as the final ones will.
"""

from __future__ import annotations

from typing import Final

from outrider.core.order import NUMBER_BITS, TURN_BITS, tie_of

# Larger numbers are provisional.
LAST_TASK: Final = 1 << NUMBER_BITS - 1
LAST_QUEUE: Final = 1 << NUMBER_BITS - 1
LAST_TURN: Final = 1 << TURN_BITS - 1


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
