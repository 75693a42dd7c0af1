import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.policy.focus import (
    OPENS_BELOW,
    Focus,
    apply_focus,
    classifier_of,
)
from outrider.core.policy.score import explicit
from outrider.core.task import Link
from outrider.core.url import parse_url


def kind_of(path, how=None, **fields):
    """What the built-in classifier says."""
    url = parse_url(f"https://x.example{path}")
    return classifier_of(how or Focus(on=True, lists=("countries",)))(Link(url.text, **fields), url)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/world/france", "focus"),
        ("/en/new-zealand/politics", "focus"),
        ("/New_Zealand.html", "focus"),
        ("/new/zealand-something", "focus"),
        ("/world/", "related"),
        ("/middle-east", "related"),
        ("/sport/golf", "other"),
        ("/frances-bakery", "other"),
        ("/", "other"),
    ],
)
def test_countries_are_found_in_paths(path, expected):
    """C9: words and phrases, as they are separated in URLs."""
    assert kind_of(path) == expected


def test_type_and_meta_are_looked_at():
    """C9: at any depth of the meta, within reason."""
    assert kind_of("/", type="country france") == "focus"
    assert kind_of("/", meta={"topics": [{"place": "Sri Lanka"}]}) == "focus"
    assert kind_of("/", meta={"n": 5, "x": None}) == "other"


def test_words_of_ones_own():
    """C9: beside or without a list."""
    how = Focus(on=True, tokens=("whale", "blue whale"), related=("sea",))

    assert [kind_of(path, how) for path in ("/a/whale", "/sea/1", "/france")] == [
        "focus",
        "related",
        "other",
    ]


@given(st.floats(-1e9, 1e9))
def test_the_bands_never_meet(priority):
    """C9: whatever the score; and the terms still sum to it."""
    focus, related, other = (
        apply_focus(explicit(priority), kind) for kind in ("focus", "related", "other")
    )

    assert -6999.1 < focus.priority < OPENS_BELOW < related.priority < other.priority
    assert other.priority == 5_000_000
    for score in (focus, related, other):
        assert score.breakdown.total == score.priority


def test_the_score_orders_within_its_band():
    """C9: −6000 + score, −4000 + score, clipped to ± 999."""
    assert apply_focus(explicit(12.0), "focus").priority == -5988.0
    assert apply_focus(explicit(-2000.0), "focus").priority == -6999.0
    assert apply_focus(explicit(5000.0), "related").priority == -3001.0
    assert apply_focus(explicit(7.0), "other").priority == 5_000_000.0
