"""Outrider's store on a server, used as by a worker: through a frontier, in batches."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from calls import Calls

from outrider.bench import workload
from outrider.bench.file_store import EAGER
from outrider.core.outcome import Done
from outrider.core.task import Link, Task
from outrider.core.url import Url, parse_url
from outrider.frontier import Frontier
from outrider.frontier.policies import admission_for, scorer_for

BATCH = 500
CLAIM = 100
HANDS = 2  # batches a worker has under way


class Worked:
    """The result of a worker."""

    def __init__(self) -> None:
        self.claims, self.finishes = Calls(), Calls()
        self.visits, self.seconds = 0, 0.0

    @property
    def rate(self) -> float:
        """Visits per second of wall time."""
        return self.visits / self.seconds

    def told(self) -> dict[str, Any]:
        """Return the figures of the report."""
        claims, finishes = self.claims.told(), self.finishes.told()
        return {"claims": claims, "finishes": finishes, "visits": self.visits, "rate": self.rate}


async def opened(url: str, **politeness: Any) -> Frontier:
    """Open a frontier, by default without delays."""
    eager: dict[str, Any] = EAGER
    settings = {**eager, "politeness": {**eager["politeness"], **politeness}}
    return await Frontier.open(url, settings=settings)


def admitted(frontier: Frontier, texts: Sequence[str]) -> list[Task]:
    """Return tasks for a store: parsing is not measured."""
    settings = frontier.settings
    admission = admission_for(settings, frontier.crawl, scorer_for(settings), random.random)
    return cast("list[Task]", admission.admit(workload.parsed(list(texts)), are_seeds=True))


async def batches(frontier: Frontier, texts: Sequence[str]) -> AsyncIterator[list[Task]]:
    """Yield tasks in batches."""
    for start in range(0, len(texts), BATCH):
        yield admitted(frontier, texts[start : start + BATCH])


async def fill(frontier: Frontier, texts: Sequence[str]) -> None:
    """Add all batches."""
    async for batch in batches(frontier, texts):
        await frontier.store.add(batch)


async def fill_queues(frontier: Frontier, queues: int, each: int = 1) -> None:
    """Return tasks of so many queues with so many tasks each."""
    for page in range(each):
        for start in range(0, queues, BATCH):
            numbers = range(start, min(start + BATCH, queues))
            urls = [parse_url(f"https://host-{number}.example/{page}") for number in numbers]
            await frontier.add([Link(cast("Url", url)) for url in urls], answers=False)


async def wait(frontier: Frontier) -> None:
    """Wait until a queue may be ready; an empty store has no figure."""
    if not (await frontier.stats()).pending:
        raise RuntimeError("all work was done before the end: ask for less, or fill more")
    await asyncio.sleep(0.002)


async def work(frontier: Frontier, seconds: float, limit: int = CLAIM) -> Worked:
    """Claim and finish for so long, with two batches in flight as a worker has."""
    worked = Worked()
    began = time.perf_counter()
    await asyncio.gather(*(_hand(frontier, worked, began + seconds, limit) for _ in range(HANDS)))
    worked.seconds = time.perf_counter() - began
    return worked


async def _hand(frontier: Frontier, worked: Worked, end: float, limit: int) -> None:
    while time.perf_counter() < end:
        count, _ = await visit(frontier, worked.claims, worked.finishes, limit)
        worked.visits += count
        if not count:
            await wait(frontier)


async def visit(
    frontier: Frontier, claims: Calls, finishes: Calls, limit: int = CLAIM
) -> tuple[int, float | None]:
    """Claim at most one task per host and finish; return how many, and when to claim again."""
    with claims.timed(limit):
        claim = await frontier.claim(limit, per_queue=1)
    if claim:
        with finishes.timed(len(claim)):
            ends = await frontier.finish_many([(lease, Done(200, 0.1)) for lease in claim])
        if not all(ends):
            raise RuntimeError("a finish was refused: such a run has no figure")
    return len(claim), claim.wake_in
