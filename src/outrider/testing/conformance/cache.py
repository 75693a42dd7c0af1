"""Conformance of claims by fingerprint, for the cache: no slot, no delay, no visit (D5)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Done
from outrider.core.pick import Streak
from outrider.core.queue_action import Pause, Retire, Snooze
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.store.protocol import FullStore
from outrider.testing.builders import done, verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.export import COPY, export, restore
from outrider.testing.conformance.steps import (
    CRAWL,
    OVER_BUDGET,
    READY,
    add,
    ask,
    claim,
    configure,
    crawl,
    finish,
    key,
    mark,
    named,
    names,
    one,
    queue,
    record,
    state,
    status,
    steer,
    throttle,
    visit,
    wakes_in,
)

CACHED = Done(status=200, bytes=5, from_cache=True)


class CacheConformance:
    """Claims by name."""

    async def test_a_named_task_is_leased_though_its_queue_waits(self, store: FullStore) -> None:
        """D1, D5: next-ready does not count, since nothing is asked of the host."""
        await throttle(store, "a/1", "a/2", "a/3")

        assert await claim(store, 3) == []
        assert names(await named(store, "a/3", "a/2")) == ["a/3", "a/2"]

    async def test_only_named_tasks_are_leased(self, store: FullStore) -> None:
        """D5: even if others could be; the order is the caller's."""
        await add(store, "a/1", "b/1", "b/2")

        assert names(await named(store, "b/2")) == ["b/2"]

    async def test_named_tasks_that_cannot_be_leased_are_left_out(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D5: unknown, done, leased, not due: expected answers, not errors."""
        await configure(store, delay=0.0, max_in_flight=2)
        await add(store, "a/done", "a/leased", "a/free")
        await add(store, "a/later", delay=5.0)
        await visit(store)
        await one(store)
        wanted = ("a/unknown", "a/done", "a/leased", "a/later", "a/free", "a/free")

        assert names(await named(store, *wanted)) == ["a/free"]
        clock.advance(5)
        assert names(await named(store, *wanted)) == ["a/later"]

    async def test_at_most_64_names_are_looked_at(self, store: FullStore) -> None:
        """D5: a claim is bounded; and it keeps to its limit."""
        pages = [f"a/{number}" for number in range(70)]
        await add(store, *pages)

        assert names(await named(store, *pages, limit=3)) == pages[:3]
        assert names(await named(store, *pages, limit=100)) == pages[3:64]

    @pytest.mark.parametrize("act", [Pause(), Retire()], ids=["paused", "retired"])
    async def test_a_task_that_an_operator_stopped_is_not_leased(
        self, store: FullStore, act: Pause | Retire
    ) -> None:
        """E5, E7: no task of a paused or retired queue is leased, not even for the cache."""
        await add(store, "a/1", "b/1")
        await steer(store, key("a"), act)

        assert names(await named(store, "a/1", "b/1")) == ["b/1"]

    async def test_a_snooze_does_not_keep_it(self, store: FullStore) -> None:
        """D5, E7: it is the host that is left alone."""
        await add(store, "a/1")
        await steer(store, key("a"), Snooze(50.0))

        assert names(await named(store, "a/1")) == ["a/1"]
        assert await wakes_in(store) is None

    async def test_a_crawl_that_does_not_run_serves_no_claim_by_fingerprint(
        self, store: FullStore
    ) -> None:
        """I1."""
        await add(store, "a/1")
        await store.set_status(CRAWL, CrawlStatus.PAUSED)

        assert await named(store, "a/1") == []

    async def test_it_takes_no_slot(self, store: FullStore) -> None:
        """D2, D5: a busy queue serves named claims, and named leases do not make it busy."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2", "a/3", "a/4")
        await one(store)
        leases = await named(store, "a/2", "a/3")

        view = await queue(store)
        assert (view.in_flight, view.named, view.max_in_flight) == (3, 2, 1)
        assert (await record(store, "a/2")).state is TaskState.LEASED
        assert await claim(store) == []
        assert len(leases) == 2

    async def test_a_free_slot_stays_free(self, store: FullStore) -> None:
        """D2, D5: the next claim is served as if nothing was leased."""
        await add(store, "a/1", "a/2")
        await named(store, "a/1")

        assert await state(store) == READY
        assert names(await claim(store)) == ["a/2"]

    async def test_an_answer_from_the_cache_leaves_the_host_alone(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D5: no delay begins and none is cut short, though its leases are spaced."""
        await configure(store, min_delay=3.0, max_in_flight=2, count_from="start")
        await add(store, "a/1", "a/2", "a/3")
        clock.advance(7)
        (lease,) = await named(store, "a/1")
        await finish(store, verdict(lease, CACHED))

        view = await queue(store)
        assert (view.last_visit_at, view.wakes_in, view.done, view.named) == (None, 0.0, 1, 0)
        assert (await record(store, "a/1")).claimed_at is None

    async def test_a_throttled_queue_stays_throttled(self, store: FullStore) -> None:
        """D3, D5: its level, its row and its snooze are what they were."""
        await throttle(store, "a/1", "a/2")
        before = await queue(store)
        (lease,) = await named(store, "a/2")
        await finish(store, verdict(lease, CACHED))

        after = await queue(store)
        assert (after.state, after.reason) == (QueueState.SNOOZED, "throttled")
        assert (after.wakes_in, after.level) == (before.wakes_in, before.level) == (100.0, 1)

    async def test_a_release_leaves_the_host_alone(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D5, H5: nothing was in the cache: as if it had never been leased."""
        await add(store, "a/1", "a/2")
        (lease,) = await named(store, "a/1")
        clock.advance(5)
        assert await store.release([lease.id]) == {lease.id}

        view = await queue(store)
        assert (view.last_visit_at, view.wakes_in, view.spent) == (None, 0.0, 0)
        assert names(await claim(store)) == ["a/1"]

    async def test_an_expiry_is_a_crash_and_leaves_the_host_alone(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D5, H4: it counts as an attempt; no delay begins."""
        await add(store, "a/1")
        await named(store, "a/1", lease_for=5.0)
        clock.advance(5)
        assert await store.expire(limit=9) == 1

        view, task = await queue(store), await record(store, "a/1")
        assert (view.last_visit_at, view.wakes_in, view.named) == (None, 0.0, 0)
        assert (task.attempts, task.crashes, task.reason) == (1, 1, "lease expired")

    async def test_an_expiry_by_a_claim_is_the_same(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D5, H4: by `expire` or by a claim."""
        await add(store, "a/1")
        await named(store, "a/1", lease_for=5.0)
        clock.advance(5)

        assert names(await claim(store)) == ["a/1"]

    async def test_it_is_charged_and_refunded(self, store: FullStore) -> None:
        """E3: a claim charges its cost, a visit from the cache gets it back."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2", cost=3)
        (lease,) = await named(store, "a/1")
        charged = await queue(store)
        await finish(store, verdict(lease, CACHED))

        assert (charged.spent, charged.last_cost) == (3, 3)
        assert ((await queue(store)).spent, (await queue(store)).balance) == (0, charged.grant)

    async def test_names_keep_to_the_total(self, store: FullStore) -> None:
        """E1: leases count until they are refunded, however many are named."""
        await configure(store, total_budget=2)
        await add(store, "a/1", "a/2", "a/3")
        leases = await named(store, "a/1", "a/2", "a/3")

        assert (names(leases), await state(store)) == (["a/1", "a/2"], OVER_BUDGET)
        await store.finish([verdict(lease, CACHED) for lease in leases])
        assert await state(store) == READY

    async def test_names_keep_to_the_total_of_a_queue_that_waits(self, store: FullStore) -> None:
        """E1: the queue is not rescheduled yet, and must not be overspent meanwhile."""
        await configure(store, total_budget=2)
        await throttle(store, "a/1", "a/2", "a/3", "a/4")

        assert names(await named(store, "a/2", "a/3", "a/4")) == ["a/2", "a/3"]
        assert await state(store) == (QueueState.SNOOZED, "throttled")

    async def test_a_ready_queue_is_rescheduled(self, store: FullStore) -> None:
        """E1, E2: what it may spend in its session has become less."""
        await configure(store, delay=0.0, balance=2, max_in_flight=9)
        await add(store, "a/1", "a/2", "a/3", "b/1", "b/2", priority=0.0)
        await named(store, "a/1", "a/2")

        assert (await state(store)) == (QueueState.INACTIVE, None)
        assert names(await claim(store, 2)) == ["b/1", "b/2"]

    async def test_an_inactive_queue_keeps_its_place(self, store: FullStore) -> None:
        """E2: who waits for a session waits on, and no session is opened."""
        await configure(store, delay=0.0, hold_queues=True)
        await add(store, "a/1", "a/2", "b/1")
        await named(store, "a/1")

        assert (await state(store)) == (QueueState.INACTIVE, None)
        assert names(await claim(store)) == ["a/2"]

    async def test_a_queue_keeps_its_turn(self, store: FullStore) -> None:
        """C3: it was not served, so it does not go behind its equals."""
        await configure(store, delay=0.0, max_in_flight=9, order="round-robin")
        await add(store, "a/1", "a/2", "b/1")
        await named(store, "a/1")

        assert names(await claim(store)) == ["a/2"]

    async def test_lanes_wait(self, store: FullStore) -> None:
        """C4: the count of lanes is for those who wait in them."""
        await add(store, "a/1")
        claimed = await ask(store, 5, fingerprints=[mark("a/1")], streak=Streak(1, 3))

        assert (names(claimed.leases), claimed.streak) == (["a/1"], Streak(1, 3))

    async def test_a_session_lasts_while_a_task_is_leased(self, store: FullStore) -> None:
        """E2: nothing pending and nothing leased ends it, by name or not."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        await visit(store)
        (lease,) = await named(store, "a/2")
        before = await queue(store)
        await finish(store, verdict(lease, CACHED))

        assert (before.state, before.balance) == (QueueState.BUSY, before.grant - 2)
        assert ((await queue(store)).state, (await queue(store)).balance) == (QueueState.EMPTY, 0)

    async def test_a_run_lasts_while_a_task_is_leased(self, store: FullStore) -> None:
        """I2: a claim by name closes no run, and its leases keep it open."""
        await add(store, "a/1")
        (lease,) = await named(store, "a/1")
        during = (await ask(store)).status
        await finish(store, verdict(lease, CACHED))
        await named(store, "a/1")

        assert (during, await status(store)) == (CrawlStatus.RUNNING, (CrawlStatus.RUNNING, None))
        assert (await ask(store)).status is CrawlStatus.FINISHED
        assert (await crawl(store)).visits == 1

    async def test_the_next_deadline_is_known(self, store: FullStore) -> None:
        """C6: when such a lease is overdue, a claim may bring it."""
        await add(store, "a/1")
        await named(store, "a/1", lease_for=20.0)

        assert (await ask(store)).wake_in == 20.0

    async def test_a_visit_after_all_is_a_visit(self, store: FullStore, clock: FakeClock) -> None:
        """D1, D5, D7: the verdict says that the host was visited, and the visit counts as now."""
        await configure(store, delay=10.0, count_from="start")
        await add(store, "a/1", "a/2")
        (lease,) = await named(store, "a/1")
        clock.advance(4)
        await finish(store, done(lease))

        assert await wakes_in(store) == 10.0
        assert (await queue(store)).last_visit_at == clock.now()
        assert (await record(store, "a/1")).claimed_at == clock.now()

    async def test_the_next_lease_takes_a_slot_again(self, store: FullStore) -> None:
        """D2: a lease by name leaves no mark on its task."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        (lease,) = await named(store, "a/1")
        await store.release([lease.id])
        await one(store)

        view = await queue(store)
        assert (view.in_flight, view.named, view.state) == (1, 0, QueueState.BUSY)
        assert await claim(store) == []

    async def test_it_is_extended_as_any_other(self, store: FullStore, clock: FakeClock) -> None:
        """H2."""
        await add(store, "a/1")
        (lease,) = await named(store, "a/1", lease_for=5.0)
        assert await store.extend([lease.id], lease_for=60.0) == {lease.id}
        clock.advance(30)

        assert (await finish(store, verdict(lease, CACHED))).applied

    async def test_an_export_reads_it_as_released(self, store: FullStore, clock: FakeClock) -> None:
        """H5, I5: refunded, and its host untouched."""
        await add(store, "a/1")
        await named(store, "a/1")
        clock.advance(5)
        await restore(store, await export(store))

        view = await store.queue(COPY, key("a"))
        assert (view.pending, view.in_flight, view.spent) == (1, 0, 0)
        assert (view.last_visit_at, view.wakes_in) == (None, 0.0)

    async def test_a_cancelled_crawl_shows_none(self, store: FullStore) -> None:
        """I3: its leases are void, and its tasks read as dropped."""
        await add(store, "a/1", "a/2")
        (lease,) = await named(store, "a/1")
        await store.set_status(CRAWL, CrawlStatus.CANCELLED)

        view = await queue(store)
        assert (view.in_flight, view.named, view.dropped) == (0, 0, 2)
        assert not (await finish(store, verdict(lease, CACHED))).applied
        assert await store.upcoming(CRAWL, key("a")) == []
