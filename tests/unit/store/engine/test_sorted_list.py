"""A line against a sorted list, whatever joins and leaves it."""

from bisect import insort
from random import Random

import pytest

from outrider.store.engine.sorted_list import MAX_BLOCK, MAX_HEAD, REFILL, SortedList, pack

WIDTH = 27
ALL = 1 << 8 * WIDTH


def in_order(line):
    """All of it, as it would leave."""
    return [line.pop() for _ in range(line.count())]


def grown(dice, size):
    """A line of so many, and what it holds."""
    line, entries = SortedList(WIDTH, []), [dice.randrange(ALL) for _ in range(size)]
    for entry in entries:
        line.push(entry)
    return line, sorted(entries)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("max_head", [MAX_HEAD, 64])
def test_a_line_is_a_sorted_list_that_costs_less(seed, max_head):
    """C2: pushes, pops and discards, in any order."""
    dice, expected = Random(seed), []
    line = SortedList(WIDTH, [], max_head=max_head)
    for _ in range(6000):
        act = dice.random()
        if act < 0.6 or not expected:
            entry = dice.randrange(ALL) >> dice.choice((0, 0, 60))
            line.push(entry)
            insort(expected, entry)
        elif act < 0.8:
            assert line.pop() == expected.pop(0)
        else:
            entry = expected.pop(dice.randrange(len(expected)))
            assert line.discard(entry)
            assert not line.discard(entry) or entry in expected
        assert line.head[:1] == expected[:1]
        assert line.count() == len(expected)
    assert sorted(line) == expected
    assert in_order(line) == expected
    assert not line.head


@pytest.mark.parametrize("size", [0, 3, 200, 3000])
def test_a_line_is_read_without_leaving_it(size):
    """D5: its first, in order, and all below a bound; nobody moves."""
    line, expected = grown(Random(size), size)
    for count in (0, 1, 5, 64, 700):
        assert line.first(count) == expected[:count]
    for bound in (0, ALL // 1000, ALL // 3, ALL):
        assert sorted(line.below(bound)) == [entry for entry in expected if entry < bound]
    assert in_order(line) == expected


def test_a_head_stays_short_and_a_block_too():
    """Integers are large: few of them at a time."""
    dice = Random(1)
    line, _ = grown(dice, 5000)
    assert len(line.head) <= MAX_HEAD
    line.head.clear()
    line.refill()
    assert len(line.head) == REFILL
    assert max(map(len, line.tail.blocks)) <= MAX_BLOCK * WIDTH
    assert line.tail.bounds == sorted(line.tail.bounds)


def test_ever_smaller_entries_do_not_leave_a_trail_of_tiny_blocks():
    """As a crawl that goes deep first brings them."""
    line = SortedList(WIDTH, [])
    for entry in range(5000, 0, -1):
        line.push(entry)
    assert len(line.tail.blocks) <= 5000 // (MAX_BLOCK // 4)
    assert in_order(line) == list(range(1, 5001))


@pytest.mark.parametrize("more", [0, 1, 20, 40, 3000])
@pytest.mark.parametrize("size", [0, 3, 300, 4000])
def test_many_join_at_once_and_none_twice(size, more):
    """As reopening lets them join."""
    dice = Random(size + more)
    line, entries = grown(dice, size)
    joining = [dice.randrange(ALL) for _ in range(more)]
    known = dice.sample(entries, min(len(entries), more))
    line.extend(bytes(pack(joining + known, WIDTH)), is_new=False)
    assert in_order(line) == sorted(entries + joining)


@pytest.mark.parametrize("bound", [0, ALL // 3, ALL])
def test_how_many_stand_behind_is_counted(bound):
    """For whoever asks which place a task has."""
    line, entries = grown(Random(2), 1000)
    assert line.count_from(bound) == sum(entry >= bound for entry in entries)
