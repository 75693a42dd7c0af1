"""The scenario of a seed: web, settings, faults and workers, all chosen before the start.

Equal seeds give equal scenarios, on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from outrider.core.policy.lanes import Lanes
from outrider.core.policy.politeness import Politeness
from outrider.core.policy.retry import Backoff, Retry
from outrider.core.policy.rules import Budget, Limits
from outrider.settings import CrawlSettings, LeaseSettings, QueueSettings, Settings
from outrider.simulation.web import Shape, Web
from outrider.testing.faults import Shares


class Habits(msgspec.Struct, frozen=True):
    """How often workers misbehave, as shares of their visits."""

    crash: float = 0.0  # forgets its leases
    hang: float = 0.0  # pauses before a visit, at times longer than its lease
    linger: float = 0.0  # pauses after a visit, at times longer than its lease
    release: float = 0.0  # releases a lease without a visit
    repeat: float = 0.0  # reports a visit twice
    renew: float = 0.0  # extends all its leases before a visit
    extend: float = 0.5  # extends the lease of a long visit, instead of cutting the visit


class Scenario(msgspec.Struct, frozen=True):
    """Everything that a seed determines."""

    seed: int
    web: Web
    settings: Settings
    faults: Shares
    habits: Habits
    workers: int
    limit: int  # the most tasks a worker claims at once
    batch: int  # visits that a worker reports at once
    per_queue: int
    waves: int  # number of times that seeds are added
    act_every: float  # seconds between two actions of the operator; 0: no operator
    heal_at: float  # seconds after which there are no faults
    lend: float  # share of claims that borrow whole queues
    limited: float  # share of claims, before healing, by keys or of so many queues

    def healed(self) -> Settings:
        """Return the settings after healing: only politeness limits a queue."""
        budget = Budget(cost=self.settings.budget.cost)
        queue = replace(self.settings.queue, max_pending=0, max_pending_per_queue=0)
        return replace(
            self.settings,
            budget=budget,
            queue=queue,
            crawl=CrawlSettings(),
            limits=Limits(),
            keys={},
        )


def scenario_of(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    dice = random.Random(seed)
    heal_at = dice.uniform(60.0, 400.0)
    rough = dice.choice((0.0, 0.5, 1.0, 1.0, 2.0))  # factor on all faults
    later = random.Random(f"{seed} later")  # draws what came later, so that seeds keep the rest
    return Scenario(
        seed=seed,
        web=Web(seed, _shape(dice, heal_at)),
        settings=_settings(dice, later),
        faults=_shares(dice, rough),
        habits=_habits(dice, rough),
        workers=dice.choice((1, 2, 2, 3, 4)),
        limit=dice.choice((1, 1, 2, 4)),
        batch=dice.choice((1, 1, 2, 3)),
        per_queue=dice.choice((0, 0, 0, 1, 2)),
        waves=dice.randint(1, 3),
        act_every=dice.choice((0.0, 6.0, 20.0, 60.0)),
        heal_at=heal_at,
        lend=dice.choice((0.0, 0.0, 0.3, 1.0)),
        limited=later.choice((0.0, 0.0, 0.2, 0.5)),
    )


def _shape(dice: random.Random, calm_at: float) -> Shape:
    return Shape(
        hosts=dice.randint(2, 9),
        pages=dice.randint(8, 50),
        skew=dice.choice((0.5, 1.0, 1.6)),
        calm_at=calm_at,
    )


def _shares(dice: random.Random, rough: float) -> Shares:
    def some() -> float:
        return rough * dice.choice((0.0, 0.02, 0.05))

    longest = dice.choice((0.5, 5.0, 20.0))
    return Shares(some(), some(), some(), some(), some(), longest=longest)


def _habits(dice: random.Random, rough: float) -> Habits:
    def some() -> float:
        return rough * dice.choice((0.0, 0.03, 0.1))

    renew, extend = dice.choice((0.0, 0.3)), dice.choice((0.0, 0.5, 1.0))
    return Habits(some(), some(), some(), some(), some(), renew, extend)


def _settings(dice: random.Random, later: random.Random) -> Settings:
    blocks = later.choice((0, 1, 3, 3))
    return Settings(
        politeness=Politeness(**_politeness(dice), blocks_to_snooze=blocks),
        budget=Budget(**_budget(dice)),
        queue=QueueSettings(**_queue(dice)),
        lanes=Lanes(burst=dice.choice((1, 2, 5))),
        retry=Retry(
            max_retries=dice.randint(0, 3),
            base=dice.choice((0.0, 1.0, 20.0)),
            blocked=Backoff(max_retries=2, base=60.0, cap=600.0, jitter=0.0, spread=30.0),
        ),
        lease=LeaseSettings(
            seconds=round(dice.uniform(6.0, 60.0), 3),
            max_crashes=dice.randint(1, 4) * (later.random() >= _SELDOM),
        ),
        crawl=_crawl(dice, later),
        limits=_limits(dice),
        keys=_overrides(dice),
    )


_SELDOM: Final = 0.1


def _crawl(dice: random.Random, later: random.Random) -> CrawlSettings:
    pauses = dice.random() < _SELDOM
    return CrawlSettings(pauses, stay_open=not pauses and later.random() < _SELDOM)


def _politeness(dice: random.Random) -> Mapping[str, Any]:
    shared: dict[str, Any] = {
        "max_in_flight": dice.choice((1, 1, 1, 2, 3)),
        "count_from": dice.choice(("end", "end", "end", "start")),
        "respect_crawl_delay": dice.choice((5.0, 300.0)),
    }
    fixed = dice.choice(
        (
            {},
            {},
            {"factor": 2.0, "min_delay": 0.5, "max_delay": 8.0},
            {"delay": 0.0},
            {"delay": 2.0},
            {"delay": 1.0, "delay_to": 4.0},
            {"visits_per_second": 0.5},
            {"visits_per_second": 0.3, "delay": 0.0},
            {"kb_per_second": 10.0},
        )
    )
    return shared | fixed


def _budget(dice: random.Random) -> Mapping[str, Any]:
    return {
        "hold_queues": dice.random() < 0.4,
        "balance": dice.choice((1, 2, 5, 20, 3000)),
        "total_budget": dice.choice((-1, -1, -1, 3, 8, 20)),
        "cost": dice.choice(("unit", "unit", "wag", "anti-calendar", "zero")),
        "error_penalty": dice.choice((0, 0, 1, 3)),
        "max_done": dice.choice((0, 0, 0, 0, 5)),
        "max_bytes": dice.choice((0, 0, 0, 0, 100_000)),
    }


def _queue(dice: random.Random) -> Mapping[str, Any]:
    return {
        "key": dice.choice(("host", "host", "host", "host", "domain", "buckets:3")),
        "order": dice.choice(("priority", "priority", "round-robin")),
        "tie": dice.choice(("fifo", "fifo", "lifo", "shuffle")),
        "breadth_discount": dice.choice((0.0, 0.0, 2.0, 10.0)),
        "max_depth": dice.randint(3, 6),
        "max_pending": dice.choice((0, 0, 0, 0, 25)),
        "max_pending_per_queue": dice.choice((0, 0, 0, 0, 6)),
    }


def _limits(dice: random.Random) -> Limits:
    if dice.random() >= _SELDOM:
        return Limits()
    return Limits(done=dice.choice((0, 5, 20)), tasks=dice.choice((0, 30)))


def _overrides(dice: random.Random) -> dict[str, dict[str, Any]]:
    if dice.random() < 0.7:
        return {}
    some: dict[str, Any] = dice.choice(
        (
            {"precedence": -1},
            {"precedence": 2, "balance": 2},
            {"delay": 3.0},
            {"max_in_flight": 2},
            {"max_in_flight": 3, "visits_per_second": 0.4},
            {"total_budget": 4},
            {"paused": True},
            {"retired": True},
        )
    )
    return {dice.choice((".north.example", ".east.example", ".example")): some}
