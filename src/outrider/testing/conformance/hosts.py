"""Conformance of host outcomes: throttled, unreachable, blocked, cached (D3, D4, D5)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Blocked, Done, Dropped, Failed, Outcome, Throttled, Unreachable
from outrider.core.queue_action import Revive, Set
from outrider.core.states import QueueState, TaskState
from outrider.core.task import Lease
from outrider.store.protocol import FullStore
from outrider.testing.builders import OUTCOMES, done, throttled
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
    queue,
    record,
    state,
    steer,
    visit,
)

DAY = 86_400.0


async def again(store: FullStore, clock: FakeClock, outcome: Outcome) -> Lease:
    """Wait as long as the queue asks for, then visit it."""
    clock.advance((await ask(store)).wake_in or 0.0 if not await ready(store) else 0.0)
    return await visit(store, outcome)


async def ready(store: FullStore) -> bool:
    """Whether the queue may be visited now."""
    return (await queue(store)).wakes_in == 0.0


async def snoozes(
    store: FullStore, clock: FakeClock, outcome: Outcome, times: int
) -> list[float | None]:
    """How long the queue snoozes after each of so many outcomes alike."""
    waits = []
    for _ in range(times):
        await visit(store, outcome)
        waits.append((await queue(store)).wakes_in)
        clock.advance(waits[-1] or 0.0)
    return waits


class HostsConformance:
    """Hosts in trouble."""

    async def test_a_throttled_queue_snoozes(self, store: FullStore) -> None:
        """D3: the queue, not the task: 30 s at first, and its level rises."""
        await add(store, "a/1", "a/2", "b/1")
        await visit(store, Throttled())

        assert await state(store) == (QueueState.SNOOZED, "throttled")
        assert ((await queue(store)).wakes_in, (await queue(store)).level) == (30.0, 1)
        assert names(await claim(store)) == ["b/1"]

    async def test_each_throttle_doubles_the_snooze(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D3: min(30·2^(L−1), 900); the lease carries the level, the verdict sets it + 1."""
        await add(store, *(f"a/{n}" for n in range(9)))

        waits = await snoozes(store, clock, Throttled(), 7)

        assert waits == [30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 900.0]
        assert ((await queue(store)).level, (await one(store)).manners.level) == (7, 7)

    async def test_retry_after_is_never_shortened(self, store: FullStore) -> None:
        """D3: the longer of the two."""
        await add(store, "a/1", "a/2", "b/1")
        await visit(store, Throttled(retry_after=3600.0))
        await visit(store, Throttled(retry_after=0.0))

        assert (await queue(store, "a")).wakes_in == 3600.0
        assert (await queue(store, "b")).wakes_in == 30.0

    async def test_concurrent_throttles_count_once(self, store: FullStore) -> None:
        """D3: each verdict sets the level its lease saw + 1."""
        await configure(store, delay=0.0, max_in_flight=3)
        await add(store, "a/1", "a/2", "a/3", "a/4")
        leases = await claim(store, 3)

        await store.finish([throttled(lease) for lease in leases])

        view = await queue(store)
        assert (view.level, view.wakes_in, view.errors_in_row) == (1, 30.0, 3)

    async def test_the_delay_is_doubled_while_throttled(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D3: multiplied by 2^L."""
        await add(store, "a/1", "a/2", "a/3")
        await snoozes(store, clock, Throttled(), 2)
        await visit(store, Done(status=200, seconds=1.0))

        assert (await queue(store)).wakes_in == 20.0

    async def test_ten_done_in_a_row_lower_the_level(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D3: by one, and the delay with it; ten more the next."""
        await add(store, *(f"a/{n}" for n in range(40)))
        await snoozes(store, clock, Throttled(), 2)
        levels = []
        for _ in range(20):
            await again(store, clock, Done(status=200))
            levels.append((await queue(store)).level)

        assert levels == [2] * 9 + [1] * 10 + [0]
        assert (await queue(store)).wakes_in == 1.0

    @pytest.mark.parametrize("outcome", ["failed", "blocked", "unreachable", "throttled"])
    async def test_a_failure_ends_the_row_of_done(
        self, store: FullStore, clock: FakeClock, outcome: str
    ) -> None:
        """D3: ten in a row means ten in a row."""
        await add(store, *(f"a/{n}" for n in range(40)))
        await visit(store, Throttled())
        for _ in range(9):
            await again(store, clock, Done(status=200))
        await again(store, clock, OUTCOMES[outcome])
        before = (await queue(store)).level
        clock.advance(3600)
        lease = await visit(store)

        assert lease.manners.calm == 0
        assert (await queue(store)).level == before

    async def test_a_drop_does_not_end_the_row_of_done(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D4: it says nothing of the host."""
        await add(store, *(f"a/{n}" for n in range(40)))
        await visit(store, Throttled())
        for outcome in [Done(status=200)] * 9 + [Dropped("robots")] + [Done(status=200)]:
            await again(store, clock, outcome)

        assert (await queue(store)).level == 0

    async def test_a_task_keeps_its_attempts_for_four_throttles(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D3: then each counts as a failure."""
        await add(store, "a/1")
        await snoozes(store, clock, Throttled(), 6)

        view = await record(store, "a/1")
        assert (view.attempts, view.failures, view.reason) == (2, 2, "throttled")
        lease = await one(store)
        assert (lease.throttles, lease.attempt) == (6, 3)

    async def test_ten_throttles_in_a_row_retire(self, store: FullStore, clock: FakeClock) -> None:
        """D3: without a Done between them."""
        await add(store, *(f"a/{n}" for n in range(40)))
        await snoozes(store, clock, Throttled(), 9)
        assert await state(store) == (QueueState.READY, None)

        await visit(store, Throttled())

        assert await state(store) == (QueueState.RETIRED, "throttled")

    async def test_a_done_resets_the_throttles_in_a_row(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D3: a failure does not."""
        await add(store, *(f"a/{n}" for n in range(40)))
        await snoozes(store, clock, Throttled(), 9)
        await again(store, clock, Done(status=200))
        await again(store, clock, Throttled())
        assert (await queue(store)).state is QueueState.SNOOZED
        await again(store, clock, Failed("HTTP 500"))

        assert (await again(store, clock, Throttled())).manners.throttles_in_row == 1

    async def test_an_unreachable_queue_snoozes_longer_and_longer(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D4: 30 s doubling; the fifth in a row retires it."""
        await add(store, "a/1")

        waits = await snoozes(store, clock, Unreachable("DNS"), 5)

        assert waits == [30.0, 60.0, 120.0, 240.0, None]
        assert await state(store) == (QueueState.RETIRED, "unreachable")

    async def test_an_unreachable_hosts_tasks_keep_their_attempts(self, store: FullStore) -> None:
        """D4: it is the host that failed."""
        await add(store, "a/1")
        await visit(store, Unreachable("no route"))

        view = await record(store, "a/1")
        assert (view.state, view.attempts, view.failures) == (TaskState.PENDING, 0, 0)
        assert view.reason == "no route"
        assert tuple(view.history) == ()
        assert await state(store) == (QueueState.SNOOZED, "unreachable")

    @pytest.mark.parametrize("outcome", ["done", "failed", "throttled", "blocked"])
    async def test_an_answer_ends_the_unreachable_row(
        self, store: FullStore, clock: FakeClock, outcome: str
    ) -> None:
        """D4: the host answered."""
        await add(store, *(f"a/{n}" for n in range(9)))
        await snoozes(store, clock, Unreachable("DNS"), 2)
        await visit(store, OUTCOMES[outcome])
        clock.advance(DAY)

        assert (await one(store)).manners.unreachable_in_row == 0

    async def test_a_drop_or_a_release_says_nothing_of_the_host(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D4: they reset no count."""
        await add(store, *(f"a/{n}" for n in range(9)))
        await snoozes(store, clock, Unreachable("DNS"), 2)
        await visit(store, Dropped("robots"))
        clock.advance(1)
        await store.release([(await one(store)).id])
        clock.advance(1)

        assert (await one(store)).manners.unreachable_in_row == 2

    async def test_a_crash_says_nothing_of_the_host(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D4, H4: it was the worker that failed; as an error it is counted."""
        await add(store, *(f"a/{n}" for n in range(9)))
        await snoozes(store, clock, Throttled(), 2)
        await one(store, lease_for=30)
        clock.advance(30)
        await store.expire(limit=9)

        view = await queue(store)
        assert (view.level, view.errors_in_row) == (2, 3)

    async def test_three_blocked_in_a_row_snooze_the_queue(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D4: by the cooldown; two do not."""
        await add(store, *(f"a/{n}" for n in range(9)))

        assert await snoozes(store, clock, Blocked("challenge"), 4) == [1.0, 1.0, 900.0, 1800.0]

    @pytest.mark.parametrize(
        ("allowed", "snoozes_of"), [(1, [900.0, 1800.0, 3600.0]), (0, [1.0, 1.0, 1.0, 1.0])]
    )
    async def test_the_number_of_blocked_visits_is_a_setting(
        self, store: FullStore, clock: FakeClock, allowed: int, snoozes_of: list[float]
    ) -> None:
        """D4: `blocks_to_snooze`, by key as all of politeness; 0: blocks snooze no queue."""
        await configure(store, keys={key("a"): {"blocks_to_snooze": allowed}})
        await add(store, *(f"a/{n}" for n in range(9)))

        found = await snoozes(store, clock, Blocked("challenge"), len(snoozes_of))

        assert found == snoozes_of

    async def test_blocked_visits_are_counted_against_the_current_setting(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D4, E7: changed while the crawl runs, it holds from the next lease on."""
        await add(store, *(f"a/{n}" for n in range(9)))
        assert await snoozes(store, clock, Blocked("challenge"), 2) == [1.0, 1.0]

        await steer(store, key("a"), Set({"blocks_to_snooze": 2}))

        assert await snoozes(store, clock, Blocked("challenge"), 1) == [1800.0]

    async def test_a_blocked_queue_says_so(self, store: FullStore, clock: FakeClock) -> None:
        """C1: the reason of its snooze."""
        await add(store, *(f"a/{n}" for n in range(9)))
        await snoozes(store, clock, Blocked("challenge"), 2)
        await visit(store, Blocked("challenge"))

        assert await state(store) == (QueueState.SNOOZED, "blocked")

    @pytest.mark.parametrize("outcome", ["done", "failed", "throttled", "unreachable"])
    async def test_anything_else_ends_the_blocked_row(
        self, store: FullStore, clock: FakeClock, outcome: str
    ) -> None:
        """D4: three in a row means three in a row."""
        await add(store, *(f"a/{n}" for n in range(9)))
        await snoozes(store, clock, Blocked("challenge"), 2)
        await visit(store, OUTCOMES[outcome])
        clock.advance(600)

        assert (await one(store)).manners.blocks_in_row == 0

    async def test_the_longer_snooze_keeps_its_reason(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C1, D1: a shorter wait that comes later changes neither."""
        await configure(store, delay=0.0, max_in_flight=2)
        await add(store, "a/1", "a/2", "a/3")
        first, second = await claim(store, 2)
        await finish(store, throttled(first))
        clock.advance(1)

        await finish(store, done(second))

        assert await state(store) == (QueueState.SNOOZED, "throttled")
        assert (await queue(store)).wakes_in == 29.0

    async def test_a_cached_answer_leaves_the_host_untouched(self, store: FullStore) -> None:
        """D5: no delay, no visit of the host, no count."""
        await configure(store, delay=10.0)
        await add(store, "a/1", "a/2")
        await visit(store, Done(status=200, from_cache=True))

        view = await queue(store)
        assert (view.wakes_in, view.last_visit_at, view.errors_in_row) == (0.0, None, 0)
        assert (await record(store, "a/1")).state is TaskState.DONE

    async def test_a_cached_answer_may_still_throttle(self, store: FullStore) -> None:
        """D5: the task is done, the queue snoozes and its level rises."""
        await add(store, "a/1", "a/2")
        await visit(store, Done(status=200, from_cache=True, throttled=100.0))

        view = await queue(store)
        assert (view.level, view.wakes_in, view.reason) == (1, 100.0, "throttled")
        assert (await record(store, "a/1")).state is TaskState.DONE

    async def test_errors_in_a_row_are_counted(self, store: FullStore, clock: FakeClock) -> None:
        """E8: whatever went wrong counts, a Done ends the row, a drop leaves it."""
        await add(store, *(f"a/{n}" for n in range(9)))
        counts = []
        for outcome in ("failed", "unreachable", "throttled", "blocked", "dropped", "done"):
            await again(store, clock, OUTCOMES[outcome])
            counts.append((await queue(store)).errors_in_row)

        assert counts == [1, 2, 3, 4, 4, 0]

    async def test_revive_clears_the_counts(self, store: FullStore, clock: FakeClock) -> None:
        """D4: the counts of a revived queue start at 0; its snooze continues."""
        await add(store, "a/1")
        await snoozes(store, clock, Unreachable("DNS"), 5)
        await steer(store, key("a"), Revive())

        assert await state(store) == (QueueState.SNOOZED, "unreachable")
        assert (await queue(store)).errors_in_row == 0
        clock.advance(300)
        assert (await one(store)).manners.unreachable_in_row == 0
        assert (await queue(store)).errors_in_row == 0

    async def test_revive_clears_every_row(self, store: FullStore, clock: FakeClock) -> None:
        """D4: also of a queue that is not retired; the level stays."""
        await add(store, "a/1", "a/2", "a/3")
        await visit(store, Throttled())
        await again(store, clock, Blocked("challenge"))
        await again(store, clock, OUTCOMES["failed"])
        errors = (await queue(store)).errors_in_row
        await steer(store, key("a"), Revive())
        assert (errors, (await queue(store)).errors_in_row) == (3, 0)
        clock.advance(3600)
        lease = await one(store)

        manners = lease.manners
        assert (manners.throttles_in_row, manners.blocks_in_row, manners.level) == (0, 0, 1)

    async def test_a_visit_in_flight_may_retire_its_queue(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D4: what is pending is held, what is in flight is finished as ever."""
        await configure(store, delay=0.0, max_in_flight=2)
        await add(store, "a/1", "a/2", "a/3")
        await snoozes(store, clock, Unreachable("DNS"), 4)
        first, second = await claim(store, 2)
        await store.finish([throttled(first)])
        assert (await finish(store, done(second))).applied
        clock.advance(3600)

        assert (await one(store)).manners.unreachable_in_row == 0
