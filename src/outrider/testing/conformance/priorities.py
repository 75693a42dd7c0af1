"""Conformance of priority updates: of pending tasks, or gathered link by link (C8, F10)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest

from outrider.core.breakdown import Breakdown
from outrider.core.policy.score import explicit
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import ACQUISITION
from outrider.errors import InvalidInput
from outrider.store.protocol import FullStore, Pending, PriorityUpdate, TaskFilter
from outrider.testing.builders import done, failed
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    add,
    claim,
    configure,
    drained,
    finish,
    names,
    one,
    page,
    record,
    visit,
)

WHY = Breakdown("base", (("type", 4.0), ("depth", 1.0)))


async def reprice(store: FullStore, name: str, priority: float, seen: float = 0.0) -> int:
    """Give one page another priority."""
    number = (await record(store, name)).number
    return await store.update_priorities(CRAWL, [PriorityUpdate(number, seen, priority, WHY)])


def names_of(found: Sequence[Pending]) -> list[str]:
    """Their short names."""
    return [one.task.url.removeprefix("https://").replace(".example", "") for one in found]


class PricingConformance:
    """New priorities."""

    async def test_a_priority_update_moves_a_task_both_ways(self, store: FullStore) -> None:
        """C8: forward and back, with its breakdown."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3")

        assert await reprice(store, "a/1", 5.0) == 1
        assert await reprice(store, "a/3", -5.0) == 1

        view = await record(store, "a/1")
        assert (view.priority, view.breakdown) == (5.0, WHY)
        assert await drained(store) == ["a/3", "a/2", "a/1"]

    async def test_a_priority_update_moves_the_queue(self, store: FullStore) -> None:
        """C3: queues go by their top task, in whichever lane it is."""
        await add(store, "a/1", "b/1", "c/1")
        await add(store, "d/1", lane=ACQUISITION)

        await reprice(store, "c/1", -1.0)
        await reprice(store, "a/1", 1.0)

        assert names(await claim(store, 4)) == ["c/1", "b/1", "a/1", "d/1"]

    async def test_a_priority_update_keeps_the_tie(self, store: FullStore) -> None:
        """C2: among equals the oldest is first."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", priority=9.0)
        await add(store, "a/2")

        await reprice(store, "a/1", 0.0, seen=9.0)

        assert await drained(store) == ["a/1", "a/2"]

    async def test_what_is_not_pending_is_left_alone(self, store: FullStore) -> None:
        """C8: leased, done, or unknown."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await visit(store)
        lease = await one(store)

        assert await reprice(store, "a/1", 5.0) == 0
        assert await reprice(store, "a/2", 5.0) == 0
        assert (
            await store.update_priorities(
                CRAWL, [PriorityUpdate(99, 0.0, 1.0), PriorityUpdate(0, 0.0, 1.0)]
            )
            == 0
        )
        assert (await record(store, "a/2")).priority == 0.0
        assert (await finish(store, done(lease))).applied

    async def test_a_priority_update_with_an_outdated_priority_is_ignored(
        self, store: FullStore
    ) -> None:
        """C8: another worker updated it before."""
        await add(store, "a/1")
        await reprice(store, "a/1", 5.0)

        assert await reprice(store, "a/1", 7.0) == 0
        assert (await record(store, "a/1")).priority == 5.0

    async def test_a_delayed_task_gets_its_new_priority(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C6: its due time stays."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", delay=10.0)
        await add(store, "a/2")

        assert await reprice(store, "a/1", -5.0) == 1
        assert names(await claim(store, 2)) == ["a/2"]
        clock.advance(10)
        assert names(await claim(store, 2)) == ["a/1"]

    async def test_a_retried_task_keeps_its_new_priority(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C2: retry and release keep their place."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await reprice(store, "a/2", -5.0)
        lease = await one(store)
        assert (lease.url, lease.priority) == ("https://a.example/2", -5.0)
        await finish(store, failed(lease, retry_in=0.0))
        clock.advance(1)

        assert names(await claim(store)) == ["a/2"]

    async def test_forced_tasks_stay_first(self, store: FullStore) -> None:
        """C2: precedence comes before any priority."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", precedence=0)
        await add(store, "a/2")

        await reprice(store, "a/1", 9.0)

        assert await drained(store) == ["a/1", "a/2"]

    async def test_many_priorities_are_updated_at_once(self, store: FullStore) -> None:
        """C8: in a batch over several queues; returns how many had the priority seen."""
        await configure(store, **NO_DELAY)
        pages = [f"{host}/{n}" for n in range(3) for host in "ab"]
        await add(store, *pages)
        numbers = [(await record(store, name)).number for name in pages]

        prices = [PriorityUpdate(number, 0.0, float(-number), WHY) for number in numbers]
        assert await store.update_priorities(CRAWL, [*prices, PriorityUpdate(1, 3.0, 3.0)]) == 6
        assert await drained(store) == pages[::-1]

    async def test_a_cancelled_crawl_has_no_priorities_to_update(self, store: FullStore) -> None:
        """I3: its tasks read as dropped."""
        await add(store, "a/1")
        await store.set_status(CRAWL, CrawlStatus.CANCELLED)

        assert await reprice(store, "a/1", 5.0) == 0

    @pytest.mark.parametrize("bad", [inf, -inf, float("nan")])
    async def test_a_priority_must_be_a_number(self, store: FullStore, bad: float) -> None:
        """C2: and nothing is half-done."""
        await add(store, "a/1")
        with pytest.raises(InvalidInput):
            await store.update_priorities(
                CRAWL, [PriorityUpdate(1, 0.0, 4.0), PriorityUpdate(1, 0.0, bad)]
            )

        assert (await record(store, "a/1")).priority == 0.0

    async def test_pending_tasks_are_read_for_rescoring(self, store: FullStore) -> None:
        """C8: pending tasks with their priorities, and no leased or done ones."""
        await configure(store, **NO_DELAY)
        pages, meta = ["a/1", "a/2", "a/3", "b/1", "b/2"], b'{"n":1}'
        await add(store, *pages, meta=meta, type="nav", breakdown=WHY)
        for name in pages:
            await reprice(store, name, 2.5)
        gone = [await one(store), await one(store)]
        await finish(store, done(gone[0]))

        first = await store.pending_tasks(CRAWL, TaskFilter(), limit=3)
        rest = await store.pending_tasks(CRAWL, TaskFilter(), after=first.after or 0, limit=3)
        found = [*first.items, *rest.items]
        assert rest.after is None
        assert sorted(names_of(found)) == sorted({*pages} - {*names(gone)})
        for each, name in zip(found, names_of(found), strict=True):
            assert each.number == (await record(store, name)).number
            task = each.task
            assert (task.priority, task.meta, task.type, task.breakdown) == (2.5, meta, "nav", WHY)

    async def test_what_waits_is_read_by_any_filter(self, store: FullStore) -> None:
        """C8, C10: by key, by pattern; only what is pending, so none of a cancelled crawl."""
        await add(store, "a/1", "a/2", "b/1")

        async def waiting(which: TaskFilter) -> list[str]:
            return names_of((await store.pending_tasks(CRAWL, which)).items)

        assert await waiting(TaskFilter(key="b.example")) == ["b/1"]
        assert await waiting(TaskFilter(pattern="/1$", state=TaskState.PENDING)) == ["a/1", "b/1"]
        assert await waiting(TaskFilter(state=TaskState.DONE)) == []
        await store.set_status(CRAWL, CrawlStatus.CANCELLED)
        assert await waiting(TaskFilter()) == []

    async def test_gathered_priorities_add_up(self, store: FullStore) -> None:
        """F10: each link brings a little; the newcomer is a duplicate all the same."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", priority=-1.0, breakdown=explicit(-1.0).breakdown)

        (answer,) = await add(store, "a/2", priority=-0.5, known="gather")
        await add(store, "a/2", priority=-0.25, known="gather", type="nav", precedence=9)

        view = await record(store, "a/2")
        assert (answer.added, answer.reason) == (False, "duplicate")
        assert (view.priority, view.type, view.precedence) == (-1.75, "page", 1)
        assert view.breakdown.terms == (("explicit", -1.0), ("gathered", -0.75))
        assert await drained(store) == ["a/2", "a/1"]

    async def test_an_unknown_page_that_would_gather_is_added(self, store: FullStore) -> None:
        """F10: with what it brings."""
        (answer,) = await add(store, "a/1", priority=-0.5, known="gather")

        assert (answer.added, answer.priority) == (True, -0.5)

    async def test_gathering_never_makes_anybody_wait(self, store: FullStore) -> None:
        """F2: what is not below 0 is not added; nor what is no number any more."""
        await add(store, "a/1", priority=-1.5e308)
        await add(store, "a/2", priority=-1.0)

        await add(store, "a/1", priority=-1.5e308, known="gather")
        await add(store, "a/2", priority=3.0, known="gather")

        assert (await record(store, "a/1")).priority == -1.5e308
        assert (await record(store, "a/2")).priority == -1.0

    async def test_only_pending_tasks_gather(self, store: FullStore) -> None:
        """F10: one that is visited, or was, has no place to gain."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await visit(store)
        lease = await one(store)
        await add(store, "a/1", "a/2", priority=-5.0, known="gather")

        assert [(await record(store, name)).priority for name in ("a/1", "a/2")] == [0.0, 0.0]
        assert (await finish(store, done(lease))).applied

    async def test_links_of_a_page_gather(self, store: FullStore) -> None:
        """H6: with the finish, and with new pages beside."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3")
        lease = await one(store)
        links = [page(name, priority=-1.0, known="gather") for name in ("a/3", "a/4", "b/1")]
        await finish(store, done(lease, links=links))

        assert (await record(store, "a/3")).priority == -1.0
        assert await drained(store) == ["a/3", "b/1", "a/4", "a/2"]
