"""Visits a second, direct claims beside a workbench, over a store that is far away.

python benchmarks/workbench.py [--visits N] [--slots N] [--latency MS …] [--store URL] [--json OUT]

Every call to the store waits for the latency, there and back in one. Handlers do nothing, so what
is measured is the way to the store. With `--store`, that store as it is: put the latency there.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from outrider import Done, Frontier
from outrider.bench.measurement import write_json
from outrider.clock import Clock, SystemClock
from outrider.executor.executor import Executor
from outrider.executor.handlers import Handlers
from outrider.executor.visit import Visit
from outrider.executor.workbench import Workbench
from outrider.store.factory import open_store
from outrider.store.protocol import FullStore
from outrider.testing.faults import Fate, Fault, FaultyStore

HOSTS = 2000
LATENCIES = (1.0, 10.0)  # milliseconds


class Measured(dict[str, float]):
    """One run: visits a second, and how often the store was called."""


async def handle(_visit: Visit) -> Done:
    """Nothing."""
    return Done(200)


async def measure(store: FullStore, asked: argparse.Namespace, *, is_bench: bool) -> Measured:
    """A whole crawl."""
    calls: Counter[str] = Counter()
    executor = {"slots": asked.slots, "workbench": is_bench, "poll_min": 0.2}
    settings = {"politeness": {"delay": 0.0}, "executor": executor}
    crawl = f"bench-{is_bench}-{id(store)}"
    async with Frontier.open(store, settings=settings, crawl=crawl) as frontier:
        urls = (f"https://h{n % HOSTS}.example/{n}" for n in range(asked.visits))
        await frontier.add(urls, answers=False)
        if isinstance(store, FaultyStore):
            calls = store.counts
            calls.clear()
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with Workbench(frontier) if is_bench else nullcontext():
            await Executor(frontier, Handlers(handle)).run()
        seconds = loop.time() - began
        done = (await frontier.stats()).done
    if done != asked.visits:
        sys.exit(f"{done} of {asked.visits} were visited")
    return Measured(rate=done / seconds, calls=sum(calls.values()))


async def far(clock: Clock, milliseconds: float) -> FullStore:
    """A store in memory behind a line that takes its time."""
    late = Fault(Fate.LATE, milliseconds / 1000)
    return FaultyStore(await open_store("memory://", clock), clock, lambda _verb: late)


async def both(asked: argparse.Namespace, latency: float | None) -> dict[str, Measured]:
    """Direct, then on a workbench; each with a crawl of its own."""
    found, clock = {}, SystemClock()
    for name, is_bench in (("direct", False), ("workbench", True)):
        if latency is None:
            store = await open_store(asked.store, clock)
        else:
            store = await far(clock, latency)
        found[name] = await measure(store, asked, is_bench=is_bench)
        await store.close()
    return found


def main() -> None:
    """Measure, print, write."""
    asked = _asked()
    places = {asked.store: None} if asked.store else {f"{ms:g} ms": ms for ms in asked.latency}
    report = {}
    print(
        f"{asked.visits:,} visits that do nothing, {asked.slots} slots, {HOSTS:,} hosts", flush=True
    )
    for name, latency in places.items():
        report[name] = found = asyncio.run(both(asked, latency))
        direct, bench = found["direct"]["rate"], found["workbench"]["rate"]
        calls = f"{found['direct']['calls']:,.0f} / {found['workbench']['calls']:,.0f} calls"
        rates = f"{direct:8,.0f} /s  {bench:8,.0f} /s  × {bench / direct:.1f}"
        print(f"{name:>8}: {rates}  {calls}", flush=True)
        if asked.json is not None:
            write_json(asked.json, report)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visits", type=int, default=20_000)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--latency", type=float, nargs="*", default=LATENCIES, metavar="MS")
    parser.add_argument("--store", default="")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
