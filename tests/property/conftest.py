"""The stores that are compared with the model: the only file here that knows which exist."""

from itertools import count

import pytest

from outrider.store.embedded import EmbeddedStore, roster
from outrider.store.embedded import store as embedded_store
from outrider.store.memory import MemoryStore


class Forgetful(EmbeddedStore):
    """Its memory is thrown away before every other verb, and snapshots are taken all the time."""

    async def _run(self, work):
        self._is_stale = self._next_page % 2 == 0
        self._told += 1_000_000
        return await super()._run(work)


STORES = {
    "memory": MemoryStore,
    "embedded": EmbeddedStore,
    "sleepy": EmbeddedStore,
    "forgetful": Forgetful,
}
ONE_IN = {"memory": 1, "embedded": 2, "sleepy": 4, "forgetful": 12}  # they take so much longer


@pytest.fixture(params=STORES)
def kind(request):
    """Each store in turn."""
    return request.param


@pytest.fixture
def one_in(kind):
    """Of how many random crawls this store plays one."""
    return ONE_IN[kind]


@pytest.fixture
def make_store(kind, tmp_path, monkeypatch):
    """A maker of empty stores that obey the clock they are given."""
    store, numbers = STORES[kind], count()
    if kind == "sleepy":  # queues leave the memory as soon as nobody uses them
        monkeypatch.setattr(roster, "AWAKE_MOST", 0)
        monkeypatch.setattr(roster, "IDLE_KEPT", 0)
    if kind == "forgetful":
        monkeypatch.setattr(embedded_store, "SLICE_BYTES", 1)  # much changes between two pieces
    if store is MemoryStore:
        return store
    return lambda clock: store.open(tmp_path / f"{next(numbers)}.outrider", clock)
