"""`outrider watch`: a crawl as it runs, with keys to steer it; in a pipe, one line per sample."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
import typer

from outrider.cli.options import Crawl, Json, Store, parse_seconds
from outrider.cli.terminal import (
    fields_of,
    format_counts,
    format_duration,
    format_instant,
    format_size,
    print_json,
    print_line,
    print_note,
)
from outrider.clock import Clock, SystemClock
from outrider.core.states import UNKNOWN, CrawlStatus
from outrider.errors import InvalidInput
from outrider.frontier.reports import bounded_groups
from outrider.monitoring.connection import CrawlConnection, Presence
from outrider.monitoring.hosts import Host, HostOrder, Hosts
from outrider.monitoring.monitor import CrawlMonitor, Observation
from outrider.monitoring.sampler import Sample, SampleRequest

MIN_INTERVAL: Final = 0.2  # seconds


def _parse_interval(text: str) -> float:
    seconds = parse_seconds(text)
    if seconds < MIN_INTERVAL:
        raise typer.BadParameter(f"{text} is too short: give at least {MIN_INTERVAL} seconds")
    return seconds


def watch(
    store: Store,
    *,
    every: Annotated[
        float,
        typer.Option(
            "--every",
            metavar="SECONDS",
            parser=_parse_interval,
            help="Seconds between two samples.",
        ),
    ] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one sample as a line, and exit.")
    ] = False,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Watch a crawl, running or not, in a live view; keys pause, slow and retire hosts.

    In a pipe, with --once or with --json: one line per sample, until the crawl has ended.
    """
    is_live = sys.stdin.isatty() and sys.stdout.isatty() and not (once or as_json)
    monitor = CrawlMonitor(CrawlConnection(store, crawl))
    if is_live:
        asyncio.run(show_live(monitor, every))
    else:
        asyncio.run(print_samples(monitor, every, once=once, as_json=as_json))


async def show_live(monitor: CrawlMonitor, every: float) -> None:
    """Show the live view until the user quits."""
    try:
        from outrider.cli.watch_app import WatchApp
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"the live view needs {error.name}: pip install 'outrider[cli]', or use --once"
        ) from error
    try:
        app = WatchApp(monitor, await monitor.start(), every=every)
        await app.run_async()
    finally:
        await monitor.connection.close()
    raise typer.Exit(app.return_code or 0)


async def print_samples(
    monitor: CrawlMonitor, every: float, *, once: bool, as_json: bool, clock: Clock | None = None
) -> None:
    """Print one line per sample; a problem is noted once."""
    clock = clock or SystemClock()
    try:
        request = SampleRequest(metrics=as_json)
        seen = await monitor.start(msgspec.structs.replace(request, whole=once))
        _print_sample(seen, monitor, as_json=as_json)
        while not (once or seen.sample.crawl.status in ENDED):
            await clock.sleep(every)
            last, seen = seen, await monitor.poll(request)
            if seen.is_new:
                _print_sample(seen, monitor, as_json=as_json)
            if _remark(seen) and _remark(seen) != _remark(last):
                print_note(_remark(seen))
    finally:
        await monitor.connection.close()


def _print_sample(seen: Observation, monitor: CrawlMonitor, *, as_json: bool) -> None:
    if as_json:
        print_json(sample_json(seen, monitor.sampler.hosts))
    else:
        print_line(sample_line(seen.sample))
    sys.stdout.flush()


def _remark(seen: Observation) -> str:
    if seen.sample.crawl.reason == UNKNOWN:
        return f"crawl {seen.sample.crawl.crawl!r} was removed from its store"
    if seen.presence is Presence.ALONE:
        return f"no process runs {seen.sample.crawl.crawl} now; waiting until one does"
    return seen.problem


# ---- a sample as text and as JSON


JSON_HOSTS: Final = 10  # hosts in each list of a JSON sample
TASKS: Final = ("known", "pending", "leased", "done", "dead", "dropped", "held")
ENDED: Final = (CrawlStatus.FINISHED, CrawlStatus.CANCELLED)


def sample_line(sample: Sample) -> str:
    """A sample as one line."""
    return "  ".join(_line_parts(sample))


def _line_parts(sample: Sample) -> Iterator[str]:
    crawl, rates = sample.crawl, sample.rates
    yield format_instant(sample.at)
    yield crawl.status + (f" ({crawl.reason})" if crawl.reason else "")
    for name in TASKS:
        yield f"{name} {getattr(crawl, name):,}"
    if rates is not None:
        yield f"{rates.visits:,.1f} visits/s"
        yield f"{rates.done:,.1f} done/s"
        yield f"{rates.failed:,.1f} failed/s"
        yield f"{format_size(round(rates.bytes))}/s"
    left = sample.progress.time_left()
    if left:
        yield f"about {format_duration(left)} left"
    yield f"queues: {format_counts(sample.queues)}"


def sample_json(seen: Observation, hosts: Hosts) -> dict[str, Any]:
    """A sample as JSON, with the leading hosts."""
    sample = seen.sample
    return {
        "at": sample.at,
        "presence": seen.presence,
        **fields_of(sample.crawl, **bounded_groups(sample.crawl)),
        "queues": sample.queues,
        "rates": sample.rates,
        "time_left": sample.progress.time_left(),
        "busiest": [_host_json(host) for host in hosts.ranked(HostOrder.BUSIEST, JSON_HOSTS)],
        "slowest": [_host_json(host) for host in hosts.ranked(HostOrder.SLOWEST, JSON_HOSTS)],
        "heatmap": sample.heat,
        "metrics": sample.metrics,
    }


def _host_json(host: Host) -> dict[str, Any]:
    return fields_of(host.view, at=host.at, pace=host.pace)
