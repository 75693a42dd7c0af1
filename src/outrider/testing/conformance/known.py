"""What becomes of a URL that is known already: kept, raised, revisited (B2, B3)."""

from __future__ import annotations

import pytest

from outrider.core.breakdown import Breakdown
from outrider.core.outcome import Done, Dropped, Failed
from outrider.core.policy.score import explicit
from outrider.core.states import TaskState
from outrider.store.protocol import FullStore
from outrider.testing.builders import policy
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    NO_MANNERS,
    add,
    claim,
    configure,
    crawl,
    key,
    names,
    one,
    queue,
    record,
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


class KnownConformance:
    """Known URLs."""

    @pytest.mark.parametrize("end", ENDS)
    async def test_an_ended_url_is_a_duplicate(self, store: FullStore, end: str) -> None:
        """B3: dedup never forgets, whatever became of the task."""
        await brought_to(store, end)

        answers = await add(store, "a/1") + await add(store, "a/1", known="raise", priority=-9.0)

        assert [answer.reason for answer in answers] == ["duplicate", "duplicate"]
        assert (await record(store, "a/1")).state is ENDS[end]
        assert (await record(store, "a/1")).priority == 0.0

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

    async def test_an_equal_priority_is_no_better(self, store: FullStore) -> None:
        """B3: so nothing is taken of it."""
        first = Breakdown("base", (("type", 1.0), ("depth", 0.0)))
        await add(store, "a/1", priority=1.0, breakdown=first)

        await add(store, "a/1", priority=1.0, known="raise", breakdown=explicit(1.0).breakdown)

        assert (await record(store, "a/1")).breakdown == first

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

    async def test_a_revisited_task_keeps_its_last_answer(self, store: FullStore) -> None:
        """B1, G3: its validators are what a conditional request needs."""
        await add(store, "a/1")
        await visit(store, Done(status=200, bytes=7, etag="e"))

        await add(store, "a/1", known="revisit")

        answer = (await record(store, "a/1")).answer
        assert answer is not None
        assert (answer.status, answer.bytes, answer.etag) == (200, 7, "e")

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

    async def test_a_revisit_needs_room_too(self, store: FullStore) -> None:
        """B4: refused as queue-full, an ended task stays as it ended."""
        await configure(store, max_pending=1, **NO_MANNERS)
        await brought_to(store, "done")
        await add(store, "a/2")

        (answer,) = await add(store, "a/1", known="revisit")

        assert (answer.added, answer.reason) == (False, "queue-full")
        assert (await record(store, "a/1")).state is TaskState.DONE
