"""A planned crawl, run: seeds added, progress shown, signals heard, and the end told."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from rich.console import Console

from outrider.cli.crawl_log import VisitLog
from outrider.cli.crawl_plan import Plan
from outrider.cli.crawl_report import Closing, closing
from outrider.cli.crawl_view import LiveView, Moment, PlainView, SilentView
from outrider.cli.showing import note
from outrider.core.states import CrawlStatus
from outrider.frontier.reports import Stats
from outrider.wiring import Crawling, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERY: Final = 0.5  # seconds between two looks at the store
COSTS: Final = 20  # a look may take a twentieth of the time
View: TypeAlias = LiveView | PlainView


async def run(plan: Plan, *, isolate: bool, quiet: bool) -> Closing:
    """To its end, or until a signal says stop."""
    async with opened(
        plan.store, settings=plan.settings, handler=plan.handler, isolate=isolate
    ) as crawling:
        await _begin(crawling, plan)
        gc.freeze()  # what is there stays: no collection need look at it again
        loop = asyncio.get_running_loop()
        began = loop.time()
        with VisitLog(plan.log) as log, _heard(crawling):
            crawling.observe(log)
            async with _watched(crawling, plan, quiet=quiet):
                ending = await crawling.run()
        return await closing(crawling.frontier, ending, crawling.tally, loop.time() - began)


async def _begin(crawling: Crawling, plan: Plan) -> None:
    """A second run goes on, whatever the first was stopped by."""
    frontier = crawling.frontier
    view = await frontier.store.crawl(frontier.crawl)
    if view.status is CrawlStatus.PAUSED:
        await frontier.resume()
    report = await frontier.add(plan.urls)
    for answer in report.answers:
        if not answer.added and answer.reason != "duplicate":
            note(f"{answer.url}: {answer.reason}{f', {answer.detail}' if answer.detail else ''}")


@contextmanager
def _heard(crawling: Crawling) -> Iterator[None]:
    """J4: the first signal drains, the second ends it at once."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for one in signals:
        loop.add_signal_handler(one, crawling.executor.stop)
    try:
        yield
    finally:
        for one in signals:
            loop.remove_signal_handler(one)


@asynccontextmanager
async def _watched(crawling: Crawling, plan: Plan, *, quiet: bool) -> AsyncIterator[None]:
    with _view(plan, quiet=quiet) as view:
        watcher = asyncio.create_task(_watch(crawling, plan, view.see))
        try:
            yield
        finally:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher


def _view(plan: Plan, *, quiet: bool) -> View:
    console = Console(stderr=True, highlight=False)
    if quiet:
        return SilentView(note)
    if console.is_terminal:
        return LiveView(console, f"outrider crawl · {plan.store}")
    return PlainView(note)


async def _watch(crawling: Crawling, plan: Plan, see: Callable[[Moment], None]) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        before = loop.time()
        stats = await crawling.frontier.stats()
        see(_moment(crawling, plan, stats, before - began))
        await asyncio.sleep(max(EVERY, COSTS * (loop.time() - before)))


def _moment(crawling: Crawling, plan: Plan, stats: Stats, elapsed: float) -> Moment:
    executor, tally = crawling.executor, crawling.tally
    status = "stopping" if executor.is_stopping else stats.status
    return Moment(
        elapsed,
        status if not stats.reason or status != "paused" else f"paused ({stats.reason})",
        stats.known,
        stats.pending - stats.held,
        stats.held,
        executor.in_flight,
        stats.done,
        tally.visits - tally.outcomes["done"] - tally.outcomes["dropped"],
        stats.dead,
        stats.dropped,
        tally.visits,
        tally.bytes,
        (executor.slots.busy, executor.slots.count),
        stats.queues,
        _left(plan, stats, elapsed),
        tuple(tally.latest),
    )


def _left(plan: Plan, stats: Stats, elapsed: float) -> str:
    """What the crawl's limits leave."""
    limits, parts = plan.settings.limits, []
    if limits.done:
        parts.append(f"{max(0, limits.done - stats.outcomes.get('done', 0)):,} pages")
    if limits.seconds:
        parts.append(f"{max(0.0, limits.seconds - elapsed):.0f} s")
    if limits.bytes:
        parts.append(f"{max(0, limits.bytes - stats.bytes):,} bytes")
    return f"limits leave {', '.join(parts)}" if parts else ""
