"""Conformance of looking up leases: which there are, whose, since when, until when (H1)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Done, Failed
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Lease
from outrider.errors import InvalidInput
from outrider.store.protocol import FullStore, LeaseFilter, LeaseView
from outrider.testing.builders import Circumstances, done, failed, policy, verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    add,
    claim,
    configure,
    finish,
    key,
    lease_facts,
    mark,
    names,
    one,
    page,
    record,
    visit,
)


async def leased(
    store: FullStore, which: LeaseFilter | None = None, *, limit: int = 1000
) -> list[LeaseView]:
    """Return all leases that match, read in pages."""
    found: list[LeaseView] = []
    after: int | None = 0
    while after is not None:
        part = await store.leases(CRAWL, which or LeaseFilter(), after=after, limit=limit)
        assert len(part.items) <= limit
        found += part.items
        after = part.after
    return found


def urls(views: list[LeaseView]) -> list[str]:
    """The names of leased tasks, as "a/1"."""
    return names([view.lease for view in views])


class LookupConformance:
    """Leases as readers see them."""

    async def test_leases_are_listed_as_they_were_claimed(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H1: each with all that a claim gave, when it was leased and until when."""
        await configure(store, **NO_DELAY)
        full = page("a/1", tag="t", via="https://v.example/", meta=b'{"n":1}')
        await store.add([full, page("b/1", depth=2, priority=7.5, lane=1)])
        (first,) = await claim(store, worker="w1", lease_for=30.0)
        clock.advance(5)
        (second,) = await claim(store, worker="w2", lease_for=90.5)

        views = sorted(await leased(store), key=lambda view: view.claimed_at)

        for view, lease in zip(views, (first, second), strict=True):
            assert lease_facts(view.lease) == {**lease_facts(lease), "gap": -1.0}
            assert view.lease == lease  # H1: store, crawl, task and token
            assert view.lease.holder is None
            assert (view.named, view.lent) == (False, False)
        now = clock.now()
        assert [view.claimed_at for view in views] == [now - 5, now]
        assert [view.expires_at for view in views] == [now + 25, now + 90.5]

    async def test_leases_are_in_the_order_they_were_made(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H1: within one claim and one instant too; a task leased again is the newest."""
        await configure(store, **NO_DELAY)
        await add(store, "a/3", priority=3.0)
        await add(store, "a/2", priority=2.0)
        await add(store, "a/1", priority=1.0)
        first, _, _ = await claim(store, 3)
        assert urls(await leased(store)) == ["a/1", "a/2", "a/3"]
        await store.release([first.id])
        clock.advance(1)
        await claim(store)

        assert urls(await leased(store)) == ["a/2", "a/3", "a/1"]
        assert urls(await leased(store, limit=1)) == ["a/2", "a/3", "a/1"]

    async def test_ended_leases_are_not_listed(self, store: FullStore, clock: FakeClock) -> None:
        """H1: finished, released, expired; one that is overdue is held until it expires."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3", "a/4", "a/5")
        one_, two, three, _, _ = await claim(store, 5, lease_for=30.0)
        await finish(store, done(one_))
        await finish(store, failed(two))
        await store.release([three.id])
        clock.advance(60)

        assert urls(await leased(store)) == ["a/4", "a/5"]
        assert await store.expire(limit=1) == 1
        assert urls(await leased(store)) == ["a/5"]

    async def test_pages_of_leases_may_be_read_while_they_end(self, store: FullStore) -> None:
        """H1: the cursor is no lease: it stays right when that one has ended, or comes again."""
        await configure(store, **NO_DELAY)
        await add(store, *(f"a/{n}" for n in range(6)))
        leases = await claim(store, 6)
        first = await store.leases(CRAWL, limit=2)
        assert names([view.lease for view in first.items]) == ["a/0", "a/1"]
        await store.release([lease.id for lease in leases[:3]])
        await claim(store)

        assert first.after is not None
        second = await store.leases(CRAWL, after=first.after, limit=2)
        assert urls([*second.items]) == ["a/3", "a/4"]
        assert second.after is not None
        third = await store.leases(CRAWL, after=second.after, limit=2)
        assert urls([*third.items]) == ["a/5", "a/0"]

    async def test_limit_bounds_the_leases_examined(self, store: FullStore) -> None:
        """H1: a page may be empty, and not the last."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3")
        await claim(store, 2, worker="w1")
        await claim(store, 1, worker="w2")

        part = await store.leases(CRAWL, LeaseFilter(worker="w2"), limit=2)
        assert list(part.items) == []
        assert part.after is not None
        assert urls(await leased(store, LeaseFilter(worker="w2"), limit=2)) == ["a/3"]

    async def test_leases_are_filtered(self, store: FullStore, clock: FakeClock) -> None:
        """H1: every field given must match."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "b/1")
        (first,) = await claim(store, worker="w1")
        clock.advance(10)
        later = await claim(store, 2, worker="w2")
        clock.advance(10)
        every = names([first, *later])
        told = {
            LeaseFilter(): every,
            LeaseFilter(worker="w1"): names([first]),
            LeaseFilter(worker="w3"): [],
            LeaseFilter(key=key("a")): [name for name in every if name[0] == "a"],
            LeaseFilter(key=".example"): every,
            LeaseFilter(key=".org"): [],
            LeaseFilter(token=first.token, worker="w1"): names([first]),
            LeaseFilter(token=first.token, worker="w3"): [],
            LeaseFilter(older_than=10.0): names([first]),
            LeaseFilter(older_than=20.0): [],
            LeaseFilter(older_than=0.0): every,
            LeaseFilter(fingerprint=first.fingerprint): names([first]),
            LeaseFilter(fingerprint=first.fingerprint, worker="w2"): [],
            LeaseFilter(fingerprint=mark("z/9")): [],
            LeaseFilter(task=first.task): names([first]),
            LeaseFilter(task=first.task, token=first.token + 1): [],
            LeaseFilter(task=first.task, key=key("z")): [],
        }

        for which, wanted in told.items():
            assert sorted(urls(await leased(store, which))) == sorted(wanted), which

    @pytest.mark.parametrize("number", [0, -1, 10**9, 2**62])
    async def test_lease_of_no_task_is_not_found(self, store: FullStore, number: int) -> None:
        """H1: there is none of that number."""
        await add(store, "a/1")
        await one(store)
        assert await leased(store, LeaseFilter(task=number)) == []

    async def test_task_that_is_not_leased_has_no_lease(self, store: FullStore) -> None:
        """H1: pending, or done."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        lease = await visit(store)

        assert await leased(store, LeaseFilter(task=lease.task)) == []
        assert await leased(store, LeaseFilter(fingerprint=mark("a/2"))) == []

    async def test_extended_lease_shows_its_new_deadline(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H2: it keeps its place, its age and the time its claim asked for."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        lease, _ = await claim(store, 2, lease_for=30.0)
        clock.advance(20)
        await store.extend([lease.id], lease_for=100.0)

        view, _ = await leased(store)
        assert (view.lease.task, view.lease.lease_for) == (lease.task, 30.0)
        assert (view.claimed_at, view.expires_at) == (clock.now() - 20, clock.now() + 100)

    async def test_leases_by_fingerprint_and_loans_are_marked(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D5, C7: with the time they were leased, also of a task that was visited before."""
        await configure(store, delay=5.0)
        await add(store, "a/1", "b/1", "b/2")
        await visit(store, Failed("HTTP 500", retry_in=0.0))
        clock.advance(60)
        other = "b/1" if (await record(store, "a/1")).attempts else "a/1"
        visited = "a/1" if other == "b/1" else "b/1"
        (named,) = await claim(store, fingerprints=[mark(visited)], worker="n")
        clock.advance(3)
        lent = await claim(store, 1, lend=True, worker="l")

        views = {view.lease.worker: view for view in await leased(store)}
        assert (views["n"].named, views["n"].lent) == (True, False)
        assert views["n"].claimed_at == clock.now() - 3
        assert views["n"].expires_at == clock.now() + 57
        assert lease_facts(views["n"].lease) == lease_facts(named)
        assert (views["l"].named, views["l"].lent) == (False, True)
        assert views["l"].claimed_at == clock.now()
        assert lease_facts(views["l"].lease) == {**lease_facts(lent[0]), "gap": -1.0}

    async def test_lease_by_fingerprint_is_listed_among_others(self, store: FullStore) -> None:
        """H1, C3: in the order they were made; its queue keeps its turn all the same."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3")
        await one(store)
        await claim(store, fingerprints=[mark("a/3")])
        await one(store)

        assert urls(await leased(store)) == ["a/1", "a/3", "a/2"]

    async def test_lease_of_another_process_is_finished_with_what_was_looked_up(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H1, G1: failures count on, links come with it, the verdict is the same."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1")
        await visit(store, Failed("one", retry_in=0.0))
        claimed = await one(store)
        clock.advance(1)
        (view,) = await leased(store, LeaseFilter(token=claimed.token))
        assert (view.lease.attempt, view.lease.failures) == (2, 1)

        around: Circumstances = {"links": [page("b/1")], "policy": policy(max_retries=1)}
        decided = verdict(view.lease, Failed("two"), **around)
        assert decided == verdict(claimed, Failed("two"), **around)
        finished = await finish(store, decided)

        assert (finished.applied, finished.state) == (True, TaskState.DEAD)
        assert (await record(store, "a/1")).failures == 2
        assert names(await claim(store)) == ["b/1"]

    async def test_looked_up_lease_has_the_last_answer(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """G3: and its age at the look-up."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1")
        await visit(store, Done(200, etag="v", revisit_in=5.0))
        clock.advance(10)
        await one(store)
        clock.advance(2)

        (view,) = await leased(store)
        assert view.lease.last is not None
        assert (view.lease.last.answer.etag, view.lease.last.age) == ("v", 12.0)

    async def test_looked_up_lease_shows_the_queue_as_it_is(self, store: FullStore) -> None:
        """H1, D3: its politeness state may have changed since the claim."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        first, second = await claim(store, 2)
        await finish(store, verdict(first, Done(200, crawl_delay=7.0)))

        (view,) = await leased(store)
        assert (second.manners.crawl_delay, view.lease.manners.crawl_delay) == (0.0, 7.0)

    async def test_looked_up_lease_is_extended_and_released(self, store: FullStore) -> None:
        """H2, H5: as any other."""
        await add(store, "a/1")
        await one(store)
        (view,) = await leased(store)
        lease: Lease = view.lease

        assert await store.extend([lease.id], lease_for=90.0) == {lease.id}
        assert await store.release([lease.id]) == {lease.id}
        assert await leased(store) == []

    async def test_cancelled_crawl_has_no_leases(self, store: FullStore) -> None:
        """I3: its open tasks are shown as dropped; a paused one has them."""
        await add(store, "a/1")
        lease = await one(store)
        await store.set_status(CRAWL, CrawlStatus.PAUSED)
        assert len(await leased(store)) == 1
        await store.set_status(CRAWL, CrawlStatus.CANCELLED)

        for which in (LeaseFilter(), LeaseFilter(task=lease.task)):
            assert await leased(store, which) == []
        assert await leased(store, LeaseFilter(fingerprint=lease.fingerprint)) == []

    async def test_unknown_crawl_has_no_leases(self, store: FullStore) -> None:
        """I1: and reading creates none."""
        part = await store.leases("nowhere")
        assert (list(part.items), part.after) == ([], None)
        assert (await store.leases("nowhere", LeaseFilter(task=1))).after is None
        assert "nowhere" not in await store.crawls()

    @pytest.mark.parametrize(("after", "limit"), [(-1, 1), (0, 0), (0, -1), (0, 10**9)])
    async def test_bad_page_of_leases_is_refused(
        self, store: FullStore, after: int, limit: int
    ) -> None:
        """As of any list."""
        with pytest.raises(InvalidInput):
            await store.leases(CRAWL, after=after, limit=limit)

    async def test_many_leases_are_listed_in_pages(self, store: FullStore) -> None:
        """H1: each once, in order, however they are cut."""
        await configure(store, **NO_DELAY)
        await store.add([page(f"a/{n}") for n in range(700)])
        claimed = [lease.task for _ in range(7) for lease in await claim(store, 100)]
        for limit in (1000, 251, 100):
            assert [view.lease.task for view in await leased(store, limit=limit)] == claimed
