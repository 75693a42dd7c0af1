"""Shared values in memory: inserted in any order, read in the order of their numbers."""

from itertools import permutations

import pytest

from outrider.store.engine.journal import SharedValues
from outrider.store.protocol import SharedValue, SharedValueWrite

VALUES = (
    SharedValue(1, 0.0, "t", "a", "x"),
    SharedValue(2, 0.0, "t", "b", "y"),
    SharedValue(3, 0.0, "t", "a", "z"),
)


@pytest.mark.parametrize("order", list(permutations(VALUES)))
def test_value_with_highest_number_wins_in_any_order_of_inserts(order):
    """A file has some of them twice, and a rescue inserts old ones late."""
    values = SharedValues()
    values.insert_all([*order, order[0]])

    assert values.since(0) == [VALUES[1], VALUES[2]]
    assert values.last == 3


def test_values_since_are_limited_and_continue_after_a_replaced_number():
    """N1: number 1 was replaced; a reader that has read up to it misses nothing."""
    values = SharedValues()
    values.insert_all(VALUES)

    assert values.since(1, 1) == [VALUES[1]]
    assert values.since(2, 5) == [VALUES[2]]
    assert values.since(3, 5) == []


def test_new_value_gets_a_number_above_the_highest():
    """N1: no reader that continues after it may miss a value."""
    values = SharedValues()
    values.insert_all(VALUES)

    assert values.put(SharedValueWrite("t", "c", "new"), 5000) == 4
    assert values.since(3) == [SharedValue(4, 5.0, "t", "c", "new")]
