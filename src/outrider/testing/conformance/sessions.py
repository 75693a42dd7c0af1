"""Conformance of sessions and focus: ready and inactive lists, rescheduling (C9, E1, E2)."""

from __future__ import annotations

from outrider.core.outcome import Failed
from outrider.core.queue_action import Pause, Resume, Set, Snooze, Wake
from outrider.core.states import TaskState
from outrider.core.task import ACQUISITION
from outrider.store.protocol import FullStore, PriorityUpdate
from outrider.testing.builders import OUTCOMES, done
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    INACTIVE,
    NO_DELAY,
    OVER_BUDGET,
    PAUSED,
    READY,
    add,
    ask,
    claim,
    configure,
    drained,
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
)


class SessionsConformance:
    """Sessions and the inactive list."""

    async def test_a_new_queue_opens_its_session_at_once(self, store: FullStore) -> None:
        """E2: without hold_queues priority rules across all hosts."""
        await configure(store, balance=5)
        await add(store, "a/1", "b/1")

        assert (await state(store, "a"), await state(store, "b")) == (READY, READY)
        assert (await queue(store)).balance == 5

    async def test_a_spent_session_goes_to_the_back(self, store: FullStore) -> None:
        """E1, E2: it is over when its spending reaches the balance, and others come first."""
        await configure(store, balance=2, delay=0.0)
        await add(store, "a/1", "a/2", "a/3", priority=-1.0)
        await add(store, "b/1", "b/2")

        await visit(store)
        assert await state(store) == READY
        await visit(store)
        assert await state(store) == INACTIVE
        assert (await queue(store)).balance == 0

        assert await drained(store) == ["b/1", "b/2", "a/3"]

    async def test_a_spent_session_ends_when_the_queue_could_be_served(
        self, store: FullStore
    ) -> None:
        """E1: a dear task may overspend the session it starts within."""
        await configure(store, balance=2, delay=0.0)
        await store.add([page("a/1"), page("a/2", cost=9), page("a/3"), page("b/1", priority=1)])

        await visit(store)
        assert (await visit(store)).about.cost == 9
        assert (await queue(store)).spent == 10
        assert await state(store) == INACTIVE

    async def test_a_balance_of_one_rotates(self, store: FullStore) -> None:
        """E9: every host one visit in turn, whatever the priorities."""
        await configure(store, balance=1, delay=0.0)
        await add(store, "a/1", "a/2", "a/3", priority=-9.0)
        await add(store, "b/1", "b/2", priority=9.0)
        await add(store, "c/1", "c/2", "c/3")

        assert await drained(store) == ["a/1", "c/1", "b/1", "a/2", "c/2", "b/2", "a/3", "c/3"]

    async def test_alone_a_spent_queue_is_activated_at_once(self, store: FullStore) -> None:
        """E2: when no other queue is ready, within one claim too."""
        await configure(store, balance=1, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3")

        assert names(await claim(store, 3)) == ["a/1", "a/2", "a/3"]

    async def test_held_queues_start_inactive(self, store: FullStore) -> None:
        """E2: `hold_queues`: site-first, in order of arrival, whatever the priorities."""
        await configure(store, hold_queues=True, delay=0.0)
        await add(store, "b/1", "b/2", priority=9.0)
        await add(store, "a/1", "a/2", priority=-9.0)
        assert (await state(store, "b"), await state(store, "a")) == (INACTIVE, INACTIVE)

        assert await drained(store) == ["b/1", "b/2", "a/1", "a/2"]

    async def test_activation_opens_a_session(self, store: FullStore) -> None:
        """E2: with the whole balance to spend."""
        await configure(store, hold_queues=True, balance=3, **NO_DELAY)
        await add(store, "a/1", "a/2")
        assert (await queue(store)).balance == 0

        await one(store)

        assert (await queue(store)).balance == 2
        assert await state(store) == READY

    async def test_a_snoozed_queue_makes_way_for_the_next(self, store: FullStore) -> None:
        """E2: no ready queue is left, so the next head is activated."""
        await configure(store, hold_queues=True)
        await add(store, "a/1", "a/2", "b/1", "c/1")

        assert names(await claim(store, 2)) == ["a/1", "b/1"]
        assert await state(store, "c") == INACTIVE

    async def test_a_woken_queue_keeps_its_session(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E1: its session is open, so it is ready at once and goes before the inactive ones."""
        await configure(store, hold_queues=True)
        await add(store, "a/1", "a/2", "b/1", "b/2", "c/1")
        await store.finish([done(lease) for lease in await claim(store, 2)])
        clock.advance(1)

        assert names(await claim(store, 2)) == ["a/2", "b/2"]
        assert await state(store, "c") == INACTIVE

    async def test_better_inactive_queues_do_not_wait_for_worse_ready_ones(
        self, store: FullStore
    ) -> None:
        """E2: a head is activated when no ready queue of its precedence or better exists."""
        await configure(store, hold_queues=True, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await one(store)
        await add(store, "b/1", "c/1")

        await steer(store, key("c"), Set({"precedence": -1}))

        assert names(await claim(store, 3)) == ["c/1", "a/2", "b/1"]

    async def test_ready_queues_of_better_precedence_go_first(self, store: FullStore) -> None:
        """E2: a worse head is not activated while they are ready."""
        await configure(store, hold_queues=True, **NO_DELAY)
        await add(store, "b/1", "a/1", "a/2")
        await steer(store, key("b"), Set({"precedence": 1}))

        assert names(await claim(store, 2)) == ["a/1", "a/2"]
        assert await state(store, "b") == INACTIVE

    async def test_an_inactive_queue_keeps_its_place(self, store: FullStore) -> None:
        """E1: a listed queue keeps its place while it could be served, whatever is added."""
        await configure(store, hold_queues=True, delay=0.0)
        await add(store, "a/1", "b/1")

        await add(store, "a/2")
        await add(store, "a/3", priority=-9.0)

        assert await drained(store) == ["a/3", "a/1", "a/2", "b/1"]

    async def test_an_inactive_queue_that_cannot_be_served_loses_its_place(
        self, store: FullStore
    ) -> None:
        """E1: every inactive queue could be served now; a resumed one goes to the back."""
        await configure(store, hold_queues=True, delay=0.0)
        await add(store, "a/1", "b/1")

        await steer(store, key("a"), Pause())
        await steer(store, key("a"), Resume())

        assert await drained(store) == ["b/1", "a/1"]

    async def test_a_snoozed_inactive_queue_is_rescheduled_when_it_wakes(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E1: by the next claim, to the back."""
        await configure(store, hold_queues=True, delay=0.0)
        await add(store, "a/1", "b/1", "c/1")
        await steer(store, key("a"), Snooze(5.0))
        clock.advance(5)

        assert await drained(store) == ["b/1", "c/1", "a/1"]

    async def test_queues_are_woken_in_order_of_their_time(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E1: by (max(next-ready, first due), queue number), however late the claim comes."""
        await configure(store, hold_queues=True, delay=0.0)
        delays = {"a/1": 30.0, "b/1": 10.0, "c/1": 20.0, "d/1": 10.0}
        await store.add([page(name, delay=delay) for name, delay in delays.items()])
        await steer(store, key("d"), Snooze(25.0))
        clock.advance(60)

        assert await drained(store) == ["b/1", "c/1", "d/1", "a/1"]

    async def test_equal_times_are_woken_in_order_of_the_queues(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E1: the queue's number decides."""
        await configure(store, hold_queues=True, delay=0.0)
        await add(store, "b/1", "a/1", "c/1", delay=10.0)
        clock.advance(10)

        assert await drained(store) == ["b/1", "a/1", "c/1"]

    async def test_a_queue_added_to_is_rescheduled_before_those_that_wake(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E1: an add reschedules at once, other events wait for the claim."""
        await configure(store, hold_queues=True, delay=0.0)
        await add(store, "a/1", delay=10.0)
        clock.advance(60)
        await add(store, "b/1")

        assert await drained(store) == ["b/1", "a/1"]

    async def test_an_add_reschedules_link_by_link(self, store: FullStore) -> None:
        """E1: in batch order, so the queue of the first task is first."""
        await configure(store, hold_queues=True, delay=0.0)
        await store.add([page("b/2", delay=60.0), page("a/1"), page("b/1")])

        assert await drained(store) == ["a/1", "b/1"]

    async def test_an_expiry_reschedules_at_once(self, store: FullStore, clock: FakeClock) -> None:
        """E1: to the back of the list, before queues that are added later."""
        await configure(store, hold_queues=True, balance=1, delay=0.0)
        await add(store, "a/1")
        await one(store)
        clock.advance(60)
        await store.expire(limit=9)
        await add(store, "b/1")

        assert await drained(store) == ["a/1", "b/1"]

    async def test_a_release_reschedules_at_once(self, store: FullStore) -> None:
        """E1: likewise; here its session, refund included, is over."""
        await configure(store, hold_queues=True, balance=1, delay=0.0, max_in_flight=2)
        await store.add([page("a/1"), page("a/2", cost=2), page("a/3")])
        cheap, _ = await claim(store, 2)
        await store.release([cheap.id])
        await add(store, "b/1")

        assert await state(store) == INACTIVE
        assert names(await claim(store)) == ["a/1"]

    async def test_a_death_may_end_a_session(self, store: FullStore, clock: FakeClock) -> None:
        """E2, H4: nothing is left, so the next task opens a new one."""
        await configure(store, balance=5, delay=0.0, max_crashes=1)
        await add(store, "a/1")
        await one(store)
        clock.advance(60)
        await store.expire(limit=9)
        assert (await queue(store)).balance == 0
        await add(store, "a/2")

        assert (await queue(store)).balance == 5

    async def test_an_activated_queue_may_wait_for_its_lane(self, store: FullStore) -> None:
        """E2, C4: its session is open, though a worse one is served, of the other lane."""
        await configure(store, hold_queues=True, balance=5, delay=0.0, max_in_flight=2)
        await add(store, "a/1", "a/2", "a/3")
        await steer(store, key("a"), Set({"precedence": 1}))
        await one(store)
        await add(store, "b/1", lane=ACQUISITION)

        assert names(await claim(store)) == ["a/2"]
        assert await state(store, "b") == READY
        assert (await queue(store, "b")).balance == 5

    async def test_emptiness_ends_a_session(self, store: FullStore) -> None:
        """E2: nothing pending and nothing leased: the next task opens a new one."""
        await configure(store, balance=5, delay=0.0)
        await add(store, "a/1", "a/2")
        await drained(store)
        assert (await queue(store)).balance == 0

        await add(store, "a/3")

        assert (await queue(store)).balance == 5

    async def test_an_emptied_queue_is_held_again(self, store: FullStore) -> None:
        """E2: with hold_queues it starts inactive once more, behind the others."""
        await configure(store, hold_queues=True, delay=0.0)
        await add(store, "a/1", "b/1", "b/2")
        await visit(store)

        await add(store, "a/2")

        assert await drained(store) == ["b/1", "b/2", "a/2"]

    async def test_a_visit_in_flight_keeps_the_session(self, store: FullStore) -> None:
        """E2: a queue with a visit in flight gets no new session; its session continues."""
        await configure(store, balance=3, delay=0.0)
        await add(store, "a/1")
        lease = await one(store)
        await add(store, "a/2", "a/3", "a/4")

        await finish(store, done(lease))

        assert (await queue(store)).balance == 2

    async def test_a_pages_links_keep_the_session(self, store: FullStore) -> None:
        """E2, H6: links are added first, then the session is looked at."""
        await configure(store, hold_queues=True, balance=3, delay=0.0)
        await add(store, "a/1", "b/1")
        lease = await one(store)

        await finish(store, done(lease, links=[page("a/2")]))

        assert (await queue(store)).balance == 2
        assert await drained(store) == ["a/2", "b/1"]

    async def test_dropping_the_last_task_does_not_refill(self, store: FullStore) -> None:
        """E2: emptied by a visit dropped, the session is over all the same."""
        await configure(store, hold_queues=True, delay=0.0)
        await add(store, "a/1", "b/1", "b/2")
        await visit(store, OUTCOMES["dropped"])
        await add(store, "a/2")

        assert await drained(store) == ["b/1", "b/2", "a/2"]

    async def test_a_woken_queue_is_rescheduled_by_the_next_claim(self, store: FullStore) -> None:
        """E1: `wake` does not reschedule: the next claim does, behind those listed."""
        await configure(store, hold_queues=True, delay=0.0)
        await add(store, "a/1", "b/1")
        await steer(store, key("a"), Snooze(60.0))
        await steer(store, key("a"), Wake())
        await add(store, "c/1")

        assert await drained(store) == ["b/1", "c/1", "a/1"]

    async def test_a_session_spans_a_retry(self, store: FullStore, clock: FakeClock) -> None:
        """E2: a delayed retry is pending, so the session continues."""
        await configure(store, balance=5, delay=0.0)
        await add(store, "a/1")
        await visit(store, Failed("HTTP 500"))
        clock.advance(60)

        assert (await queue(store)).balance == 4
        assert (await ask(store)).leases[0].attempt == 2
        assert (await record(store, "a/1")).state is TaskState.LEASED


async def focused(store: FullStore, balance: int = 5, total_budget: int = -1) -> None:
    """Queues are held, and priorities below -5 open them."""
    await configure(
        store,
        hold_queues=True,
        balance=balance,
        total_budget=total_budget,
        opens_below=-5.0,
        delay=0.0,
    )


class FocusConformance:
    """Focus."""

    async def test_a_focus_task_opens_its_queue(self, store: FullStore) -> None:
        """C9: it is ready at once, while others wait for their turn."""
        await focused(store)
        await add(store, "a/1")
        await add(store, "b/1", priority=-6.0)

        assert (await state(store, "a"), await state(store, "b")) == (INACTIVE, READY)
        assert (await queue(store, "b")).balance == 5

    async def test_a_focus_task_opens_a_queue_that_waits(self, store: FullStore) -> None:
        """C9: it is no longer on the inactive list."""
        await focused(store)
        await add(store, "a/1", "b/1")
        await add(store, "b/2", priority=-6.0)

        assert (await state(store, "a"), await state(store, "b")) == (INACTIVE, READY)
        assert names(await claim(store)) == ["b/2"]

    async def test_the_bound_itself_opens_nothing(self, store: FullStore) -> None:
        """C9: below it, not at it."""
        await focused(store)
        await add(store, "a/1", priority=-5.0)

        assert await state(store) == INACTIVE

    async def test_forced_alone_opens_nothing(self, store: FullStore) -> None:
        """C9: it only orders within its queue."""
        await focused(store)
        await add(store, "a/1", precedence=0)

        assert await state(store) == INACTIVE

    async def test_a_focus_task_opens_a_new_session(self, store: FullStore) -> None:
        """E2: when the old one is spent; the rest waits."""
        await focused(store, balance=1)
        await add(store, "a/1", "a/2", priority=-6.0)
        await add(store, "a/3", "b/1")

        await visit(store)
        assert await state(store) == READY
        await visit(store)
        assert await state(store) == INACTIVE
        assert await drained(store) == ["b/1", "a/3"]

    async def test_a_raised_task_opens_its_queue(self, store: FullStore) -> None:
        """B3, F10, C8: whichever way it came below the bound."""
        await focused(store)
        await add(store, "a/1", "b/1", "c/1", "d/1")

        await add(store, "b/1", priority=-6.0, known="raise")
        await add(store, "c/1", priority=-7.0, known="gather")
        number = (await record(store, "d/1")).number
        await store.update_priorities(CRAWL, [PriorityUpdate(number, 0.0, -8.0)])

        assert [await state(store, host) for host in "abcd"] == [INACTIVE, READY, READY, READY]
        assert names(await claim(store, 3)) == ["d/1", "c/1", "b/1"]

    async def test_time_alone_opens_no_queue_that_waits(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C9, E1: a listed queue keeps its place; the next added task opens its session."""
        await focused(store)
        await add(store, "a/1")
        await add(store, "a/2", priority=-6.0, delay=10.0)
        await add(store, "b/1", "b/2", priority=-7.0)
        clock.advance(10)

        assert names(await claim(store)) == ["b/1"]
        assert await state(store, "a") == INACTIVE
        await add(store, "a/3")
        assert await state(store, "a") == READY

    async def test_a_move_opens_the_queue_of_a_focus_task_that_became_due(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C9: whichever task moved, if the first due one is a focus task."""
        await focused(store)
        await add(store, "a/1", "b/1")
        await add(store, "a/2", "b/2", priority=-6.0, delay=10.0)
        clock.advance(10)

        await add(store, "a/1", priority=-1.0, known="raise")
        number = (await record(store, "b/1")).number
        await store.update_priorities(CRAWL, [PriorityUpdate(number, 0.0, 9.0)])

        assert [await state(store, host) for host in "ab"] == [READY, READY]

    async def test_focus_pays_like_everybody(self, store: FullStore) -> None:
        """E1: a spent budget retires; E7: a paused queue stays paused."""
        await focused(store, total_budget=1)
        await add(store, "a/1", "a/2", "b/1", priority=-6.0)
        await visit(store)
        await steer(store, key("b"), Pause())

        assert (await state(store, "a"), await state(store, "b")) == (OVER_BUDGET, PAUSED)

    async def test_without_a_bound_nothing_opens(self, store: FullStore) -> None:
        """C9: the mode is off unless it is set."""
        await configure(store, hold_queues=True)
        await add(store, "a/1", priority=-1e9)

        assert await state(store) == INACTIVE
