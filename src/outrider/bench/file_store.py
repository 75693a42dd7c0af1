"""Benchmarks of the embedded store, with the baseline in the same run."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from outrider.bench import workload
from outrider.bench.measurement import Measure, Windows, best, run
from outrider.core.outcome import Done
from outrider.core.task import Link, Task
from outrider.frontier import Frontier
from outrider.frontier.policies import admission_for, scorer_for
from outrider.testing.clock import FakeClock

EAGER = {"politeness": {"min_delay": 0.0, "factor": 0.0}, "budget": {"balance": 10**9}}


def rates(size: int, rounds: int) -> Iterator[Measure]:
    """Measure adds, visits and both together per CPU second; durability `process`."""
    raw = list(workload.stream(workload.pages(size)))
    tasks = tasks_of(workload.parsed(raw))
    yield from (
        limits := best("bound: adds, dict and heaps", lambda: workload.baseline_adds(tasks), rounds)
    )
    yield from (ours := best("file: adds, parsed", lambda: run(adds(tasks)), rounds))
    # Medians: the baseline's best windows are its first, while all of it fits into the cache.
    yield Measure("file: adds, parsed ÷ bound", ours[1].value / limits[1].value, "×", 0.30)
    yield from best("file: adds, raw text", lambda: run(raw_adds(raw)), rounds, 100_000)
    yield from best("file: claim + finish, 100", lambda: run(visits(tasks)), rounds)
    beside = "file: claims beside 5 adds each, parsed"
    yield from best(beside, lambda: run(steady(tasks)), rounds, 20_000)
    yield from best("file: the same from raw text", lambda: run(raw_steady(raw)), rounds, 8_000)
    yield from best(
        "file: claim(1) + finish(1), 10 links", lambda: run(singles(raw)), rounds, 3_000
    )


def tasks_of(links: list[Link]) -> list[Task]:
    """Return the tasks that a frontier makes of these links."""
    settings = Frontier.open("memory://", settings=EAGER).settings
    admission = admission_for(settings, "default", scorer_for(settings), random.random)
    tasks: list[Task] = []
    for batch in workload.batches(links):
        tasks += cast("list[Task]", admission.admit(batch, are_seeds=True))
    return tasks


@asynccontextmanager
async def open_frontier() -> AsyncIterator[tuple[Frontier, FakeClock]]:
    """Open a frontier over a temporary file."""
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "bench.outrider"
        async with Frontier.open(path, settings=EAGER, clock=clock) as frontier:
            yield frontier, clock


async def adds(tasks: list[Task]) -> list[float]:
    """Add parsed links directly to the store."""
    async with open_frontier() as (frontier, _):
        windows = Windows(20_000)
        for start in range(0, len(tasks), workload.BATCH):
            windows.done(len(await frontier.store.add(tasks[start : start + workload.BATCH])))
        return windows.rates


async def raw_adds(texts: list[str]) -> list[float]:
    """Add URL texts through the frontier."""
    async with open_frontier() as (frontier, _):
        windows = Windows(20_000)
        for batch in workload.batches(texts):
            await frontier.add(batch)
            windows.done(len(batch))
        return windows.rates


async def visits(tasks: list[Task]) -> list[float]:
    """Claim and finish, without adds."""
    async with open_frontier() as (frontier, clock):
        await frontier.store.add(tasks)
        windows = Windows(2_000)
        while len(windows.rates) < 20 and await visit(frontier, clock, windows):
            pass
        return windows.rates


async def claims(tasks: list[Task]) -> list[float]:
    """Claim only, to compare with peers that have no finish: finishes are not timed."""
    rates: list[float] = []
    spent, count = 0.0, 0
    async with open_frontier() as (frontier, clock):
        await frontier.store.add(tasks)
        while len(rates) < 20:
            before = time.process_time()
            claim = await frontier.claim(100)
            spent, count = spent + time.process_time() - before, count + len(claim)
            await frontier.finish_many([(lease, Done(200, 0.1)) for lease in claim])
            clock.advance(0.0 if len(claim) == 100 else claim.wake_in or 1.0)
            if count >= 2_000:
                rates, spent, count = [*rates, count / spent], 0.0, 0
    return rates


async def visit(frontier: Frontier, clock: FakeClock, windows: Windows) -> int:
    """Claim 100 tasks and finish them; return how many there were."""
    claim = await frontier.claim(100)
    await frontier.finish_many([(lease, Done(200, 0.1)) for lease in claim])
    windows.done(len(claim))
    if len(claim) < 100:
        clock.advance(claim.wake_in or 1.0)
    return len(claim)


async def steady(tasks: list[Task]) -> list[float]:
    """Make five adds for every visit, with half of the tasks pending from the start."""
    async with open_frontier() as (frontier, clock):
        batches = [tasks[at : at + workload.BATCH] for at in range(0, len(tasks), workload.BATCH)]
        return await _steady(frontier, clock, batches, frontier.store.add)


async def raw_steady(texts: list[str]) -> list[float]:
    """Do the same as `steady` with URL texts."""
    async with open_frontier() as (frontier, clock):
        return await _steady(frontier, clock, list(workload.batches(texts)), frontier.add)


async def _steady(
    frontier: Frontier,
    clock: FakeClock,
    batches: list[list[Task]] | list[list[Link] | list[str]],
    add: Callable[..., Awaitable[object]],
) -> list[float]:
    half = len(batches) // 2
    for batch in batches[:half]:
        await add(batch)
    windows = Windows(2_000)
    for batch in batches[half:]:
        await add(batch)
        await visit(frontier, clock, windows)
    return windows.rates


async def singles(texts: list[str]) -> list[float]:
    """Visit one page at a time, each with ten links."""
    async with open_frontier() as (frontier, clock):
        return await single_visits(frontier, clock, workload.parsed(texts[:60_000]))


async def single_visits(frontier: Frontier, clock: FakeClock, links: list[Link]) -> list[float]:
    """Visit one page at a time, each with ten links, on any store."""
    await frontier.add(links[:5000])
    count, windows = 0, Windows(500)
    while count < 5000:
        claim = await frontier.claim(1)
        if not claim:
            clock.advance(claim.wake_in or 1.0)
            continue
        found = links[5000 + count * 10 : 5010 + count * 10]
        await frontier.finish(claim[0], Done(200, 0.1), found)
        count += 1
        windows.done(1)
    return windows.rates
