"""What a worker counts for its heartbeats (M6, O1): a few additions for each visit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from outrider.core.histogram import Recorder
from outrider.core.worker_totals import (
    MAX_TOTAL_NAME_CHARS,
    MAX_TOTAL_NAMES,
    OTHER,
    ScalingDecision,
    WorkerTotals,
)
from outrider.executor.visit import Visit

MAX_HOSTS: Final = 10_000  # whose last visits are remembered


class WorkerCounts:
    """Outcomes, durations and gaps of one worker's visits since it started.

    `fetch` is the time of requests, `handler` the rest of a visit's, `store` that of finishing a
    batch. A gap is the time from the end of a visit of a queue to the start of the next one here.
    """

    def __init__(self) -> None:
        self._outcomes: dict[str, int] = {}
        self._series = {"fetch": Recorder(), "handler": Recorder(), "store": Recorder()}
        self._gaps = Recorder()
        self._ended: dict[str, float] = {}  # by queue: the end of its last visit
        self._sent_until = float("-inf")  # decisions up to here were sent, on the loop's clock

    def ended(self, visit: Visit, now: float) -> None:
        """Record the durations of a visit that ended with an outcome, by the loop's clock."""
        key, spent = visit.lease.key, max(0.0, now - visit.began)
        fetched = min(spent, max(0.0, getattr(visit.outcome, "seconds", 0.0)))
        self._series["fetch"].record(fetched)
        self._series["handler"].record(spent - fetched)
        before = self._ended.pop(key, None)
        if before is not None:
            self._gaps.record(max(0.0, visit.began - before))
        elif len(self._ended) >= MAX_HOSTS:
            del self._ended[next(iter(self._ended))]
        self._ended[key] = now

    def finished(self, visits: Iterable[Visit], seconds: float) -> None:
        """Count a batch of visits that took so long to be finished at the store."""
        self._series["store"].record(seconds)
        for visit in visits:
            name = type(visit.outcome).__name__.lower()
            self._outcomes[name] = self._outcomes.get(name, 0) + 1

    def totals(
        self, refusals: Mapping[str, int], decisions: Sequence[ScalingDecision], epoch: float
    ) -> WorkerTotals:
        """Return the totals so far, and the decisions not sent yet.

        `epoch`: the seconds since the epoch at which the loop's clock was 0.
        """
        new = [one for one in decisions if one.at > self._sent_until]
        return WorkerTotals(
            dict(self._outcomes),
            bounded(refusals),
            {name: series.histogram() for name, series in self._series.items()},
            self._gaps.histogram(),
            tuple(replace(one, at=round(one.at + epoch, 3)) for one in new),
        )

    def sent(self, decisions: Iterable[ScalingDecision]) -> None:
        """Record that these decisions, on the loop's clock, are at the store."""
        self._sent_until = max([self._sent_until, *(one.at for one in decisions)])


def bounded(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts with as many and as long names as a heartbeat may have; the rest is `OTHER`."""
    found: dict[str, int] = {}
    for name in sorted(counts):
        short = name[:MAX_TOTAL_NAME_CHARS].replace("\0", "")
        if short not in found and len(found) >= MAX_TOTAL_NAMES - 1:
            short = OTHER
        found[short] = found.get(short, 0) + counts[name]
    return found
