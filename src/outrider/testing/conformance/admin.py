"""Conformance of queue actions: pause, retire and their undoing, also for later queues (A4, E7)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Done, Unreachable
from outrider.core.queue_action import Pause, QueueAction, Resume, Retire, Revive, Set, Snooze, Wake
from outrider.core.states import QueueState
from outrider.store.protocol import FullStore, Step
from outrider.testing.builders import done, rules
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    PAUSED,
    READY,
    RETIRED,
    add,
    claim,
    configure,
    crawl,
    finish,
    key,
    names,
    one,
    queue,
    state,
    steer,
    visit,
)

EVERY_ACT: list[QueueAction] = [
    Set({"balance": 5, "delay": 2.0}),
    Pause(),
    Resume(),
    Retire(),
    Revive(),
    Snooze(60.0),
    Wake(),
]


class AdminConformance:
    """Rules by key, and acts on queues."""

    async def test_a_new_configuration_keeps_what_was_set(self, store: FullStore) -> None:
        """A4, N1: runtime changes are durable; by key they outlive the file."""
        await add(store, "a/1")
        await steer(store, key("a"), Set({"delay": 5.0}))
        await steer(store, key("b"), Set({"delay": 6.0}))

        await configure(store, delay=1.0, balance=7)
        await steer(store, "", Set({}))

        assert ((await queue(store)).delay, (await queue(store)).grant) == (5.0, 7)
        assert ((await queue(store, "b")).delay, (await queue(store, "b")).grant) == (6.0, 7)

    async def test_new_queues_have_the_new_configuration(self, store: FullStore) -> None:
        """N1: at once; those that exist when it is applied to them, step by step."""
        await configure(store, balance=5)
        await add(store, "a/1")

        await configure(store, balance=6)
        await add(store, "b/1")

        assert ((await queue(store, "a")).grant, (await queue(store, "b")).grant) == (5, 6)
        assert await steer(store, "", Set({})) == 2
        assert (await queue(store, "a")).grant == 6

    async def test_configure_returns_whether_rules_changed(self, store: FullStore) -> None:
        """N1: until its queues have the new rules: the caller that applies them may have died."""
        answers = [await store.configure(CRAWL, rules(balance=5)) for _ in range(2)]
        await add(store, "a/1")
        await steer(store, key("a"), Set({"balance": 6}))
        answers += [await store.configure(CRAWL, rules(balance=n)) for n in (5, 7, 7)]
        await steer(store, "", Set({}))
        answers.append(await store.configure(CRAWL, rules(balance=7)))

        assert answers == [False, False, False, True, True, False]

    async def test_settings_are_kept_for_those_who_join(self, store: FullStore) -> None:
        """N1: the text that came last with the rules; none leaves what is kept."""
        kept = [await store.settings(CRAWL)]
        for text in ('{"a": 1}', "", "ü" * 1000, ""):
            await store.configure(CRAWL, rules(balance=5), text)
            kept.append(await store.settings(CRAWL))
        await store.configure(CRAWL, rules(balance=6))
        await add(store, "a/1")
        kept.append(await store.settings(CRAWL))

        assert kept == ["", '{"a": 1}', '{"a": 1}', *["ü" * 1000] * 3]
        assert await store.settings("another") == ""

    async def test_settings_alone_change_no_rule(self, store: FullStore) -> None:
        """N1: queues need not hear of a text."""
        await store.configure(CRAWL, rules(balance=5), "one")
        await add(store, "a/1")

        assert await store.configure(CRAWL, rules(balance=5), "two") is False

    async def test_the_view_shows_what_was_set(self, store: FullStore) -> None:
        """E7: balance, total_budget, delay, max_in_flight, precedence."""
        await add(store, "a/1")

        await steer(
            store,
            key("a"),
            Set(
                {
                    "balance": 5,
                    "total_budget": 50,
                    "delay": 2.5,
                    "max_in_flight": 4,
                    "precedence": -3,
                }
            ),
        )

        view = await queue(store)
        assert (view.grant, view.total_budget, view.delay) == (5, 50, 2.5)
        assert (view.max_in_flight, view.precedence) == (4, -3)

    async def test_a_paused_queue_waits_for_a_person(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C1, E7: a resumed queue is rescheduled at once and served again."""
        await add(store, "a/1")

        await steer(store, key("a"), Pause())
        assert await state(store) == PAUSED
        clock.advance(3600)
        assert await claim(store) == []
        await steer(store, key("a"), Resume())

        assert await state(store) == READY
        assert names(await claim(store)) == ["a/1"]

    async def test_a_pause_lets_visits_in_flight_end(self, store: FullStore) -> None:
        """E7: no more tasks are leased, and valid leases stay."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        lease = await one(store)
        await steer(store, key("a"), Pause())

        assert (await finish(store, done(lease))).applied
        assert await claim(store) == []
        assert ((await queue(store)).in_flight, (await queue(store)).done) == (0, 1)

    async def test_paused_may_be_configured(self, store: FullStore) -> None:
        """A4: an override by key; a later change of it is applied like any other."""
        await configure(store, keys={key("a"): {"paused": True}})
        await add(store, "a/1")
        assert await state(store) == PAUSED

        await configure(store)
        await steer(store, "", Set({}))

        assert names(await claim(store)) == ["a/1"]

    async def test_a_retired_queue_keeps_its_tasks(self, store: FullStore) -> None:
        """E5, E7: until revived, whatever the time."""
        await add(store, "a/1", "a/2")
        lease = await one(store)

        await steer(store, key("a"), Retire())

        assert await state(store) == RETIRED
        assert ((await queue(store)).pending, (await queue(store)).in_flight) == (1, 1)
        assert (await crawl(store)).held == 1
        await store.release([lease.id])
        assert (await crawl(store)).held == 2

    async def test_retired_comes_before_paused(self, store: FullStore) -> None:
        """C1: the first that holds; revived it is paused still."""
        await add(store, "a/1")
        await steer(store, key("a"), Pause())
        await steer(store, key("a"), Retire())
        assert await state(store) == RETIRED

        await steer(store, key("a"), Revive())

        assert await state(store) == PAUSED

    async def test_a_person_overrules_the_reason(self, store: FullStore) -> None:
        """E5: a queue retired by an operator is not revived by a larger budget."""
        await configure(store, total_budget=0)
        await add(store, "a/1")

        await steer(store, key("a"), Retire())
        await steer(store, key("a"), Set({"total_budget": 9}))

        assert await state(store) == RETIRED

    async def test_revive_ends_every_retirement(self, store: FullStore, clock: FakeClock) -> None:
        """E7: whatever its reason; the queue is rescheduled at once."""
        await configure(store, max_done=1, delay=0.0)
        await add(store, "a/1", "a/2", "b/1", "c/1")
        await visit(store)
        await steer(store, key("c"), Retire())
        for _ in range(5):
            await visit(store, Unreachable("DNS"))
            clock.advance(300)
        reasons = [(await state(store, host))[1] for host in "abc"]

        await steer(store, "", Revive())

        assert reasons == ["quota", "unreachable", "operator"]
        assert [await state(store, host) for host in "abc"] == [READY] * 3

    async def test_retirements_and_revivals_are_events(self, store: FullStore) -> None:
        """O3: once each, with the reason."""
        await add(store, "a/1")
        for act in (Retire(), Retire(), Revive(), Revive()):
            await steer(store, key("a"), act)

        changes = await store.events_since(CRAWL)

        assert [(change.name, change.subject, change.detail) for change in changes] == [
            ("queue-retired", key("a"), "operator"),
            ("queue-returned", key("a"), "operator"),
        ]

    @pytest.mark.parametrize("act", EVERY_ACT, ids=lambda act: type(act).__name__)
    async def test_an_act_may_be_repeated(self, store: FullStore, act: QueueAction) -> None:
        """A lost connection leaves the answer unknown: twice is once."""
        await add(store, "a/1", "a/2", "b/1")
        await visit(store, Done(status=200, seconds=1.0))
        await steer(store, ".example", act)
        before = [await queue(store, host) for host in "ab"], await crawl(store)

        assert await steer(store, ".example", act) == 2

        assert before == ([await queue(store, host) for host in "ab"], await crawl(store))

    @pytest.mark.parametrize("target", [key("a"), ".example", ""])
    async def test_a_setting_undoes_no_act(self, store: FullStore, target: str) -> None:
        """E7: paused by key and resumed by suffix, a queue stays resumed when a budget is set."""
        await add(store, "a/1")
        await steer(store, key("a"), Pause())
        await steer(store, ".example", Resume())

        await configure(store, balance=9)
        await steer(store, target, Set({"balance": 5} if target else {}))

        assert await state(store) == READY

    async def test_a_pause_of_all_outlives_a_setting(self, store: FullStore) -> None:
        """E7: it is remembered for no key, and holds for those it was meant for all the same."""
        await add(store, "a/1")
        await steer(store, "", Pause())

        await steer(store, key("a"), Set({"balance": 5}))

        assert await state(store) == PAUSED

    async def test_an_act_applies_no_setting(self, store: FullStore) -> None:
        """E5: configured rules reach a queue by `set` only, and take effect then."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        await visit(store)
        await configure(store, delay=0.0, total_budget=1)
        for act in (Pause(), Resume(), Snooze(0.0), Wake(), Revive()):
            await steer(store, key("a"), act)

        assert (await queue(store)).total_budget == -1
        await steer(store, "", Set({}))
        assert await state(store) == (QueueState.RETIRED, "budget")

    async def test_an_action_without_matching_queues_is_no_error(self, store: FullStore) -> None:
        """E7: a key without tasks, in a crawl that does not exist."""
        for act in EVERY_ACT:
            assert await store.steer(CRAWL, "nobody", act) == Step(0, None)
