"""Conformance of snooze and wake: a wake respects politeness (D1, E7)."""

from __future__ import annotations

from outrider.core.outcome import Done
from outrider.core.queue_action import Snooze, Wake
from outrider.core.states import QueueState
from outrider.store.protocol import FullStore
from outrider.testing.builders import done
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
    state,
    steer,
    visit,
    wakes_in,
)


class SnoozingConformance:
    """`snooze` and `wake`."""

    async def test_a_snooze_leaves_the_queue_alone(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E7: for so many seconds from now."""
        await add(store, "a/1")

        await steer(store, key("a"), Snooze(60.0))

        assert await state(store) == (QueueState.SNOOZED, "operator")
        assert (await ask(store)).wake_in == 60.0
        clock.advance(60)
        assert names(await claim(store)) == ["a/1"]

    async def test_a_snooze_shortens_nothing(self, store: FullStore) -> None:
        """D1: next-ready moves back by `wake` only; the reason stays the longer one's."""
        await add(store, "a/1", "a/2")
        await visit(store, Done(status=200, seconds=4.0))

        await steer(store, key("a"), Snooze(5.0))

        assert await wakes_in(store) == 20.0
        assert await state(store) == (QueueState.SNOOZED, "delay")

    async def test_a_finish_shortens_no_snooze(self, store: FullStore) -> None:
        """D1: the later of the two."""
        await add(store, "a/1", "a/2")
        lease = await one(store)
        await steer(store, key("a"), Snooze(100.0))

        await finish(store, done(lease))

        assert await wakes_in(store) == 100.0
        assert await state(store) == (QueueState.SNOOZED, "operator")

    async def test_wake_goes_back_to_the_last_visit(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: to its end + delay, not to now."""
        await configure(store, delay=10.0)
        await add(store, "a/1", "a/2")
        await visit(store)
        await steer(store, key("a"), Snooze(100.0))
        clock.advance(4)

        await steer(store, key("a"), Wake())

        assert await wakes_in(store) == 6.0
        assert await state(store) == (QueueState.SNOOZED, "delay")

    async def test_wake_ends_the_snooze_of_a_queue_never_visited(self, store: FullStore) -> None:
        """D1: there is nothing to wait for."""
        await add(store, "a/1")
        await steer(store, key("a"), Snooze(100.0))

        await steer(store, key("a"), Wake())

        assert names(await claim(store)) == ["a/1"]

    async def test_wake_never_postpones(self, store: FullStore, clock: FakeClock) -> None:
        """D1: a queue that is ready stays so, whatever its delay has become."""
        await configure(store, delay=1.0)
        await add(store, "a/1", "a/2")
        await visit(store)
        clock.advance(1)
        await steer(store, key("a"), Wake())

        assert names(await claim(store)) == ["a/2"]

    async def test_wake_keeps_the_spacing_of_slots(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: with several slots, not before the last lease + the least delay."""
        await configure(store, min_delay=5.0, max_in_flight=2)
        await add(store, "a/1", "a/2")
        await one(store)
        await steer(store, key("a"), Snooze(100.0))
        clock.advance(2)

        await steer(store, key("a"), Wake())

        assert await wakes_in(store) == 3.0

    async def test_wake_counts_from_the_start_where_the_delay_does(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: the last visit's start + its delay."""
        await configure(store, count_from="start")
        await add(store, "a/1", "a/2")
        lease = await one(store)
        clock.advance(4)
        await finish(store, done(lease, seconds=2.0))
        await steer(store, key("a"), Snooze(100.0))

        await steer(store, key("a"), Wake())

        assert await wakes_in(store) == 6.0

    async def test_wake_forgets_a_visit_that_touched_no_host(self, store: FullStore) -> None:
        """D1, D5: one slot, counted from the end: an answer from the cache postpones nothing."""
        await configure(store, min_delay=5.0)
        await add(store, "a/1", "a/2")
        await visit(store, Done(status=200, from_cache=True))
        await steer(store, key("a"), Snooze(100.0))

        await steer(store, key("a"), Wake())

        assert names(await claim(store)) == ["a/2"]

    async def test_wake_keeps_the_spacing_of_starts(self, store: FullStore) -> None:
        """D1: counted from the start, not before the last lease + the least delay."""
        await configure(store, min_delay=3.0, count_from="start")
        await add(store, "a/1", "a/2")
        lease = await one(store)
        await steer(store, key("a"), Wake())
        await finish(store, done(lease, from_cache=True))

        assert await wakes_in(store) == 3.0
