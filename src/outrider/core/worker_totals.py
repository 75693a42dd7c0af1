"""Totals of a worker since it started, and of all workers of a crawl together (M6, O1).

A worker's totals only grow, so of two readings the later one has the higher numbers: a repeated or
late heartbeat lowers nothing. Its windows and slots are those of its last heartbeat, and of no sum:
sources are pooled by `histogram.Pool`. Names come from workers and are bounded; what exceeds the
bound of a crawl is counted as `OTHER`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from outrider.core.histogram import MAX_COUNT, Count, Histogram, Window, added, latest

MAX_TOTAL_NAMES: Final = 64  # of outcomes, of refusals, of series
MAX_TOTAL_NAME_CHARS: Final = 64
MAX_SERIES: Final = 16
MAX_SLOT_STATES: Final = 8
MAX_DECISIONS: Final = 100  # kept of each worker
OTHER: Final = "other"

Name = Annotated[str, Meta(max_length=MAX_TOTAL_NAME_CHARS)]
Counts = Annotated[Mapping[Name, Count], Meta(max_length=MAX_TOTAL_NAMES)]
T = TypeVar("T")


class ScalingDecision(msgspec.Struct, frozen=True):
    """A change of the number of slots, or a change that was held back, with its reason."""

    at: float  # seconds since the epoch, by the worker's clock
    before: Annotated[int, Meta(ge=0, le=2**31)]
    after: Annotated[int, Meta(ge=0, le=2**31)]
    reason: Annotated[str, Meta(max_length=256)]


class WorkerTotals(msgspec.Struct, frozen=True):
    """What a worker did since it started."""

    outcomes: Counts = {}
    refusals: Counts = {}  # of links, by reason
    latency: Annotated[Mapping[Name, Histogram], Meta(max_length=MAX_SERIES)] = {}
    # Seconds between the end of a queue's visit and the lease of the next one, which was made here.
    gaps: Histogram = Histogram()
    # Those since its last heartbeat; a store keeps the last hundred.
    decisions: Annotated[tuple[ScalingDecision, ...], Meta(max_length=MAX_DECISIONS)] = ()
    retried: Count = 0  # visits that went wrong, and whose task waits for another one
    windows: Annotated[Mapping[Name, Window], Meta(max_length=MAX_SERIES)] = {}  # as `latency`
    slots: Annotated[Mapping[Name, Count], Meta(max_length=MAX_SLOT_STATES)] = {}  # by state


NO_TOTALS: Final = WorkerTotals()


def later_totals(old: WorkerTotals, new: WorkerTotals) -> WorkerTotals:
    """Return a worker's totals after another heartbeat: the higher of each number."""
    if new == NO_TOTALS:
        return old
    seen = old.decisions[-1].at if old.decisions else float("-inf")
    decisions = (*old.decisions, *(one for one in new.decisions if one.at > seen))
    return WorkerTotals(
        _combined(old.outcomes, new.outcomes, max, MAX_TOTAL_NAMES),
        _combined(old.refusals, new.refusals, max, MAX_TOTAL_NAMES),
        _combined(old.latency, new.latency, latest, MAX_SERIES),
        latest(old.gaps, new.gaps),
        decisions[-MAX_DECISIONS:],
        max(old.retried, new.retried),
        *_last_readings(old, new),
    )


def _last_readings(
    old: WorkerTotals, new: WorkerTotals
) -> tuple[Mapping[str, Window], Mapping[str, int]]:
    """Return the windows and slots of the later of two readings."""
    is_late = any(
        one.count < old.latency[name].count
        for name, one in new.latency.items()
        if name in old.latency
    )
    last = old if is_late else new
    return last.windows, last.slots


def sum_of_totals(totals: Iterable[WorkerTotals]) -> WorkerTotals:
    """Return the totals of several workers together, without their decisions."""
    return reduce(_sum_of_two, totals, NO_TOTALS)


def _sum_of_two(one: WorkerTotals, other: WorkerTotals) -> WorkerTotals:
    return WorkerTotals(
        _bounded_counts(_combined(one.outcomes, other.outcomes, _plus)),
        _bounded_counts(_combined(one.refusals, other.refusals, _plus)),
        _combined(one.latency, other.latency, added, MAX_SERIES),
        added(one.gaps, other.gaps),
        retried=_plus(one.retried, other.retried),
    )


def _plus(one: int, other: int) -> int:
    return min(one + other, MAX_COUNT)


def _combined(
    old: Mapping[str, T], new: Mapping[str, T], combine: Callable[[T, T], T], most: int = 0
) -> dict[str, T]:
    """Combine two mappings by name; names above the bound are left out, known ones never."""
    found = dict(old)
    for name, value in new.items():
        if name in found:
            found[name] = combine(found[name], value)
        elif not most or len(found) < most:
            found[name] = value
    return found


def _bounded_counts(counts: dict[str, int]) -> dict[str, int]:
    """Count the rarest names as `OTHER`, above the bound."""
    if len(counts) <= MAX_TOTAL_NAMES:
        return counts
    ranked = sorted(counts, key=lambda name: (name == OTHER, -counts[name], name))
    kept = {name: counts[name] for name in ranked[: MAX_TOTAL_NAMES - 1]}
    rest = sum(counts[name] for name in ranked[MAX_TOTAL_NAMES - 1 :])
    return {**kept, OTHER: _plus(kept.get(OTHER, 0), rest)}
