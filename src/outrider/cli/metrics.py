"""Metrics and workers as text, for `stats --metrics`, `workers` and `watch` (O1, J2, J3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from outrider.cli.terminal import format_count, format_counts, format_instant
from outrider.core.histogram import MIN_SECONDS
from outrider.core.worker_totals import ScalingDecision
from outrider.frontier.metrics import Metrics
from outrider.store.protocol import WorkerView

NO_WORKER: Final = (
    "no worker has sent a heartbeat; `outrider crawl`, `outrider work` and executors do, "
    "a frontier alone does not"
)
LATENCY_COLUMNS: Final = ("seconds", "count", "p50", "p95", "p99", "max")
DECISION_COLUMNS: Final = ("worker", "at", "slots", "reason")


def metric_pairs(metrics: Metrics) -> Iterator[tuple[str, str]]:
    """Counters, shares and rates, as names and values."""
    visits = sum(metrics.visits_total.values())
    yield "crawl", metrics.crawl
    yield "status", metrics.status
    yield "visits", f"{visits:,}" + (f": {_counts(metrics.visits_total)}" if visits else "")
    yield "visits/s", _rates(metrics)
    yield "retried", f"{metrics.retries_total:,}"
    yield "blocked", f"{metrics.blocked_ratio:.1%} of visits"
    yield "recovered", f"{metrics.recovered_ratio:.1%} of those ({metrics.recovered_total:,})"
    if metrics.refused_total:
        yield "refused", _counts(metrics.refused_total)
    yield "workers", _counts(metrics.workers)
    if metrics.slots:
        yield "slots", _counts(metrics.slots)


def _counts(counts: Mapping[str, int]) -> str:
    return format_counts(dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))))


def _rates(metrics: Metrics) -> str:
    rates = metrics.visits_per_second
    if not metrics.interval_seconds:
        return "no worker is at work, or it just began"
    parts = [f"{rate:,.2f} {name}" for name, rate in sorted(rates.items()) if rate]
    each = f": {', '.join(parts)}" if parts else ""
    return f"{sum(rates.values()):,.2f}{each}, in {metrics.interval_seconds:,.0f} s"


def latency_rows(metrics: Metrics) -> list[tuple[str, ...]]:
    """A row for each latency that was recorded."""
    return [
        (name, f"{one.count:,}", *map(_seconds, (one.p50, one.p95, one.p99, one.max)))
        for name, one in metrics.latencies.items()
        if one.count
    ]


def latency_note(metrics: Metrics) -> str:
    """What the percentiles are of."""
    if not any(one.is_recent for one in metrics.latencies.values()):
        return "percentiles of all samples: no worker is there"
    return "percentiles of the last 1,000 samples of each worker; of host gaps, of all"


def _seconds(seconds: float) -> str:
    """Seconds in three digits; histograms do not tell apart what is shorter than a millisecond."""
    if seconds <= MIN_SECONDS:
        return f"<{MIN_SECONDS}"
    for least, digits in ((99.95, 0), (9.995, 1), (0.9995, 2)):
        if seconds >= least:
            return f"{seconds:,.{digits}f}"
    return f"{seconds:.4f}" if seconds < 0.0995 else f"{seconds:.3f}"


# ---- workers


def slots_text(view: WorkerView) -> str:
    """The slots of a worker by state."""
    counts = view.totals.slots or {"busy": view.busy, "idle": max(0, view.slots - view.busy)}
    if view.state == "gone":
        return f"{view.slots:,} before"
    return format_counts({name: counts[name] for name in sorted(counts)})


def last_decision(view: WorkerView) -> str:
    """The last scaling decision of a worker, in words."""
    decisions = view.totals.decisions
    return _decision(decisions[-1]) if decisions else ""


def _decision(one: ScalingDecision) -> str:
    return f"{one.before:,} → {one.after:,}: {one.reason}"


def worker_pairs(view: WorkerView) -> Iterator[tuple[str, str]]:
    """One worker in detail, without its decisions."""
    totals = view.totals
    yield "worker", view.worker
    yield "state", view.state
    yield "process", f"{view.pid} on {view.host}"
    yield "slots", slots_text(view)
    yield "visits", f"{view.visits:,}: {_counts(totals.outcomes)}"
    yield "retried", f"{totals.retried:,}"
    if totals.refusals:
        yield "refused", _counts(totals.refusals)
    yield "since", format_instant(view.started_at)
    yield "last heartbeat", format_instant(view.seen_at)
    count = len(totals.decisions)
    yield "decisions", f"the last {format_count(count, 'decision')}" if count else "none"


def decision_rows(views: Sequence[WorkerView]) -> Iterator[tuple[str, str, str, str]]:
    """A row for each scaling decision of these workers, oldest first."""
    for view in views:
        for one in view.totals.decisions:
            slots = f"{one.before:,} → {one.after:,}"
            yield view.worker, format_instant(one.at), slots, one.reason
