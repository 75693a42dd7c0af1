"""Samples of counters → rates: what changed between two of them, by the store's own clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor
from typing import Final

import msgspec

from outrider.store.protocol import CrawlView

KEPT_FOR: Final = 600.0  # seconds
LATELY: Final = 10.0  # seconds that a rate is taken over


class Counts(msgspec.Struct, frozen=True):
    """What only grows in a crawl."""

    at: float
    visits: int
    done: int
    failed: int  # visits that went wrong, whoever's fault it was
    bytes: int


class Rates(msgspec.Struct, frozen=True):
    """Each a second."""

    visits: float
    done: float
    failed: float
    bytes: float


def counts_of(view: CrawlView, at: float) -> Counts:
    """The growing numbers of a crawl, as they are at an instant."""
    done, dropped = view.outcomes.get("done", 0), view.outcomes.get("dropped", 0)
    return Counts(at, view.visits, done, max(0, view.visits - done - dropped), view.bytes)


class History:
    """The counts of the last minutes; a count that shrank is another crawl's, and starts anew."""

    def __init__(self) -> None:
        self._kept: deque[Counts] = deque()

    def note(self, counts: Counts) -> None:
        """Remember this one, and forget the oldest."""
        last = self._kept[-1] if self._kept else counts
        if counts.visits < last.visits or counts.at < last.at:
            self._kept.clear()
        self._kept.append(counts)
        while self._kept[0].at < counts.at - KEPT_FOR:
            self._kept.popleft()

    @property
    def rates(self) -> Rates | None:
        """Over the last seconds; None: there is nothing yet to compare with."""
        if len(self._kept) < 2:
            return None
        new = self._kept[-1]
        old = next(one for one in self._kept if one.at >= new.at - LATELY or one is self._kept[-2])
        return _between(old, new)

    def pace(self, width: int, seconds: float) -> list[float]:
        """Visits a second, in up to `width` equal parts of the last so many, the newest last.

        Parts begin at whole multiples of their length, so a part keeps its height as it moves on.
        """
        if not self._kept:
            return []
        length = seconds / width
        first, last = ceil(self._kept[0].at / length), floor(self._kept[-1].at / length)
        edges = [part * length for part in range(max(first, last - width), last + 1)]
        return [(b - a) / length for a, b in pairwise(_levels(self._kept, edges))]


def _levels(kept: Sequence[Counts], edges: Sequence[float]) -> list[float]:
    """How many visits there were at each instant; even between two samples."""
    samples = iter(kept)
    old = new = next(samples)
    levels = []
    for edge in edges:
        while new.at < edge:
            following = next(samples, None)
            if following is None:
                break
            old, new = new, following
        levels.append(_level(old, new, edge))
    return levels


def _level(old: Counts, new: Counts, at: float) -> float:
    if new.at <= old.at or at >= new.at:
        return float(new.visits)
    share = max(0.0, at - old.at) / (new.at - old.at)
    return old.visits + (new.visits - old.visits) * share


def _between(old: Counts, new: Counts) -> Rates:
    seconds = max(0.001, new.at - old.at)
    return Rates(
        (new.visits - old.visits) / seconds,
        max(0, new.done - old.done) / seconds,
        max(0, new.failed - old.failed) / seconds,
        max(0, new.bytes - old.bytes) / seconds,
    )
