"""Conformance of lanes: bursts, empty lanes, and the streak in requests (C4)."""

from __future__ import annotations

import pytest

from outrider.core.pick import Streak
from outrider.core.states import QueueState
from outrider.core.task import ACQUISITION, DISCOVERY, Lease
from outrider.store.protocol import FullStore
from outrider.testing.builders import done
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    NO_DELAY,
    add,
    ask,
    claim,
    configure,
    names,
    page,
    state,
)

LETTERS = {DISCOVERY: "d", ACQUISITION: "a"}


def lanes(leases: list[Lease]) -> str:
    """The lanes of the leases as letters."""
    return "".join(LETTERS[lease.about.lane] for lease in leases)


async def filled(store: FullStore, *, discovery: int, acquisition: int, host: str = "h") -> None:
    """Add so many pages to each lane of one queue."""
    await add(store, *(f"{host}/d{n}" for n in range(discovery)))
    await add(store, *(f"{host}/a{n}" for n in range(acquisition)), lane=ACQUISITION)


class LanesConformance:
    """Acquisition and discovery take turns."""

    async def test_lanes_take_turns_in_bursts(self, store: FullStore) -> None:
        """C4: discovery first, five leases from one, then five from the other."""
        await configure(store, **NO_DELAY)
        await filled(store, discovery=12, acquisition=12)

        assert lanes(await claim(store, 17)) == "dddddaaaaadddddaa"

    @pytest.mark.parametrize(("burst", "expected"), [(1, "dadada"), (2, "ddaadd"), (3, "dddaaa")])
    async def test_the_burst_is_a_setting(
        self, store: FullStore, burst: int, expected: str
    ) -> None:
        """C4: up to `burst` leases from one lane."""
        await configure(store, burst=burst, **NO_DELAY)
        await filled(store, discovery=9, acquisition=9)

        assert lanes(await claim(store, 6)) == expected

    async def test_lanes_turn_across_queues(self, store: FullStore) -> None:
        """C4: a lane is the crawl's, not a queue's; its best queue is asked."""
        await configure(store, burst=1, **NO_DELAY)
        await filled(store, discovery=2, acquisition=0, host="x")
        await filled(store, discovery=0, acquisition=2, host="y")

        assert names(await claim(store, 4)) == ["x/d0", "y/a0", "x/d1", "y/a1"]

    async def test_a_lane_orders_its_own(self, store: FullStore) -> None:
        """C4: in discovery's turn a better acquisition task waits."""
        await configure(store, **NO_DELAY)
        await store.add([page("a/a", lane=ACQUISITION, priority=-9.0), page("a/d", priority=9.0)])

        assert names(await claim(store, 2)) == ["a/d", "a/a"]

    async def test_a_queue_is_compared_by_its_top_in_the_lane(self, store: FullStore) -> None:
        """C3, C4: its best task of the other lane does not speak for it."""
        await configure(store, **NO_DELAY)
        await store.add([page("x/d", priority=5.0), page("x/a", priority=-9.0, lane=ACQUISITION)])
        await store.add([page("y/d", priority=4.0)])

        assert names(await claim(store, 2)) == ["y/d", "x/d"]

    async def test_an_empty_lane_is_passed_at_once(self, store: FullStore) -> None:
        """C4: acquisition goes first when discovery has nothing."""
        await configure(store, **NO_DELAY)
        await filled(store, discovery=0, acquisition=7)

        claimed = await ask(store, 7)

        assert lanes(claimed.leases) == "aaaaaaa"
        assert claimed.streak == Streak(ACQUISITION, 2)

    async def test_the_count_restarts_when_a_lane_is_passed(self, store: FullStore) -> None:
        """C4: after five the other lane is passed, and five more may come before it is asked."""
        await configure(store, **NO_DELAY)
        await filled(store, discovery=20, acquisition=0)
        first = await ask(store, 6)
        await filled(store, discovery=0, acquisition=3)

        second = await ask(store, 6, streak=first.streak)

        assert first.streak == Streak(DISCOVERY, 1)
        assert lanes(second.leases) == "ddddaa"

    async def test_a_lane_begins_at_one_when_the_other_is_passed(self, store: FullStore) -> None:
        """C4: whatever was counted before it was passed."""
        await configure(store, **NO_DELAY)
        await filled(store, discovery=0, acquisition=9)

        assert (await ask(store, 2, streak=Streak(DISCOVERY, 3))).streak == Streak(ACQUISITION, 2)

    async def test_lane_and_count_stay_when_neither_has_work(self, store: FullStore) -> None:
        """C4: an empty claim forgets nothing."""
        await add(store, "a/1", delay=60.0)

        for streak in (Streak(ACQUISITION, 3), Streak(DISCOVERY, 5), Streak()):
            assert (await ask(store, 5, streak=streak)).streak == streak

    async def test_the_count_stays_where_the_work_ended(self, store: FullStore) -> None:
        """C4: three of discovery and no more: the next two still belong to it."""
        await configure(store, **NO_DELAY)
        await filled(store, discovery=3, acquisition=0)

        claimed = await ask(store, 9)

        assert claimed.streak == Streak(DISCOVERY, 3)

    async def test_the_count_travels_with_the_claims(self, store: FullStore) -> None:
        """C4: one by one gives the same as all at once."""
        await configure(store, burst=3, **NO_DELAY)
        await filled(store, discovery=8, acquisition=8)
        streak, order = Streak(), ""
        for _ in range(11):
            claimed = await ask(store, 1, streak=streak)
            streak, order = claimed.streak, order + lanes(claimed.leases)

        assert order == "dddaaadddaa"
        assert streak == Streak(ACQUISITION, 2)

    async def test_each_claimer_has_its_own_count(self, store: FullStore) -> None:
        """C4: the count belongs to the claimer; another starts with discovery."""
        await configure(store, **NO_DELAY)
        await filled(store, discovery=9, acquisition=9)
        mine = await ask(store, 5, worker="mine")

        assert lanes(await claim(store, 2, worker="other")) == "dd"
        assert lanes(await claim(store, 2, worker="mine", streak=mine.streak)) == "aa"

    async def test_a_claim_continues_in_the_middle_of_a_burst(self, store: FullStore) -> None:
        """C4: it starts with the lane and count it was given."""
        await configure(store, **NO_DELAY)
        await filled(store, discovery=9, acquisition=9)

        assert lanes(await claim(store, 4, streak=Streak(ACQUISITION, 3))) == "aadd"

    async def test_a_lane_with_nothing_due_is_passed(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C4, C6: a queue is ready in a lane only while it has due tasks there."""
        await configure(store, **NO_DELAY)
        await add(store, "a/a", lane=ACQUISITION)
        await add(store, "a/d", delay=10.0)

        assert names(await claim(store, 2)) == ["a/a"]
        clock.advance(10)
        assert names(await claim(store, 2)) == ["a/d"]

    async def test_a_snoozed_queue_is_ready_in_no_lane(self, store: FullStore) -> None:
        """C4: a lane with no ready queue is passed, whatever is pending there."""
        await filled(store, discovery=2, acquisition=0, host="x")
        await filled(store, discovery=0, acquisition=1, host="y")
        (lease,) = await claim(store)
        await store.finish([done(lease)])

        assert names(await claim(store, 2)) == ["y/a0"]

    async def test_no_queue_is_activated_for_a_lanes_sake(self, store: FullStore) -> None:
        """C4, E2: while any queue is ready, an inactive one waits, though its lane is bare."""
        await configure(store, hold_queues=True, burst=1, **NO_DELAY)
        await filled(store, discovery=3, acquisition=0, host="x")
        await filled(store, discovery=0, acquisition=1, host="y")

        assert lanes(await claim(store, 2)) == "dd"
        assert (await state(store, "y"))[0] is QueueState.INACTIVE

        assert names(await claim(store, 2)) == ["x/d2", "y/a0"]
