"""Conformance of visits per second: kept between any two leases of a queue, over all slots (D1)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Done, Dropped, Failed, Outcome
from outrider.core.queue_action import Set, Snooze, Wake
from outrider.store.protocol import FullStore
from outrider.testing.builders import RuleFields, done, verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.export import COPY, export, restore
from outrider.testing.conformance.steps import (
    add,
    ask,
    claim,
    configure,
    finish,
    key,
    named,
    names,
    one,
    steer,
    visit,
    wakes_in,
)

PAGES = tuple(f"a/{number}" for number in range(1, 10))
# Every way to wait less than 1/rate: no delay, several slots, counted from either end.
FAST: list[RuleFields] = [
    {"delay": 0.0},
    {"delay": 0.0, "max_in_flight": 5},
    {"min_delay": 0.0, "factor": 0.0, "max_in_flight": 3},
    {"delay": 0.0, "count_from": "start"},
    {"delay": 0.1, "count_from": "start", "max_in_flight": 5},
]
ENDS: list[Outcome] = [
    Dropped("robots", visited=False),
    Done(200),
    Failed("x"),
    Done(200, from_cache=True),
    Dropped("type"),
]


async def configure_rate(store: FullStore, rate: float, politeness: RuleFields) -> None:
    """Open the crawl under these rules and that rate."""
    given = politeness.copy()
    given["visits_per_second"] = rate
    await configure(store, **given)


async def leased_at(
    store: FullStore, clock: FakeClock, seconds: float, per_queue: int
) -> list[int]:
    """Claim for every slot each 100 ms and never finish; milliseconds after the start."""
    began, found = clock.now_ms(), list[int]()
    for _ in range(round(seconds * 10)):
        leases = await claim(store, 9, per_queue=per_queue)
        found += [clock.now_ms() - began] * len(leases)
        clock.advance(0.1)
    return found


class PaceConformance:
    """`visits_per_second`."""

    @pytest.mark.parametrize("per_queue", [0, 3])
    async def test_visits_per_second_hold_over_all_slots(
        self, store: FullStore, clock: FakeClock, per_queue: int
    ) -> None:
        """D1: five slots at one visit a second begin one visit a second, one of each claim."""
        await configure(store, visits_per_second=1.0, delay=0.0, max_in_flight=5)
        await add(store, *PAGES)

        assert await leased_at(store, clock, 4.0, per_queue) == [0, 1000, 2000, 3000]

    @pytest.mark.parametrize(("politeness", "outcome"), list(zip(FAST, ENDS, strict=True)))
    async def test_visits_that_end_at_once_are_kept_apart(
        self, store: FullStore, clock: FakeClock, politeness: RuleFields, outcome: Outcome
    ) -> None:
        """D1: however a visit ends, and whether or not its host was asked."""
        await configure_rate(store, 2.0, politeness)
        await add(store, *PAGES)

        await visit(store, outcome)

        claimed = await ask(store)
        assert (claimed.leases, claimed.wake_in, await wakes_in(store)) == ([], 0.5, 0.5)
        clock.advance(0.499)
        assert await claim(store) == []
        clock.advance(0.001)
        await one(store)

    @pytest.mark.parametrize("politeness", FAST[:2])
    async def test_a_release_does_not_shorten_the_pace(
        self, store: FullStore, clock: FakeClock, politeness: RuleFields
    ) -> None:
        """D1, D7: it counts from the lease, also of a released task."""
        await configure_rate(store, 0.1, politeness)
        await add(store, *PAGES)
        lease = await one(store)
        clock.advance(3)

        await store.release([lease.id])

        assert await claim(store) == []
        clock.advance(7)
        await one(store)

    async def test_an_expiry_does_not_shorten_the_pace(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1, H4: a crashed worker's lease began the interval as well."""
        await configure(store, visits_per_second=0.01, delay=0.0, max_in_flight=2)
        await add(store, *PAGES)
        await one(store, lease_for=30.0)
        clock.advance(40)

        claimed = await ask(store)

        assert (claimed.leases, claimed.wake_in) == ([], 60.0)

    @pytest.mark.parametrize("politeness", FAST[:2])
    async def test_wake_goes_back_to_the_pace_and_no_further(
        self, store: FullStore, clock: FakeClock, politeness: RuleFields
    ) -> None:
        """D1: no act breaks it; a snooze ends."""
        await configure_rate(store, 0.1, politeness)
        await add(store, *PAGES)
        await visit(store, Done(200, from_cache=True))
        await steer(store, key("a"), Snooze(500.0))
        clock.advance(2)

        await steer(store, key("a"), Wake())

        assert await wakes_in(store) == 8.0

    @pytest.mark.parametrize(("rate", "apart"), [(1000.0, 1), (1e6, 1), (3.0, 334), (0.7, 1429)])
    async def test_the_pace_is_rounded_up_to_the_millisecond(
        self, store: FullStore, clock: FakeClock, rate: float, apart: int
    ) -> None:
        """H7: whole milliseconds, never early."""
        await configure(store, visits_per_second=rate, delay=0.0, max_in_flight=9)
        await add(store, *PAGES)
        await one(store)

        assert (await ask(store)).wake_in == apart / 1000
        clock.advance((apart - 1) / 1000)
        assert await claim(store, 9) == []
        clock.advance(0.001)
        assert len(await claim(store, 9)) == 1

    @pytest.mark.parametrize(("crawl_delay", "wait"), [(0.0, 2.0), (7.0, 7.0), (50.0, 20.0)])
    async def test_the_longer_of_pace_and_crawl_delay_holds(
        self, store: FullStore, clock: FakeClock, crawl_delay: float, wait: float
    ) -> None:
        """D1: robots.txt may ask for more, up to the respect limit, and never for less."""
        await configure(
            store, visits_per_second=0.5, delay=0.0, max_in_flight=3, respect_crawl_delay=20.0
        )
        await add(store, *PAGES)
        await visit(store, Done(200, crawl_delay=crawl_delay))
        clock.advance(wait)

        await one(store)

        assert await wakes_in(store) == wait

    async def test_a_longer_delay_is_not_shortened(self, store: FullStore) -> None:
        """D1: the rate is a limit, not a target."""
        await configure(store, visits_per_second=10.0, min_delay=4.0, max_in_flight=2)
        await add(store, *PAGES)

        await one(store)

        assert await wakes_in(store) == 4.0

    async def test_a_lower_rate_counts_from_the_last_lease(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: set at run time it holds at once, for one key."""
        await configure(store, visits_per_second=10.0, delay=0.0, max_in_flight=5)
        await add(store, *PAGES, "b/1", "b/2")
        assert names(await claim(store, 9)) == ["a/1", "b/1"]
        clock.advance(1)

        await steer(store, key("a"), Set({"visits_per_second": 0.1}))

        assert await wakes_in(store) == 9.0
        assert names(await claim(store, 9)) == ["b/2"]

    async def test_a_rate_set_where_none_was_counts_from_the_last_lease(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: with one slot, too, whose last visit began no interval of its own."""
        await configure(store, delay=0.0)
        await add(store, *PAGES)
        await visit(store)
        clock.advance(1)

        await configure(store, visits_per_second=0.1, delay=0.0)
        await steer(store, "", Set({}))

        assert await wakes_in(store) == 9.0

    async def test_a_higher_rate_holds_from_the_next_lease_on(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: next-ready never moves back, but for `wake`."""
        await configure(store, visits_per_second=0.1, delay=0.0, max_in_flight=5)
        await add(store, *PAGES)
        await one(store)
        await steer(store, key("a"), Set({"visits_per_second": 1.0}))

        assert await wakes_in(store) == 10.0
        await steer(store, key("a"), Wake())
        assert await wakes_in(store) == 1.0
        clock.advance(1)
        await one(store)
        assert await wakes_in(store) == 1.0

    async def test_a_lease_by_name_neither_waits_nor_counts(self, store: FullStore) -> None:
        """D5: it asks its host for nothing."""
        await configure(store, visits_per_second=0.1, delay=0.0, max_in_flight=5)
        await add(store, *PAGES)
        (lease,) = await named(store, "a/1")
        await finish(store, verdict(lease, Done(200, from_cache=True)))

        assert names(await claim(store)) == ["a/2"]
        assert names(await named(store, "a/3")) == ["a/3"]

    async def test_a_lent_queue_is_paced_by_its_borrower(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C7, D1: a borrower begins when it likes, so the pace counts from each task's end."""
        await configure(store, visits_per_second=0.1, delay=0.0, max_in_flight=5)
        await add(store, *PAGES)
        first, second, third = await claim(store, 9, per_queue=3, lend=True)
        clock.advance(25)
        await finish(store, done(first))
        await finish(store, verdict(second, Dropped("robots", visited=False)))

        await store.release([third.id])

        assert await wakes_in(store) == 10.0
        await steer(store, key("a"), Wake())
        assert await wakes_in(store) == 10.0

    async def test_a_restored_crawl_keeps_the_pace(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1, I5: the interval that was begun before the export is waited for after it."""
        await configure(store, visits_per_second=0.1, delay=0.0, max_in_flight=5)
        await add(store, *PAGES)
        await one(store)
        clock.advance(4)

        await restore(store, await export(store))

        claimed = await ask(store, crawl=COPY)
        assert (claimed.leases, claimed.wake_in) == ([], 6.0)
