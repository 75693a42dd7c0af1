"""Numbers of what is new: counted from far above while a verb runs, taken when it is written.

So they are dense while one caller works alone, and nobody holds a lock on a counter. Arrivals are
guessed instead: ties of another rule may lie among them, and must compare as they will.
"""

from __future__ import annotations

from typing import Final

from outrider.core.order import NUMBER_BITS, TURN_BITS, tie_of

# Whatever is larger is not known yet.
TASKS: Final = 1 << NUMBER_BITS - 1
QUEUES: Final = 1 << NUMBER_BITS - 1
TURNS: Final = 1 << TURN_BITS - 1


class Numbers:
    """What was taken, in the order it was asked for."""

    def __init__(self) -> None:
        self.tasks: list[int] = []
        self.queues: list[int] = []
        self.turns: list[int] = []
        self.arrivals: list[int] = []
        self.arrived = 0  # when the verb began
        self.fresh: dict[int, int] = {}  # tasks with a new tie: the arrival it was made of

    def task(self, number: int) -> int:
        """The number of a task."""
        return number if number <= TASKS else self.tasks[number - TASKS - 1]

    def queue(self, number: int) -> int:
        """The number of a queue."""
        return number if number <= QUEUES else self.queues[number - QUEUES - 1]

    def turn(self, turn: int) -> int:
        """A turn, or a place in the inactive FIFO."""
        return turn if turn <= TURNS else self.turns[turn - TURNS - 1]

    def tie(self, number: int, tie: int, rule: str) -> int:
        """The tie of a task."""
        arrival = self.fresh.get(number)
        if arrival is None or not self.arrivals:
            return tie
        return tie_of(rule, self.arrivals[arrival - self.arrived - 1], tie)
