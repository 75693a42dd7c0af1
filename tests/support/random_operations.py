"""Random test cases from a seed: few URLs, small budgets, many faults, to reach rare states.

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
    Advance,
    Claim,
    ClaimNamed,
    Configure,
    Delete,
    Expire,
    Extend,
    Filter,
    Finish,
    Op,
    Page,
    Publish,
    PutValue,
    Release,
    SendHeartbeat,
    SetStatus,
    Stale,
    Steer,
    UpdatePriorities,
    Wait,
)
from outrider.core.outcome import (
    Again,
    Blocked,
    Done,
    Dropped,
    Failed,
    Outcome,
    Throttled,
    Unreachable,
)
from outrider.core.queue_action import Pause, QueueAction, Resume, Retire, Revive, Set, Snooze, Wake
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import KnownRule
from outrider.store.protocol import STORE_VALUES, TaskFilter

WORKERS: Final = 3
PAGES: Final = 9  # per host
TARGETS: Final = (*HOSTS, *HOSTS, ".example", ".b.example", "", "z.example")

KNOWN: Final[tuple[KnownRule, ...]] = (
    *("keep", "keep", "keep"),
    *("raise", "revisit", "gather", "set"),
)


def random_ops(seed: int, length: int = 80) -> list[Op]:
    """Return a case: rules of two crawls, then operations; one case in three is ordinary."""
    scene = OrdinaryCase if seed % 3 == 2 else RandomCase
    return scene(Random(seed)).ops(length)


class RandomCase:
    """One random case, with its own weights of operations."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.hosts = dice.sample(HOSTS, dice.choice((1, 2, 3, 3, 4)))
        self.kinds = self._random_weights(KINDS)
        self.outcomes = self._random_weights(OUTCOMES)
        self.acts = self._random_weights(ACTS)
        self.crawls = CRAWLS if dice.random() < 0.3 else CRAWLS[:1]
        self.lease_for = dice.choice((5.0, 30.0, 60.0))

    def _random_weights(self, names: Mapping[str, float]) -> dict[str, float]:
        """Return random weights: some operations are left out, others are frequent."""
        weights = {
            name: weight * self.dice.choice((0.0, 0.3, 1.0, 1.0, 4.0))
            for name, weight in names.items()
        }
        return weights if any(weights.values()) else dict(names)

    def pick(self, weights: Mapping[str, float]) -> str:
        """Return one of the names, by weight."""
        return self.dice.choices(list(weights), list(weights.values()))[0]

    def ops(self, length: int) -> list[Op]:
        """Return operations that open and fill the crawls, then random ones."""
        found: list[Op] = []
        for crawl in self.crawls:
            found += [Configure(crawl, self.rules(), is_swept=True), self.add(crawl, 8)]
        while len(found) < length:
            made = MAKERS[self.pick(self.kinds)](self)
            found += made if isinstance(made, list) else [made]
        return found

    # ---- what is added

    def page(self) -> Page:
        """Return one of few pages; half of them plain."""
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
            priority=dice.choice((-1.0, -0.0, 0.0, 1.0, 2.5, dice.choice(BANDED))),
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
            text=dice.choice(("", "", "HTTPS://A.example/\té#1", " x ")),
            typed_by=dice.choice(("", "", "types.rules.0")),
            done=dice.random() < 0.08,
        )

    def add(self, crawl: str | None = None, most: int = 5) -> Op:
        """Return an add of a batch."""
        count = self.dice.randint(1, most)
        pages = tuple(self.page() for _ in range(count))
        return Add(crawl or self.crawl(), pages)

    def crawl(self) -> str:
        """Return one of the crawls."""
        return self.dice.choice(self.crawls)

    # ---- shared values and priorities

    def put_value(self) -> Op:
        """Return a write of one of few values, at times with an outdated version."""
        dice = self.dice
        text, seen = dice.choice(("", "x", "y")), dice.choice((None, None, 0, 1, 7))
        crawl = STORE_VALUES if dice.random() < 0.2 else self.crawl()
        return PutValue(crawl, dice.choice("abc"), text, seen)

    def send_heartbeats(self) -> list[Op]:
        """Return a heartbeat of one of few workers, at times more of them, days later."""
        days = self.dice.choice((0, 0, 0, 0, 0, 2))
        later = [op for _ in range(days) for op in (Advance(86_400.0), self._heartbeat())]
        return [self._heartbeat(), *later]

    def _heartbeat(self) -> Op:
        """Return a heartbeat; its totals are often lower than before."""
        dice = self.dice
        return SendHeartbeat(
            self.crawl(),
            dice.randrange(WORKERS),
            dice.randrange(9),
            dice.randrange(3),
            dice.choice((None, 1.0, 2.0, 3.0)),
            dice.choice(("idle", "busy", "gone")),
            dice.choice((7, 7, 8)),
        )

    def publish(self) -> Op:
        """Return a batch of one of few workers; its serial is often lower than before."""
        dice = self.dice
        count = dice.choice((1, 2, 5))
        return Publish(self.crawl(), dice.randrange(WORKERS), dice.randint(1, 9), count)

    def update_priorities(self) -> Op:
        """Return a priority update of some tasks, at times an outdated one."""
        dice = self.dice
        numbers = tuple(dice.randint(1, 12) for _ in range(dice.choice((1, 3, 9))))
        price = dice.choice((-2.0, -1.0, 0.0, 1.5, 7.0, dice.choice(BANDED)))
        return UpdatePriorities(self.crawl(), numbers, price, is_stale=dice.random() < 0.1)

    # ---- visits

    def claim(self, limit: int | None = None) -> Op:
        """Return a claim of one of few workers."""
        dice = self.dice
        return Claim(
            self.crawl(),
            dice.randrange(WORKERS),
            limit or dice.choice((1, 1, 2, 3, 5, 20)),
            per_queue=dice.choice((0, 0, 0, 1, 2)),
            lease_for=self.lease_for if dice.random() < 0.8 else dice.choice((1.0, 90.0)),
            outlives_process=dice.random() < 0.2,
            **self.rest_of_claim(),
        )

    def rest_of_claim(self) -> dict[str, Any]:
        """Return now and then the queues a claim is limited to, and random numbers for delays."""
        dice, found = self.dice, dict[str, Any]()
        if dice.random() < 0.15:
            keys = (*HOSTS, HOSTS[0].upper(), "z.example")
            found["keys"] = tuple(dice.choice(keys) for _ in range(dice.choice((1, 1, 2, 3))))
        if dice.random() < 0.15:
            found["max_queues"] = dice.choice((1, 1, 2, 3))
        if dice.random() < 0.7:
            found["rolls"] = tuple(dice.choice(ROLLS) for _ in range(dice.choice((1, 3, 5, 20))))
        return found

    def claim_lend(self) -> Op:
        """Return a claim of whole queues."""
        dice = self.dice
        return Claim(
            self.crawl(),
            dice.randrange(WORKERS),
            dice.choice((1, 3, 5, 20)),
            per_queue=dice.choice((0, 2, 3, 3)),
            lease_for=self.lease_for if dice.random() < 0.8 else 2.0,
            lend=True,
            outlives_process=dice.random() < 0.2,
            **self.rest_of_claim(),
        )

    def claim_named(self) -> Op:
        """Return a claim by fingerprint."""
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
            outlives_process=dice.random() < 0.2,
        )

    def finish(self, index: int | None = None) -> Op:
        """Return a finish with any outcome, at times with links, at times twice."""
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
        """Return an outcome, by the weights of this case."""
        return _OUTCOMES[self.pick(self.outcomes)](self.dice)

    def work(self) -> list[Op]:
        """Return claims, finishes and waits, repeated."""
        found: list[Op] = []
        for _ in range(self.dice.choice((2, 4, 12))):
            found += [self.claim(1), self.finish(-1), Wait()]
        return found

    def repeat_outcome(self) -> list[Op]:
        """Return finishes with the same outcome on one crawl, so that counts in a row grow."""
        outcome = _OUTCOMES[self.dice.choice(tuple(OUTCOMES))](self.dice)
        claim = Claim(self.crawl(), 0, 1)
        return [claim, Finish(-1, outcome), Wait()] * self.dice.choice((3, 5, 22, 44))

    def crash(self) -> list[Op]:
        """Return a claim whose lease expires."""
        crawl = self.crawl()
        limit, lend = self.dice.choice(((1, False), (3, False), (3, True), (8, True)))
        claim = Claim(crawl, 0, limit, lease_for=2.0, lend=lend)
        return [claim, Advance(2.0)] * self.dice.randint(1, 4)

    def extend(self) -> Op:
        """Return an extension."""
        return Extend(self.dice.randrange(8), self.dice.choice((1.0, 30.0, 200.0)))

    def release(self) -> Op:
        """Return a release."""
        return Release(self.dice.randrange(8), self.dice.choice((1, 1, 3)))

    def stale(self) -> Op:
        """Return a call with an ended lease."""
        return Stale(self.dice.randrange(20), self.dice.choice(("finish", "extend", "release")))

    def expire(self) -> Op:
        """Return an expiry."""
        return Expire(self.dice.choice((0, 1, 2, 100)))

    # ---- operators

    def steer(self) -> Op:
        """Return a queue action on a key, a suffix or all."""
        act = _ACTS[self.pick(self.acts)](self.dice)
        limit = self.dice.choice((1, 2, 1000))
        return Steer(self.crawl(), self.dice.choice(TARGETS), act, limit, by=self.by())

    def by(self) -> str:
        """Return who acts; most say nothing."""
        return self.dice.choice(("", "", "", "ann@ops", "Bülent"))

    def configure(self) -> Op:
        """Return a change of rules."""
        return Configure(
            self.crawl(),
            self.rules(),
            is_swept=self.dice.random() < 0.7,
            by=self.by(),
            only=self.dice.choice(("any", "any", "any", "new", "known")),
        )

    def rules(self) -> dict[str, Any]:
        """Return some rules with small numbers, so that limits are reached."""
        named = {name: self.dice.choice(values) for name, values in RULES.items()}
        return {name: value for name, value in named.items() if self.dice.random() < 0.6}

    def set_status(self) -> Op:
        """Return mostly pause and resume: a cancelled crawl does nothing."""
        ways = (CrawlStatus.PAUSED,) * 5 + (CrawlStatus.RUNNING,) * 9 + (CrawlStatus.CANCELLED,)
        return SetStatus(self.crawl(), self.dice.choice(ways), by=self.by())

    def filter(self) -> Op:
        """Return a drop, replay, purge or forget."""
        dice = self.dice
        return Filter(
            self.crawl(),
            dice.choice(("drop", "replay", "replay", "purge", "forget", "forget")),
            self.which(),
            dry_run=dice.random() < 0.2,
            limit=dice.choice((3, 1000)),
            by=self.by(),
        )

    def delete(self) -> list[Op]:
        """Return a removal of a crawl, which mostly begins again."""
        crawl, again = self.crawl(), self.dice.random() < 0.8
        removed: list[Op] = [Delete(crawl, self.dice.choice((1, 3, 1000)))]
        return [*removed, Configure(crawl, self.rules(), is_swept=True)] if again else removed

    def which(self) -> TaskFilter:
        """Return a filter of all tasks, or by one field."""
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
                TaskFilter(reason=dice.choice(("HTTP 500", "lease expired", "forgotten"))),
                TaskFilter(older_than=dice.choice((1.0, 60.0))),
                TaskFilter(fingerprint=Page(host, number).task("x").fingerprint),
                TaskFilter(key=host, tag="t"),
                TaskFilter(state=dice.choice((*TaskState,))),
            )
        )

    # ---- time

    def wait(self) -> Op:
        """Return a wait for `wake_in`, or for a random time."""
        return Wait() if self.dice.random() < 0.5 else Advance(self.dice.choice(STEPS))


class OrdinaryCase(RandomCase):
    """An ordinary case: mostly visits that are done, which take the fast paths of stores."""

    def __init__(self, dice: Random) -> None:
        super().__init__(dice)
        self.hosts = list(HOSTS)
        trouble = dice.choice((0.0, 0.02, 0.1))
        self.kinds = {name: weight * trouble for name, weight in KINDS.items()}
        self.kinds.update(add=12, claim=12, finish=14, work=2, wait=10)
        self.outcomes = {**dict.fromkeys(OUTCOMES, trouble), "done": 8}

    def page(self) -> Page:
        """Return a page that is mostly due."""
        page = super().page()
        return (
            page if self.dice.random() < 0.1 else replace(page, delay=0.0, known="keep", done=False)
        )

    def rules(self) -> dict[str, Any]:
        """Return rules without limits."""
        return {name: self.dice.choice(values) for name, values in FREE_RULES.items()}


ROLLS: Final = (0.0, 0.25, 0.5, 0.999)
STEPS: Final = (0.001, 0.3, 1.0, 1.0, 5.0, 31.0, 61.0, 900.0)

Maker: TypeAlias = Callable[[RandomCase], Op | list[Op]]

MAKERS: Final[Mapping[str, Maker]] = {
    "add": RandomCase.add,
    "claim": RandomCase.claim,
    "claim_named": RandomCase.claim_named,
    "claim_lend": RandomCase.claim_lend,
    "finish": RandomCase.finish,
    "work": RandomCase.work,
    "repeat_outcome": RandomCase.repeat_outcome,
    "crash": RandomCase.crash,
    "extend": RandomCase.extend,
    "release": RandomCase.release,
    "stale": RandomCase.stale,
    "expire": RandomCase.expire,
    "steer": RandomCase.steer,
    "configure": RandomCase.configure,
    "set_status": RandomCase.set_status,
    "filter": RandomCase.filter,
    "delete": RandomCase.delete,
    "put_value": RandomCase.put_value,
    "send_heartbeat": RandomCase.send_heartbeats,
    "publish": RandomCase.publish,
    "update_priorities": RandomCase.update_priorities,
    "wait": RandomCase.wait,
}

KINDS: Final[Mapping[str, float]] = {
    "add": 12,
    "claim": 20,
    "claim_named": 4,
    "claim_lend": 6,
    "finish": 18,
    "work": 2,
    "repeat_outcome": 5,
    "crash": 1.5,
    "extend": 2,
    "release": 6,
    "stale": 3,
    "expire": 2,
    "steer": 9,
    "configure": 2,
    "set_status": 1,
    "filter": 4,
    "delete": 0.2,
    "put_value": 1,
    "send_heartbeat": 1,
    "publish": 1,
    "update_priorities": 3,
    "wait": 14,
}

# Priorities at the edges of the bands in which pending tasks are counted (F8).
BANDED: Final = (-1e9, -1000.0, -999.9, -100.0, -99.9, 99.9, 100.0, 1e9)
OUTCOMES: Final[Mapping[str, float]] = {
    "done": 8,
    "failed": 4,
    "throttled": 2,
    "blocked": 2,
    "unreachable": 2,
    "dropped": 2,
    "cached": 1,
    "revisit": 2,
    "again": 2,
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
        dice.choice(("robots", "robots", "forgotten")),
        seconds=dice.choice((0.0, 2.0)),
        crawl_delay=dice.choice((None, None, 2.0)),
        visited=dice.random() < 0.7,
    ),
    "cached": lambda dice: Done(
        status=200, bytes=10, from_cache=True, throttled=dice.choice((None, None, 0.0, 50.0))
    ),
    "again": lambda dice: Again(
        dice.choice((None, "busy", "login")),
        seconds=dice.choice((0.0, 2.0)),
        delay=dice.choice((0.0, 0.0, 5.0)),
        meta=dice.choice((None, None, {}, {"try": 2})),
        type=dice.choice((None, None, "page", "article", "nav")),
        priority=dice.choice((None, None, -1.0, 0.0, "low")),
        front=dice.random() < 0.3,
        visited=dice.random() < 0.7,
        crawl_delay=dice.choice((None, None, 2.0)),
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
    "delay_to": (-1.0, -1.0, 2.0, 9.0),
    "min_delay": (0.0, 0.5, 2.0),
    "max_in_flight": (1, 1, 2, 3),
    "visits_per_second": (0.0, 0.0, 0.0, 0.3, 2.0, 900.0),
    "count_from": ("end", "start"),
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
    "max_crashes": (0, 1, 2, 3, 3),
    "max_retries": (0, 1, 3),
    "pause_at_finish": (False, False, True),
    "stay_open": (False, False, True),
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
    "delay_to",
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
    """Return one or two settings; None unsets one."""
    found: dict[str, Any] = {}
    for name in dice.sample((*_SETTABLE, *_STANDING), dice.choice((1, 2))):
        values = _STANDING.get(name) or RULES[name]
        found[name] = None if dice.random() < 0.1 else dice.choice(values)
    return found
