import contextlib
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.pattern import (
    MAX_LENGTH,
    compile_any,
    compile_pattern,
)
from outrider.errors import InvalidInput

URL = "https://www.example.org/section/12/Article-000012.html?a=b&c=%20#d"

# What ordinary patterns are made of; the texts have no line breaks, as URLs have none.
ATOMS = [
    "a",
    "b",
    "/",
    "-",
    "%",
    r"\.",
    ".",
    r"\d",
    r"\w",
    r"\s",
    r"\D",
    r"\W",
    r"\S",
    r"\b",
    r"\/",
]
ATOMS += [
    "[a-c]",
    "[^/]",
    r"[\d.-]",
    r"[\w-]",
    "[]a]",
    "[^]a]",
    "[a{,2}]",
    "1",
    "A",
    r"\?",
    r"\x41",
]
ATOMS += [r"\Z", r"\A", "^", "$", "é", "(?i:ab)", "(?P<n>a)", "(?:a|b)", "(a|)", "(?-i:A)", r"\\"]
REPEATS = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "*?", "+?", "??"]


@st.composite
def patterns(draw):
    """Regular expressions as people write them in settings."""
    pieces = []
    for _ in range(draw(st.integers(1, 6))):
        atom = draw(st.sampled_from(ATOMS))
        repeat = "" if atom in {r"\Z", r"\A", "^", "$", r"\b"} else draw(st.sampled_from(REPEATS))
        if "(?P<n>" in atom and any("(?P<n>" in piece for piece in pieces):
            continue
        pieces.append(atom + repeat + draw(st.sampled_from(["", "", "", "|"])))
    return draw(st.sampled_from(["", "(?i)", "(?s)"])) + "".join(pieces)


@given(patterns(), st.text("abcAB/-%.?1]{},\\" + " \t_", max_size=12))
def test_ordinary_pattern_is_found_where_re_finds_it(pattern, text):
    """Both engines agree on whatever both can do."""
    assert compile_pattern(pattern).search(text) == bool(re.search(pattern, text))


@given(st.lists(patterns(), min_size=1, max_size=4), st.text("abcAB/-%.?1", max_size=12))
def test_list_of_patterns_is_found_where_one_of_them_is(several, text):
    """Flags and names of one do not reach into another."""
    expected = any(re.search(pattern, text) for pattern in several)

    assert compile_any(several).search(text) == expected


@given(st.text(string.printable, max_size=30))
def test_any_text_is_a_pattern_or_refused(text):
    """Nothing but InvalidInput is raised, for one and for a list."""
    for make in (compile_pattern, lambda one: compile_any([one, "a"])):
        with contextlib.suppress(InvalidInput):
            make(text).search(URL)


@pytest.mark.parametrize(
    ("pattern", "construct", "fix"),
    [
        (r"^(?!.*\.pdf)", "(?!", "scope.exclude"),
        (r"a(?=b)", "(?=", "scope.exclude"),
        (r"(?<=a)b", "(?<", "scope.exclude"),
        (r"(?<!a)b", "(?<", "scope.exclude"),
        (r"(a)/\1", r"\1", "spell"),
        (r"(?P<x>a)/(?P=x)", "(?P", "spell"),
        (r"(?>a)", "(?>", "(?:"),
        (r"a++", "++", "once"),
        (r"(?:a{100}){100}", "{100}", "1000"),
        (r"a{,3}", "{,3}", "{0,3}"),
        (r"a{99999999999999999999}", "{9999", "at most 1000"),
        (r"\Qa", r"\Q", "unknown"),
        (r"(a", "missing )", ""),
        (r"[a", "missing ]", ""),
        ("a" * (MAX_LENGTH + 1), "10,001 characters", "split"),
        (r"(?i)[^\x00-\x40]{1000}" * 3, "too large", "shorter"),
        ("\ud800", "no text", ""),
        (7, "7", "as text"),
    ],
)
def test_pattern_that_cannot_be_searched_is_refused_with_the_way_out(pattern, construct, fix):
    """The message names the pattern, the construct, and what to do."""
    with pytest.raises(InvalidInput) as refused:
        compile_pattern(pattern)

    assert construct in str(refused.value)
    assert fix in str(refused.value)


CATASTROPHIC = ["(x+x+)+y", "(a*)*b", "(.*)*$z", r"^(\w+\s?)*!$", ".*" * 100 + "z", "(a|aa)+$"]


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_catastrophic_pattern_takes_linear_time(pattern):
    """What takes `re` longer than the universe lasts is answered at once."""
    for letter in ("x", "a", "w "):
        compile_pattern(pattern).search(letter * 10_000)
        compile_any([pattern, "nowhere"]).search(letter * 10_000)


@pytest.mark.parametrize(
    "patterns",
    [
        ["|".join(f"word{n}" for n in range(10_000))],
        [f"/{n:05x}/[0-9]{{500}}" for n in range(300)],
        [r"(?i)[^a]{1000}"] * 20,
    ],
)
def test_list_of_patterns_is_bounded_as_a_whole(patterns):
    """Each may be fine, and all of them too much."""
    with pytest.raises(InvalidInput, match=r"too large together|characters"):
        compile_any(patterns)


def test_thousands_of_ordinary_patterns_are_searched_in_one_pass():
    """One search, however many there are."""
    found = compile_any([f"^https://www\\.example\\.org/{n}/" for n in range(2000)])

    assert found.search("https://www.example.org/1999/a")
    assert not found.search("https://www.example.org/2000/a")


def test_text_that_is_no_unicode_is_searched_all_the_same():
    """A lone surrogate matches nothing that is written."""
    assert compile_pattern("b$").search("a\ud800b")
