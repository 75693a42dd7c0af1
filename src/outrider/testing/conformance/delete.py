"""Conformance of removing a crawl: step by step, and its name is free again (I1)."""

from __future__ import annotations

from msgspec.structs import replace

from outrider.core.states import CrawlStatus
from outrider.core.task import NO_URL_KEY
from outrider.store.delete_crawl import delete_crawl
from outrider.store.protocol import FullStore, Heartbeat, SharedValueWrite, Step
from outrider.testing.builders import done, rules
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
    mark,
    named,
    names,
    one,
    open_crawls,
    page,
    pages,
    queue,
)

_PAGES = [f"{host}/{number}" for host in "abc" for number in range(5)]


async def filled(store: FullStore) -> None:
    """Fill the crawl with everything it may have."""
    await configure(store, **NO_DELAY, keys={"a.example": {"precedence": 1}})
    await add(store, *_PAGES)
    await add(store, "d/1", delay=60.0)
    await add(store, "d/2", done=True)
    await store.finish([done(lease) for lease in await claim(store, 3)])
    await claim(store, 2)
    await store.add_roots(CRAWL, "host", ["a.example"])
    await store.put_values(CRAWL, [SharedValueWrite("topic", "name", "text")])
    await store.heartbeat(CRAWL, Heartbeat("w", "idle", "here", 1, 1, 0, 0))


class DeletionConformance:
    """`delete`."""

    async def test_nothing_is_left_of_a_removed_crawl(self, store: FullStore) -> None:
        """I1: neither in lists nor in views; the number of its tasks is returned."""
        await filled(store)

        count = await delete_crawl(store, CRAWL, limit=4)

        assert count == len(_PAGES) + 2
        assert await store.crawls() == []
        view = await crawl(store)
        assert (view.known, view.outcomes) == (0, {})
        assert (view.status, view.reason) == (CrawlStatus.CANCELLED, "unknown")
        assert (await queue(store)).precedence == 0
        assert await store.task(CRAWL, mark("a/1")) is None
        assert (await store.queues(CRAWL)).items == []
        assert await store.values_since(CRAWL) == []
        assert await store.roots(CRAWL, "host") == []
        assert await store.workers(CRAWL) == []
        assert await store.events_since(CRAWL) == []
        assert await store.settings(CRAWL) == ""

    async def test_identities_without_a_url_are_counted_once(self, store: FullStore) -> None:
        """I1, B3: wherever a store keeps them."""
        known = pages("a/1", "b/1", "c/1", done=True)
        identities = [replace(task, url="", key=NO_URL_KEY) for task in known]
        await store.add([*identities, page("d/1")])

        assert await delete_crawl(store, CRAWL, limit=2) == len(identities) + 1

    async def test_the_first_step_cancels(self, store: FullStore) -> None:
        """I1: so it leases nothing, refuses adds, and its leases are void."""
        await filled(store)
        lease = await one(store)

        step = await store.delete(CRAWL, limit=1000)

        view = await crawl(store)
        assert step.after is not None
        assert (view.status, view.reason) == (CrawlStatus.CANCELLED, "deleting")
        assert (await ask(store)).leases == []
        assert await named(store, "d/1") == []
        assert [answer.reason for answer in await add(store, "a/1", "e/1")] == ["cancelled"] * 2
        assert not (await finish(store, done(lease))).applied
        assert await store.extend([lease.id], lease_for=60.0) == set()
        assert await store.crawls() == [CRAWL]

    async def test_it_is_listed_and_cancelled_until_the_last_step(self, store: FullStore) -> None:
        """I1: whatever is asked of it meanwhile."""
        await filled(store)
        lease = await one(store)

        while (await store.delete(CRAWL, limit=2)).after is not None:
            assert await store.crawls() == [CRAWL]
            assert (await crawl(store)).status is CrawlStatus.CANCELLED
            assert [answer.reason for answer in await add(store, "a/1")] == ["cancelled"]
            assert (await ask(store)).leases == []
            assert not (await finish(store, done(lease))).applied
            await store.queues(CRAWL)
            await queue(store)
            await store.task(CRAWL, mark("a/1"))
            assert await store.expire(limit=10) == 0

        assert await store.crawls() == []

    async def test_a_cancelled_crawl_is_removed(self, store: FullStore) -> None:
        """I1: whatever its status."""
        await filled(store)
        await store.set_status(CRAWL, CrawlStatus.CANCELLED)

        await delete_crawl(store, CRAWL)

        assert await store.crawls() == []

    async def test_an_unknown_crawl_is_removed_already(self, store: FullStore) -> None:
        """I1: so a removal may be repeated."""
        assert await store.delete("never") == Step(0, None)
        assert await store.crawls() == [CRAWL]

    async def test_its_name_can_be_used_again(self, store: FullStore, clock: FakeClock) -> None:
        """I1: for a crawl with nothing of the old one."""
        await filled(store)
        await delete_crawl(store, CRAWL)
        clock.advance(1)

        await configure(store)
        answers = await add(store, "a/1", "b/1", type="nav", tag="new")

        view = await crawl(store)
        assert all(answer.added for answer in answers)
        assert (view.known, view.pending, view.created_at) == (2, 2, clock.now_ms() / 1000)
        assert {name: dict(of) for name, of in view.types.items()} == {"nav": {"pending": 2}}
        leases = sorted(await claim(store, 2), key=lambda lease: lease.url)
        assert names(leases) == ["a/1", "b/1"]
        assert [(lease.type, lease.key) for lease in leases] == [
            ("nav", "a.example"),
            ("nav", "b.example"),
        ]
        assert [lease.rules for lease in leases] == [rules().queue] * 2

    async def test_no_old_lease_fits_the_new_crawl(self, store: FullStore) -> None:
        """H1, I1: tokens are not given again."""
        for round_ in range(3):
            await configure(store)
            await add(store, "a/1", "b/1")
            old = await claim(store, 2)
            assert len(old) == 2, round_
            await delete_crawl(store, CRAWL)
            await configure(store)
            await add(store, "a/1", "b/1")
            new = await claim(store, 2)
            assert len(new) == 2

            finished = await store.finish([done(lease) for lease in old])

            assert [answer.applied for answer in finished] == [False, False]
            assert await store.extend([lease.id for lease in old], lease_for=9.0) == set()
            assert await store.release([lease.id for lease in old]) == set()
            assert (await crawl(store)).leased == 2
            await delete_crawl(store, CRAWL)

    async def test_ends_of_old_leases_begin_no_crawl(self, store: FullStore) -> None:
        """H3, I1: a late worker's calls change nothing."""
        await add(store, "a/1")
        lease = await one(store)
        await delete_crawl(store, CRAWL)

        assert not (await finish(store, done(lease))).applied
        assert await store.release([lease.id]) == await store.extend([lease.id], lease_for=9.0)

        assert await store.crawls() == []

    async def test_workers_of_a_removed_crawl_begin_no_new_one(self, store: FullStore) -> None:
        """I1: claims say that it is cancelled, adds are refused, heartbeats and values ignored."""
        await filled(store)
        await delete_crawl(store, CRAWL)

        for claimed in (await ask(store, 3), await ask(store, fingerprints=[mark("a/1")])):
            assert (claimed.leases, claimed.wake_in) == ([], None)
            assert claimed.status is CrawlStatus.CANCELLED
        await store.heartbeat(CRAWL, Heartbeat("w", "gone", "here", 1, 1, 0, 0))
        assert [one.reason for one in await add(store, "a/1", "a/9")] == ["cancelled"] * 2
        assert await store.put_values(CRAWL, [SharedValueWrite("topic", "name", "text")]) == [0]
        assert await store.crawls() == []
        await configure(store)
        assert await store.values_since(CRAWL) == []
        assert (await add(store, "a/1"))[0].added
        assert names(await claim(store)) == ["a/1"]

    async def test_other_crawls_are_left_alone(self, store: FullStore) -> None:
        """I1: before, between and after the steps."""
        await open_crawls(store, "one", "two")
        for name in ("one", CRAWL, "two"):
            await add(store, "a/1", "a/2", crawl=name)
        before = [await store.crawl(name) for name in ("one", "two")]

        while (await store.delete(CRAWL, limit=1)).after is not None:
            assert [await store.crawl(name) for name in ("one", "two")] == before
        await open_crawls(store, "three")

        assert await store.crawls() == ["one", "two", "three"]
        assert [await store.crawl(name) for name in ("one", "two")] == before
        (lease,) = await claim(store, crawl="two")
        assert (await finish(store, done(lease))).applied

    async def test_removal_is_signed(self, store: FullStore) -> None:
        """O3: the event of its first step says who did it."""
        await add(store, "a/1")

        await store.delete(CRAWL, by="ann")

        event = (await store.events_since(CRAWL))[-1]
        assert (event.name, event.detail, event.by) == ("crawl-cancelled", "deleting", "ann")
