"""Conformance of leased tasks that go back to their queue as their worker wants it (G1, C2)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Again, Blocked, Done, Failed, Outcome, Throttled
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import ACQUISITION
from outrider.store.protocol import FullStore
from outrider.testing.builders import again, done
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    add,
    claim,
    configure,
    crawl,
    drained,
    finish,
    mark,
    names,
    one,
    page,
    queue,
    record,
    visit,
    wakes_in,
)


class AgainConformance:
    """Tasks that go back without a failure, at times changed."""

    async def test_task_goes_back_without_a_failure(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """G1: pending and due at once; the visit counts as an attempt and as `again`."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", cost=2)
        lease = await one(store)
        clock.advance(5)

        finished = await finish(store, again(lease, reason="login"))

        assert (finished.applied, finished.state) == (True, TaskState.PENDING)
        view = await record(store, "a/1")
        assert (view.state, view.reason, view.due_at) == (TaskState.PENDING, "login", clock.now())
        assert (view.attempts, view.failures, view.crashes) == (1, 0, 0)
        assert (view.worker, view.finished_at, view.answer) == (None, None, None)
        assert (await queue(store)).spent == 2
        assert (await crawl(store)).outcomes == {"again": 1}
        assert (await crawl(store)).visits == 1
        assert (await one(store)).attempt == 2

    async def test_old_token_of_a_task_that_went_back_is_refused(self, store: FullStore) -> None:
        """H3: until it is leased again, a repeated finish is one that was applied before."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1")
        lease = await one(store)
        verdict = again(lease, front=True)
        assert (await finish(store, verdict)).applied

        repeated = await finish(store, verdict)
        assert (repeated.applied, repeated.state) == (True, None)
        assert (await record(store, "a/1")).attempts == 1
        await one(store)
        assert not (await finish(store, verdict)).applied

    async def test_task_goes_back_any_number_of_times(self, store: FullStore) -> None:
        """G1: it never dies of it."""
        await configure(store, max_retries=0, max_crashes=1, **NO_DELAY)
        await add(store, "a/1")
        for _ in range(9):
            await visit(store, Again("busy"))

        view = await record(store, "a/1")
        assert (view.state, view.attempts, view.failures) == (TaskState.PENDING, 9, 0)

    async def test_task_goes_back_after_a_delay(self, store: FullStore, clock: FakeClock) -> None:
        """G1, C6: from the finish on; its queue serves others meanwhile."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await finish(store, again(await one(store), delay=7.0))

        assert (await record(store, "a/1")).due_at == clock.now() + 7.0
        assert names(await claim(store, 9)) == ["a/2"]
        clock.advance(6.999)
        assert await claim(store) == []
        clock.advance(0.001)
        assert names(await claim(store)) == ["a/1"]

    async def test_reason_is_kept_in_the_history(self, store: FullStore, clock: FakeClock) -> None:
        """G2: of a visit that counts; without a visit, or a reason, there is no entry."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1")
        await finish(store, again(await one(store), reason="login"))
        await finish(store, again(await one(store), reason="no proxy", visited=False))
        assert (await record(store, "a/1")).reason == "no proxy"
        await finish(store, again(await one(store)))

        view = await record(store, "a/1")
        assert view.reason is None
        assert [tuple(entry) for entry in view.history] == [(clock.now(), "w", "login")]

    # ---- order

    @pytest.mark.parametrize("tie", ["fifo", "lifo", "shuffle"])
    async def test_task_keeps_its_place(self, store: FullStore, tie: str) -> None:
        """C2: as after a retry."""
        await configure(store, tie=tie, **NO_DELAY)
        await store.add([page(f"a/{n}", roll=n) for n in (1, 2, 3)])
        before = names(leases := await claim(store, 3))
        for lease in reversed(leases):
            await finish(store, again(lease))

        assert await drained(store) == before

    @pytest.mark.parametrize("tie", ["fifo", "lifo", "shuffle"])
    async def test_task_goes_to_the_front(self, store: FullStore, tie: str) -> None:
        """C2: before everything else of its queue and lane, also what was forced before."""
        await configure(store, tie=tie, **NO_DELAY)
        await store.add([page(f"a/{n}", roll=n) for n in (1, 2, 3)])
        last = (await claim(store, 3))[-1]
        await store.release([lease.id for lease in await claim(store, 3)])
        await store.add([page("a/4", precedence=0, roll=4)])
        await finish(store, again(last, front=True))

        view = await record(store, names([last])[0])
        assert view.precedence == 0
        assert names(await claim(store))[0] == names([last])[0]

    async def test_forced_task_of_better_priority_stays_before_the_front(
        self, store: FullStore
    ) -> None:
        """C2: precedence and priority come before the tie."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", priority=5.0)
        lease = await one(store)
        await add(store, "a/2", precedence=0, priority=4.0)
        await add(store, "a/3", precedence=0, priority=5.0)
        await finish(store, again(lease, front=True))

        assert await drained(store) == ["a/2", "a/1", "a/3"]

    async def test_front_stays_when_the_task_goes_back_again(self, store: FullStore) -> None:
        """C2: its place is kept from then on."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        _, second = await claim(store, 2)
        await finish(store, again(second, front=True))
        await finish(store, again(await one(store)))

        assert names(await claim(store)) == ["a/2"]

    async def test_task_goes_back_with_another_priority(self, store: FullStore) -> None:
        """C2, F8: an explicit one, by number or name; it keeps its tie."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3")
        first, second, third = await claim(store, 3)
        await finish(store, again(third, priority="high"))
        await finish(store, again(second, priority=7))
        await finish(store, again(first, priority=7.0))

        view = await record(store, "a/3")
        assert (view.priority, view.breakdown.source) == (-100.0, "explicit")
        assert await drained(store) == ["a/3", "a/1", "a/2"]

    # ---- what the task is

    async def test_task_goes_back_with_another_type(self, store: FullStore) -> None:
        """G1, C4, F8: with the lane and the score of that type, counted as such (O5)."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", depth=2, tag="t", priority=3.0)
        await finish(store, again(await one(store), type="article"))

        view = await record(store, "a/1")
        assert (view.type, view.lane, view.tag) == ("article", "acquisition", "t")
        assert view.priority != 3.0
        assert (await crawl(store)).types["article"]["pending"] == 1
        assert not (await crawl(store)).types.get("page", {}).get("pending")
        lease = await one(store)
        assert (lease.type, lease.lane, lease.priority) == ("article", ACQUISITION, view.priority)

    async def test_explicit_priority_wins_over_the_score_of_the_type(
        self, store: FullStore
    ) -> None:
        """F8."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1")
        await finish(store, again(await one(store), type="article", priority=-4.5))

        assert (await record(store, "a/1")).priority == -4.5

    async def test_task_goes_back_with_other_meta(self, store: FullStore) -> None:
        """G1: replaced as a whole; without a word it stays, also through later visits."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", meta=b'{"a":1,"b":2}', via="https://v.example/")
        await finish(store, again(await one(store), meta={"a": "é", "deep": {"x": [1, None]}}))

        lease = await one(store)
        assert lease.meta == {"a": "é", "deep": {"x": [1, None]}}
        await finish(store, again(lease, type="nav"))
        view = await record(store, "a/1")
        assert (view.meta, view.via) == (lease.meta, "https://v.example/")
        await finish(store, again(await one(store), meta={}))
        assert (await record(store, "a/1")).meta == {}
        assert (await one(store)).meta == {}

    async def test_meta_of_a_task_that_is_added_again_is_the_links(self, store: FullStore) -> None:
        """B3: a revisit is as its link describes it."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", meta=b'{"a":1}')
        await finish(store, again(await one(store), meta={"b": 2}))
        await visit(store)
        assert (await record(store, "a/1")).meta == {"b": 2}
        await add(store, "a/1", known="revisit", meta=b'{"c":3}')

        assert (await one(store)).meta == {"c": 3}

    async def test_changes_survive_export_and_restore(self, store: FullStore) -> None:
        """I5: place and fields, into another crawl of the same store."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        _, second = await claim(store, 2)
        await finish(store, again(second, meta={"b": 2}, priority=0.0, front=True))
        await store.release([lease.id for lease in await claim(store, 2)])
        exported = await store.export(CRAWL)
        await store.restore("other", exported.items)
        while exported.after is not None:
            exported = await store.export(CRAWL, after=exported.after)
            await store.restore("other", exported.items)

        (lease,) = await claim(store, crawl="other")
        assert (names([lease]), lease.meta) == (["a/2"], {"b": 2})

    async def test_links_are_added_with_the_visit(self, store: FullStore) -> None:
        """H6: whatever its outcome."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1")
        await visit(store, Again("busy"), links=[page("b/1")])

        assert sorted(await drained(store)) == ["a/1", "b/1"]

    # ---- the host

    async def test_host_waits_its_delay_after_the_visit(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: computed from the visit's seconds, as after any visit."""
        await configure(store, factor=5.0)
        await add(store, "a/1", "a/2")
        lease = await one(store)
        clock.advance(2)
        await finish(store, again(lease, seconds=2.0))

        view = await queue(store)
        assert (view.wakes_in, view.delay, view.last_visit_at) == (10.0, 10.0, clock.now())
        assert view.in_flight == 0

    async def test_crawl_delay_of_the_visit_holds_from_then_on(self, store: FullStore) -> None:
        """D2: as of any visit."""
        await add(store, "a/1")
        await finish(store, again(await one(store), crawl_delay=9.0))

        assert await wakes_in(store) == 9.0

    async def test_visit_is_no_sign_of_how_the_host_is(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D3, D4: counts in a row neither grow nor end, and the level stays."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "b/1")
        for _ in range(2):
            await visit(store, Blocked("challenge"))
            clock.advance(100_000)
        before = {host: await queue(store, host) for host in "ab"}
        lease = next(one for one in await claim(store, 2) if one.key == "a.example")
        await finish(store, again(lease))

        view = await queue(store)
        assert (view.errors_in_row, view.level) == (before["a"].errors_in_row, before["a"].level)
        (lease,) = await claim(store)
        assert lease.manners.blocks_in_row == before["a"].errors_in_row == 1

    async def test_level_needs_its_done_in_a_row_all_the_same(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D3: nine done, one again, one done: the level is lower after ten that were done."""
        await configure(store, **NO_DELAY)
        await add(store, *(f"a/{n}" for n in range(20)))
        await visit(store, Throttled())
        outcomes: list[Outcome] = [*[Done(200)] * 9, Again("busy")]
        for outcome in outcomes:
            clock.advance(100_000)
            await visit(store, outcome)
        assert (await queue(store)).level == 1
        clock.advance(100_000)
        await visit(store)

        assert (await queue(store)).level == 0

    async def test_without_a_visit_nothing_of_the_host_changes(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D7, E3: no delay begins, the cost is refunded, no attempt counts."""
        await configure(store, delay=5.0)
        await add(store, "a/1", cost=3)
        lease = await one(store)
        clock.advance(1)
        await finish(store, again(lease, visited=False, crawl_delay=99.0, meta={"n": 1}))

        view = await queue(store)
        assert (view.wakes_in, view.spent, view.last_visit_at) == (0.0, 0, None)
        assert (await record(store, "a/1")).attempts == 0
        assert (await crawl(store)).outcomes == {"again": 1}
        lease = await one(store)
        assert (lease.attempt, lease.meta, lease.manners.crawl_delay) == (1, {"n": 1}, 0.0)

    async def test_refund_brings_back_a_queue_over_its_budget(self, store: FullStore) -> None:
        """E3, E5: as every refund does."""
        await configure(store, total_budget=1, **NO_DELAY)
        await add(store, "a/1", "a/2")
        lease = await one(store)
        assert await claim(store) == []
        await finish(store, again(lease, visited=False))

        assert names(await claim(store)) == ["a/1"]

    # ---- other leases

    async def test_lent_task_goes_back_to_its_queue(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C7: it waits for the end of the loan, as its fields say."""
        await configure(store, delay=5.0)
        await add(store, "a/1", "a/2", "a/3")
        first, second = await claim(store, 2, lend=True, per_queue=2)
        await finish(store, again(second, front=True))
        assert await claim(store) == []
        await finish(store, done(first))
        clock.advance(5)

        assert names(await claim(store)) == ["a/2"]

    @pytest.mark.parametrize("visited", [True, False])
    async def test_task_leased_by_fingerprint_goes_back(
        self, store: FullStore, clock: FakeClock, *, visited: bool
    ) -> None:
        """D5: with a visit, its host's delay begins."""
        await configure(store, delay=5.0)
        await add(store, "a/1", "a/2")
        (lease,) = await claim(store, fingerprints=[mark("a/1")])
        clock.advance(1)
        await finish(store, again(lease, visited=visited))

        view = await queue(store)
        assert (view.wakes_in, view.named, view.in_flight) == (5.0 if visited else 0.0, 0, 0)

    async def test_cancelled_crawl_takes_nothing_back(self, store: FullStore) -> None:
        """I3: its leases are refused."""
        await add(store, "a/1")
        lease = await one(store)
        await store.set_status(CRAWL, CrawlStatus.CANCELLED)

        assert not (await finish(store, again(lease, meta={"n": 1}))).applied
        assert (await record(store, "a/1")).meta == {}

    async def test_task_that_goes_back_keeps_the_run_open(self, store: FullStore) -> None:
        """I2: until it ends otherwise."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1")
        await visit(store, Again(delay=60.0))
        assert await claim(store) == []
        assert (await crawl(store)).status is CrawlStatus.RUNNING

    async def test_retries_count_on_after_it(self, store: FullStore, clock: FakeClock) -> None:
        """G1: failures are neither counted nor forgotten."""
        await configure(store, max_retries=3, **NO_DELAY)
        await add(store, "a/1")
        failed = [Failed(reason, retry_in=0.0) for reason in ("one", "two")]
        outcomes: list[Outcome] = [failed[0], Again(), failed[1], Again()]
        for outcome in outcomes:
            await visit(store, outcome)
            clock.advance(60)

        view = await record(store, "a/1")
        assert (view.attempts, view.failures) == (4, 2)
        assert [error for _, _, error in view.history] == ["one", "two"]
