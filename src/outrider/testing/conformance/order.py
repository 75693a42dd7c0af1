"""Conformance of order: of tasks in a queue, and among queues (C2, C3). Lower is sooner."""

from __future__ import annotations

from outrider.core.outcome import Failed
from outrider.core.queue_action import Set
from outrider.store.protocol import FullStore
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    NO_DELAY,
    add,
    claim,
    configure,
    drained,
    key,
    names,
    one,
    page,
    steer,
    visit,
)


class OrderConformance:
    """The order within a queue, and among queues."""

    async def test_lower_priority_is_sooner(self, store: FullStore) -> None:
        """C2: by the float's value, whatever its sign or size."""
        await configure(store, **NO_DELAY)
        values = [1e300, -1.0, 1e-300, 0.0, -1e300, 1.0, -1e-300, 0.5]
        await store.add([page(f"a/{value}", priority=value) for value in values])

        assert await drained(store) == [f"a/{value}" for value in sorted(values)]

    async def test_precedence_goes_before_priority(self, store: FullStore) -> None:
        """C2: forced (0) first, then cheap before dear, whatever the priorities."""
        await configure(store, **NO_DELAY)
        tasks = [(65_535, -1e9), (2, -5.0), (0, 1e9), (1, 5.0)]
        await store.add([page(f"a/{p}", precedence=p, priority=value) for p, value in tasks])

        assert await drained(store) == ["a/0", "a/1", "a/2", "a/65535"]

    async def test_minus_zero_is_zero(self, store: FullStore) -> None:
        """C2: -0.0 is no better than 0.0; arrival decides."""
        await configure(store, **NO_DELAY)
        await store.add([page("a/1", priority=0.0), page("a/2", priority=-0.0)])
        await store.add([page("b/1", priority=-0.0), page("b/2", priority=0.0)])

        order = await drained(store)

        assert [name for name in order if name.startswith("a")] == ["a/1", "a/2"]
        assert [name for name in order if name.startswith("b")] == ["b/1", "b/2"]

    async def test_equals_come_in_order_of_arrival(self, store: FullStore) -> None:
        """C2: `fifo`, the default: in batch order, and batch after batch."""
        await configure(store, **NO_DELAY)
        await add(store, "a/3", "a/1")
        await add(store, "a/2")

        assert await drained(store) == ["a/3", "a/1", "a/2"]

    async def test_lifo_takes_the_newest_of_equals(self, store: FullStore) -> None:
        """C2: `lifo`: the complement of the arrival number, within a batch too."""
        await configure(store, tie="lifo", **NO_DELAY)
        await add(store, "a/3", "a/1")
        await add(store, "a/2")

        assert await drained(store) == ["a/2", "a/1", "a/3"]

    async def test_ties_of_two_rules_compare_as_numbers(self, store: FullStore) -> None:
        """C2: 48 bits: arrival numbers are small, complements large, rolls anywhere between."""
        for tie, name in (("lifo", "a/3"), ("shuffle", "a/2"), ("fifo", "a/1")):
            await configure(store, tie=tie, **NO_DELAY)
            await add(store, name, roll=2**47)

        assert await drained(store) == ["a/1", "a/2", "a/3"]

    async def test_lifo_does_not_overrule_priority(self, store: FullStore) -> None:
        """C2: the tie is looked at last."""
        await configure(store, tie="lifo", **NO_DELAY)
        await store.add([page("a/1", priority=1.0), page("a/2", priority=2.0)])

        assert await drained(store) == ["a/1", "a/2"]

    async def test_shuffle_goes_by_the_callers_roll(self, store: FullStore) -> None:
        """C2: `shuffle`: the dice are the caller's, up to 48 bits."""
        await configure(store, tie="shuffle", **NO_DELAY)
        rolls = [5, 2**48 - 1, 0, 3]
        await store.add([page(f"a/{roll}", roll=roll) for roll in rolls])

        assert await drained(store) == [f"a/{roll}" for roll in sorted(rolls)]

    async def test_a_roll_means_nothing_to_a_fifo(self, store: FullStore) -> None:
        """C2: rolls count only when shuffled."""
        await configure(store, **NO_DELAY)
        await store.add([page("a/1", roll=9), page("a/2", roll=1)])

        assert await drained(store) == ["a/1", "a/2"]

    async def test_a_released_task_keeps_its_place(self, store: FullStore) -> None:
        """C2: as if it had never been leased."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        lease = await one(store)

        await store.release([lease.id])

        assert await drained(store) == ["a/1", "a/2"]

    async def test_a_retried_task_keeps_its_place(self, store: FullStore, clock: FakeClock) -> None:
        """C2: once due it has its old order."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await visit(store, Failed("HTTP 500"))
        clock.advance(1)

        assert await drained(store) == ["a/1", "a/2"]

    async def test_an_expired_task_keeps_its_place(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C2, H4: a crash does not change the order."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await one(store, lease_for=30)
        clock.advance(30)

        assert await drained(store) == ["a/1", "a/2"]

    async def test_the_queue_with_the_better_top_comes_first(self, store: FullStore) -> None:
        """C3: queues are compared by the priority of their first task."""
        await store.add([page("a/1", priority=2.0), page("b/1", priority=1.0)])
        await store.add([page("c/9", priority=9.0), page("c/1", priority=0.0)])

        assert names(await claim(store, 3)) == ["c/1", "b/1", "a/1"]

    async def test_the_tops_precedence_goes_before_its_priority(self, store: FullStore) -> None:
        """C3: as within a queue."""
        await store.add([page("a/1", precedence=2, priority=-9.0), page("b/1", priority=9.0)])

        assert names(await claim(store, 2)) == ["b/1", "a/1"]

    async def test_a_task_not_yet_due_does_not_speak_for_its_queue(self, store: FullStore) -> None:
        """C3, C6: the top is the best of those that are due."""
        await store.add([page("a/1", priority=5.0), page("a/2", priority=-9.0, delay=60.0)])
        await store.add([page("b/1", priority=4.0)])

        assert names(await claim(store, 2)) == ["b/1", "a/1"]

    async def test_equal_queues_come_in_order_of_creation(self, store: FullStore) -> None:
        """C3: a queue takes its first turn when it is created."""
        await add(store, "c/1", "a/1", "b/1")

        assert names(await claim(store, 3)) == ["c/1", "a/1", "b/1"]

    async def test_a_served_queue_goes_behind_its_equals(self, store: FullStore) -> None:
        """C3: every lease takes a new turn, so equal queues rotate."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "b/1", "b/2", "c/1")

        assert await drained(store) == ["a/1", "b/1", "c/1", "a/2", "b/2"]

    async def test_a_new_queue_is_behind_earlier_turns(self, store: FullStore) -> None:
        """C3: creation and leases draw on one counter."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await visit(store)

        await add(store, "b/1")

        assert names(await claim(store, 2)) == ["a/2", "b/1"]

    async def test_the_tie_never_compares_queues(self, store: FullStore) -> None:
        """C3: rolls order within a queue; between equal tops the turn decides."""
        await configure(store, tie="shuffle", **NO_DELAY)
        await store.add([page("a/1", roll=9), page("b/1", roll=1)])

        assert names(await claim(store, 2)) == ["a/1", "b/1"]

    async def test_a_raised_task_moves_its_queue(self, store: FullStore) -> None:
        """B3, C3: what moved forward within its queue speaks for it."""
        await add(store, "a/1", priority=1.0)
        await add(store, "b/1", "b/2", priority=2.0)

        await add(store, "b/2", priority=0.0, known="raise")

        assert names(await claim(store, 2)) == ["b/2", "a/1"]

    async def test_queue_precedence_goes_before_all(self, store: FullStore) -> None:
        """C3: an operator's integer, either side of 0, lower is sooner."""
        await configure(store, **NO_DELAY)
        await store.add([page("a/1", precedence=0, priority=-9.0), page("b/1"), page("c/1")])
        await steer(store, key("a"), Set({"precedence": 1}))
        await steer(store, key("c"), Set({"precedence": -1}))

        assert names(await claim(store, 3)) == ["c/1", "b/1", "a/1"]

    async def test_round_robin_asks_for_the_turn_only(self, store: FullStore) -> None:
        """C3: `order = "round-robin"` looks at no task."""
        await configure(store, order="round-robin", **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3", priority=5.0)
        await add(store, "b/1", "b/2", precedence=0, priority=-5.0)

        assert await drained(store) == ["a/1", "b/1", "a/2", "b/2", "a/3"]

    async def test_round_robin_keeps_the_order_within_a_queue(self, store: FullStore) -> None:
        """C2, C3: turns are the queues'; tasks go by priority."""
        await configure(store, order="round-robin", **NO_DELAY)
        await store.add([page("a/1", priority=2.0), page("b/1"), page("a/2", priority=1.0)])

        assert await drained(store) == ["a/2", "b/1", "a/1"]

    async def test_round_robin_respects_queue_precedence(self, store: FullStore) -> None:
        """C3: precedence, then turn."""
        await configure(store, order="round-robin", **NO_DELAY)
        await add(store, "a/1", "b/1", "b/2")
        await steer(store, key("b"), Set({"precedence": -1}))

        assert await drained(store) == ["b/1", "b/2", "a/1"]

    async def test_order_changes_with_the_configuration(self, store: FullStore) -> None:
        """N1, C3: what is pending already is ordered by the new rule."""
        await configure(store, **NO_DELAY)
        await store.add([page("a/1", priority=9.0), page("b/1"), page("b/2")])

        await configure(store, order="round-robin", **NO_DELAY)

        assert names(await claim(store, 3)) == ["a/1", "b/1", "b/2"]
