"""The table of known fingerprints against a dict, while it grows and is copied."""

from random import Random

import numpy as np
import pytest

from outrider.store.embedded import fingerprint_table
from outrider.store.embedded.fingerprint_table import FingerprintTable

SECRET = bytes(range(32))


def filled(dice, table, size):
    """So many new names, added in batches of any size."""
    names = [dice.randbytes(16) for _ in range(size)]
    numbers, at = np.arange(1, size + 1, dtype=np.uint32), 0
    while at < size:
        end = at + dice.choice((1, 7, 500))
        table.add(table.hashes(names[at:end]), numbers[at:end])
        at = end
    return names


@pytest.mark.parametrize("stretch", [4, 1024])
def test_added_fingerprints_are_found_singly_and_in_batches(stretch, monkeypatch):
    """B3: and no other fingerprint is."""
    monkeypatch.setattr(fingerprint_table, "MOVE_STEP", stretch)
    dice, table = Random(stretch), FingerprintTable(SECRET)
    names = filled(dice, table, 9000)
    strangers = [dice.randbytes(16) for _ in range(1000)]
    expected = dict(zip(names, range(1, 9001), strict=True))
    assert table.find(table.hashes(names)).tolist() == list(expected.values())
    assert table.get_few(names) == expected
    assert not table.find(table.hashes(strangers)).any()
    assert table.get_few(strangers) == {}
    assert (table.get(names[5]), table.get(strangers[0])) == (6, 0)


def test_growing_table_spills_few_fingerprints():
    """Each costs ten times as much outside the table."""
    table, worst = FingerprintTable(SECRET), 0.0
    dice = Random(3)
    for _ in range(100):
        names = [dice.randbytes(16) for _ in range(1000)]
        table.add(table.hashes(names), np.arange(1000, dtype=np.uint32))
        if table.count > 20_000:
            worst = max(worst, len(table.shape.spilled) / table.count)
    assert worst < 0.04


def test_loaded_table_has_all_fingerprints_of_the_stored_one():
    """As a snapshot copies it."""
    dice, table, copy = Random(4), FingerprintTable(SECRET), FingerprintTable(SECRET)
    names = filled(dice, table, 5000)
    pieces = list(table.pieces())
    copy.load(table.shape)
    for piece in pieces:
        copy.load_piece(*piece)
    assert copy.count == table.count == 5000
    assert copy.get_few(names) == table.get_few(names)
