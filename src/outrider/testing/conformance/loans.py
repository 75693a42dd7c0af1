"""Conformance of loans: a whole queue is lent to one claim, which paces it (C7)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Done, Dropped, Outcome
from outrider.core.queue_action import Pause, Retire, Set, Wake
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import Lease
from outrider.store.protocol import FullStore, Store
from outrider.testing.builders import done, verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.export import COPY, export, restore
from outrider.testing.conformance.steps import (
    CRAWL,
    INACTIVE,
    OVER_BUDGET,
    READY,
    add,
    ask,
    claim,
    configure,
    crawl,
    finish,
    key,
    named,
    names,
    one,
    page,
    queue,
    record,
    state,
    steer,
    wakes_in,
)

BUSY = (QueueState.BUSY, None)
CACHED = Done(status=200, from_cache=True)
UNSENT = Dropped("robots", visited=False)


async def borrow(
    store: Store, limit: int = 100, per_queue: int = 0, lease_for: float = 60.0
) -> list[Lease]:
    """Claim whole queues."""
    return await claim(store, limit, per_queue=per_queue, lease_for=lease_for, lend=True)


class LoansConformance:
    """Claims that lend queues."""

    # ---- what is lent

    async def test_a_queue_is_lent_with_many_tasks(self, store: FullStore) -> None:
        """C7: whatever its slots and its delay say; all due tasks where there is no cap."""
        await add(store, "a/1", "a/2", "a/3")
        leases = await borrow(store)

        view = await queue(store)
        assert names(leases) == ["a/1", "a/2", "a/3"]
        assert (view.in_flight, view.lent, view.max_in_flight) == (3, 3, 1)

    async def test_at_most_so_many_of_each_queue(self, store: FullStore) -> None:
        """C7: `per_queue` tasks of each; the others stay."""
        await add(store, "a/1", "a/2", "a/3", "b/1", "b/2", "b/3")
        leases = await borrow(store, per_queue=2)

        assert sorted(names(leases)) == ["a/1", "a/2", "b/1", "b/2"]
        assert (await queue(store)).pending == 1

    async def test_the_limit_may_cut_a_loan_short(self, store: FullStore) -> None:
        """C6: and then there may be more at once."""
        await add(store, "a/1", "a/2", "b/1", "b/2")
        answer = await ask(store, 3, lend=True)

        assert (len(answer.leases), answer.wake_in) == (3, 0.0)

    async def test_queues_compete_as_in_any_claim(self, store: FullStore) -> None:
        """C3: the better task first, equal ones by turn, so queues alternate."""
        await add(store, "a/1", "a/2", "b/1", "b/2")
        await add(store, "b/0", priority=-1.0)

        assert names(await borrow(store)) == ["b/0", "a/1", "b/1", "a/2", "b/2"]

    async def test_the_discount_holds(self, store: FullStore) -> None:
        """C5: the r-th task of a queue competes at priority + c·(r − 1)."""
        await configure(store, breadth_discount=10.0)
        await add(store, "a/1", "a/2", "a/3", priority=1.0)
        await add(store, "b/1", "b/2", priority=15.0)

        assert names(await borrow(store)) == ["a/1", "a/2", "b/1", "a/3", "b/2"]

    async def test_a_loan_has_due_tasks_only(self, store: FullStore) -> None:
        """C6."""
        await add(store, "a/1")
        await add(store, "a/later", delay=5.0)

        assert names(await borrow(store)) == ["a/1"]

    async def test_a_snoozed_queue_is_not_lent(self, store: FullStore, clock: FakeClock) -> None:
        """D1: a loan begins at next-ready, like any visit."""
        await configure(store, delay=9.0)
        await add(store, "a/1", "a/2", "a/3")
        await finish(store, done(await one(store)))

        assert await borrow(store) == []
        clock.advance(9)
        assert names(await borrow(store)) == ["a/2", "a/3"]

    async def test_a_queue_without_a_slot_is_not_lent(self, store: FullStore) -> None:
        """D2: a loan takes a slot, so one must be free."""
        await add(store, "a/1", "a/2")
        await one(store)

        assert await borrow(store) == []

    async def test_other_visits_may_be_under_way(self, store: FullStore) -> None:
        """D2: with a second slot the queue is lent, and earlier leases are no part of the loan."""
        await configure(store, delay=0.0, max_in_flight=2)
        await add(store, "a/1", "a/2", "a/3")
        await one(store)
        await borrow(store)

        view = await queue(store)
        assert (view.in_flight, view.lent) == (3, 2)

    # ---- who else is served

    async def test_a_lent_queue_is_served_to_no_other_claim(self, store: FullStore) -> None:
        """C7: by any claim, and however many slots there are."""
        await configure(store, delay=0.0, max_in_flight=5)
        await add(store, "a/1", "a/2", "a/3")
        await borrow(store, per_queue=1)

        assert await state(store) == BUSY
        assert await claim(store, 9) == []
        assert await borrow(store) == []

    async def test_an_add_does_not_open_it(self, store: FullStore) -> None:
        """E1: a task that comes waits for the end of the loan."""
        await configure(store, delay=0.0, max_in_flight=5)
        await add(store, "a/1")
        await borrow(store)
        await add(store, "a/2", "b/1")

        assert await state(store) == BUSY
        assert names(await claim(store, 9)) == ["b/1"]

    async def test_other_queues_are_served(self, store: FullStore) -> None:
        """C7: a loan concerns its queue alone."""
        await add(store, "a/1", "b/1")
        await borrow(store, limit=1)

        assert names(await claim(store, 9)) == ["b/1"]

    async def test_a_lent_queue_serves_claims_by_fingerprint(self, store: FullStore) -> None:
        """D5: and such a lease is no part of the loan, and does not prolong it."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2", "a/3")
        (lease,) = await borrow(store, per_queue=1)
        await named(store, "a/2")

        view = await queue(store)
        assert (view.in_flight, view.named, view.lent) == (2, 1, 1)
        await finish(store, done(lease))
        assert names(await claim(store, 9)) == ["a/3"]

    async def test_a_claim_by_fingerprint_lends_no_queue(self, store: FullStore) -> None:
        """D5: names given, nothing else is looked at."""
        await add(store, "a/1", "a/2")
        fingerprint = (await record(store, "a/1")).fingerprint
        await claim(store, 9, lend=True, fingerprints=[fingerprint])

        view = await queue(store)
        assert (view.named, view.lent, view.state) == (1, 0, QueueState.READY)

    # ---- what it costs

    async def test_each_task_is_charged_as_it_is_taken(self, store: FullStore) -> None:
        """E3."""
        await add(store, "a/1", "a/2", cost=4)
        await borrow(store)

        view = await queue(store)
        assert (view.spent, view.last_cost) == (8, 4)

    async def test_a_total_budget_limits_a_loan(self, store: FullStore) -> None:
        """E1: no more than it may spend; it is rescheduled when the loan is over."""
        await configure(store, total_budget=2, delay=0.0)
        await add(store, "a/1", "a/2", "a/3")
        leases = await borrow(store)

        assert names(leases) == ["a/1", "a/2"]
        assert await state(store) == BUSY
        await store.finish([done(lease) for lease in leases])
        assert await state(store) == OVER_BUDGET

    async def test_a_session_limits_a_loan(self, store: FullStore) -> None:
        """E2: no more than the balance; then it is behind the others."""
        await configure(store, balance=2, delay=0.0)
        await add(store, "a/1", "a/2", "a/3", "b/1")
        leases = await borrow(store, limit=4)

        assert sorted(names(leases)) == ["a/1", "a/2", "b/1"]
        await store.finish([done(lease) for lease in leases])
        assert await state(store) == INACTIVE

    async def test_each_lease_takes_a_turn(self, store: FullStore) -> None:
        """C3: the queue with the last lease is behind the others."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2", "a/3", "b/1", "b/2")
        leases = await borrow(store, limit=3)
        await store.finish([done(lease) for lease in leases])

        assert names(leases) == ["a/1", "b/1", "a/2"]
        assert names(await claim(store, 9)) == ["b/2", "a/3"]

    async def test_an_inactive_queue_is_activated(self, store: FullStore) -> None:
        """E2."""
        await configure(store, hold_queues=True)
        await add(store, "a/1", "a/2")
        assert await state(store) == INACTIVE

        assert names(await borrow(store)) == ["a/1", "a/2"]

    # ---- how it ends

    async def test_a_loan_ends_with_its_last_task(self, store: FullStore, clock: FakeClock) -> None:
        """C7: by finish or release; then the queue is rescheduled."""
        await configure(store, delay=2.0)
        await add(store, "a/1", "a/2", "a/3", "a/4")
        first, second, third = await borrow(store, per_queue=3)
        await finish(store, done(first))
        await store.release([second.id])
        clock.advance(50)
        assert (await state(store), (await queue(store)).lent) == (BUSY, 1)

        await finish(store, done(third))
        assert (await queue(store)).lent == 0
        assert await wakes_in(store) == 2.0
        clock.advance(2)
        assert names(await claim(store, 9)) == ["a/2"]

    @pytest.mark.parametrize("outcome", [CACHED, UNSENT], ids=["from cache", "dropped unvisited"])
    async def test_an_untouched_host_does_not_wait(
        self, store: FullStore, outcome: Outcome
    ) -> None:
        """D5, D7: a loan none of whose tasks was visited leaves next-ready alone."""
        await configure(store, delay=9.0)
        await add(store, "a/1", "a/2")
        (lease,) = await borrow(store, per_queue=1)
        await finish(store, verdict(lease, outcome))

        assert await state(store) == READY

    async def test_every_end_moves_next_ready(self, store: FullStore, clock: FakeClock) -> None:
        """D1: next-ready is the last end's, with that visit's delay."""
        await configure(store, delay=7.0)
        await add(store, "a/1", "a/2", "a/3")
        first, second = await borrow(store, per_queue=2)
        await finish(store, done(first))
        clock.advance(4)
        await finish(store, done(second))

        assert await wakes_in(store) == 7.0

    async def test_a_visit_of_a_loan_counts_as_begun_when_it_ends(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1, C7: the borrower chose its start, so where starts count the store takes the end."""
        await configure(store, delay=7.0, count_from="start")
        await add(store, "a/1", "a/2")
        (lease,) = await borrow(store, per_queue=1)
        clock.advance(20)
        await finish(store, done(lease))

        assert await wakes_in(store) == 7.0
        await steer(store, key("a"), Wake())
        assert await wakes_in(store) == 7.0

    async def test_links_of_a_lent_page_wait_for_the_end_of_the_loan(
        self, store: FullStore
    ) -> None:
        """H6: they are added at once, and leased with the queue."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        first, second = await borrow(store)
        await finish(store, done(first, links=[page("a/3")]))

        assert (await queue(store)).pending == 1
        assert await claim(store, 9) == []
        await finish(store, done(second))
        assert names(await claim(store, 9)) == ["a/3"]

    async def test_a_retry_is_not_leased_before_the_end_of_the_loan(self, store: FullStore) -> None:
        """C7: a lent task that is pending again waits for the end of the loan, as all others."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        first, second = await borrow(store)
        await store.release([first.id])

        assert await claim(store, 9) == []
        await finish(store, done(second))
        assert names(await claim(store, 9)) == ["a/1"]

    async def test_leases_of_a_loan_are_renewed_one_by_one(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H2: each has its own deadline, and the loan lasts as long as the longest."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        first, second = await borrow(store, lease_for=10.0)
        assert await store.extend([second.id], lease_for=50.0) == {second.id}
        clock.advance(10)

        assert await claim(store, 9) == []
        assert (await queue(store)).lent == 1
        assert await store.extend([first.id], lease_for=50.0) == set()

    # ---- crashes

    async def test_only_one_of_a_lost_loan_counts_a_crash(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H4, C7: one visit can have been under way; the others were not even begun."""
        await add(store, "a/1", "a/2", "a/3")
        await borrow(store, lease_for=5.0)
        clock.advance(5)

        assert await store.expire(limit=100) == 3
        records = [await record(store, name) for name in ("a/1", "a/2", "a/3")]
        assert [(view.attempts, view.crashes) for view in records] == [(1, 1), (0, 0), (0, 0)]
        assert {view.state for view in records} == {TaskState.PENDING}
        assert (await crawl(store)).outcomes.get("crashed") == 1

    async def test_as_many_as_its_slots_count_a_crash(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H4, C7: `max_in_flight` of them, in the order in which they expire."""
        await configure(store, delay=0.0, max_in_flight=2)
        await add(store, "a/1", "a/2", "a/3", "a/4")
        first, *_ = await borrow(store, lease_for=5.0)
        await store.extend([first.id], lease_for=8.0)
        clock.advance(8)
        await claim(store, 0)

        crashes = [(await record(store, f"a/{n}")).crashes for n in (1, 2, 3, 4)]
        assert crashes == [0, 1, 1, 0]

    async def test_those_already_counted_are_remembered(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H4, C7: of one loan, however many steps it takes to take it back."""
        await add(store, "a/1", "a/2", "a/3")
        await borrow(store, lease_for=5.0)
        clock.advance(5)
        for _ in range(3):
            assert await store.expire(limit=1) == 1

        assert (await crawl(store)).outcomes.get("crashed") == 1

    async def test_another_loan_counts_crashes_from_zero(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C7: the count ends with the loan."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        for _ in range(2):
            assert len(await borrow(store, lease_for=5.0)) == 2
            clock.advance(5)

        await store.expire(limit=100)
        assert (await record(store, "a/1")).crashes == 2
        assert (await record(store, "a/2")).crashes == 0

    async def test_what_goes_back_uncounted_is_refunded(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E3, H5: as if it were released; the crash stays charged."""
        await add(store, "a/1", "a/2", "a/3", cost=4)
        leases = await borrow(store, lease_for=5.0)
        clock.advance(5)
        await store.expire(limit=100)

        view = await queue(store)
        assert (view.spent, view.errors_in_row, view.in_flight) == (4, 1, 0)
        assert not any([(await finish(store, done(lease))).applied for lease in leases])

    async def test_the_end_of_a_lost_loan_is_a_visits_end(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D7: the queue waits from then on."""
        await configure(store, delay=9.0)
        await add(store, "a/1", "a/2")
        await borrow(store, lease_for=5.0)
        clock.advance(5)
        await store.expire(limit=100)

        assert await wakes_in(store) == 9.0

    # ---- what operators see and do

    async def test_a_claim_that_got_nothing_waits_for_the_deadline(self, store: FullStore) -> None:
        """C6: a lent queue cannot be served before."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        await borrow(store, per_queue=1, lease_for=30.0)

        assert (await ask(store, 9)).wake_in == 30.0

    @pytest.mark.parametrize("act", [Pause(), Retire()], ids=["paused", "retired"])
    async def test_an_operator_may_stop_a_lent_queue(
        self, store: FullStore, act: Pause | Retire
    ) -> None:
        """E7: what is out may end, and then nothing follows."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        (lease,) = await borrow(store, per_queue=1)
        await steer(store, key("a"), act)

        assert (await finish(store, done(lease))).applied
        assert await claim(store, 9) == []

    async def test_more_slots_do_not_open_it(self, store: FullStore) -> None:
        """E7: nor does any other change of its settings."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        await borrow(store, per_queue=1)
        await steer(store, key("a"), Set({"max_in_flight": 5, "precedence": -1}))

        assert await state(store) == BUSY
        assert await claim(store, 9) == []

    async def test_a_run_does_not_end_while_a_queue_is_lent(self, store: FullStore) -> None:
        """I2."""
        await add(store, "a/1", "a/2")
        leases = await borrow(store)
        assert (await ask(store)).status is CrawlStatus.RUNNING

        await store.finish([done(lease) for lease in leases])
        assert (await ask(store)).status is CrawlStatus.FINISHED

    async def test_a_cancelled_crawl_has_no_loans(self, store: FullStore) -> None:
        """I3."""
        await add(store, "a/1", "a/2")
        await borrow(store)
        await store.set_status(CRAWL, CrawlStatus.CANCELLED)

        view = await queue(store)
        assert (view.in_flight, view.lent, view.dropped) == (0, 0, 2)

    async def test_an_export_has_no_loans(self, store: FullStore, clock: FakeClock) -> None:
        """I5, H5: its tasks read as released now."""
        await configure(store, delay=3.0)
        await add(store, "a/1", "a/2")
        await borrow(store)
        await restore(store, await export(store))

        view = await store.queue(COPY, key("a"))
        assert (view.pending, view.in_flight, view.lent, view.spent) == (2, 0, 0, 0)
        assert view.wakes_in == 3.0
        clock.advance(3)
        assert names(await claim(store, 1, crawl=COPY)) == ["a/1"]

    async def test_an_export_counts_a_lent_visit_from_its_end(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """I5, D1: as a release would, also where starts count."""
        await configure(store, delay=7.0, count_from="start")
        await add(store, "a/1", "a/2")
        await borrow(store)
        clock.advance(20)
        await restore(store, await export(store))

        assert (await store.queue(COPY, key("a"))).wakes_in == 7.0
        await store.steer(COPY, key("a"), Wake())
        assert (await store.queue(COPY, key("a"))).wakes_in == 7.0
