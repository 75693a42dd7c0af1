"""`outrider crawls`, `progress` and `delete`: the crawls of a store as jobs (I1, O1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from outrider.cli.open_crawl import on_crawl, on_store, take_items
from outrider.cli.options import By, Crawl, Json, Limit, Store, Yes, row_limit
from outrider.cli.terminal import (
    confirm,
    fields_of,
    format_count,
    format_counts,
    format_duration,
    format_instant,
    format_size,
    print_json,
    print_line,
    print_note,
    progress_line,
    show_pairs,
    show_table,
    terminal_width,
)
from outrider.core.progress import Progress, ProgressInterval, gap_between, rates_between
from outrider.core.states import DELETING, CrawlStatus
from outrider.errors import InvalidInput
from outrider.frontier.crawls import CrawlSummary, RemovedCrawl, removed_crawls
from outrider.frontier.crawls import crawls as list_crawls
from outrider.monitoring.connection import list_names
from outrider.store.address import show_address

if TYPE_CHECKING:
    from outrider.frontier import Frontier
    from outrider.store.protocol import CrawlView, FullStore

_ROWS: Final = 20  # of the table of a crawl's progress, without --limit
_CHART: Final = 60  # columns
_WIDE_FROM: Final = 120  # columns of a terminal
_ORDER: Final = tuple(CrawlStatus)  # of statuses in the table: running, paused, finished, cancelled
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


# ---- the crawls of a store


_COLUMNS: Final = (
    *("crawl", "status", "known", "settled", "left", "done", "dead", "visits/s", "age"),
    *("leased", "dropped", "held", "visits", "runs", "time left or finished"),
)
_NARROW: Final = 9  # columns of a narrow terminal


def crawls(
    store: Store,
    *,
    status: Annotated[
        list[CrawlStatus] | None,
        typer.Option("--status", help="Only crawls of this status; may be repeated."),
    ] = None,
    removed: Annotated[
        bool, typer.Option("--removed", help="Crawls that were removed: when, and by whom.")
    ] = False,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """List the crawls of a store: status, counts, progress, rate, age.

    The table has running crawls first, the newest of each status before older ones; JSON is in
    order of creation.
    """
    most = row_limit(limit, as_json=as_json)
    if removed:
        _show_removed(store, most, as_json=as_json)
        return
    wanted = status or None
    if as_json:
        on_store(store, lambda opened: _print_crawls(opened, wanted, most))
        return
    first = _FirstCrawls(most)
    on_store(store, lambda opened: first.read(opened, wanted))
    if not first.count:
        print_note(f"no crawls in {show_address(store)}; `outrider add` creates one")
        return
    count = len(_COLUMNS) if terminal_width() >= _WIDE_FROM else _NARROW
    rows = (_crawl_row(one)[:count] for one in first.shown())
    show_table(_COLUMNS[:count], rows, right=_COLUMNS[2:14])
    if most is not None and first.count > most:
        counts = format_counts(dict(first.by_status))
        print_note(f"{most:,} of {first.count:,} are shown ({counts}); --limit 0 shows all")


async def _print_crawls(
    store: FullStore, wanted: Collection[str] | None, limit: int | None
) -> None:
    await take_items(list_crawls(store, status=wanted), limit, _print_crawl)


def _print_crawl(one: CrawlSummary) -> None:
    shares = {"progress": one.progress, "progress_unheld": one.progress_unheld}
    print_json(fields_of(one, **shares))


class _FirstCrawls:
    """The first crawls in the order of the table, of any number that is read."""

    def __init__(self, limit: int | None) -> None:
        self.count = 0
        self.by_status: Counter[str] = Counter()
        self._limit = limit
        self._kept: list[CrawlSummary] = []

    async def read(self, store: FullStore, wanted: Collection[str] | None) -> None:
        """Read all crawls, and keep the first ones."""
        await take_items(list_crawls(store, status=wanted), None, self._add)

    def _add(self, one: CrawlSummary) -> None:
        self.count += 1
        self.by_status[one.status] += 1
        self._kept.append(one)
        if self._limit is not None and len(self._kept) >= 2 * self._limit + 100:
            self._kept = self.shown()

    def shown(self) -> list[CrawlSummary]:
        """Return the first crawls in order."""
        self._kept.sort(key=lambda one: (_ORDER.index(one.status), -one.created_at, one.crawl))
        return self._kept[: self._limit]


def _crawl_row(one: CrawlSummary) -> tuple[object, ...]:
    from outrider.cli.watch_draw import short_count, short_time

    counts = (one.known, one.pending + one.leased - one.held, one.done, one.dead)
    known, left, done, dead = map(short_count, counts)
    rate = "" if one.rates is None else f"{one.rates.visits:,.1f}"
    rest = map(short_count, (one.leased, one.dropped, one.held, one.visits, one.runs))
    end = format_instant(one.finished_at) if one.status is CrawlStatus.FINISHED else ""
    if one.time_left and one.status is CrawlStatus.RUNNING:
        end = f"about {format_duration(one.time_left)}"
    return (
        *(one.crawl, one.status + (f" ({one.reason})" if one.reason else ""), known),
        *(f"{one.progress:.1%}", left, done, dead, rate, short_time(one.age)),
        *(*rest, end),
    )


def _show_removed(store: str, limit: int | None, *, as_json: bool) -> None:
    shown: list[RemovedCrawl] = []
    see: Callable[[RemovedCrawl], None] = print_json if as_json else shown.append

    async def read(opened: FullStore) -> None:
        await take_items(removed_crawls(opened), limit, see)

    on_store(store, read)
    if not as_json:
        rows = [(one.crawl, format_instant(one.at), one.by, one.known, one.status) for one in shown]
        show_table(("crawl", "removed", "by", "known", "was"), rows, right=["known"])


# ---- removal


def delete(
    store: Store,
    *,
    crawl: Annotated[
        str | None,
        typer.Option("--crawl", metavar="NAME", help="Name of the crawl to remove; must be given."),
    ] = None,
    yes: Yes = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also if its status is running: it is cancelled first.")
    ] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Remove a crawl from a store with all that is kept of it; its output files stay.

    Asks first. A crawl whose status is running is refused without --force. Its workers end by
    themselves. Interrupted or killed, the same command continues. Exits with 1 if the user answers
    no.
    """
    if crawl is None:
        names = on_store(store, lambda opened: opened.crawls())
        raise InvalidInput(
            f"say which crawl with --crawl NAME: there is {list_names(names) or 'none'}"
        )
    view, alive = on_crawl(store, crawl, _read_what_is_there)
    is_begun = view.reason == DELETING
    if view.status is CrawlStatus.RUNNING and not force:
        there = f"{format_count(alive, 'worker')} alive, {format_count(view.leased, 'task')} leased"
        raise InvalidInput(f"crawl {crawl!r} is running ({there}): cancel it first, or use --force")
    if not is_begun:
        confirm(f"Remove {_what_is_there(view)}?", yes=yes)
    with progress_line() as see, _noted_if_interrupted(crawl):
        size = _file_size(store)
        count = on_crawl(
            store,
            crawl,
            lambda frontier: frontier.delete_crawl(
                progress=lambda done: see(f"{done:,} of {view.known:,} tasks removed")
            ),
            by=by,
        )
    report = {"crawl": crawl, "removed": count, "resumed": is_begun}
    if as_json:
        print_json(report | {"size_before": size, "size_after": _file_size(store)})
        return
    print_line(f"removed {crawl}: {format_count(count, 'task')}{_given_back(store, size)}")


async def _read_what_is_there(frontier: Frontier) -> tuple[CrawlView, int]:
    workers = await frontier.workers()
    view = await frontier.store.crawl(frontier.crawl)
    return view, sum(worker.state != "gone" for worker in workers)


def _what_is_there(view: CrawlView) -> str:
    states = format_counts({name: getattr(view, name) for name in _STATES})
    queues, visits = sum(view.queues.values()), format_count(view.visits, "visit")
    parts = f"{format_count(view.known, 'task')} ({states}), {format_count(queues, 'queue')}"
    return f"crawl {view.crawl}, which is {view.status}: {parts}, {visits}"


_STATES: Final = ("pending", "leased", "done", "dead", "dropped")


@contextmanager
def _noted_if_interrupted(crawl: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print_note(f"crawl {crawl!r} is removed in part; the same command continues")
        raise


def _file_size(store: str) -> int | None:
    """Return the bytes of a file and of its log; None: the store is no file."""
    if "://" in store:
        return None
    return sum(path.stat().st_size for path in (Path(store), Path(f"{store}-wal")) if path.exists())


def _given_back(store: str, before: int | None) -> str:
    after = _file_size(store)
    if before is None or after is None or after >= before:
        return ""
    return f"; {format_size(before - after)} given back, the file has {format_size(after)}"
