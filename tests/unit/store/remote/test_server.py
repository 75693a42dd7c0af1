"""The owner's side: whatever comes through the door, the others are served."""

import asyncio
import random

import msgspec
import pytest

from outrider.errors import StoreUnavailable
from outrider.store.remote import RemoteStore, frames
from outrider.testing.conformance.steps import open_crawls


async def test_an_unknown_verb_is_answered_and_the_line_goes_on(server, dial, owned):
    """Only verbs of the seam: nothing else of the store can be reached."""
    connection = await dial(server.path)
    await connection.hello()
    for verb in ("push", "close", "id", "__class__", "_crawl", ""):
        connection.ask(1, verb, {})
        assert (await connection.hear())[:2] == [1, "InvalidInput"]

    connection.ask(2, "crawls", {})
    assert await connection.hear() == [2, "", "", []]
    assert owned.request == [("crawls", {})]


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("crawl", {}),
        ("crawl", {"crawl": 7}),
        ("crawl", {"crawl": "x", "more": 1}),
        ("crawl", ["x"]),
        ("crawl", None),
        ("add", {"tasks": [{"url": "https://a.example/"}]}),
        ("steer", {"crawl": "x", "target": "", "act": {"type": "Explode"}}),
        ("claim", {"request": {"crawl": "x", "worker": "w", "limit": "many"}}),
        ("task", {"crawl": "x", "fingerprint": b"\0" * 16, "after": 1}),
    ],
)
async def test_bad_arguments_are_answered_and_the_line_goes_on(
    verb, arguments, server, dial, owned
):
    """The store hears nothing of them."""
    connection = await dial(server.path)
    await connection.hello()
    connection.ask(1, verb, arguments)
    number, kind, message, _ = await connection.hear()

    assert (number, kind) == (1, "InvalidInput")
    assert message.startswith(f"{verb}: ")
    connection.ask(2, "crawls", {})
    assert (await connection.hear())[:2] == [2, ""]
    assert owned.request == [("crawls", {})]


@pytest.mark.parametrize("greets", [True, False])
@pytest.mark.parametrize("seed", range(20))
async def test_garbage_ends_its_own_line_only(greets, seed, server, dial, store):
    """Before a hello or after it, framed or not."""
    dice = random.Random(seed)
    connection = await dial(server.path)
    if greets:
        await connection.hello()
    noise = dice.randbytes(dice.randint(1, 300))
    connection.send(noise) if seed % 2 else connection.writer.write(noise)
    connection.writer.write_eof()

    await connection.reader.read()
    assert await store.crawls() == []


async def test_nesting_without_end_is_garbage(server, dial, store):
    """It would go deeper than any stack."""
    connection = await dial(server.path)
    await connection.hello()
    connection.send(b"\x93\x01\xa6crawls" + b"\x91" * 1_000_000)

    assert await connection.reader.read() == b""
    assert await store.crawls() == []


async def test_a_length_beyond_the_bound_ends_the_line(server, dial, store):
    """What follows it is not waited for."""
    connection = await dial(server.path)
    await connection.hello()
    connection.writer.write(b"\xff\xff\xff\xff")

    assert await connection.reader.read() == b""
    assert await store.crawls() == []


async def test_another_protocol_learns_ours_and_is_left(server, dial):
    """A hello of any release is understood, whatever a later one adds to it."""
    connection = await dial(server.path)
    theirs = await connection.hello("outrider", 99, "9.9", "", "", "something new")

    assert theirs[:2] == ["outrider", frames.PROTOCOL]
    assert await connection.reader.read() == b""


async def test_who_says_nothing_is_not_waited_for(server, dial, monkeypatch):
    """A place at the door is for those who speak."""
    monkeypatch.setattr("outrider.store.remote.server.HELLO_TIMEOUT", 0.0)
    connection = await dial(server.path)

    assert await connection.reader.read() == b""


async def test_there_is_room_for_so_many(server, file, store, monkeypatch):
    """The next is told so, and comes in when somebody leaves."""
    monkeypatch.setattr("outrider.store.remote.server.MAX_CONNECTIONS", 2)
    second = await RemoteStore.connect(file)
    with pytest.raises(StoreUnavailable, match="serves 2 others"):
        await RemoteStore.connect(file)

    (_, leaving, *_) = server._connections
    await second.close()
    await asyncio.wait([leaving])
    third = await RemoteStore.connect(file)
    assert await third.crawls() == []
    await third.close()


async def test_who_leaves_answers_unread_is_dropped_and_nobody_waits(
    server, dial, store, monkeypatch
):
    """The others are served meanwhile."""
    await open_crawls(store, "x")
    await store.add_roots("x", "host", [str(number) * 1000 for number in range(4000)])
    monkeypatch.setattr("outrider.store.remote.server.WRITE_TIMEOUT", 0.05)
    slow = await dial(server.path)
    await slow.hello()
    (*_, leaving) = server._connections
    slow.ask(1, "roots", {"crawl": "x", "mode": "host"})

    assert await store.crawls() == ["x"]
    await asyncio.wait([leaving])
    assert await store.crawls() == ["x"]


async def test_who_never_waits_does_not_have_the_owner_alone(server, dial, store, owned):
    """A turn each, however many requests one has sent ahead."""
    eager = await dial(server.path)
    await eager.hello()
    await store.crawls()
    request = [msgspec.msgpack.encode((n, "queue", {"crawl": "x", "key": "k"})) for n in range(500)]
    eager.writer.write(b"".join(len(body).to_bytes(4, "big") + body for body in request))
    await store.heatmap("x")

    assert [verb for verb, _ in owned.request].index("heatmap") < 400


async def test_closing_answers_what_has_begun(server, store, owned):
    """Then the line ends, and the next call says so."""
    owned.shut.add("crawls")
    call = asyncio.create_task(store.crawls())
    await owned.gates["asked"].wait()
    closing = asyncio.create_task(server.close())
    await asyncio.sleep(0)
    owned.gates["crawls"].set()

    assert await call == []
    await closing
    assert not server.path.exists()
    with pytest.raises(StoreUnavailable):
        await store.crawls()


async def test_closing_does_not_wait_for_ever(server, store, owned, monkeypatch):
    """A verb that hangs is cut short at last."""
    monkeypatch.setattr("outrider.store.remote.server.CLOSE_TIMEOUT", 0.05)
    owned.shut.add("crawls")
    call = asyncio.create_task(store.crawls())
    await owned.gates["asked"].wait()
    await server.close()

    with pytest.raises(StoreUnavailable, match="unknown whether applied"):
        await call


async def test_closing_twice_is_closing_once(server, store):
    """And those who only listened are parted from at once."""
    await server.close()
    await server.close()

    assert server._connections == {}


async def test_a_client_that_goes_does_not_cut_its_verb_short(server, dial, store, owned):
    """A store is never left half-way."""
    await open_crawls(store, "x")
    owned.shut.add("add_roots")
    connection = await dial(server.path)
    await connection.hello()
    connection.ask(1, "add_roots", {"crawl": "x", "mode": "host", "roots": ["a"]})
    await owned.gates["asked"].wait()
    connection.writer.transport.abort()
    await store.heatmap("x")
    (_, leaving) = server._connections
    owned.gates["add_roots"].set()
    await asyncio.wait([leaving])

    assert await store.roots("x", "host") == ["a"]
