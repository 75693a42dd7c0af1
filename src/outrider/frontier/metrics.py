"""Metrics of a crawl: counters, rates and latencies over all of its workers (O1).

Counters of visits are the store's and exact. Durations and retries come with heartbeats: sums and
histograms of all workers there ever were, and windows of those that are there now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from outrider.core.histogram import Histogram, Pool, upper_bound
from outrider.core.progress import Progress
from outrider.core.states import CrawlStatus
from outrider.core.worker_totals import WorkerTotals
from outrider.store.protocol import CrawlView, WorkerView

VERBS: Final = ("add", "claim", "extend", "finish", "release", "expire")
TASK_STATES: Final = ("pending", "leased", "done", "dead", "dropped")


class Latency(msgspec.Struct, frozen=True):
    """Durations of one kind, in seconds."""

    count: int = 0  # of all workers there ever were, as are sum, max and buckets
    sum: float = 0.0
    max: float = 0.0
    # Of the last 1,000 samples of each worker that is there; without one, of all samples.
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    samples: int = 0  # that the percentiles are of
    is_recent: bool = False  # these are the last samples of workers that are there
    buckets: Sequence[tuple[float, int]] = ()  # a duration, and how many are up to it


class Metrics(msgspec.Struct, frozen=True):
    """A crawl's metrics at one instant; the names are those of docs/reference/metrics.md."""

    crawl: str
    at: float  # by the store's clock
    status: CrawlStatus
    tasks: Mapping[str, int]  # by state
    queues: Mapping[str, int]  # by state
    workers: Mapping[str, int]  # by state
    slots: Mapping[str, int]  # of workers that are there, by state
    visits_total: Mapping[str, int]  # by outcome
    retries_total: int
    recovered_total: int
    refused_total: Mapping[str, int]  # links, by reason
    bytes_total: int
    blocked_ratio: float
    recovered_ratio: float
    visits_per_second: Mapping[str, float]  # by outcome; empty: it cannot be told
    interval_seconds: float  # that the rates are of
    queue_wait_seconds: Latency
    fetch_seconds: Latency
    handler_seconds: Latency
    store_seconds: Mapping[str, Latency]  # by verb
    host_gap_seconds: Latency

    @property
    def latencies(self) -> dict[str, Latency]:
        """Every latency by its name in words."""
        return {
            "queue wait": self.queue_wait_seconds,
            "fetch": self.fetch_seconds,
            "handler": self.handler_seconds,
            **{f"store {verb}": one for verb, one in self.store_seconds.items()},
            "host gap": self.host_gap_seconds,
        }


class Readings(msgspec.Struct, frozen=True):
    """What metrics are made of, read one after the other."""

    view: CrawlView
    progress: Progress
    workers: Sequence[WorkerView]
    totals: WorkerTotals  # of all workers there ever were


def metrics_of(readings: Readings, since: Metrics | None = None) -> Metrics:
    """Return the metrics; rates are since an earlier reading, or those of the last minute."""
    view, totals = readings.view, readings.totals
    here = [one.totals for one in readings.workers if one.state != "gone"]
    outcomes, visits = dict(view.outcomes), sum(view.outcomes.values())
    blocked, at = outcomes.get("blocked", 0), readings.progress.now.at
    rates, seconds = _rates(readings.progress) if since is None else _changes(outcomes, at, since)
    return Metrics(
        crawl=view.crawl,
        at=at,
        status=view.status,
        tasks={state: getattr(view, state) for state in TASK_STATES},
        queues=dict(view.queues),
        workers=dict(Counter(one.state for one in readings.workers)),
        slots=dict(sum((Counter(one.slots) for one in here), Counter())),
        visits_total=outcomes,
        retries_total=totals.retried,
        recovered_total=view.recovered,
        refused_total=dict(totals.refusals),
        bytes_total=view.bytes,
        blocked_ratio=blocked / visits if visits else 0.0,
        recovered_ratio=min(1.0, view.recovered / blocked) if blocked else 0.0,
        visits_per_second=rates,
        interval_seconds=seconds,
        queue_wait_seconds=_latency("queue_wait", totals, here),
        fetch_seconds=_latency("fetch", totals, here),
        handler_seconds=_latency("handler", totals, here),
        store_seconds={verb: _latency(f"store_{verb}", totals, here) for verb in VERBS},
        host_gap_seconds=_latency_of(totals.gaps),
    )


def _rates(progress: Progress) -> tuple[dict[str, float], float]:
    found = progress.rates()
    return ({}, 0.0) if found is None else (dict(found.outcomes), found.seconds)


def _changes(
    outcomes: Mapping[str, int], at: float, since: Metrics
) -> tuple[dict[str, float], float]:
    """Return visits per second by outcome; none if counters shrank: it is another crawl."""
    seconds, before = at - since.at, since.visits_total
    if seconds <= 0 or any(outcomes.get(name, 0) < count for name, count in before.items()):
        return {}, 0.0
    return {n: (count - before.get(n, 0)) / seconds for n, count in outcomes.items()}, seconds


def _latency(series: str, totals: WorkerTotals, here: Sequence[WorkerTotals]) -> Latency:
    windows = [one.windows[series] for one in here if series in one.windows]
    return _latency_of(totals.latency.get(series, Histogram()), Pool(windows))


def _latency_of(every: Histogram, pool: Pool | None = None) -> Latency:
    is_recent = pool is not None and pool.count > 0
    source = pool if pool is not None and is_recent else every
    below, buckets = 0, []
    for bucket in sorted(every.buckets):
        below += every.buckets[bucket]
        buckets.append((upper_bound(bucket), below))
    return Latency(
        count=every.count,
        sum=every.sum,
        max=every.max,
        p50=source.percentile(0.5),
        p95=source.percentile(0.95),
        p99=source.percentile(0.99),
        samples=source.count,
        is_recent=is_recent,
        buckets=buckets,
    )
