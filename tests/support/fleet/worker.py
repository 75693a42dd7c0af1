"""One worker process of a fleet: claims, visits, finishes, and logs visits and calls.

`python -m fleet.worker URL LOG WORLD [SKEW]`, where SKEW is the error of its clock in seconds. It
ends with the crawl, and repeats calls that get no answer. Its calls are logged beside LOG, with the
suffix `.calls`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from call_log import LogFile, LoggedStore
from fleet.fake_web import CRAWL, World
from fleet.worker_log import Added, FinishAnswered, Unsure, Visited, WorkerLog
from outrider.clock import SystemClock, uptime
from outrider.core.outcome import Outcome
from outrider.core.states import CrawlStatus
from outrider.core.task import Lease
from outrider.errors import StoreError
from outrider.frontier import Frontier
from outrider.store.factory import open_store
from outrider.store.protocol import FullStore

READY: Final = "working"
BATCH: Final = 8
_RETRY_TIMEOUT: Final = 120.0  # seconds for which a call is repeated
T = TypeVar("T")


class SkewedClock(SystemClock):
    """A clock that is wrong by so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._skew = round(seconds * 1000)

    def now_ms(self) -> int:
        """See `Clock`."""
        return super().now_ms() + self._skew


class Worker:
    """Works on a frontier until its crawl is over."""

    def __init__(self, frontier: Frontier, world: World, log: WorkerLog) -> None:
        self._frontier = frontier  # opened by `run`
        self._world = world
        self._log = log

    async def run(self) -> None:
        """Add the seeds, then visit pages."""
        _ = await until_answered(self._log, "open", self._frontier.__aenter__)
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        seeds = self._world.seeds()
        await self._sure("add", lambda: self._frontier.add(seeds))
        self._log.write([Added(uptime(), seeds)])
        while await self._visit_some():
            pass

    async def _sure(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        return await until_answered(self._log, verb, call)

    async def _visit_some(self) -> bool:
        """Claim, visit and finish; return False when the crawl is over."""
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
        """Begin visits, if the leases surely last longer than these (D7)."""
        now, world = uptime(), self._world
        if now - asked > world.lease - world.duration - 0.2:
            return []
        until = now + world.duration
        self._log.write([Visited(now, until, one.key, one.url) for one in leases])
        return list(leases)

    async def _finish(self, leases: Sequence[Lease]) -> None:
        world = self._world
        ends: list[tuple[Lease, Outcome]] = [
            (one, world.outcome_of(one.url, one.failures)) for one in leases
        ]
        batch = [(one, outcome, world.links_of(one.url)) for one, outcome in ends]
        answers = await self._sure("finish", lambda: self._frontier.finish_many(batch))
        now = uptime()
        self._log.write(
            [
                FinishAnswered(now, one.url, one.token, type(outcome).__name__, applied)
                for (one, outcome), applied in zip(ends, answers, strict=True)
            ]
        )


async def until_answered(log: WorkerLog, verb: str, call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until there is an answer: every verb may be repeated."""
    until = uptime() + _RETRY_TIMEOUT
    while True:
        try:
            return await call()
        except StoreError as error:
            log.write([Unsure(uptime(), verb, repr(error)[:300])])
            if not error.retryable or uptime() > until:
                raise
            await asyncio.sleep(random.uniform(0.02, 0.3))


async def _work(url: str, path: Path, world: World, skew: float) -> None:
    log, clock = WorkerLog(path), SkewedClock(skew)
    store = await until_answered(log, "open", lambda: open_store(url, clock))
    try:
        await _work_on(store, path, world, log, clock)
    finally:
        await store.close()


async def _work_on(
    store: FullStore, path: Path, world: World, log: WorkerLog, clock: SkewedClock
) -> None:
    calls = LogFile(path.with_suffix(".calls"))
    frontier = Frontier.open(
        LoggedStore(store, calls.write, lambda: int(uptime() * 1_000_000)),
        settings=world.settings(),
        crawl=CRAWL,
        clock=clock,
        worker=path.stem,
    )
    try:
        await Worker(frontier, world, log).run()
    finally:
        await frontier.close()


def main(arguments: list[str]) -> None:
    """Work to the end of the crawl, or until killed."""
    url, log, world, *skew = arguments
    settings = msgspec.json.decode(world, type=World)
    asyncio.run(_work(url, Path(log), settings, float(*skew or ("0",))))


if __name__ == "__main__":
    main(sys.argv[1:])
