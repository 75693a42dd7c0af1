"""Stores on real servers, as a stage can play them: each verb waits for its answer on the spot."""

import asyncio
import inspect

import pytest

from outrider.store.factory import open_store


class OnTheSpot:
    """A store whose verbs never suspend: a stage knows no waiting but for its own time."""

    def __init__(self, store, loop):
        self._store, self._loop = store, loop

    def __getattr__(self, name):
        verb = getattr(self._store, name)
        if not inspect.iscoroutinefunction(verb):
            return verb

        async def now(*args, **kwargs):
            return self._loop.run_until_complete(verb(*args, **kwargs))

        return now


@pytest.fixture
def served(places, warm_postgres):
    """Makes openers of empty stores on a server of a kind."""
    with asyncio.Runner() as runner:
        loop, stores = runner.get_loop(), []

        def opener_of(kind):
            async def opened(clock):
                store = loop.run_until_complete(open_store(places.take(kind), clock))
                stores.append(store)
                return OnTheSpot(store, loop)

            return opened

        yield opener_of
        for store in stores:
            runner.run(store.close())
