"""Workers in memory: how many are kept."""

import msgspec
import pytest

from outrider.store.engine import workers as module
from outrider.store.engine.workers import Workers
from outrider.store.protocol import Heartbeat

ONE = Heartbeat("one", "idle", "north", 1, 4, 0, 0)


def heard(workers, name, at):
    """A worker beats."""
    workers.heartbeat(msgspec.structs.replace(ONE, worker=name), at)


def names(workers, now):
    """Who is known."""
    return [one.worker for one in workers.views(now)]


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Three are many."""
    monkeypatch.setattr(module, "MAX_WORKERS", 3)


def test_of_too_many_the_one_silent_longest_is_forgotten():
    """M6: somebody who writes ever new names must not fill the memory."""
    workers = Workers()
    for at, name in enumerate(("a", "b", "c", "a", "d")):
        heard(workers, name, at)

    assert names(workers, 9) == ["a", "c", "d"]


def test_the_known_crowd_nobody_out():
    """M6: a beat of one that is there takes no other's place."""
    workers = Workers()
    for at, name in enumerate(("a", "b", "c", "c", "b")):
        heard(workers, name, at)

    assert names(workers, 9) == ["a", "b", "c"]


def test_those_silent_for_a_day_go_first():
    """M6: all of them, and then nobody else has to."""
    workers, day = Workers(), 86_400_000
    for at, name in ((0, "a"), (1, "b"), (day, "c"), (day + 1, "d")):
        heard(workers, name, at)

    assert names(workers, day + 1) == ["c", "d"]
