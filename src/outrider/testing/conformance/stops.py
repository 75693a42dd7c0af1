"""Conformance of ends: cancelled crawls, and pauses at a limit (I3, I4)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Failed
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.store.protocol import FullStore, TaskFilter
from outrider.testing.builders import done, policy
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
    names,
    one,
    open_crawls,
    page,
    queue,
    record,
    state,
    status,
    visit,
)

RUNNING, PAUSED = CrawlStatus.RUNNING, CrawlStatus.PAUSED
FINISHED, CANCELLED = CrawlStatus.FINISHED, CrawlStatus.CANCELLED


class StopsConformance:
    """Cancelling, limits."""

    async def test_a_cancelled_crawl_reads_as_dropped(self, store: FullStore) -> None:
        """I3: its pending and leased tasks, with the reason; what had ended stays."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3", tag="t")
        await visit(store)
        await one(store)

        assert await store.set_status(CRAWL, CANCELLED) is CANCELLED

        view = await crawl(store)
        assert (view.known, view.done, view.dropped) == (3, 1, 2)
        assert (view.pending, view.leased, view.held) == (0, 0, 0)
        assert dict(view.types) == {"page": {"done": 1, "dropped": 2}}
        assert dict(view.tags) == {"t": {"done": 1, "dropped": 2}}
        for name in ("a/2", "a/3"):
            task = await record(store, name)
            assert (task.state, task.reason, task.worker) == (TaskState.DROPPED, "cancelled", None)

    async def test_a_cancelled_crawls_queues_are_empty(self, store: FullStore) -> None:
        """I3: nothing waits, nothing is in flight."""
        await add(store, "a/1", "a/2", "a/3")
        await one(store)
        await store.set_status(CRAWL, CANCELLED)

        view = await queue(store)
        assert (view.state, view.pending, view.in_flight) == (QueueState.EMPTY, 0, 0)
        assert (view.dropped, view.delayed, view.next_url) == (3, 0, None)
        assert view.wakes_in is None
        assert (await store.heatmap(CRAWL)).total == 0

    async def test_a_cancelled_crawl_refuses_its_leases(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """I3: finish, extend, release and expire change nothing."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        ended = await visit(store)
        lease = await one(store)
        await store.set_status(CRAWL, CANCELLED)
        before = await crawl(store)

        assert not (await finish(store, done(lease, links=[page("a/3")]))).applied
        assert not (await finish(store, done(ended))).applied
        assert await store.extend([lease.id], lease_for=60.0) == set()
        assert await store.release([lease.id]) == set()
        clock.advance(600)
        assert await store.expire(limit=9) == 0
        assert await crawl(store) == before

    async def test_a_cancelled_crawl_refuses_adds_and_claims(self, store: FullStore) -> None:
        """I1: refused as `cancelled`, known or not."""
        await add(store, "a/1", "a/2")
        await visit(store)
        await store.set_status(CRAWL, CANCELLED)

        answers = await add(store, "a/1", "a/3") + await add(store, "a/1", known="revisit")

        assert [answer.reason for answer in answers] == ["cancelled"] * 3
        assert not any(answer.added for answer in answers)
        claimed = await ask(store, 5)
        assert (claimed.leases, claimed.wake_in, claimed.status) == ([], None, CANCELLED)

    async def test_a_cancelled_crawl_stays_cancelled(self, store: FullStore) -> None:
        """I1: there is no way back, nor anything to do with its tasks."""
        await add(store, "a/1", "b/1")
        await visit(store, Failed("HTTP 500"), policy=policy(max_retries=0))
        await store.set_status(CRAWL, CANCELLED)
        for way in (RUNNING, PAUSED, CANCELLED):
            assert await store.set_status(CRAWL, way) is CANCELLED

        counts = [
            (await verb(CRAWL, TaskFilter(), dry_run=dry_run)).count
            for verb in (store.drop, store.replay, store.purge)
            for dry_run in (True, False)
        ]

        assert counts == [0] * 6
        assert ((await crawl(store)).dead, (await crawl(store)).dropped) == (1, 1)

    async def test_a_crawl_may_be_cancelled_whenever(self, store: FullStore) -> None:
        """I1: paused or finished."""
        await open_crawls(store, "x", "y")
        for name in ("x", "y"):
            await add(store, "a/1", crawl=name)
        await store.set_status("x", PAUSED)
        await finish(store, done(await one(store, crawl="y")))
        await claim(store, crawl="y")

        assert [await store.set_status(name, CANCELLED) for name in ("x", "y")] == [CANCELLED] * 2

    @pytest.mark.parametrize(
        ("limits", "reason"),
        [
            ({"done": 2}, "limit-done"),
            ({"bytes": 1000}, "limit-bytes"),
            ({"done": 2, "bytes": 1000}, "limit-done"),
        ],
    )
    async def test_a_limit_of_visits_or_bytes_pauses(
        self, store: FullStore, limits: dict[str, float], reason: str
    ) -> None:
        """I4: reached, the crawl is paused with the reason; visits in flight continue."""
        await configure(store, limits=limits, **NO_DELAY)
        await add(store, *(f"a/{n}" for n in range(5)))
        leases = await claim(store, 3)
        await finish(store, done(leases[0], bytes=500))
        assert (await crawl(store)).status is RUNNING

        await finish(store, done(leases[1], bytes=500))

        assert await status(store) == (PAUSED, reason)
        assert await claim(store) == []
        assert (await finish(store, done(leases[2]))).applied

    async def test_a_limit_of_tasks_pauses(self, store: FullStore) -> None:
        """I4: known tasks; the batch that reaches it is taken whole."""
        await configure(store, limits={"tasks": 2})
        await add(store, "a/1")
        assert (await crawl(store)).status is RUNNING

        answers = await add(store, "a/2", "a/3")

        assert all(answer.added for answer in answers)
        assert await status(store) == (PAUSED, "limit-tasks")

    async def test_a_limit_of_tasks_counts_links(self, store: FullStore) -> None:
        """I4, H6: found by a page as well as added."""
        await configure(store, limits={"tasks": 2})
        await add(store, "a/1")
        await finish(store, done(await one(store), links=[page("a/2")]))

        assert await status(store) == (PAUSED, "limit-tasks")

    async def test_a_limit_of_time_pauses(self, store: FullStore, clock: FakeClock) -> None:
        """I4: counted since the first task; the claim that comes too late gets nothing."""
        await configure(store, limits={"seconds": 60.0})
        clock.advance(1000)
        assert (await ask(store)).status is RUNNING
        await add(store, "a/1")
        clock.advance(59.999)
        assert (await ask(store)).status is RUNNING
        clock.advance(0.001)

        claimed = await ask(store)

        assert (claimed.leases, claimed.status) == ([], PAUSED)
        assert await status(store) == (PAUSED, "limit-seconds")

    async def test_a_limit_still_reached_pauses_again(self, store: FullStore) -> None:
        """I4: resuming alone does not lift it; a higher limit does."""
        await configure(store, limits={"tasks": 1})
        await add(store, "a/1")
        await store.set_status(CRAWL, RUNNING)
        assert (await ask(store)).status is PAUSED

        await configure(store, limits={"tasks": 9})
        await store.set_status(CRAWL, RUNNING)

        assert names(await claim(store)) == ["a/1"]

    async def test_a_limit_does_not_pause_a_paused_crawl(self, store: FullStore) -> None:
        """I4: the reason it was paused for stays."""
        await configure(store, limits={"tasks": 1})
        await store.set_status(CRAWL, PAUSED, "lunch")
        await add(store, "a/1")

        assert await status(store) == (PAUSED, "lunch")

    async def test_no_task_is_leased_at_a_reached_limit(self, store: FullStore) -> None:
        """I4: checked before leasing, so no claim exceeds it."""
        await configure(store, limits={"tasks": 1})
        await add(store, "a/1")

        claimed = await ask(store)

        assert (claimed.leases, claimed.status, claimed.wake_in) == ([], PAUSED, None)
        assert (await state(store))[0] is QueueState.READY
