"""What holds for every test: how Hypothesis searches, and that nothing blocks an event loop."""

import asyncio
import functools
import socket
import time

import hypothesis

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
