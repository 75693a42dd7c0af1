"""Conformance of `finish`: the verdict is applied once, together with its links (B2, G, H3, H6)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Answer, Done, Failed
from outrider.core.queue_action import Retire
from outrider.core.states import CrawlStatus, TaskState
from outrider.store.protocol import FullStore
from outrider.testing.builders import OUTCOMES, done, failed, policy, verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    add,
    claim,
    configure,
    crawl,
    finish,
    key,
    mark,
    names,
    one,
    page,
    pages,
    queue,
    record,
    steer,
    url,
    visit,
)

AFTER = {
    "done": TaskState.DONE,
    "failed": TaskState.PENDING,
    "throttled": TaskState.PENDING,
    "blocked": TaskState.PENDING,
    "unreachable": TaskState.PENDING,
    "dropped": TaskState.DROPPED,
    "cached": TaskState.DONE,
}


class FinishConformance:
    """Verdicts and links."""

    @pytest.mark.parametrize("outcome", AFTER)
    async def test_a_verdict_moves_its_task(self, store: FullStore, outcome: str) -> None:
        """B2: to the state of the verdict, which is in the answer."""
        await add(store, "a/1")
        lease = await one(store)

        answer = await finish(store, verdict(lease, OUTCOMES[outcome]))

        assert (answer.applied, answer.state) == (True, AFTER[outcome])
        assert (await record(store, "a/1")).state is AFTER[outcome]

    @pytest.mark.parametrize("outcome", AFTER)
    async def test_a_verdict_is_applied_once(
        self, store: FullStore, clock: FakeClock, outcome: str
    ) -> None:
        """H3: repeated it is True again, without a state, and changes nothing."""
        await add(store, "a/1", "a/2")
        lease = await one(store)
        decided = verdict(lease, OUTCOMES[outcome], links=[page("b/1")])
        await finish(store, decided)
        before = await record(store, "a/1"), await queue(store), await crawl(store)
        clock.advance(0.5)

        answer = await finish(store, decided)

        assert (answer.applied, answer.state, list(answer.answers)) == (True, None, [])
        clock_free = await record(store, "a/1"), (await queue(store)).spent, await crawl(store)
        assert clock_free == (before[0], before[1].spent, before[2])

    @pytest.mark.parametrize("outcome", AFTER)
    async def test_visits_are_counted_by_outcome(self, store: FullStore, outcome: str) -> None:
        """O1: once each."""
        await add(store, "a/1")
        await visit(store, OUTCOMES[outcome])

        view = await crawl(store)
        name = "done" if outcome == "cached" else outcome
        assert (view.visits, dict(view.outcomes)) == (1, {name: 1})

    async def test_an_answer_is_remembered(self, store: FullStore, clock: FakeClock) -> None:
        """B1: status, size, digest and validators of a done task, and when."""
        await add(store, "a/1")
        lease = await one(store)
        clock.advance(2)

        await finish(store, done(lease, status=404, bytes=5120, digest="d", etag="e"))

        view = await record(store, "a/1")
        assert view.answer == Answer(404, 5120, "d", "e", None)
        assert (view.finished_at, view.claimed_at) == (clock.now(), clock.now() - 2)
        assert (view.attempts, view.reason, view.due_at) == (1, None, None)

    async def test_bytes_and_visits_add_up(self, store: FullStore, clock: FakeClock) -> None:
        """O1, E8: for the crawl and for the queue."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2", "b/1")
        for size in (100, 20, 3):
            await visit(store, Done(status=200, bytes=size))

        assert ((await crawl(store)).bytes, (await crawl(store)).visits) == (123, 3)
        assert {(await queue(store, host)).bytes for host in "ab"} == {103, 20}
        assert (await queue(store, "a")).last_visit_at == clock.now()

    async def test_a_released_lease_cannot_finish(self, store: FullStore) -> None:
        """H3: its token is no longer current."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1")
        lease = await one(store)
        await store.release([lease.id])

        assert not (await finish(store, done(lease, links=[page("a/2")]))).applied

        assert (await record(store, "a/1")).state is TaskState.PENDING
        assert await store.task(CRAWL, mark("a/2")) is None

    async def test_an_older_lease_of_the_task_cannot_finish(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H3: once the task was leased again, the finished lease is no longer current."""
        await add(store, "a/1")
        old = await visit(store, Failed("HTTP 500"))
        clock.advance(10)
        await one(store)

        assert not (await finish(store, failed(old))).applied
        assert (await record(store, "a/1")).failures == 1

    async def test_each_verdict_of_a_batch_has_its_answer(self, store: FullStore) -> None:
        """H3: a lost one among them spoils nothing."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3")
        first, lost, last = await claim(store, 3)
        await store.release([lost.id])

        answers = await store.finish([done(first), done(lost), failed(last), done(first)])

        assert [(answer.applied, answer.state) for answer in answers] == [
            (True, TaskState.DONE),
            (False, None),
            (True, TaskState.PENDING),
            (True, None),
        ]

    async def test_finishing_nothing_answers_nothing(self, store: FullStore) -> None:
        """H3: an empty batch is no error."""
        assert await store.finish([]) == []

    async def test_links_come_with_the_page(self, store: FullStore) -> None:
        """H6: added in order, an answer for each."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1")
        lease = await one(store)

        answer = await finish(store, done(lease, links=pages("a/3", "b/1", "a/2", "a/3")))

        assert [found.url for found in answer.answers] == [
            url(name) for name in ("a/3", "b/1", "a/2", "a/3")
        ]
        assert [found.reason for found in answer.answers] == [None, None, None, "duplicate"]
        assert names(await claim(store, 9)) == ["a/3", "b/1", "a/2"]

    async def test_links_of_a_failure_are_taken_too(self, store: FullStore) -> None:
        """H6: whatever the verdict."""
        await add(store, "a/1")
        lease = await one(store)

        await finish(store, verdict(lease, Failed("cut body"), links=[page("b/1")]))

        assert (await crawl(store)).known == 2

    async def test_a_page_is_still_leased_when_its_links_are_added(self, store: FullStore) -> None:
        """H6: links first: a link to the page itself is a duplicate, even to revisit it."""
        await add(store, "a/1")
        lease = await one(store)

        answer = await finish(store, done(lease, links=pages("a/1", known="revisit")))

        assert [found.reason for found in answer.answers] == ["duplicate"]
        assert (await record(store, "a/1")).state is TaskState.DONE

    async def test_links_may_be_refused(self, store: FullStore) -> None:
        """B4: the page is finished all the same."""
        await configure(store, max_pending=1)
        await add(store, "a/1")
        lease = await one(store)

        answer = await finish(store, done(lease, links=pages("a/2", "a/3")))

        assert answer.applied
        assert [found.reason for found in answer.answers] == [None, "queue-full"]

    async def test_a_finish_frees_its_slot(self, store: FullStore) -> None:
        """D2: at once."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        await visit(store)

        assert (await queue(store)).in_flight == 0
        assert names(await claim(store)) == ["a/2"]

    async def test_a_paused_crawl_takes_finishes(self, store: FullStore) -> None:
        """I1: it leases no task, and loses none."""
        await add(store, "a/1")
        lease = await one(store)
        await store.set_status(CRAWL, CrawlStatus.PAUSED)

        assert (await finish(store, done(lease, links=[page("a/2")]))).applied
        assert ((await crawl(store)).done, (await crawl(store)).pending) == (1, 1)

    async def test_a_retired_queue_takes_finishes(self, store: FullStore) -> None:
        """E5: visits in flight continue to their end."""
        await add(store, "a/1", "a/2")
        lease = await one(store)
        await steer(store, key("a"), Retire())

        assert (await finish(store, done(lease))).applied
        assert ((await queue(store)).done, (await crawl(store)).held) == (1, 1)

    async def test_a_repeated_finish_of_a_revisited_task_is_true(self, store: FullStore) -> None:
        """H3: until it is leased again the token is current; nothing changes."""
        await add(store, "a/1")
        lease = await visit(store)
        await add(store, "a/1", known="revisit")

        answer = await finish(store, done(lease))

        assert (answer.applied, answer.state) == (True, None)
        assert (await record(store, "a/1")).state is TaskState.PENDING

    async def test_a_repeated_finish_of_a_dead_task_is_true(self, store: FullStore) -> None:
        """H3: its token is current and it is finished."""
        await add(store, "a/1")
        lease = await one(store)
        deadly = verdict(lease, Failed("HTTP 500"), policy=policy(max_retries=0))

        first, second = await store.finish([deadly, deadly])

        assert (first.state, second.applied, second.state) == (TaskState.DEAD, True, None)
        assert (await crawl(store)).visits == 1
