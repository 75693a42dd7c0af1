"""Benchmarks of the memory store: rates, cost by number of queues, idle claims, longest call."""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from outrider.bench import workload
from outrider.bench.file_store import EAGER, single_visits, tasks_of, visit
from outrider.bench.measurement import Measure, Windows, as_measured, best, resident, run
from outrider.core.outcome import Done
from outrider.core.task import Link
from outrider.frontier import Frontier
from outrider.store.protocol import ClaimRequest, FullStore
from outrider.testing.clock import FakeClock

WORKER = "bench"


def rates(size: int, rounds: int) -> Iterator[Measure]:
    """Measure adds, claims and finishes per second through the frontier, and the baseline."""
    texts = workload.pages(size)
    raw = list(workload.stream(texts))
    links = workload.parsed(raw)
    tasks = tasks_of(links)
    yield from best("bound: adds, dict and heaps", lambda: workload.baseline_adds(tasks), rounds)
    yield from best(
        "bound: visits, heaps", lambda: workload.baseline_visits(tasks, size // 2), rounds
    )
    yield from best("adds, parsed links", lambda: run(_adds(links)), rounds, 200_000)
    yield from best("adds, raw text", lambda: run(_adds(raw)), rounds, 120_000)
    yield from best("claim + finish, batches of 100", lambda: run(_visits(links)), rounds, 60_000)
    yield from best("claim(1) + finish(1), 10 links", lambda: run(_singles(links)), rounds, 8_000)


async def _adds(items: list[Link] | list[str]) -> list[float]:
    async with Frontier.open("memory://", clock=FakeClock()) as frontier:
        windows = Windows(20_000)
        for batch in workload.batches(items):
            await frontier.add(batch)
            windows.done(len(batch))
        return windows.rates


async def _visits(links: list[Link]) -> list[float]:
    clock = FakeClock()
    async with Frontier.open("memory://", clock=clock) as frontier:
        for batch in workload.batches(links):
            await frontier.add(batch)
        wanted, count, windows = len(links) // 4, 0, Windows(5_000)
        while count < wanted:
            count += await visit(frontier, clock, windows)
        return windows.rates


async def _singles(links: list[Link]) -> list[float]:
    clock = FakeClock()
    async with Frontier.open("memory://", clock=clock) as frontier:
        return await single_visits(frontier, clock, links)


def flatness(few: int, many: int, rounds: int) -> Iterator[Measure]:
    """Measure the claim cost per lease with many queues, as a ratio to that with few."""
    for name, hold, most in (("all active", False, 3.0), ("hold_queues", True, 2.0)):
        small, large = run(_claim_costs(few, many, rounds, hold=hold))
        title = f"claim at {many:,} queues ÷ at {few:,}, {name}"
        yield Measure(f"claim a lease, {few:,} queues, {name}", small * 1e6, "µs")
        yield Measure(f"claim a lease, {many:,} queues, {name}", large * 1e6, "µs")
        yield Measure(title, large / small, "×", most, is_most=True)


async def _claim_costs(few: int, many: int, rounds: int, *, hold: bool) -> tuple[float, float]:
    small = await _with_queues(few, 60 * rounds * 100 // few + 1, hold=hold)
    large = await _with_queues(many, 1, hold=hold)
    costs: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):  # alternating, so that both see the same noise
        costs[0].append(await _claim_cost(small))
        costs[1].append(await _claim_cost(large))
    result = min(costs[0]), min(costs[1])
    await small.close()
    await large.close()
    return result


async def _with_queues(queues: int, each: int, *, hold: bool) -> Frontier:
    budget = {"hold_queues": hold, "balance": 10**9}
    settings = {"politeness": EAGER["politeness"], "budget": budget}
    frontier = await Frontier.open("memory://", settings=settings, clock=FakeClock())
    await frontier.add(
        (f"https://host-{queue}.example/{page}" for page in range(each) for queue in range(queues)),
        answers=False,
    )
    return frontier


async def _claim_cost(frontier: Frontier) -> float:
    spent, leased = 0.0, 0
    for _ in range(60):
        before = time.process_time()
        claim = await frontier.store.claim(ClaimRequest(frontier.crawl, WORKER, 100))
        spent += time.process_time() - before
        leased += len(claim.leases)
        await frontier.finish_many([(lease, Done(200)) for lease in claim.leases])
    return spent / leased


def idle(queues: int) -> Iterator[Measure]:
    """Measure an empty claim with every queue snoozed, and with every queue retired."""
    for name in ("snoozed", "retired"):
        cost = run(_idle_claim(queues, is_snoozed=name == "snoozed"))
        title = f"empty claim, {queues:,} queues {name}"
        yield Measure(title, cost * 1e6, "µs", 1000, is_most=True)


async def _idle_claim(queues: int, *, is_snoozed: bool) -> float:
    frontier = await _with_queues(queues, 1, hold=False)
    group = frontier.queue(".example")
    await (group.snooze(3600) if is_snoozed else group.retire())
    await frontier.claim(1)
    costs = [await _timed(frontier.store) for _ in range(200)]
    await frontier.close()
    return min(costs)


async def _timed(store: FullStore) -> float:
    before = time.perf_counter()
    await store.claim(ClaimRequest("default", WORKER, 100))
    return time.perf_counter() - before


def longest_calls(size: int) -> Iterator[Measure]:
    """Measure the longest single call while a crawl grows to a size, and at that size."""
    yield from as_measured(_longest_calls(size))


async def _longest_calls(size: int) -> AsyncIterator[Measure]:
    clock = FakeClock()
    texts = workload.pages(size + size // 50, seed=5)
    before = resident()
    async with Frontier.open("memory://", clock=clock) as frontier:
        growing = [await _add_timed(frontier, batch) for batch in workload.batches(texts[:size])]
        bytes_each = (resident() - before) / size
        yield Measure(f"memory a task at {size:,}, URL and all", bytes_each, "B")
        yield Measure(f"longest add of 500 while growing to {size:,}", max(growing) * 1e3, "ms")
        middle = size + size // 100
        collected = await _working(frontier, clock, texts[size:middle])
        yield Measure(f"longest call at {size:,} tasks, Python collecting", collected * 1e3, "ms")
        gc.freeze()  # see docs/how-to/large-crawls.md: these are pauses of Python, not of the store
        working = await _working(frontier, clock, texts[middle:])
        gc.unfreeze()
        yield Measure(f"longest call at {size:,} tasks", working * 1e3, "ms", 50, is_most=True)


async def _working(frontier: Frontier, clock: FakeClock, texts: list[str]) -> float:
    longest = 0.0
    for batch in workload.batches(texts):
        longest = max(longest, await _add_timed(frontier, batch))
        longest = max(longest, *await _visit_timed(frontier, clock))
    return longest


async def _add_timed(frontier: Frontier, batch: Any) -> float:
    before = time.perf_counter()
    await frontier.add(batch, answers=False)
    return time.perf_counter() - before


async def _visit_timed(frontier: Frontier, clock: FakeClock) -> list[float]:
    start = time.perf_counter()
    claim = await frontier.claim(100)
    middle = time.perf_counter()
    await frontier.finish_many([(lease, Done(200, 0.1)) for lease in claim])
    end = time.perf_counter()
    clock.advance(0.5)
    return [middle - start, end - middle]
