"""A comparison of revisit timetables: how fresh each keeps copies of changing pages (G3).

Pages change at random, each at its own rate, which workers do not know. The expected freshness
between two visits is summed, so that chance influences only what workers learn.
`python -m outrider.simulation.freshness [SEED]` prints the comparison.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace
from random import Random
from typing import Final, TypeAlias

import msgspec

from outrider.core.outcome import Answer, Done, Last
from outrider.core.policy.change_rate import updated_answer
from outrider.core.policy.revisit import Revisiting, age_worth
from outrider.frontier import Frontier
from outrider.frontier.policies import Revisits
from outrider.testing import FakeClock

DAY: Final = 86_400.0
LEARNING: Final = 60 * DAY  # after the first visits, before the measurement
MEASURED: Final = 30 * DAY
_TICK: Final = 60.0  # a worker on the real frontier claims once a minute
_NEVER: Final = 1e6

Plan: TypeAlias = Callable[[int, Answer, Last | None], float]

WEBS: Final[dict[str, Callable[[Random], float]]] = {  # changes a day, of one page
    "even": lambda dice: dice.lognormvariate(0.0, 1.0),
    "uneven": lambda dice: dice.lognormvariate(0.0, 2.0),
    "quiet": lambda dice: dice.gammavariate(0.5, 2.0),
    "busy": lambda dice: 5.0 * dice.lognormvariate(0.0, 2.0),
    "restless": lambda dice: 1000.0 if dice.random() < 0.3 else dice.gammavariate(0.5, 2.0),
}


class Freshness(msgspec.Struct, frozen=True):
    """Average freshness of the copies, visits per page and day, and the greatest age."""

    freshness: float
    visits: float  # per page and day
    oldest: float = 0.0


class FreshnessMeter:
    """Sums the expected freshness of all copies, from the rates and all visits."""

    def __init__(self, rates: Sequence[float], dice: Random, since: float, until: float) -> None:
        self._rates = rates
        self._dice = dice
        self._since, self._until = since, until
        self._visited: list[float | None] = [None] * len(rates)
        self._version = [0] * len(rates)
        self._fresh = 0.0
        self._visits = 0
        self._oldest = 0.0

    def visit(self, page: int, now: float) -> str:
        """Record a visit; return the digest of the page."""
        before = self._visited[page]
        if before is not None:
            self._sum(page, before, now)
            self._visits += self._since <= now
            has_changed = self._dice.random() < -math.expm1(-self._rates[page] * (now - before))
            self._version[page] += has_changed
        self._visited[page] = now
        return str(self._version[page])

    def kept(self) -> Freshness:
        """Return the result, at the end of the measurement."""
        for page, before in enumerate(self._visited):
            self._sum(page, self._since if before is None else before, self._until)
        span = (self._until - self._since) * len(self._rates)
        return Freshness(self._fresh / span, self._visits * DAY / span, self._oldest)

    def _sum(self, page: int, before: float, now: float) -> None:
        """Add the expected seconds of freshness between two instants of the measurement."""
        rate, begin = self._rates[page], max(self._since, before)
        if now > begin:
            self._oldest = max(self._oldest, now - before)
            self._fresh += (
                math.exp(-rate * (begin - before)) - math.exp(-rate * (now - before))
            ) / rate


def optimum(rates: Sequence[float], every: float) -> tuple[float, Freshness]:
    """Return the best price of a visit for this average interval, and its freshness."""
    low, high = every * 1e-9, every
    while high - low > 1e-4 * high:
        price = (low + high) / 2
        effort = sum(1 / _best(rate, price, every) for rate in rates) / len(rates)
        low, high = (price, high) if effort > 1 / every else (low, price)
    ages = [_best(rate, high, every) for rate in rates]
    fresh = [-math.expm1(-rate * age) / (rate * age) for rate, age in zip(rates, ages, strict=True)]
    return high, Freshness(sum(fresh) / len(rates), sum(DAY / age for age in ages) / len(rates))


def _best(rate: float, price: float, every: float) -> float:
    return age_worth(rate, price, every / _NEVER, every * _NEVER)


def timetable(rates: Sequence[float], plan: Plan, every: float, dice: Random) -> Freshness:
    """Simulate pages found during the first interval, then visited by the plan."""
    since, until = every + LEARNING, every + LEARNING + MEASURED
    meter = FreshnessMeter(rates, dice, since, until)
    answers: list[Last | None] = [None] * len(rates)
    due = [(dice.random() * every, page) for page in range(len(rates))]
    heapify(due)
    while due[0][0] < until:
        now, page = due[0]
        before = answers[page]
        last = None if before is None else Last(before.answer, now - before.age)
        answer = updated_answer(last, Done(200, digest=meter.visit(page, now)))
        after = plan(page, answer, last)
        answers[page] = Last(msgspec.structs.replace(answer, planned=after), now)
        heapreplace(due, (now + after, page))
    return meter.kept()


def by_value(how: Revisiting, dice: Random, workers: int = 1) -> Plan:
    """Return the plan of workers that each learn rates and price by themselves."""
    crew = [Revisits(how) for _ in range(workers)]
    return lambda _, answer, last: dice.choice(crew).plan(answer, last) or math.inf


def change_rates(web: str, pages: int, dice: Random) -> list[float]:
    """Return the changes per second of each page of a web."""
    return [max(WEBS[web](dice), 1e-6) / DAY for _ in range(pages)]


class Row(msgspec.Struct, frozen=True):
    """The result of one timetable."""

    name: str
    kept: Freshness
    share: float  # of the freshness of the best timetable with as many visits


def compare(seed: int, web: str = "uneven", pages: int = 300, every: float = DAY) -> list[Row]:
    """Compare the timetables on the same pages; the optimum comes first."""
    dice = Random(seed)
    rates = change_rates(web, pages, dice)
    how = Revisiting("value", every=every)
    price, best = optimum(rates, every)
    ages = [how.within(_best(rate, price, every)) for rate in rates]
    found = {
        "optimum": best,
        "known": timetable(rates, lambda page, *_: ages[page], every, dice),
        "value": timetable(rates, by_value(how, dice), every, dice),
        "fixed": timetable(rates, lambda *_: every, every, dice),
    }
    return [Row(name, kept, share_of_best(kept, rates)) for name, kept in found.items()]


def share_of_best(kept: Freshness, rates: Sequence[float]) -> float:
    """Return the freshness as a share of the best for as many visits."""
    return kept.freshness / optimum(rates, DAY / kept.visits)[1].freshness


async def crawl(rates: Sequence[float], how: Revisiting, dice: Random) -> Freshness:
    """Run one worker on a real frontier, with a memory store and a fake clock."""
    clock, polite = FakeClock(), {"delay": 0.0, "max_in_flight": len(rates)}
    start, until = clock.now(), clock.now() + LEARNING + MEASURED
    meter = FreshnessMeter(rates, dice, start + LEARNING, until)
    settings = {"revisit": msgspec.to_builtins(how), "politeness": polite}
    async with Frontier.open("memory://", settings=settings, clock=clock) as frontier:
        await frontier.add(f"https://site.example/{page}" for page in range(len(rates)))
        while clock.now() < until:
            claim = await frontier.claim(len(rates))
            for lease in claim:
                digest = meter.visit(int(lease.url.rpartition("/")[2]), clock.now())
                await frontier.finish(lease, Done(200, digest=digest))
            clock.advance(max(_TICK, claim.wake_in or 0.0))
    return meter.kept()


def main(seed: int = 1, pages: int = 300) -> None:
    """Print the comparison of every web."""
    lines = [f"{'web':10}{'timetable':11}{'freshness':>10}{'share':>8}{'visits':>8}{'oldest':>8}"]
    for web in WEBS:
        for row in compare(seed, web, pages):
            kept = row.kept
            figures = f"{kept.freshness:10.3f}{row.share:8.3f}{kept.visits:8.3f}"
            lines.append(f"{web:10}{row.name:11}{figures}{kept.oldest / DAY:8.1f}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
