"""The progress of a crawl: samples of its counters, thinned with age; rates and time left (O1).

Samples are kept in slots of several tiers, each coarser than the one before. The slot follows from
the time, so a later sample replaces the one that had it, and the number of slots bounds what is
kept however long a crawl lasts.

Each sample has the seconds during which the crawl was worked on so far (`active`). A rate between
two samples is over these seconds, so pauses and restarts between them are gaps and no rates of 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from outrider.core.states import CrawlStatus

RATE_WINDOW: Final = 60.0  # seconds of activity over which a rate is taken
LEFT_WINDOW: Final = 300.0  # seconds of activity that a forecast goes by
MIN_ACTIVE: Final = 20.0  # seconds of activity, and settled tasks, below which nothing is forecast
MIN_SETTLED: Final = 10
IDLE_INTERVAL: Final = 60.0  # seconds between two samples while nothing changes
STALE_AFTER: Final = 90.0  # seconds without a sample after which no worker is there
MIN_GAP: Final = 1.0  # seconds: a shorter one is not told from a late sample

Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**62)]
Instant: TypeAlias = Annotated[float, Meta(ge=0, le=1e11)]
Outcomes: TypeAlias = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Count], Meta(max_length=64)
]


class Tier(NamedTuple):
    """Slots for samples at one interval."""

    seconds: int
    slots: int


TIERS: Final = (
    Tier(5, 120),  # ten minutes
    Tier(60, 120),  # two hours
    Tier(900, 192),  # two days
    Tier(21_600, 240),  # sixty days
    Tier(604_800, 260),  # five years
)
INTERVAL: Final = float(TIERS[0].seconds)


class ProgressSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """The counters of a crawl at one instant of its store's clock."""

    at: Instant
    active: Instant = 0.0  # seconds during which it was worked on until then
    status: CrawlStatus = CrawlStatus.RUNNING
    known: Count = 0
    pending: Count = 0
    leased: Count = 0
    done: Count = 0
    dead: Count = 0
    dropped: Count = 0
    held: Count = 0  # of the pending, in retired queues
    visits: Count = 0
    bytes: Count = 0
    recovered: Count = 0
    outcomes: Outcomes = {}  # visits by outcome
    runs: Count = 0

    @property
    def left(self) -> int:
        """Tasks that are still to be settled; those in retired queues are not."""
        return max(0, self.pending + self.leased - self.held)

    def is_same(self, other: ProgressSample) -> bool:
        """Whether nothing but time has passed between two samples."""
        return msgspec.structs.replace(other, at=self.at, active=self.active) == self


class ProgressRates(msgspec.Struct, frozen=True):
    """Changes per second of activity."""

    seconds: float  # of activity, over which the rates are taken
    visits: float
    bytes: float
    outcomes: Mapping[str, float]  # visits by outcome
    known: float  # tasks that were found
    settled: float  # by so much fewer tasks are left, those found meanwhile included

    @property
    def done(self) -> float:
        """Visits that were done."""
        return self.outcomes.get("done", 0.0)

    @property
    def failed(self) -> float:
        """Visits that went wrong, for whatever reason."""
        neither = self.outcomes.get("dropped", 0.0) + self.outcomes.get("again", 0.0)
        return max(0.0, self.visits - self.done - neither)


class ProgressInterval(msgspec.Struct, frozen=True):
    """The time between two samples, or the gap in it: `rates` is None if no worker was there."""

    begins_at: float
    ends_at: float
    rates: ProgressRates | None
    sample: ProgressSample  # at its end; of a gap: behind it


class Progress(msgspec.Struct, frozen=True):
    """The samples of a crawl in order; the last one is of now."""

    samples: Sequence[ProgressSample]

    @property
    def now(self) -> ProgressSample:
        """The crawl as it is now."""
        return self.samples[-1]

    @property
    def is_current(self) -> bool:
        """Whether a worker is there: the crawl is running, and a recent sample says so."""
        if len(self.samples) < 2 or self.now.status is not CrawlStatus.RUNNING:
            return False
        last = self.samples[-2]
        is_running = last.status is CrawlStatus.RUNNING
        return is_running and self.now.at - last.at < STALE_AFTER

    def rates(self, seconds: float = RATE_WINDOW) -> ProgressRates | None:
        """Return the rates of the last `seconds` of activity; None if they cannot be told.

        That is so unless the crawl is worked on now, and has been for two samples.
        """
        if not self.is_current:
            return None
        now, earlier = self.now, self.samples[:-1]
        since = now.active - seconds
        recent = (one for one in earlier if one.active >= since)
        return rates_between(next(recent, earlier[-1]), now)

    def time_left(self, seconds: float = LEFT_WINDOW) -> float | None:
        """Return the seconds until nothing is left to do, at the speed of the last minutes.

        That is: the tasks left, by how fast they became fewer in the last `seconds` of activity,
        with the links that were found meanwhile. 0.0: nothing is left. None: it cannot be told,
        since the crawl is not worked on, it grows as fast as it is visited, or too little happened.
        """
        now = self.now
        if now.status is CrawlStatus.FINISHED or (now.known and not now.left):
            return 0.0
        rates = self.rates(seconds)
        if rates is None or rates.seconds < MIN_ACTIVE:
            return None
        if rates.settled * rates.seconds < MIN_SETTLED:
            return None
        return now.left / rates.settled

    def intervals(self) -> Iterator[ProgressInterval]:
        """Iterate over the times between samples in order; gaps are intervals of their own."""
        for old, new in pairwise(self.samples):
            start = old.at + gap_between(old, new)
            if start - old.at >= MIN_GAP:
                yield ProgressInterval(old.at, start, None, new)
            if new.at > start:
                yield ProgressInterval(start, new.at, rates_between(old, new), new)

    def pace(self, parts: int) -> list[float | None]:
        """Return visits per second in equal parts of the time since the first sample.

        None: no worker was there.
        """
        begin, length = self.samples[0].at, (self.now.at - self.samples[0].at) / parts
        visits, seconds = [0.0] * parts, [0.0] * parts
        for interval in self.intervals():
            if interval.rates is None:
                continue
            first, last = (
                min(parts - 1, int((at - begin) / length))
                for at in (interval.begins_at, interval.ends_at)
            )
            for part in range(first, last + 1):
                start = max(interval.begins_at, begin + part * length)
                end = min(interval.ends_at, begin + (part + 1) * length)
                seconds[part] += max(0.0, end - start)
                visits[part] += max(0.0, end - start) * interval.rates.visits
        return [
            made / time if time > 0 else None for made, time in zip(visits, seconds, strict=True)
        ]

    def thinned(self, count: int) -> Progress:
        """Return about so many of the samples, spread evenly, and those beside long gaps."""
        first, span = self.samples[0].at, self.now.at - self.samples[0].at
        if len(self.samples) <= count:
            return self
        kept, part, length = [self.samples[0]], 0, span / count
        for old, new in pairwise(self.samples):
            has_gap = gap_between(old, new) >= length
            if has_gap and kept[-1] is not old:
                kept.append(old)
            if has_gap or new is self.now or int((new.at - first) / length) > part:
                kept.append(new)
                part = int((new.at - first) / length)
        return Progress(tuple(kept))


def rates_between(old: ProgressSample, new: ProgressSample) -> ProgressRates | None:
    """Return the rates between two samples; None without activity, or if counters shrank."""
    seconds = new.active - old.active
    if seconds <= 0 or new.visits < old.visits:
        return None
    outcomes = {
        name: max(0, count - old.outcomes.get(name, 0)) / seconds
        for name, count in new.outcomes.items()
    }
    return ProgressRates(
        seconds,
        (new.visits - old.visits) / seconds,
        max(0, new.bytes - old.bytes) / seconds,
        outcomes,
        max(0, new.known - old.known) / seconds,
        (old.left - new.left) / seconds,
    )


def gap_between(old: ProgressSample, new: ProgressSample) -> float:
    """Return the seconds between two samples during which no worker was there."""
    passed = new.at - old.at
    return min(passed, max(0.0, passed - max(0.0, new.active - old.active)))


class ProgressHistory:
    """The samples that are kept, by the names of their slots."""

    def __init__(self) -> None:
        self._by_slot: dict[str, ProgressSample] = {}
        self._last: dict[int, ProgressSample] = {}  # by tier: the one written last

    @property
    def last(self) -> ProgressSample | None:
        """The sample that was written last; None: there is none."""
        return self._last.get(0)

    def put(self, slot: str, sample: ProgressSample | None) -> None:
        """Take over what a slot has now; None: nothing that can be read."""
        tier = _tier_of(slot)
        if sample is None or tier is None:
            self._by_slot.pop(slot, None)
            return
        self._by_slot[slot] = sample
        self._last[tier] = sample

    def samples(self) -> list[ProgressSample]:
        """Return all samples in order, each once."""
        by_time = {sample.at: sample for sample in self._by_slot.values()}
        return [by_time[at] for at in sorted(by_time)]

    def slots_of(self, at: float) -> list[str]:
        """Return the slots that a sample of that time belongs into.

        That is one of the finest tier, and one of each other tier whose interval is a new one.
        """
        return [
            _slot(tier, at)
            for number, tier in enumerate(TIERS)
            if not number or self._is_new(number, at)
        ]

    def _is_new(self, number: int, at: float) -> bool:
        last, seconds = self._last.get(number), TIERS[number].seconds
        return last is None or int(last.at // seconds) != int(at // seconds)


def _slot(tier: Tier, at: float) -> str:
    return f"{tier.seconds}/{int(at // tier.seconds) % tier.slots}"


def _tier_of(slot: str) -> int | None:
    seconds, _, number = slot.partition("/")
    for tier, (interval, slots) in enumerate(TIERS):
        if seconds == str(interval) and number.isdecimal() and len(number) < 5:
            return tier if int(number) < slots else None
    return None


def with_now(samples: Sequence[ProgressSample], now: ProgressSample) -> Progress:
    """Return the progress of a crawl from its samples, and one of now without activity."""
    earlier = [one for one in samples if one.at < now.at]
    if not earlier:
        return Progress((now,))
    last, active = earlier[-1], earlier[-1].active
    if last.status is CrawlStatus.RUNNING is now.status and now.at - last.at < STALE_AFTER:
        active += now.at - last.at
    return Progress((*earlier, msgspec.structs.replace(now, active=active)))
