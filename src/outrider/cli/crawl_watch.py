"""The progress view of a crawl while it runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple, TypeAlias

from rich.console import Console

from outrider.cli.crawl_view import LiveView, Moment, PlainView, SilentView
from outrider.cli.showing import note
from outrider.core.policy.rules import Limits
from outrider.errors import StoreUnavailable
from outrider.executor.slots import max_slots
from outrider.fetch.local_faults import descriptor_shortage
from outrider.frontier import Frontier
from outrider.settings import Settings
from outrider.store.protocol import CrawlView
from outrider.wiring import Crawling

COSTS: Final = 20  # a look may take a twentieth of the time
View: TypeAlias = LiveView | PlainView


class Looks(NamedTuple):
    """How closely the store is looked at."""

    every: float = 0.5  # seconds between two looks
    hosts: int = 20_000  # looked at, of very many


def say_shortage(settings: Settings) -> None:
    """Warn of a limit of open files that may be too low for the visits at one time."""
    if warning := descriptor_shortage(max_slots(settings.executor)):
        note(warning)


@asynccontextmanager
async def watched(
    crawling: Crawling, title: str, looks: Looks, *, quiet: bool
) -> AsyncIterator[None]:
    """Show how it stands until it is over."""
    with _view(title, quiet=quiet) as view:
        watcher = asyncio.create_task(_watch(crawling, looks, view.see))
        try:
            yield
        finally:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher


def _view(title: str, *, quiet: bool) -> View:
    console = Console(stderr=True, highlight=False)
    if quiet:
        return SilentView(note)
    if console.is_terminal:
        return LiveView(console, title)
    return PlainView(note)


async def _watch(crawling: Crawling, looks: Looks, see: Callable[[Moment], None]) -> None:
    loop, frontier = asyncio.get_running_loop(), crawling.frontier
    began = loop.time()
    while True:
        before = loop.time()
        with suppress(StoreUnavailable):  # whoever runs the crawl says so
            view = await frontier.store.crawl(frontier.crawl)
            hosts = await _hosts(frontier, looks.hosts)
            see(_moment(crawling, view, hosts, before - began))
        await asyncio.sleep(max(looks.every, COSTS * (loop.time() - before)))


async def _hosts(frontier: Frontier, most: int) -> Counter[str]:
    """Hosts by state; of very many only the first, so that a look stays cheap."""
    states: Counter[str] = Counter()
    after: int | None = 0
    while after is not None and states.total() < most:
        page = await frontier.store.queue_states(frontier.crawl, after=after)
        states.update(state.value for state in page.items)
        after = page.after
        await asyncio.sleep(0)
    return states


def _moment(crawling: Crawling, view: CrawlView, hosts: Counter[str], elapsed: float) -> Moment:
    executor, tally = crawling.executor, crawling.tally
    status = "stopping" if executor.is_stopping else view.status
    if executor.pause.is_on and status == "running":
        status = f"waiting: {executor.pause.message.partition(';')[0]}"
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
        _left(crawling.frontier.settings.limits, view, elapsed),
        tuple(tally.latest),
    )


def _left(limits: Limits, view: CrawlView, elapsed: float) -> str:
    """What the crawl's limits leave."""
    parts = []
    if limits.done:
        parts.append(f"{max(0, limits.done - view.outcomes.get('done', 0)):,} pages")
    if limits.seconds:
        parts.append(f"{max(0.0, limits.seconds - elapsed):.0f} s")
    if limits.bytes:
        parts.append(f"{max(0, limits.bytes - view.bytes):,} bytes")
    return f"limits leave {', '.join(parts)}" if parts else ""
