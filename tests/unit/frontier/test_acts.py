"""Who does it: acts through the frontier are logged with the name that it or the act gives."""

import pytest

from outrider import Failed, Frontier, InvalidInput
from outrider.core.queue_action import Pause
from outrider.store.memory import MemoryStore
from outrider.testing import FakeClock

A = "https://a.example/"
ACTS = {
    "pause": lambda frontier, **by: frontier.pause(**by),
    "resume": lambda frontier, **by: frontier.resume(**by),
    "cancel": lambda frontier, **by: frontier.cancel(**by),
    "drop": lambda frontier, **by: frontier.drop(pattern="", **by),
    "replay": lambda frontier, **by: frontier.replay(all=True, **by),
    "purge": lambda frontier, **by: frontier.purge(all=True, **by),
    "steer": lambda frontier, **by: frontier.steer("", Pause(), **by),
    "queue": lambda frontier, **by: frontier.queue("a.example", **by).set(delay=9.0),
    "rescore": lambda frontier, **by: frontier.rescore(**by),
    "configure": lambda frontier, **by: frontier.configure({"lanes": {"burst": 3}}, **by),
    "unset": lambda frontier, **by: frontier.unset("lanes", **by),
}
every_act = pytest.mark.parametrize("act", ACTS.values(), ids=[*ACTS])


async def ready(frontier, act):
    """Make every act possible: something pending, something dead, a runtime setting, a pause."""
    await frontier.configure({"retry": {"max_retries": 0}, "lanes": {"burst": 4}})
    await frontier.add([A, A + "1"])
    (lease,) = await frontier.claim()
    await frontier.finish(lease, Failed("HTTP 500"))
    if act is ACTS["resume"]:
        await frontier.pause()
    events = []
    frontier.subscribe(events.append)
    return events


async def stored(frontier, name):
    """The store's events with this name of who acted."""
    events = await frontier.store.events_since(frontier.crawl)
    return [event.name for event in events if event.by == name]


@every_act
async def test_act_is_logged_with_its_own_name(act):
    """O3: in the events of the frontier and, but for a rescoring, of the store."""
    async with Frontier.open(clock=FakeClock(), by="ann") as frontier:
        events = await ready(frontier, act)
        await act(frontier, by="bob")

        assert {event.data.get("by") for event in events if event.name != "config"} == {"bob"}
        assert act is ACTS["rescore"] or await stored(frontier, "bob")


@every_act
async def test_act_without_a_name_has_that_of_the_frontier(act):
    """O3: given once, at open or attach."""
    store = MemoryStore(FakeClock())
    async with Frontier.open(store, clock=FakeClock()) as owner:
        await ready(owner, act)
    async with Frontier.attach(store, clock=FakeClock(), by="ann") as frontier:
        events = []
        frontier.subscribe(events.append)
        await act(frontier)

        assert frontier.by == "ann"
        assert {event.data.get("by") for event in events if event.name != "config"} == {"ann"}
        assert act is ACTS["rescore"] or await stored(frontier, "ann")


@every_act
async def test_act_is_not_signed_if_the_frontier_has_no_name(act):
    """O3: nor with an empty one, which takes the frontier's back."""
    for given in ({}, {"by": ""}):
        async with Frontier.open(clock=FakeClock(), by="ann" if given else "") as frontier:
            events = await ready(frontier, act)
            before = await stored(frontier, "ann")
            await act(frontier, **given)

            assert not [event for event in events if "by" in event.data]
            assert await stored(frontier, "ann") == before


@every_act
@pytest.mark.parametrize("by", ["a\nb", "x" * 129, 7, b"ann"], ids=repr)
async def test_invalid_name_is_refused_before_anything_changes(act, by):
    """O3: the answer says what a name must be."""
    async with Frontier.open(clock=FakeClock()) as frontier:
        await ready(frontier, act)
        before = await frontier.stats(), await frontier.config(), await frontier.config_history()

        with pytest.raises(InvalidInput, match="printable text of at most 128"):
            await act(frontier, by=by)

        after = await frontier.stats(), await frontier.config(), await frontier.config_history()
        assert after == before


async def test_frontier_with_an_invalid_name_is_refused():
    """O3: at once."""
    with pytest.raises(InvalidInput, match="printable"):
        Frontier.open(by="\0")


async def test_opening_a_crawl_is_no_act():
    """O3: the log of a crawl that starts again and again has room for acts."""
    store = MemoryStore(FakeClock())
    for delay in (1.0, 2.0):
        settings = {"politeness": {"delay": delay}}
        async with Frontier.open(store, settings=settings, clock=FakeClock(), by="ann") as frontier:
            await frontier.add([A])

    assert await store.events_since("default") == []


async def test_history_has_the_name_of_the_frontier():
    """N4: before that of the worker."""
    async with Frontier.open(clock=FakeClock(), worker="w", by="ann") as frontier:
        await frontier.configure({"lanes": {"burst": 3}})
        await frontier.configure({"lanes": {"burst": 4}}, by="bob")
        await frontier.configure({"lanes": {"burst": 5}}, by="")

        assert [change.by for change in await frontier.config_history()] == ["ann", "bob", "w"]
