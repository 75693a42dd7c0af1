"""Conformance of notifications: a verb that brings work wakes the claims that wait for it (C6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from outrider.core.outcome import Done, Failed
from outrider.core.queue_action import Pause, QueueAction, Resume, Retire, Revive, Set, Snooze, Wake
from outrider.core.states import CrawlStatus
from outrider.core.task import Lease
from outrider.store.protocol import FullStore, TaskFilter
from outrider.testing.builders import done, verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    add,
    ask,
    configure,
    finish,
    key,
    one,
    pages,
    steer,
)

NOTIFY_TIMEOUT: Final = 20.0  # real seconds, for a notification that must come


class Waiting:
    """A claim that found too little and waits: whether it was notified."""

    def __init__(self, rung: asyncio.Event) -> None:
        self._rung = rung

    async def is_notified(self) -> bool:
        """Whether a notification comes."""
        try:
            async with asyncio.timeout(NOTIFY_TIMEOUT):
                await self._rung.wait()
        except TimeoutError:
            return False
        return True

    def has_heard(self) -> bool:
        """Whether a notification has come by now."""
        return self._rung.is_set()


@asynccontextmanager
async def waiting(store: FullStore, crawl: str = CRAWL) -> AsyncIterator[Waiting]:
    """Subscribe, and claim until nothing is left."""
    if store.notifies == "never":
        pytest.skip("a store without notifications: its callers poll")
    rung = asyncio.Event()
    end = store.subscribe(crawl, rung.set)
    waits = Waiting(rung)
    if store.notifies == "mostly":  # once its connection is made
        assert await waits.is_notified()
    assert not (await ask(store, crawl=crawl)).leases
    for _ in range(3):
        await asyncio.sleep(0)
    rung.clear()
    try:
        yield waits
    finally:
        end()


async def busy(store: FullStore, *names: str) -> Lease:
    """Lease the first of these pages of one queue; the others wait for its slot."""
    await configure(store, delay=0.0)
    await add(store, *names)
    return await one(store)


class NotificationsConformance:
    """Which verbs notify."""

    @pytest.mark.parametrize("delay", [0.0, 50.0])
    async def test_an_add_notifies(self, store: FullStore, delay: float) -> None:
        """C6: also of a task that is due later, if that is sooner than all others."""
        await add(store, "a/1", delay=100.0)
        async with waiting(store) as waits:
            await add(store, "b/1", delay=delay)

            assert await waits.is_notified()

    async def test_a_revisit_notifies(self, store: FullStore) -> None:
        """B3: a known task that becomes pending is work as well."""
        lease = await busy(store, "a/1")
        await finish(store, done(lease))
        await add(store, "b/1", delay=100.0)
        async with waiting(store) as waits:
            await store.add(pages("a/1", known="revisit"))

            assert await waits.is_notified()

    async def test_a_finish_notifies_of_the_slot(self, store: FullStore) -> None:
        """D2: the queue has a free slot again."""
        lease = await busy(store, "a/1", "a/2")
        async with waiting(store) as waits:
            await finish(store, done(lease))

            assert await waits.is_notified()

    async def test_a_finish_notifies_of_links(self, store: FullStore) -> None:
        """H6: what the page found."""
        lease = await busy(store, "a/1")
        async with waiting(store) as waits:
            await finish(store, verdict(lease, Done(200), links=pages("b/1")))

            assert await waits.is_notified()

    async def test_a_finish_notifies_of_a_retry(self, store: FullStore) -> None:
        """G1: the task is pending again."""
        lease = await busy(store, "a/1")
        async with waiting(store) as waits:
            await finish(store, verdict(lease, Failed("x", retry_in=3.0)))

            assert await waits.is_notified()

    async def test_the_last_finish_notifies(self, store: FullStore) -> None:
        """I2: the next claim ends the run, so claims that wait have to know."""
        if store.notifies != "always":
            pytest.skip("where notifications may be lost, a poll ends the run")
        lease = await busy(store, "a/1")
        async with waiting(store) as waits:
            await finish(store, done(lease))

            assert await waits.is_notified()

    async def test_a_release_notifies(self, store: FullStore) -> None:
        """H5: the task is pending again."""
        lease = await busy(store, "a/1")
        async with waiting(store) as waits:
            await store.release([lease.id])

            assert await waits.is_notified()

    async def test_an_expiry_notifies(self, store: FullStore, clock: FakeClock) -> None:
        """H4: so does the end of a worker that is gone, whichever call finds it."""
        await busy(store, "a/1")
        async with waiting(store) as waits:
            clock.advance(61.0)
            assert await store.expire(limit=10) == 1

            assert await waits.is_notified()

    async def test_a_replay_notifies(self, store: FullStore, clock: FakeClock) -> None:
        """G2: a dead task is pending again."""
        await configure(store, delay=0.0, max_crashes=1)
        await add(store, "a/1")
        await one(store)
        clock.advance(61.0)
        assert await store.expire(limit=1) == 1  # dead
        await add(store, "b/1", delay=100.0)
        async with waiting(store) as waits:
            await store.replay(CRAWL, TaskFilter(), dry_run=False)

            assert await waits.is_notified()

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (Pause(), Resume()),
            (Retire(), Revive()),
            (Set({"paused": True}), Set({"paused": False})),
            (Set({"total_budget": 0}), Set({"total_budget": -1})),
        ],
    )
    async def test_an_operators_act_notifies(
        self, store: FullStore, before: QueueAction, after: QueueAction
    ) -> None:
        """E5, E7: what was excluded can be served."""
        await configure(store, **NO_DELAY)
        await add(store, "b/1", delay=1000.0)
        await add(store, "a/1")
        await steer(store, key("a"), before)
        async with waiting(store) as waits:
            await steer(store, key("a"), after)

            assert await waits.is_notified()

    async def test_a_wake_notifies(self, store: FullStore) -> None:
        """E7: a queue need not wait any more."""
        await add(store, "a/1")
        await steer(store, key("a"), Snooze(500.0))
        async with waiting(store) as waits:
            await steer(store, key("a"), Wake())

            assert await waits.is_notified()

    async def test_another_status_notifies(self, store: FullStore) -> None:
        """I1, I3: paused, running and cancelled are all news to a claim that waits."""
        await add(store, "a/1", delay=100.0)
        for status in (CrawlStatus.PAUSED, CrawlStatus.RUNNING, CrawlStatus.CANCELLED):
            async with waiting(store) as waits:
                await store.set_status(CRAWL, status)

                assert await waits.is_notified()

    async def test_a_claim_that_ends_the_run_notifies(self, store: FullStore) -> None:
        """I2: the others need not wait either."""
        lease = await busy(store, "a/1")
        async with waiting(store) as waits:
            await finish(store, done(lease))
            assert (await ask(store)).status is CrawlStatus.FINISHED

            assert await waits.is_notified()

    async def test_other_crawls_do_not_notify(self, store: FullStore) -> None:
        """I1: work of one crawl is no news to another; reading brings none."""
        await add(store, "a/1", delay=100.0)
        async with waiting(store) as waits, waiting(store, "another") as others:
            await add(store, "b/1")
            assert await waits.is_notified()
            await store.crawl(CRAWL)

            assert not others.has_heard()

    async def test_a_subscription_may_end_at_any_time(self, store: FullStore) -> None:
        """C6: unsubscribing may be repeated, and ends what this subscriber hears."""
        await add(store, "b/1", delay=100.0)
        async with waiting(store) as waits:
            other = asyncio.Event()
            end = store.subscribe(CRAWL, other.set)
            end()
            end()
            other.clear()
            await add(store, "a/1")

            assert await waits.is_notified()
            assert not other.is_set()

    async def test_claims_and_reads_are_no_news(self, store: FullStore) -> None:
        """C6: an idle crawl does not notify of itself, so that its claims can sleep."""
        await add(store, "b/1", delay=100.0)
        async with waiting(store) as waits:
            for _ in range(3):
                assert not (await ask(store)).leases
                await store.crawl(CRAWL)
                await asyncio.sleep(0)

            assert not waits.has_heard()
