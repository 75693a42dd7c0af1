import asyncio
import random
from collections import Counter

import pytest

from outrider.errors import StoreUnavailable
from outrider.store.memory import MemoryStore
from outrider.store.protocol import ClaimRequest, FullStore
from outrider.testing.builders import done, task
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import configure
from outrider.testing.faults import (
    NO_FAULT,
    Fate,
    Fault,
    FaultyStore,
    Shares,
    calm,
    seeded,
)

CRAWL = "default"
REQUEST = ClaimRequest(CRAWL, "w", 10)


class Line:
    """A memory store behind a line whose faults are told in advance, then none."""

    def __init__(self, *fates: Fate, seconds: float = 5.0) -> None:
        faults = iter([Fault(fate, seconds) for fate in fates])
        self.clock = FakeClock()
        self.inner = MemoryStore(self.clock)
        self.store = FaultyStore(self.inner, self.clock, lambda _verb: next(faults, NO_FAULT))

    async def call(self, verb):
        """Start a call and let all the time pass that it takes; the crawl exists."""
        await configure(self.inner)
        call = asyncio.ensure_future(verb)
        await asyncio.sleep(0)
        while not call.done():
            wait = self.clock.next_in()
            self.clock.advance(wait or 0.0)
            await asyncio.sleep(0)
        return await call

    async def known(self):
        """How many tasks really arrived."""
        return (await self.inner.crawl(CRAWL)).known


async def test_a_calm_line_changes_nothing():
    """Without faults the store inside answers, at once."""
    line = Line()
    before = line.clock.now()
    (answer,) = await line.call(line.store.add([task()]))

    assert answer.added
    assert line.clock.now() == before
    assert not line.store.counts


async def test_a_dropped_call_is_never_applied():
    """The caller hears nothing, after a while, and nothing happened."""
    line = Line(Fate.DROP)
    with pytest.raises(StoreUnavailable, match="never arrived"):
        await line.call(line.store.add([task()]))

    assert await line.known() == 0


async def test_an_unknown_outcome_was_applied():
    """The caller hears nothing, and it happened; repeating is harmless."""
    line = Line(Fate.UNKNOWN)
    with pytest.raises(StoreUnavailable, match="was applied"):
        await line.call(line.store.add([task()]))
    (again,) = await line.call(line.store.add([task()]))

    assert await line.known() == 1
    assert again.reason == "duplicate"


async def test_a_duplicate_is_applied_twice_and_the_second_answer_is_heard():
    """The second application of a finish changes nothing and says it was applied (H3)."""
    line = Line(Fate.CALM, Fate.CALM, Fate.DUPLICATE)
    await line.call(line.store.add([task()]))
    claimed = await line.call(line.store.claim(REQUEST))
    (finished,) = await line.call(line.store.finish([done(claimed.leases[0])]))
    view = await line.inner.crawl(CRAWL)

    assert finished.applied
    assert finished.state is None
    assert (view.done, view.visits) == (1, 1)


async def test_a_doubled_claim_loses_the_first_leases():
    """Two claims arrive; what the first one took is nobody's until it expires."""
    line = Line(Fate.CALM, Fate.DUPLICATE)
    await line.call(line.store.add([task(), task("https://b.example/1")]))
    request = ClaimRequest(CRAWL, "w", 1)
    claimed = await line.call(line.store.claim(request))

    assert [lease.url for lease in claimed.leases] == ["https://b.example/1"]
    assert (await line.inner.crawl(CRAWL)).leased == 2


@pytest.mark.parametrize(("fate", "claimed_after"), [(Fate.LATE, 5.0), (Fate.SLOW, 0.0)])
async def test_a_delay_comes_before_or_after(fate, claimed_after):
    """Late: it is applied when the time has passed; slow: at once, and heard later."""
    line = Line(Fate.CALM, fate)
    start = line.clock.now()
    await line.call(line.store.add([task()]))
    claimed = await line.call(line.store.claim(REQUEST))
    view = await line.inner.task(CRAWL, claimed.leases[0].about.fingerprint)

    assert view.claimed_at == start + claimed_after
    assert line.clock.now() == start + 5.0


async def test_a_healed_line_stays_calm():
    """Whatever the plan says."""
    line = Line(*[Fate.DROP] * 10)
    line.store.heal()
    await line.call(line.store.add([task()]))

    assert await line.known() == 1


async def test_faults_are_counted_by_their_kind():
    """For whoever wants to know what a run went through."""
    line = Line(Fate.DROP, Fate.LATE)
    with pytest.raises(StoreUnavailable):
        await line.call(line.store.add([task()]))
    await line.call(line.store.add([task()]))

    assert line.store.counts == {"drop": 1, "late": 1}


def test_a_seeded_plan_repeats_itself():
    """The same dice give the same faults in the same order."""
    shares = Shares(late=0.1, slow=0.1, drop=0.1, unknown=0.1, duplicate=0.1)
    first, second = (seeded(shares, random.Random(4)) for _ in range(2))

    assert [first("add") for _ in range(100)] == [second("add") for _ in range(100)]


def test_a_seeded_plan_keeps_its_shares():
    """Each fault about as often as asked for, and never a longer delay."""
    plan = seeded(Shares(drop=0.2, duplicate=0.1, longest=3.0), random.Random(1))
    faults = [plan("claim") for _ in range(10_000)]
    counts = Counter(fault.fate for fault in faults)

    assert set(counts) == {Fate.CALM, Fate.DROP, Fate.DUPLICATE}
    assert 1_800 < counts[Fate.DROP] < 2_200
    assert 900 < counts[Fate.DUPLICATE] < 1_100
    assert max(fault.seconds for fault in faults) < 3.0


def test_a_plan_of_nothing_is_calm():
    """No shares, no faults."""
    plan = seeded(Shares(), random.Random(0))

    assert {plan("add") for _ in range(100)} == {NO_FAULT} == {calm("add")}


def test_it_is_a_full_store():
    """Whoever takes a store takes a faulty one; it waits, so it is never inline."""
    line = Line()
    store: FullStore = line.store
    missing = [
        name for name in dir(FullStore) if not name.startswith("_") and not hasattr(store, name)
    ]

    assert not missing
    assert store.id == line.inner.id
    assert not store.is_inline


async def test_reading_passes_through_the_line_too():
    """A view may be lost like any other answer."""
    line = Line(Fate.CALM, Fate.DROP)
    await line.call(line.store.add([task()]))
    with pytest.raises(StoreUnavailable):
        await line.call(line.store.crawl(CRAWL))

    assert await line.store.crawls() == [CRAWL]
