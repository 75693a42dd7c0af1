"""One worker of a fleet: claims, visits, finishes, and writes down what it did and was told.

`python -m fleet.worker URL LEDGER WORLD [SKEW]`; SKEW is by how many seconds its
clock is wrong. It ends with the crawl; a store that does not answer is asked again.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from fleet.fake_web import CRAWL, World
from fleet.worker_log import Added, Ledger, Told, Unsure, Visited
from outrider.clock import SystemClock, uptime
from outrider.core.outcome import Outcome
from outrider.core.states import CrawlStatus
from outrider.core.task import Lease
from outrider.errors import StoreError
from outrider.frontier import Frontier

READY: Final = "working"
BATCH: Final = 8
_PATIENCE: Final = 120.0  # seconds one call is asked again for
T = TypeVar("T")


class Skewed(SystemClock):
    """A clock that is wrong."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._skew = round(seconds * 1000)

    def now_ms(self) -> int:
        """See `Clock`."""
        return super().now_ms() + self._skew


class Worker:
    """Works on a frontier until its crawl is over."""

    def __init__(self, frontier: Frontier, world: World, ledger: Ledger) -> None:
        self._frontier = frontier  # opened by `run`
        self._world = world
        self._ledger = ledger

    async def run(self) -> None:
        """Seeds in, then visits."""
        _ = await self._sure("open", self._frontier.__aenter__)
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        seeds = self._world.seeds()
        await self._sure("add", lambda: self._frontier.add(seeds))
        self._ledger.write([Added(uptime(), seeds)])
        while await self._turn():
            pass

    async def _sure(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        """Every verb may be repeated: ask until there is an answer."""
        until = uptime() + _PATIENCE
        while True:
            try:
                return await call()
            except StoreError as error:
                self._ledger.write([Unsure(uptime(), verb, repr(error)[:300])])
                if not error.retryable or uptime() > until:
                    raise
                await asyncio.sleep(random.uniform(0.02, 0.3))

    async def _turn(self) -> bool:
        """False: the crawl is over."""
        asked = uptime()
        claim = await self._sure("claim", lambda: self._frontier.claim(BATCH, wait=0.3))
        if not claim:
            return claim.status not in (CrawlStatus.FINISHED, CrawlStatus.CANCELLED)
        visited = self._visit(claim, asked)
        if visited:
            await asyncio.sleep(self._world.duration)
            await self._finish(visited)
        return True

    def _visit(self, leases: Sequence[Lease], asked: float) -> list[Lease]:
        """D7: a host is asked only while the lease surely lasts longer than the visit."""
        now, world = uptime(), self._world
        if now - asked > world.lease - world.duration - 0.2:
            return []
        until = now + world.duration
        self._ledger.write([Visited(now, until, one.key, one.url) for one in leases])
        return list(leases)

    async def _finish(self, leases: Sequence[Lease]) -> None:
        world = self._world
        ends: list[tuple[Lease, Outcome]] = [
            (one, world.outcome_of(one.url, one.failures)) for one in leases
        ]
        batch = [(one, outcome, world.links_of(one.url)) for one, outcome in ends]
        answers = await self._sure("finish", lambda: self._frontier.finish_many(batch))
        now = uptime()
        self._ledger.write(
            [
                Told(now, one.url, one.token, type(outcome).__name__, applied)
                for (one, outcome), applied in zip(ends, answers, strict=True)
            ]
        )


async def _work(url: str, path: Path, world: World, skew: float) -> None:
    ledger = Ledger(path)
    frontier = Frontier.open(
        url, settings=world.settings(), crawl=CRAWL, clock=Skewed(skew), worker=path.stem
    )
    try:
        await Worker(frontier, world, ledger).run()
    finally:
        await frontier.close()


def main(arguments: list[str]) -> None:
    """Work to the end of the crawl, or until killed."""
    url, ledger, world, *skew = arguments
    settings = msgspec.json.decode(world, type=World)
    asyncio.run(_work(url, Path(ledger), settings, float(*skew or ("0",))))


if __name__ == "__main__":
    main(sys.argv[1:])
