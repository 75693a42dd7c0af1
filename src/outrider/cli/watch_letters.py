"""Dead letters: how many of each reason, and the latest few; gathered a round at a time."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from typing import Final

from outrider.frontier.reports import DeadLetter, dead_letter
from outrider.store.protocol import TaskView

LATEST: Final = 100
REASONS: Final = 200  # told apart; whoever dies of another is counted among the others
NAMED: Final = 4  # of them at once
OTHERS: Final = "…"


class Letters:
    """What the last whole round found, or, until there was one, what was found so far."""

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.latest: list[DeadLetter] = []  # the newest first
        self.looked_at = 0  # tasks of this round
        self.is_whole = False
        self._reasons: Counter[str] = Counter()
        self._latest: list[DeadLetter] = []

    @property
    def total(self) -> int:
        """How many were found."""
        return self.reasons.total()

    @property
    def most_common(self) -> list[tuple[str, int]]:
        """The reasons most died of, and all the others in one."""
        named = self.reasons.most_common(NAMED)
        others = self.total - sum(count for _, count in named)
        return [*named, ("for other reasons", others)] if others else named

    def is_complete(self, dead: int) -> bool:
        """Whether all that are dead now were found, so that nobody need look for more."""
        return self.total == dead and (self.is_whole or not dead)

    def see(self, after: int, views: Sequence[TaskView], *, is_last: bool) -> None:
        """A page of them, found behind so many tasks."""
        if after == 0:
            self._reasons, self._latest = Counter(), []
        letters = [dead_letter(view) for view in views]
        for letter in letters:
            self._reasons[self._named(letter.reason)] += 1
        self._latest = heapq.nlargest(
            LATEST, self._latest + letters, key=lambda letter: letter.died_at
        )
        self.looked_at = after
        if is_last or not self.is_whole:
            self.reasons, self.latest = Counter(self._reasons), self._latest
        self.is_whole |= is_last

    def _named(self, reason: str) -> str:
        return reason if reason in self._reasons or len(self._reasons) < REASONS else OTHERS
