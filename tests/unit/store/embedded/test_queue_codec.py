"""Lists cut into pieces while they change: no entry that stayed is missed, all are in order."""

from random import Random

import pytest

from outrider.core.order import LANE_BYTES
from outrider.core.policy.rules import QueueRules
from outrider.store.embedded import queue_codec
from outrider.store.engine.records import new_queue
from outrider.store.engine.sorted_list import SortedList

ALL = 1 << 8 * LANE_BYTES


def queue():
    """One without tasks."""
    return new_queue("a.example", 1, 1, QueueRules())


@pytest.mark.parametrize("seed", range(8))
def test_list_cut_while_it_changes_has_every_entry_that_stayed(seed, monkeypatch):
    """Pages correct what was added or removed meanwhile; entries that stayed must be cut."""
    monkeypatch.setattr(queue_codec, "PIECE_BYTES", 4096)
    dice, line, copy = Random(seed), SortedList(LANE_BYTES, []), queue()
    for _ in range(3000):
        line.push(dice.randrange(ALL))
    stayed, start = set(line), 0
    while start is not None:
        entries, start = queue_codec.cut(line, start)
        if entries is not None:
            queue_codec.insert_entries(copy, 0, entries)
        for _ in range(dice.randrange(200)):
            line.push(dice.randrange(ALL) >> dice.choice((0, 8, 200)))
        for _ in range(dice.randrange(300)):
            stayed.discard(line.pop())
    found = [copy.lane0.pop() for _ in range(copy.lane0.count())]
    assert found == sorted(found)
    assert stayed <= set(found)
    assert len(found) == len(set(found))


def test_packed_queue_has_the_lists_it_was_packed_with():
    """All three lists of it."""
    one = queue()
    for key in range(50, 0, -1):
        one.enter(key % 2, key, 1000, 1000)
    data, is_long = queue_codec.pack_queue(one, by_turn=True)
    packed = queue_codec.decode_packed(data)
    again = queue()
    for place, entries in enumerate((packed.lane0, packed.lane1, packed.delayed)):
        if entries is not None:
            queue_codec.insert_entries(again, place, entries)
    assert not is_long
    assert (packed.key, packed.number, packed.by_turn) == ("a.example", 1, True)
    assert [sorted(line) for line in queue_codec.lists_of(again)] == [
        sorted(line) for line in queue_codec.lists_of(one)
    ]
