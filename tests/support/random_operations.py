"""Random crawls from a seed: few URLs, small budgets, much trouble, to reach deep states.

Every scene leaves some kinds of op out and does others often (swarm testing): what a mixture of all
would never do ten times in a row, some scene does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from operations import (
    CRAWLS,
    HOSTS,
    Add,
    Claim,
    ClaimNamed,
    Configure,
    Expire,
    Extend,
    Filter,
    Finish,
    Op,
    Page,
    Pass,
    Release,
    Reprice,
    Say,
    Stale,
    Steer,
    Turn,
    Wait,
)
from outrider.core.outcome import Blocked, Done, Dropped, Failed, Outcome, Throttled, Unreachable
from outrider.core.queue_action import Pause, QueueAction, Resume, Retire, Revive, Set, Snooze, Wake
from outrider.core.states import CrawlStatus
from outrider.core.task import KnownRule
from outrider.store.protocol import TaskFilter

WORKERS: Final = 3
PAGES: Final = 9  # of a host
TARGETS: Final = (*HOSTS, *HOSTS, ".example", ".b.example", "", "z.example")

KNOWN: Final[tuple[KnownRule, ...]] = (
    *("keep", "keep", "keep"),
    *("raise", "revisit", "gather"),
)


def random_ops(seed: int, length: int = 80) -> list[Op]:
    """A whole case: rules for two crawls, then so many ops; one in three has little trouble."""
    scene = Ordinary if seed % 3 == 2 else Scene
    return scene(Random(seed)).ops(length)


class Scene:
    """The dice of one case, and what it likes to do."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.hosts = dice.sample(HOSTS, dice.choice((1, 2, 3, 3, 4)))
        self.kinds = self._liking(KINDS)
        self.outcomes = self._liking(OUTCOMES)
        self.acts = self._liking(ACTS)
        self.crawls = CRAWLS if dice.random() < 0.3 else CRAWLS[:1]
        self.lease_for = dice.choice((5.0, 30.0, 60.0))

    def _liking(self, names: Mapping[str, float]) -> dict[str, float]:
        """Swarm: leave some out, love others."""
        weights = {
            name: weight * self.dice.choice((0.0, 0.3, 1.0, 1.0, 4.0))
            for name, weight in names.items()
        }
        return weights if any(weights.values()) else dict(names)

    def pick(self, weights: Mapping[str, float]) -> str:
        """One of the names, by weight."""
        return self.dice.choices(list(weights), list(weights.values()))[0]

    def ops(self, length: int) -> list[Op]:
        """Open the crawls, fill them, and go on."""
        found: list[Op] = []
        for crawl in self.crawls:
            found += [Configure(crawl, self.rules(), is_swept=True), self.add(crawl, 8)]
        while len(found) < length:
            made = MAKERS[self.pick(self.kinds)](self)
            found += made if isinstance(made, list) else [made]
        return found

    # ---- what is added

    def page(self) -> Page:
        """One of few pages; half of them plain."""
        dice = self.dice
        page = Page(dice.choice(self.hosts), dice.randrange(PAGES), roll=dice.getrandbits(48))
        if dice.random() < 0.5:
            return page
        cost = dice.choice((0, 1, 1, 2, 3))
        kind = dice.choice(("page", "page", "article", "nav", "hub-seed"))
        return Page(
            page.host,
            page.number,
            lane=int(kind == "article" or dice.random() < 0.2),
            priority=dice.choice((-1.0, -0.0, 0.0, 1.0, 2.5)),
            precedence=dice.choice((0, max(1, cost), max(1, cost), 2)),
            cost=cost,
            delay=dice.choice((0.0, 0.0, 0.0, 0.5, 3.0, 40.0)),
            known=dice.choice(KNOWN),
            roll=page.roll,
            depth=dice.randrange(5),
            type=kind,
            tag=dice.choice((None, None, "t", "u")),
            origin=dice.choice(("opportunistic", "sitemap")),
            key=dice.choice((None,) * 15 + (HOSTS[0],)),
        )

    def add(self, crawl: str | None = None, most: int = 5) -> Op:
        """A batch."""
        count = self.dice.randint(1, most)
        pages = tuple(self.page() for _ in range(count))
        return Add(crawl or self.crawl(), pages)

    def crawl(self) -> str:
        """One of the crawls."""
        return self.dice.choice(self.crawls)

    # ---- what is said, and thought again

    def say(self) -> Op:
        """One of few notes, now and then over one that is no longer the newest."""
        dice = self.dice
        text, seen = dice.choice(("", "x", "y")), dice.choice((None, None, 0, 1, 7))
        return Say(self.crawl(), dice.choice("abc"), text, seen)

    def reprice(self) -> Op:
        """Some tasks; now and then too late."""
        dice = self.dice
        numbers = tuple(dice.randint(1, 12) for _ in range(dice.choice((1, 3, 9))))
        price = dice.choice((-2.0, -1.0, 0.0, 1.5, 7.0))
        return Reprice(self.crawl(), numbers, price, is_stale=dice.random() < 0.1)

    # ---- visits

    def claim(self, limit: int | None = None) -> Op:
        """By one of few workers."""
        dice = self.dice
        return Claim(
            self.crawl(),
            dice.randrange(WORKERS),
            limit or dice.choice((1, 1, 2, 3, 5, 20)),
            per_queue=dice.choice((0, 0, 0, 1, 2)),
            lease_for=self.lease_for if dice.random() < 0.8 else dice.choice((1.0, 90.0)),
        )

    def claim_lend(self) -> Op:
        """Whole queues, by one of the same workers."""
        dice = self.dice
        return Claim(
            self.crawl(),
            dice.randrange(WORKERS),
            dice.choice((1, 3, 5, 20)),
            per_queue=dice.choice((0, 2, 3, 3)),
            lease_for=self.lease_for if dice.random() < 0.8 else 2.0,
            lend=True,
        )

    def claim_named(self) -> Op:
        """Some pages, for the cache."""
        dice = self.dice
        return ClaimNamed(
            self.crawl(),
            dice.randrange(WORKERS),
            tuple(
                Page(dice.choice(self.hosts), dice.randrange(PAGES))
                for _ in range(dice.choice((1, 3, 8)))
            ),
            limit=dice.choice((1, 64, 64)),
            lease_for=self.lease_for,
        )

    def finish(self, index: int | None = None) -> Op:
        """Any outcome; now and then with links, now and then twice."""
        dice = self.dice
        links = tuple(self.page() for _ in range(dice.choice((0, 0, 0, 1, 3))))
        return Finish(
            dice.randrange(8) if index is None else index,
            self.outcome(),
            roll=dice.choice((0.0, 0.0, 0.25, 0.999)),
            links=links,
            times=dice.choice((1,) * 9 + (2,)),
        )

    def outcome(self) -> Outcome:
        """By this scene's liking."""
        return _OUTCOMES[self.pick(self.outcomes)](self.dice)

    def work(self) -> list[Op]:
        """Claim, finish and wait, many times over."""
        found: list[Op] = []
        for _ in range(self.dice.choice((2, 4, 12))):
            found += [self.claim(1), self.finish(-1), Wait()]
        return found

    def storm(self) -> list[Op]:
        """The same outcome, again and again, on one crawl: what rows of ten are made of."""
        outcome = _OUTCOMES[self.dice.choice(tuple(OUTCOMES))](self.dice)
        claim = Claim(self.crawl(), 0, 1)
        return [claim, Finish(-1, outcome), Wait()] * self.dice.choice((3, 5, 22, 44))

    def crash(self) -> list[Op]:
        """Claim, and let the lease go."""
        crawl = self.crawl()
        limit, lend = self.dice.choice(((1, False), (3, False), (3, True), (8, True)))
        claim = Claim(crawl, 0, limit, lease_for=2.0, lend=lend)
        return [claim, Pass(2.0)] * self.dice.randint(1, 4)

    def extend(self) -> Op:
        """Renew one."""
        return Extend(self.dice.randrange(8), self.dice.choice((1.0, 30.0, 200.0)))

    def release(self) -> Op:
        """Give some back."""
        return Release(self.dice.randrange(8), self.dice.choice((1, 1, 3)))

    def stale(self) -> Op:
        """Try a lease that is no more."""
        return Stale(self.dice.randrange(20), self.dice.choice(("finish", "extend", "release")))

    def expire(self) -> Op:
        """Take back some."""
        return Expire(self.dice.choice((0, 1, 2, 100)))

    # ---- operators

    def steer(self) -> Op:
        """One of the acts, on a key, a suffix or all."""
        act = _ACTS[self.pick(self.acts)](self.dice)
        return Steer(self.crawl(), self.dice.choice(TARGETS), act, self.dice.choice((1, 2, 1000)))

    def configure(self) -> Op:
        """New rules under way."""
        return Configure(self.crawl(), self.rules(), is_swept=self.dice.random() < 0.7)

    def rules(self) -> dict[str, Any]:
        """Small numbers, so that limits are met; each named now and then only."""
        named = {name: self.dice.choice(values) for name, values in RULES.items()}
        return {name: value for name, value in named.items() if self.dice.random() < 0.6}

    def turn(self) -> Op:
        """Mostly pause and resume: a cancelled crawl is no fun."""
        ways = (CrawlStatus.PAUSED,) * 5 + (CrawlStatus.RUNNING,) * 9 + (CrawlStatus.CANCELLED,)
        return Turn(self.crawl(), self.dice.choice(ways))

    def filter(self) -> Op:
        """Drop, replay or purge some."""
        dice = self.dice
        return Filter(
            self.crawl(),
            dice.choice(("drop", "replay", "replay", "purge")),
            self.which(),
            dry_run=dice.random() < 0.2,
            limit=dice.choice((3, 1000)),
        )

    def which(self) -> TaskFilter:
        """All, or those of one field or another."""
        dice = self.dice
        host, number = dice.choice(HOSTS), dice.randrange(PAGES)
        return dice.choice(
            (
                TaskFilter(),
                TaskFilter(key=dice.choice(TARGETS)),
                TaskFilter(url=f"https://{host}/{number}"),
                TaskFilter(pattern=rf"/[{number}-9]$"),
                TaskFilter(type="article"),
                TaskFilter(tag="t"),
                TaskFilter(reason=dice.choice(("HTTP 500", "lease expired", "throttled"))),
                TaskFilter(older_than=dice.choice((1.0, 60.0))),
                TaskFilter(fingerprint=Page(host, number).task("x").fingerprint),
                TaskFilter(key=host, tag="t"),
            )
        )

    # ---- time

    def wait(self) -> Op:
        """As long as the claim said, or as it comes."""
        return Wait() if self.dice.random() < 0.5 else Pass(self.dice.choice(STEPS))


class Ordinary(Scene):
    """Most crawls: visits that are done, now and then something else; the short ways of stores."""

    def __init__(self, dice: Random) -> None:
        super().__init__(dice)
        self.hosts = list(HOSTS)
        trouble = dice.choice((0.0, 0.02, 0.1))
        self.kinds = {name: weight * trouble for name, weight in KINDS.items()}
        self.kinds.update(add=12, claim=12, finish=14, work=2, wait=10)
        self.outcomes = {**dict.fromkeys(OUTCOMES, trouble), "done": 8}

    def page(self) -> Page:
        """Seldom one that is not due."""
        page = super().page()
        return page if self.dice.random() < 0.1 else replace(page, delay=0.0, known="keep")

    def rules(self) -> dict[str, Any]:
        """Of the rules only those that bind nobody."""
        return {name: self.dice.choice(values) for name, values in FREE_RULES.items()}


STEPS: Final = (0.001, 0.3, 1.0, 1.0, 5.0, 31.0, 61.0, 900.0)

Maker: TypeAlias = Callable[[Scene], Op | list[Op]]

MAKERS: Final[Mapping[str, Maker]] = {
    "add": Scene.add,
    "claim": Scene.claim,
    "claim_named": Scene.claim_named,
    "claim_lend": Scene.claim_lend,
    "finish": Scene.finish,
    "work": Scene.work,
    "storm": Scene.storm,
    "crash": Scene.crash,
    "extend": Scene.extend,
    "release": Scene.release,
    "stale": Scene.stale,
    "expire": Scene.expire,
    "steer": Scene.steer,
    "configure": Scene.configure,
    "turn": Scene.turn,
    "filter": Scene.filter,
    "say": Scene.say,
    "reprice": Scene.reprice,
    "wait": Scene.wait,
}

KINDS: Final[Mapping[str, float]] = {
    "add": 12,
    "claim": 20,
    "claim_named": 4,
    "claim_lend": 6,
    "finish": 18,
    "work": 2,
    "storm": 2.5,
    "crash": 1.5,
    "extend": 2,
    "release": 6,
    "stale": 3,
    "expire": 2,
    "steer": 9,
    "configure": 2,
    "turn": 1,
    "filter": 4,
    "say": 1,
    "reprice": 3,
    "wait": 14,
}

OUTCOMES: Final[Mapping[str, float]] = {
    "done": 8,
    "failed": 4,
    "throttled": 2,
    "blocked": 2,
    "unreachable": 2,
    "dropped": 2,
    "cached": 1,
    "revisit": 2,
}

_OUTCOMES: Final[Mapping[str, Callable[[Random], Outcome]]] = {
    "done": lambda dice: Done(
        status=200,
        seconds=dice.choice((0.0, 0.2, 2.0)),
        bytes=dice.choice((0, 700)),
        crawl_delay=dice.choice((None, None, 0.0, 4.0)),
    ),
    "failed": lambda dice: Failed(
        "HTTP 500",
        retry_in=dice.choice((None, 0.0, 0.0, 20.0)),
        crawl_delay=dice.choice((None, None, 2.0)),
    ),
    "throttled": lambda dice: Throttled(
        retry_after=dice.choice((None, 0.0, 100.0)), crawl_delay=dice.choice((None, None, 2.0))
    ),
    "blocked": lambda dice: Blocked("challenge", crawl_delay=dice.choice((None, None, 2.0))),
    "unreachable": lambda dice: Unreachable("DNS", crawl_delay=dice.choice((None, None, 2.0))),
    "dropped": lambda dice: Dropped(
        "robots",
        seconds=dice.choice((0.0, 2.0)),
        crawl_delay=dice.choice((None, None, 2.0)),
        visited=dice.random() < 0.7,
    ),
    "cached": lambda dice: Done(
        status=200, bytes=10, from_cache=True, throttled=dice.choice((None, None, 0.0, 50.0))
    ),
    "revisit": lambda dice: Done(
        status=200,
        digest=dice.choice((None, "d", "e")),
        etag=dice.choice((None, "v")),
        revisit_in=dice.choice((0.0, 5.0, 100.0)),
    ),
}

ACTS: Final[Mapping[str, float]] = {
    "set": 8,
    "pause": 2,
    "resume": 3,
    "retire": 2,
    "revive": 4,
    "snooze": 2,
    "wake": 3,
}

_ACTS: Final[Mapping[str, Callable[[Random], QueueAction]]] = {
    "set": lambda dice: Set(_changes(dice)),
    "pause": lambda _: Pause(),
    "resume": lambda _: Resume(),
    "retire": lambda _: Retire(),
    "revive": lambda _: Revive(),
    "snooze": lambda dice: Snooze(dice.choice((0.5, 3.0, 50.0))),
    "wake": lambda _: Wake(),
}

RULES: Final[Mapping[str, tuple[Any, ...]]] = {
    "delay": (0.0, 0.0, 1.0, 3.0, -1.0, -1.0),
    "min_delay": (0.0, 0.5, 2.0),
    "max_in_flight": (1, 1, 2, 3),
    "visits_per_second": (0.0, 0.0, 0.0, 0.3, 2.0, 900.0),
    "count_from": ("end", "end", "start"),
    "balance": (1, 1, 2, 3, 3, 3000),
    "total_budget": (-1, -1, -1, 0, 2, 4, 8),
    "hold_queues": (False, False, True),
    "error_penalty": (0, 0, 1, 3),
    "max_done": (0, 0, 0, 3),
    "max_bytes": (0, 0, 2000),
    "order": ("priority", "priority", "round-robin"),
    "tie": ("fifo", "fifo", "lifo", "shuffle"),
    "breadth_discount": (0.0, 0.0, 0.75, 2.0),
    "burst": (1, 2, 5),
    "max_pending": (0, 0, 0, 7),
    "max_pending_per_queue": (0, 0, 0, 3),
    "max_crashes": (1, 2, 3, 3),
    "max_retries": (0, 1, 3),
    "pause_at_finish": (False, False, True),
    "limits": ({}, {}, {}, {"done": 9}, {"tasks": 12}, {"bytes": 3000}, {"seconds": 500.0}),
    "opens_below": (None, None, 0.0, -0.5, 2.0),
    "keys": ({}, {}, {".example": {"balance": 2}}, {HOSTS[1]: {"delay": 2.0, "precedence": 1}}),
    "said": (
        {},
        {},
        {},
        {".example": {"delay": 1.0, "precedence": -1}},
        {HOSTS[1]: {"balance": 3}},
    ),
}

FREE_RULES: Final[Mapping[str, tuple[Any, ...]]] = {
    "delay": (0.0, 0.0, 1.0, -1.0),
    "balance": (3, 9, 3000, 3000),
    "order": ("priority", "priority", "round-robin"),
    "tie": ("fifo", "lifo", "shuffle"),
    "burst": (1, 2, 5),
}

_SETTABLE: Final = (
    "balance",
    "total_budget",
    "hold_queues",
    "max_in_flight",
    "visits_per_second",
    "delay",
    "min_delay",
    "max_done",
    "error_penalty",
    "count_from",
)

_STANDING: Final[Mapping[str, tuple[Any, ...]]] = {
    "precedence": (-1, 0, 1),
    "paused": (True, False),
    "retired": (True, False),
}


def _changes(dice: Random) -> dict[str, Any]:
    """One or two settings; None takes one back."""
    found: dict[str, Any] = {}
    for name in dice.sample((*_SETTABLE, *_STANDING), dice.choice((1, 2))):
        values = _STANDING.get(name) or RULES[name]
        found[name] = None if dice.random() < 0.1 else dice.choice(values)
    return found
