"""A task that opens its queue's session by itself: total prioritisation with held queues (C9)."""

from __future__ import annotations

from outrider.core.queue_action import Pause
from outrider.store.protocol import FullStore, PriorityUpdate
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    INACTIVE,
    OVER_BUDGET,
    PAUSED,
    READY,
    add,
    claim,
    configure,
    drained,
    key,
    names,
    queue,
    record,
    state,
    steer,
    visit,
)


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
        """C9: it stands among the inactive no longer."""
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
        """C9, E1: one that stands keeps its place; the next task that comes to it opens it."""
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
