"""Scripts are put together from pieces that know rows and keys by name."""

import re

import pytest

from outrider.store.redis.keys import CRAWL_KEYS
from outrider.store.redis.rows import CrawlRow, QueueRow, TaskRow
from outrider.store.redis.script_client import SCRIPTS, constants

LOCALS = 200  # Lua allows a function so many


@pytest.mark.parametrize("verb", SCRIPTS)
def test_every_name_is_put_in(verb):
    """A field or a key that rows and keys do not name would be read as nothing."""
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
    """One too many would make every call of it fail."""
    names = re.findall(r"^local (?:function )?([\w, ]+)", SCRIPTS[verb].text, re.MULTILINE)

    assert sum(len(some.split(",")) for some in names) < LOCALS


def test_places_count_from_one_in_the_order_of_the_rows():
    """What Lua calls the third field is the third field."""
    values = constants()

    for letter, row in (("C", CrawlRow), ("Q", QueueRow), ("T", TaskRow)):
        fields = row.__struct_fields__
        assert [values[f"{letter}_{field.upper()}"] for field in fields] == [
            str(place) for place in range(1, len(fields) + 1)
        ]


def test_lanes_stand_side_by_side():
    """Scripts find the second lane's field behind the first one's."""
    values = constants()

    assert int(values["Q_TOP1"]) == int(values["Q_TOP0"]) + 1
    assert int(values["Q_READY_KEY1"]) == int(values["Q_READY_KEY0"]) + 1


def test_no_key_begins_as_another_does():
    """A queue's lane must never be taken for something else."""
    many = [key for key in CRAWL_KEYS.values() if key.endswith(":")]

    for key in many:
        assert [other for other in CRAWL_KEYS.values() if other.startswith(key)] == [key]
