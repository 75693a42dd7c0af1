"""What `add` promises: an answer per task in order, known once, full when full (B1, B3, B4)."""

from __future__ import annotations

import pytest

from outrider.core.act import Retire
from outrider.core.outcome import Dropped, Failed
from outrider.core.policy.score import explicit
from outrider.core.states import TaskState
from outrider.store.protocol import FullStore, Which
from outrider.testing.builders import done, policy
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_MANNERS,
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
    queue,
    record,
    steer,
    url,
    visit,
)

ENDS = {
    "done": TaskState.DONE,
    "dead": TaskState.DEAD,
    "dropped": TaskState.DROPPED,
}


async def brought_to(store: FullStore, end: str) -> None:
    """Bring the page a/1 to the end of its life."""
    await add(store, "a/1")
    if end == "dead":
        await visit(store, Failed("HTTP 500"), policy=policy(max_retries=0))
    else:
        await visit(store, Dropped("robots") if end == "dropped" else None)


class AddConformance:
    """Adding, and being known."""

    async def test_every_task_is_answered_in_order(self, store: FullStore) -> None:
        """B4: an answer per URL, in the order of the batch, with its priority."""
        tasks = [page("b/1", priority=3.0), page("a/1", priority=-2.0), page("a/2")]

        answers = await store.add(tasks)

        assert [answer.url for answer in answers] == [url("b/1"), url("a/1"), url("a/2")]
        assert [answer.priority for answer in answers] == [3.0, -2.0, 0.0]
        assert all(answer.added and answer.reason is None for answer in answers)

    async def test_adding_nothing_answers_nothing(self, store: FullStore) -> None:
        """B4: an empty batch is no error, and no crawl comes of it."""
        assert await store.add([]) == []
        assert await store.crawls() == []

    async def test_a_known_url_is_a_duplicate(self, store: FullStore) -> None:
        """B3: adding a known URL changes nothing and says so, without a priority."""
        await add(store, "a/1")

        (answer,) = await add(store, "a/1", priority=-5.0)

        assert (answer.added, answer.reason, answer.priority) == (False, "duplicate", None)
        assert answer.url == url("a/1")
        assert (await crawl(store)).known == 1

    async def test_a_batch_may_repeat_itself(self, store: FullStore) -> None:
        """B3: the second of two alike in one batch is a duplicate of the first."""
        answers = await store.add([page("a/1", priority=2.0), page("b/1"), page("a/1")])

        assert [answer.added for answer in answers] == [True, True, False]
        assert (await record(store, "a/1")).priority == 2.0

    async def test_repeating_a_batch_changes_nothing(self, store: FullStore) -> None:
        """B3: a caller who lost the answer may add again."""
        await add(store, "a/1", "a/2", "b/1")
        before = await crawl(store)

        answers = await add(store, "a/1", "a/2", "b/1")

        assert [answer.reason for answer in answers] == ["duplicate"] * 3
        assert await crawl(store) == before

    async def test_a_leased_url_is_a_duplicate(self, store: FullStore) -> None:
        """B3: whatever its state, and `revisit` brings back only what has ended."""
        await add(store, "a/1")
        await one(store)

        answers = await add(store, "a/1", "a/1", known="revisit")

        assert [answer.reason for answer in answers] == ["duplicate", "duplicate"]
        assert (await record(store, "a/1")).state is TaskState.LEASED

    @pytest.mark.parametrize("end", ENDS)
    async def test_an_ended_url_is_a_duplicate(self, store: FullStore, end: str) -> None:
        """B3: dedup never forgets, whatever became of the task."""
        await brought_to(store, end)

        answers = await add(store, "a/1") + await add(store, "a/1", known="raise", priority=-9.0)

        assert [answer.reason for answer in answers] == ["duplicate", "duplicate"]
        assert (await record(store, "a/1")).state is ENDS[end]
        assert (await record(store, "a/1")).priority == 0.0

    async def test_identity_is_the_fingerprint(self, store: FullStore) -> None:
        """A3: a link may bring its own identity; the URL's text tells nothing."""
        post = page("a/1", fingerprint=b"p" * 16)
        twin = page("a/other", fingerprint=mark("a/1"))

        answers = await store.add([page("a/1"), post, twin])

        assert [answer.added for answer in answers] == [True, True, False]

    async def test_keep_leaves_the_known_task_alone(self, store: FullStore) -> None:
        """B3: `keep` takes nothing of the newcomer."""
        await add(store, "a/1", priority=5.0, tag="first")

        await add(store, "a/1", priority=-5.0, tag="second", depth=3)

        view = await record(store, "a/1")
        assert (view.priority, view.tag, view.depth) == (5.0, "first", 0)

    async def test_raise_moves_a_pending_task_forward(self, store: FullStore) -> None:
        """B3: a better priority moves it forward; it still counts as a duplicate."""
        await add(store, "a/1", "a/2", priority=5.0)

        (answer,) = await add(store, "a/2", priority=4.0, known="raise")

        assert (answer.added, answer.reason) == (False, "duplicate")
        assert names(await claim(store)) == ["a/2"]

    async def test_raise_never_moves_a_task_back(self, store: FullStore) -> None:
        """B3: a worse priority is not taken."""
        await add(store, "a/1", priority=1.0)
        await add(store, "a/2", priority=2.0)

        await add(store, "a/1", priority=3.0, known="raise")

        assert (await record(store, "a/1")).priority == 1.0
        assert names(await claim(store)) == ["a/1"]

    async def test_raise_compares_precedence_first(self, store: FullStore) -> None:
        """B3, C2: a better precedence is forward even at a worse priority, and never back."""
        await add(store, "a/1", precedence=2, priority=0.0)

        await add(store, "a/1", precedence=1, priority=9.0, known="raise")
        await add(store, "a/1", precedence=3, priority=-9.0, known="raise")

        view = await record(store, "a/1")
        assert (view.precedence, view.priority) == (1, 9.0)

    async def test_a_raised_task_keeps_its_tie(self, store: FullStore) -> None:
        """C2: the tie is given at insertion; raised among equals the oldest is first."""
        await add(store, "a/1", priority=5.0)
        await add(store, "a/2")

        await add(store, "a/1", known="raise")

        assert names(await claim(store)) == ["a/1"]

    async def test_raise_changes_the_place_and_nothing_else(self, store: FullStore) -> None:
        """B3: not the type, the cost, the due time; but the breakdown tells the new priority."""
        await add(store, "a/1", priority=5.0, delay=60.0, breakdown=explicit(5.0).breakdown)

        better = explicit(1.0).breakdown
        await add(store, "a/1", priority=1.0, cost=7, type="nav", known="raise", breakdown=better)

        view = await record(store, "a/1")
        assert (view.priority, view.breakdown) == (1.0, better)
        assert (view.cost, view.type) == (1, "page")
        assert await claim(store) == []

    async def test_raise_leaves_a_leased_task_alone(self, store: FullStore) -> None:
        """B3: only a pending task moves."""
        await add(store, "a/1", priority=5.0)
        await one(store)

        await add(store, "a/1", priority=1.0, known="raise")

        assert (await record(store, "a/1")).priority == 5.0

    @pytest.mark.parametrize("end", ENDS)
    async def test_revisit_brings_an_ended_task_back(self, store: FullStore, end: str) -> None:
        """B2, B3: done, dead and dropped become pending, attempts at 0, without a past."""
        await brought_to(store, end)

        (answer,) = await add(store, "a/1", priority=2.0, known="revisit")

        view = await record(store, "a/1")
        assert (answer.added, answer.priority) == (True, 2.0)
        assert (view.state, view.attempts, view.failures) == (TaskState.PENDING, 0, 0)
        assert (view.reason, view.finished_at, tuple(view.history)) == (None, None, ())

    async def test_a_revisited_task_is_the_same_task(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B3: it keeps its number and the time of its discovery, and is not known twice."""
        await brought_to(store, "done")
        before = await record(store, "a/1")
        clock.advance(60)

        await add(store, "a/1", known="revisit", type="refresh", lane=1, tag="again")

        after = await record(store, "a/1")
        assert (after.number, after.discovered_at) == (before.number, before.discovered_at)
        assert (after.type, after.lane, after.tag) == ("refresh", "acquisition", "again")
        assert (await crawl(store)).known == 1

    async def test_a_revisited_task_is_visited_again(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B3: as if it were new: its first attempt."""
        await brought_to(store, "dead")
        clock.advance(60)

        await add(store, "a/1", known="revisit")

        assert (await one(store)).attempt == 1

    async def test_revisit_of_a_pending_task_is_a_duplicate(self, store: FullStore) -> None:
        """B3: it will be visited anyway; a better priority is `raise`'s to take."""
        await add(store, "a/1", priority=5.0)

        (answer,) = await add(store, "a/1", priority=1.0, known="revisit")

        assert answer.reason == "duplicate"
        assert (await record(store, "a/1")).priority == 5.0

    async def test_revisit_of_an_unknown_url_adds_it(self, store: FullStore) -> None:
        """B3: `known` says what to do with a known URL only."""
        answers = await add(store, "a/1", known="revisit") + await add(store, "a/2", known="raise")

        assert [answer.added for answer in answers] == [True, True]

    async def test_a_revisit_stands_behind_its_equals(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C2: it is inserted anew, so its tie is new."""
        await brought_to(store, "done")
        await add(store, "a/2")

        await add(store, "a/1", known="revisit")

        clock.advance(60)
        assert names(await claim(store)) == ["a/2"]

    async def test_a_revisit_may_change_the_queue(self, store: FullStore) -> None:
        """A4: a link may bring its own key, and counters follow it."""
        await brought_to(store, "done")

        await add(store, "a/1", known="revisit", key=key("b"))

        assert ((await queue(store, "a")).done, (await queue(store, "a")).pending) == (0, 0)
        assert (await queue(store, "b")).pending == 1
        assert (await one(store)).key == key("b")

    async def test_a_delayed_task_is_known_at_once(self, store: FullStore) -> None:
        """C6, B3: it waits, and is pending and known meanwhile."""
        await add(store, "a/1", delay=10.0)

        (answer,) = await add(store, "a/1")

        assert answer.reason == "duplicate"
        assert (await crawl(store)).pending == 1

    async def test_a_full_crawl_refuses(self, store: FullStore) -> None:
        """B4: `queue-full` at max_pending, in batch order."""
        await configure(store, max_pending=2)

        answers = await add(store, "a/1", "b/1", "c/1")

        assert [answer.reason for answer in answers] == [None, None, "queue-full"]
        assert (answers[2].added, answers[2].priority) == (False, None)

    async def test_a_refused_url_is_not_known_and_may_come_again(self, store: FullStore) -> None:
        """B4: once there is room the same URL is added."""
        await configure(store, max_pending=1)
        await add(store, "a/1", "a/2")
        assert await store.task(CRAWL, mark("a/2")) is None

        await one(store)  # a leased task is no longer pending

        (answer,) = await add(store, "a/2")
        assert answer.added

    async def test_a_duplicate_is_told_before_queue_full(self, store: FullStore) -> None:
        """B4: the order of admission: duplicate, then queue-full."""
        await configure(store, max_pending=1, max_pending_per_queue=1)

        answers = await add(store, "a/1", "a/1", "a/2")

        assert [answer.reason for answer in answers] == [None, "duplicate", "queue-full"]

    async def test_a_full_queue_refuses_and_others_do_not(self, store: FullStore) -> None:
        """B4: max_pending_per_queue counts one queue's pending tasks."""
        await configure(store, max_pending_per_queue=2)

        answers = await add(store, "a/1", "a/2", "a/3", "b/1")

        assert [answer.reason for answer in answers] == [None, None, "queue-full", None]

    async def test_a_lease_makes_room_in_its_queue(self, store: FullStore) -> None:
        """B4: only pending tasks count."""
        await configure(store, max_pending_per_queue=1)
        await add(store, "a/1")
        lease = await one(store)

        answers = await add(store, "a/2", "a/3")
        await finish(store, done(lease))

        assert [answer.added for answer in answers] == [True, False]

    async def test_retired_queues_do_not_fill_a_crawl(self, store: FullStore) -> None:
        """B4: what stands in a retired queue does not count against max_pending."""
        await configure(store, max_pending=2)
        await add(store, "a/1", "a/2")
        await steer(store, key("a"), Retire())

        answers = await add(store, "b/1", "b/2", "b/3")

        assert [answer.added for answer in answers] == [True, True, False]

    async def test_a_revisit_needs_room_too(self, store: FullStore) -> None:
        """B4: refused as queue-full, an ended task stays as it ended."""
        await configure(store, max_pending=1, **NO_MANNERS)
        await brought_to(store, "done")
        await add(store, "a/2")

        (answer,) = await add(store, "a/1", known="revisit")

        assert (answer.added, answer.reason) == (False, "queue-full")
        assert (await record(store, "a/1")).state is TaskState.DONE

    async def test_a_batch_may_hold_several_crawls(self, store: FullStore) -> None:
        """I1: each task goes to the crawl it names, which knows its own URLs only."""
        answers = await store.add([page("a/1", crawl="x"), page("a/1", crawl="y"), page("a/1")])

        assert [answer.added for answer in answers] == [True] * 3
        assert await store.crawls() == ["x", "y", CRAWL]
        assert [(await crawl(store, name)).known for name in ("x", "y", CRAWL)] == [1, 1, 1]

    async def test_the_record_keeps_what_came_with_the_task(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B1: every field of the task can be read back."""
        score = explicit(2.5).breakdown
        await store.add(
            [
                page(
                    "a/1",
                    key="k",
                    type="article",
                    lane=1,
                    depth=2,
                    precedence=7,
                    priority=2.5,
                    cost=7,
                    delay=1.5,
                    origin="sitemap",
                    via=url("a/0"),
                    tag="news",
                    meta=b'{"n":[1]}',
                    breakdown=score,
                )
            ]
        )

        view = await record(store, "a/1")

        assert (view.url, view.key, view.fingerprint) == (url("a/1"), "k", mark("a/1"))
        assert (view.type, view.lane, view.depth) == ("article", "acquisition", 2)
        assert (view.precedence, view.priority, view.breakdown) == (7, 2.5, score)
        assert (view.cost, view.origin, view.via) == (7, "sitemap", url("a/0"))
        assert (view.tag, view.meta) == ("news", {"n": [1]})
        assert (view.discovered_at, view.due_at) == (clock.now(), clock.now() + 1.5)
        assert (view.state, view.attempts, view.worker) == (TaskState.PENDING, 0, None)
        assert (view.claimed_at, view.finished_at, view.answer) == (None, None, None)

    async def test_tasks_are_numbered_in_the_order_they_came(self, store: FullStore) -> None:
        """Inspect: refused ones take no number."""
        await add(store, "b/1", "a/1", "b/1", "c/1")

        page_ = await store.tasks(CRAWL, Which())

        assert [(view.number, view.url) for view in page_.items] == [
            (1, url("b/1")),
            (2, url("a/1")),
            (3, url("c/1")),
        ]
