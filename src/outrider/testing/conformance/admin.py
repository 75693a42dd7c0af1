"""What operators do to queues, by key or suffix, also before a queue exists (A4, E7)."""

from __future__ import annotations

import pytest

from outrider.core.act import Act, Pause, Resume, Retire, Revive, Set, Snooze, Wake
from outrider.core.outcome import Done, Unreachable
from outrider.core.states import QueueState
from outrider.store.protocol import FullStore, Step
from outrider.testing.builders import done, rules, task
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    READY,
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

PAUSED = (QueueState.PAUSED, "operator")
RETIRED = (QueueState.RETIRED, "operator")

EVERY_ACT: list[Act] = [
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

    async def test_the_nearest_rule_wins_field_by_field(self, store: FullStore) -> None:
        """A4: exact key > longest suffix > shorter suffix > crawl."""
        await configure(
            store,
            balance=1,
            delay=1.0,
            keys={
                ".example": {"balance": 2, "delay": 2.0, "precedence": 2},
                ".b.example": {"balance": 3, "delay": 3.0},
                "a.b.example": {"balance": 4},
            },
        )

        views = [
            await store.queue(CRAWL, name)
            for name in ("org", "example", "a.example", "b.example", "x.b.example", "a.b.example")
        ]

        assert [(view.grant, view.delay, view.precedence) for view in views] == [
            (1, 1.0, 0),
            (2, 2.0, 2),
            (2, 2.0, 2),
            (3, 3.0, 2),
            (3, 3.0, 2),
            (4, 3.0, 2),
        ]

    async def test_what_is_set_at_run_time_wins(self, store: FullStore) -> None:
        """A4: runtime by key > runtime by longest suffix > all that was configured."""
        await configure(store, keys={"a.b.example": {"balance": 4, "delay": 4.0, "max_done": 4}})

        await steer(store, ".example", Set({"balance": 5, "delay": 5.0, "max_in_flight": 5}))
        await steer(store, ".b.example", Set({"balance": 6, "delay": 6.0}))
        await steer(store, "a.b.example", Set({"balance": 7}))

        view = await store.queue(CRAWL, "a.b.example")
        assert (view.grant, view.delay, view.max_in_flight) == (7, 6.0, 5)

    async def test_a_field_may_be_taken_back(self, store: FullStore) -> None:
        """A4: set to None it follows the next layer again; the other fields stay."""
        await configure(store, balance=9)
        await add(store, "a/1")
        await steer(store, key("a"), Set({"balance": 5, "delay": 2.0}))

        await steer(store, key("a"), Set({"balance": None}))

        assert ((await queue(store)).grant, (await queue(store)).delay) == (9, 2.0)

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

    async def test_a_configuration_tells_whether_it_changed_anything(
        self, store: FullStore
    ) -> None:
        """N1: not when it opens the crawl, nor when repeated; run-time changes are not its own."""
        answers = [await store.configure(CRAWL, rules(balance=5)) for _ in range(2)]
        await steer(store, key("a"), Set({"balance": 6}))
        answers += [await store.configure(CRAWL, rules(balance=n)) for n in (5, 7, 7)]

        assert answers == [False, False, False, True, False]

    async def test_the_view_tells_what_was_set(self, store: FullStore) -> None:
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
        """C1, E7: lent again when resumed, judged at once."""
        await add(store, "a/1")

        await steer(store, key("a"), Pause())
        assert await state(store) == PAUSED
        clock.advance(3600)
        assert await claim(store) == []
        await steer(store, key("a"), Resume())

        assert await state(store) == READY
        assert names(await claim(store)) == ["a/1"]

    async def test_a_pause_lets_visits_in_flight_end(self, store: FullStore) -> None:
        """E7: nothing more is lent, nothing is taken away."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        lease = await one(store)
        await steer(store, key("a"), Pause())

        assert (await finish(store, done(lease))).applied
        assert await claim(store) == []
        assert ((await queue(store)).in_flight, (await queue(store)).done) == (0, 1)

    async def test_a_suffix_stands_for_a_domain_and_all_below(self, store: FullStore) -> None:
        """A4: ".example.org" speaks for example.org itself, not for badexample.org."""
        hosts = ["example.org", "www.example.org", "badexample.org", "example.org.uk"]
        await store.add([task(f"https://{host}/") for host in hosts])

        assert await steer(store, ".example.org", Pause()) == 2

        states = [(await store.queue(CRAWL, host)).state for host in hosts]
        assert states == [QueueState.PAUSED] * 2 + [QueueState.READY] * 2

    async def test_a_key_stands_for_itself_alone(self, store: FullStore) -> None:
        """A4: not for what is below it."""
        await store.add([task("https://example.org/"), task("https://www.example.org/")])

        assert await steer(store, "example.org", Pause()) == 1

        assert (await store.queue(CRAWL, "www.example.org")).state is QueueState.READY

    async def test_the_empty_target_is_every_queue(self, store: FullStore) -> None:
        """E7: all that exist; those to come are born as configured."""
        await add(store, "a/1", "b/1")

        assert await steer(store, "", Pause()) == 2

        await add(store, "c/1")
        assert [await state(store, host) for host in "abc"] == [PAUSED, PAUSED, READY]

    @pytest.mark.parametrize("target", [key("a"), ".example"])
    async def test_a_pause_is_remembered_for_queues_to_come(
        self, store: FullStore, target: str
    ) -> None:
        """E7: durable, by key or suffix; until resumed the same way."""
        assert await steer(store, target, Pause()) == 0
        assert await state(store) == PAUSED
        await add(store, "a/1")
        assert await state(store) == PAUSED
        assert await claim(store) == []

        await steer(store, target, Resume())

        assert names(await claim(store)) == ["a/1"]
        await add(store, "b/1")
        assert await state(store, "b") == READY

    @pytest.mark.parametrize("target", [key("a"), ".example"])
    async def test_a_retirement_is_remembered_for_queues_to_come(
        self, store: FullStore, target: str
    ) -> None:
        """E7: likewise; what is added is held."""
        assert await steer(store, target, Retire()) == 0
        assert await state(store) == RETIRED
        await add(store, "a/1")
        assert await state(store) == RETIRED
        assert (await crawl(store)).held == 1

        await steer(store, target, Revive())

        assert names(await claim(store)) == ["a/1"]
        await add(store, "b/1")
        assert await state(store, "b") == READY

    async def test_settings_are_remembered_for_queues_to_come(self, store: FullStore) -> None:
        """E7: as if the queue had been there."""
        await steer(store, ".example", Set({"delay": 7.0}))
        await steer(store, key("a"), Set({"balance": 7}))
        await add(store, "a/1")

        assert ((await queue(store)).grant, (await queue(store)).delay) == (7, 7.0)

    async def test_a_snooze_is_not_remembered(self, store: FullStore) -> None:
        """E7: it is for the queues that exist."""
        assert await steer(store, key("a"), Snooze(60.0)) == 0
        assert await steer(store, ".example", Snooze(60.0)) == 0
        await add(store, "a/1")

        assert await state(store) == READY

    async def test_a_key_beats_a_suffix_for_queues_to_come(self, store: FullStore) -> None:
        """A4: resumed by key, though its domain is paused."""
        await steer(store, ".example", Pause())
        await steer(store, key("a"), Resume())
        await add(store, "a/1", "b/1")

        assert (await state(store, "a"), await state(store, "b")) == (READY, PAUSED)

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
        """E5: retired by hand, a queue does not return by a larger budget."""
        await configure(store, total_budget=0)
        await add(store, "a/1")

        await steer(store, key("a"), Retire())
        await steer(store, key("a"), Set({"total_budget": 9}))

        assert await state(store) == RETIRED

    async def test_revive_ends_every_retirement(self, store: FullStore, clock: FakeClock) -> None:
        """E7: whatever its reason; the queue is judged at once."""
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

    async def test_retirements_and_returns_are_told(self, store: FullStore) -> None:
        """O3: once each, with the reason."""
        await add(store, "a/1")
        for act in (Retire(), Retire(), Revive(), Revive()):
            await steer(store, key("a"), act)

        changes = await store.changes(CRAWL)

        assert [(change.name, change.subject, change.detail) for change in changes] == [
            ("queue-retired", key("a"), "operator"),
            ("queue-returned", key("a"), "operator"),
        ]

    async def test_a_rule_over_many_queues_comes_in_steps(self, store: FullStore) -> None:
        """E7: bounded, with a cursor; only the queues it is meant for count."""
        await store.add([task(f"https://{n}.example/") for n in range(5)])
        await store.add([task("https://x.org/"), task("https://9.example/")])
        steps: list[Step] = [await store.steer(CRAWL, ".example", Pause(), limit=2)]
        while steps[-1].after is not None:
            steps.append(
                await store.steer(CRAWL, ".example", Pause(), after=steps[-1].after, limit=2)
            )

        assert [step.count for step in steps] == [2, 2, 2]
        assert [(await store.queue(CRAWL, f"{n}.example")).state for n in (0, 4, 9)] == [
            QueueState.PAUSED
        ] * 3
        assert (await store.queue(CRAWL, "x.org")).state is QueueState.READY

    async def test_an_act_on_nobody_is_no_error(self, store: FullStore) -> None:
        """E7: a key nobody added to, in a crawl nobody opened."""
        for act in EVERY_ACT:
            assert await store.steer(CRAWL, "nobody", act) == Step(0, None)

    @pytest.mark.parametrize("act", EVERY_ACT, ids=lambda act: type(act).__name__)
    async def test_an_act_may_be_repeated(self, store: FullStore, act: Act) -> None:
        """A lost connection leaves the answer unknown: twice is once."""
        await add(store, "a/1", "a/2", "b/1")
        await visit(store, Done(status=200, seconds=1.0))
        await steer(store, ".example", act)
        before = [await queue(store, host) for host in "ab"], await crawl(store)

        assert await steer(store, ".example", act) == 2

        assert before == ([await queue(store, host) for host in "ab"], await crawl(store))

    async def test_a_suffix_and_a_key_may_both_be_steered(self, store: FullStore) -> None:
        """E7: an act by suffix reaches queues that were steered by key before."""
        await add(store, "a/1", "b/1")
        await steer(store, key("a"), Pause())

        await steer(store, ".example", Resume())

        assert (await state(store, "a"), await state(store, "b")) == (READY, READY)

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
        """E5: what was configured reaches a queue by `set` alone, and is judged then."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2")
        await visit(store)
        await configure(store, delay=0.0, total_budget=1)
        for act in (Pause(), Resume(), Snooze(0.0), Wake(), Revive()):
            await steer(store, key("a"), act)

        assert (await queue(store)).total_budget == -1
        await steer(store, "", Set({}))
        assert await state(store) == (QueueState.RETIRED, "budget")
