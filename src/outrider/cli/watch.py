"""`outrider watch`: a crawl as it runs, and keys to steer it; in a pipe, a line a sample."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Final

import typer

from outrider.cli.options import Crawl, Json, Store, seconds_of
from outrider.cli.showing import note, say, say_json
from outrider.cli.watch_plain import ENDED, line, shape
from outrider.clock import Clock, SystemClock
from outrider.errors import InvalidInput
from outrider.monitoring.connection import CrawlConnection, Presence
from outrider.monitoring.monitor import CrawlMonitor, Observation
from outrider.monitoring.sampler import SampleRequest

LEAST_EVERY: Final = 0.2  # seconds: more often tells nobody more


def _every(text: str) -> float:
    seconds = seconds_of(text)
    if seconds < LEAST_EVERY:
        raise typer.BadParameter(f"{text}: at least {LEAST_EVERY} seconds")
    return seconds


def watch(
    store: Store,
    *,
    every: Annotated[
        float,
        typer.Option("--every", metavar="SECONDS", parser=_every, help="Between two samples."),
    ] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="One sample, as a line, and no more.")
    ] = False,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Watch a crawl while it runs, or one that nobody runs; keys pause, slow and retire hosts.

    In a pipe, with --once or with --json: a line a sample, until the crawl has ended.
    """
    is_live = sys.stdin.isatty() and sys.stdout.isatty() and not (once or as_json)
    monitor = CrawlMonitor(CrawlConnection(store, crawl))
    if is_live:
        asyncio.run(live(monitor, every))
    else:
        asyncio.run(plain(monitor, every, once=once, as_json=as_json))


async def live(watch: CrawlMonitor, every: float) -> None:
    """On a terminal, until somebody leaves."""
    try:
        from outrider.cli.watch_app import WatchApp
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"the live view needs {error.name}: pip install 'outrider[cli]', or say --once"
        ) from error
    try:
        app = WatchApp(watch, await watch.start(), every=every)
        await app.run_async()
    finally:
        await watch.connection.close()
    raise typer.Exit(app.return_code or 0)


async def plain(
    watch: CrawlMonitor, every: float, *, once: bool, as_json: bool, clock: Clock | None = None
) -> None:
    """A line a sample; what cannot be seen is a remark, once."""
    clock = clock or SystemClock()
    try:
        seen = await watch.start(SampleRequest(whole=once))
        _tell(seen, watch, as_json=as_json)
        while not (once or seen.sample.crawl.status in ENDED):
            await clock.sleep(every)
            last, seen = seen, await watch.poll()
            if seen.is_new:
                _tell(seen, watch, as_json=as_json)
            if _news(seen) and _news(seen) != _news(last):
                note(_news(seen))
    finally:
        await watch.connection.close()


def _tell(seen: Observation, watch: CrawlMonitor, *, as_json: bool) -> None:
    if as_json:
        say_json(shape(seen, watch.sampler.hosts))
    else:
        say(line(seen.sample))
    sys.stdout.flush()


def _news(seen: Observation) -> str:
    if seen.presence is Presence.ALONE:
        return f"nobody runs {seen.sample.crawl.crawl} now; waiting until somebody does"
    return seen.problem
