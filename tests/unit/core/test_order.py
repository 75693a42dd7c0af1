import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.order import (
    NUMBER_MASK,
    PRECEDENCE_LIMIT,
    TIE_MASK,
    TURN_BITS,
    discounted,
    ordered,
    queue_key,
    queue_number,
    queue_precedence,
    rank,
    task_key,
    task_number,
    tie_of,
)

LEAST_SUBNORMAL = 5e-324
LEAST_NORMAL = sys.float_info.min
MOST = sys.float_info.max

RISING = (
    *(-MOST, -1e300, -1000.0, -1.0, -LEAST_NORMAL, -LEAST_SUBNORMAL),
    0.0,
    *(LEAST_SUBNORMAL, LEAST_NORMAL, 0.5, 1.0, math.nextafter(1.0, 2.0), 1e300, MOST),
)

priorities = st.floats(allow_nan=False, allow_infinity=False)
precedences = st.integers(0, 65_535)
ties = st.integers(0, TIE_MASK)
numbers = st.integers(1, NUMBER_MASK)
queue_precedences = st.integers(-PRECEDENCE_LIMIT, PRECEDENCE_LIMIT - 1)
turns = st.integers(0, (1 << TURN_BITS) - 1)


def test_ordered_floats_sort_as_the_floats_do():
    """C2: from the most negative over the subnormals to the largest, none equal."""
    keys = [ordered(priority) for priority in RISING]

    assert keys == sorted(set(keys))


def test_ordered_floats_fit_into_64_bits():
    """A store may keep them as unsigned integers."""
    assert all(0 <= ordered(priority) < 1 << 64 for priority in RISING)


def test_minus_zero_is_zero():
    """C2: −0.0 is 0.0, for tasks and for the discount alike."""
    assert ordered(-0.0) == ordered(0.0)
    assert task_key(1, -0.0, 7, 9) == task_key(1, 0.0, 7, 9)
    assert discounted(1, -0.0) == discounted(1, 0.0)


@given(priorities, priorities)
def test_two_ordered_floats_compare_as_their_floats(one, other):
    """C2: less, equal and greater agree for any two finite floats."""
    assert (ordered(one) < ordered(other)) is (one < other)
    assert (ordered(one) == ordered(other)) is (one == other)


@given(st.lists(st.tuples(precedences, priorities, ties, numbers), max_size=20))
def test_task_keys_sort_as_precedence_priority_tie(rows):
    """C2: then by number, which makes every key one of a kind."""
    by_key = sorted(rows, key=lambda row: task_key(*row))

    assert [r[:2] + r[2:] for r in by_key] == sorted(rows, key=lambda r: (r[0], r[1] + 0.0, *r[2:]))


@given(precedences, priorities, ties, numbers)
def test_a_task_key_names_its_task(precedence, priority, tie, number):
    """The number is read back from the key."""
    assert task_number(task_key(precedence, priority, tie, number)) == number


@given(precedences, priorities, ties, ties, numbers, numbers)
def test_the_rank_forgets_tie_and_number(precedence, priority, tie, other, number, another):
    """C3: the tie never compares queues."""
    key = task_key(precedence, priority, tie, number)

    assert rank(key) == rank(task_key(precedence, priority, other, another))


@given(precedences, priorities)
def test_a_discount_of_nothing_is_the_rank(precedence, priority):
    """C5: the first task taken of a queue competes as it stands."""
    assert discounted(precedence, priority) == rank(task_key(precedence, priority, 1, 1))


def test_a_discounted_task_stays_behind_a_cheaper_precedence():
    """C3: the discount moves the priority, never the precedence."""
    assert discounted(1, 1e300) < discounted(2, -1e300)


@given(
    st.lists(
        st.tuples(queue_precedences, precedences, priorities, turns, numbers),
        max_size=20,
    )
)
def test_queue_keys_sort_as_precedence_rank_turn(rows):
    """C3: queue precedence, the top task's precedence and priority, then the turn."""

    def key(row):
        precedence, of_task, priority, turn, number = row
        return queue_key(precedence, discounted(of_task, priority), turn, number)

    expected = sorted(rows, key=lambda r: (r[0], r[1], r[2] + 0.0, r[3], r[4]))

    assert sorted(rows, key=key) == expected


@given(queue_precedences, precedences, priorities, turns, numbers)
def test_a_queue_key_names_its_queue_and_its_precedence(
    precedence, of_task, priority, turn, number
):
    """Both are read back, at the limits of either side too."""
    key = queue_key(precedence, discounted(of_task, priority), turn, number)

    assert queue_number(key) == number
    assert queue_precedence(key) == precedence


def test_a_queue_key_is_never_zero():
    """0 means that nobody stands in a lane, so no queue may have it."""
    least = queue_key(-PRECEDENCE_LIMIT, discounted(0, -MOST), 1, 1)

    assert least > 0


@pytest.mark.parametrize(
    ("rule", "expected"), [("fifo", 5), ("lifo", TIE_MASK - 5), ("shuffle", 1234)]
)
def test_the_tie_is_what_the_rule_says(rule, expected):
    """C2: the arrival number, its complement, or the caller's roll."""
    assert tie_of(rule, 5, 1234) == expected


@given(st.integers(0, TIE_MASK), st.integers(0, TIE_MASK))
def test_lifo_turns_fifo_round(one, other):
    """C2: who comes later goes first; every tie is still 48 bits."""
    assert (tie_of("lifo", one, 0) < tie_of("lifo", other, 0)) is (one > other)
    assert 0 <= tie_of("lifo", one, 0) <= TIE_MASK
