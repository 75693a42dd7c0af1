"""Conformance of addressing: actions and rules by key or suffix, also for later queues (A4, E7)."""

from __future__ import annotations

import pytest

from outrider.core.queue_action import Pause, Resume, Retire, Revive, Set, Snooze
from outrider.core.states import QueueState
from outrider.store.protocol import FullStore, Step
from outrider.testing.builders import task
from outrider.testing.conformance.steps import (
    CRAWL,
    PAUSED,
    READY,
    RETIRED,
    add,
    claim,
    configure,
    crawl,
    key,
    names,
    queue,
    state,
    steer,
)


class AddressingConformance:
    """Keys, suffixes, and queues to come."""

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

    async def test_settings_said_at_run_time_win_over_an_exact_key(self, store: FullStore) -> None:
        """A4: by key, by longest suffix, then what was configured; acts and settings alike."""
        await configure(
            store,
            keys={"a.b.example": {"balance": 1, "delay": 1.0, "max_in_flight": 1, "precedence": 1}},
            said={
                ".b.example": {"balance": 2, "delay": 2.0, "max_in_flight": 2},
                "a.b.example": {"balance": 3},
            },
        )
        await store.add([task("https://a.b.example/")])
        said = await store.queue(CRAWL, "a.b.example")

        await steer(store, ".example", Set({"balance": 4, "delay": 4.0, "precedence": 4}))
        acted = await store.queue(CRAWL, "a.b.example")
        await steer(store, "a.b.example", Set({"balance": 5}))
        by_key = await store.queue(CRAWL, "a.b.example")

        views = [
            (view.grant, view.delay, view.max_in_flight, view.precedence)
            for view in (said, acted, by_key)
        ]
        assert views == [(3, 2.0, 2, 1), (3, 2.0, 2, 4), (5, 2.0, 2, 4)]

    async def test_settings_said_at_run_time_are_replaced_and_acts_are_kept(
        self, store: FullStore
    ) -> None:
        """A4: `configure` brings the whole of what is said; what was set by acts stays."""
        await configure(store, said={key("a"): {"balance": 2, "delay": 2.0}})
        await add(store, "a/1")
        await steer(store, key("a"), Set({"delay": 3.0}))

        await configure(store, balance=9, said={})
        await steer(store, "", Set({}))

        assert ((await queue(store)).grant, (await queue(store)).delay) == (9, 3.0)

    async def test_suffixes_and_hosts_reach_surt_keys(self, store: FullStore) -> None:
        """A4: ".example.org" and, whatever its port, the host, written ".org,example:"."""
        keys = ["org,example", "org,example:81", "org,example,www", "org,badexample", "10.0.0.1:81"]
        await store.add([task(f"https://x.example/{key}", key=key) for key in keys])

        suffix = await steer(store, ".example.org", Pause())
        host = await steer(store, ".org,example:", Retire())
        address = await steer(store, ".10.0.0.1:", Retire())

        states = [(await store.queue(CRAWL, key)).state for key in keys]
        assert (suffix, host, address) == (3, 2, 1)
        assert states == [
            QueueState.RETIRED,
            QueueState.RETIRED,
            QueueState.PAUSED,
            QueueState.READY,
            QueueState.RETIRED,
        ]

    async def test_the_nearest_rule_wins_for_surt_keys(self, store: FullStore) -> None:
        """A4: exact key > host > longest suffix > shorter suffix, also for queues to come."""
        await configure(
            store,
            keys={
                ".org": {"balance": 1, "delay": 1.0, "max_in_flight": 1, "precedence": 1},
                ".example.org": {"balance": 2, "delay": 2.0, "max_in_flight": 2},
                ".org,example:": {"balance": 3, "delay": 3.0},
                "org,example:81": {"balance": 4},
            },
        )
        keys = ["org,example:81", "org,example", "org,example,www", "org,other"]
        views = [await store.queue(CRAWL, key) for key in keys]

        assert [(v.grant, v.delay, v.max_in_flight, v.precedence) for v in views] == [
            (4, 3.0, 2, 1),
            (3, 3.0, 2, 1),
            (2, 2.0, 2, 1),
            (1, 1.0, 1, 1),
        ]

    async def test_a_pause_by_suffix_is_the_last_word_for_surt_keys(self, store: FullStore) -> None:
        """E7: it ends what was said of a host before, also for queues to come."""
        await steer(store, ".org,example:", Resume())

        await steer(store, ".org", Pause())

        await store.add([task("https://x.example/1", key="org,example:81")])
        assert (await store.queue(CRAWL, "org,example:81")).state is QueueState.PAUSED

    async def test_a_field_may_be_unset(self, store: FullStore) -> None:
        """A4: set to None it follows the next layer again; the other fields stay."""
        await configure(store, balance=9)
        await add(store, "a/1")
        await steer(store, key("a"), Set({"balance": 5, "delay": 2.0}))

        await steer(store, key("a"), Set({"balance": None}))

        assert ((await queue(store)).grant, (await queue(store)).delay) == (9, 2.0)

    async def test_a_suffix_covers_a_domain_and_all_below(self, store: FullStore) -> None:
        """A4: ".example.org" speaks for example.org itself, not for badexample.org."""
        hosts = ["example.org", "www.example.org", "badexample.org", "example.org.uk"]
        await store.add([task(f"https://{host}/") for host in hosts])

        assert await steer(store, ".example.org", Pause()) == 2

        states = [(await store.queue(CRAWL, host)).state for host in hosts]
        assert states == [QueueState.PAUSED] * 2 + [QueueState.READY] * 2

    async def test_a_key_covers_itself_only(self, store: FullStore) -> None:
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

    async def test_a_suffix_and_a_key_may_both_be_steered(self, store: FullStore) -> None:
        """E7: an act by suffix reaches queues that were steered by key before."""
        await add(store, "a/1", "b/1")
        await steer(store, key("a"), Pause())

        await steer(store, ".example", Resume())

        assert (await state(store, "a"), await state(store, "b")) == (READY, READY)

    async def test_an_address_has_no_parents(self, store: FullStore) -> None:
        """A4: `.0.1` is no domain of 10.0.0.1."""
        await store.add([task("https://10.0.0.1/"), task("https://10.1.0.1/")])

        assert await steer(store, ".0.1", Pause()) == 0
        assert await steer(store, ".10.0.0.1", Pause()) == 1

    @pytest.mark.parametrize("target", ["A.Example", ".EXAMPLE"])
    async def test_hosts_are_known_in_lower_case(self, store: FullStore, target: str) -> None:
        """A1, A4: whatever an operator types."""
        await add(store, "a/1")

        assert await steer(store, target, Pause()) == 1

        assert await state(store) == PAUSED

    async def test_roots_are_remembered(self, store: FullStore) -> None:
        """A5: once each, by mode, in order of their coming; read on from any place."""
        await store.add_roots(CRAWL, "host", ["b.example", "a.example", "b.example"])
        await store.add_roots(CRAWL, "host", ["a.example", "c.example"])
        await store.add_roots(CRAWL, "domain", ["example"])

        assert await store.roots(CRAWL, "host") == ["b.example", "a.example", "c.example"]
        assert await store.roots(CRAWL, "host", after=2) == ["c.example"]
        assert await store.roots(CRAWL, "domain") == ["example"]
        assert await store.roots(CRAWL, "prefix") == []
