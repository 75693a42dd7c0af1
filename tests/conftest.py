"""What holds for every test: how Hypothesis searches, that nothing blocks an event loop, servers.

OUTRIDER_TEST_POSTGRES, OUTRIDER_TEST_REDIS and OUTRIDER_TEST_REDIS_CLUSTER name servers to use;
for the others real ones are started, once a run. Without any the tests fail.
"""

import asyncio
import functools
import gc
import os
import socket
import time
from itertools import islice

import hypothesis
import psycopg_pool
import pytest

from outrider.store.postgres import runner
from servers.empty_stores import EmptyStores

# Fresh examples on every run, and a failure prints the line that repeats it. No deadline: on a
# busy machine it would fail tests for being slow.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=False, print_blob=True)
hypothesis.settings.load_profile("ci")

_LONG = ("tests/fault/", "tests/e2e/", "tests/docs/", "tests/integration/")
_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))  # noqa: TID251 - of the runner


@pytest.hookimpl(trylast=True)  # after the shuffle, which it leaves as it is within each part
def pytest_collection_modifyitems(items):
    """Give each process its share of the tests that take seconds, before its short ones.

    The runner parts the list into as many equal pieces as there are processes. One that has ended
    its piece takes over what stands last in another's, which are short tests.
    """
    long = [item for item in items if item.nodeid.startswith(_LONG)]
    short = iter([item for item in items if not item.nodeid.startswith(_LONG)])
    pieces, left = [], len(items)
    for number in range(_PROCESSES):
        size = left // (_PROCESSES - number)
        first = long[number::_PROCESSES]
        pieces += [*first, *islice(short, max(0, size - len(first)))]
        left -= size
    items[:] = [*pieces, *short]


def pytest_collection_finish():
    """Keep what was collected out of every garbage collection of the tests: it stays to the end."""
    gc.collect()
    gc.freeze()


def _refused_on_a_loop(blocking):
    """The same call, except that a thread with a running event loop may not make it."""

    @functools.wraps(blocking)
    def call(*args, **kwargs):
        if asyncio._get_running_loop() is not None:
            raise RuntimeError(f"{blocking.__name__}() blocks the event loop")
        return blocking(*args, **kwargs)

    return call


# Replaced here, before any test module could import the originals by name.
time.sleep = _refused_on_a_loop(time.sleep)  # noqa: TID251 - this is what enforces the ban
socket.getaddrinfo = _refused_on_a_loop(socket.getaddrinfo)

_VARIABLES = {
    "postgres": "OUTRIDER_TEST_POSTGRES",
    "redis": "OUTRIDER_TEST_REDIS",
    "cluster": "OUTRIDER_TEST_REDIS_CLUSTER",
}


@pytest.fixture
def places(request):
    """Empty places on real servers: `places.take("postgres")`, "redis" or "cluster", is a URL."""
    run = getattr(request.config, "workerinput", {}).get("testrunuid", f"{os.getpid()}")
    named = {kind: os.environ.get(name) for kind, name in _VARIABLES.items()}  # noqa: TID251 - as said above
    places = EmptyStores(run, {kind: url for kind, url in named.items() if url})
    yield places
    places.clear()


_pools = {}  # by URL; schemas are reused, so their connections are too


def _kept_pool(url, **options):
    """The pool that an earlier test opened on the same schema, or a new one that stays open."""
    if url not in _pools:
        _pools[url] = pool = psycopg_pool.ConnectionPool(url, **options | {"min_size": 1})
        pool.open()
        pool.open = pool.close = lambda: None
    return _pools[url]


@pytest.fixture
def warm_postgres(monkeypatch):
    """PostgreSQL stores of this test keep the connections of earlier tests.

    A server process starts with empty caches: with new connections for every test, four fifths of
    the time of a short test on PostgreSQL go into filling them.
    """
    monkeypatch.setattr(runner, "ConnectionPool", _kept_pool)


def pytest_sessionfinish():
    """Close the kept pools: their threads outlive no run."""
    for pool in _pools.values():
        psycopg_pool.ConnectionPool.close(pool)
