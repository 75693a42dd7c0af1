"""A worker that writes down what it was told: adds, visits, releases, an operator's actions.

Every line about a call is written before the next call is made, so at most one is ever unsure.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from crash import call_log
from crash.call_log import (
    Add,
    Asked,
    Begun,
    Call,
    Claim,
    End,
    Ended,
    Finish,
    LedgerFile,
    Lent,
    Line,
    Opening,
    Refused,
    Release,
    Said,
    Steer,
    Sweep,
    Told,
)
from crash.history import History
from outrider.clock import SystemClock
from outrider.core import queue_action as actions
from outrider.core.decide import decide
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
from outrider.frontier.policies import admission_for, policy_for, scorer_for
from outrider.settings import Settings, crawl_rules, settings_of
from outrider.store.protocol import FullStore, Step, TaskFilter

CRAWL: Final = "crash"
ROLL: Final = 0.5  # all dice, so that what follows from an outcome is known before it is handed in
_SMALL_HOSTS: Final = 150
_MOST_TASKS: Final = 5000

# Every kind of manners and budget; hosts without an entry wait for nothing.
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


_ACTS: Final[dict[str, actions.QueueAction]] = {
    "pause": actions.Pause(),
    "resume": actions.Resume(),
    "retire": actions.Retire(),
    "revive": actions.Revive(),
    "wake": actions.Wake(),
}


def settings_for(durability: str) -> Settings:
    """The same in every process that opens the file."""
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


class Watch(SystemClock):
    """The system's time, which may be held while many views are compared with each other."""

    def __init__(self) -> None:
        super().__init__()
        self._held: int | None = None

    def now_ms(self) -> int:
        """See `Clock`."""
        return super().now_ms() if self._held is None else self._held

    @contextmanager
    def held(self) -> Iterator[int]:
        """Time stands still; the instant."""
        self._held = super().now_ms()
        try:
            yield self._held
        finally:
            self._held = None


class Worker:
    """Works on an open frontier, and writes it down."""

    def __init__(
        self, frontier: Frontier, ledger: LedgerFile, history: History, dice: random.Random
    ) -> None:
        self.frontier = frontier
        self._ledger = ledger
        self._dice = dice
        self.history = history
        self.held: list[Lease] = []
        self._in_hand: list[Lease] = []  # about to be given back
        self._ended: list[tuple[Lease, Outcome]] = []
        settings = frontier.settings
        admission = admission_for(settings, CRAWL, scorer_for(settings), lambda: ROLL)
        self._policy = policy_for(settings, admission)

    @classmethod
    async def open(
        cls,
        source: Path | FullStore,
        ledger: Path,
        seed: int,
        durability: str = "process",
        *,
        clock: Watch | None = None,
    ) -> Worker:
        """Open the file, and compare all of it with the ledger before anything else is done.

        An open store is the caller's to close, and tells its time by the clock given here.
        """
        settings = settings_for(durability)
        history = History(crawl_rules(settings))
        history.read(call_log.read(ledger))
        clock, book = clock or Watch(), LedgerFile(ledger)
        frontier = Frontier.open(
            source, settings=settings, crawl=CRAWL, clock=clock, dice=lambda: ROLL
        )
        worker = cls(frontier, book, history, random.Random(seed))
        worker._write(Opening(clock.now_ms()))
        _ = await frontier
        await worker.compare(clock)
        return worker

    async def compare(self, clock: Watch) -> None:
        """All the store shows is what the ledger says."""
        with clock.held() as now:
            settled = await self.history.settle(self.frontier.store, CRAWL, now)
        if settled is not None:
            self._ledger.write(settled)

    async def close(self) -> None:
        """Let go; leases still held are left to whoever opens the file next."""
        await self.frontier.close()
        self._ledger.close()

    def _write(self, line: Line) -> None:
        self._ledger.write(line)
        self.history.follow(line)

    @property
    def now(self) -> int:
        """The store's clock."""
        return self.frontier.clock.now_ms()

    async def _call(self, call: Call, make: Callable[[], Awaitable[Told]]) -> Told:
        self._write(Asked(self.now, call))
        try:
            told = await make()
        except StoreFull:
            self._write(Refused(self.now))
            self.held, self._in_hand = self.held + self._in_hand, []
            raise
        self._in_hand = []
        self._write(told)
        return told

    async def step(self) -> None:
        """One call, whichever the dice say."""
        calls = (self.add, self.claim, self.finish, self.release, self.steer, self.sweep)
        (call,) = self._dice.choices(calls, (20, 30, 40, 4, 4, 2))
        await call()

    # ---- links

    def _link(self) -> Said:
        dice = self._dice
        if dice.random() < 0.6:
            key = dice.choice([*HOSTS, "free.test", "free-too.test"])
        else:
            key = f"s{dice.randrange(_SMALL_HOSTS)}.test"
        url = f"https://{key}/{dice.randrange(800 if dice.random() < 0.7 else 40)}"
        known = dice.choices(("keep", "raise", "revisit"), (8, 1, 1))[0]
        delay = dice.choice((0.01, 0.1, 5.0)) if dice.random() < 0.1 else 0.0
        return Said(url, key, float(dice.randrange(-50, 50)), delay, known)

    def _links(self) -> list[Said]:
        is_full = len(self.history.books.tasks) > _MOST_TASKS
        most = 4 if is_full else self._dice.choices((2, 8, 30, 300), (8, 4, 2, 1))[0]
        return [self._link() for _ in range(self._dice.randint(1, most))]

    async def add(self) -> None:
        """Links, many of them known."""
        links = self._links()

        async def make() -> Told:
            report = await self.frontier.add([_link_of(said) for said in links])
            return Told(self.now, [answer.added for answer in report.answers])

        await self._call(Add(links), make)

    # ---- visits

    async def claim(self) -> None:
        """Whatever may be visited; hosts see the visits begin."""
        limit = self._dice.choice((1, 4, 40))
        await self.claim_some(limit)

    async def claim_some(self, limit: int) -> None:
        """Up to so many."""
        leases: list[Lease] = []

        async def make() -> Told:
            leases.extend(await self.frontier.claim(limit))
            return Told(self.now, leases=[_lent_of(lease) for lease in leases])

        await self._call(Claim(limit), make)
        if leases:
            self._write(Begun(self.now, _visits(leases)))
            self.held += leases

    def _some_held(self) -> list[Lease]:
        self._dice.shuffle(self.held)
        count = self._dice.choice((1, 1, 1, 3, 20))
        self._in_hand, self.held = self.held[:count], self.held[count:]
        return self._in_hand

    async def finish(self) -> None:
        """Some visits end, each with any outcome and its links; now and then one is told twice."""
        leases = self._some_held()
        if not leases:
            return
        self._write(Ended(self.now, _visits(leases)))
        visits = [(lease, self._outcome()) for lease in leases]
        if self._ended and self._dice.random() < 0.05:
            visits.append(self._ended[-1])
        found = [self._links() if self._dice.random() < 0.5 else [] for _ in visits]
        ends = [
            End(lease.url, decide(lease, outcome, self._policy, ROLL), links)
            for (lease, outcome), links in zip(visits, found, strict=True)
        ]

        async def make() -> Told:
            answers = await self.frontier.finish_many(
                [
                    (lease, outcome, [_link_of(said) for said in links])
                    for (lease, outcome), links in zip(visits, found, strict=True)
                ]
            )
            return Told(self.now, answers)

        await self._call(Finish(ends), make)
        self._ended = visits[:1]  # a refused one has not ended: told again, it would end unnoticed

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
        """Some leases are given back."""
        leases = self._some_held()
        if not leases:
            return
        self._write(Ended(self.now, _visits(leases)))

        async def make() -> Told:
            freed = await self.frontier.release(leases)
            return Told(self.now, [lease in freed for lease in leases])

        await self._call(Release([lease.url for lease in leases]), make)

    # ---- operators

    async def steer(self) -> None:
        """An act on a queue."""
        key = self._dice.choice(
            [*HOSTS, "free.test", f"s{self._dice.randrange(_SMALL_HOSTS)}.test"]
        )
        (act,) = self._dice.choices([*_ACTS, "snooze"], (2, 5, 1, 4, 6, 2))
        seconds = self._dice.choice((0.02, 0.2, 30.0)) if act == "snooze" else 0.0

        async def make() -> Told:
            done = actions.Snooze(seconds) if act == "snooze" else _ACTS[act]
            await self.frontier.store.steer(CRAWL, key, done)
            return Told(self.now)

        await self._call(Steer(key, act, seconds), make)

    async def sweep(self) -> None:
        """A step over tasks: dropped, replayed or purged."""
        verb = self._dice.choices(("drop", "replay", "purge"), (1, 4, 1))[0]
        key = self._dice.choice([*HOSTS, "free.test"])
        after = self._dice.randrange(len(self.history.books.tasks) + 1)
        limit = self._dice.choice((10, 100, 1000))

        async def make() -> Told:
            sweep: Callable[..., Awaitable[Step]] = getattr(self.frontier.store, verb)
            step = await sweep(CRAWL, TaskFilter(key=key), dry_run=False, after=after, limit=limit)
            return Told(self.now, count=step.count)

        await self._call(Sweep(verb, key, after, limit), make)

    async def reopened(self, source: Path, clock: Watch) -> Worker:
        """The file again, after this one closed it; compared with what this one remembers."""
        frontier = Frontier.open(
            source, settings=self.frontier.settings, crawl=CRAWL, clock=clock, dice=lambda: ROLL
        )
        worker = Worker(frontier, LedgerFile(Path(os.devnull)), self.history, self._dice)
        worker._write(Opening(clock.now_ms()))
        _ = await frontier
        await worker.compare(clock)
        return worker


def _link_of(said: Said) -> Link:
    return Link(said.url, priority=said.priority, delay=said.delay, known=said.known)  # type: ignore[arg-type]


def _lent_of(lease: Lease) -> Lent:
    return Lent(lease.url, lease.key, lease.task, lease.token, lease.attempt, lease.failures)


def _visits(leases: list[Lease]) -> list[tuple[str, str]]:
    return [(lease.key, lease.url) for lease in leases]
