"""The stores the suite runs against: the only file here that knows which stores exist."""

import pytest

from outrider.store.memory import MemoryStore
from outrider.testing.clock import FakeClock
from outrider.testing.invariants import Witness
from outrider.testing.model import Model

STORES = {"model": Model, "memory": MemoryStore}


@pytest.fixture
def clock():
    """Time that moves only when a test says so."""
    return FakeClock()


@pytest.fixture(params=STORES)
async def store(request, clock):
    """Each store in turn, empty, and watched: whatever a test does, the invariants hold."""
    store = Witness(STORES[request.param](clock), clock)
    yield store
    for crawl in await store.crawls():
        await store.check(crawl)
    await store.close()
