"""The recipes of docs/recipes on a hundred hosts that ask for patience (E9).

Visits are judged as the hosts saw them; the frontier is asked only what it did with its budgets.
"""

import random
from collections import Counter, defaultdict
from heapq import heappop, heappush
from itertools import pairwise
from math import ceil
from typing import NamedTuple

import pytest

from outrider import Done, Failed, Frontier, Link, Throttled
from outrider.testing import FakeClock

HOSTS = [f"h{number:02}.example" for number in range(100)]
DELAY = 2.0
SHORTEST, LONGEST = 0.15, 0.25  # seconds a visit takes
TICK = 0.002  # two roundings of the clock


class Visit(NamedTuple):
    """One visit as its host saw it, in seconds of the clock."""

    key: str
    start: float
    end: float


class Crew:
    """Workers who claim only for their free slots, and take a random time for each visit."""

    def __init__(self, frontier, clock, slots):
        self.frontier, self.clock, self.slots = frontier, clock, slots
        self.dice = random.Random(7)
        self.flying = []
        self.visits = []
        self.outcomes = defaultdict(Counter)

    async def work(self, outcome_of=lambda _, seconds: Done(status=200, seconds=seconds)):
        """Visit until time alone brings nothing more."""
        while True:
            wake_in = await self.fill()
            if not self.flying and wake_in is None:
                return
            await self.wait(wake_in, outcome_of)

    async def fill(self):
        """Claim for the free slots; answers when to ask again."""
        free = self.slots - len(self.flying)
        if not free:
            return None
        claim = await self.frontier.claim(free)
        for lease in claim:
            now, seconds = self.clock.now(), self.dice.uniform(SHORTEST, LONGEST)
            heappush(self.flying, (now + seconds, lease.token, lease, seconds))
            self.visits.append(Visit(lease.key, now, now + seconds))
        return claim.wake_in if len(claim) < free else None

    async def wait(self, wake_in, outcome_of):
        """Let time pass until a visit ends or a queue wakes, whichever is first."""
        now = self.clock.now()
        times = [ends for ends, *_ in self.flying[:1]]
        times += [] if wake_in is None else [now + wake_in]
        self.clock.advance(max(0.0, min(times) - now))
        while self.flying and self.flying[0][0] <= self.clock.now() + 1e-6:
            _, _, lease, seconds = heappop(self.flying)
            outcome = outcome_of(self.dice, seconds)
            self.outcomes[lease.key][type(outcome).__name__] += 1
            assert await self.frontier.finish(lease, outcome)


def opened(settings, clock):
    """A frontier over these settings, with the same delay for every host."""
    return Frontier.open(settings={"politeness": {"delay": DELAY}, **settings}, clock=clock)


async def add_pages(frontier, count):
    """So many pages of every host, some wanted sooner than others."""
    dice = random.Random(11)
    for host in HOSTS:
        urls = [f"https://{host}/{page}" for page in range(count)]
        await frontier.add([Link(url, priority=dice.random()) for url in urls])


async def crawled(settings, *, pages, slots=4):
    """The visits, in order, of a crawl of all hosts from start to finish."""
    clock = FakeClock()
    async with opened(settings, clock) as frontier:
        await add_pages(frontier, pages)
        crew = Crew(frontier, clock, slots)
        await crew.work()
        assert (await frontier.stats()).status == "finished"
    assert len(crew.visits) == len(HOSTS) * pages
    assert_polite(crew.visits)
    return crew.visits


def assert_polite(visits):
    """No host was visited before its delay was over, or twice at a time."""
    by_host = defaultdict(list)
    for visit in visits:
        by_host[visit.key].append(visit)
    for mine in by_host.values():
        assert all(later.start - sooner.end >= DELAY - TICK for sooner, later in pairwise(mine))


def counts_after_each(visits):
    """How often every host was visited, after each visit."""
    counts = Counter(dict.fromkeys(HOSTS, 0))
    for visit in visits:
        counts[visit.key] += 1
        yield counts


def apart(counts):
    """How far the most visited host is ahead of the least visited."""
    return max(counts.values()) - min(counts.values())


def open_sites(visits):
    """How many hosts are begun and not ended, at each visit."""
    last = {visit.key: place for place, visit in enumerate(visits)}
    begun = set()
    for place, visit in enumerate(visits):
        begun.add(visit.key)
        yield len(begun)
        if last[visit.key] == place:
            begun.discard(visit.key)


def assert_sessions_in_line(visits, balance, pages):
    """A host that begins a session is the one that has waited longest for its own."""
    counts, ready_at = Counter(), dict.fromkeys(HOSTS, 0.0)
    for visit in visits:
        if counts[visit.key] % balance == 0:
            waiting = (h for h in HOSTS if counts[h] % balance == 0 and counts[h] < pages)
            longest = min(ready_at[host] for host in waiting)
            assert ready_at[visit.key] <= longest + TICK
        counts[visit.key] += 1
        ready_at[visit.key] = visit.end + DELAY


async def test_round_robin_never_lets_a_host_get_two_visits_ahead():
    """While all have work and can be served, the counts of any two hosts differ by one at most."""
    visits = await crawled({"queue": {"order": "round-robin"}}, pages=5)

    assert all(apart(counts) <= 1 for counts in counts_after_each(visits))


@pytest.mark.parametrize("hold_queues", [True, False])
async def test_a_balance_of_one_serves_who_has_waited_longest(hold_queues):
    """One visit a session: after it a host stands behind all that could be served before it."""
    settings = {"budget": {"balance": 1, "hold_queues": hold_queues}}

    assert_sessions_in_line(await crawled(settings, pages=5), balance=1, pages=5)
    one_by_one = await crawled(settings, pages=5, slots=1)
    assert all(apart(counts) <= 1 for counts in counts_after_each(one_by_one))


async def test_site_first_keeps_few_sites_open():
    """As many sites are open as keep the slots busy while others wait for their delay, no more."""
    slots = 4
    most = slots * (1 + ceil(DELAY / SHORTEST))
    held = await crawled({"budget": {"hold_queues": True}}, pages=20, slots=slots)
    free = await crawled({"budget": {"hold_queues": False}}, pages=20, slots=slots)

    assert max(open_sites(held)) <= most < len(HOSTS)
    assert max(open_sites(free)) == len(HOSTS)


async def test_rotation_gives_everyone_a_session_before_anyone_a_second():
    """No host gets more than `balance` visits before all others have begun their session."""
    visits = await crawled({"budget": {"hold_queues": True, "balance": 5}}, pages=20)

    assert_sessions_in_line(visits, balance=5, pages=20)
    for counts in counts_after_each(visits):
        assert max(counts.values()) <= 5 or min(counts.values()) >= 1


def troubled(dice, seconds):
    """Most visits are done; some fail, which is charged, and some are throttled, which is not."""
    roll = dice.random()
    if roll < 0.1:
        return Throttled(retry_after=5.0, seconds=seconds)
    return Failed("cut", seconds=seconds) if roll < 0.3 else Done(status=200, seconds=seconds)


async def test_capped_sites_stop_at_their_cap_and_go_on_when_it_is_raised():
    """No host spends more than its total, whatever its visits come to; the crawl pauses there."""
    clock = FakeClock()
    settings = {"budget": {"total_budget": 6}, "crawl": {"pause_at_finish": True}}
    settings["politeness"] = {"delay": DELAY, "max_in_flight": 2}
    async with opened(settings, clock) as frontier:
        await add_pages(frontier, 10)
        crew = Crew(frontier, clock, slots=4)
        await crew.work(troubled)

        assert {charged(crew, host) for host in HOSTS} == {6}
        assert [(q.state, q.reason, q.spent) async for q in frontier.queues()] == [
            ("retired", "budget", 6)
        ] * len(HOSTS)
        stats = await frontier.stats()
        assert (stats.status, stats.reason) == ("paused", "finish")
        assert stats.held == stats.pending > 0

        await frontier.queue("h07.example").set(total_budget=8)
        assert await frontier.resume() == "running"
        await crew.work(troubled)

        spent = {host: charged(crew, host) for host in HOSTS}
        assert spent == {**dict.fromkeys(HOSTS, 6), "h07.example": 8}
        assert (await frontier.stats()).status == "paused"

        await frontier.resume()
        await crew.work(troubled)
        assert (await frontier.stats()).status == "finished"


def charged(crew, host):
    """What a host's visits cost at one a visit: those that count, and not the throttled (E3)."""
    return crew.outcomes[host]["Done"] + crew.outcomes[host]["Failed"]
