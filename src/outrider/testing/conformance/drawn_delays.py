"""Conformance of delays that leases draw: uniform, and counted from the start of a visit (D1)."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.core.outcome import Done, Dropped, Failed, Outcome, Throttled
from outrider.core.queue_action import Set, Snooze, Wake
from outrider.core.task import Lease
from outrider.errors import InvalidInput
from outrider.store.protocol import FullStore
from outrider.testing.builders import RuleFields, verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.export import COPY, export, restore
from outrider.testing.conformance.steps import (
    CRAWL,
    add,
    ask,
    claim,
    configure,
    finish,
    key,
    named,
    names,
    one,
    queue,
    steer,
    wakes_in,
)

PAGES = tuple(f"a/{number}" for number in range(1, 10))
UNIFORM: RuleFields = {"count_from": "start", "delay": 5.0, "delay_to": 15.0}
ANOTHER = 0.999  # drawn for a verdict that must not use it


async def configure_uniform(store: FullStore, **fields: Any) -> None:
    """Open the crawl with delays of U(5, 15) from the start, and pages of one queue."""
    given: Any = {**UNIFORM, **fields}
    await configure(store, **given)
    await add(store, *PAGES)


async def end(store: FullStore, lease: Lease, outcome: Outcome) -> None:
    """Finish a visit, with another random number."""
    assert (await finish(store, verdict(lease, outcome, roll=ANOTHER))).applied


async def one_after(store: FullStore, clock: FakeClock, seconds: float) -> Lease:
    """Claim one task after so many seconds, without random numbers."""
    clock.advance(seconds)
    return await one(store)


class DrawnDelayConformance:
    """`ClaimRequest.rolls`, `Lease.delay`."""

    async def test_a_lease_draws_its_delay(self, store: FullStore, clock: FakeClock) -> None:
        """D1: next-ready is its start and delay + (delay_to − delay) × roll."""
        await configure_uniform(store, max_in_flight=9)

        lease = await one(store, rolls=[0.25])

        assert (lease.delay, await wakes_in(store)) == (7.5, 7.5)
        clock.advance(7.499)
        assert await claim(store) == []
        clock.advance(0.001)
        assert names(await claim(store, 9, rolls=[0.5])) == ["a/2"]
        assert await wakes_in(store) == 10.0

    @pytest.mark.parametrize("outcome", [Done(200), Failed("x"), Dropped("type")])
    async def test_a_verdict_does_not_draw_again(
        self, store: FullStore, clock: FakeClock, outcome: Outcome
    ) -> None:
        """D1: the greater of two draws would not be uniform."""
        await configure_uniform(store)
        lease = await one(store, rolls=[0.25])
        clock.advance(2)

        await end(store, lease, outcome)

        assert (await wakes_in(store), (await queue(store)).delay) == (5.5, 7.5)

    async def test_a_visit_longer_than_its_delay_is_followed_at_once(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: it counts from the start; with one slot the next waits for the end."""
        await configure_uniform(store)
        lease = await one(store, rolls=[0.25])
        clock.advance(8)

        await end(store, lease, Done(200))

        assert names(await claim(store)) == ["a/2"]

    @pytest.mark.parametrize("how", ["release", "expire"])
    async def test_a_lost_visit_keeps_its_delay(
        self, store: FullStore, clock: FakeClock, how: str
    ) -> None:
        """D1, D7, H4, H5: neither the delay of the visit before nor another draw."""
        await configure_uniform(store)
        await end(store, await one(store, rolls=[0.9]), Done(200))
        clock.advance(14)
        lease = await one(store, rolls=[0.1], lease_for=3.0)
        clock.advance(3)

        if how == "release":
            await store.release([lease.id])
        else:
            assert await store.expire(limit=9) == 1

        assert await wakes_in(store) == 3.0
        clock.advance(3)
        assert names(await claim(store, rolls=[0.5])) == ["a/2"]

    async def test_random_numbers_are_used_in_the_order_of_leases(self, store: FullStore) -> None:
        """D1: the i-th for the i-th lease, also of queues that do not draw; none left: 0."""
        rules = {**UNIFORM, "max_in_flight": 2}
        await configure(store, keys={key(host): rules for host in "acd"})
        await add(store, "a/1", "a/2", "b/1", "b/2", "c/1", "c/2", "d/1", "d/2")

        leases = await claim(store, 9, per_queue=1, rolls=[0.1, 0.2, 0.3])

        assert [lease.delay for lease in leases] == [6.0, -1.0, 8.0, 5.0]
        assert [await wakes_in(store, host) for host in "abcd"] == [6.0, None, 8.0, 5.0]

    async def test_random_numbers_last_for_a_long_claim(self, store: FullStore) -> None:
        """D1: hundreds of leases, whatever number a store leases at a time."""
        await configure(store, **UNIFORM)
        hosts = [f"h{number}" for number in range(250)]
        await add(store, *(f"{host}/1" for host in hosts))
        rolls = [number / 250 for number in range(250)]

        leases = await claim(store, 999, rolls=rolls)

        assert [lease.delay for lease in leases] == [5.0 + 10.0 * roll for roll in rolls]

    async def test_a_lease_that_is_looked_up_has_what_it_drew(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1, H1: any process finishes it to the same next-ready."""
        await configure_uniform(store)
        await one(store, rolls=[0.25])
        (view,) = (await store.leases(CRAWL)).items
        clock.advance(2)

        await end(store, view.lease, Done(200))

        assert (view.lease.delay, await wakes_in(store)) == (7.5, 5.5)
        assert (await one_after(store, clock, 5.5)).delay == 5.0

    async def test_without_random_numbers_the_least_is_drawn(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: the verdict does not draw either."""
        await configure_uniform(store)
        lease = await one(store)
        clock.advance(1)

        await end(store, lease, Done(200))

        assert (lease.delay, await wakes_in(store)) == (5.0, 4.0)

    async def test_visits_in_flight_keep_the_delay_of_the_last_start(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: ends of earlier visits neither shorten nor prolong it, nor does `wake` forget it."""
        await configure_uniform(store, max_in_flight=4)
        first = await one(store, rolls=[0.0])
        clock.advance(5)
        second = await one(store, rolls=[0.1], lease_for=8.0)
        clock.advance(6)
        third = await one(store, rolls=[0.9])
        clock.advance(1)
        await end(store, first, Done(200))
        assert (await wakes_in(store), (await queue(store)).delay) == (13.0, 14.0)
        clock.advance(1)
        await store.expire(limit=9)
        assert await wakes_in(store) == 12.0
        assert not (await finish(store, verdict(second, Done(200), roll=ANOTHER))).applied
        await steer(store, key("a"), Snooze(500.0))

        await steer(store, key("a"), Wake())

        assert await wakes_in(store) == 12.0
        await store.release([third.id])
        assert await wakes_in(store) == 12.0

    async def test_wake_keeps_the_delay_of_the_first_visit(self, store: FullStore) -> None:
        """D1: it was drawn as it began, though none has ended."""
        await configure_uniform(store, max_in_flight=2)
        await one(store, rolls=[0.5])
        await steer(store, key("a"), Snooze(60.0))

        await steer(store, key("a"), Wake())

        assert await wakes_in(store) == 10.0

    async def test_crawl_delay_is_a_minimum_of_what_is_drawn(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: up to the respect limit; by the verdict for the visit that read it."""
        await configure_uniform(store, respect_crawl_delay=12.0)
        first = await one(store, rolls=[0.0])
        await end(store, first, Done(200, crawl_delay=40.0))
        assert await wakes_in(store) == 12.0
        clock.advance(12)

        lease = await one(store, rolls=[0.2])

        assert (lease.delay, await wakes_in(store)) == (7.0, None)
        await store.release([lease.id])
        assert await wakes_in(store) == 12.0
        clock.advance(12)
        await one(store, rolls=[0.9])
        assert (await queue(store)).delay == 14.0

    async def test_the_throttle_level_doubles_what_is_drawn(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1, D3: at the lease, and in the verdict from the same number."""
        await configure_uniform(store, max_in_flight=2)
        await end(store, await one(store, rolls=[0.0]), Throttled())
        clock.advance(100)

        lease = await one(store, rolls=[0.1])

        assert (lease.delay, await wakes_in(store)) == (6.0, 12.0)
        await end(store, lease, Done(200))
        assert await wakes_in(store) == 12.0
        clock.advance(12)
        await end(store, await one(store, rolls=[0.1]), Throttled(retry_after=0.0))
        assert (await queue(store)).delay == 24.0

    async def test_visits_per_second_hold_besides(self, store: FullStore) -> None:
        """D1: the longer of the two."""
        await configure_uniform(store, visits_per_second=0.1, max_in_flight=9)

        await one(store, rolls=[0.2])

        assert await wakes_in(store) == 10.0

    async def test_a_verdict_may_ask_for_more(self, store: FullStore) -> None:
        """D1: `kb_per_second` is known with the page."""
        await configure_uniform(store, kb_per_second=1.0)
        lease = await one(store, rolls=[0.0])

        await end(store, lease, Done(200, bytes=9 * 1024))

        assert (await wakes_in(store), (await queue(store)).delay) == (9.0, 9.0)

    async def test_delays_that_count_from_the_end_are_drawn_by_the_verdict(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1."""
        await configure_uniform(store, count_from="end")
        lease = await one(store, rolls=[0.9])
        clock.advance(3)

        await finish(store, verdict(lease, Done(200), roll=0.5))

        assert (lease.delay, await wakes_in(store)) == (-1.0, 10.0)

    async def test_loans_and_leases_by_name_draw_nothing(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C7, D5: the borrower paces a loan, and a lease by name visits no host."""
        await configure_uniform(store)
        by_name = await named(store, "a/9")
        lent = await claim(store, 2, lend=True, rolls=[0.9, 0.9])
        clock.advance(1)

        await end(store, lent[0], Done(200))

        assert [lease.delay for lease in (*by_name, *lent)] == [-1.0, -1.0, -1.0]
        assert (await queue(store)).delay == pytest.approx(14.99)

    async def test_new_rules_hold_for_the_next_lease(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1, E7: the visit in flight keeps what it drew."""
        await configure_uniform(store)
        lease = await one(store, rolls=[0.5])
        await steer(store, key("a"), Set({"delay_to": -1.0, "delay": 2.0}))
        clock.advance(1)
        await end(store, lease, Done(200))
        assert await wakes_in(store) == 9.0
        clock.advance(9)

        assert (await one(store, rolls=[0.5])).delay == -1.0

    async def test_a_lease_carries_the_last_delay_as_it_was_before(self, store: FullStore) -> None:
        """D1: one after the other, also within a claim."""
        await configure(store, count_from="start", delay=0.0, delay_to=8.0, max_in_flight=9)
        await add(store, *PAGES)

        leases = await claim(store, 9, rolls=[0.0, 0.0, 0.5, 0.5])

        assert [lease.manners.last_delay for lease in leases] == [-1.0, 0.0, 0.0]
        assert [lease.delay for lease in leases] == [0.0, 0.0, 4.0]

    async def test_a_restored_crawl_keeps_what_was_drawn(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1, I5: the visit is released, and the delay from its start on is waited for."""
        await configure_uniform(store)
        await one(store, rolls=[0.5])
        clock.advance(4)

        await restore(store, await export(store))

        claimed = await ask(store, crawl=COPY)
        assert (claimed.leases, claimed.wake_in) == ([], 6.0)

    @pytest.mark.parametrize("rolls", [[1.0], [0.5, -0.1], [float("nan")], ["x"], [0.0] * 100_001])
    async def test_random_numbers_are_checked(self, store: FullStore, rolls: list[Any]) -> None:
        """D1: from 0 to below 1, before anything is changed."""
        await add(store, "a/1")

        with pytest.raises(InvalidInput, match="rolls"):
            await claim(store, rolls=rolls)

        assert names(await claim(store)) == ["a/1"]
