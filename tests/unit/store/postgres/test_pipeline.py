"""Array parameters keep their values."""

from psycopg.adapt import Transformer
from psycopg.postgres import types
from psycopg.pq import Format

from outrider.store.postgres.pipeline import number_array, row_arrays, storable, text_array

NASTY = ["", "plain", 'a "quote"', "back\\slash", "{brace}", "comma,", "NULL", "None", "ünï✓", "\n"]


def read(literal, kind):
    """Return the values, as the driver reads them."""
    loader = Transformer().get_loader(types[kind].array_oid, Format.TEXT)
    return loader.load(literal.encode())


def test_text_array_keeps_texts():
    """M4: any text in a URL, a reason or a key."""
    assert read(text_array([*NASTY, None]), "text") == [*NASTY, None]


def test_number_array_keeps_numbers():
    """C2: a priority to its last bit."""
    values = [0.1, -1e-300, 1e300, 0.0, None]
    assert read(number_array(values), "float8") == values
    assert read(number_array([2**62, -1, None]), "int8") == [2**62, -1, None]


def test_unstorable_characters_are_replaced():
    """M4: PostgreSQL has no character 0 and no half of a pair; such a text fails no batch."""
    assert storable("a\0b") == "a␀b"
    assert storable("ü\0\ud800") == "ü␀?"


def test_row_arrays_have_one_parameter_per_column():
    """M4: without rows, every parameter is an empty array."""
    assert row_arrays([(1, "a"), (2, None)], ["bigint", "text"]) == ["{1,2}", '{"a",NULL}']
    assert row_arrays([], ["bigint", "text"]) == ["{}", "{}"]
