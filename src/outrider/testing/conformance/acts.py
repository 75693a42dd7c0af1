"""Conformance of operators' acts: who did what is kept with the events (O3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from outrider.core.outcome import Failed
from outrider.core.queue_action import Pause, QueueAction, Resume, Retire, Revive, Set, Snooze, Wake
from outrider.core.states import CrawlStatus, TaskState
from outrider.errors import InvalidInput
from outrider.store.protocol import MAX_BY_CHARS, FullStore, StoreEvent, TaskFilter
from outrider.testing.builders import policy, rules
from outrider.testing.conformance.steps import (
    CRAWL,
    add,
    configure,
    crawl,
    drained,
    key,
    mark,
    state,
    visit,
)

ANN = "ann@ops"
Fact: TypeAlias = tuple[str, str, str, str]
Call: TypeAlias = Callable[[FullStore, str], Awaitable[Any]]

STEERING: dict[str, tuple[QueueAction, str]] = {
    "act-queue-set": (Set({"delay": 2.5}), '{"delay": 2.5}'),
    "act-queue-pause": (Pause(), ""),
    "act-queue-resume": (Resume(), ""),
    "act-queue-retire": (Retire(), ""),
    "act-queue-revive": (Revive(), ""),
    "act-queue-snooze": (Snooze(90.5), "90.5"),
    "act-queue-wake": (Wake(), ""),
}

FILTERS: list[tuple[TaskFilter, str]] = [
    (TaskFilter(), ""),
    (TaskFilter(key=key("a"), tag="t"), f'key="{key("a")}" tag="t"'),
    (TaskFilter(pattern="/ü\n"), 'pattern="/\\u00fc\\n"'),
    (TaskFilter(state=TaskState.DEAD, older_than=60.0), 'state="dead" older_than=60.0'),
    (TaskFilter(fingerprint=mark("a/1")), f'fingerprint="{mark("a/1").hex()}"'),
]

EVERY_ACT: dict[str, Call] = {
    "configure": lambda store, by: store.configure(CRAWL, rules(), by=by),
    "steer": lambda store, by: store.steer(CRAWL, key("a"), Retire(), by=by),
    "steer all": lambda store, by: store.steer(CRAWL, "", Retire(), by=by),
    "set_status": lambda store, by: store.set_status(CRAWL, CrawlStatus.PAUSED, by=by),
    "drop": lambda store, by: store.drop(CRAWL, TaskFilter(), dry_run=False, by=by),
    "replay": lambda store, by: store.replay(CRAWL, TaskFilter(), dry_run=False, by=by),
    "purge": lambda store, by: store.purge(CRAWL, TaskFilter(), dry_run=False, by=by),
}
every_act = pytest.mark.parametrize("act", EVERY_ACT.values(), ids=[*EVERY_ACT])


def fact(event: StoreEvent) -> Fact:
    """Return what an event says, without its time and number."""
    return event.name, event.subject, event.detail, event.by


async def facts(store: FullStore) -> list[Fact]:
    """Return all events of the crawl."""
    return [fact(event) for event in await store.events_since(CRAWL)]


async def dead(store: FullStore, name: str) -> None:
    """Add a page that dies of its first visit."""
    await add(store, name)
    await visit(store, Failed("HTTP 500"), policy=policy(max_retries=0))


class ActsConformance:
    """Acts that say who did them, and acts that do not."""

    @pytest.mark.parametrize("name", STEERING)
    async def test_an_act_on_queues_is_an_event(self, store: FullStore, name: str) -> None:
        """O3: with its target, its values and who did it."""
        act, detail = STEERING[name]
        await add(store, "b/1")

        await store.steer(CRAWL, key("a"), act, by=ANN)
        await store.steer(CRAWL, ".a.example", act, by=ANN)

        assert await facts(store) == [
            (name, key("a"), detail, ANN),
            (name, ".a.example", detail, ANN),
        ]

    @pytest.mark.parametrize("verb", ["drop", "replay", "purge"])
    @pytest.mark.parametrize(("which", "text"), FILTERS, ids=lambda value: str(value)[:20])
    async def test_an_act_on_tasks_is_an_event(
        self, store: FullStore, verb: str, which: TaskFilter, text: str
    ) -> None:
        """O3: with its filter, as text that can be shown, and who did it."""
        await getattr(store, verb)(CRAWL, which, dry_run=False, by=ANN)

        assert await facts(store) == [(f"act-{verb}", text, "", ANN)]

    async def test_new_rules_are_an_event(self, store: FullStore) -> None:
        """O3: applying them to all queues is no act of its own."""
        await add(store, "a/1")

        assert await store.configure(CRAWL, rules(delay=2.0), by=ANN)
        await store.steer(CRAWL, "", Set({}), by=ANN)

        assert await facts(store) == [("act-configure", CRAWL, "", ANN)]

    async def test_a_change_of_status_says_who_made_it(self, store: FullStore) -> None:
        """O3, I1: the event of the change is that of the act; an illegal one is none."""
        await store.set_status(CRAWL, CrawlStatus.PAUSED, "lunch", by=ANN)
        await store.set_status(CRAWL, CrawlStatus.PAUSED, by="bob")
        await store.set_status(CRAWL, CrawlStatus.RUNNING)
        await store.set_status(CRAWL, CrawlStatus.CANCELLED, by=ANN)

        assert await facts(store) == [
            ("crawl-paused", CRAWL, "lunch", ANN),
            ("crawl-running", CRAWL, "operator", ""),
            ("crawl-cancelled", CRAWL, "operator", ANN),
        ]

    async def test_what_an_act_causes_says_who_did_it(self, store: FullStore) -> None:
        """O3: what follows without an act, or from one without a name, has no `by`."""
        await dead(store, "a/1")
        await drained(store)
        await store.steer(CRAWL, key("a"), Retire(), by=ANN)
        await store.steer(CRAWL, key("a"), Revive())
        await store.replay(CRAWL, TaskFilter(), dry_run=False, by="bob")
        await store.purge(CRAWL, TaskFilter(), dry_run=False)
        await store.drop(CRAWL, TaskFilter(), dry_run=False, by=ANN)
        await drained(store)

        assert Counter(await facts(store)) == Counter(
            [
                ("crawl-finished", CRAWL, "run 1", ""),
                ("act-queue-retire", key("a"), "", ANN),
                ("queue-retired", key("a"), "operator", ANN),
                ("queue-returned", key("a"), "operator", ""),
                ("act-replay", "", "", "bob"),
                ("crawl-running", CRAWL, "work", "bob"),
                ("act-drop", "", "", ANN),
                ("crawl-finished", CRAWL, "run 2", ""),
            ]
        )

    async def test_new_rules_that_retire_queues_say_who_set_them(self, store: FullStore) -> None:
        """O3, E5: in every step that applies them."""
        await add(store, "a/1", "b/1", "c/1")
        await store.configure(CRAWL, rules(balance=0), by=ANN)
        after: int | None = 0
        while after is not None:
            after = (await store.steer(CRAWL, "", Set({}), after=after, limit=1, by=ANN)).after

        retired = [one for one in await facts(store) if one[0] == "queue-retired"]

        assert sorted(retired) == [("queue-retired", key(h), "budget", ANN) for h in "abc"]

    async def test_an_act_in_steps_is_one_event(self, store: FullStore) -> None:
        """O3: logged by the first step."""
        await add(store, "a/1", "a/2", "b/1", "c/1")
        after: int | None = 0
        while after is not None:
            after = (await store.steer(CRAWL, "", Pause(), after=after, limit=1, by=ANN)).after
        after = 0
        while after is not None:
            step = await store.drop(
                CRAWL, TaskFilter(), dry_run=False, after=after, limit=1, by=ANN
            )
            after = step.after

        assert await facts(store) == [
            ("act-queue-pause", "", "", ANN),
            ("act-drop", "", "", ANN),
        ]

    async def test_a_dry_run_is_no_act(self, store: FullStore) -> None:
        """O3."""
        await add(store, "a/1")
        for verb in (store.drop, store.replay, store.purge):
            await verb(CRAWL, TaskFilter(), dry_run=True, by=ANN)

        assert await facts(store) == []

    @every_act
    async def test_an_act_without_a_name_is_not_logged(self, store: FullStore, act: Call) -> None:
        """O3: only what it causes is."""
        await dead(store, "a/1")
        await act(store, "")

        assert not [one for one in await facts(store) if one[0].startswith("act-") or one[3]]

    @every_act
    @pytest.mark.parametrize(
        "by", ["x" * (MAX_BY_CHARS + 1), "a\nb", "\0", "\x1b[2J", "\ud800"], ids=ascii
    )
    async def test_a_name_that_cannot_be_shown_is_refused(
        self, store: FullStore, act: Call, by: str
    ) -> None:
        """O3: before anything changes."""
        await dead(store, "a/1")
        await add(store, "a/2")
        before = await crawl(store), await state(store), await facts(store)

        with pytest.raises(InvalidInput):
            await act(store, by)

        assert before == (await crawl(store), await state(store), await facts(store))

    @pytest.mark.parametrize("verb", ["drop", "replay", "purge"])
    async def test_an_invalid_pattern_is_no_act(self, store: FullStore, verb: str) -> None:
        """C10, O3: it is refused before anything is logged."""
        await add(store, "a/1")

        with pytest.raises(InvalidInput):
            await getattr(store, verb)(CRAWL, TaskFilter(pattern="("), dry_run=False, by=ANN)

        assert await facts(store) == []

    async def test_long_values_are_cut(self, store: FullStore) -> None:
        """O3: an event has a bounded size, whatever the act was given."""
        await store.drop(CRAWL, TaskFilter(url="u" * 5000), dry_run=False, by="x" * MAX_BY_CHARS)
        await store.steer(CRAWL, ".d" * 600, Pause(), by=ANN)

        subjects = [subject for _, subject, _, _ in await facts(store)]

        assert [len(subject) for subject in subjects] == [500, 500]

    async def test_events_are_read_one_by_one(self, store: FullStore) -> None:
        """O3: the same as all at once."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "b/1", "c/1", "d/1")
        for act in (Retire(), Revive(), Pause(), Retire()):
            await store.steer(CRAWL, "", act, by=ANN)
        everything = await store.events_since(CRAWL)
        after, found = 0, []
        while part := await store.events_since(CRAWL, after=after, limit=1):
            found += part
            after = part[-1].sequence

        assert [fact(event) for event in found] == [fact(event) for event in everything]
        assert len(found) == 4 + 4 + 4 + 4
