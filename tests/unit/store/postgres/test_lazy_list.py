"""A list of which only the first entries are loaded behaves as one that is loaded entirely."""

from random import Random

import pytest

from outrider.store.engine.sorted_list import SortedList
from outrider.store.postgres.lazy_list import END, LazyList

WIDTH = 8


class Rows:
    """The rows of a list; they do not change while a verb runs."""

    def __init__(self, entries):
        self.entries = sorted(entries)
        self.asked = 0

    def entries_after(self, queue, place, after, limit):
        """See `lazy_list.EntrySource`."""
        self.asked += 1
        return [entry for entry in self.entries if entry > after][:limit]


def lazy_over(entries):
    """Return a lazy list as it is loaded: its first entry, and the source of the others."""
    rows = Rows(entries)
    first = rows.entries[:1]
    edge = first[0] if first else END
    return LazyList(WIDTH, first, None, 1, rows, 1, 0, edge, len(rows.entries)), rows


def sorted_over(entries):
    """Return the same entries as a list in memory."""
    plain = SortedList(WIDTH, [])
    for entry in entries:
        plain.push(entry)
    return plain


def load_task(lazy, entry):
    """Do what loading the task of an entry does: it is known to be in the list."""
    if entry > lazy.edge and entry not in lazy.added:
        lazy.note_present(entry)


@pytest.mark.parametrize("seed", range(40))
def test_lazy_list_behaves_as_a_sorted_list_in_memory(seed):
    """C2: pops, pushes, discards and reads in any order, beyond one loading step."""
    dice = Random(seed)
    entries = dice.sample(range(1, 1000), dice.randint(0, 300))
    (lazy, rows), plain = lazy_over(entries), sorted_over(entries)
    there = set(entries)
    for _ in range(200):
        match dice.randrange(5):
            case 0 if plain.head:
                entry = plain.pop()
                assert lazy.pop() == entry
                there.discard(entry)
            case 1:
                entry = dice.choice(sorted(set(range(1, 1000)) - there))
                plain.push(entry)
                lazy.push(entry)
                there.add(entry)
            case 2 if there:
                entry = dice.choice(sorted(there))
                load_task(lazy, entry)
                assert lazy.discard(entry) == plain.discard(entry)
                there.discard(entry)
            case 3:
                count, bound = dice.randint(1, 9), dice.randrange(1000)
                assert lazy.first(count) == plain.first(count)
                assert sorted(lazy.below(bound)) == sorted(plain.below(bound))
                assert lazy.count_from(bound) == plain.count_from(bound)
            case 4 if there:
                old = dice.choice(sorted(there))
                new = dice.choice(sorted(set(range(1, 1000)) - there))
                load_task(lazy, old)
                assert lazy.swap(old, new) == plain.swap(old, new)
                there = there - {old} | {new}
        assert lazy.head[:1] == plain.head[:1]
        assert lazy.loaded_rows() == len([entry for entry in rows.entries if entry <= lazy.edge])
    assert sorted(lazy) == sorted(plain) == sorted(there)
    assert lazy.added == there - set(rows.entries)
    assert lazy.removed == set(rows.entries) - there


def test_reading_the_first_entry_loads_nothing():
    """M4: an add or a finish needs only the first entry, which is in the queue's row."""
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
    assert not lazy.swap(5, 6)
    assert not lazy.swap(15, 6)
    assert lazy.removed == set()


def test_lazy_lists_share_no_changes():
    """C2: empty sets are shared by all lists until one of them changes."""
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
