"""Notifications through the socket: pushed to those who subscribed, and never waited for (C6)."""

import asyncio

import pytest

from outrider.clock import SystemClock
from outrider.store.memory import MemoryStore
from outrider.store.remote import RemoteStore, StoreServer, frames
from outrider.store.remote import server as server_module
from outrider.testing.builders import task
from outrider.testing.conformance.steps import configure

CRAWL = "default"


@pytest.fixture
async def held():
    """The holder's store, with a crawl."""
    store = MemoryStore(SystemClock())
    await configure(store)
    return store


@pytest.fixture
async def server(held, file):
    """The holder's side."""
    server = await StoreServer.open(held, file)
    yield server
    await server.close()


def page(number):
    """A page of a host of its own."""
    return task(f"https://h{number}.example/")


async def rung(event):
    """Wait for a notification that must come."""
    async with asyncio.timeout(20):
        await event.wait()
    event.clear()


async def test_holder_pushes_what_was_subscribed_to(server, held, dial):
    """C6: once after the request, and once for many adds of a millisecond."""
    connection = await dial(server.path)
    await connection.hello()
    connection.ask(1, "subscribe", {"crawl": CRAWL})
    assert await connection.hear() == [1, "", "", None]
    assert await connection.hear() == [frames.NOTIFICATION, "", "", CRAWL]

    for number in range(50):
        await held.add([page(number)])
    assert await connection.hear() == [frames.NOTIFICATION, "", "", CRAWL]
    connection.ask(2, "unsubscribe", {"crawl": CRAWL})
    assert await connection.hear() == [2, "", "", None]
    await held.add([page(60)])
    connection.ask(3, "crawls", {})
    assert await connection.hear() == [3, "", "", [CRAWL]]
    assert not held._subscriptions.by_crawl


@pytest.mark.parametrize("arguments", [{}, {"crawl": 7}, {"crawl": "x" * 1025}, {"name": "x"}, []])
async def test_bad_subscription_is_refused(server, dial, held, arguments):
    """N2: by its name, and nothing is subscribed to."""
    connection = await dial(server.path)
    await connection.hello()
    connection.ask(1, "subscribe", arguments)

    number, kind, message, _ = await connection.hear()
    assert (number, kind) == (1, "InvalidInput")
    assert message.startswith("subscribe: ")
    assert not held._subscriptions.by_crawl


async def test_subscriptions_of_a_client_are_bounded(server, dial, held, monkeypatch):
    """M3: one client cannot fill the holder's memory; a repeated request is one subscription."""
    monkeypatch.setattr(server_module, "MAX_SUBSCRIPTIONS", 2)
    connection = await dial(server.path)
    await connection.hello()
    answers = []
    for number, crawl in enumerate(("a", "a", "b", "c"), 1):
        connection.ask(number, "subscribe", {"crawl": crawl})
    while len(answers) < 4:
        answer = await connection.hear()
        answers += [answer[1]] if answer[0] else []

    assert answers == ["", "", "", "InvalidInput"]
    assert set(held._subscriptions.by_crawl) == {"a", "b"}


async def test_client_that_does_not_read_holds_up_nobody(server, held, dial, monkeypatch):
    """M3: it gets one notification when it reads again, and the holder keeps no others for it."""
    monkeypatch.setattr(server_module, "MAX_UNREAD", -1)  # as if its buffer were full
    monkeypatch.setattr(server_module, "UNREAD_INTERVAL", 0.001)
    connection = await dial(server.path)
    await connection.hello()
    connection.ask(1, "subscribe", {"crawl": CRAWL})
    assert await connection.hear() == [1, "", "", None]
    for number in range(1000):
        await held.add([page(number)])
        await asyncio.sleep(0)
    monkeypatch.setattr(server_module, "MAX_UNREAD", 1 << 16)

    assert await connection.hear() == [frames.NOTIFICATION, "", "", CRAWL]
    connection.ask(2, "crawls", {})
    assert await connection.hear() == [2, "", "", [CRAWL]]


async def test_client_that_leaves_is_forgotten(server, held, file):
    """C6: its subscriptions end with its connection."""
    store, heard = await RemoteStore.connect(file), asyncio.Event()
    store.subscribe(CRAWL, heard.set)
    await rung(heard)
    assert held._subscriptions.by_crawl
    await store.close()
    async with asyncio.timeout(20):
        while held._subscriptions.by_crawl:  # noqa: ASYNC110 - the server sees the end by itself
            await asyncio.sleep(0)


async def test_new_connection_is_subscribed_again(server, held, file):
    """C6: and notifies once, for what came meanwhile."""
    store, heard = await RemoteStore.connect(file), asyncio.Event()
    store.subscribe(CRAWL, heard.set)
    await rung(heard)
    await server.close()
    async with await _served(held, file):
        assert await store.crawls() == [CRAWL]
        await rung(heard)
        await held.add([page(1)])
        await rung(heard)
        await store.close()


async def test_process_that_takes_the_file_over_is_notified_by_itself(server, held, file):
    """C6: its callers subscribed to the socket, and now its own verbs notify them."""

    async def take_over():
        return held

    store, heard = await RemoteStore.connect(file, take_over=take_over), asyncio.Event()
    end = store.subscribe(CRAWL, heard.set)
    await rung(heard)
    await server.close()
    assert await store.crawls() == [CRAWL]
    await rung(heard)
    await store.add([page(1)])
    await rung(heard)
    end()
    await store.add([page(2)])
    assert not held._subscriptions.by_crawl
    await store.close()


async def _served(held, file):
    server = await StoreServer.open(held, file)

    class Serving:
        async def __aenter__(self):
            return server

        async def __aexit__(self, *_):
            await server.close()

    return Serving()
