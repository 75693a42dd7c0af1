"""A whole play: a server, a fleet, what befalls them, and the judgement when the crawl is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from fleet.failures import SCENES, AnyServer, Fault, Scene
from fleet.fake_web import World
from fleet.fleet import Fleet
from fleet.verify import Judgement, judge, ledgers, rate, recovered
from fleet.worker_log import Line
from outrider.clock import SystemClock
from outrider.store.opening import open_store
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


class Played(msgspec.Struct, frozen=True):
    """How it went."""

    judgement: Judgement
    fault: Fault
    recovery: float | None  # seconds from the end of the fault to the next visit that counted
    share: float  # of the rate before the fault that was there after it
    lines: list[Line]


def play(server: str, scene: str, rounds: int, folder: Path, world: World, seed: int = 0) -> Played:
    """Begin with the fault when a tenth of the pages are done; go on to the end of the crawl."""
    with ExitStack() as stack:
        running: AnyServer = SERVERS[server]()
        stack.enter_context(running)
        line = stack.enter_context(ProxyProcess(_first_url(running)))
        url = _store_url(running)
        fleet = stack.enter_context(Fleet(url, folder, world))
        # One worker goes through the line; on a cluster nodes name each other, so nobody does.
        through = url if isinstance(running, ValkeyCluster) else line.url
        for number in range(WORKERS):
            fleet.start(url=through if number == 0 else None)
        fleet.await_ready()
        fleet.wait_for(world.hosts * world.pages // 10)
        fault = SCENES[scene](Scene(fleet, running, line, through, random.Random(seed)), rounds)
        fleet.finish()
        lines = ledgers(folder)
        judgement = asyncio.run(_judged(url, world, lines))
    return Played(judgement, fault, recovered(lines, fault.healed), _share(lines, fault), lines)


def _first_url(server: AnyServer) -> str:
    return server.nodes[0].url if isinstance(server, ValkeyCluster) else server.url


def _store_url(server: AnyServer) -> str:
    return server.store_url if isinstance(server, ValkeyCluster) else server.url


async def _judged(url: str, world: World, lines: list[Line]) -> Judgement:
    store = await open_store(url, SystemClock())
    try:
        return await judge(store, world, lines)
    finally:
        await store.close()


def _share(lines: list[Line], fault: Fault) -> float:
    """Of the rate before: over as long again after, or what there was of it."""
    first, last = lines[0].at, lines[-1].at
    after = fault.healed + (recovered(lines, fault.healed) or 0.0)
    long = min(fault.begun - first, last - after)
    before = rate(lines, fault.begun - long, fault.begun)
    return rate(lines, after, after + long) / before if before else 0.0
