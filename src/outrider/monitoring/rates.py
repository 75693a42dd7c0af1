"""Rates of a crawl: the differences between samples of its counters, by the store's clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor
from typing import Final

import msgspec

from outrider.core.progress import ProgressSample, gap_between
from outrider.store.protocol import CrawlView

HISTORY: Final = 600.0  # seconds of samples that are kept
RATE_WINDOW: Final = 10.0  # seconds over which a rate is taken


class Counts(msgspec.Struct, frozen=True):
    """The counters of a crawl that only grow."""

    at: float
    visits: int
    done: int
    failed: int  # visits that went wrong, for whatever reason
    bytes: int


class Rates(msgspec.Struct, frozen=True):
    """Changes per second."""

    visits: float
    done: float
    failed: float
    bytes: float


def counts_of(view: CrawlView | ProgressSample, at: float) -> Counts:
    """The growing counters of a crawl at an instant."""
    done = view.outcomes.get("done", 0)
    neither = view.outcomes.get("dropped", 0) + view.outcomes.get("again", 0)
    return Counts(at, view.visits, done, max(0, view.visits - done - neither), view.bytes)


class RateHistory:
    """The counters of the last minutes; counters that shrank are of another crawl: it restarts."""

    def __init__(self) -> None:
        self._samples: deque[Counts] = deque()

    def begin_with(self, samples: Sequence[ProgressSample], now: float) -> None:
        """Begin with what workers recorded in the last minutes, unless there are samples already.

        Gaps between their samples are times without visits.
        """
        if self._samples:
            return
        recent = [one for one in samples if now - HISTORY <= one.at < now]
        for old, new in zip(recent[:1] + recent, recent, strict=False):
            gap = gap_between(old, new)
            if gap:
                self.add(counts_of(old, old.at + gap))
            self.add(counts_of(new, new.at))

    def add(self, counts: Counts) -> None:
        """Add a sample, and drop those that are too old."""
        last = self._samples[-1] if self._samples else counts
        if counts.visits < last.visits or counts.at < last.at:
            self._samples.clear()
        self._samples.append(counts)
        while self._samples[0].at < counts.at - HISTORY:
            self._samples.popleft()

    @property
    def rates(self) -> Rates | None:
        """Rates over the last seconds; None while there is only one sample."""
        if len(self._samples) < 2:
            return None
        new = self._samples[-1]
        before, start = self._samples[-2], new.at - RATE_WINDOW
        old = next(one for one in self._samples if one.at >= start or one is before)
        return _between(old, new)

    def pace(self, width: int, seconds: float) -> list[float]:
        """Visits per second in up to `width` equal parts of the last `seconds`, the newest last.

        Parts begin at whole multiples of their length, so a part keeps its value while the chart
        moves.
        """
        if not self._samples:
            return []
        length = seconds / width
        first, last = ceil(self._samples[0].at / length), floor(self._samples[-1].at / length)
        edges = [part * length for part in range(max(first, last - width), last + 1)]
        return [(b - a) / length for a, b in pairwise(_levels(self._samples, edges))]


def _levels(history: Sequence[Counts], edges: Sequence[float]) -> list[float]:
    """The number of visits at each instant, interpolated between samples."""
    samples = iter(history)
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
