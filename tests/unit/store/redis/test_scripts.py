"""Scripts are put together from pieces that know rows and keys by name."""

import re

import pytest

from outrider.store.redis.keys import OF_A_CRAWL
from outrider.store.redis.rows import CrawlRow, QueueRow, TaskRow
from outrider.store.redis.scripts import SCRIPTS, _names

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
    names = _names()

    for letter, row in (("C", CrawlRow), ("Q", QueueRow), ("T", TaskRow)):
        fields = row.__struct_fields__
        assert [names[f"{letter}_{field.upper()}"] for field in fields] == [
            str(place) for place in range(1, len(fields) + 1)
        ]


def test_lanes_stand_side_by_side():
    """Scripts find the second lane's field behind the first one's."""
    names = _names()

    assert int(names["Q_TOP1"]) == int(names["Q_TOP0"]) + 1
    assert int(names["Q_RANK1"]) == int(names["Q_RANK0"]) + 1


def test_no_key_begins_as_another_does():
    """A queue's lane must never be taken for something else."""
    many = [key for key in OF_A_CRAWL.values() if key.endswith(":")]

    for key in many:
        assert [other for other in OF_A_CRAWL.values() if other.startswith(key)] == [key]
