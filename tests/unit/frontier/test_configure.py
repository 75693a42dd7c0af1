"""Settings of a running crawl: changed whole or not at all, shared, with history (N1 to N5)."""

import asyncio
import json
import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider import Frontier, Link, SettingsError, StoreUnavailable
from outrider.frontier import live_settings
from outrider.frontier.live_settings import LISTEN_INTERVAL_MS
from outrider.settings import Layer, Layers, Settings, settings_of
from outrider.store.factory import open_store
from outrider.store.protocol import SharedValueWrite
from outrider.testing import FakeClock

A = "https://a.example/"
B = "https://b.example/"
SOON = LISTEN_INTERVAL_MS / 1000


@pytest.fixture
async def attached(store, clock):
    """A frontier that joined the crawl of `store`."""
    async with Frontier.attach(store, clock=clock, worker="joiner") as frontier:
        yield frontier


async def said(frontier):
    """Name and text of every runtime setting in the store."""
    notes = await frontier.store.values_since(frontier.crawl)
    said = [note for note in notes if note.topic == "config" and note.text]
    return {note.name: json.loads(note.text) for note in said}


async def origin(frontier, path):
    """Where a setting is from."""
    return {row.path: row.origin for row in await frontier.config()}[path]


# ---- saying


async def test_runtime_settings_are_durable_and_of_the_crawl(opened, store):
    """N1: a runtime setting stays when the crawl is opened again with other settings."""
    first = await opened({"budget": {"balance": 5}}, store, worker="first")
    await first.configure({"budget": {"balance": 7}, "lanes": {"burst": 2}})
    await first.close()
    again = await opened({"budget": {"balance": 9}, "lease": {"seconds": 3}}, store)
    await again.add([A])

    assert (again.settings.budget.balance, again.settings.lanes.burst) == (7, 2)
    assert again.settings.lease.seconds == 3
    assert (await again.queue("a.example").view()).grant == 7
    assert (await origin(again, "budget.balance")).startswith("runtime (first, ")
    assert await origin(again, "lease.seconds") == "given"


async def test_shared_value_has_setting_author_and_old_value(opened, store):
    """The text in the store can be read by people."""
    owner = await opened({}, store)
    await owner.configure({"lease": {"seconds": 5}, "keys": {"A.example": {"delay": 1}}}, by="me")

    assert await said(owner) == {
        "lease.seconds": {"value": 5, "by": "me", "old": 60.0},
        'keys."a.example".delay': {"value": 1, "by": "me", "old": None},
    }


async def test_other_worker_applies_a_change_within_the_listen_interval(opened, store, clock):
    """N1: a frontier of its own, without an executor, goes by it within seconds."""
    one, other = await opened({}, store), await opened({}, store)
    await one.configure({"queue": {"max_depth": 0}})
    early = await other.add([Link(A, depth=1)])
    clock.advance(SOON)
    late = await other.add([Link(B, depth=1)])

    assert (early.added, late.refused) == (1, {"max-depth": 1})


async def test_claim_applies_changes_of_other_workers(opened, store, clock):
    """It may be all that a worker does."""
    one, other = await opened({}, store), await opened({}, store)
    await one.configure({"lease": {"seconds": 5}})
    clock.advance(SOON)
    await one.add([A])

    (lease,) = await other.claim()
    assert lease.lease_for == 5


async def test_calls_listen_only_after_the_interval(opened, watched):
    """A store may be far away."""
    frontier = await opened({}, watched)
    before = watched.calls["values_since"]
    for n in range(10):
        await frontier.add([f"{A}{n}"])
        await frontier.claim()

    assert watched.calls["values_since"] == before


async def test_only_the_worker_that_changes_settings_applies_rules(opened, watched, clock):
    """E5: the worker that changes settings applies the rules; those that learn of it do not."""
    one, other = await opened({}, watched), await opened({}, watched)
    before = watched.calls["configure"]
    await one.configure({"politeness": {"delay": 3.0}})
    said_once = watched.calls["configure"]
    await other.learn()

    assert said_once == before + 1 == watched.calls["configure"]
    assert other.settings.politeness.delay == 3.0


async def waits():
    """Let everybody come as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_no_rule_is_lost_between_two_writers(opened, store, watched):
    """The last to apply has the other's change too: both are in the store's rules."""
    one, other = await opened({}, watched), await opened({}, store)
    watched.hold("configure")
    slow = asyncio.ensure_future(one.configure({"budget": {"balance": 5}}))
    await waits()
    await other.configure({"politeness": {"delay": 7.0}})
    watched.let_go()
    await slow
    view = await one.queue("a.example").view()

    assert (view.grant, view.delay) == (5, 7.0)


async def test_change_by_the_owner_during_a_configure_is_kept(opened, store, unanswered, clock):
    """A change and a look at the crawl's settings may overlap."""
    first = await opened({"lease": {"seconds": 5}}, store)
    async with Frontier.attach(unanswered, clock=clock) as other:
        unanswered.hold("put_values")
        change = asyncio.ensure_future(other.configure({"lanes": {"burst": 2}}))
        await waits()
        await first.close()
        await opened({"lease": {"seconds": 9}}, store)
        await other.learn()
        unanswered.let_go()
        await change

        assert (other.settings.lease.seconds, other.settings.lanes.burst) == (9, 2)


async def test_a_change_that_was_interrupted_can_be_repeated(opened, watched):
    """The settings may be written and the rules not: repeating the call applies them."""
    frontier = await opened({}, watched)
    watched.errors["configure"] = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await frontier.configure({"budget": {"balance": 5}})
    watched.errors.clear()
    await frontier.configure({"budget": {"balance": 5}})

    assert (await frontier.queue("a.example").view()).grant == 5


async def test_entry_of_a_table_is_removed(opened, store):
    """Also an entry of another layer; a later value under it applies again."""
    owner = await opened({"keys": {"a.example": {"delay": 5, "balance": 2}}}, store)
    await owner.configure({"keys": {"a.example": None}})
    gone = owner.settings.keys
    await owner.configure({"keys": {"a.example": {"delay": 1}}})

    assert gone == {}
    assert owner.settings.keys["a.example"]["delay"] == 1.0
    assert list(await said(await opened({}, store))) == ['keys."a.example".delay']


# ---- taking back


async def test_unset_setting_has_its_base_value(opened, store):
    """Each of them, and all below a section."""
    owner = await opened({"politeness": {"delay": 2.0}}, store)
    await owner.configure({"politeness": {"delay": 9.0, "factor": 1.0}, "lease": {"seconds": 5}})
    await owner.unset("lease.seconds")
    one = owner.settings
    await owner.unset("politeness")

    assert (one.lease.seconds, one.politeness.delay) == (60.0, 9.0)
    assert owner.settings == settings_of({"politeness": {"delay": 2.0}})
    assert await said(owner) == {}
    assert (await owner.queue("a.example").view()).delay == 2.0


@pytest.mark.parametrize("paths", [["lease.seconds"], ["politeness.delay", "lease"], ["a b"]])
async def test_setting_without_runtime_value_cannot_be_unset(opened, store, paths):
    """And nothing else is, then."""
    owner = await opened({}, store)
    await owner.configure({"politeness": {"delay": 9.0}})
    with pytest.raises(SettingsError):
        await owner.unset(*paths)

    assert owner.settings.politeness.delay == 9.0


async def test_settings_after_an_unset_must_be_valid(opened, store):
    """A bound that needs another stays as long as that does."""
    owner = await opened({}, store)
    await owner.configure({"politeness": {"delay": 1.0, "delay_to": 9.0}})
    with pytest.raises(SettingsError, match="delay_to"):
        await owner.unset("politeness.delay")

    assert owner.settings.politeness.delay == 1.0


# ---- joined crawls


async def test_an_attached_frontier_loses_no_rule_of_the_owner(opened, store, clock):
    """Code that it cannot have keeps its name, and the text of the owner stays."""
    owner = await opened(
        {
            "budget": {"cost": "outrider.core.policy.cost:cost_function", "balance": 4},
            "keys": {"a.example": {"cost": "outrider.core.policy.cost:cost_function", "delay": 3}},
        },
        store,
    )
    before = await store.settings("default")
    async with Frontier.attach(store, clock=clock) as other:
        assert other.lacks
        await other.configure({"budget": {"total_budget": 8}})
    rules = (await store.export("default")).items[0].rules
    await owner.learn()

    assert await store.settings("default") == before
    assert rules.queue.budget.cost == "outrider.core.policy.cost:cost_function"
    assert rules.keys["a.example"] == {"cost": rules.queue.budget.cost, "delay": 3.0}
    assert (owner.settings.budget.balance, owner.settings.budget.total_budget) == (4, 8)


@pytest.mark.parametrize(
    "changes",
    [
        {"queue": {"key": "os:getcwd"}},
        {"scoring": {"scorer": object()}},
        {"events": {"jsonl": "events"}},
        {"output": {"format": "warc"}},
        {"keys": {"a.example": {"cost": len}}},
        {"profile": "fast"},
    ],
    ids=["name", "object", "events", "output", "by-key", "profile"],
)
async def test_settings_of_one_process_are_not_shared(opened, attached, store, changes):
    """Code and places of one machine never travel."""
    await opened({}, store)
    with pytest.raises(SettingsError):
        await attached.configure(changes)

    assert await said(attached) == {}


async def test_frontier_that_opened_the_crawl_may_set_code(opened, store, attached):
    """It applies in this process, is stored by name, and an attached frontier lacks it."""
    owner = await opened({}, store)
    await owner.configure({"queue": {"key": "domain"}})
    await owner.configure({"queue": {"key": by_letter}, "lanes": {"burst": 2}})
    await attached.learn()
    report = await owner.add([A])

    assert report.added == 1
    assert [view.key async for view in owner.queues()] == ["a"]
    assert list(await said(owner)) == ["lanes.burst"]
    assert "by_letter" in attached.lacks


def by_letter(url):
    """A keying."""
    return url.host[0]


async def test_settings_that_cannot_be_read_are_not_written_over(store, clock):
    """They may be from a newer release: who does not know them changes none of the rules."""
    async with Frontier.open(store, clock=clock) as owner:
        await store.configure("default", owner.rules, '{"newer": 1}')
    async with Frontier.attach(store, clock=clock) as other:
        with pytest.raises(SettingsError, match="cannot be read"):
            await other.configure({"lease": {"seconds": 5}})

        assert await said(other) == {}


# ---- garbage


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("politeness.delay", '{"value": "soon"}'),
        ("politeness.delay_to", '{"value": 5}'),
        ("no.such", '{"value": 1}'),
        ("queue.key", '{"value": "os:getcwd"}'),
        ("]", "{"),
    ],
    ids=["type", "pair", "name", "code", "nonsense"],
)
async def test_garbage_is_ignored_with_a_warning(opened, store, caplog, name, text):
    """Invalid values of others are never fatal, and valid ones beside them apply."""
    owner = await opened({}, store)
    await store.put_values("default", [SharedValueWrite("config", name, text)])
    with caplog.at_level(logging.WARNING):
        await owner.configure({"lease": {"seconds": 5}})
        await owner.learn()
    warned = [record for record in caplog.records if "ignored" in record.message]
    again = await opened({}, store)

    assert again.settings == owner.settings == settings_of({"lease": {"seconds": 5}})
    assert len(warned) == 1


# ---- the history


async def test_history_keeps_author_and_values(opened, store, clock):
    """N4: who, when, old, new; in order."""
    owner = await opened({}, store, worker="w")
    await owner.configure({"lease": {"seconds": 5}})
    clock.advance(10)
    await owner.configure({"lease": {"seconds": 5}, "lanes": {"burst": 2}}, by="me")
    await owner.unset("lease.seconds")
    found = await owner.config_history()

    assert [(one.path, one.old, one.new, one.by) for one in found] == [
        ("lease.seconds", 60.0, 5.0, "w"),
        ("lanes.burst", 5, 2, "me"),
        ("lease.seconds", 5.0, 60.0, "w"),
    ]
    assert found[1].at - found[0].at == pytest.approx(10)


async def test_two_writers_use_different_slots_of_the_history(opened, watched):
    """Both choose the same slot before either has written: both are remembered."""
    one, other = await opened({}, watched), await opened({}, watched)
    watched.hold("put_values")
    both = [
        asyncio.ensure_future(one.configure({"lease": {"seconds": 5}})),
        asyncio.ensure_future(other.configure({"lanes": {"burst": 2}})),
    ]
    await waits()
    watched.let_go()
    await asyncio.gather(*both)

    assert {change.path for change in await one.config_history()} == {
        "lease.seconds",
        "lanes.burst",
    }


async def test_history_keeps_the_last_changes_only(opened, store, monkeypatch):
    """The oldest is forgotten first; a change of very much does not drown it."""
    monkeypatch.setattr(live_settings, "MAX_HISTORY", 3)
    owner = await opened({}, store)
    for n in range(1, 6):
        await owner.configure({"lanes": {"burst": n + 5}})
    await owner.configure({"scope": {"exclude": ["x" * 3000]}})
    found = await owner.config_history()

    assert [change.new for change in found][:2] == [9, 10]
    assert len(found[2].new) < 2100


async def test_invalid_entries_of_the_history_are_ignored(opened, store):
    """It is anybody's."""
    owner = await opened({}, store)
    await store.put_values(
        "default",
        [SharedValueWrite("config-history", "0000", "{"), SharedValueWrite("other", "x", "y")],
    )

    assert await owner.config_history() == []


# ---- watchers


async def test_watchers_get_old_and_new_settings(opened, store):
    """N3: whatever brought the change; until they end it."""
    owner, other = await opened({}, store), await opened({}, store)
    seen = []
    end = other.watch_settings(lambda old, new: seen.append((old.lanes.burst, new.lanes.burst)))
    await owner.configure({"lanes": {"burst": 2}})
    await other.learn()
    await other.configure({"lanes": {"burst": 3}})
    await other.configure({"lanes": {"burst": 3}})
    end()
    end()
    await other.configure({"lanes": {"burst": 4}})

    assert seen == [(5, 2), (2, 3)]


async def test_error_of_a_watcher_is_logged_and_others_are_called(opened, caplog):
    """It is logged."""
    frontier, seen = await opened(), []
    frontier.watch_settings(lambda *_: 1 / 0)
    frontier.watch_settings(lambda *_: seen.append(1))
    await frontier.configure({"lanes": {"burst": 2}})

    assert seen == [1]
    assert "watcher" in caplog.text


async def test_every_worker_emits_an_event_for_a_change(opened, store):
    """O3: with the sections that differ."""
    owner, other = await opened({}, store), await opened({}, store)
    events = []
    other.subscribe(events.append)
    await owner.configure({"lanes": {"burst": 2}, "lease": {"seconds": 5}})
    await other.learn()

    (event,) = [one for one in events if one.name == "config"]
    assert event.data["changes"] == ["lanes", "lease"]


# ---- files


@pytest.fixture
def file(tmp_path):
    """A file of settings, written at once as a whole."""
    place = tmp_path / "crawl.toml"

    class File:
        path = place

        def write(self, text):
            fresh = tmp_path / "fresh"
            fresh.write_text(text)
            fresh.replace(place)

    return File()


async def looked(clock, times=2):
    """Let a follower look so often, and do what follows."""
    for _ in range(times):
        for _ in range(10):
            await asyncio.sleep(0)
        clock.advance(1)
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_file_is_followed(opened, store, clock, file):
    """N3: a change acts at once, when it has rested; runtime updates still win."""
    file.write("[lanes]\nburst = 2\n[budget]\nbalance = 5\n")
    owner = await opened({}, store)
    await owner.follow(file.path)
    first = owner.settings
    await owner.configure({"budget": {"balance": 7}})
    file.write("[lanes]\nburst = 3\n[budget]\nbalance = 9\n[politeness]\ndelay = 4\n")
    await looked(clock)

    assert (first.lanes.burst, first.budget.balance) == (2, 5)
    assert (owner.settings.lanes.burst, owner.settings.budget.balance) == (3, 7)
    assert (await owner.queue("a.example").view()).delay == 4.0
    assert await origin(owner, "lanes.burst") == f"file {file.path}"
    assert (await owner.config_history())[-1].by == f"file {file.path}"


async def test_attached_frontier_learns_settings_of_a_followed_file(
    opened, store, clock, file, attached
):
    """It is the owner's to say."""
    file.write("[lanes]\nburst = 2\n")
    owner = await opened({}, store)
    await owner.follow(file.path)
    file.write("[lanes]\nburst = 3\n")
    await looked(clock)
    await attached.learn()

    assert attached.settings.lanes.burst == 3


@pytest.mark.parametrize("text", ["[lanes]\nbrst = 2\n", "[", "[politeness]\ndelay_to = 3\n"])
async def test_invalid_file_is_reported_once_and_changes_nothing(opened, store, clock, file, text):
    """Refused whole; the next good one acts."""
    file.write("[lanes]\nburst = 2\n")
    owner, told = await opened({}, store), []
    await owner.follow(file.path, tell=told.append)
    file.write(f"{text}")
    await looked(clock, 5)
    before = owner.settings
    file.write("[lanes]\nburst = 4\n")
    await looked(clock)

    assert before.lanes.burst == 2
    assert len(told) == 1
    assert "stay as they are" in told[0]
    assert owner.settings.lanes.burst == 4


async def test_a_file_that_is_being_written_is_left_alone(opened, clock, file):
    """Until it rests: half of it may read as if it were whole."""
    file.write("[lanes]\nburst = 2\n")
    owner = await opened()
    await owner.follow(file.path)
    file.write("[lanes]\n")
    await looked(clock, 1)
    half = owner.settings.lanes.burst
    file.write("[lanes]\nburst = 3\n")
    await looked(clock, 1)
    whole = owner.settings.lanes.burst
    await looked(clock, 1)

    assert (half, whole, owner.settings.lanes.burst) == (2, 2, 3)


async def test_missing_file_is_reported(opened, clock, file):
    """And when it is back, it acts."""
    file.write("[lanes]\nburst = 2\n")
    owner, told = await opened(), []
    await owner.follow(file.path, tell=told.append)
    await asyncio.to_thread(Path.unlink, file.path)
    await looked(clock, 4)
    kept = owner.settings
    file.write("[lanes]\nburst = 3\n")
    await looked(clock)

    assert (len(told), kept.lanes.burst, owner.settings.lanes.burst) == (1, 2, 3)


async def test_file_is_applied_when_the_store_is_back(opened, watched, clock, file):
    """A change of the file is applied later if the store was unavailable."""
    file.write("[lanes]\nburst = 2\n")
    owner = await opened({}, watched)
    await owner.follow(file.path)
    watched.errors["values_since"] = StoreUnavailable("away")
    file.write("[lanes]\nburst = 3\n")
    await looked(clock, 3)
    watched.errors.clear()
    await looked(clock, 2)

    assert owner.settings.lanes.burst == 3


async def test_following_ends(opened, clock, file):
    """By the returned function, and when the frontier closes."""
    file.write("[lanes]\nburst = 2\n")
    owner = await opened()
    end = await owner.follow(file.path)
    await owner.follow(file.path)
    end()
    await owner.close()

    assert not owner._configurer._followers


async def test_a_worker_follows_a_file_of_its_own(opened, attached, store, clock, file):
    """Its executor is its own; the crawl's settings stay, and nothing is shared."""
    await opened({"lanes": {"burst": 9}}, store)
    file.write("[executor]\nslots = 2\n[lanes]\nburst = 2\n")
    await attached.follow(file.path)
    first = attached.settings
    file.write("[executor]\nslots = 3\n")
    await looked(clock)

    assert (first.executor.slots, first.lanes.burst) == (2, 9)
    assert attached.settings.executor.slots == 3
    assert await attached.config_history() == []


# ---- whole or not at all


LEAVES = st.sampled_from(
    [
        {"politeness": {"delay": 3.0}},
        {"politeness": {"delay": 1.0, "delay_to": 4.0}},
        {"politeness": {"delay_to": 2.0}},
        {"politeness": {"min_delay": 9.0}},
        {"politeness": {"max_delay": 2.0}},
        {"budget": {"balance": 5}},
        {"budget": {"balance": -1}},
        {"lanes": {"burst": 0}},
        {"lanes": {"burst": 3}},
        {"keys": {"a.example": {"delay": 2.0}}},
        {"keys": {"a.example": None}},
        {"keys": {"a.example": {"dlay": 2.0}}},
        {"scoring": {"weights": {"nav": 3.0}}},
        {"scoring": {"weights": {"nav": None}}},
        {"scoring": {"scorer": "no_such_module:x"}},
        {"lease": {"seconds": 5.0}},
        {"profile": "fast"},
        {"nonsense": 1},
    ]
)


def together(trees):
    """Several changes as one."""
    whole = {}
    for tree in trees:
        for name, value in tree.items():
            both = isinstance(value, dict) and isinstance(whole.get(name), dict)
            whole[name] = {**whole[name], **value} if both else value
    return whole


async def everything(frontier):
    """All that a change may touch."""
    store, crawl = frontier.store, frontier.crawl
    rules = (await store.export(crawl)).items
    return (
        frontier.settings,
        await frontier.config(),
        await store.values_since(crawl),
        str(rules[0]),
        await store.settings(crawl),
        await frontier.config_history(),
    )


@settings(max_examples=30)
@given(st.lists(st.lists(LEAVES, min_size=1, max_size=3).map(together), max_size=5))
async def test_a_refused_change_changes_nothing_at_all(background, changes):
    """N2: settings, notes, rules, kept text and history are as before; an accepted one holds for
    whoever opens the crawl.
    """
    clock = FakeClock()
    store = await open_store("memory://", clock)
    async with (
        Frontier.open(store, clock=clock) as owner,
        Frontier.attach(store, clock=clock) as other,
    ):
        for n, change in enumerate(changes):
            frontier = (owner, other)[n % 2]
            await frontier.learn()
            await background(owner, other)  # a change before may have wanted a rescoring
            before = await everything(frontier)
            try:
                await frontier.configure(change)
            except SettingsError:
                assert await everything(frontier) == before
        await owner.learn()
        await other.learn()
        assert owner.settings == other.settings
    await store.close()


async def test_layers_may_be_given(opened):
    """As the command line does."""
    layers = Layers(file=Layer("file x", {"lanes": {"burst": 2}}))
    frontier = await opened(layers)

    assert await origin(frontier, "lanes.burst") == "file x"
    assert await origin(frontier, "lease.seconds") == "default"
    assert frontier.settings == settings_of({"lanes": {"burst": 2}})
    assert frontier.settings != Settings()
