"""The watchdog: what it takes for a hang, and what not."""

import threading
from types import SimpleNamespace

import pytest

from outrider.executor.watchdog import MAX_CHECKS, Watchdog


@pytest.fixture
def worker():
    """A worker's numbers."""
    return SimpleNamespace(ticks=0, turns=0, is_waiting=False, stuck="")


@pytest.fixture
def dog(worker):
    """A watchdog that is asked by hand."""
    return Watchdog(worker, 120.0)


def looks(dog, worker, times=MAX_CHECKS + 1, **growing):
    """Look so often, while these numbers grow; the first thing wrong."""
    for number in range(times):
        for name in growing:
            setattr(worker, name, getattr(worker, name) + 1)
        wrong = dog.check()
        if wrong is not None:
            return number, wrong
    return None


def test_a_loop_that_stands_still_is_a_hang(dog, worker):
    """After all looks of the limit, and no sooner."""
    when, wrong = looks(dog, worker, 99)

    assert when == MAX_CHECKS
    assert "the event loop stood still for 120 s" in wrong


def test_an_idle_worker_is_well(dog, worker):
    """Its loop turns, though nothing is there to be done."""
    assert looks(dog, worker, 99, ticks=1, turns=1) is None


def test_a_loop_without_a_turn_is_a_hang(dog, worker):
    """The event loop lives, but nothing is finished or claimed."""
    _, wrong = looks(dog, worker, 99, ticks=1)

    assert "nothing was finished or claimed" in wrong


def test_a_store_that_is_away_is_no_hang(dog, worker):
    """M6: it is waited for as long as it takes."""
    worker.is_waiting = True

    assert looks(dog, worker, 99, ticks=1) is None


def test_visits_without_an_end_are_a_hang(dog, worker):
    """Once they are beyond their limits for so long."""
    worker.stuck = "2 visits do not end: https://a.example/"
    when, wrong = looks(dog, worker, 99, ticks=1, turns=1)

    assert (when, wrong) == (MAX_CHECKS - 1, "2 visits do not end: https://a.example/, for 120 s")


def test_progress_restarts_the_count_of_checks(dog, worker):
    """Slow is not dead."""
    for _ in range(5):
        assert looks(dog, worker, MAX_CHECKS) is None
        worker.ticks += 1
        worker.turns += 1


def test_it_looks_by_itself_until_it_is_left(worker):
    """And acts once."""
    said, acted = [], threading.Event()

    def end(wrong):
        said.append(wrong)
        acted.set()

    with Watchdog(worker, 0.05, end) as dog:
        assert acted.wait(20)
        dog._thread.join(20)

    assert len(said) == 1


def test_one_that_was_left_looks_no_more(worker):
    """Its thread ends."""
    with Watchdog(worker, 3600.0, pytest.fail) as dog:
        assert dog._thread.is_alive()
    dog._thread.join(20)

    assert not dog._thread.is_alive()
