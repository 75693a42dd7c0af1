"""Conformance of listings that scan nothing: the tasks of a queue, queues in order (E8)."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.core.outcome import Dropped, Failed
from outrider.core.queue_action import Pause, Retire, Snooze
from outrider.core.states import CrawlStatus, TaskState
from outrider.errors import InvalidInput
from outrider.store.protocol import MAX_PAGE, FullStore, ResultPage, TaskView
from outrider.store.queue_order import QueueOrder
from outrider.testing.builders import done, policy
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    add,
    claim,
    configure,
    key,
    named,
    page,
    pages,
    queue,
    record,
    steer,
    url,
    visit,
)


async def listed(
    store: FullStore, name: str, *, state: TaskState | None = None, limit: int = 1000
) -> list[str]:
    """The URLs of a queue's tasks, read in pages of that size."""
    found: list[str] = []
    after: int | None = 0
    while after is not None:
        part: ResultPage[TaskView] = await store.queue_tasks(
            CRAWL, name, state=state, after=after, limit=limit
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
        moved = [await listed(store, key(name), limit=1) for name in "abc"]
        await visit(store)
        await visit(store)
        await store.add([page("a/2", known="revisit"), page("b/1", known="revisit")])

        assert moved == [
            [url("a/1"), url("a/3")],
            [url("b/2")],
            [url("a/2"), url("b/1")],
        ]
        assert [await listed(store, key(name), limit=1) for name in "abc"] == [
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


async def ordered(
    store: FullStore, order: QueueOrder, *, prefix: str = "", limit: int = 1000
) -> list[str]:
    """The keys of the queues in an order, read in pages of that size."""
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        part = await store.queues_in_order(CRAWL, order, prefix=prefix, after=after, limit=limit)
        assert len(part.items) == len(part.cursors) <= limit
        found += [view.key for view in part.items]
        after = part.after
    return found


class QueuesInOrderConformance:
    """Queues in order of their keys, and of their wake times."""

    async def test_queues_are_listed_by_key(self, store: FullStore) -> None:
        """E8: by code points, in pages of any size."""
        keys = ["b.example", "a.example", "B.example", "a.example:81", "ab.example", "Ž", "z", "é"]
        keys += ["a", "a b", "\U0001f577.example", "\uffe6.example"]
        await store.add([page(f"a/{n}", key=name) for n, name in enumerate(keys)])

        for size in (1, 2, 5, len(keys), 1000):
            assert await ordered(store, "key", limit=size) == sorted(keys)

    async def test_queues_by_key_are_those_of_a_prefix(self, store: FullStore) -> None:
        """E8: every key that begins with it, and no other."""
        keys = ["ab", "abc", "ab.c", "aé", "aéz", "a", "b", "A", "abé", "ab\U0001f577"]
        await store.add([page(f"a/{n}", key=name) for n, name in enumerate(keys)])

        for prefix in ("", "a", "ab", "abc", "aé", "é", "abcd", "B"):
            wanted = sorted(name for name in keys if name.startswith(prefix))
            assert await ordered(store, "key", prefix=prefix, limit=2) == wanted

    async def test_queue_in_order_shows_what_queue_shows(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E8: the same view of a queue."""
        await configure(store, delay=5.0)
        await add(store, "b/1", "a/1", "a/2", "b/2")
        await visit(store)
        clock.advance(1.0)

        by_key = await store.queues_in_order(CRAWL, "key")
        by_wake = await store.queues_in_order(CRAWL, "wake")

        assert list(by_key.items) == [await queue(store, "a"), await queue(store, "b")]
        assert [view.wakes_in for view in by_wake.items] == [4.0]
        assert list(by_wake.items) == [await queue(store, by_wake.items[0].key[0])]

    async def test_new_queue_is_on_a_later_page(self, store: FullStore) -> None:
        """E8: a cursor stays valid; what comes before it is not listed any more."""
        await add(store, "b/1", "d/1", "f/1")
        first = await store.queues_in_order(CRAWL, "key", limit=2)
        await add(store, "a/1", "e/1", "g/1")

        assert [view.key for view in first.items] == [key("b"), key("d")]
        assert first.after == first.cursors[-1]
        behind_b = await store.queues_in_order(CRAWL, "key", after=first.cursors[0])
        assert [view.key for view in behind_b.items] == [key(name) for name in "defg"]
        assert behind_b.after is None

    async def test_queues_are_listed_by_wake_time(self, store: FullStore) -> None:
        """E8: by when they may be visited, then by number; ready and other queues are left out."""
        waits = {"a": 9.0, "b": 3.0, "c": 9.0, "d": 1.0, "e": 9.0, "f": 3.0, "g": 9.0}
        await store.add([page(f"{name}/1", delay=wait) for name, wait in waits.items()])
        await store.add([page("r/1"), page("r/2", delay=2.0)])  # ready, with a delayed task
        await add(store, "p/1", "x/1", delay=2.0)
        await steer(store, key("p"), Pause())
        await steer(store, key("x"), Retire())

        for size in (1, 2, 3, 4, 1000):
            found = await ordered(store, "wake", limit=size)
            assert found == [key(name) for name in "dbfaceg"]

    async def test_snoozed_queues_are_listed_with_those_of_delayed_tasks(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E8, D4: a queue wakes when both its next-ready and its first due time have passed."""
        await configure(store, delay=4.0)
        await add(store, "a/1", "a/2")
        await visit(store)
        await add(store, "b/1", delay=3.0)
        await add(store, "c/1", "c/2", delay=2.0)
        await steer(store, key("c"), Snooze(60.0))
        before = await ordered(store, "wake")
        clock.advance(3.0)

        assert before == [key(name) for name in "bac"]
        assert await ordered(store, "wake") == [key("a"), key("c")]  # b has become ready

    async def test_wake_cursor_stays_valid(self, store: FullStore, clock: FakeClock) -> None:
        """E8: also when its queue has gone, and when its time has passed."""
        await store.add([page(f"{name}/1", delay=float(n)) for n, name in enumerate("abcde", 1)])
        first = await store.queues_in_order(CRAWL, "wake", limit=2)
        await steer(store, key("b"), Pause())
        assert first.after is not None
        second = await store.queues_in_order(CRAWL, "wake", after=first.after)
        clock.advance(3.0)
        third = await store.queues_in_order(CRAWL, "wake", after=first.after)

        assert [view.key for view in second.items] == [key("c"), key("d"), key("e")]
        assert [view.key for view in third.items] == [key("d"), key("e")]

    async def test_claim_wakes_queues_out_of_the_order(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E8, E1: what a claim has woken or leased waits for time no more."""
        await configure(store, delay=10.0)
        await store.add([page(f"{name}/1", delay=float(n)) for n, name in enumerate("abc", 1)])
        clock.advance(2.0)
        await claim(store, 1)
        assert await ordered(store, "wake") == [key("c")]
        await store.add([page("a/2")])

        assert await ordered(store, "wake") == [key("c")]

    async def test_cancelled_crawl_has_no_queue_that_waits(self, store: FullStore) -> None:
        """I3: its queues are empty, and listed by key as before."""
        await add(store, "b/1", "a/1", delay=5.0)
        await store.set_status(CRAWL, CrawlStatus.CANCELLED)

        assert await ordered(store, "wake") == []
        assert await ordered(store, "key") == [key("a"), key("b")]

    async def test_orders_of_an_unknown_crawl_are_empty(self, store: FullStore) -> None:
        """E8: reading creates no crawl."""
        assert (await store.queues_in_order("nobody", "key")).items == []
        assert (await store.queues_in_order("nobody", "wake")).items == []
        assert await store.crawls() == [CRAWL]

    @pytest.mark.parametrize(
        ("order", "given", "wrong"),
        [
            ("spent", {}, "'spent'"),
            ("wake", {"prefix": "a"}, "prefix='a'"),
            ("key", {"prefix": "a" * 1025}, "prefix='aaa"),
            ("wake", {"after": ">a.example"}, "after='>a.example'"),
            ("wake", {"after": "1.2.3"}, "after='1.2.3'"),
            ("wake", {"after": "1.-2"}, "after='1.-2'"),
            ("key", {"after": "a.example"}, "after='a.example'"),
        ],
    )
    async def test_what_is_no_order_is_refused(
        self, store: FullStore, order: Any, given: dict[str, str], wrong: str
    ) -> None:
        """E8: the message names what is wrong."""
        await add(store, "a/1")

        with pytest.raises(InvalidInput, match=wrong):
            await store.queues_in_order(CRAWL, order, **given)  # type: ignore[arg-type]
