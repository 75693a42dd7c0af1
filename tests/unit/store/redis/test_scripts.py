"""Scripts are assembled from pieces that name the fields of rows, and keys."""

import re

import pytest

from outrider.store.redis.keys import CRAWL_KEYS
from outrider.store.redis.rows import CrawlRow, QueueRow, TaskRow
from outrider.store.redis.script_client import SCRIPTS, constants

LOCALS = 200  # Lua allows a function so many


@pytest.mark.parametrize("verb", SCRIPTS)
def test_every_constant_is_replaced(verb):
    """An unknown field or key would be nil in Lua."""
    code = re.sub(r"--[^\n]*", "", SCRIPTS[verb].text)
    code = re.sub(r"'[^'\n]*'", "", code)

    assert set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", code)) <= {
        "KEYS",
        "ARGV",
        "HEAD",
        "HEAD_SIZE",
        "DIGITS",
    }


@pytest.mark.parametrize("verb", SCRIPTS)
def test_no_script_has_more_locals_than_lua_allows(verb):
    """One too many would make every call fail."""
    names = re.findall(r"^local (?:function )?([\w, ]+)", SCRIPTS[verb].text, re.MULTILINE)

    assert sum(len(some.split(",")) for some in names) < LOCALS


def test_positions_count_from_one_in_the_order_of_the_rows():
    """Lua reads fields by these positions."""
    values = constants()

    for letter, row in (("C", CrawlRow), ("Q", QueueRow), ("T", TaskRow)):
        fields = row.__struct_fields__
        assert [values[f"{letter}_{field.upper()}"] for field in fields] == [
            str(place) for place in range(1, len(fields) + 1)
        ]


def test_fields_of_the_two_lanes_are_neighbours():
    """Scripts compute the second lane's position from the first one's."""
    values = constants()

    assert int(values["Q_TOP1"]) == int(values["Q_TOP0"]) + 1
    assert int(values["Q_READY_KEY1"]) == int(values["Q_READY_KEY0"]) + 1


def test_no_key_is_the_prefix_of_another():
    """A queue's lane must not be another kind of key."""
    many = [key for key in CRAWL_KEYS.values() if key.endswith(":")]

    for key in many:
        assert [other for other in CRAWL_KEYS.values() if other.startswith(key)] == [key]
