"""Frames, errors and values as they cross."""

import asyncio
import inspect

import msgspec
import pytest

from outrider import errors
from outrider.core import queue_action as actions
from outrider.core.policy.rules import Budget, CrawlRules, QueueRules
from outrider.errors import InvalidInput, OutriderError, StoreError
from outrider.store.protocol import Admin, ClaimRequest, Inspect, Store, TaskFilter
from outrider.store.remote import RemoteStore, frames
from outrider.store.remote.signatures import SIGNATURES
from outrider.testing.builders import done, rules, task
from outrider.testing.conformance.steps import configure, open_crawls

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, OutriderError)
]
ACTS = [
    actions.Set({"delay": 1.0, "balance": None}),
    actions.Pause(),
    actions.Resume(),
    actions.Retire(),
    actions.Revive(),
    actions.Snooze(2.5),
    actions.Wake(),
]


def frames_of(data):
    """A reader that has all of it, and the end."""
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


def test_every_verb_of_the_seam_crosses():
    """A verb that is added to the protocol is on the wire, and the client speaks it."""
    declared = {
        name
        for protocol in (Store, Admin, Inspect)
        for name in vars(protocol)
        if not name.startswith("_")
    }

    assert set(SIGNATURES) == declared
    assert all(callable(getattr(RemoteStore, name)) for name in declared)


@pytest.mark.parametrize("act", ACTS, ids=repr)
async def test_every_act_arrives_as_what_it_was(act, store, owned):
    """The union is closed, and each of it is told from the others."""
    await store.steer("x", "a.example", act)

    (_, arguments) = owned.request[-1]
    assert arguments["act"] == act
    assert type(arguments["act"]) is type(act)


async def test_values_keep_their_types(store, owned):
    """Bytes, numbers, enums, named tuples and sets come out as they went in."""
    request = task(meta=b'{"a":1}', delay=0.0)
    await configure(store)
    (added,) = await store.add([request])
    (lease,) = (await store.claim(ClaimRequest("default", "w", 1))).leases
    kept = await store.extend([lease.id], lease_for=5.0)
    (finished,) = await store.finish([done(lease, links=[task("https://b.example/")])])
    page = await store.tasks("default", TaskFilter(fingerprint=request.fingerprint))

    assert owned.request[1][1]["tasks"] == [request]
    assert lease.about == request
    assert kept == {lease.id}
    assert finished.applied
    assert page.items[0].fingerprint == request.fingerprint
    assert page.items == [await store.task("default", request.fingerprint)]
    assert added.added
    assert lease.holder is None


async def test_a_users_function_is_named_and_never_sent(store, owned):
    """Stores keep the rules and never call what is in them."""
    given = CrawlRules(queue=QueueRules(budget=Budget(cost=lambda _url, _via: 1)))

    await store.configure("x", given)
    assert owned.request[-1][1]["rules"].queue.budget.cost == "custom"
    assert owned.request[-1][1]["rules"].queue.politeness == given.queue.politeness


async def test_rules_arrive_whole(store, owned):
    """Layers and limits included."""
    given = rules(keys={".org": {"delay": 2, "balance": 5}}, tie="lifo", limits={"done": 3})

    await store.configure("x", given)
    assert owned.request[-1][1]["rules"] == given


async def test_names_are_checked_where_they_arrive(store):
    """D5: a name is 16 bytes, and whatever else is sent never reaches the store."""
    request = ClaimRequest("default", "w", 1, fingerprints=[b"short"])

    with pytest.raises(InvalidInput, match="fingerprints"):
        await store.claim(request)


async def test_what_is_no_value_of_the_seam_is_refused_before_it_is_sent(store, owned):
    """Here: an object, a number too big, text that is no Unicode."""
    for url in (object(), "https://a.example/\ud800"):
        with pytest.raises(InvalidInput, match="cannot be sent"):
            await store.add([msgspec.structs.replace(task(), url=url)])
    with pytest.raises(InvalidInput, match="cannot be sent"):
        await store.position("x", 2**70)

    assert owned.request == []
    assert await store.crawls() == []


@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_of_the_store_arrives_as_the_same_class(kind, store, owned):
    """With the same message, so that callers cannot tell where the store is."""
    owned.error = kind("what, where, and what to do")

    with pytest.raises(OutriderError, match=r"^what, where, and what to do$") as caught:
        await store.crawls()
    assert type(caught.value) is kind


async def test_an_error_we_know_nothing_of_is_the_nearest_that_we_know(store, owned):
    """A store may have kinds of its own."""
    owned.error = type("DiskFull", (StoreError,), {})("no room")

    with pytest.raises(StoreError, match=r"^no room$"):
        await store.crawls()


async def test_any_other_error_is_the_stores_fault(store, owned):
    """It names what was raised, even in words that UTF-8 does not have."""
    owned.error = KeyError("lost \ud800")

    with pytest.raises(StoreError, match=r"KeyError.*lost"):
        await store.crawls()


async def test_a_frame_comes_out_as_it_went_in():
    """Length first, then msgpack."""
    sent = frames.Request(7, "crawls", frames.encode({}))

    assert frames.read_request(await frames.read_frame(frames_of(frames.frame(sent)))) == sent


async def test_an_announced_frame_beyond_the_bound_is_refused_unread():
    """Nobody is made to wait for, or to hold, what a length promises."""
    with pytest.raises(StoreError, match="announced"):
        await frames.read_frame(frames_of((frames.MAX_FRAME + 1).to_bytes(4, "big")))


async def test_a_call_too_large_is_refused_by_the_caller(store, monkeypatch):
    """Nothing was sent; the next call goes through."""
    monkeypatch.setattr(frames, "MAX_FRAME", 1000)

    with pytest.raises(InvalidInput, match="smaller batches"):
        await store.add_roots("x", "host", ["h" * 2000])
    assert await store.crawls() == []


async def test_an_answer_too_large_is_refused_by_the_owner(store, monkeypatch):
    """The caller learns to ask for less."""
    await open_crawls(store, "x")
    await store.add_roots("x", "host", ["h" * 2000])
    monkeypatch.setattr(frames, "MAX_FRAME", 1000)

    with pytest.raises(InvalidInput, match="smaller batches"):
        await store.roots("x", "host")
    assert await store.crawls() == ["x"]
