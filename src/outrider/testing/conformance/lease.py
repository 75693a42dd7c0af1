"""Conformance of leases: claim, extend, release, loss and expiry (H1, H2, H4, H5)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Failed
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import LeaseId
from outrider.core.verdict import Verdict
from outrider.errors import InvalidInput
from outrider.store.protocol import FullStore, TaskFilter, TaskView
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
    mark,
    names,
    one,
    open_crawls,
    page,
    queue,
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
        """H1: each has its own, 60 s by default; it expires then, not before."""
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
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        first, second = await one(store, process="p/1"), await one(store, process="q/1")

        assert await store.extend([first.id], lease_for=90.0) == {first.id}
        assert (await finish(store, done(second))).applied
        clock.advance(90)
        assert await store.expire(limit=10) == 1
        assert not (await finish(store, done(first))).applied

    async def test_lease_that_outlives_its_process_ends_as_any_other(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H4: while the store is open it is a lease as all are, also by name and as a loan."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3", "b/1")
        first, second = await claim(store, 2, per_queue=2, outlives_process=True, process="p/1")
        (by_name,) = await claim(store, fingerprints=[mark("a/3")], outlives_process=True)
        (lent,) = await claim(store, lend=True, outlives_process=True)

        assert await store.extend([first.id], lease_for=90.0) == {first.id}
        assert (await finish(store, done(second))).applied
        assert await store.release([by_name.id]) == {by_name.id}
        assert (await finish(store, done(lent))).applied
        clock.advance(89.999)
        assert await store.expire(limit=10) == 0
        clock.advance(0.001)
        assert await store.expire(limit=10) == 1

    async def test_claim_in_the_name_of_no_process_is_refused(self, store: FullStore) -> None:
        """H4: "*" marks leases that outlive every process; a claim asks for it by its field."""
        await add(store, "a/1")

        with pytest.raises(InvalidInput, match="outlives_process"):
            await claim(store, process="*")

        assert (await record(store, "a/1")).state is TaskState.PENDING

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
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3", "a/4")
        kept, finished, released, expired = await claim(store, 4, lease_for=30.0)
        await finish(store, done(finished))
        await store.release([released.id])
        await store.extend([kept.id], lease_for=99.0)
        clock.advance(30)
        await store.expire(limit=10)

        everything = [lease.id for lease in (kept, finished, released, expired)]

        assert await store.extend(everything, lease_for=30.0) == {kept.id}

    async def test_an_overdue_lease_that_did_not_expire_may_be_extended(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H2, H4: it is lost when it expires."""
        await add(store, "a/1")
        lease = await one(store, lease_for=30.0)
        clock.advance(31)

        assert await store.extend([lease.id], lease_for=30.0) == {lease.id}
        assert await store.expire(limit=10) == 0
        assert (await finish(store, done(lease))).applied

    async def test_an_overdue_lease_that_did_not_expire_may_be_finished(
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
        await configure(store, **NO_DELAY)
        await add(store, "a/1")
        lease = await one(store)
        await store.release([lease.id])
        again = await one(store)

        assert await store.release([lease.id, lease.id]) == set()
        assert await store.extend([again.id], lease_for=60.0) == {again.id}

    async def test_a_finished_lease_cannot_be_released(self, store: FullStore) -> None:
        """H5: only valid leases are released."""
        await add(store, "a/1")
        lease = await visit(store)

        assert await store.release([lease.id]) == set()
        assert (await record(store, "a/1")).state is TaskState.DONE

    async def test_many_are_released_at_once(self, store: FullStore) -> None:
        """H5: each by itself; unknown leases among them have no effect."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "b/1")
        held = {lease.id for lease in await claim(store, 3)}

        assert await store.release([*NOBODYS, *held]) == held
        assert (await crawl(store)).pending == 3

    @pytest.mark.parametrize("lease", NOBODYS, ids=str)
    async def test_an_unknown_lease_changes_nothing(self, store: FullStore, lease: LeaseId) -> None:
        """H3: an unknown crawl, task or token is answered, never an error."""
        await add(store, "a/1")
        await one(store)
        verdict = Verdict(*lease, "done", TaskState.DONE, tasks=(page("a/2"),))

        assert await store.extend([lease], lease_for=60.0) == set()
        assert await store.release([lease]) == set()
        assert not (await finish(store, verdict)).applied
        assert (await crawl(store)).known == 1


async def leased(store: FullStore) -> list[TaskView]:
    """The tasks that are leased now."""
    found = await store.tasks(CRAWL, TaskFilter(state=TaskState.LEASED))
    return list(found.items)


class ExpiryConformance:
    """Overdue leases."""

    async def test_an_expiry_is_a_crash(self, store: FullStore, clock: FakeClock) -> None:
        """H4: it counts as an attempt, the task is due at once, and its history has the reason."""
        await configure(store, delay=0.0)
        await add(store, "a/1")
        await one(store, worker="w1", lease_for=30.0)
        clock.advance(40)
        await store.expire(limit=10)

        view = await record(store, "a/1")
        assert (view.state, view.attempts, view.crashes) == (TaskState.PENDING, 1, 1)
        assert (view.failures, view.reason) == (0, "lease expired")
        assert tuple(view.history) == ((clock.now(), "w1", "lease expired"),)
        assert (view.worker, view.due_at) == (None, clock.now())
        assert (await one(store)).attempt == 2

    async def test_a_crash_is_a_visit(self, store: FullStore, clock: FakeClock) -> None:
        """H4, O1: counted by its outcome."""
        await add(store, "a/1")
        await one(store)
        clock.advance(60)
        await store.expire(limit=10)

        view = await crawl(store)
        assert (view.visits, view.outcomes["crashed"]) == (1, 1)
        assert (await queue(store)).in_flight == 0

    async def test_three_crashes_are_enough(self, store: FullStore, clock: FakeClock) -> None:
        """H4: dead at the third, kept with every attempt's time, worker and error."""
        await configure(store, delay=0.0)
        await add(store, "a/1")
        for worker in ("w1", "w2", "w3"):
            assert (await record(store, "a/1")).state is TaskState.PENDING
            await one(store, worker=worker)
            clock.advance(60)
            await store.expire(limit=10)

        view = await record(store, "a/1")
        assert (view.state, view.crashes, view.attempts) == (TaskState.DEAD, 3, 3)
        assert (view.reason, view.finished_at) == ("lease expired", clock.now())
        assert [worker for _, worker, _ in view.history] == ["w1", "w2", "w3"]
        assert (await crawl(store)).dead == 1

    async def test_the_number_of_crashes_is_a_setting(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H4: max_crashes."""
        await configure(store, max_crashes=1)
        await add(store, "a/1")
        await one(store)
        clock.advance(60)
        await store.expire(limit=10)

        assert (await record(store, "a/1")).state is TaskState.DEAD

    async def test_without_a_limit_no_task_dies_of_crashes(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H4: max_crashes = 0; after too many failures it does."""
        await configure(store, delay=0.0, max_crashes=0, max_retries=0)
        await add(store, "a/1")
        for _ in range(5):
            await one(store)
            clock.advance(60)
            await store.expire(limit=10)
        view = await record(store, "a/1")
        assert (view.state, view.crashes) == (TaskState.PENDING, 5)

        await visit(store, Failed("HTTP 500"), policy=policy(max_retries=9))
        clock.advance(100)
        await one(store)
        clock.advance(60)
        await store.expire(limit=10)

        assert (await record(store, "a/1")).state is TaskState.DEAD

    async def test_a_crash_after_too_many_failures_is_dead(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H4: when failures > max_retries; at max_retries it is not."""
        await configure(store, delay=0.0, max_retries=1)
        await add(store, "a/1", "b/1")
        for outcome_count in (1, 2):
            for _ in range(outcome_count):
                await visit(store, Failed("HTTP 500"))
            clock.advance(10)
        await claim(store, 2)
        clock.advance(60)
        await store.expire(limit=10)

        failures = {name: await record(store, name) for name in ("a/1", "b/1")}
        assert {view.failures: view.state for view in failures.values()} == {
            1: TaskState.PENDING,
            2: TaskState.DEAD,
        }

    async def test_expire_takes_back_the_longest_overdue_first(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H4: in (deadline, arrival) order, no more than the limit."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3", "a/4")
        for lease, seconds in zip(await claim(store, 4), (30, 10, 20, 10), strict=True):
            await store.extend([lease.id], lease_for=seconds)
        clock.advance(40)
        order = []
        for _ in range(4):
            before = {t.url for t in await leased(store)}
            assert await store.expire(limit=1) == 1
            order += [url[-1] for url in before - {t.url for t in await leased(store)}]

        assert order == ["2", "4", "3", "1"]
        assert await store.expire(limit=1) == 0

    async def test_expire_may_be_asked_for_nothing(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H4: a limit of 0 takes nothing back."""
        await add(store, "a/1")
        await one(store)
        clock.advance(60)

        assert await store.expire(limit=0) == 0
        assert (await crawl(store)).leased == 1

    async def test_expire_looks_at_every_crawl(self, store: FullStore, clock: FakeClock) -> None:
        """H4: with one limit for all."""
        await open_crawls(store, "x", "y", "z")
        await store.add([page("a/1", crawl=name) for name in ("x", "y", "z")])
        for name in ("x", "y", "z"):
            await one(store, crawl=name)
        clock.advance(60)

        assert [await store.expire(limit=2), await store.expire(limit=2)] == [2, 1]

    async def test_a_claim_takes_back_first(self, store: FullStore, clock: FakeClock) -> None:
        """H4: so a crashed task can be leased by the same claim, if its queue may be visited."""
        await configure(store, delay=0.0)
        await add(store, "a/1")
        old = await one(store)
        clock.advance(60)

        new = await one(store)

        assert (new.task, new.attempt) == (old.task, 2)
        assert new.token != old.token

    async def test_a_claim_takes_back_its_own_crawls_leases(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H4: of the crawl it asks; the others' wait for their own claims."""
        await open_crawls(store, "x", "y")
        await store.add([page("a/1", crawl=name) for name in ("x", "y")])
        for name in ("x", "y"):
            await one(store, crawl=name)
        clock.advance(60)

        await claim(store, crawl="x")

        assert ((await crawl(store, "x")).leased, (await crawl(store, "y")).leased) == (0, 1)

    async def test_a_paused_crawl_loses_overdue_leases(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H4, I1: no task is leased, and leases still expire."""
        await add(store, "a/1")
        await one(store)
        await store.set_status(CRAWL, CrawlStatus.PAUSED)
        clock.advance(60)

        await ask(store)

        assert (await record(store, "a/1")).crashes == 1

    async def test_a_lost_lease_is_lost(self, store: FullStore, clock: FakeClock) -> None:
        """H1, H3: a worker that outlived its lease learns so, and changes nothing."""
        await add(store, "a/1")
        lease = await one(store)
        clock.advance(60)
        await store.expire(limit=10)
        before = await record(store, "a/1"), await queue(store), await crawl(store)

        answer = await finish(store, done(lease, links=[page("a/2")]))

        assert (answer.applied, answer.state, list(answer.answers)) == (False, None, [])
        assert await store.extend([lease.id], lease_for=60.0) == set()
        assert await store.release([lease.id]) == set()
        assert before == (await record(store, "a/1"), await queue(store), await crawl(store))

    async def test_a_lost_lease_does_not_disturb_its_successor(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H1: each claim has a token of its own."""
        await configure(store, delay=0.0)
        await add(store, "a/1")
        zombie = await one(store, worker="zombie")
        clock.advance(60)
        heir = await one(store, worker="heir")

        assert not (await finish(store, done(zombie))).applied
        assert await store.release([zombie.id]) == set()
        assert await store.extend([zombie.id], lease_for=999.0) == set()
        assert (await finish(store, done(heir))).state is TaskState.DONE

    async def test_a_second_expiry_finds_nothing(self, store: FullStore, clock: FakeClock) -> None:
        """H4: repeating the verb counts no crash twice."""
        await add(store, "a/1")
        await one(store)
        clock.advance(60)

        assert [await store.expire(limit=10) for _ in range(3)] == [1, 0, 0]
        assert (await record(store, "a/1")).crashes == 1

    async def test_crashes_are_events(self, store: FullStore, clock: FakeClock) -> None:
        """O3: an expiry, and a death by it, with the worker's name."""
        await configure(store, delay=0.0, max_crashes=2)
        await add(store, "a/1")
        for worker in ("w1", "w2"):
            await one(store, worker=worker)
            clock.advance(60)
            await store.expire(limit=10)

        changes = await store.events_since(CRAWL)

        assert [(c.name, c.subject, c.detail) for c in changes] == [
            ("expired", page("a/1").url, "w1"),
            ("died", page("a/1").url, "w2"),
        ]

    async def test_a_crashed_task_waits_for_nothing_of_its_own(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H4: due at once, though it was added with a delay and had failed before."""
        await configure(store, delay=0.0)
        await add(store, "a/1", delay=5.0)
        clock.advance(5)
        await visit(store, Failed("HTTP 500", retry_in=100.0))
        clock.advance(100)
        await one(store)
        clock.advance(60)

        assert names(await claim(store)) == ["a/1"]
