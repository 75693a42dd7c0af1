import pytest

from outrider.core.policy.cost import MAX_COST, cost_function, valid_cost
from outrider.core.url import parse_url

PAGE = "http://example.org/list"


def cost(name, text, via=None):
    """What the named policy charges for a text."""
    return cost_function(name)(parse_url(text), via)


@pytest.mark.parametrize("text", [PAGE, PAGE + "?a=1", "http://example.org/calendar/2025"])
def test_zero_and_unit_charge_every_url_alike(text):
    """Nothing, or one."""
    assert (cost("zero", text, PAGE), cost("unit", text, PAGE)) == (0, 1)


@pytest.mark.parametrize(
    ("text", "via", "expected"),
    [
        (PAGE, None, 1),
        (PAGE, PAGE + "?a=1", 1),
        (PAGE + "?utm_source=x", PAGE, 1),
        (PAGE + "?a=1", None, 2),
        (PAGE + "?a=1", "http://example.org/", 2),
        (PAGE + "?a=1", PAGE + "/", 2),
        (PAGE + "?a=1", "not a url", 2),
        (PAGE + "?a=1", PAGE, 3),
        (PAGE + "?a=1", PAGE + "?a=2", 3),
        (PAGE + "?a=1", "HTTP://EXAMPLE.ORG:80/l%69st?b#c", 3),
        (PAGE + "?a=1", parse_url(PAGE + "?b"), 3),
        (PAGE + "?a=1", parse_url("http://example.org/"), 2),
    ],
)
def test_wag_charges_queries_and_those_that_only_vary_their_referrers(text, via, expected):
    """Endless variations of one page are the dearest."""
    assert cost("wag", text, via) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", 1),
        ("a/b?c=1", 1),
        ("calendar", 2),
        ("a?day=5", 2),
        ("Events/MONTH-view", 2),
        ("1999/a", 2),
        ("a?from=2025", 2),
        ("a-2025-b", 2),
        ("12025", 1),
        ("20255", 1),
        ("2150", 1),
        ("daylight/update", 1),
        ("calendar/2025?year=2026", 2),
    ],
)
def test_anti_calendar_charges_calendar_words_and_years_once(path, expected):
    """One more, however many there are; the host is not read."""
    assert cost("anti-calendar", "http://calendar2025.example.org/" + path) == expected


def test_a_function_is_a_cost_policy():
    """What the user gives is used as it is."""
    assert cost_function(max) is max


def test_an_unknown_name_is_refused_with_the_known_ones():
    """The nearest is proposed."""
    with pytest.raises(ValueError, match=r"unknown cost 'wagg': .*unit, wag, .* mean 'wag'\?"):
        cost_function("wagg")


@pytest.mark.parametrize("answer", [0, 1, MAX_COST])
def test_an_integer_in_range_can_be_a_cost(answer):
    """It comes back unchanged."""
    assert valid_cost(answer) == answer


@pytest.mark.parametrize("answer", [-1, MAX_COST + 1, 1.0, float("nan"), "1", None, True])
def test_anything_else_can_not(answer):
    """A store adds and compares costs as 16-bit integers."""
    assert valid_cost(answer) is None
