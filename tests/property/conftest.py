"""The stores that are compared with the model: the only file here that knows which exist."""

from itertools import count

import pytest

from outrider.store.embedded import EmbeddedStore, queue_cache
from outrider.store.embedded import store as embedded_store
from outrider.store.factory import open_store
from outrider.store.memory import MemoryStore


class Forgetful(EmbeddedStore):
    """Its memory is thrown away before every other verb, and snapshots are taken all the time."""

    async def _forward(self, verb, *args, **kwargs):
        self._is_stale = self._next_page % 2 == 0
        self._new_items += 1_000_000
        return await super()._forward(verb, *args, **kwargs)


class Served:
    """A store on a real server that its first verb opens: making one takes no time."""

    def __init__(self, places, kind, clock):
        self._places, self._url = places, places.take(kind)
        self._opening = lambda: open_store(self._url, clock)
        self._store = None

    def __getattr__(self, name):
        async def verb(*args, **kwargs):
            if self._store is None:
                self._store = await self._opening()
            return await getattr(self._store, name)(*args, **kwargs)

        return verb

    async def close(self):
        """And give the place back: a case that fails is tried hundreds of times."""
        if self._store is not None:
            await self._store.close()
        self._places.give_back(self._url)


STORES = {
    "memory": MemoryStore,
    "embedded": EmbeddedStore,
    "sleepy": EmbeddedStore,
    "forgetful": Forgetful,
    "postgres": Served,
    "redis": Served,
}
# They take so much longer.
ONE_IN = {"memory": 1, "embedded": 2, "sleepy": 4, "forgetful": 10, "postgres": 10, "redis": 10}
SAVED_ONE_IN = {"forgetful": 4, "postgres": 4, "redis": 4}


@pytest.fixture(params=STORES)
def kind(request):
    """Each store in turn."""
    return request.param


@pytest.fixture
def one_in(kind):
    """Of how many random crawls this store plays one."""
    return ONE_IN[kind]


@pytest.fixture
def saved_one_in(kind):
    """Of how many crawls that are saved it plays one."""
    return SAVED_ONE_IN.get(kind, 1)


@pytest.fixture
def make_store(kind, tmp_path, monkeypatch, places, warm_postgres):
    """A maker of empty stores that obey the clock they are given."""
    store, numbers = STORES[kind], count()
    if kind == "sleepy":  # queues leave the memory as soon as nobody uses them
        monkeypatch.setattr(queue_cache, "MAX_RESIDENT", 0)
        monkeypatch.setattr(queue_cache, "IDLE_KEPT", 0)
    if kind == "forgetful":
        monkeypatch.setattr(embedded_store, "SLICE_BYTES", 1)  # much changes between two pieces
    if store is MemoryStore:
        return store
    if store is Served:
        return lambda clock: Served(places, kind, clock)
    return lambda clock: store.open(tmp_path / f"{next(numbers)}.outrider", clock)
