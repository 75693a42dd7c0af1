"""Conformance of forgetting: any state, and the next add admits again (C10)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Dropped
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.store.protocol import FullStore, TaskFilter
from outrider.testing.builders import done
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.set_known import STATES, brought_to
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    add,
    ask,
    claim,
    configure,
    crawl,
    finish,
    names,
    one,
    page,
    queue,
    record,
    state,
    visit,
)

_ALL = TaskFilter()


async def forget(store: FullStore, which: TaskFilter = _ALL) -> int:
    """Forget what matches; how many they were."""
    step = await store.forget(CRAWL, which, dry_run=False)
    assert step.after is None
    return step.count


class ForgetConformance:
    """`forget`."""

    @pytest.mark.parametrize("before", [one for one in STATES if one != "forgotten"])
    async def test_a_task_of_any_state_is_forgotten(
        self, store: FullStore, clock: FakeClock, before: str
    ) -> None:
        """C10: it is dropped, counted once, and no duplicate any more."""
        await configure(store, **NO_DELAY)
        await brought_to(store, before)
        clock.advance(1)

        counts = [await forget(store), await forget(store)]

        view, whole = await record(store, "a/1"), await crawl(store)
        assert counts == [1, 0]
        assert (view.state, view.reason) == (TaskState.DROPPED, "forgotten")
        assert (whole.known, whole.dropped, whole.pending, whole.leased) == (1, 1, 0, 0)
        assert ((await queue(store)).dropped, (await queue(store)).pending) == (1, 0)
        assert await claim(store) == []

    @pytest.mark.parametrize("rule", ["keep", "raise", "gather", "revisit", "set"])
    async def test_the_next_add_admits_a_forgotten_task(self, store: FullStore, rule: str) -> None:
        """B3, C10: as a revisit, whatever its rule; after that it is a duplicate again."""
        await configure(store, **NO_DELAY)
        await brought_to(store, "done")
        number = (await record(store, "a/1")).number
        await forget(store)

        (answer,) = await add(store, "a/1", known=rule, priority=3.0)  # type: ignore[arg-type]
        (again,) = await add(store, "a/1")

        view = await record(store, "a/1")
        assert (answer.added, again.reason) == (True, "duplicate")
        assert (view.number, view.state, view.priority) == (number, TaskState.PENDING, 3.0)
        assert (await crawl(store)).known == 1
        assert (await one(store)).attempt == 1

    async def test_others_stay_duplicates_while_some_are_forgotten(self, store: FullStore) -> None:
        """B3: only a forgotten task is admitted again, also in the same batch."""
        await add(store, "a/1", "a/2", "a/3")
        await forget(store, TaskFilter(url="https://a.example/2"))

        answers = await add(store, "a/1", "a/2", "a/3", "a/2", "a/4")

        assert [answer.added for answer in answers] == [False, True, False, False, True]

    async def test_a_forgotten_lease_ends_without_punishment(self, store: FullStore) -> None:
        """C10, H5: refunded, and its finish is refused."""
        await add(store, "a/1", cost=2)
        lease = await one(store)

        assert await forget(store) == 1

        assert (await queue(store)).spent == 0
        assert not (await finish(store, done(lease))).applied
        assert (await crawl(store)).visits == 0

    async def test_forgetting_keeps_the_last_answer(self, store: FullStore) -> None:
        """C10: history and answer stay for its view, and for a conditional request."""
        await brought_to(store, "done")
        await forget(store)

        assert (await record(store, "a/1")).answer is not None

    @pytest.mark.parametrize("wanted", ["pending", "leased", "done", "dead", "dropped"])
    async def test_a_state_selects(self, store: FullStore, wanted: str) -> None:
        """C10: only tasks that are shown in it."""
        await configure(store, **NO_DELAY)
        await brought_to(store, wanted)
        await add(store, "b/1", delay=60.0)
        await add(store, "b/2", done=True)

        await forget(store, TaskFilter(state=TaskState(wanted), key="a.example"))

        assert (await record(store, "a/1")).reason == "forgotten"
        assert (await record(store, "b/1")).reason is None
        assert (await record(store, "b/2")).reason is None

    async def test_a_dry_run_counts_and_changes_nothing(self, store: FullStore) -> None:
        """C10: as of `drop`."""
        await add(store, "a/1", "a/2")

        step = await store.forget(CRAWL, _ALL, dry_run=True)

        assert (step.count, (await crawl(store)).pending) == (2, 2)

    async def test_forgetting_goes_step_by_step(self, store: FullStore) -> None:
        """C10: `limit` bounds the tasks examined."""
        await add(store, *(f"a/{number}" for number in range(5)))
        count, after = 0, 0

        for _ in range(3):
            step = await store.forget(CRAWL, _ALL, dry_run=False, after=after, limit=2)
            count, after = count + step.count, step.after or 0

        assert (count, after, (await crawl(store)).dropped) == (5, 0, 5)

    async def test_a_cancelled_crawl_forgets_nothing(self, store: FullStore) -> None:
        """I3: it has no tasks to change."""
        await add(store, "a/1")
        await store.set_status(CRAWL, CrawlStatus.CANCELLED)

        assert await forget(store) == 0

    async def test_an_empty_queue_is_left(self, store: FullStore) -> None:
        """C1: nothing is pending there, and the run can end."""
        await add(store, "a/1")
        await forget(store)

        assert await state(store) == (QueueState.EMPTY, None)
        assert (await ask(store)).status is CrawlStatus.FINISHED

    async def test_a_retired_queue_counts_right(self, store: FullStore) -> None:
        """E5: `held` is what is pending there."""
        await configure(store, total_budget=0)
        await add(store, "a/1", "a/2")

        await forget(store, TaskFilter(url="https://a.example/1"))
        before = (await crawl(store)).held
        await add(store, "a/1")

        assert (before, (await crawl(store)).held) == (1, 2)

    async def test_a_handler_may_forget(self, store: FullStore) -> None:
        """C10: a visit that ends as dropped with that reason has forgotten its page."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1")
        await visit(store, Dropped("forgotten"))

        (answer,) = await add(store, "a/1")

        assert answer.added

    async def test_a_forgotten_url_may_come_back_as_done(self, store: FullStore) -> None:
        """B3: as the link describes it."""
        await brought_to(store, "forgotten")

        await store.add([page("a/1", done=True)])
        (again,) = await add(store, "a/1")

        assert (await record(store, "a/1")).state is TaskState.DONE
        assert again.reason == "duplicate"

    async def test_forgetting_is_signed(self, store: FullStore) -> None:
        """O3: the act says who did it."""
        await add(store, "a/1")

        await store.forget(CRAWL, _ALL, dry_run=False, by="ann")

        (event,) = [one for one in await store.events_since(CRAWL) if one.name == "act-forget"]
        assert event.by == "ann"

    async def test_forgotten_tasks_are_dropped_in_lists(self, store: FullStore) -> None:
        """O5: by state, by reason, and of a queue."""
        await add(store, "a/1", "a/2")
        await forget(store, TaskFilter(url="https://a.example/1"))

        state_ = TaskFilter(state=TaskState.DROPPED)
        by_state = (await store.tasks(CRAWL, state_)).items
        by_reason = (await store.tasks(CRAWL, TaskFilter(reason="forgotten"))).items
        of_queue = await store.queue_tasks(CRAWL, "a.example", state=TaskState.DROPPED)

        assert [view.url for view in by_state] == ["https://a.example/1"]
        assert list(by_state) == list(by_reason) == list(of_queue.items)
        assert names(await claim(store, 2)) == ["a/2"]
