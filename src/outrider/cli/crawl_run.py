"""A planned crawl, run: seeds added, progress shown, signals heard, and the end told."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from rich.console import Console

from outrider.cli.crawl_log import VisitLog
from outrider.cli.crawl_plan import Plan
from outrider.cli.crawl_report import Closing, closing
from outrider.cli.crawl_view import LiveView, Moment, PlainView, SilentView
from outrider.cli.showing import note
from outrider.core.outcome import Done
from outrider.core.states import CrawlStatus
from outrider.executor.visit import Visit
from outrider.frontier import Frontier
from outrider.store.protocol import CrawlView
from outrider.wiring import Crawling, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERY: Final = 0.5  # seconds between two looks at the store
COSTS: Final = 20  # a look may take a twentieth of the time
WORRIES: Final = 3  # failures told while nothing else has happened
HOSTS: Final = 20_000  # looked at, of very many
View: TypeAlias = LiveView | PlainView


async def run(plan: Plan, *, isolate: bool, quiet: bool) -> Closing:
    """To its end, or until a signal says stop."""
    async with opened(
        plan.store, settings=plan.settings, handler=plan.handler, isolate=isolate
    ) as crawling:
        is_new = await _begin(crawling, plan)
        gc.freeze()  # what is there stays: no collection need look at it again
        loop = asyncio.get_running_loop()
        began = loop.time()
        decisions = crawling.executor.scaler.decisions
        with VisitLog(plan.log, decisions) as log, _heard(crawling):
            crawling.observe(log)
            if is_new and not quiet:
                crawling.observe(Worry(note))
            async with _watched(crawling, plan, quiet=quiet):
                ending = await crawling.run()
        return await closing(crawling.frontier, ending, crawling.tally, loop.time() - began)


class Worry:
    """Says what goes wrong as long as nothing has gone well: a seed may be mistyped."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._left = WORRIES

    def __call__(self, visits: Sequence[Visit]) -> None:
        """These ended."""
        for visit in visits:
            if isinstance(visit.outcome, Done):
                self._left = 0
            elif self._left:
                self._left -= 1
                what = type(visit.outcome).__name__.lower()
                self._say(f"{visit.url}: {what}, {getattr(visit.outcome, 'reason', 'for now')}")


async def _begin(crawling: Crawling, plan: Plan) -> bool:
    """A second run goes on, whatever the first was stopped by; whether this is the first."""
    frontier = crawling.frontier
    view = await frontier.store.crawl(frontier.crawl)
    if view.status is CrawlStatus.PAUSED:
        await frontier.resume()
    report = await frontier.add(plan.urls)
    for answer in report.answers:
        if not answer.added and answer.reason != "duplicate":
            note(f"{answer.url}: {answer.reason}{f', {answer.detail}' if answer.detail else ''}")
    return not view.done


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
    loop, frontier = asyncio.get_running_loop(), crawling.frontier
    began = loop.time()
    while True:
        before = loop.time()
        view = await frontier.store.crawl(frontier.crawl)
        see(_moment(crawling, plan, view, await _hosts(frontier), before - began))
        await asyncio.sleep(max(EVERY, COSTS * (loop.time() - before)))


async def _hosts(frontier: Frontier) -> Counter[str]:
    """Hosts by state; of very many only the first, so that a look stays cheap."""
    states: Counter[str] = Counter()
    after: int | None = 0
    while after is not None and states.total() < HOSTS:
        page = await frontier.store.census(frontier.crawl, after=after)
        states.update(state.value for state in page.items)
        after = page.after
        await asyncio.sleep(0)
    return states


def _moment(
    crawling: Crawling, plan: Plan, view: CrawlView, hosts: Counter[str], elapsed: float
) -> Moment:
    executor, tally = crawling.executor, crawling.tally
    status = "stopping" if executor.is_stopping else view.status
    return Moment(
        elapsed,
        f"paused ({view.reason})" if status == "paused" and view.reason else status,
        view.known,
        view.pending - view.held,
        view.held,
        executor.in_flight,
        view.done,
        tally.visits - tally.outcomes["done"] - tally.outcomes["dropped"],
        view.dead,
        view.dropped,
        tally.visits,
        tally.bytes,
        (executor.slots.busy, executor.slots.count),
        hosts,
        _left(plan, view, elapsed),
        tuple(tally.latest),
    )


def _left(plan: Plan, view: CrawlView, elapsed: float) -> str:
    """What the crawl's limits leave."""
    limits, parts = plan.settings.limits, []
    if limits.done:
        parts.append(f"{max(0, limits.done - view.outcomes.get('done', 0)):,} pages")
    if limits.seconds:
        parts.append(f"{max(0.0, limits.seconds - elapsed):.0f} s")
    if limits.bytes:
        parts.append(f"{max(0, limits.bytes - view.bytes):,} bytes")
    return f"limits leave {', '.join(parts)}" if parts else ""
