"""SortedList against a plain sorted list."""

from bisect import insort
from random import Random

import pytest

from outrider.store.engine.sorted_list import MAX_BLOCK, MAX_HEAD, REFILL, SortedList, pack

WIDTH = 27
ALL = 1 << 8 * WIDTH


def pop_all(items):
    """Pop all entries."""
    return [items.pop() for _ in range(items.count())]


def build(random, size):
    """Build a list of so many entries."""
    items, entries = SortedList(WIDTH, []), [random.randrange(ALL) for _ in range(size)]
    for entry in entries:
        items.push(entry)
    return items, sorted(entries)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("max_head", [MAX_HEAD, 64])
def test_sorted_list_equals_a_plain_list_after_any_operations(seed, max_head):
    """C2: pushes, pops and discards, in any order."""
    random, expected = Random(seed), []
    items = SortedList(WIDTH, [], max_head=max_head)
    for _ in range(6000):
        act = random.random()
        if act < 0.6 or not expected:
            entry = random.randrange(ALL) >> random.choice((0, 0, 60))
            items.push(entry)
            insort(expected, entry)
        elif act < 0.8:
            assert items.pop() == expected.pop(0)
        else:
            entry = expected.pop(random.randrange(len(expected)))
            assert items.discard(entry)
            assert not items.discard(entry) or entry in expected
        assert items.head[:1] == expected[:1]
        assert items.count() == len(expected)
    assert sorted(items) == expected
    assert pop_all(items) == expected
    assert not items.head


@pytest.mark.parametrize("size", [0, 3, 200, 3000])
def test_first_and_below_remove_nothing(size):
    """D5: the first entries, and all below a bound."""
    items, expected = build(Random(size), size)
    for count in (0, 1, 5, 64, 700):
        assert items.first(count) == expected[:count]
    for bound in (0, ALL // 1000, ALL // 3, ALL):
        assert sorted(items.below(bound)) == [entry for entry in expected if entry < bound]
    assert pop_all(items) == expected


def test_head_and_blocks_stay_within_their_limits():
    """Integers are large: few of them at a time."""
    random = Random(1)
    items, _ = build(random, 5000)
    assert len(items.head) <= MAX_HEAD
    items.head.clear()
    items.refill()
    assert len(items.head) == REFILL
    assert max(map(len, items.tail.blocks)) <= MAX_BLOCK * WIDTH
    assert items.tail.bounds == sorted(items.tail.bounds)


def test_decreasing_pushes_leave_no_tiny_blocks():
    """A crawl that goes deep first pushes in this order."""
    items = SortedList(WIDTH, [])
    for entry in range(5000, 0, -1):
        items.push(entry)
    assert len(items.tail.blocks) <= 5000 // (MAX_BLOCK // 4)
    assert pop_all(items) == list(range(1, 5001))


@pytest.mark.parametrize("more", [0, 1, 20, 40, 3000])
@pytest.mark.parametrize("size", [0, 3, 300, 4000])
def test_extend_inserts_every_entry_once(size, more):
    """Opening a file inserts many at once."""
    random = Random(size + more)
    items, entries = build(random, size)
    joining = [random.randrange(ALL) for _ in range(more)]
    known = random.sample(entries, min(len(entries), more))
    items.extend(bytes(pack(joining + known, WIDTH)), is_new=False)
    assert pop_all(items) == sorted(entries + joining)


@pytest.mark.parametrize("bound", [0, ALL // 3, ALL])
def test_count_from_counts_entries_not_below_the_bound(bound):
    """Views count delayed tasks this way."""
    items, entries = build(Random(2), 1000)
    assert items.count_from(bound) == sum(entry >= bound for entry in entries)
