"""Dead letters of a crawl: the count of each reason and the latest letters, read page by page."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from typing import Final

from outrider.frontier.reports import DeadLetter, dead_letter
from outrider.store.protocol import TaskView

MAX_LATEST: Final = 100
MAX_REASONS: Final = 200  # counted one by one; all further ones are counted as OTHERS
MAX_NAMED: Final = 4  # reasons that `most_common` names
OTHERS: Final = "…"


class DeadLetters:
    """The result of the last complete pass over the tasks; before that, of the pass so far."""

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.latest: list[DeadLetter] = []  # the newest first
        self.scanned = 0  # tasks of this pass
        self.is_whole = False  # a pass was completed
        self._reasons: Counter[str] = Counter()
        self._latest: list[DeadLetter] = []

    @property
    def total(self) -> int:
        """How many were found."""
        return self.reasons.total()

    @property
    def most_common(self) -> list[tuple[str, int]]:
        """The most frequent reasons, and the sum of all others."""
        named = self.reasons.most_common(MAX_NAMED)
        others = self.total - sum(count for _, count in named)
        return [*named, ("for other reasons", others)] if others else named

    def is_complete(self, dead: int) -> bool:
        """Whether all `dead` tasks there are now were found, so that no pass is needed."""
        return self.total == dead and (self.is_whole or not dead)

    def add_page(self, after: int, views: Sequence[TaskView], *, is_last: bool) -> None:
        """Add one page of dead tasks; `after` is its cursor, 0 the start of a new pass."""
        if after == 0:
            self._reasons, self._latest = Counter(), []
        letters = [dead_letter(view) for view in views]
        for letter in letters:
            self._reasons[self._counted_as(letter.reason)] += 1
        self._latest = heapq.nlargest(
            MAX_LATEST, self._latest + letters, key=lambda letter: letter.died_at
        )
        self.scanned = after
        if is_last or not self.is_whole:
            self.reasons, self.latest = Counter(self._reasons), self._latest
        self.is_whole |= is_last

    def _counted_as(self, reason: str) -> str:
        is_own = reason in self._reasons or len(self._reasons) < MAX_REASONS
        return reason if is_own else OTHERS
