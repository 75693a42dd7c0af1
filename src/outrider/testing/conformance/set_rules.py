"""Conformance of `set`: it retires, revives or reschedules queues at once (E5)."""

from __future__ import annotations

from outrider.core.queue_action import Retire, Revive, Set
from outrider.core.states import QueueState
from outrider.store.protocol import FullStore
from outrider.testing.builders import done
from outrider.testing.conformance.steps import (
    INACTIVE,
    OVER_BUDGET,
    READY,
    add,
    claim,
    configure,
    drained,
    finish,
    key,
    names,
    one,
    queue,
    state,
    steer,
    visit,
)


class SettingConformance:
    """Budgets changed while a crawl runs."""

    async def test_a_balance_of_zero_retires_at_once(self, store: FullStore) -> None:
        """E5: `set` acts at once."""
        await add(store, "a/1")

        await steer(store, key("a"), Set({"balance": 0}))

        assert await state(store) == OVER_BUDGET

    async def test_a_total_at_the_spending_retires_at_once(self, store: FullStore) -> None:
        """E5: also while a visit is in flight, which continues."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        lease = await one(store)

        await steer(store, key("a"), Set({"total_budget": 1}))

        assert await state(store) == OVER_BUDGET
        assert (await finish(store, done(lease))).applied
        assert await claim(store) == []

    async def test_fewer_slots_hold_at_once(self, store: FullStore) -> None:
        """D2, E5: a ready queue with as many visits in flight as it may is ready no longer."""
        await configure(store, delay=0.0, max_in_flight=2)
        await add(store, "a/1", "a/2")
        await one(store)

        await steer(store, key("a"), Set({"max_in_flight": 1}))

        assert await claim(store) == []

    async def test_a_pause_may_be_set(self, store: FullStore) -> None:
        """A4: an override like any other, either way."""
        await add(store, "a/1")

        await steer(store, key("a"), Set({"paused": True}))
        assert await claim(store) == []
        await steer(store, key("a"), Set({"paused": False}))

        assert names(await claim(store)) == ["a/1"]

    async def test_a_retirement_may_be_set(self, store: FullStore) -> None:
        """A4: likewise; when it is unset the queue is revived, if that was the reason."""
        await add(store, "a/1")

        await steer(store, key("a"), Set({"retired": True}))
        assert await state(store) == (QueueState.RETIRED, "operator")
        await steer(store, key("a"), Set({"retired": None}))

        assert names(await claim(store)) == ["a/1"]

    async def test_a_larger_budget_revives_the_queue(self, store: FullStore) -> None:
        """E5: a queue retired by its budget and no longer over it is revived at once."""
        await configure(store, total_budget=1, delay=0.0)
        await add(store, "a/1", "a/2", "a/3")
        await visit(store)

        await steer(store, key("a"), Set({"total_budget": 1}))
        assert await state(store) == OVER_BUDGET
        await steer(store, key("a"), Set({"total_budget": 2}))

        assert await state(store) == READY
        assert names(await claim(store)) == ["a/2"]

    async def test_a_larger_budget_ends_no_other_retirement(self, store: FullStore) -> None:
        """E5: other reasons return only by `revive`, even if over the budget, too."""
        await add(store, "a/1")
        await steer(store, key("a"), Retire())

        await steer(store, key("a"), Set({"total_budget": 0}))
        assert await state(store) == (QueueState.RETIRED, "operator")
        await steer(store, key("a"), Set({"total_budget": 99}))

        assert await state(store) == (QueueState.RETIRED, "operator")

    async def test_a_ready_queue_is_rescheduled(self, store: FullStore) -> None:
        """E5: with a smaller balance its session may be over; the others come first."""
        await configure(store, balance=9, delay=0.0)
        await add(store, "a/1", "a/2", "a/3", priority=-1.0)
        await add(store, "b/1")
        await visit(store)
        await visit(store)

        await steer(store, key("a"), Set({"balance": 2}))

        assert await state(store) == INACTIVE
        assert names(await claim(store)) == ["b/1"]

    async def test_a_ready_queue_with_balance_left_stays_ready(self, store: FullStore) -> None:
        """E5: and keeps what it spent."""
        await configure(store, balance=9, delay=0.0)
        await add(store, "a/1", "a/2")
        await visit(store)

        await steer(store, key("a"), Set({"balance": 2}))

        assert await state(store) == READY
        assert (await queue(store)).balance == 1

    async def test_an_inactive_queue_goes_to_the_back(self, store: FullStore) -> None:
        """E5: with hold_queues."""
        await configure(store, hold_queues=True, delay=0.0)
        await add(store, "a/1", "b/1", "c/1")

        await steer(store, key("a"), Set({"balance": 50}))

        assert await drained(store) == ["b/1", "c/1", "a/1"]

    async def test_setting_an_unchanged_value_reschedules(self, store: FullStore) -> None:
        """E5: by key or suffix, whether or not anything changes."""
        await configure(store, hold_queues=True, delay=0.0, balance=9)
        await add(store, "a/1", "b/1")

        await steer(store, key("a"), Set({"balance": 9}))

        assert await drained(store) == ["b/1", "a/1"]

    async def test_an_inactive_queue_opens_a_session(self, store: FullStore) -> None:
        """E5: without hold_queues."""
        await configure(store, balance=1, delay=0.0)
        await add(store, "a/1", "a/2", "b/1")
        await visit(store)
        assert await state(store) == INACTIVE

        await steer(store, key("a"), Set({"balance": 5}))

        assert await state(store) == READY
        assert (await queue(store)).balance == 5

    async def test_holding_queues_spares_those_that_are_ready(self, store: FullStore) -> None:
        """E5: a ready queue's session is open, so hold_queues does not touch it."""
        await add(store, "a/1")

        await steer(store, key("a"), Set({"hold_queues": True}))

        assert await state(store) == READY

    async def test_letting_go_of_a_held_queue_opens_its_session(self, store: FullStore) -> None:
        """E5: hold_queues = false: it opens a session, before those still held."""
        await configure(store, hold_queues=True, delay=0.0)
        await add(store, "a/1", "b/1")

        await steer(store, key("b"), Set({"hold_queues": False}))

        assert await state(store, "b") == READY
        assert await drained(store) == ["b/1", "a/1"]

    async def test_a_crawl_wide_change_returns_all(self, store: FullStore) -> None:
        """E5: every budget-retired queue, not the others."""
        await configure(store, total_budget=1, delay=0.0)
        await add(store, "a/1", "a/2", "b/1", "b/2", "c/1", "c/2")
        await drained(store)
        await steer(store, key("c"), Retire())

        await configure(store, total_budget=5, delay=0.0)
        await steer(store, "", Set({}))

        assert [await state(store, host) for host in "ab"] == [READY, READY]
        assert await state(store, "c") == (QueueState.RETIRED, "operator")
        assert names(await claim(store, 9)) == ["a/2", "b/2"]

    async def test_a_crawl_wide_change_retires_all_that_are_over_it(self, store: FullStore) -> None:
        """E5: at once, in bounded steps."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2", "b/1", "b/2", "c/1")
        await store.finish([done(lease) for lease in await claim(store, 2)])

        await configure(store, total_budget=1, delay=0.0)
        await steer(store, "", Set({}))

        assert [(await state(store, host))[0] for host in "abc"] == [
            QueueState.RETIRED,
            QueueState.RETIRED,
            QueueState.READY,
        ]

    async def test_a_crawl_wide_change_moves_only_those_it_changes(self, store: FullStore) -> None:
        """E5: a queue with its own settings keeps its place on the inactive list."""
        await configure(store, hold_queues=True, delay=0.0, keys={key("b"): {"balance": 7}})
        await add(store, "a/1", "b/1")

        await configure(
            store, hold_queues=True, delay=0.0, keys={key("b"): {"balance": 7}}, balance=9
        )
        await steer(store, "", Set({}))

        assert await drained(store) == ["b/1", "a/1"]

    async def test_a_revived_queue_still_over_its_budget_retires_again(
        self, store: FullStore
    ) -> None:
        """E1: revive reschedules at once, with the same result."""
        await configure(store, total_budget=1, delay=0.0)
        await add(store, "a/1", "a/2")
        await visit(store)

        await steer(store, key("a"), Revive())

        assert await state(store) == OVER_BUDGET
