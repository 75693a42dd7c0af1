"""Conformance of budgets: charges, refunds, penalties, totals and quotas (E1, E3, E6)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Blocked, Done, Failed
from outrider.core.queue_action import Retire, Revive
from outrider.core.states import QueueState
from outrider.core.task import Lease
from outrider.store.protocol import FullStore
from outrider.testing.builders import OUTCOMES, failed, verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    INACTIVE,
    NO_DELAY,
    OVER_BUDGET,
    READY,
    add,
    claim,
    configure,
    crawl,
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

CHARGED = ("done", "failed", "blocked")
REFUNDED = ("throttled", "unreachable", "dropped", "cached")


async def given_back(store: FullStore, lease: Lease, how: str) -> None:
    """End a visit in one of the ways that refund it."""
    if how == "released":
        await store.release([lease.id])
    else:
        await finish(store, verdict(lease, OUTCOMES[how]))


class BudgetConformance:
    """Spending."""

    async def test_a_claim_charges_the_cost(self, store: FullStore) -> None:
        """E3: to the session and to the total, at the lease."""
        await configure(store, balance=10, total_budget=20, **NO_DELAY)
        await store.add([page("a/1", cost=3), page("a/2", cost=4), page("a/3")])
        await claim(store, 2)

        view = await queue(store)

        assert (view.balance, view.grant) == (3, 10)
        assert (view.spent, view.total_budget) == (7, 20)
        assert (view.last_cost, view.average_cost) == (4, 3.5)

    async def test_a_spent_total_retires(self, store: FullStore) -> None:
        """E1: spent ≥ total: retired, its tasks kept and held."""
        await configure(store, total_budget=2, delay=0.0)
        await add(store, "a/1", "a/2", "a/3", "a/4")

        assert await drained(store) == ["a/1", "a/2"]

        assert await state(store) == OVER_BUDGET
        view = await crawl(store)
        assert (view.pending, view.held) == (2, 2)

    async def test_unit_costs_never_overspend_a_total(self, store: FullStore) -> None:
        """E3: checked after every lease, with many slots too."""
        await configure(store, total_budget=3, **NO_DELAY)
        await add(store, *(f"a/{n}" for n in range(9)))

        assert len(await claim(store, 9)) == 3
        assert (await queue(store)).spent == 3

    async def test_a_dear_task_overspends_by_less_than_its_cost(self, store: FullStore) -> None:
        """E1: a total is checked when the queue is rescheduled, too."""
        await configure(store, total_budget=3, delay=0.0)
        await add(store, "a/1", "a/2", "a/3", cost=2)

        assert await drained(store) == ["a/1", "a/2"]
        assert (await queue(store)).spent == 4

    @pytest.mark.parametrize("nothing", [{"total_budget": 0}, {"balance": 0}])
    async def test_a_budget_of_nothing_retires_at_once(
        self, store: FullStore, nothing: dict[str, int]
    ) -> None:
        """E1: with a total of 0, or a balance of 0, no task is leased."""
        await configure(store, keys={key("a"): nothing})
        await add(store, "a/1")

        assert await state(store) == OVER_BUDGET
        assert await claim(store) == []

    async def test_a_total_of_minus_one_is_none(self, store: FullStore) -> None:
        """E1: the default: no limit."""
        await configure(store, total_budget=-1, balance=2, delay=0.0)
        await add(store, *(f"a/{n}" for n in range(9)))

        assert len(await drained(store)) == 9

    async def test_a_free_task_spends_nothing(self, store: FullStore) -> None:
        """E4: a cost of 0 never ends a session."""
        await configure(store, balance=1, delay=0.0)
        await add(store, "a/1", "a/2", "a/3", cost=0, priority=-1.0)
        await add(store, "b/1")

        assert await drained(store) == ["a/1", "a/2", "a/3", "b/1"]

    async def test_a_queue_that_empties_over_its_total_retires_with_the_next_task(
        self, store: FullStore
    ) -> None:
        """E1: checked when it could be served, not before."""
        await configure(store, total_budget=1, delay=0.0)
        await add(store, "a/1")
        await visit(store)
        assert (await state(store))[0] is QueueState.EMPTY

        await add(store, "a/2")

        assert await state(store) == OVER_BUDGET

    async def test_a_retired_queue_still_receives(self, store: FullStore) -> None:
        """E5: and no task of it is leased."""
        await configure(store, total_budget=1, delay=0.0)
        await add(store, "a/1", "a/2")
        await visit(store)

        (answer,) = await add(store, "a/3")

        assert answer.added
        assert await claim(store) == []
        assert (await crawl(store)).held == 2

    @pytest.mark.parametrize("outcome", CHARGED)
    async def test_an_attempt_that_counts_stays_charged(
        self, store: FullStore, outcome: str
    ) -> None:
        """E3: done, failed and blocked visits."""
        await configure(store, balance=10, delay=0.0)
        await add(store, "a/1", "a/2", cost=3)

        await visit(store, OUTCOMES[outcome])

        view = await queue(store)
        assert (view.spent, view.balance) == (3, 7)
        assert (await record(store, "a/1")).attempts == 1

    async def test_a_crash_stays_charged(self, store: FullStore, clock: FakeClock) -> None:
        """E3, H4: it counts as an attempt."""
        await configure(store, balance=10)
        await add(store, "a/1", "a/2", cost=3)
        await one(store)
        clock.advance(60)
        await store.expire(limit=9)

        view = await queue(store)
        assert (view.spent, view.balance) == (3, 7)

    @pytest.mark.parametrize("how", [*REFUNDED, "released"])
    async def test_an_attempt_that_does_not_count_is_refunded(
        self, store: FullStore, how: str
    ) -> None:
        """E3: released, throttled, unreachable, dropped and from-cache visits."""
        await configure(store, balance=10, delay=0.0)
        await add(store, "a/1", "a/2", cost=3)

        await given_back(store, await one(store), how)

        view = await queue(store)
        assert (view.spent, view.balance) == (0, 10)
        assert (await record(store, "a/1")).attempts == 0

    @pytest.mark.parametrize("how", [*REFUNDED, "released"])
    async def test_a_refund_revives_a_queue_retired_by_its_budget(
        self, store: FullStore, how: str
    ) -> None:
        """E3: no longer over its total it returns, whatever refunded it."""
        await configure(store, total_budget=1, delay=0.0, max_in_flight=2)
        await add(store, "a/1", "a/2")
        lease = await one(store)
        assert await state(store) == OVER_BUDGET

        await given_back(store, lease, how)

        assert (await state(store))[0] in (QueueState.READY, QueueState.SNOOZED)
        assert (await crawl(store)).held == 0

    async def test_a_refund_that_is_too_small_revives_no_queue(self, store: FullStore) -> None:
        """E3: still over its total it stays."""
        await configure(store, total_budget=2, **NO_DELAY)
        await store.add([page("a/1"), page("a/2", cost=5), page("a/3")])
        small, _ = await claim(store, 9)

        await store.release([small.id])

        assert await state(store) == OVER_BUDGET
        assert [change.name for change in await store.events_since(CRAWL)] == ["queue-retired"]

    async def test_a_refund_ends_no_other_retirement(self, store: FullStore) -> None:
        """E5: other reasons return only by `revive`."""
        await configure(store, total_budget=1, delay=0.0, max_in_flight=2)
        await add(store, "a/1", "a/2")
        lease = await one(store)
        await steer(store, key("a"), Retire())

        await store.release([lease.id])

        assert await state(store) == (QueueState.RETIRED, "operator")

    async def test_a_refund_goes_to_the_session_now_open(self, store: FullStore) -> None:
        """E3: a later session gets it, and never more than it had."""
        await configure(store, balance=2, **NO_DELAY)
        await store.add([page("a/1", cost=2), page("a/2"), page("a/3")])
        old, new = await claim(store, 2)
        assert (await queue(store)).balance == 1

        await store.release([old.id])

        assert (await queue(store)).balance == 2
        assert (await queue(store)).spent == new.about.cost

    async def test_a_refund_without_a_session_goes_to_the_total_only(
        self, store: FullStore
    ) -> None:
        """E3: an inactive queue has no session to refund."""
        await configure(store, balance=1, **NO_DELAY)
        await add(store, "a/1", "a/2", "b/1")
        lease = await one(store)
        assert await state(store) == INACTIVE

        await store.release([lease.id])

        assert ((await queue(store)).spent, (await queue(store)).balance) == (0, 0)
        assert await state(store) == INACTIVE

    async def test_refunds_count_when_a_session_is_checked(self, store: FullStore) -> None:
        """E2: spending, refunds included: a released visit is a visit to come."""
        await configure(store, balance=2, delay=0.0)
        await add(store, "a/1", "a/2", "a/3", "b/1")
        await visit(store)
        await store.release([(await one(store)).id])  # b/1, then a/2
        for _ in range(2):
            await store.release([(await one(store)).id])

        assert await state(store) == READY

    @pytest.mark.parametrize("outcome", [Failed("HTTP 500"), Blocked("challenge")])
    async def test_a_failure_costs_a_penalty(
        self, store: FullStore, outcome: Failed | Blocked
    ) -> None:
        """E3: `error_penalty`, to session and total."""
        await configure(store, balance=10, error_penalty=4, delay=0.0)
        await add(store, "a/1", "a/2")

        await visit(store, outcome)

        assert ((await queue(store)).spent, (await queue(store)).balance) == (5, 5)

    async def test_nothing_else_costs_a_penalty(self, store: FullStore) -> None:
        """E3: only failures do."""
        await configure(store, error_penalty=4, delay=0.0)
        await add(store, "a/1", "b/1", "c/1", "d/1")
        for outcome in ("done", "throttled", "unreachable", "dropped"):
            await visit(store, OUTCOMES[outcome])

        assert [(await queue(store, host)).spent for host in "abcd"] == [1, 0, 0, 0]

    async def test_a_penalty_may_end_session_and_budget(self, store: FullStore) -> None:
        """E1, E3: it counts like any spending when the queue is rescheduled."""
        await configure(store, balance=3, total_budget=6, error_penalty=2, delay=0.0)
        await add(store, "a/1", "a/2", "a/3", "b/1")

        await visit(store, Failed("HTTP 500"))
        assert await state(store) == INACTIVE
        await visit(store)
        await visit(store, Failed("HTTP 500"))
        assert await state(store) == OVER_BUDGET

    async def test_an_inactive_queue_over_its_total_retires_when_activated(
        self, store: FullStore
    ) -> None:
        """E1, E2: it stood while a penalty came; the activation yields a retirement."""
        await configure(store, balance=1, total_budget=2, error_penalty=5, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await add(store, "b/1", priority=9.0)
        lease = await one(store)
        await finish(store, failed(lease))
        assert await state(store) == INACTIVE

        assert names(await claim(store, 9)) == ["b/1"]
        assert await state(store) == OVER_BUDGET

    async def test_a_quota_of_visits_retires(self, store: FullStore) -> None:
        """E6: `max_done`, counted in visits done; failures are none."""
        await configure(store, max_done=2, delay=0.0)
        await add(store, "a/1", "a/2", "a/3", "a/4")
        await visit(store)
        await visit(store, Failed("HTTP 500"))
        assert await state(store) == READY

        await visit(store)

        assert await state(store) == (QueueState.RETIRED, "quota")

    async def test_a_quota_of_bytes_retires(self, store: FullStore) -> None:
        """E6: `max_bytes`, over all the queue's visits."""
        await configure(store, max_bytes=1000, delay=0.0)
        await add(store, "a/1", "a/2", "a/3")
        await visit(store, Done(status=200, bytes=999))
        assert await state(store) == READY

        await visit(store, Done(status=200, bytes=1))

        assert await state(store) == (QueueState.RETIRED, "quota")
        assert (await queue(store)).bytes == 1000

    async def test_a_revived_quota_counts_on(self, store: FullStore) -> None:
        """E6: reached, it stays reached: the next visit retires again."""
        await configure(store, max_done=1, delay=0.0)
        await add(store, "a/1", "a/2", "a/3")
        await visit(store)
        await steer(store, key("a"), Revive())
        assert await state(store) == READY

        await visit(store)

        assert await state(store) == (QueueState.RETIRED, "quota")

    async def test_spending_outlives_emptiness(self, store: FullStore) -> None:
        """C1, E1: a total is for ever, a session is not."""
        await configure(store, total_budget=3, delay=0.0)
        for name in ("a/1", "a/2", "a/3", "a/4"):
            await add(store, name)
            await drained(store)

        assert (await queue(store)).spent == 3
        assert await state(store) == OVER_BUDGET
