"""Holding, prolonging, giving back and losing a lease (H1, H2, H4, H5)."""

from __future__ import annotations

import pytest

from outrider.core.states import QueueState, TaskState
from outrider.core.task import LeaseId
from outrider.core.verdict import Verdict
from outrider.store.protocol import FullStore
from outrider.testing.builders import done
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_MANNERS,
    add,
    claim,
    configure,
    crawl,
    finish,
    one,
    page,
    record,
    state,
    visit,
)

NOBODYS = [
    LeaseId("nowhere", 1, 1),
    LeaseId(CRAWL, 0, 1),
    LeaseId(CRAWL, -1, 1),
    LeaseId(CRAWL, 10**9, 1),
    LeaseId(CRAWL, 1, 10**9),
]


class LeaseConformance:
    """Leases and their tokens."""

    async def test_a_lease_ends_at_its_deadline(self, store: FullStore, clock: FakeClock) -> None:
        """H1: each has its own, 60 s unless asked otherwise; taken back at it, not before."""
        await add(store, "a/1", "b/1")
        await claim(store, lease_for=30.0)
        await claim(store)

        clock.advance(29.999)
        assert await store.expire(limit=10) == 0
        clock.advance(0.001)
        assert await store.expire(limit=10) == 1
        clock.advance(30)
        assert await store.expire(limit=10) == 1

    async def test_process_of_a_claim_changes_nothing_while_the_store_is_open(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H4: it matters to a file that is opened again; deadlines and tokens are as ever."""
        await configure(store, **NO_MANNERS)
        await add(store, "a/1", "a/2")
        first, second = await one(store, process="p/1"), await one(store, process="q/1")

        assert await store.extend([first.id], lease_for=90.0) == {first.id}
        assert (await finish(store, done(second))).applied
        clock.advance(90)
        assert await store.expire(limit=10) == 1
        assert not (await finish(store, done(first))).applied

    async def test_extend_renews_from_now(self, store: FullStore, clock: FakeClock) -> None:
        """H2: the new deadline is so many seconds from this moment."""
        await add(store, "a/1")
        lease = await one(store, lease_for=30.0)
        clock.advance(20)

        assert await store.extend([lease.id], lease_for=30.0) == {lease.id}

        clock.advance(29.999)
        assert await store.expire(limit=10) == 0
        clock.advance(0.001)
        assert await store.expire(limit=10) == 1

    async def test_extend_names_those_still_held(self, store: FullStore, clock: FakeClock) -> None:
        """H2: the others were lost before this call, and stay lost."""
        await configure(store, **NO_MANNERS)
        await add(store, "a/1", "a/2", "a/3", "a/4")
        kept, finished, released, expired = await claim(store, 4, lease_for=30.0)
        await finish(store, done(finished))
        await store.release([released.id])
        await store.extend([kept.id], lease_for=99.0)
        clock.advance(30)
        await store.expire(limit=10)

        everything = [lease.id for lease in (kept, finished, released, expired)]

        assert await store.extend(everything, lease_for=30.0) == {kept.id}

    async def test_an_overdue_lease_not_yet_taken_back_may_be_renewed(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H2, H4: it is lost when it is taken back."""
        await add(store, "a/1")
        lease = await one(store, lease_for=30.0)
        clock.advance(31)

        assert await store.extend([lease.id], lease_for=30.0) == {lease.id}
        assert await store.expire(limit=10) == 0
        assert (await finish(store, done(lease))).applied

    async def test_an_overdue_lease_not_yet_taken_back_may_be_finished(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H3: its token is current and it is leased."""
        await add(store, "a/1")
        lease = await one(store, lease_for=30.0)
        clock.advance(31)

        assert (await finish(store, done(lease))).state is TaskState.DONE
        assert await store.expire(limit=10) == 0

    async def test_a_release_gives_back_unpunished(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H5: pending and due at once, no attempt counted, no error."""
        await configure(store, delay=0.0)
        await add(store, "a/1")
        lease = await one(store, worker="w1")
        clock.advance(5)

        assert await store.release([lease.id]) == {lease.id}

        view = await record(store, "a/1")
        assert (view.state, view.attempts, view.worker) == (TaskState.PENDING, 0, None)
        assert (view.reason, view.failures, view.crashes) == (None, 0, 0)
        assert view.due_at == clock.now()
        assert (await one(store, worker="w2")).attempt == 1

    async def test_a_release_frees_the_slot(self, store: FullStore) -> None:
        """D2, H5: and counts as no visit."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        lease = await one(store)
        assert await state(store) == (QueueState.BUSY, None)

        await store.release([lease.id])

        assert await state(store) == (QueueState.READY, None)
        assert (await crawl(store)).visits == 0

    async def test_a_release_is_once(self, store: FullStore) -> None:
        """H1, H5: the token changed, so repeating it changes nothing."""
        await configure(store, **NO_MANNERS)
        await add(store, "a/1")
        lease = await one(store)
        await store.release([lease.id])
        again = await one(store)

        assert await store.release([lease.id, lease.id]) == set()
        assert await store.extend([again.id], lease_for=60.0) == {again.id}

    async def test_a_finished_lease_cannot_be_released(self, store: FullStore) -> None:
        """H5: only those still held are taken back."""
        await add(store, "a/1")
        lease = await visit(store)

        assert await store.release([lease.id]) == set()
        assert (await record(store, "a/1")).state is TaskState.DONE

    async def test_many_are_released_at_once(self, store: FullStore) -> None:
        """H5: each by itself; strangers among them spoil nothing."""
        await configure(store, **NO_MANNERS)
        await add(store, "a/1", "a/2", "b/1")
        held = {lease.id for lease in await claim(store, 3)}

        assert await store.release([*NOBODYS, *held]) == held
        assert (await crawl(store)).pending == 3

    @pytest.mark.parametrize("lease", NOBODYS, ids=str)
    async def test_a_lease_nobody_gave_changes_nothing(
        self, store: FullStore, lease: LeaseId
    ) -> None:
        """H3: an unknown crawl, task or token is answered, never an error."""
        await add(store, "a/1")
        await one(store)
        verdict = Verdict(*lease, "done", TaskState.DONE, tasks=(page("a/2"),))

        assert await store.extend([lease], lease_for=60.0) == set()
        assert await store.release([lease]) == set()
        assert not (await finish(store, verdict)).applied
        assert (await crawl(store)).known == 1
