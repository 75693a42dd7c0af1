"""Conformance of `wake_in`: delayed tasks, and when to claim again (C6, H7)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Done, Failed
from outrider.core.queue_action import Pause, Retire
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
    page,
    steer,
    visit,
)


class WaitingConformance:
    """Due times and `wake_in`."""

    async def test_a_task_is_invisible_until_due(self, store: FullStore, clock: FakeClock) -> None:
        """C6: to the millisecond."""
        await add(store, "a/1", delay=10.0)

        clock.advance(9.999)
        assert await claim(store) == []
        clock.advance(0.001)
        assert names(await claim(store)) == ["a/1"]

    async def test_a_waiting_task_blocks_nothing(self, store: FullStore) -> None:
        """C6: not even behind a better priority."""
        await add(store, "a/1", delay=10.0, priority=-9.0)
        await add(store, "a/2")

        assert names(await claim(store)) == ["a/2"]

    async def test_waits_are_rounded_up_to_the_millisecond(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H7: never early."""
        await add(store, "a/1", delay=0.0101)

        assert (await ask(store)).wake_in == 0.011
        clock.advance(0.010)
        assert await claim(store) == []
        clock.advance(0.001)
        assert names(await claim(store)) == ["a/1"]

    @pytest.mark.parametrize("delay", [0.001, 0.29, 1.001, 4.35, 16.1])
    async def test_whole_milliseconds_are_not_rounded(self, store: FullStore, delay: float) -> None:
        """H7: what a float cannot hold exactly is no reason to wait longer."""
        await add(store, "a/1", delay=delay)

        assert (await ask(store)).wake_in == delay

    async def test_wake_in_is_zero_at_the_limit(self, store: FullStore) -> None:
        """C6: a claim that got all it asked for does not look further, though nothing is left."""
        await add(store, "a/1")

        assert (await ask(store, 1)).wake_in == 0.0

    async def test_wake_in_is_the_next_ready_time(self, store: FullStore, clock: FakeClock) -> None:
        """C6: of a queue with pending tasks and a free slot."""
        await add(store, "a/1", "a/2")
        await visit(store, Done(status=200, seconds=2.0))
        clock.advance(3.5)

        assert (await ask(store)).wake_in == 6.5

    async def test_wake_in_is_exact(self, store: FullStore, clock: FakeClock) -> None:
        """C6: a millisecond before it nothing comes, at it something does."""
        await add(store, "a/1", "a/2")
        await visit(store, Done(status=200, seconds=0.3333))
        wake_in = (await ask(store)).wake_in
        assert wake_in is not None

        clock.advance(wake_in - 0.001)
        assert await claim(store) == []
        clock.advance(0.001)
        assert names(await claim(store)) == ["a/2"]

    async def test_wake_in_is_a_leases_deadline(self, store: FullStore, clock: FakeClock) -> None:
        """C6: its loss would bring work; the earliest of all counts."""
        await add(store, "a/1", "b/1")
        await claim(store, lease_for=50.0)
        await claim(store, lease_for=30.0)
        clock.advance(10)

        assert (await ask(store)).wake_in == 20.0

    async def test_wake_in_is_the_first_due_time(self, store: FullStore) -> None:
        """C6: of the task that is due first, not of the first in order."""
        await store.add([page("a/1", delay=30.0, priority=-1.0), page("a/2", delay=20.0)])

        assert (await ask(store)).wake_in == 20.0

    async def test_wake_in_waits_for_the_later_of_ready_and_due(self, store: FullStore) -> None:
        """C6: max(next-ready, first due), and the earliest queue of all."""
        await add(store, "a/1", "b/1")
        await store.finish([done(lease, seconds=2.0) for lease in await claim(store, 2)])
        await add(store, "a/2", delay=4.0)  # ready in 10
        await add(store, "b/2", delay=12.0)  # ready in 10

        assert (await ask(store)).wake_in == 10.0

    async def test_wake_in_of_a_retry_is_its_backoff(self, store: FullStore) -> None:
        """C6, G1: a waiting retry is a pending task not yet due."""
        await add(store, "a/1")
        await visit(store, Failed("HTTP 500", retry_in=40.0))

        assert (await ask(store)).wake_in == 40.0

    async def test_wake_in_looks_past_busy_paused_and_retired_queues(
        self, store: FullStore
    ) -> None:
        """C6: time makes none of them due; only the lease's deadline is left."""
        await add(store, "a/1", "a/2", "b/1", "c/1")
        await steer(store, key("b"), Pause())
        await steer(store, key("c"), Retire())
        lease = await one(store, lease_for=60.0)

        assert (await ask(store)).wake_in == 60.0
        await finish(store, done(lease))
        await steer(store, key("a"), Pause())
        assert (await ask(store)).wake_in is None

    async def test_wake_in_knows_of_a_free_slot(self, store: FullStore) -> None:
        """C6: a queue with a visit in flight and a free slot is ready before the lease ends."""
        await configure(store, delay=5.0, max_in_flight=2)
        await add(store, "a/1", "a/2")
        await one(store)

        assert (await ask(store)).wake_in == 5.0

    async def test_an_early_claim_harms_nothing(self, store: FullStore, clock: FakeClock) -> None:
        """C6: asking too often gives nothing, and nothing is lost by it."""
        await add(store, "a/1", "a/2")
        await visit(store)
        for _ in range(9):
            assert await claim(store, 5) == []
            clock.advance(0.1)
        clock.advance(0.1)

        assert names(await claim(store, 5)) == ["a/2"]
