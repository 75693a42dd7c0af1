"""Histogram: how often durations fell into fixed buckets, so that histograms can be added up.

Bucket 0 is up to 1 ms; bucket i is up to 1 ms · 2^(i/4), four for each doubling, and the last one
has no end. A percentile is off by at most 9.1 % (2^(1/8) − 1) from 1 ms to 199 days.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, exp2, isfinite, log2
from typing import Annotated, Final, final

import msgspec
from msgspec import Meta

MIN_SECONDS: Final = 0.001  # seconds: what bucket 0 reaches up to
PER_DOUBLING: Final = 4
MAX_BUCKET: Final = 136
MAX_COUNT: Final = 2**53
MAX_SECONDS: Final = 1e15

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
        rank, below = max(1, ceil(share * self.count)), 0
        for bucket in sorted(self.buckets):
            below += self.buckets[bucket]
            if below >= rank:
                return min(self.max, _middle(bucket))
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


@final
class Recorder:
    """Records durations of one source."""

    __slots__ = ("_buckets", "_max", "_sum")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._sum = self._max = 0.0

    def record(self, seconds: float) -> None:
        """Count a duration; one that is no number, or negative, is left out."""
        if isfinite(seconds) and seconds >= 0:
            bucket = bucket_of(seconds)
            self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
            self._sum += seconds
            self._max = max(self._max, seconds)

    def histogram(self) -> Histogram:
        """Return what was recorded so far."""
        return Histogram(dict(self._buckets), self._sum, self._max)
