"""Histograms of durations that can be added up, and windows of the last ones (O1).

Bucket 0 is up to 1 ms; bucket i is up to 1 ms · 2^(i/4), four for each doubling, and the last one
has no end. A percentile is off by at most 9.1 % (2^(1/8) − 1) from 1 ms to 199 days.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from math import ceil, exp2, inf, log2
from typing import Annotated, Final, final

import msgspec
from msgspec import Meta

MIN_SECONDS: Final = 0.001  # seconds: what bucket 0 reaches up to
PER_DOUBLING: Final = 4
MAX_BUCKET: Final = 136
MAX_COUNT: Final = 2**53
MAX_SECONDS: Final = 1e15
MAX_SAMPLES: Final = 1000  # of a window
MIN_WINDOW: Final = 0.001  # seconds, at least, that a window is taken to stand for

Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Bucket = Annotated[int, Meta(ge=0, le=MAX_BUCKET)]
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]


class Histogram(msgspec.Struct, frozen=True):
    """Counts by bucket without the empty ones, the sum and the largest of what was recorded."""

    buckets: Annotated[Mapping[Bucket, Count], Meta(max_length=MAX_BUCKET + 1)] = {}
    sum: Seconds = 0.0
    max: Seconds = 0.0

    @property
    def count(self) -> int:
        """How many durations were recorded."""
        return sum(self.buckets.values())

    @property
    def mean(self) -> float:
        """The exact mean; 0 if nothing was recorded."""
        return self.sum / self.count if self.buckets else 0.0

    def percentile(self, share: float) -> float:
        """Return what this share (0 to 1) of the durations do not exceed, within 9.1 %."""
        return _percentile(self.buckets, max(1, ceil(share * self.count)), self.max)


class Window(msgspec.Struct, frozen=True):
    """The last samples of one source, at most `MAX_SAMPLES`, and the time they stand for."""

    buckets: Annotated[
        Mapping[Bucket, Annotated[int, Meta(ge=0, le=MAX_SAMPLES)]], Meta(max_length=MAX_BUCKET + 1)
    ] = {}
    max: Seconds = 0.0  # the longest of them
    seconds: Seconds = 0.0  # from the sample before the first of them, or the start, until now

    @property
    def count(self) -> int:
        """How many samples it has."""
        return sum(self.buckets.values())

    @property
    def per_second(self) -> float:
        """How many samples the source has a second."""
        return self.count / max(MIN_WINDOW, self.seconds)


class Pool:
    """The windows of several sources as one stream: percentiles of what they record at a time.

    Windows have as many samples whether these took ten seconds or an hour. A sample counts by the
    rate of its source, so that the percentiles are those of all durations of a moment together.
    """

    __slots__ = ("_buckets", "_max", "count", "per_second")

    def __init__(self, windows: Iterable[Window]) -> None:
        self._buckets: dict[int, float] = {}
        self._max = self.per_second = 0.0
        self.count = 0
        for window in windows:
            self._add(window)

    def _add(self, window: Window) -> None:
        weight = 1 / max(MIN_WINDOW, window.seconds)
        for bucket, count in window.buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0.0) + count * weight
        self._max = max(self._max, window.max)
        self.count += window.count
        self.per_second += window.per_second

    def percentile(self, share: float) -> float:
        """Return what this share (0 to 1) of the durations do not exceed, within 9.1 %."""
        return _percentile(self._buckets, share * sum(self._buckets.values()), self._max)


def _percentile(buckets: Mapping[int, float], rank: float, longest: float) -> float:
    """Return the duration at a rank; rounding errors of sums of weights do not move it."""
    below = 0.0
    for bucket in sorted(buckets):
        below += buckets[bucket]
        if below >= rank * (1 - 1e-12):
            return min(longest, _middle(bucket))
    return 0.0


def bucket_of(seconds: float) -> int:
    """Return the bucket of a duration."""
    if not seconds > MIN_SECONDS:
        return 0
    return min(MAX_BUCKET, ceil(PER_DOUBLING * log2(seconds / MIN_SECONDS) - 1e-9))


def upper_bound(bucket: int) -> float:
    """Return the longest duration of a bucket."""
    return MIN_SECONDS * exp2(bucket / PER_DOUBLING)


def _middle(bucket: int) -> float:
    """Return the duration that is off by as much from both ends of a bucket."""
    return upper_bound(bucket) / (exp2(0.5 / PER_DOUBLING) if bucket else 1.0)


def added(one: Histogram, other: Histogram) -> Histogram:
    """Return what two sources recorded together."""
    if not one.buckets or not other.buckets:
        return one if one.buckets else other
    names = {*one.buckets, *other.buckets}
    sums = {at: one.buckets.get(at, 0) + other.buckets.get(at, 0) for at in sorted(names)}
    buckets = {at: min(count, MAX_COUNT) for at, count in sums.items()}
    return Histogram(buckets, min(one.sum + other.sum, MAX_SECONDS), max(one.max, other.max))


def latest(one: Histogram, other: Histogram) -> Histogram:
    """Return the later of two readings of one source: each number only grows."""
    names = {*one.buckets, *other.buckets}
    buckets = {at: max(one.buckets.get(at, 0), other.buckets.get(at, 0)) for at in sorted(names)}
    return Histogram(buckets, max(one.sum, other.sum), max(one.max, other.max))


_FOLDED_AT: Final = 512  # samples that wait to be put into buckets, at most


@final
class Recorder:
    """Records durations of one source; a call appends to lists, and buckets are found later."""

    __slots__ = ("_buckets", "_max", "_new", "_recent", "_started", "_sum", "_times")

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self._sum = self._max = 0.0
        self._new: list[float] = []  # not in buckets yet
        self._recent: deque[tuple[int, float]] = deque(maxlen=MAX_SAMPLES)  # bucket, duration
        self._times: deque[float] = deque(maxlen=MAX_SAMPLES + 1)  # the first precedes `_recent`
        self._started = inf

    def start(self, now: float) -> None:
        """Record from this instant on; without this call, from the first sample on."""
        self._started = min(self._started, now)

    def record(self, seconds: float, now: float) -> None:
        """Count a duration at this instant; one that is no number, or negative, is left out."""
        if 0.0 <= seconds < inf:
            self._new.append(seconds)
            self._times.append(now)
            if len(self._new) >= _FOLDED_AT:
                self._fold()

    def _fold(self) -> None:
        """Put new samples into buckets."""
        new, self._new = self._new, []
        if new:
            buckets = [
                # `bucket_of`, written out
                ceil(PER_DOUBLING * log2(seconds / MIN_SECONDS) - 1e-9)
                if seconds > MIN_SECONDS
                else 0
                for seconds in new
            ]
            if max(buckets) > MAX_BUCKET:
                buckets = [min(bucket, MAX_BUCKET) for bucket in buckets]
            self._buckets.update(buckets)
            self._recent.extend(zip(buckets, new, strict=True))
            self._sum += sum(new)
            self._max = max(self._max, *new)

    def histogram(self) -> Histogram:
        """Return what was recorded so far."""
        self._fold()
        return Histogram(dict(self._buckets), min(self._sum, MAX_SECONDS), self._max)

    def window(self, now: float) -> Window:
        """Return the last samples, at this instant."""
        self._fold()
        if not self._recent:
            return Window()
        is_full = len(self._times) > MAX_SAMPLES
        since = self._times[0] if is_full else min(self._started, self._times[0])
        buckets = Counter(bucket for bucket, _ in self._recent)
        longest = max(seconds for _, seconds in self._recent)
        return Window(
            dict(buckets), min(longest, MAX_SECONDS), min(max(0.0, now - since), MAX_SECONDS)
        )
