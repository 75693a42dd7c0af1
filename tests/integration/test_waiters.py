"""A thousand claims that wait, on every store: few calls, and a prompt answer (C6)."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from outrider import Frontier
from outrider.clock import SystemClock
from outrider.store.embedded import EmbeddedStore
from outrider.store.factory import open_store
from outrider.store.forwarding import ForwardingStore
from outrider.store.memory import MemoryStore
from outrider.store.remote import RemoteStore, StoreServer

WAITERS = 1000
SETTINGS = {"politeness": {"delay": 0.0}}


class CountingStore(ForwardingStore):
    """Any store, its claims counted."""

    def __init__(self, store):
        self.store = store
        self.id, self.is_inline, self.notifies = store.id, store.is_inline, store.notifies
        self.claims = 0

    async def _forward(self, verb, *args, **kwargs):
        self.claims += verb == "claim"
        return await getattr(self.store, verb)(*args, **kwargs)

    def subscribe(self, crawl, notify):
        """As the store inside."""
        return self.store.subscribe(crawl, notify)

    async def close(self):
        """Close the store inside."""
        await self.store.close()


@asynccontextmanager
async def memory(places, tmp_path):
    """Twice the same store."""
    store = MemoryStore(SystemClock())
    yield store, store


@asynccontextmanager
async def embedded(places, tmp_path):
    """Twice the same file, every verb on the disk before it is answered."""
    store = EmbeddedStore.open(tmp_path / "crawl", SystemClock(), durability="sync")
    yield store, store


@asynccontextmanager
async def remote(places, tmp_path):
    """A file's store: one process waits at its socket, the holder adds."""
    store = EmbeddedStore.open(tmp_path / "crawl", SystemClock())
    server = await StoreServer.open(store, str(tmp_path / "crawl"))
    yield await RemoteStore.connect(str(tmp_path / "crawl")), store
    await server.close()


def served(kind):
    """Two connections to a server, as two processes have them."""

    @asynccontextmanager
    async def opened(places, tmp_path):
        url = places.take(kind)
        yield [await open_store(url, SystemClock()) for _ in range(2)]

    return opened


STORES = {
    "memory": memory,
    "embedded": embedded,
    "remote": remote,
    "postgres": served("postgres"),
    "redis": served("redis"),
    "cluster": served("cluster"),
}


@pytest.mark.parametrize("kind", STORES)
async def test_thousand_waiters_and_one_add_cost_few_claims(kind, places, tmp_path):
    """C6: a claim gets the task, another finds no more; a third may hear of the lease."""
    async with STORES[kind](places, tmp_path) as (waiting_store, adding_store):
        counted = CountingStore(waiting_store)
        async with (
            Frontier.open(counted, settings=SETTINGS) as waiting,
            Frontier.open(adding_store, settings=SETTINGS) as adding,
            asyncio.timeout(60),
        ):
            tasks = [asyncio.ensure_future(waiting.claim(1, wait=600.0)) for _ in range(WAITERS)]
            for number in range(3):
                await asyncio.sleep(0.2)  # until the server listens, and the last claim was empty
                loop, before = asyncio.get_running_loop(), counted.claims
                began = loop.time()
                await adding.add([f"https://h{number}.example/"])
                claim = await tasks[number]
                seconds, claims = loop.time() - began, counted.claims - before

                assert [lease.url for lease in claim] == [f"https://h{number}.example/"]
                assert seconds < 0.9  # and so by the notification, not by the poll of a second
                assert claims <= 3
            assert sum(task.done() for task in tasks) == 3
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for store in {waiting_store, adding_store}:
            await store.close()
