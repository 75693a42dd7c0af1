"""Conformance of politeness: delays, concurrency, visits without a request (D1, D2, D7)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Done, Dropped, Failed, Throttled
from outrider.core.queue_action import Set
from outrider.core.states import QueueState, TaskState
from outrider.store.protocol import FullStore
from outrider.testing.builders import done, dropped, verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    add,
    ask,
    claim,
    configure,
    finish,
    key,
    names,
    one,
    page,
    queue,
    record,
    state,
    steer,
    visit,
    wakes_in,
)


class PolitenessConformance:
    """Delay, next-ready and concurrency."""

    @pytest.mark.parametrize(("seconds", "delay"), [(0.1, 1.0), (0.5, 2.5), (10.0, 30.0)])
    async def test_a_delay_follows_every_visit(
        self, store: FullStore, clock: FakeClock, seconds: float, delay: float
    ) -> None:
        """D1: clamp(5 × duration, 1, 30), and nothing is leased before it is over."""
        await add(store, "a/1", "a/2")

        await visit(store, Done(status=200, seconds=seconds))

        assert await wakes_in(store) == delay
        clock.advance(delay - 0.001)
        assert await claim(store) == []
        clock.advance(0.001)
        assert names(await claim(store)) == ["a/2"]

    async def test_the_delay_counts_from_the_end(self, store: FullStore, clock: FakeClock) -> None:
        """D1: by the server's record the spacing is kept however long the visit took."""
        await configure(store, delay=10.0)
        await add(store, "a/1", "a/2")
        lease = await one(store)
        clock.advance(25)

        await finish(store, done(lease))

        assert await wakes_in(store) == 10.0

    async def test_the_delay_may_count_from_the_start(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: `count_from = "start"`: what the visit took is part of the delay."""
        await configure(store, delay=10.0, count_from="start")
        await add(store, "a/1", "a/2")
        lease = await one(store)
        clock.advance(4)

        await finish(store, done(lease))

        assert await wakes_in(store) == 6.0

    async def test_counted_from_the_start_a_lease_postpones(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: by the least delay, so a visit that fails to end is spaced as well."""
        await configure(store, min_delay=3.0, count_from="start")
        await add(store, "a/1", "a/2")
        lease = await one(store)
        await finish(store, verdict(lease, Done(status=200, from_cache=True)))

        assert await wakes_in(store) == 3.0
        clock.advance(3)
        assert names(await claim(store)) == ["a/2"]

    async def test_one_slot_counted_from_the_end_is_not_postponed_by_its_lease(
        self, store: FullStore
    ) -> None:
        """D1: the queue is busy anyway; a visit that touched no host costs no delay."""
        await configure(store, min_delay=3.0)
        await add(store, "a/1", "a/2")
        lease = await one(store)

        await finish(store, verdict(lease, Done(status=200, from_cache=True)))

        assert names(await claim(store)) == ["a/2"]

    async def test_slots_are_taken_one_delay_apart(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1, D2: with max_in_flight > 1 every lease postpones the next by the least delay."""
        await configure(store, min_delay=2.0, max_in_flight=3)
        await add(store, *(f"a/{n}" for n in range(5)))
        counts = []
        for _ in range(4):
            counts.append(len(await claim(store, 5)))
            assert await claim(store, 5) == []
            clock.advance(2)

        assert counts == [1, 1, 1, 0]

    async def test_the_least_delay_is_the_fixed_one(self, store: FullStore) -> None:
        """D1: min, or the queue's own fixed `delay`."""
        await configure(store, min_delay=2.0, delay=7.0, max_in_flight=2)
        await add(store, "a/1", "a/2")
        await one(store)

        assert await wakes_in(store) == 7.0

    async def test_the_least_delay_is_raised_to_the_crawl_delay(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: once robots.txt was read, up to the respect limit."""
        await configure(store, min_delay=2.0, max_in_flight=2, respect_crawl_delay=20.0)
        await add(store, "a/1", "a/2", "a/3")
        await visit(store, Done(status=200, crawl_delay=9.0))
        clock.advance(9)
        lease = await one(store)

        assert (lease.manners.crawl_delay, await wakes_in(store)) == (9.0, 9.0)
        await finish(store, done(lease, crawl_delay=50.0))
        assert await wakes_in(store) == 20.0

    async def test_the_crawl_delay_is_remembered(self, store: FullStore, clock: FakeClock) -> None:
        """D1: visits that say nothing of it leave it as it is."""
        await add(store, "a/1", "a/2", "a/3")
        await visit(store, Done(status=200, crawl_delay=9.0))
        clock.advance(9)
        await visit(store, Failed("HTTP 500"))

        assert await wakes_in(store) == 9.0

    async def test_next_ready_never_moves_back(self, store: FullStore) -> None:
        """D1: a short visit after a long one shortens nothing."""
        await configure(store, min_delay=0.0, max_in_flight=2)
        await add(store, "a/1", "a/2", "a/3")
        slow, quick = await claim(store, 2)
        await finish(store, done(slow, seconds=4.0))

        await finish(store, done(quick, seconds=1.0))

        assert await wakes_in(store) == 20.0

    async def test_two_queues_keep_their_own_time(self, store: FullStore) -> None:
        """D1: one instant per queue."""
        await add(store, "a/1", "a/2", "b/1", "b/2")
        slow, quick = await claim(store, 2)
        await store.finish([done(slow, seconds=4.0), done(quick, seconds=1.0)])

        assert (await wakes_in(store, "a"), await wakes_in(store, "b")) == (20.0, 5.0)

    async def test_manners_outlive_emptiness(self, store: FullStore, clock: FakeClock) -> None:
        """C1: an emptied queue is not forgotten, and its next task waits its time."""
        await configure(store, delay=10.0)
        await add(store, "a/1")
        await visit(store)
        clock.advance(4)

        await add(store, "a/2")

        assert await claim(store) == []
        assert await wakes_in(store) == 6.0
        assert (await queue(store)).delay == 10.0

    async def test_a_delay_is_rounded_up_to_the_millisecond(self, store: FullStore) -> None:
        """H7: never early."""
        await configure(store, delay=0.0104)
        await add(store, "a/1", "a/2")
        await visit(store)

        assert await wakes_in(store) == 0.011

    async def test_a_dropped_visit_is_a_visit(self, store: FullStore) -> None:
        """D7: it may have sent a request; the delay applies."""
        await add(store, "a/1", "a/2")

        await visit(store, Dropped("robots"))

        assert await wakes_in(store) == 1.0

    async def test_a_release_ends_a_visit_now(self, store: FullStore, clock: FakeClock) -> None:
        """D7: with the least delay if the queue had none yet."""
        await configure(store, min_delay=3.0)
        await add(store, "a/1")
        lease = await one(store)
        clock.advance(10)

        await store.release([lease.id])

        assert await wakes_in(store) == 3.0
        assert (await queue(store)).last_visit_at == clock.now()

    async def test_a_release_keeps_the_last_delay(self, store: FullStore, clock: FakeClock) -> None:
        """D7: of the last visit that had one."""
        await add(store, "a/1", "a/2")
        await visit(store, Done(status=200, seconds=2.0))
        clock.advance(10)
        await store.release([(await one(store)).id])

        assert await wakes_in(store) == 10.0

    async def test_a_release_may_count_from_the_start(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1, D7: as every end of a visit."""
        await configure(store, delay=10.0, count_from="start")
        await add(store, "a/1")
        lease = await one(store)
        clock.advance(4)
        await store.release([lease.id])

        assert await wakes_in(store) == 6.0

    async def test_an_expiry_ends_a_visit_now(self, store: FullStore, clock: FakeClock) -> None:
        """D7: when it expires, not at its deadline, with the last delay."""
        await configure(store, delay=10.0)
        await add(store, "a/1")
        await one(store, lease_for=30)
        clock.advance(50)

        claimed = await ask(store)

        assert claimed.leases == []
        assert claimed.wake_in == 10.0
        assert (await queue(store)).last_visit_at == clock.now()

    async def test_concurrency_follows_the_setting(self, store: FullStore) -> None:
        """D2: raised it allows more leases, lowered none until enough visits have ended."""
        await configure(store, delay=0.0, max_in_flight=2)
        await add(store, *(f"a/{n}" for n in range(9)))
        leases = await claim(store, 9)
        await steer(store, key("a"), Set({"max_in_flight": 3}))
        leases += await claim(store, 9)
        await steer(store, key("a"), Set({"max_in_flight": 1}))
        await store.finish([done(lease) for lease in leases[:2]])

        assert len(leases) == 3
        assert await claim(store, 9) == []
        await store.finish([done(leases[2])])
        assert len(await claim(store, 9)) == 1

    @pytest.mark.parametrize("delay", [0.0, 0.5])
    async def test_the_last_delay_may_be_short(
        self, store: FullStore, clock: FakeClock, delay: float
    ) -> None:
        """D7: a release keeps the last one, even 0, though the least has risen since."""
        await configure(store, min_delay=0.0, factor=1.0)
        await add(store, "a/1", "a/2")
        await visit(store, Done(status=200, seconds=delay))
        await steer(store, key("a"), Set({"min_delay": 5.0}))
        clock.advance(delay)
        await store.release([(await one(store)).id])

        assert await wakes_in(store) == delay

    async def test_a_fixed_delay_replaces_the_clamp(self, store: FullStore) -> None:
        """D1: by key, at run time, from the next lease on."""
        await configure(store, keys={key("a"): {"delay": 4.0}})
        await add(store, "a/1", "a/2", "b/1", "b/2")
        await steer(store, key("b"), Set({"delay": 8.0}))
        await store.finish([done(lease, seconds=2.0) for lease in await claim(store, 2)])

        assert (await wakes_in(store, "a"), await wakes_in(store, "b")) == (4.0, 8.0)

    async def test_a_failing_task_does_not_hold_its_queue(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D4: it waits by itself; the next is visited after the usual delay."""
        await add(store, "a/1", "a/2")
        await visit(store, Failed("HTTP 500", retry_in=600.0))
        clock.advance(1)

        assert names(await claim(store)) == ["a/2"]

    async def test_the_later_of_due_and_ready_counts(self, store: FullStore) -> None:
        """C1, C6: the reason is `waiting` for a task, `delay` for the host."""
        await configure(store, delay=10.0)
        await add(store, "a/1", "b/1")
        await store.finish([dropped(lease) for lease in await claim(store, 2)])
        await store.add([page("a/2", delay=5.0), page("b/2", delay=15.0)])

        assert (await state(store, "a"), await wakes_in(store, "a")) == (
            (QueueState.SNOOZED, "delay"),
            10.0,
        )
        assert (await state(store, "b"), await wakes_in(store, "b")) == (
            (QueueState.SNOOZED, "waiting"),
            15.0,
        )


class UntouchedConformance:
    """Visits that asked nothing of their host."""

    async def test_a_drop_without_a_request_begins_no_delay(self, store: FullStore) -> None:
        """D7: robots.txt of before forbade it; the next may be visited at once."""
        await add(store, "a/1", "a/2")
        await visit(store, Dropped("robots", crawl_delay=9.0, visited=False))

        assert (await record(store, "a/1")).state is TaskState.DROPPED
        view = await queue(store)
        assert (view.wakes_in, view.last_visit_at, view.spent) == (0.0, None, 0)
        assert (await one(store)).manners.crawl_delay == 0.0

    async def test_a_drop_with_a_request_begins_one(self, store: FullStore) -> None:
        """D1, D7: by what it took, and by what robots.txt said in it."""
        await add(store, "a/1", "a/2", "b/1", "b/2")
        first, second = await claim(store, 2)
        slow = verdict(first, Dropped("size", seconds=2.0))
        await store.finish([slow, verdict(second, Dropped("robots", crawl_delay=9.0))])

        assert (await wakes_in(store, "a"), await wakes_in(store, "b")) == (10.0, 9.0)

    @pytest.mark.parametrize("fields", [{"max_in_flight": 2}, {"count_from": "start"}])
    async def test_a_lease_that_was_spaced_stays_so(
        self, store: FullStore, fields: dict[str, object]
    ) -> None:
        """D1: next-ready moved when it was leased, and never moves back."""
        await configure(store, min_delay=3.0, **fields)  # type: ignore[arg-type] # two of them
        await add(store, "a/1", "a/2")
        await visit(store, Dropped("robots", visited=False))

        assert await wakes_in(store) == 3.0

    async def test_the_crawl_delay_of_a_visit_that_failed_is_kept(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: robots.txt was read, whatever became of the page."""
        await add(store, "a/1", "a/2")
        await visit(store, Throttled(crawl_delay=40.0))
        assert (await queue(store)).delay == 80.0
        clock.advance(200)

        assert (await one(store)).manners.crawl_delay == 40.0
