"""What a worker counts for its heartbeats (M6, O1): a few additions for each visit."""

from __future__ import annotations

import asyncio
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

CALLS: Final = ("add", "claim", "extend", "finish", "release", "expire")


class WorkerCounts:
    """Outcomes, durations and gaps of one worker's visits since it started.

    `queue_wait` is the time a task was due before its lease, `fetch` that of a visit's requests,
    `handler` the rest of the visit's, without waits; `store_…` that of a call of the store.
    """

    def __init__(self) -> None:
        self._outcomes: dict[str, int] = {}
        self._queue_wait, self._fetch, self._handler = Recorder(), Recorder(), Recorder()
        self._gaps = Recorder()
        self._calls = {verb: Recorder() for verb in CALLS}
        self._series = {
            "queue_wait": self._queue_wait,
            "fetch": self._fetch,
            "handler": self._handler,
            **{f"store_{verb}": one for verb, one in self._calls.items()},
        }
        self._sent_until = float("-inf")  # decisions up to here were sent, on the loop's clock

    def start(self, now: float) -> None:
        """Count from now on: a worker that waits for its first visit has a rate as well."""
        for series in self._series.values():
            series.start(now)

    def ended(self, visit: Visit, now: float) -> None:
        """Record the durations of a visit that ended with an outcome, by the loop's clock."""
        lease = visit.lease
        spent = max(0.0, now - visit.began - visit.parked_for)
        fetched = min(spent, max(0.0, getattr(visit.outcome, "seconds", 0.0)))
        self._queue_wait.record(lease.waited, now)  # one that is unknown is below 0: left out
        self._gaps.record(lease.gap, now)
        if fetched:
            self._fetch.record(fetched, now)
        self._handler.record(spent - fetched, now)

    def called(self, verb: str, seconds: float) -> None:
        """Record an answered call of the store; see `Frontier.record_calls`."""
        self._calls[verb].record(seconds, asyncio.get_running_loop().time())

    def finished(self, visits: Iterable[Visit]) -> None:
        """Count a batch of visits that were finished at the store."""
        for visit in visits:
            name = type(visit.outcome).__name__.lower()
            self._outcomes[name] = self._outcomes.get(name, 0) + 1

    def totals(
        self,
        refusals: Mapping[str, int],
        decisions: Sequence[ScalingDecision],
        epoch: float,
        now: float,
    ) -> WorkerTotals:
        """Return the totals so far, the decisions not sent yet, and the windows at this instant.

        `epoch`: the seconds since the epoch at which the loop's clock was 0.
        """
        new = [one for one in decisions if one.at > self._sent_until]
        return WorkerTotals(
            dict(self._outcomes),
            bounded(refusals),
            {name: series.histogram() for name, series in self._series.items()},
            self._gaps.histogram(),
            tuple(replace(one, at=round(one.at + epoch, 3)) for one in new),
            windows={name: series.window(now) for name, series in self._series.items()},
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
