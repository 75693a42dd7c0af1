"""Conformance of claims that are limited to some queues: by key, or to so many (C5)."""

from __future__ import annotations

import pytest

from outrider.core.queue_action import Pause, Snooze
from outrider.core.states import CrawlStatus, QueueState
from outrider.core.task import ACQUISITION
from outrider.errors import InvalidInput
from outrider.store.protocol import MAX_CLAIM_KEYS, FullStore
from outrider.testing.builders import done
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    NO_DELAY,
    add,
    ask,
    claim,
    configure,
    key,
    mark,
    names,
    one,
    page,
    record,
    state,
    status,
    steer,
)


class LimitedClaimConformance:
    """`ClaimRequest.keys` and `max_queues`."""

    async def test_a_claim_by_key_leases_from_that_queue_only(self, store: FullStore) -> None:
        """C5: however much better the tasks of others are."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", priority=-9.0)
        await add(store, "b/1", "b/2", "c/1")

        assert names(await claim(store, 9, keys=[key("b")])) == ["b/1", "b/2"]
        assert names(await claim(store, 9)) == ["a/1", "a/2", "c/1"]

    async def test_a_claim_by_keys_keeps_the_order_among_them(self, store: FullStore) -> None:
        """C5, C3: by priority and turn, not by the order in which the keys were given."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", priority=2.0)
        await add(store, "b/1", "b/2", priority=1.0)
        await add(store, "c/1", priority=0.0)
        await add(store, "d/1", priority=-1.0)

        leases = await claim(store, 3, keys=[key("a"), key("b"), key("c"), key("b")])

        assert names(leases) == ["c/1", "b/1", "b/2"]

    async def test_a_key_is_found_as_queue_finds_it(self, store: FullStore) -> None:
        """C5, A4: exactly, else in lower case; a key without a queue leases nothing."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await add(store, "b/1", key="Mixed")

        assert await claim(store, 9, keys=["z.example", "MIXED", ""]) == []
        assert names(await claim(store, keys=["Mixed"])) == ["b/1"]
        assert names(await claim(store, 9, keys=["A.EXAMPLE", "z.example"])) == ["a/1", "a/2"]

    async def test_an_exact_key_comes_before_that_in_lower_case(self, store: FullStore) -> None:
        """C5: where both have a queue, each is its own."""
        await add(store, "a/1", key="KEY")
        await add(store, "a/2", key="key")

        assert names(await claim(store, 9, keys=["KEY"])) == ["a/1"]
        assert names(await claim(store, 9, keys=["key"])) == ["a/2"]

    async def test_a_claim_by_key_obeys_slots_delay_and_actions(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C5, D1, D2: it leases nothing that a claim of all queues would not."""
        await configure(store, delay=5.0)
        await add(store, "a/1", "a/2", "b/1", "c/1")
        await steer(store, key("b"), Pause())
        await steer(store, key("c"), Snooze(60.0))
        keys = [key("a"), key("b"), key("c")]
        assert names(await claim(store, 9, keys=keys)) == ["a/1"]
        assert await claim(store, 9, keys=keys) == []
        clock.advance(30)

        assert await claim(store, 9, keys=keys) == []

    async def test_a_claim_by_key_counts_no_lane_without_a_task(self, store: FullStore) -> None:
        """C5, C4: a lane in which only other queues have tasks is passed at once."""
        await configure(store, burst=1, **NO_DELAY)
        await add(store, "a/1", "a/2", lane=ACQUISITION)
        await add(store, "b/1", "b/2")
        await store.add([page("b/3", lane=ACQUISITION)])

        claimed = await ask(store, 9, keys=[key("b")])

        assert names(claimed.leases) == ["b/1", "b/3", "b/2"]
        assert tuple(claimed.streak) == (0, 1)

    async def test_an_inactive_queue_is_activated_for_its_key_alone(self, store: FullStore) -> None:
        """C5, E2: others of its precedence neither hold it up nor are activated."""
        await configure(store, hold_queues=True, **NO_DELAY)
        await add(store, "a/1", "b/1", "c/1")
        await steer(store, key("a"), Snooze(0.0))
        assert names(await claim(store)) == ["a/1"]

        assert names(await claim(store, 9, keys=[key("c")])) == ["c/1"]
        assert await state(store, "b") == (QueueState.INACTIVE, None)

    async def test_a_ready_queue_of_the_keys_holds_up_an_inactive_one(
        self, store: FullStore
    ) -> None:
        """C5, E2: as among all queues: sites one after the other."""
        await configure(store, hold_queues=True, balance=2, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3", "b/1", "c/1")

        leases = await claim(store, 9, keys=[key("a"), key("c")])

        assert names(leases) == ["a/1", "a/2", "c/1", "a/3"]

    async def test_an_inactive_queue_over_its_budget_is_retired_by_its_key(
        self, store: FullStore
    ) -> None:
        """C5, E1."""
        await configure(store, total_budget=1, balance=1, **NO_DELAY)
        await add(store, "a/1", "a/2", "b/1")

        assert names(await claim(store, 9, keys=[key("a")])) == ["a/1"]
        assert await state(store, "a") == (QueueState.RETIRED, "budget")

    async def test_wake_in_of_a_claim_by_key_is_that_of_its_queues(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C6: others that are ready, or are so earlier, bring nothing."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2", "b/1")
        await add(store, "c/1", delay=3.0)
        await add(store, "d/1", delay=7.0)
        lease = await one(store, keys=[key("a")])
        await store.finish([done(lease)])
        await steer(store, key("a"), Snooze(20.0))

        assert (await ask(store, keys=[key("a")])).wake_in == 20.0
        assert (await ask(store, keys=[key("a"), key("d")])).wake_in == 7.0
        assert (await ask(store, keys=["z.example"])).wake_in is None
        clock.advance(7)
        assert names(await claim(store, 9, keys=[key("a"), key("d")])) == ["d/1"]

    async def test_wake_in_of_a_claim_by_key_counts_all_deadlines(self, store: FullStore) -> None:
        """C6, H4: any claim expires overdue leases."""
        await add(store, "a/1", "b/1")
        await one(store, keys=[key("b")], lease_for=25.0)

        assert (await ask(store, 9, keys=["z.example"])).wake_in == 25.0

    async def test_wake_in_is_0_if_the_limit_cut_a_claim_by_key(self, store: FullStore) -> None:
        """C6."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")

        assert (await ask(store, 1, keys=[key("a")])).wake_in == 0.0
        assert (await ask(store, 1, keys=[key("a")])).wake_in == 0.0
        assert (await ask(store, 1, keys=[key("a")])).wake_in == 60.0

    async def test_a_claim_by_key_expires_leases_and_ends_the_run(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C5, H4, I2: as any other claim."""
        await configure(store, max_crashes=1, delay=0.0)
        await add(store, "a/1")
        await one(store)
        clock.advance(60)

        assert (await ask(store, keys=["z.example"])).status is CrawlStatus.FINISHED
        assert (await record(store, "a/1")).crashes == 1
        assert await status(store) == (CrawlStatus.FINISHED, "run 1")

    async def test_a_claim_by_key_ends_no_run_with_other_tasks(self, store: FullStore) -> None:
        """C5, I2."""
        await add(store, "a/1", "b/1")
        await steer(store, key("a"), Pause())

        assert (await ask(store, keys=["z.example"])).status is CrawlStatus.RUNNING

    async def test_keys_combine_with_per_queue_and_lend(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C5, C7: the loan is of these queues alone."""
        await configure(store, delay=5.0)
        await add(store, "a/1", "b/1", "b/2", "b/3", "c/1", "c/2")

        leases = await claim(store, 9, keys=[key("b"), key("c")], per_queue=2, lend=True)
        clock.advance(1)

        assert names(leases) == ["b/1", "c/1", "b/2", "c/2"]
        assert names(await claim(store, 9)) == ["a/1"]
        assert await state(store, "b") == (QueueState.BUSY, None)

    async def test_max_queues_bounds_the_queues_of_a_claim(self, store: FullStore) -> None:
        """C5: once so many were reached, only their tasks are leased; 0 says there is more."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", priority=2.0)
        await add(store, "b/1", "b/2", priority=1.0)
        await add(store, "c/1", "c/2", priority=1.5)

        claimed = await ask(store, 9, max_queues=2)

        assert names(claimed.leases) == ["b/1", "b/2", "c/1", "c/2"]
        assert claimed.wake_in == 0.0
        assert names(await claim(store, 9, max_queues=2)) == ["a/1", "a/2"]

    async def test_max_queues_leaves_the_order_as_it_is(self, store: FullStore) -> None:
        """C5: a better task of a queue that is none of them is passed over."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", priority=0.0)
        await add(store, "a/2", priority=5.0)
        await add(store, "b/1", priority=1.0)

        assert names(await claim(store, 9, max_queues=1)) == ["a/1", "a/2"]

    async def test_max_queues_activates_no_further_queue(self, store: FullStore) -> None:
        """C5, E2: the queues that a claim took tasks of may be activated again."""
        await configure(store, balance=1, **NO_DELAY)
        await add(store, "a/1", "a/2", "b/1", "b/2")
        assert names(await claim(store, 2)) == ["a/1", "b/1"]
        assert await state(store, "b") == (QueueState.INACTIVE, None)

        await add(store, "a/3")

        assert names(await claim(store, 9, max_queues=1)) == ["a/2", "a/3"]
        assert await state(store, "b") == (QueueState.INACTIVE, None)

    async def test_max_queues_combines_with_per_queue_keys_and_lend(self, store: FullStore) -> None:
        """C5, C7."""
        await configure(store, **NO_DELAY)
        await add(store, *(f"{host}/{n}" for host in "abcd" for n in range(3)))
        keys = [key("d"), key("c"), key("b")]

        assert names(await claim(store, 9, keys=keys, max_queues=2, per_queue=1)) == ["b/0", "c/0"]
        lent = await claim(store, 9, keys=keys, max_queues=1, per_queue=2, lend=True)
        assert names(lent) == ["d/0", "d/1"]

    async def test_max_queues_counts_over_a_long_claim(self, store: FullStore) -> None:
        """C5: hundreds of leases, whatever number a store leases at a time."""
        await configure(store, order="round-robin", **NO_DELAY)
        for host in "abcd":
            await add(store, *(f"{host}/{n}" for n in range(130)))

        found = names(await claim(store, 1000, max_queues=3))

        assert len({name.partition("/")[0] for name in found}) == 3
        assert len(found) == 390

    async def test_claims_by_many_keys_lease_all_their_tasks(self, store: FullStore) -> None:
        """C5: hundreds of leases of as many keys as a claim may have."""
        await configure(store, **NO_DELAY)
        hosts = [f"h{n}" for n in range(MAX_CLAIM_KEYS)]
        for number in range(3):
            await add(store, *(f"{host}/{number}" for host in hosts))
        await add(store, "a/1", priority=-9.0)

        found = names(await claim(store, 1000, keys=[key(host) for host in hosts]))

        assert len(set(found)) == 300
        assert "a/1" not in found

    @pytest.mark.parametrize(
        ("fields", "what"),
        [
            ({"keys": ["a"], "fingerprints": [mark("a/1")]}, "exclude each other"),
            ({"keys": ["a"] * (MAX_CLAIM_KEYS + 1)}, "101 keys"),
            ({"keys": "a.example"}, "a list of keys"),
            ({"keys": ["a", 7]}, "a list of keys"),
            ({"keys": ["\ud800"]}, "a list of keys"),
            ({"keys": ["x" * 1025]}, "1025 characters"),
            ({"max_queues": -1}, "max_queues"),
        ],
    )
    async def test_what_limits_a_claim_is_checked(
        self, store: FullStore, fields: dict[str, object], what: str
    ) -> None:
        """C5: before anything is changed."""
        await add(store, "a/1")

        with pytest.raises(InvalidInput, match=what):
            await ask(store, **fields)  # type: ignore[arg-type]

        assert names(await claim(store)) == ["a/1"]
