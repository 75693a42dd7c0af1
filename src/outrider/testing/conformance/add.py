"""Conformance of `add`: one answer per task, duplicates, full queues (B1, B3, B4)."""

from __future__ import annotations

from outrider.core.policy.score import explicit
from outrider.core.queue_action import Retire
from outrider.core.states import TaskState
from outrider.store.protocol import FullStore, TaskFilter
from outrider.testing.builders import done
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    add,
    configure,
    crawl,
    finish,
    key,
    mark,
    one,
    open_crawls,
    page,
    record,
    steer,
    url,
)


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
        """B4: an empty batch is no error."""
        assert await store.add([]) == []

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

    async def test_identity_is_the_fingerprint(self, store: FullStore) -> None:
        """A3: a link may have its own identity, whatever its URL is."""
        post = page("a/1", fingerprint=b"p" * 16)
        twin = page("a/other", fingerprint=mark("a/1"))

        answers = await store.add([page("a/1"), post, twin])

        assert [answer.added for answer in answers] == [True, True, False]

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

    async def test_duplicate_is_answered_before_queue_full(self, store: FullStore) -> None:
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
        """B4: tasks of a retired queue do not count against max_pending."""
        await configure(store, max_pending=2)
        await add(store, "a/1", "a/2")
        await steer(store, key("a"), Retire())

        answers = await add(store, "b/1", "b/2", "b/3")

        assert [answer.added for answer in answers] == [True, True, False]

    async def test_a_batch_may_hold_several_crawls(self, store: FullStore) -> None:
        """I1: each task goes to the crawl it names, which knows its own URLs only."""
        await open_crawls(store, "x", "y")
        answers = await store.add([page("a/1", crawl="x"), page("a/1", crawl="y"), page("a/1")])

        assert [answer.added for answer in answers] == [True] * 3
        assert await store.crawls() == [CRAWL, "x", "y"]
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

        page_ = await store.tasks(CRAWL, TaskFilter())

        assert [(view.number, view.url) for view in page_.items] == [
            (1, url("b/1")),
            (2, url("a/1")),
            (3, url("c/1")),
        ]
