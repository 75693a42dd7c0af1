"""`outrider progress`: what was done when."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, Final

import typer

from outrider.cli.open_crawl import on_crawl
from outrider.cli.options import Crawl, Json, Store
from outrider.cli.terminal import (
    fields_of,
    format_duration,
    format_instant,
    format_size,
    print_json,
    show_pairs,
    show_table,
)
from outrider.core.progress import Progress, ProgressInterval, gap_between, rates_between
from outrider.core.states import CrawlStatus

_ROWS: Final = 20  # of the table of a crawl's progress, without --limit
_CHART: Final = 60  # columns
_PROGRESS_COLUMNS: Final = (
    *("until", "visits/s", "done/s", "failed/s"),
    *("known", "left", "done", "dead"),
)


# ---- the progress of a crawl


def progress(
    store: Store,
    *,
    limit: Annotated[
        int,
        typer.Option("--limit", min=0, help="Maximal number of rows of the table; 0: all samples."),
    ] = _ROWS,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Show the progress of a crawl since it began: rates, gaps, and the time that is left.

    Samples are taken every few seconds while anything works on the crawl, and are thinned with age.
    """
    found = on_crawl(store, crawl, lambda frontier: frontier.progress())
    if as_json:
        for sample in _samples_json(found):
            print_json(sample)
        return
    show_pairs(_progress_pairs(found))
    rows = found.thinned(limit) if limit else found
    show_table(_PROGRESS_COLUMNS, map(_interval_row, rows.intervals()), right=_PROGRESS_COLUMNS[1:])


def _progress_pairs(found: Progress) -> Iterator[tuple[str, str]]:
    now = found.now
    yield "status", now.status
    yield "worked on", f"{format_duration(now.active)} in all"
    yield from rate_pairs(found)
    if len(found.samples) > 1:
        yield "visits/s", _chart(found)


def rate_pairs(found: Progress) -> Iterator[tuple[str, str]]:
    """Yield the current rates of a running crawl, and the time that is left."""
    if found.now.status is not CrawlStatus.RUNNING:
        return
    rates = found.rates()
    if rates is not None:
        ends = f"{rates.done:,.1f} done/s, {rates.failed:,.1f} failed/s"
        yield "rate", f"{rates.visits:,.1f} visits/s, {ends}, {format_size(round(rates.bytes))}/s"
    yield "time left", left_text(found)


def left_text(found: Progress) -> str:
    """Return the time that is left in words, or why it cannot be told."""
    left = found.time_left()
    if left is not None:
        return f"about {format_duration(left)}" if left else "none"
    rates = found.rates()
    if not found.is_current:
        return "unknown: nothing has worked on it lately"
    if rates is not None and rates.settled <= 0:
        return "unknown: it finds links as fast as it visits them"
    return "unknown as yet"


def _chart(found: Progress) -> str:
    from outrider.cli.watch_draw import pace_line

    most = max(value or 0.0 for value in found.pace(_CHART))
    return f"{pace_line(found, _CHART)} at most {most:,.1f}"


def _interval_row(interval: ProgressInterval) -> tuple[object, ...]:
    rates, at = interval.rates, interval.sample
    if rates is None:
        gap = format_duration(interval.ends_at - interval.begins_at)
        return (format_instant(interval.ends_at), f"gap: {gap}", *[""] * 6)
    return (
        format_instant(interval.ends_at),
        *(f"{rate:,.1f}" for rate in (rates.visits, rates.done, rates.failed)),
        *(at.known, at.left, at.done, at.dead),
    )


def _samples_json(found: Progress) -> Iterator[dict[str, Any]]:
    """Yield the samples, each with the rates since the one before, and the gap between them."""
    yield fields_of(found.samples[0], rates=None, gap=0.0)
    for old, new in pairwise(found.samples):
        yield fields_of(new, rates=rates_between(old, new), gap=gap_between(old, new))
