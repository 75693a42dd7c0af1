"""Conformance of counts: queues by state, tasks by priority, recoveries (C1, F8, O1, O5)."""

from __future__ import annotations

from outrider.core.outcome import Blocked, Done, Failed, Outcome, Throttled
from outrider.core.queue_action import Pause, Resume, Retire, Revive, Set, Snooze, Wake
from outrider.core.states import CrawlStatus
from outrider.store.protocol import FullStore, PriorityUpdate, TaskFilter
from outrider.testing.builders import done, failed, policy
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.export import COPY, copied
from outrider.testing.conformance.steps import (
    CRAWL,
    add,
    claim,
    configure,
    crawl,
    finish,
    key,
    named,
    one,
    page,
    record,
    steer,
    visit,
)

_STATES = ("retired", "paused", "empty", "busy", "snoozed", "ready", "inactive")


async def queues(store: FullStore) -> dict[str, int]:
    """How many queues are in each state, without zeros."""
    counts = (await crawl(store)).queues
    assert tuple(counts) == _STATES
    return {name: count for name, count in counts.items() if count}


async def bands(store: FullStore) -> dict[str, int]:
    """How many pending tasks are in each band, without zeros."""
    counts = (await crawl(store)).bands
    assert tuple(counts) == ("critical", "high", "normal", "low")
    return {name: count for name, count in counts.items() if count}


class CountsConformance:
    """Counts of the view of a crawl."""

    # ---- queues by state

    async def test_crawl_without_queues_has_every_state_at_zero(self, store: FullStore) -> None:
        """C1."""
        assert await queues(store) == {}
        assert await bands(store) == {}
        assert (await crawl(store)).recovered == 0

    async def test_queue_is_counted_through_a_visit(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C1: ready, busy, snoozed until a claim looks at it, busy, empty."""
        await add(store, "a/1", "a/2")
        assert await queues(store) == {"ready": 1}
        lease = await one(store)
        assert await queues(store) == {"busy": 1}
        await finish(store, done(lease))
        assert await queues(store) == {"snoozed": 1}
        clock.advance(60)
        assert await queues(store) == {"snoozed": 1}
        lease = await one(store)
        assert await queues(store) == {"busy": 1}
        await finish(store, done(lease))

        assert await queues(store) == {"empty": 1}

    async def test_claim_counts_the_queues_it_wakes(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E1: those whose time has come, also those it leases nothing of."""
        await add(store, "a/1", "b/1", "c/1", delay=5.0)
        assert await queues(store) == {"snoozed": 3}
        clock.advance(5)
        await one(store)

        assert await queues(store) == {"busy": 1, "ready": 2}

    async def test_queue_with_a_free_slot_is_ready_while_visits_last(
        self, store: FullStore
    ) -> None:
        """D2: and busy at its limit, or when nothing is left."""
        await configure(store, delay=0.0, max_in_flight=2)
        await add(store, "a/1", "a/2", "a/3", "b/1")
        await claim(store, 1)
        assert await queues(store) == {"ready": 2}
        await claim(store, 3)

        assert await queues(store) == {"busy": 2}

    async def test_add_to_an_empty_queue_is_counted(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C1: snoozed while its delay lasts, else ready."""
        await add(store, "a/1")
        await visit(store)
        assert await queues(store) == {"empty": 1}
        await add(store, "a/2")
        assert await queues(store) == {"snoozed": 1}
        clock.advance(60)
        await visit(store)
        clock.advance(60)
        assert await queues(store) == {"empty": 1}
        await add(store, "a/3")

        assert await queues(store) == {"ready": 1}

    async def test_add_to_a_snoozed_queue_whose_time_has_come_makes_it_ready(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E1: an add looks at its queue at once."""
        await add(store, "a/1", "a/2", "b/1", "b/2")
        for _ in range(2):
            await visit(store)
        clock.advance(60)
        assert await queues(store) == {"snoozed": 2}
        await add(store, "a/3")

        assert await queues(store) == {"ready": 1, "snoozed": 1}

    async def test_acts_of_operators_are_counted(self, store: FullStore) -> None:
        """E7: whatever a queue was before."""
        await add(store, "a/1", "b/1", "c/1", "d/1")
        await steer(store, key("a"), Pause())
        await steer(store, key("b"), Retire())
        await steer(store, key("c"), Snooze(60.0))
        assert await queues(store) == {"retired": 1, "paused": 1, "snoozed": 1, "ready": 1}
        await steer(store, key("a"), Retire())
        assert await queues(store) == {"retired": 2, "snoozed": 1, "ready": 1}
        await steer(store, "", Revive())
        await steer(store, "", Wake())
        assert await queues(store) == {"paused": 1, "snoozed": 1, "ready": 2}
        await steer(store, "", Resume())

        counts = await queues(store)
        assert counts == {"ready": 4}

    async def test_queue_of_a_rule_is_counted_when_it_is_created(self, store: FullStore) -> None:
        """A4: paused or retired by an override of its key."""
        await configure(store, keys={key("a"): {"paused": True}, key("b"): {"retired": True}})
        await add(store, "a/1", "b/1", "c/1")

        assert await queues(store) == {"retired": 1, "paused": 1, "ready": 1}

    async def test_inactive_queues_are_counted(self, store: FullStore) -> None:
        """E2: one is active at a time."""
        await configure(store, hold_queues=True, balance=10)
        await add(store, "a/1", "b/1", "c/1")
        assert await queues(store) == {"inactive": 3}
        await one(store)
        assert await queues(store) == {"busy": 1, "inactive": 2}
        await configure(store, balance=10)
        await steer(store, "", Set({}))

        assert await queues(store) == {"busy": 1, "ready": 2}

    async def test_queue_over_its_budget_is_counted_as_retired(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E1, E5: when it could be served again."""
        await configure(store, total_budget=1)
        await add(store, "a/1", "a/2")
        await visit(store)
        assert await queues(store) == {"snoozed": 1}
        clock.advance(60)
        await claim(store)

        assert await queues(store) == {"retired": 1}

    async def test_leases_by_fingerprint_and_loans_are_counted(self, store: FullStore) -> None:
        """C7, D5: a queue with nothing left but visits, or lent, is busy."""
        await add(store, "a/1", "b/1", "b/2", "b/3")
        leases = await named(store, "a/1")
        assert await queues(store) == {"busy": 1, "ready": 1}
        leases += await claim(store, 2, lend=True, per_queue=2)
        assert await queues(store) == {"busy": 2}
        await store.release([lease.id for lease in leases])

        assert (await queues(store)).keys() <= {"ready", "snoozed"}

    async def test_expired_lease_is_counted(self, store: FullStore, clock: FakeClock) -> None:
        """H4: the queue waits for its delay."""
        await add(store, "a/1")
        await one(store, lease_for=5.0)
        clock.advance(5)
        await store.expire(limit=10)

        assert await queues(store) == {"snoozed": 1}

    async def test_drop_and_replay_are_counted(self, store: FullStore) -> None:
        """C10, G2: a replayed task waits for a claim."""
        await add(store, "a/1", "b/1")
        await store.drop(CRAWL, TaskFilter(key=key("b")), dry_run=False)
        assert await queues(store) == {"empty": 1, "ready": 1}
        await visit(store, Failed("cut"), policy=policy(max_retries=0))
        assert await queues(store) == {"empty": 2}
        await store.replay(CRAWL, TaskFilter(), dry_run=False)

        assert await queues(store) == {"empty": 1, "snoozed": 1}

    async def test_cancelled_crawl_has_empty_queues(self, store: FullStore) -> None:
        """I3: those that are retired or paused are shown as such."""
        await add(store, "a/1", "b/1", "c/1", "d/1", priority=-500.0)
        await steer(store, key("a"), Pause())
        await steer(store, key("b"), Retire())
        await one(store)
        await store.set_status(CRAWL, CrawlStatus.CANCELLED)

        assert await queues(store) == {"retired": 1, "paused": 1, "empty": 2}
        assert await bands(store) == {}

    # ---- pending tasks by priority

    async def test_bands_begin_at_the_named_priorities(self, store: FullStore) -> None:
        """F8: critical to -1000, high to -100, low from 100."""
        given = (-1e9, -1000.0, -999.9, -100.0, -99.9, 0.0, 99.9, 100.0, 1e9)
        await store.add([page(f"a/{n}", priority=value) for n, value in enumerate(given)])

        assert await bands(store) == {"critical": 2, "high": 2, "normal": 3, "low": 2}

    async def test_only_pending_tasks_are_in_a_band(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """F8: leased, released, failed, delayed, done, dropped."""
        await add(store, "a/1", priority=-1000.0)
        await add(store, "b/1", priority=200.0, delay=3600.0)
        assert await bands(store) == {"critical": 1, "low": 1}
        lease = await one(store)
        assert await bands(store) == {"low": 1}
        await store.release([lease.id])
        assert await bands(store) == {"critical": 1, "low": 1}
        clock.advance(60)
        await finish(store, failed(await one(store), retry_in=5.0))
        assert await bands(store) == {"critical": 1, "low": 1}
        clock.advance(60)
        await finish(store, done(await one(store)))
        assert await bands(store) == {"low": 1}
        await store.drop(CRAWL, TaskFilter(key=key("b")), dry_run=False)

        assert await bands(store) == {}

    async def test_links_of_a_page_and_its_revisit_are_counted(self, store: FullStore) -> None:
        """H6, G3: a revisit has the priority of its verdict."""
        await add(store, "a/1", priority=-1000.0)
        links = [page("b/1", priority=-200.0), page("b/2"), page("b/3", priority=150.0)]
        await finish(store, done(await one(store), links=links, revisit_in=100.0))
        view = await record(store, "a/1")

        assert -100 < view.priority < 100
        assert await bands(store) == {"high": 1, "normal": 2, "low": 1}

    async def test_other_priorities_move_tasks_between_bands(self, store: FullStore) -> None:
        """B3, C8, F10: raised, gathered, updated."""
        await add(store, "a/1", "a/2", "a/3", priority=100.0)
        await add(store, "a/1", priority=-1000.0, known="raise")
        await add(store, "a/2", priority=-50.0, known="gather")
        assert await bands(store) == {"critical": 1, "normal": 1, "low": 1}
        number = (await record(store, "a/3")).number
        await store.update_priorities(CRAWL, [PriorityUpdate(number, 100.0, -100.0)])
        await store.update_priorities(CRAWL, [PriorityUpdate(number, 100.0, 500.0)])

        assert await bands(store) == {"critical": 1, "high": 1, "normal": 1}

    async def test_known_task_comes_back_in_the_band_of_its_link(self, store: FullStore) -> None:
        """B3: a revisit by an add."""
        await add(store, "a/1", priority=-1000.0)
        await visit(store)
        await add(store, "a/1", priority=300.0, known="revisit")

        assert await bands(store) == {"low": 1}

    async def test_dead_task_is_replayed_into_its_band(self, store: FullStore) -> None:
        """G2."""
        await add(store, "a/1", priority=-1000.0)
        await visit(store, Failed("cut"), policy=policy(max_retries=0))
        assert await bands(store) == {}
        await store.replay(CRAWL, TaskFilter(), dry_run=False)

        assert await bands(store) == {"critical": 1}

    # ---- recoveries

    async def test_visit_of_a_blocked_task_that_is_done_has_recovered(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """O1: once, however often it was blocked; failures in between change nothing."""
        await add(store, "a/1")
        for outcome in (Blocked("challenge"), Failed("cut"), Blocked("challenge")):
            await later_visit(store, clock, outcome)
        assert ((await record(store, "a/1")).blocks, (await crawl(store)).recovered) == (2, 0)
        await later_visit(store, clock, Done(status=200))

        assert ((await record(store, "a/1")).blocks, (await crawl(store)).recovered) == (0, 1)

    async def test_visit_that_was_never_blocked_has_not_recovered(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """O1: nor has one that was throttled or failed."""
        await add(store, "a/1")
        for outcome in (Failed("cut"), Throttled(), Done(status=200)):
            await later_visit(store, clock, outcome)

        assert (await crawl(store)).recovered == 0

    async def test_every_recovery_is_counted_once(self, store: FullStore, clock: FakeClock) -> None:
        """O1, G3: a revisit begins at 0; an answer from the cache is a visit that is done."""
        await add(store, "a/1")
        for outcome in (Blocked("challenge"), Done(status=200, revisit_in=1.0), Done(status=200)):
            await later_visit(store, clock, outcome)
        assert (await crawl(store)).recovered == 1
        await add(store, "a/1", known="revisit")
        for outcome in (Blocked("challenge"), Done(status=200, from_cache=True)):
            await later_visit(store, clock, outcome)

        assert (await crawl(store)).recovered == 2

    async def test_replay_forgets_that_a_task_was_blocked(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B2: a restart, and so the visit after it is an ordinary one."""
        await add(store, "a/1")
        await visit(store, Blocked("challenge"))
        clock.advance(86_400)
        await visit(store, Failed("cut"), policy=policy(max_retries=0))
        await store.replay(CRAWL, TaskFilter(), dry_run=False)
        assert (await record(store, "a/1")).blocks == 0
        await later_visit(store, clock, Done(status=200))

        assert (await crawl(store)).recovered == 0

    # ---- export

    async def test_restored_crawl_has_the_same_counts(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """I5: and a task that was blocked before recovers afterwards."""
        await add(store, "a/1", "b/1", priority=-1000.0)
        await later_visit(store, clock, Blocked("challenge"))
        await later_visit(store, clock, Done(status=200))
        await later_visit(store, clock, Done(status=200))
        await add(store, "c/1", "d/1", priority=500.0)
        await later_visit(store, clock, Blocked("challenge"))
        await steer(store, key("d"), Pause())
        before = await crawl(store)
        await copied(store)
        after = await crawl(store, COPY)

        assert before.recovered == 1
        assert (after.queues, after.bands, after.recovered) == (
            before.queues,
            before.bands,
            before.recovered,
        )
        clock.advance(86_400)
        (lease,) = await claim(store, crawl=COPY)
        await finish(store, done(lease))
        assert (await crawl(store, COPY)).recovered == 2


async def later_visit(store: FullStore, clock: FakeClock, outcome: Outcome) -> None:
    """Let a day pass, then claim one task and finish it."""
    clock.advance(86_400)
    await visit(store, outcome)
