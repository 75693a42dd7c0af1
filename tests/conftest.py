"""What holds for every test: how Hypothesis searches, that nothing blocks an event loop, servers.

OUTRIDER_TEST_POSTGRES, OUTRIDER_TEST_REDIS and OUTRIDER_TEST_REDIS_CLUSTER name servers to use;
for the others real ones are started, once a run. Without any the tests fail.
"""

import asyncio
import functools
import os
import socket
import time

import hypothesis
import pytest

from outrider.testing.servers.places import Places

# Fresh examples on every run, and a failure prints the line that repeats it. No deadline: on a
# busy machine it would fail tests for being slow.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=False, print_blob=True)
hypothesis.settings.load_profile("ci")


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
    places = Places(run, {kind: url for kind, url in named.items() if url})
    yield places
    places.clear()
