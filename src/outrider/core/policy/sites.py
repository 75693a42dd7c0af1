"""Largest sites first: the more links to a queue's pages were found, the sooner it is (F10).

Links are counted by this process, for a bounded number of queues. Whoever asks for a score counts
nothing, so pending tasks can be scored again at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outrider.core.policy.score import Candidate, Score, based
from outrider.core.task import Lease

MOST_SITES: Final = 100_000


class LargestSitesScorer:
    """A queue's size is the number of doublings of its links; within one, the tie decides.

    A queue competes by its first task, which is its newest among those of the last doubling: so
    it stands where its size is now, although older tasks keep the score they got.
    """

    features = ("size",)

    def __init__(self, most: int = MOST_SITES) -> None:
        self._links: dict[str, int] = {}  # least recently linked first
        self._most = most

    def score(self, batch: Sequence[Candidate]) -> list[Score]:
        """By the size so far."""
        links = self._links
        return [based("size", -links.get(key, 0).bit_length(), link) for link, _, key, _ in batch]

    def score_page(self, batch: Sequence[Candidate], page: Lease) -> list[Score]:  # noqa: ARG002 - whose links they are is the same to us
        """Count the links of a page, known or not, then as ever."""
        for _, _, key, _ in batch:
            self._links[key] = self._links.pop(key, 0) + 1
        while len(self._links) > self._most:
            del self._links[next(iter(self._links))]
        return self.score(batch)
