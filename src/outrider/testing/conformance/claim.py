"""Conformance of `claim`: what is leased, and how it spreads over queues (C1, C5, D2, H1)."""

from __future__ import annotations

from outrider.core.outcome import Failed
from outrider.core.queue_action import Pause, Retire
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import ACQUISITION, PolitenessState
from outrider.store.protocol import FullStore
from outrider.testing.builders import done, failed, rules
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    add,
    ask,
    claim,
    configure,
    crawl,
    finish,
    key,
    mark,
    named,
    names,
    one,
    page,
    queue,
    record,
    state,
    steer,
    url,
    visit,
)


class ClaimConformance:
    """What `claim` leases."""

    async def test_an_empty_crawl_leases_no_task(self, store: FullStore) -> None:
        """C6: only an add can bring work, so there is no time to wait for."""
        claimed = await ask(store, 5)

        assert claimed.leases == []
        assert claimed.wake_in is None
        assert claimed.status is CrawlStatus.RUNNING

    async def test_a_lease_carries_the_task(self, store: FullStore) -> None:
        """H1: everything a handler needs."""
        await add(
            store,
            "a/1",
            type="article",
            lane=ACQUISITION,
            depth=2,
            priority=1.5,
            cost=4,
            origin="sitemap",
            via=url("a/0"),
            tag="news",
            meta=b'{"n":1}',
            text="HTTPS://A.example/1#é",
            typed_by="types.rules.1",
        )

        lease = await one(store, worker="w7", lease_for=45.0)

        assert (lease.crawl, lease.url, lease.key) == (CRAWL, url("a/1"), key("a"))
        assert (lease.about.fingerprint, lease.about.lane) == (mark("a/1"), ACQUISITION)
        assert (lease.type, lease.depth, lease.priority) == ("article", 2, 1.5)
        assert (lease.about.cost, lease.about.precedence) == (4, 1)
        assert (lease.origin, lease.via, lease.tag) == ("sitemap", url("a/0"), "news")
        assert (lease.meta, lease.worker, lease.lease_for) == ({"n": 1}, "w7", 45.0)
        assert lease.text == "HTTPS://A.example/1#é"
        assert lease.about.typed_by == "types.rules.1"
        assert lease.store == store.id

    async def test_a_lease_of_a_fresh_queue_has_no_past(self, store: FullStore) -> None:
        """D3, D4: every count the verdict builds on starts at 0."""
        await configure(store, min_delay=2.0)
        await add(store, "a/1")

        lease = await one(store)

        assert (lease.attempt, lease.failures, lease.throttles) == (1, 0, 0)
        assert lease.manners == PolitenessState()
        assert lease.rules == rules(min_delay=2.0).queue

    async def test_lease_says_how_long_its_task_was_due(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """O1: from the end of its delay on; a retry is due again when its own delay is over."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", delay=10.0)
        clock.advance(12.5)
        first = await one(store)
        clock.advance(1)
        await finish(store, failed(first, retry_in=5.0))
        clock.advance(8)
        second = await one(store)
        clock.advance(2)
        await store.release([second.id])
        clock.advance(4)
        (third,) = await named(store, "a/1")

        assert [lease.waited for lease in (first, second, third)] == [2.5, 3.0, 4.0]

    async def test_lease_says_how_long_its_host_rested(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """O1: since a visit of its queue last ended or was released, whichever worker made it."""
        await configure(store, delay=3.0)
        await add(store, "a/1", "a/2", "a/3", "b/1")
        first = {lease.key: lease for lease in await claim(store, 2, worker="w1")}
        clock.advance(2)
        await finish(store, done(first[key("a")]))
        clock.advance(7.5)
        second = await one(store, worker="w2")
        await store.release([second.id])
        clock.advance(3.5)
        (by_name,) = await named(store, "a/3")
        third = await one(store)

        assert [lease.gap for lease in first.values()] == [-1.0, -1.0]  # none had ended
        assert (second.key, second.gap, third.key, third.gap) == (key("a"), 7.5, key("a"), 3.5)
        assert by_name.gap == -1.0  # D5: no visit begins

    async def test_a_lease_carries_the_rules_of_its_queue(self, store: FullStore) -> None:
        """A4: as they hold for its key."""
        await configure(store, keys={".example": {"delay": 3.0}, key("a"): {"balance": 7}})
        await add(store, "a/1")

        lease = await one(store)

        assert (lease.rules.politeness.delay, lease.rules.budget.balance) == (3.0, 7)

    async def test_a_leased_task_reads_as_leased(self, store: FullStore, clock: FakeClock) -> None:
        """B2: with its worker and the time of the claim."""
        await add(store, "a/1")
        await one(store, worker="w7")

        view = await record(store, "a/1")

        assert (view.state, view.worker) == (TaskState.LEASED, "w7")
        assert (view.claimed_at, view.attempts) == (clock.now(), 0)
        assert ((await crawl(store)).leased, (await crawl(store)).pending) == (1, 0)

    async def test_a_claim_leases_up_to_its_limit(self, store: FullStore) -> None:
        """C6: no more than asked for; cut short, it says so with 0."""
        await add(store, "a/1", "b/1", "c/1")

        claimed = await ask(store, 2)

        assert names(claimed.leases) == ["a/1", "b/1"]
        assert claimed.wake_in == 0.0

    async def test_a_task_is_leased_once(self, store: FullStore) -> None:
        """H1: while a lease is valid no other claim gets the task."""
        await add(store, "a/1")
        await one(store)

        assert await claim(store, 5, worker="other") == []

    async def test_one_visit_at_a_time_per_queue(self, store: FullStore) -> None:
        """D2: max_in_flight is 1 unless set."""
        await add(store, "a/1", "a/2", "b/1")

        assert names(await claim(store, 5)) == ["a/1", "b/1"]
        assert (await state(store))[0] is QueueState.BUSY

    async def test_no_more_than_the_free_slots(self, store: FullStore) -> None:
        """D2, C5: in one claim and over several."""
        await configure(store, delay=0.0, max_in_flight=3)
        await add(store, "a/1", "a/2", "a/3", "a/4", "a/5")

        first = await claim(store, 2)
        second = await claim(store, 9)
        await store.finish([done(first[0])])
        third = await claim(store, 9)

        assert (names(first), names(second), names(third)) == (
            ["a/1", "a/2"],
            ["a/3"],
            ["a/4"],
        )

    async def test_per_queue_caps_a_claim(self, store: FullStore) -> None:
        """C5: at most so many of one queue; at its cap it counts as not ready."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3", priority=-1.0)
        await add(store, "b/1", "b/2", "b/3")

        claimed = await ask(store, 9, per_queue=2)

        assert names(claimed.leases) == ["a/1", "a/2", "b/1", "b/2"]
        assert claimed.wake_in == 0.0

    async def test_per_queue_counts_both_lanes(self, store: FullStore) -> None:
        """C5, C4: the cap is the queue's."""
        await configure(store, burst=1, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await add(store, "a/3", lane=ACQUISITION)

        assert names(await claim(store, 9, per_queue=2)) == ["a/1", "a/3"]

    async def test_per_queue_holds_for_one_claim(self, store: FullStore) -> None:
        """C5: the next claim may take as many again."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3")

        assert names(await claim(store, 9, per_queue=1)) == ["a/1"]
        assert names(await claim(store, 9, per_queue=1)) == ["a/2"]

    async def test_a_queue_at_its_cap_is_not_activated(self, store: FullStore) -> None:
        """C5, E2: spent after one task it stays inactive for this claim."""
        await configure(store, balance=1, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3")

        assert names(await claim(store, 9, per_queue=1)) == ["a/1"]
        assert (await state(store))[0] is QueueState.INACTIVE
        assert names(await claim(store, 9)) == ["a/2", "a/3"]

    async def test_a_capped_queue_lets_a_better_inactive_one_in(self, store: FullStore) -> None:
        """C5, E2: at its cap it is no ready queue that others would have to wait for."""
        await configure(store, hold_queues=True, **NO_DELAY)
        await add(store, "a/1", "a/2", "b/1")

        assert names(await claim(store, 2, per_queue=1)) == ["a/1", "b/1"]

    async def test_the_breadth_discount_spreads_a_claim(self, store: FullStore) -> None:
        """C5: the r-th of a queue competes at priority + c·(r−1)."""
        await configure(store, breadth_discount=2.0, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3", priority=0.0)
        await add(store, "b/1", "b/2", priority=3.0)

        assert names(await claim(store, 5)) == ["a/1", "a/2", "b/1", "a/3", "b/2"]

    async def test_without_a_discount_priority_alone_counts(self, store: FullStore) -> None:
        """C5: 0, the default, is off."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3", priority=0.0)
        await add(store, "b/1", "b/2", priority=3.0)

        assert names(await claim(store, 5)) == ["a/1", "a/2", "a/3", "b/1", "b/2"]

    async def test_the_discount_starts_again_with_each_claim(self, store: FullStore) -> None:
        """C5: it counts what this claim took."""
        await configure(store, breadth_discount=5.0, **NO_DELAY)
        await add(store, "a/1", "a/2", priority=0.0)
        await add(store, "b/1", priority=3.0)

        assert names(await claim(store) + await claim(store)) == ["a/1", "a/2"]

    async def test_the_discount_does_not_overrule_precedence(self, store: FullStore) -> None:
        """C5, C3: it moves the priority and nothing else."""
        await configure(store, breadth_discount=1e6, **NO_DELAY)
        await add(store, "a/1", "a/2", precedence=1)
        await add(store, "b/1", precedence=2)

        assert names(await claim(store, 3)) == ["a/1", "a/2", "b/1"]

    async def test_the_discount_counts_both_lanes(self, store: FullStore) -> None:
        """C5: the r-th task taken of the queue, whatever its lane."""
        await configure(store, breadth_discount=2.0, burst=1, **NO_DELAY)
        await add(store, "a/d")
        await store.add(
            [
                page("a/a", lane=ACQUISITION),
                page("b/a", lane=ACQUISITION, priority=1.0),
            ]
        )

        assert names(await claim(store, 3)) == ["a/d", "b/a", "a/a"]

    async def test_the_discount_means_nothing_in_a_round(self, store: FullStore) -> None:
        """C3: round-robin compares no priorities."""
        await configure(store, breadth_discount=9.0, order="round-robin", **NO_DELAY)
        await add(store, "a/1", "a/2")
        await add(store, "b/1", priority=99.0)

        assert names(await claim(store, 3)) == ["a/1", "b/1", "a/2"]

    async def test_paused_and_retired_queues_lend_nothing(self, store: FullStore) -> None:
        """C1: others are not held up by them."""
        await add(store, "a/1", "b/1", "c/1", priority=-1.0)
        await add(store, "d/1")
        for host, act in (("a", Pause()), ("b", Retire())):
            await steer(store, key(host), act)

        assert names(await claim(store, 9)) == ["c/1", "d/1"]

    async def test_a_queue_waits_for_its_slot_and_its_delay(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C1, D1: busy while visited, snoozed after, ready again."""
        await add(store, "a/1", "a/2")
        lease = await one(store)
        seen = [await state(store)]
        await finish(store, done(lease))
        seen.append(await state(store))
        clock.advance(1)
        seen.append(await state(store))

        assert seen == [
            (QueueState.BUSY, None),
            (QueueState.SNOOZED, "delay"),
            (QueueState.READY, None),
        ]

    async def test_a_blocked_host_hides_no_other(self, store: FullStore) -> None:
        """C3: however many tasks of blocked queues are better."""
        await configure(store, min_delay=600.0)
        await add(store, *(f"a/{n}" for n in range(200)), priority=-9.0)
        await add(store, "b/1")
        await visit(store)

        assert names(await claim(store)) == ["b/1"]

    async def test_attempts_are_counted_from_one(self, store: FullStore, clock: FakeClock) -> None:
        """B1: a failure counts, a release does not."""
        await add(store, "a/1")
        await store.release([(await one(store)).id])
        clock.advance(10)
        first = await visit(store, Failed("HTTP 500"))
        clock.advance(10)

        assert (first.attempt, (await one(store)).attempt) == (1, 2)

    async def test_claims_of_two_workers_share_no_task(self, store: FullStore) -> None:
        """H1: what one got the other does not."""
        await configure(store, **NO_DELAY)
        await add(store, *(f"a/{n}" for n in range(10)))

        mine, other = await claim(store, 5, worker="m"), await claim(store, 9, worker="o")

        assert len(mine) == len(other) == 5
        assert not {lease.task for lease in mine} & {lease.task for lease in other}
        assert (await queue(store)).in_flight == 10
