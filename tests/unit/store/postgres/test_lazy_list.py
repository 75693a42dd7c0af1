"""A line of which only the first entries are at hand behaves as one that is all there."""

from random import Random

import pytest

from outrider.store.engine.sorted_list import SortedList
from outrider.store.postgres.lazy_list import END, LazyList

WIDTH = 8


class Rows:
    """What a table holds of a line; nothing changes there while a verb runs."""

    def __init__(self, entries):
        self.entries = sorted(entries)
        self.asked = 0

    def entries_after(self, queue, place, after, limit):
        """See `lazy_list.EntrySource`."""
        self.asked += 1
        return [entry for entry in self.entries if entry > after][:limit]


def lazy_over(entries):
    """A lazy as it is loaded: its first entry, and a table behind it."""
    rows = Rows(entries)
    first = rows.entries[:1]
    edge = first[0] if first else END
    return LazyList(WIDTH, first, None, 1, rows, 1, 0, edge, len(rows.entries)), rows


def line_over(entries):
    """The same as a line in memory."""
    line = SortedList(WIDTH, [])
    for entry in entries:
        line.push(entry)
    return line


@pytest.mark.parametrize("seed", range(40))
def test_lazy_list_behaves_as_a_sorted_list_in_memory(seed):
    """C2: pops, pushes, discards and looks in any order, more of them than are fetched at once."""
    dice = Random(seed)
    entries = dice.sample(range(1, 1000), dice.randint(0, 300))
    (lazy, rows), line = lazy_over(entries), line_over(entries)
    there = set(entries)
    for _ in range(200):
        match dice.randrange(5):
            case 0 if line.head:
                entry = line.pop()
                assert lazy.pop() == entry
                there.discard(entry)
            case 1:
                entry = dice.randrange(1, 1000)
                if entry not in there:
                    line.push(entry)
                    lazy.push(entry)
                    there.add(entry)
            case 2 if there:
                entry = dice.choice(sorted(there))
                if entry > lazy.edge and entry not in lazy.added:
                    lazy.note_present(entry)  # whoever takes it out was loaded, and pointed it out
                assert lazy.discard(entry) == line.discard(entry)
                there.discard(entry)
            case 3:
                count, bound = dice.randint(1, 9), dice.randrange(1000)
                assert lazy.first(count) == line.first(count)
                assert sorted(lazy.below(bound)) == sorted(line.below(bound))
                assert lazy.count_from(bound) == line.count_from(bound)
        assert lazy.head[:1] == line.head[:1]
        assert lazy.loaded_rows() == len([entry for entry in rows.entries if entry <= lazy.edge])
    assert sorted(lazy) == sorted(line) == sorted(there)
    assert lazy.added == there - set(rows.entries)
    assert lazy.removed == set(rows.entries) - there


def test_reading_the_first_entry_loads_nothing():
    """M4: an add or a finish knows the first of a line from its queue's row alone."""
    lazy, rows = lazy_over(range(10, 500))
    lazy.push(5)
    lazy.push(600)

    assert lazy.head[0] == 5
    assert rows.asked == 0


def test_discarding_an_absent_entry_changes_nothing():
    """C2: neither before nor behind the edge."""
    lazy, _ = lazy_over([10, 20])

    assert not lazy.discard(5)
    assert not lazy.discard(15)
    assert lazy.removed == set()


def test_lazy_lists_share_no_changes():
    """C2: what most lines never need is shared until somebody comes."""
    one, _ = lazy_over([10, 20, 30])
    other, _ = lazy_over([10, 20, 30])
    one.push(25)
    one.push(40)
    one.note_present(30)
    one.discard(30)
    one.pop()

    assert (one.added, one.removed, one.removed_later) == ({25, 40}, {10, 30}, {30})
    assert not other.added | other.removed | other.removed_later | other.present
    assert other.later == []
