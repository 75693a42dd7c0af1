"""Workers in memory: how many are kept."""

import msgspec
import pytest

from outrider.store.engine import journal as module
from outrider.store.engine.journal import Workers
from outrider.store.protocol import Heartbeat

ONE = Heartbeat("one", "idle", "north", 1, 4, 0, 0)


def send_heartbeat(workers, name, at):
    """Send a heartbeat."""
    workers.heartbeat(msgspec.structs.replace(ONE, worker=name), at)


def names(workers, now):
    """List the known workers."""
    return [one.worker for one in workers.views(now)]


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Let three workers be the maximum."""
    monkeypatch.setattr(module, "MAX_WORKERS", 3)


def test_worker_silent_longest_is_removed_when_there_are_too_many():
    """M6: ever new names must not fill the memory."""
    workers = Workers()
    for at, name in enumerate(("a", "b", "c", "a", "d")):
        send_heartbeat(workers, name, at)

    assert names(workers, 9) == ["a", "c", "d"]


def test_heartbeat_of_a_known_worker_removes_no_other():
    """M6: a heartbeat of a known worker needs no room."""
    workers = Workers()
    for at, name in enumerate(("a", "b", "c", "c", "b")):
        send_heartbeat(workers, name, at)

    assert names(workers, 9) == ["a", "b", "c"]


def test_workers_silent_for_a_day_are_removed_first():
    """M6: all of them, and then no other has to be removed."""
    workers, day = Workers(), 86_400_000
    for at, name in ((0, "a"), (1, "b"), (day, "c"), (day + 1, "d")):
        send_heartbeat(workers, name, at)

    assert names(workers, day + 1) == ["c", "d"]
