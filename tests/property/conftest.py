"""The stores that are compared with the model: the only file here that knows which exist."""

import pytest

from outrider.store.memory import MemoryStore

STORES = {"memory": MemoryStore}


@pytest.fixture(params=STORES)
def make_store(request):
    """A maker of empty stores that obey the clock they are given."""
    return STORES[request.param]
