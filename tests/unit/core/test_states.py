from itertools import product

import pytest

from outrider.core.states import (
    MOVES,
    RETIRED_REASONS,
    SNOOZED_REASONS,
    STATUS_MOVES,
    CrawlStatus,
    QueueState,
    TaskState,
    may_move,
)

LEGAL = {
    ("pending", "leased"),
    ("pending", "done"),
    ("pending", "dropped"),
    ("leased", "pending"),
    ("leased", "done"),
    ("leased", "dead"),
    ("leased", "dropped"),
    ("done", "pending"),
    ("done", "dropped"),
    ("dead", "pending"),
    ("dead", "done"),
    ("dead", "dropped"),
    ("dropped", "pending"),
    ("dropped", "done"),
}

LEGAL_STATUS = {
    ("running", "paused"),
    ("running", "finished"),
    ("running", "cancelled"),
    ("paused", "running"),
    ("paused", "cancelled"),
    ("finished", "running"),
    ("finished", "cancelled"),
}


@pytest.mark.parametrize(("before", "after"), list(product(TaskState, TaskState)))
def test_a_task_moves_as_the_table_says(before, after):
    """B2: every pair of states, the legal moves and no others."""
    assert may_move(before, after) is ((before.value, after.value) in LEGAL)


def test_the_table_names_every_state():
    """B2: no state is a dead end, and none is missing."""
    assert set(MOVES) == set(TaskState)
    assert all(MOVES.values())


@pytest.mark.parametrize(("before", "after"), list(product(CrawlStatus, CrawlStatus)))
def test_a_crawl_moves_as_the_table_says(before, after):
    """I1 to I3: a cancelled crawl stays cancelled."""
    assert (after in STATUS_MOVES[before]) is ((before.value, after.value) in LEGAL_STATUS)


def test_queue_states_stand_in_the_order_in_which_they_are_asked():
    """C1: the first that holds, so the order is a rule."""
    assert list(QueueState) == [
        "retired",
        "paused",
        "empty",
        "busy",
        "snoozed",
        "ready",
        "inactive",
    ]


def test_reasons_are_those_of_the_specification():
    """C1."""
    assert set(RETIRED_REASONS) == {"budget", "quota", "unreachable", "throttled", "operator"}
    assert set(SNOOZED_REASONS) == {
        "delay",
        "throttled",
        "unreachable",
        "blocked",
        "waiting",
        "operator",
    }
