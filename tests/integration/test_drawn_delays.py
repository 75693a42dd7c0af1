"""The gaps of a uniform delay that counts from the start are uniform, whatever happens (D1).

Pages of one queue are visited by three workers, several at a time. Visits are finished, released
or lost, with random numbers of their own, and the store is closed and opened again meanwhile.
"""

from heapq import heappop, heappush
from itertools import count, pairwise
from random import Random

import pytest

from outrider.core.outcome import Done, Failed
from outrider.store.factory import open_store
from outrider.store.protocol import ClaimRequest
from outrider.testing.builders import policy, rules, task, verdict
from outrider.testing.clock import FakeClock

GAPS = 500  # in memory; a third of them elsewhere, where each takes many calls
LEAST, MOST = 5.0, 15.0
RULES = rules(
    count_from="start",
    delay=LEAST,
    delay_to=MOST,
    max_in_flight=4,
    max_crashes=0,
    max_retries=10**6,
    balance=10**6,
)
PATIENT = policy(max_retries=10**6)


@pytest.fixture(params=["memory", "file", "postgres", "redis", "cluster"])
def url(request, places, tmp_path):
    """An empty store of each kind."""
    if request.param == "memory":
        return "memory://"
    return str(tmp_path / "x.outrider") if request.param == "file" else places.take(request.param)


class Visits:
    """Begins visits as soon as it can, and ends each in some way later."""

    def __init__(self, url, seed):
        self.url, self.dice, self.clock = url, Random(seed), FakeClock()
        self.gaps = GAPS if url == "memory://" else GAPS // 3
        self.store, self.starts, self.ends, self.order = None, [], [], count()

    async def open(self):
        """Open the crawl."""
        self.store = await open_store(self.url, self.clock)

    async def reopen(self):
        """Close the store and open it again; memory would be empty."""
        if self.url != "memory://":
            await self.store.close()
            await self.open()

    async def begin(self):
        """Claim a page; return the seconds to the next claim."""
        worker = f"w{self.dice.randrange(3)}"
        claimed = await self.store.claim(
            ClaimRequest("x", worker, 1, 60.0, rolls=[self.dice.random()])
        )
        for lease in claimed.leases:
            self.starts.append(self.clock.now_ms())
            ends_at = self.clock.now_ms() + round(self.dice.uniform(0.0, 14_000.0))
            heappush(self.ends, (ends_at, next(self.order), lease))
        return claimed.wake_in

    async def end_visits(self):
        """End the visits whose time has come; those of a file that was reopened are lost."""
        while self.ends and self.ends[0][0] <= self.clock.now_ms():
            _, _, lease = heappop(self.ends)
            if self.dice.random() < 0.1:
                await self.store.release([lease.id])
            else:
                outcome = self.dice.choice((Done(200, revisit_in=0.0), Failed("x", retry_in=0.0)))
                decided = verdict(lease, outcome, roll=self.dice.random(), policy=PATIENT)
                await self.store.finish([decided])

    async def run(self):
        """Return the seconds between each two starts."""
        await self.open()
        await self.store.configure("x", RULES)
        await self.store.add([task(f"https://a.example/{n}", crawl="x") for n in range(9)])
        while len(self.starts) <= self.gaps:
            wake_in = await self.begin()
            waits = [] if wake_in is None else [wake_in]
            waits += [(at - self.clock.now_ms()) / 1000 for at, _, _ in self.ends[:1]]
            self.clock.advance(max(0.0, min(waits)))
            await self.end_visits()
            if self.dice.random() < 0.02:
                await self.reopen()
        await self.store.close()
        return [(after - before) / 1000 for before, after in pairwise(self.starts)]


@pytest.mark.slow
async def test_gaps_between_starts_are_uniform(url):
    """D1: U(5, 15): not the greater of two draws, prolonged by an end, or forgotten by a loss."""
    gaps = sorted(await Visits(url, 7).run())

    steps = [(gap - LEAST) / (MOST - LEAST) for gap in gaps]
    statistic = max(
        max(abs(number / len(steps) - step), abs((number + 1) / len(steps) - step))
        for number, step in enumerate(steps)
    )
    assert LEAST <= gaps[0] <= gaps[-1] <= MOST + 0.001
    assert statistic < 1.628 / len(gaps) ** 0.5  # Kolmogorov and Smirnov, at 1 %
