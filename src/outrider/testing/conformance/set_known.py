"""Conformance of links that set a known task, or make a URL known as done (B3)."""

from __future__ import annotations

from typing import Final

import pytest

from outrider.core.outcome import Dropped, Failed
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import Link
from outrider.frontier import Frontier
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
    key,
    mark,
    named,
    names,
    one,
    page,
    queue,
    record,
    state,
    visit,
)

PENDING, DONE = TaskState.PENDING, TaskState.DONE
STATES: Final = ("pending", "delayed", "leased", "done", "dead", "dropped", "forgotten")
_FINGERPRINT: Final = bytes(range(16))


async def brought_to(store: FullStore, wanted: str) -> None:
    """Bring the page a/1 into a state."""
    await add(store, "a/1", priority=7.0, delay=60.0 if wanted == "delayed" else 0.0)
    match wanted:
        case "leased":
            await one(store)
        case "done":
            await visit(store)
        case "dead":
            await visit(store, Failed("HTTP 500"), policy=policy(max_retries=0))
        case "dropped":
            await visit(store, Dropped("robots"))
        case "forgotten":
            await store.forget(CRAWL, TaskFilter(), dry_run=False)
        case _:
            pass


class SetKnownConformance:
    """`known="set"` and `done`."""

    @pytest.mark.parametrize("before", STATES)
    async def test_set_makes_a_task_pending_whatever_its_state(
        self, store: FullStore, clock: FakeClock, before: str
    ) -> None:
        """B3: as the link describes it, with attempts at 0, and it is the same task."""
        await configure(store, **NO_DELAY)
        await brought_to(store, before)
        old = await record(store, "a/1")
        clock.advance(5)

        (answer,) = await add(
            store, "a/1", known="set", priority=2.0, type="nav", tag="t", delay=3.0
        )

        new = await record(store, "a/1")
        assert (answer.added, answer.priority) == (True, 2.0)
        assert (new.state, new.priority, new.type, new.tag) == (PENDING, 2.0, "nav", "t")
        assert (new.attempts, new.failures, new.reason, tuple(new.history)) == (0, 0, None, ())
        assert (new.number, new.discovered_at) == (old.number, old.discovered_at)
        assert await claim(store) == []
        clock.advance(3)
        assert (await one(store)).attempt == 1
        assert (await crawl(store)).known == 1

    @pytest.mark.parametrize("before", STATES)
    async def test_set_done_makes_a_task_done_whatever_its_state(
        self, store: FullStore, clock: FakeClock, before: str
    ) -> None:
        """B3: now, without a visit."""
        await configure(store, **NO_DELAY)
        await brought_to(store, before)
        visits = (await crawl(store)).visits
        clock.advance(5)

        (answer,) = await add(store, "a/1", known="set", done=True)

        view = await crawl(store)
        assert answer.added
        assert (await record(store, "a/1")).state is DONE
        assert (await record(store, "a/1")).finished_at == clock.now_ms() / 1000
        assert (view.known, view.done, view.pending, view.leased) == (1, 1, 0, 0)
        assert (view.visits, (await queue(store)).done) == (visits, 1)
        assert await claim(store) == []

    async def test_set_of_an_unknown_url_adds_it(self, store: FullStore) -> None:
        """B3: `known` says what to do with a known URL only."""
        (answer,) = await add(store, "a/1", known="set")

        assert answer.added
        assert names(await claim(store)) == ["a/1"]

    async def test_set_ends_a_lease_without_punishment(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B3, E3, H5: it is refunded, counts as no attempt, and its token is void."""
        await configure(store, delay=10.0)
        await add(store, "a/1", cost=3)
        lease = await one(store)

        await add(store, "a/1", known="set", cost=3)

        assert (await queue(store)).spent == 0
        assert not (await finish(store, done(lease))).applied
        assert await store.extend([lease.id], lease_for=60.0) == set()
        assert await store.release([lease.id]) == set()
        assert (await record(store, "a/1")).state is PENDING
        assert await claim(store) == []  # D7: the visit ended now, and the delay follows
        clock.advance(10)
        assert (await one(store)).attempt == 1

    async def test_set_ends_a_lease_by_fingerprint(self, store: FullStore) -> None:
        """D5: it took no slot, and visited no host: the queue waits for nothing."""
        await add(store, "a/1", "a/2")
        await named(store, "a/1")

        await add(store, "a/1", known="set", priority=9.0)

        assert ((await queue(store)).named, (await queue(store)).in_flight) == (0, 0)
        assert names(await claim(store)) == ["a/2"]

    async def test_set_ends_the_last_lease_of_a_loan(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C7: the queue is free for others then."""
        await add(store, "a/1", "a/2")
        await claim(store, 1, lend=True)
        assert await claim(store) == []

        await add(store, "a/1", known="set")

        assert (await queue(store)).lent == 0
        clock.advance(60)
        assert names(await claim(store)) == ["a/2"]

    async def test_set_moves_a_pending_task_to_another_queue(self, store: FullStore) -> None:
        """B3: the queue it leaves has no task, and no session, any more."""
        await add(store, "a/1")

        await add(store, "a/1", known="set", key=key("b"))

        assert await state(store, "a") == (QueueState.EMPTY, None)
        assert ((await queue(store, "a")).pending, (await queue(store, "b")).pending) == (0, 1)
        assert (await one(store)).key == key("b")

    async def test_set_puts_a_task_behind_its_equals(self, store: FullStore) -> None:
        """C2: its tie is new."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")

        await add(store, "a/1", known="set")

        assert names(await claim(store, 2)) == ["a/2", "a/1"]

    async def test_set_of_a_pending_task_is_never_refused_as_full(self, store: FullStore) -> None:
        """B4: it adds no pending task; one that is not pending adds one."""
        await configure(store, max_pending=1, **NO_DELAY)
        await add(store, "a/1")
        await visit(store)
        await add(store, "a/2")

        (full,) = await add(store, "a/1", known="set")
        (pending,) = await add(store, "a/2", known="set", priority=3.0)

        assert (full.added, full.reason) == (False, "queue-full")
        assert (await record(store, "a/1")).state is DONE
        assert (pending.added, (await record(store, "a/2")).priority) == (True, 3.0)

    async def test_set_is_refused_once_the_crawl_is_cancelled(self, store: FullStore) -> None:
        """I1: as every add."""
        await add(store, "a/1")
        await store.set_status(CRAWL, CrawlStatus.CANCELLED)

        (answer,) = await add(store, "a/1", known="set")

        assert answer.reason == "cancelled"

    async def test_set_makes_a_finished_crawl_run_again(self, store: FullStore) -> None:
        """I2: a task became pending."""
        await add(store, "a/1")
        await visit(store)
        assert (await ask(store)).status is CrawlStatus.FINISHED

        await add(store, "a/1", known="set")

        assert (await crawl(store)).status is CrawlStatus.RUNNING

    async def test_a_page_does_not_set_itself(self, store: FullStore) -> None:
        """H6: its link to itself is a duplicate, and its verdict is applied."""
        await add(store, "a/1")
        lease = await one(store)

        answer = await finish(store, done(lease, links=[page("a/1", known="set"), page("a/2")]))

        assert (answer.applied, answer.state) == (True, DONE)
        assert [one.reason for one in answer.answers] == ["duplicate", None]

    async def test_a_page_sets_another_one(self, store: FullStore) -> None:
        """H6, B3: a link of a page is as any other."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await visit(store)
        lease = await one(store)

        answer = await finish(store, done(lease, links=[page("a/1", known="set")]))

        assert answer.answers[0].added
        assert names(await claim(store)) == ["a/1"]

    # ---- done

    async def test_a_done_url_is_known_without_a_visit(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B3: no visit, no answer, no charge; later links to it are duplicates."""
        clock.advance(7)
        (answer,) = await add(store, "a/1", done=True)
        (again,) = await add(store, "a/1")

        view, whole = await record(store, "a/1"), await crawl(store)
        assert (answer.added, again.reason) == (True, "duplicate")
        assert (view.state, view.finished_at) == (DONE, clock.now_ms() / 1000)
        assert (view.answer, view.attempts, view.claimed_at) == (None, 0, None)
        assert (whole.known, whole.done, whole.visits) == (1, 1, 0)
        assert ((await queue(store)).spent, (await queue(store)).done) == (0, 1)

    @pytest.mark.parametrize("before", ["pending", "leased", "done", "dead"])
    async def test_done_keeps_what_is_known(self, store: FullStore, before: str) -> None:
        """B3: with the rule `keep` a known URL is a duplicate."""
        await brought_to(store, before)
        old = await record(store, "a/1")

        (answer,) = await add(store, "a/1", done=True)

        assert answer.reason == "duplicate"
        assert await record(store, "a/1") == old

    async def test_done_urls_take_no_share_of_a_quota(self, store: FullStore) -> None:
        """E6: they are no visits; and a limit of pending tasks does not concern them."""
        await configure(store, max_done=1, max_pending=1, **NO_DELAY)

        answers = await add(store, "a/1", "a/2", done=True) + await add(store, "a/3")

        assert all(answer.added for answer in answers)
        assert names(await claim(store)) == ["a/3"]

    async def test_a_crawl_of_done_urls_is_not_finished(self, store: FullStore) -> None:
        """I2: it never had a pending task, so it has no run to end."""
        await add(store, "a/1", done=True)

        claimed = await ask(store)

        assert (claimed.status, claimed.wake_in) == (CrawlStatus.RUNNING, None)
        assert (await crawl(store)).runs == 0

    async def test_a_done_url_opens_no_run(self, store: FullStore) -> None:
        """I2: a finished crawl stays finished."""
        await add(store, "a/1")
        await visit(store)
        await ask(store)

        await add(store, "a/2", done=True)
        await add(store, "a/1", done=True, known="set")

        assert (await crawl(store)).status is CrawlStatus.FINISHED

    # ---- without a URL

    async def test_an_identity_is_known_without_a_url(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B3: added later with its URL it is a duplicate."""
        async with Frontier.open(store, clock=clock) as frontier:
            known = await frontier.add([Link("", identity="item 1", done=True)])
            late = await frontier.add([Link("https://a.example/1", identity="item 1")])
            explained = await frontier.explain(Link("", identity="item 1"))

            assert (known.added, late.refused) == (1, {"duplicate": 1})
            assert explained.task is not None
            assert (explained.task.url, explained.task.key) == ("", "(no-url)")
            assert (explained.task.state, (await frontier.stats()).known) == (DONE, 1)

    async def test_an_identity_of_a_known_url_is_a_duplicate(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B3: whichever queue its task is in; so the filter of another crawler may be imported."""
        hosts = "abcdef"
        async with Frontier.open(store, clock=clock) as frontier:
            await frontier.add([Link(f"https://{h}.example/", identity=h) for h in hosts])
            for _ in range(2):
                report = await frontier.add([Link("", identity=h, done=True) for h in hosts])
                stats = await frontier.stats()

                assert report.refused == {"duplicate": len(hosts)}
                assert (stats.known, stats.pending, stats.done) == (len(hosts), len(hosts), 0)
                assert sum(stats.queues.values()) == len(hosts)

    async def test_an_identity_is_set_as_done_without_its_url(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B3: it is not visited any more."""
        hosts = "abcdef"
        async with Frontier.open(store, clock=clock) as frontier:
            await frontier.add([Link(f"https://{h}.example/", identity=h) for h in hosts])
            await frontier.claim(1)
            links = [Link("", identity=h, done=True, known="set") for h in hosts]
            report = await frontier.add(links)
            stats = await frontier.stats()

            assert report.added == len(hosts)
            assert (stats.known, stats.done, stats.leased) == (len(hosts), len(hosts), 0)
            assert list(await frontier.claim(9)) == []

    async def test_the_first_link_to_an_identity_counts(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B3: also if both come in one call, with and without a URL."""
        urls = [Link(f"https://{h}.example/", identity=h) for h in "abcdef"]
        bare = [Link("", identity=h, done=True) for h in "abcdef"]
        links = [*urls[:3], *bare, *urls[3:]]
        async with Frontier.open(store, clock=clock) as frontier:
            report = await frontier.add(links)
            stats = await frontier.stats()

            first = [True] * 3
            assert [one.added for one in report.answers] == [
                *first,
                *[False] * 3,
                *first,
                *[False] * 3,
            ]
            assert (stats.known, stats.pending, stats.done) == (6, 3, 3)

    @pytest.mark.parametrize("rule", ["revisit", "set"])
    async def test_an_identity_becomes_a_task_with_its_url(
        self, store: FullStore, clock: FakeClock, rule: str
    ) -> None:
        """B3: `revisit` and `set` make it a task, in the queue of its host."""
        async with Frontier.open(store, clock=clock) as frontier:
            await frontier.add([Link("", fingerprint=_FINGERPRINT, done=True, tag="old")])
            link = Link("https://a.example/1", fingerprint=_FINGERPRINT, known=rule)  # type: ignore[arg-type]
            report = await frontier.add([link])
            (lease,) = await frontier.claim(1)

            assert report.added == 1
            assert (lease.url, lease.key, lease.tag) == ("https://a.example/1", key("a"), None)
            assert (lease.fingerprint, (await frontier.stats()).known) == (_FINGERPRINT, 1)

    async def test_identities_are_exported_and_restored(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """I5: as every other task."""
        async with Frontier.open(store, clock=clock, crawl="old") as old:
            links = [Link("", identity=f"item {number}", done=True) for number in range(3)]
            await old.add([*links, "https://a.example/"])
            exported = [part async for part in old.export()]
        async with Frontier.open(store, clock=clock, crawl="new") as new:
            await new.restore(exported)
            again = await new.add(links)

            assert again.refused == {"duplicate": 3}
            assert (await new.stats()).known == 4
            assert [task.url async for task in new.tasks(state="done")] == [""] * 3

    async def test_a_task_without_a_url_is_found_by_its_fingerprint(self, store: FullStore) -> None:
        """B3: it is known by that alone."""
        await store.add([page("a/1", done=True)])

        view = await store.task(CRAWL, mark("a/1"))

        assert view is not None
