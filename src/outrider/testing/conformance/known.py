"""Conformance of known URLs: kept, raised, revisited (B2, B3)."""

from __future__ import annotations

from typing import Final

import pytest

from outrider.core.breakdown import Breakdown
from outrider.core.outcome import Done, Dropped, Failed
from outrider.core.policy.score import explicit
from outrider.core.states import TaskState
from outrider.core.task import KnownRule, Link
from outrider.frontier import Frontier
from outrider.store.protocol import FullStore, TaskView
from outrider.testing.builders import policy
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    NO_DELAY,
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


PAGE: Final = "https://a.example/1"
_QUICK: Final = {"politeness": {"delay": 0.0}}


async def _task(frontier: Frontier) -> TaskView:
    found = await frontier.explain(PAGE)
    assert found.task is not None
    return found.task


async def _end(frontier: Frontier, clock: FakeClock) -> None:
    """Visit the only task, and let time pass."""
    for lease in await frontier.claim(1):
        assert await frontier.finish(lease, Done(status=200, seconds=0.1))
    clock.advance(60)


def _described(view: TaskView) -> tuple[object, ...]:
    """What a link may say of a task."""
    said = (view.key, view.type, view.lane, view.depth, view.origin, view.via, view.tag)
    return (*said, dict(view.meta), view.cost, view.precedence)


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
        """B3: not the type, the cost, the due time; but the breakdown is of the new priority."""
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
    async def test_revisit_makes_an_ended_task_pending(self, store: FullStore, end: str) -> None:
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

    async def test_a_revisit_is_behind_its_equals(self, store: FullStore, clock: FakeClock) -> None:
        """C2: it is inserted again, so its tie is new."""
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

    async def test_revisit_keeps_what_its_link_does_not_say(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B3: type, depth, tag, meta, origin, via, key, and the priority that follows from them."""
        said = Link(
            PAGE,
            type="article",
            depth=3,
            bias=2.0,
            tag="t",
            meta={"a": [1]},
            origin="sitemap",
            via="https://b.example/",
            key="other",
        )
        async with Frontier.open(store, clock=clock, settings=_QUICK) as frontier:
            await frontier.add([said])
            before = await _task(frontier)
            await _end(frontier, clock)
            report = await frontier.add([Link(PAGE, known="revisit")])
            after = await _task(frontier)

            assert report.added == 1
            assert after.state is TaskState.PENDING
            assert _described(after) == _described(before)
            assert (after.priority, after.breakdown) == (before.priority, before.breakdown)

    @pytest.mark.parametrize("keyed_by", ["host", "domain", "surt", "buckets:1000"])
    async def test_revisit_by_identity_visits_another_host_from_its_own_queue(
        self, store: FullStore, clock: FakeClock, keyed_by: str
    ) -> None:
        """B3, E1: the key follows the URL, so two visits of one host never run at once."""
        moved = "https://b.org:81/1"
        settings = {"queue": {"key": keyed_by}}
        async with Frontier.open(store, clock=clock, settings=settings) as frontier:
            await frontier.add([Link(PAGE, identity="item 1", tag="t")])
            await _end(frontier, clock)
            await frontier.add(["https://b.org:81/2"])
            (other,) = await frontier.claim()
            report = await frontier.add([Link(moved, identity="item 1", known="revisit")])
            again = (await frontier.explain(Link(moved, identity="item 1"))).task

            assert report.added == 1
            assert again is not None
            assert (again.url, again.key, again.tag) == (moved, other.key, "t")
            assert not await frontier.claim(5)

            assert await frontier.finish(other, Done(200, seconds=0.1))
            clock.advance(60)
            assert [lease.url for lease in await frontier.claim(5)] == [moved]

    @pytest.mark.parametrize("rule", ["keep", "raise", "revisit"])
    async def test_forgotten_task_moves_to_the_host_of_the_url_that_admits_it_again(
        self, store: FullStore, clock: FakeClock, rule: KnownRule
    ) -> None:
        """B3, C10, E1: whatever the rule of the link."""
        moved = "https://b.example/1"
        async with Frontier.open(store, clock=clock, settings=_QUICK) as frontier:
            await frontier.add([Link(PAGE, identity="item 1")])
            await frontier.forget(Link(PAGE, identity="item 1"))
            await frontier.add([Link(moved, identity="item 1", known=rule)])
            (lease,) = await frontier.claim(5)

            assert (lease.url, lease.key) == (moved, "b.example")

    async def test_revisit_by_identity_keeps_the_key_that_a_link_gave(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """A4, B3: it does not follow from the URL; and a new key wins over both."""
        moved = "https://b.example/1"
        async with Frontier.open(store, clock=clock, settings=_QUICK) as frontier:
            await frontier.add([Link(PAGE, identity="item 1", key="mine")])
            await _end(frontier, clock)
            await frontier.add([Link(moved, identity="item 1", known="revisit")])
            (kept,) = await frontier.claim()
            await frontier.finish(kept, Done(200, seconds=0.1))
            clock.advance(60)
            again = Link(PAGE, identity="item 1", known="revisit", key="other")
            await frontier.add([again])
            (given,) = await frontier.claim()

            assert (kept.url, kept.key) == (moved, "mine")
            assert (given.url, given.key) == (PAGE, "other")

    async def test_raise_by_identity_leaves_url_and_queue(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B3: it moves a pending task forward and changes nothing else of it."""
        async with Frontier.open(store, clock=clock, settings=_QUICK) as frontier:
            await frontier.add([Link(PAGE, identity="item 1", priority=5.0)])
            moved = Link("https://b.example/1", identity="item 1", known="raise", priority=1.0)
            await frontier.add([moved])
            (lease,) = await frontier.claim(5)

            assert (lease.url, lease.key, lease.priority) == (PAGE, "a.example", 1.0)
            assert [view.key async for view in frontier.queues()] == ["a.example"]

    async def test_revisit_keeps_the_text_its_link_does_not_give(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B1, B3: an own text stays, and another one replaces it."""
        async with Frontier.open(store, clock=clock, settings=_QUICK) as frontier:
            await frontier.add([Link(PAGE, text="item 1")])
            await _end(frontier, clock)
            await frontier.add([Link(PAGE, known="revisit")])
            kept = await _task(frontier)
            await _end(frontier, clock)
            await frontier.add([Link(PAGE, known="revisit", text="item one")])
            changed = await _task(frontier)

            assert (kept.text, changed.text) == ("item 1", "item one")

    @pytest.mark.parametrize("keeps", [False, True])
    async def test_a_url_is_kept_as_its_link_gave_it_if_the_setting_says_so(
        self, store: FullStore, clock: FakeClock, *, keeps: bool
    ) -> None:
        """B1: a lease has that text beside what is visited; a revisit leaves it."""
        given = " HTTPS://A.example:443/1#part"
        settings = {**_QUICK, "url": {"keep_text": keeps}}
        async with Frontier.open(store, clock=clock, settings=settings) as frontier:
            await frontier.add([given])
            (lease,) = await frontier.claim(1)
            await frontier.finish(lease, Done(status=200, seconds=0.1))
            clock.advance(60)
            await frontier.add([Link(f"{PAGE}#other", known="revisit")])

            assert (lease.url, lease.text) == (PAGE, given if keeps else PAGE)
            assert (await _task(frontier)).text == (given if keeps else "")

    async def test_a_revisit_of_what_was_given_as_it_is_visited_keeps_no_other_text(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B1, B3: the URL itself was the text."""
        settings = {**_QUICK, "url": {"keep_text": True}}
        async with Frontier.open(store, clock=clock, settings=settings) as frontier:
            await frontier.add([PAGE])
            await _end(frontier, clock)
            await frontier.add([Link(f"{PAGE}#other", known="revisit")])

            assert (await _task(frontier)).text == ""

    async def test_keep_and_raise_leave_the_text_alone(self, store: FullStore) -> None:
        """B3: only a visit that is asked for takes the text of its link."""
        await add(store, "a/1", priority=5.0, text="first")
        await add(store, "a/1", text="second")
        await add(store, "a/1", priority=1.0, known="raise", text="third")

        view = await record(store, "a/1")
        assert (view.text, view.priority) == ("first", 1.0)

    async def test_revisit_changes_what_its_link_says(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B3: also if it says what a link is by default."""
        said = Link(PAGE, type="article", depth=3, tag="t", meta={"a": 1}, priority=5.0)
        again = Link(PAGE, known="revisit", type="page", depth=0, bias=0.0, meta={"b": 2}, tag="u")
        async with Frontier.open(store, clock=clock, settings=_QUICK) as frontier:
            await frontier.add([said])
            await _end(frontier, clock)
            await frontier.add([again])
            after = await _task(frontier)

            assert (after.type, after.lane, after.depth) == ("page", "discovery", 0)
            assert (after.tag, after.meta, after.priority) == ("u", {"b": 2}, 12.0)

    async def test_revisit_keeps_an_explicit_priority(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """F8: of a link that says nothing of its priority, also what was explicit stays."""
        async with Frontier.open(store, clock=clock, settings=_QUICK) as frontier:
            await frontier.add([Link(PAGE, priority=-7.0)])
            await _end(frontier, clock)
            await frontier.add([Link(PAGE, known="revisit")])

            assert (await _task(frontier)).priority == -7.0

    async def test_raise_is_scored_with_what_its_link_does_not_say(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B3: a link that says nothing new raises nothing, and one with a bias raises by it."""
        async with Frontier.open(store, clock=clock, settings=_QUICK) as frontier:
            await frontier.add([Link(PAGE, depth=9)])
            await frontier.add([Link(PAGE, known="raise")])
            before = await _task(frontier)
            await frontier.add([Link(PAGE, known="raise", bias=-4.0)])
            after = await _task(frontier)

            assert (before.priority, after.priority) == (21.0, 17.0)
            assert dict(after.breakdown.terms) == {"type": 12.0, "depth": 9.0, "bias": -4.0}

    async def test_a_revisit_needs_room_too(self, store: FullStore) -> None:
        """B4: refused as queue-full, an ended task stays as it ended."""
        await configure(store, max_pending=1, **NO_DELAY)
        await brought_to(store, "done")
        await add(store, "a/2")

        (answer,) = await add(store, "a/1", known="revisit")

        assert (answer.added, answer.reason) == (False, "queue-full")
        assert (await record(store, "a/1")).state is TaskState.DONE
