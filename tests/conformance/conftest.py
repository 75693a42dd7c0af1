"""The stores the suite runs against: the only file here that knows which stores exist."""

import os
from contextlib import asynccontextmanager

import pytest

from outrider.store.embedded import EmbeddedStore, queue_cache
from outrider.store.embedded import store as embedded_store
from outrider.store.factory import open_store
from outrider.store.memory import MemoryStore
from outrider.store.remote import RemoteStore, StoreServer
from outrider.testing.clock import FakeClock
from outrider.testing.invariants import CheckedStore
from outrider.testing.model import Model
from scale import ROUNDS
from servers.empty_stores import with_parameter


def plain(kind):
    """A store that needs a clock and nothing else."""

    @asynccontextmanager
    async def make(clock, tmp_path, places):
        yield kind(clock)

    return make


@asynccontextmanager
async def remote(clock, tmp_path, places):
    """A memory store as another process would see it: through the socket of a file."""
    door = await StoreServer.open(MemoryStore(clock), str(tmp_path / "crawl"))
    store = await RemoteStore.connect(str(tmp_path / "crawl"))
    try:
        yield store
    finally:
        await store.close()
        await door.close()


@asynccontextmanager
async def embedded(clock, tmp_path, places):
    """A file."""
    yield EmbeddedStore.open(tmp_path / "crawl.outrider", clock)


class Forgetful(EmbeddedStore):
    """Its memory is thrown away before every third verb, and a snapshot is taken all the time."""

    async def _run(self, work):
        self._is_stale = self._next_page % 3 == 0
        self._told += 1_000_000
        return await super()._run(work)


@asynccontextmanager
async def forgetful(clock, tmp_path, places):
    """A file that is all there is: whatever a verb needs was written by those before.

    Between two losses of its memory, queues leave it as soon as they are not in use.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded_store, "SLICE_BYTES", 1)  # a piece at a time: much changes meanwhile
        patch.setattr(queue_cache, "MAX_RESIDENT", 0)
        patch.setattr(queue_cache, "IDLE_KEPT", 0)
        yield Forgetful.open(tmp_path / "crawl.outrider", clock)


def served(kind):
    """A store on a real server, in a place of its own."""

    @asynccontextmanager
    async def make(clock, tmp_path, places):
        yield await open_store(places.take(kind), clock)

    return make


@asynccontextmanager
async def cluster(clock, tmp_path, places):
    """A real cluster; on one shard, because what tests say of order holds within a shard."""
    yield await open_store(with_parameter(places.take("cluster"), "shards", "1"), clock)


# Each is an async context manager of (clock, tmp_path, places): an empty store, and the end of what
# it had.
STORES = {
    "model": plain(Model),
    "memory": plain(MemoryStore),
    "embedded": embedded,
    "remote": remote,
    "postgres": served("postgres"),
    "redis": served("redis"),
}
# The same file under pressure; the property tests compare it with the model in every run.
if ROUNDS > 1:
    STORES["forgetful"] = forgetful
# The router has a suite of its own (test_shards.py), so this one on a real cluster is for a change
# of either: OUTRIDER_CLUSTER=all.
if os.environ.get("OUTRIDER_CLUSTER") == "all":  # noqa: TID251 - scales the suite only
    STORES["cluster"] = cluster


@pytest.fixture
def clock():
    """Time that moves only when a test says so."""
    return FakeClock()


@pytest.fixture(params=STORES)
async def store(request, clock, tmp_path, places, warm_postgres):
    """Each store in turn, empty, and watched: whatever a test does, the invariants hold."""
    async with STORES[request.param](clock, tmp_path, places) as made:
        store = CheckedStore(made, clock)
        yield store
        for crawl in await store.crawls():
            await store.check(crawl)
        await store.close()
