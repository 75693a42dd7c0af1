"""A worker that logs every call and visit: adds, visits, releases, an operator's actions.

It makes one call at a time, and every line about a call is written before the next call is made.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import call_log
from call_log import Line, LogFile, LoggedStore, Opening, VisitsBegan, VisitsEnded
from crash.history import History
from outrider.clock import SystemClock
from outrider.core import queue_action as actions
from outrider.core.outcome import (
    Blocked,
    Done,
    Dropped,
    Failed,
    Outcome,
    Throttled,
    Unreachable,
)
from outrider.core.task import Lease, Link
from outrider.errors import StoreFull
from outrider.frontier import Frontier
from outrider.settings import Settings, crawl_rules, settings_of
from outrider.store.factory import open_store
from outrider.store.protocol import FullStore, Step, TaskFilter

CRAWL: Final = "crash"
ROLL: Final = 0.5  # all random numbers, so that the same outcome has the same verdict
_SMALL_HOSTS: Final = 150
_MAX_TASKS: Final = 5000

# Every kind of politeness and budget; other hosts have no delay.
HOSTS: Final[dict[str, dict[str, object]]] = {
    "brief.test": {"delay": 0.02},
    "calm.test": {"delay": 0.06},
    "slow.test": {"delay": 0.2},
    "clamped.test": {"min_delay": 0.03, "factor": 2.0},
    "wide.test": {"delay": 0.02, "max_in_flight": 3},
    "started.test": {"delay": 0.05, "max_in_flight": 2, "count_from": "start"},
    "poor.test": {"total_budget": 25, "error_penalty": 1},
    "session.test": {"balance": 4},
    "quick.test": {"max_in_flight": 8},
    "paced.test": {"visits_per_second": 30.0, "max_in_flight": 3},
}


_ACTIONS: Final[dict[str, actions.QueueAction]] = {
    "pause": actions.Pause(),
    "resume": actions.Resume(),
    "retire": actions.Retire(),
    "revive": actions.Revive(),
    "wake": actions.Wake(),
}


def settings_for(durability: str) -> Settings:
    """Return the settings of every process that opens the file."""
    return settings_of(
        {
            "store": {"durability": durability},
            "politeness": {"factor": 0.0, "min_delay": 0.0},
            "queue": {"max_depth": 1_000_000},
            "retry": {
                "max_retries": 2,
                "base": 0.01,
                "jitter": 0.0,
                "blocked": {"max_retries": 2, "base": 0.01, "cap": 0.05},
            },
            "lease": {"max_crashes": 4},
            "keys": HOSTS,
        }
    )


class HoldableClock(SystemClock):
    """The system's clock, which can be stopped while many views are compared with each other."""

    def __init__(self) -> None:
        super().__init__()
        self._held: int | None = None

    def now_ms(self) -> int:
        """See `Clock`."""
        return super().now_ms() if self._held is None else self._held

    @contextmanager
    def held(self) -> Iterator[int]:
        """Stop the clock; the instant."""
        self._held = super().now_ms()
        try:
            yield self._held
        finally:
            self._held = None


class Worker:
    """Works on a frontier over a logged store."""

    def __init__(
        self, log: LogFile, history: History, dice: random.Random, clock: HoldableClock
    ) -> None:
        self.log = log
        self.history = history
        self.clock = clock
        self.held: list[Lease] = []
        self._dice = dice
        self._ending: list[Lease] = []  # about to be finished or released
        self._ended: list[tuple[Lease, Outcome]] = []
        self._own: FullStore | None = None  # to be closed with the worker

    @classmethod
    async def open(
        cls,
        source: Path | FullStore,
        log: Path,
        seed: int,
        durability: str = "process",
        *,
        clock: HoldableClock | None = None,
    ) -> Worker:
        """Open the file, and compare all of it with the log before anything else is done.

        An open store is the caller's to close, and uses the clock given here.
        """
        settings = settings_for(durability)
        history = History(crawl_rules(settings), CRAWL)
        history.read(call_log.read(log))
        worker = cls(LogFile(log), history, random.Random(seed), clock or HoldableClock())
        await worker._start(source, settings)
        return worker

    async def reopened(self, source: Path) -> Worker:
        """Open the file again, after this worker closed it, and compare it with this history."""
        log = LogFile(Path(os.devnull))
        worker = Worker(log, self.history, self._dice, self.clock)
        await worker._start(source, self.frontier.settings)
        return worker

    async def _start(self, source: Path | FullStore, settings: Settings) -> None:
        self._write(Opening(self.now))
        if isinstance(source, Path):
            durability = settings.store.durability
            source = self._own = await open_store(str(source), self.clock, durability=durability)
        store = LoggedStore(source, self._write, self.clock.now_ms)
        self.frontier = await Frontier.open(
            store, settings=settings, crawl=CRAWL, clock=self.clock, dice=lambda: ROLL
        )
        await self.compare()

    async def compare(self) -> None:
        """Check that the store shows what the log says."""
        with self.clock.held() as now:
            settled = await self.history.settle(self.frontier.store, now)
        if settled is not None:
            self.log.write(settled)

    async def close(self) -> None:
        """Close what this worker opened; its leases stay for the next opening."""
        await self.frontier.close()
        if self._own is not None:
            await self._own.close()
        self.log.close()

    def _write(self, line: Line) -> None:
        self.log.write(line)
        self.history.follow(line)

    @property
    def now(self) -> int:
        """The store's time in milliseconds."""
        return self.clock.now_ms()

    async def step(self) -> None:
        """Make one random call."""
        calls = (self.add, self.claim, self.finish, self.release, self.steer, self.change_tasks)
        (call,) = self._dice.choices(calls, (20, 30, 40, 4, 4, 2))
        await call()

    # ---- links

    def _link(self) -> Link:
        dice = self._dice
        if dice.random() < 0.6:
            key = dice.choice([*HOSTS, "free.test", "free-too.test"])
        else:
            key = f"s{dice.randrange(_SMALL_HOSTS)}.test"
        url = f"https://{key}/{dice.randrange(800 if dice.random() < 0.7 else 40)}"
        known = dice.choices(("keep", "raise", "revisit"), (8, 1, 1))[0]
        delay = dice.choice((0.01, 0.1, 5.0)) if dice.random() < 0.1 else 0.0
        priority = float(dice.randrange(-50, 50))
        return Link(url, priority=priority, delay=delay, known=known)  # type: ignore[arg-type]

    def _links(self) -> list[Link]:
        is_full = len(self.history.expected.tasks) > _MAX_TASKS
        most = 4 if is_full else self._dice.choices((2, 8, 30, 300), (8, 4, 2, 1))[0]
        return [self._link() for _ in range(self._dice.randint(1, most))]

    async def add(self) -> None:
        """Add links, many of them known."""
        await self.frontier.add(self._links())

    # ---- visits

    async def claim(self) -> None:
        """Claim a random number of tasks."""
        await self.claim_some(self._dice.choice((1, 4, 40)))

    async def claim_some(self, limit: int) -> None:
        """Claim up to so many tasks, and begin their visits."""
        leases = list(await self.frontier.claim(limit))
        if leases:
            self._write(VisitsBegan(self.now, _visits(leases)))
            self.held += leases

    def _some_held(self) -> list[Lease]:
        self._dice.shuffle(self.held)
        count = self._dice.choice((1, 1, 1, 3, 20))
        self._ending, self.held = self.held[:count], self.held[count:]
        return self._ending

    async def _end(self, call: Callable[[], Awaitable[object]]) -> None:
        """End visits; if the store refuses, their leases are held as before."""
        self._write(VisitsEnded(self.now, _visits(self._ending)))
        try:
            await call()
        except StoreFull:
            self.held, self._ending = self.held + self._ending, []
            raise
        self._ending = []

    async def finish(self) -> None:
        """Finish some visits with any outcome and links; now and then, repeat an earlier finish."""
        leases = self._some_held()
        if not leases:
            return
        visits = [(lease, self._outcome()) for lease in leases]
        if self._ended and self._dice.random() < 0.05:
            visits.append(self._ended[-1])
        ends = [
            (lease, outcome, self._links() if self._dice.random() < 0.5 else [])
            for lease, outcome in visits
        ]
        await self._end(lambda: self.frontier.finish_many(ends))
        self._ended = visits[:1]  # a refused one has not ended

    def _outcome(self) -> Outcome:
        dice, name = self._dice, f"reason {self._dice.randrange(1_000_000)}"
        choice = dice.random()
        if choice < 0.6:
            return Done(200, dice.random() / 50, dice.randrange(1000), name)
        if choice < 0.65:
            return Done(200, revisit_in=dice.choice((0.0, 0.05, 60.0)))
        if choice < 0.8:
            return Failed(name, dice.random() / 50)
        if choice < 0.9:
            return Blocked(name)
        rare: tuple[Outcome, ...] = (Throttled(1.0), Unreachable(name), Dropped(name))
        return dice.choices(rare, (1, 1, 6))[0]

    async def release(self) -> None:
        """Release some leases."""
        leases = self._some_held()
        if leases:
            await self._end(lambda: self.frontier.release(leases))

    # ---- operators

    async def steer(self) -> None:
        """Act on a queue."""
        key = self._dice.choice(
            [*HOSTS, "free.test", f"s{self._dice.randrange(_SMALL_HOSTS)}.test"]
        )
        (name,) = self._dice.choices([*_ACTIONS, "snooze"], (2, 5, 1, 4, 6, 2))
        if name == "snooze":
            act: actions.QueueAction = actions.Snooze(self._dice.choice((0.02, 0.2, 30.0)))
        else:
            act = _ACTIONS[name]
        await self.frontier.store.steer(CRAWL, key, act)

    async def change_tasks(self) -> None:
        """Drop, replay or purge tasks of a queue, one step by number."""
        verb = self._dice.choices(("drop", "replay", "purge"), (1, 4, 1))[0]
        key = self._dice.choice([*HOSTS, "free.test"])
        after = self._dice.randrange(len(self.history.expected.tasks) + 1)
        limit = self._dice.choice((10, 100, 1000))
        change: Callable[..., Awaitable[Step]] = getattr(self.frontier.store, verb)
        await change(CRAWL, TaskFilter(key=key), dry_run=False, after=after, limit=limit)


def _visits(leases: list[Lease]) -> list[tuple[str, str]]:
    return [(lease.key, lease.url) for lease in leases]
