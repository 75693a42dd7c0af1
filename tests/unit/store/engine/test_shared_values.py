"""Notes in memory: kept in any order, told in the order of their numbers."""

from itertools import permutations

import pytest

from outrider.store.engine.shared_values import SharedValues
from outrider.store.protocol import SharedValue, SharedValueWrite

TOLD = (
    SharedValue(1, 0.0, "t", "a", "x"),
    SharedValue(2, 0.0, "t", "b", "y"),
    SharedValue(3, 0.0, "t", "a", "z"),
)


@pytest.mark.parametrize("order", list(permutations(TOLD)))
def test_the_last_word_holds_in_whatever_order_words_come(order):
    """A file tells some of them twice, and a rescue tells old ones late."""
    values = SharedValues()
    values.insert_all([*order, order[0]])

    assert values.since(0) == [TOLD[1], TOLD[2]]
    assert values.last == 3


def test_a_page_of_notes_is_bounded_and_goes_on_behind_a_number_that_is_gone():
    """N1: number 1 was written over; who read up to it misses nothing."""
    values = SharedValues()
    values.insert_all(TOLD)

    assert values.since(1, 1) == [TOLD[1]]
    assert values.since(2, 5) == [TOLD[2]]
    assert values.since(3, 5) == []


def test_numbers_go_on_behind_the_highest_that_was_kept():
    """N1: nobody who reads on after it may miss a note."""
    values = SharedValues()
    values.insert_all(TOLD)

    assert values.put(SharedValueWrite("t", "c", "new"), 5000) == 4
    assert values.since(3) == [SharedValue(4, 5.0, "t", "c", "new")]
