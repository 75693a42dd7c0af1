"""A line of which only the first entries are at hand behaves as one that is all there."""

from random import Random

import pytest

from outrider.store.heads.lines import Line
from outrider.store.postgres.lazy_list import END, Shelf

WIDTH = 8


class Rows:
    """What a table holds of a line; nothing changes there while a verb runs."""

    def __init__(self, entries):
        self.entries = sorted(entries)
        self.asked = 0

    def more(self, queue, place, after, limit):
        """See `lazy_list.Fetch`."""
        self.asked += 1
        return [entry for entry in self.entries if entry > after][:limit]


def shelf_over(entries):
    """A shelf as it is loaded: its first entry, and a table behind it."""
    rows = Rows(entries)
    first = rows.entries[:1]
    edge = first[0] if first else END
    return Shelf(WIDTH, first, None, 1, rows, 1, 0, edge, len(rows.entries)), rows


def line_over(entries):
    """The same as a line in memory."""
    line = Line(WIDTH, [])
    for entry in entries:
        line.push(entry)
    return line


@pytest.mark.parametrize("seed", range(40))
def test_a_shelf_answers_as_a_line_in_memory(seed):
    """C2: pops, pushes, discards and looks in any order, more of them than are fetched at once."""
    dice = Random(seed)
    entries = dice.sample(range(1, 1000), dice.randint(0, 300))
    (shelf, rows), line = shelf_over(entries), line_over(entries)
    there = set(entries)
    for _ in range(200):
        match dice.randrange(5):
            case 0 if line.head:
                entry = line.pop()
                assert shelf.pop() == entry
                there.discard(entry)
            case 1:
                entry = dice.randrange(1, 1000)
                if entry not in there:
                    line.push(entry)
                    shelf.push(entry)
                    there.add(entry)
            case 2 if there:
                entry = dice.choice(sorted(there))
                if entry > shelf.edge and entry not in shelf.added:
                    shelf.point_out(entry)  # whoever takes it out was loaded, and pointed it out
                assert shelf.discard(entry) == line.discard(entry)
                there.discard(entry)
            case 3:
                count, bound = dice.randint(1, 9), dice.randrange(1000)
                assert shelf.first(count) == line.first(count)
                assert sorted(shelf.below(bound)) == sorted(line.below(bound))
                assert shelf.beyond(bound) == line.beyond(bound)
        assert shelf.head[:1] == line.head[:1]
        assert shelf.depth() == len([entry for entry in rows.entries if entry <= shelf.edge])
    assert sorted(shelf) == sorted(line) == sorted(there)
    assert shelf.added == there - set(rows.entries)
    assert shelf.removed == set(rows.entries) - there


def test_a_look_at_the_first_asks_nobody():
    """M4: an add or a finish knows the first of a line from its queue's row alone."""
    shelf, rows = shelf_over(range(10, 500))
    shelf.push(5)
    shelf.push(600)

    assert shelf.head[0] == 5
    assert rows.asked == 0


def test_what_is_not_there_is_not_found():
    """C2: neither before nor behind the edge."""
    shelf, _ = shelf_over([10, 20])

    assert not shelf.discard(5)
    assert not shelf.discard(15)
    assert shelf.removed == set()


def test_what_one_line_remembers_no_other_does():
    """C2: what most lines never need is shared until somebody comes."""
    one, _ = shelf_over([10, 20, 30])
    other, _ = shelf_over([10, 20, 30])
    one.push(25)
    one.push(40)
    one.point_out(30)
    one.discard(30)
    one.pop()

    assert (one.added, one.removed, one.gone) == ({25, 40}, {10, 30}, {30})
    assert not other.added | other.removed | other.gone | other.present
    assert other.later == []
