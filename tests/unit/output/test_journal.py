"""What a journal says is there after any end, or is known not to be."""

import contextlib
import os
import random
import struct

import pytest

from outrider.core.task import LeaseId
from outrider.errors import OutputError
from outrider.output.journal import (
    PAGE,
    InDoubt,
    Journal,
    Mark,
    Patch,
    Piece,
    Redo,
    Settled,
    _block,
    _encode,
)

MARKS = [Mark("a.jsonl", 17, b"end\n"), Mark("b.jsonl", 0, b"")]
SAID = [
    Settled(MARKS),
    InDoubt(MARKS, "store", [LeaseId("c", 7, 9)], [Piece(0, 1, 12), Piece(-1, 0, 3)]),
    Redo([Patch(MARKS[0], b"\0\xff\n")]),
]


@pytest.fixture
def path(tmp_path):
    """Where it stands."""
    return tmp_path / "a.jsonl.journal"


def last_in(path):
    """What is read of it."""
    journal = Journal(path)
    journal.close()
    return journal.last


def big(dice):
    """A statement of any size."""
    return InDoubt(MARKS, "s", [LeaseId("c", n, n) for n in range(dice.choice((0, 1, 900)))], [])


@pytest.mark.parametrize("statement", SAID, ids=lambda one: type(one).__name__)
def test_last_statement_is_read_again(statement, path):
    """Whatever was said before."""
    journal = Journal(path)
    for earlier in (*SAID, statement):
        journal.write(earlier, sync=True)
    journal.close()

    assert last_in(path) == statement


def test_new_journal_has_no_statement(path):
    """There is nothing to settle."""
    assert last_in(path) is None


def test_torn_first_statement_is_ignored(path):
    """At any byte: nothing was written before it was said."""
    data = _block(1, _encode(SAID[0]))
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert last_in(path) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_statement_that_was_cut_short_leaves_the_one_before(seed, path):
    """A kill in the middle of a write, at any byte."""
    dice, journal = random.Random(seed), Journal(path)
    for _ in range(dice.randrange(1, 12)):
        journal.write(before := big(dice))
    whole = path.read_bytes()
    journal.write(after := big(dice))
    at, end = journal._at, journal._end
    journal.close()
    data = path.read_bytes()

    for cut in {at, at + 1, end - 1, *(dice.randrange(at, end) for _ in range(5))}:
        torn = whole[:at] + data[at:cut] + whole[cut:]
        path.write_bytes(torn)
        assert last_in(path) == (after if torn[at:end] == data[at:end] else before)


def test_it_does_not_grow_for_ever(path):
    """Two statements' room is enough."""
    journal, dice = Journal(path), random.Random(1)
    for _ in range(500):
        journal.write(big(dice))
        journal.write(Settled(MARKS))
    journal.close()

    assert path.stat().st_size < 20 * PAGE


def test_what_a_host_sent_is_never_taken_for_a_statement(path):
    """A page may well hold the very bytes of one, at every place."""
    forged = _block(2**60, _encode(Settled([Mark("b.jsonl", 1, b"x")])))
    statement = Redo([Patch(MARKS[0], b"".join(forged.rjust(PAGE - 8, b" ") for _ in range(20)))])
    journal = Journal(path)
    for _ in range(3):
        journal.write(statement)
    journal.close()

    assert last_in(path) == statement


@pytest.mark.parametrize("data", [b"x", b"\0" * 5000, b'{"a": 1}\n' * 1000])
def test_what_is_no_journal_is_refused_with_the_way_out_and_left(data, path):
    """It may be another program's file."""
    path.write_bytes(data)

    with pytest.raises(OutputError, match=r"a\.jsonl\.journal is damaged.* delete this journal"):
        Journal(path)

    assert path.read_bytes() == data


def test_a_statement_with_a_flipped_bit_is_never_believed(path):
    """Whichever byte it is in."""
    journal = Journal(path)
    journal.write(SAID[1])
    journal.close()
    data = path.read_bytes()

    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with contextlib.suppress(OutputError):
            assert last_in(path) is None


def test_one_of_a_newer_release_is_refused(path):
    """Its content is unknown."""
    journal = Journal(path)
    journal.write(SAID[0])
    journal.close()
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 16, 2)
    path.write_bytes(data)

    with pytest.raises(OutputError, match="newer release of Outrider; use that one"):
        Journal(path)


def test_a_statement_of_another_shape_is_refused(path):
    """A whole block that says nothing we know."""
    path.write_bytes(_block(1, b'{"type":"resting","marks":[["a",-1,""]]}'))

    with pytest.raises(OutputError, match="damaged"):
        Journal(path)


def test_it_is_held_by_one_at_a_time(path):
    """Two writers would ruin each other's output."""
    journal = Journal(path)

    with pytest.raises(OutputError, match="another process that writes the same output"):
        Journal(path)

    journal.close()
    Journal(path).close()


def test_one_that_was_deleted_while_another_waited_for_it_is_not_used(path, monkeypatch):
    """The next process would see another file, and lock that one."""
    real, first = os.open, Journal(path)

    def slow_open(*args):
        file = real(*args)
        if first._file >= 0:
            first.delete()
            first.close()
        return file

    monkeypatch.setattr(os, "open", slow_open)
    second = Journal(path)

    assert os.path.samestat(path.stat(), os.fstat(second._file))
    second.close()


def test_a_closed_journal_deletes_nothing(path):
    """The file may be another's by then."""
    journal = Journal(path)
    journal.close()
    other = Journal(path)
    journal.delete()

    assert path.exists()
    other.close()
    journal.close()
