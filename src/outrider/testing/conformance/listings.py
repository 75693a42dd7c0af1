"""Conformance of listings that scan nothing: the tasks of one queue (E8)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Dropped, Failed
from outrider.core.states import CrawlStatus, TaskState
from outrider.errors import InvalidInput
from outrider.store.protocol import MAX_PAGE, FullStore, ResultPage, TaskView
from outrider.testing.builders import done, policy
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    add,
    configure,
    key,
    named,
    page,
    pages,
    record,
    url,
    visit,
)


async def listed(
    store: FullStore, queue: str, *, state: TaskState | None = None, limit: int = 1000
) -> list[str]:
    """The URLs of a queue's tasks, read in pages of that size."""
    found: list[str] = []
    after: int | None = 0
    while after is not None:
        part: ResultPage[TaskView] = await store.queue_tasks(
            CRAWL, queue, state=state, after=after, limit=limit
        )
        assert len(part.items) <= limit
        found += [view.url for view in part.items]
        after = part.after
    return found


class QueueTasksConformance:
    """The tasks of one queue."""

    async def test_queue_tasks_are_in_order_of_their_numbers(self, store: FullStore) -> None:
        """E8: those of that queue alone, whatever their priority, in pages of any size."""
        await store.add([page(f"{'abc'[n % 3]}/{n}", priority=-n) for n in range(12)])

        wanted = [url(f"b/{n}") for n in (1, 4, 7, 10)]
        assert [await listed(store, key("b"), limit=size) for size in (1, 2, 3, 4, 5)] == [
            wanted
        ] * 5
        assert await listed(store, key("a")) == [url(f"a/{n}") for n in (0, 3, 6, 9)]

    async def test_queue_tasks_show_what_task_shows(self, store: FullStore) -> None:
        """E8, B1: the same view of a task."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "b/1", "a/2")
        await visit(store)

        found = (await store.queue_tasks(CRAWL, key("a"))).items

        assert list(found) == [await record(store, "a/1"), await record(store, "a/2")]

    async def test_queue_tasks_of_a_state(self, store: FullStore) -> None:
        """E8: as the state is now, not as it was when the task was added."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3", "a/4", "a/5")
        await visit(store)
        await visit(store, Failed("HTTP 500"), policy=policy(max_retries=0))
        await visit(store, Dropped("robots"))
        await named(store, "a/4")
        await add(store, "b/1")

        found = {state: await listed(store, key("a"), state=state, limit=1) for state in TaskState}

        assert found == {
            TaskState.PENDING: [url("a/5")],
            TaskState.LEASED: [url("a/4")],
            TaskState.DONE: [url("a/1")],
            TaskState.DEAD: [url("a/2")],
            TaskState.DROPPED: [url("a/3")],
        }

    async def test_cancelled_crawl_lists_open_tasks_as_dropped(self, store: FullStore) -> None:
        """I3: pending and leased tasks are shown as dropped, and found as such."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3")
        await visit(store)
        await named(store, "a/2")
        await store.set_status(CRAWL, CrawlStatus.CANCELLED)

        found = {state: await listed(store, key("a"), state=state) for state in TaskState}

        assert found[TaskState.DROPPED] == [url("a/2"), url("a/3")]
        assert found[TaskState.DONE] == [url("a/1")]
        assert found[TaskState.PENDING] == found[TaskState.LEASED] == []

    async def test_revisit_moves_a_task_to_the_list_of_another_queue(
        self, store: FullStore
    ) -> None:
        """E8, B3: it is listed in the queue it is in, at the place of its number."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "b/1", "a/3", "b/2")
        for _ in range(5):
            await visit(store)

        await store.add(pages("a/2", "b/1", known="revisit", key=key("c")))
        await store.add([page("a/2", known="revisit", key=key("b"))])
        moved = [await listed(store, key(queue), limit=1) for queue in "abc"]
        await visit(store)
        await visit(store)
        await store.add([page("a/2", known="revisit"), page("b/1", known="revisit")])

        assert moved == [
            [url("a/1"), url("a/3")],
            [url("b/2")],
            [url("a/2"), url("b/1")],
        ]
        assert [await listed(store, key(queue), limit=1) for queue in "abc"] == [
            [url("a/1"), url("a/2"), url("a/3")],
            [url("b/1"), url("b/2")],
            [],
        ]

    async def test_task_added_between_two_pages_is_on_the_second(self, store: FullStore) -> None:
        """E8: a cursor stays valid while tasks are added and visited."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "b/1", "a/3")
        first = await store.queue_tasks(CRAWL, key("a"), limit=2)
        await visit(store)
        await add(store, "b/2", "a/4")

        assert first.after is not None
        second = await store.queue_tasks(CRAWL, key("a"), after=first.after)

        assert [view.url for view in second.items] == [url("a/3"), url("a/4")]
        assert second.after is None

    async def test_queue_tasks_of_a_link_found_on_a_page(self, store: FullStore) -> None:
        """E8, H6: links that a finish adds are listed as others."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1")
        (lease,) = await named(store, "a/1")
        await store.finish([done(lease, links=pages("a/2", "b/1"))])

        assert await listed(store, key("a")) == [url("a/1"), url("a/2")]
        assert await listed(store, key("b")) == [url("b/1")]

    async def test_queue_tasks_of_an_unknown_key_are_none(self, store: FullStore) -> None:
        """E8: a key without tasks, or a crawl that does not exist."""
        assert (await store.queue_tasks(CRAWL, key("a"))).items == []
        await add(store, "a/1")

        for name in ("b.example", ".example", "", "a.example.org"):
            part = await store.queue_tasks(CRAWL, name)
            assert (list(part.items), part.after) == ([], None)

    async def test_queue_tasks_fall_back_to_lower_case(self, store: FullStore) -> None:
        """A4: hosts are written in lower case, and looked up as they are written."""
        await store.add([page("a/1"), page("a/2", key="A.Example")])

        assert await listed(store, "A.EXAMPLE") == [url("a/1")]
        assert await listed(store, "A.Example") == [url("a/2")]

    @pytest.mark.parametrize(
        ("after", "limit", "wrong"), [(0, 0, "limit"), (0, MAX_PAGE + 1, "limit"), (-1, 1, "after")]
    )
    async def test_queue_tasks_refuse_pages_that_cannot_be(
        self, store: FullStore, after: int, limit: int, wrong: str
    ) -> None:
        """E8: the message names what is wrong."""
        await add(store, "a/1")

        with pytest.raises(InvalidInput, match=wrong):
            await store.queue_tasks(CRAWL, key("a"), after=after, limit=limit)
