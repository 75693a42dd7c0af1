"""One run of a fleet: a server, workers, a failure, and the verification at the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from fleet.failures import FAILURES, AnyServer, Failure, Setup
from fleet.fake_web import World
from fleet.fleet import Fleet
from fleet.verify import Report, rate, read_logs, recovered, verify
from fleet.worker_log import Line
from outrider.clock import SystemClock
from outrider.store.factory import open_store
from servers import PostgresServer, ProxyProcess, ValkeyCluster, ValkeyServer

DURABLE: Final = {"appendonly": "yes", "appendfsync": "always"}
EVERY_SECOND: Final = {"appendonly": "yes", "appendfsync": "everysec"}

SERVERS: Final[Mapping[str, Callable[[], AnyServer]]] = {
    "postgres": PostgresServer,
    "redis": lambda: ValkeyServer(options=DURABLE),
    "redis-everysec": lambda: ValkeyServer(options=EVERY_SECOND),
    "cluster": lambda: ValkeyCluster(options=DURABLE),
}
WORKERS: Final = 3


class FleetRun(msgspec.Struct, frozen=True):
    """The result of a run."""

    report: Report
    failure: Failure
    recovery: float | None  # seconds from the end of the failure to the next applied finish
    share: float  # the rate after the failure, as a share of the rate before it
    lines: list[Line]


def run(
    server: str, failure: str, rounds: int, folder: Path, world: World, seed: int = 0
) -> FleetRun:
    """Run a crawl to its end, with a failure when a tenth of the pages are done."""
    with ExitStack() as stack:
        running: AnyServer = SERVERS[server]()
        stack.enter_context(running)
        proxy = stack.enter_context(ProxyProcess(_first_url(running)))
        url = _store_url(running)
        fleet = stack.enter_context(Fleet(url, folder, world))
        # One worker connects through the proxy; a cluster's nodes name each other, so none can.
        through = url if isinstance(running, ValkeyCluster) else proxy.url
        for number in range(WORKERS):
            fleet.start(url=through if number == 0 else None)
        fleet.await_ready()
        fleet.wait_for(world.hosts * world.pages // 10)
        setup = Setup(fleet, running, proxy, through, random.Random(seed))
        failed = FAILURES[failure](setup, rounds)
        fleet.finish()
        lines = read_logs(folder)
        report = asyncio.run(_verify(url, world, folder))
    return FleetRun(report, failed, recovered(lines, failed.healed), _share(lines, failed), lines)


def _first_url(server: AnyServer) -> str:
    return server.nodes[0].url if isinstance(server, ValkeyCluster) else server.url


def _store_url(server: AnyServer) -> str:
    return server.store_url if isinstance(server, ValkeyCluster) else server.url


async def _verify(url: str, world: World, folder: Path) -> Report:
    store = await open_store(url, SystemClock())
    try:
        return await verify(store, world, folder)
    finally:
        await store.close()


def _share(lines: list[Line], failure: Failure) -> float:
    """Return the rate after a failure divided by that before, over equally long times."""
    first, last = lines[0].at, lines[-1].at
    after = failure.healed + (recovered(lines, failure.healed) or 0.0)
    length = min(failure.began - first, last - after)
    before = rate(lines, failure.began - length, failure.began)
    return rate(lines, after, after + length) / before if before else 0.0
