import pytest

from outrider.core.policy.traps import (
    CALENDAR,
    MANY_PARAMETERS,
    PATH_DEPTH,
    REPEATED_SEGMENT,
    Traps,
    trap,
)
from outrider.core.url import parse_url


def caught(path, traps=None):
    """The guard that refuses this path, if any."""
    url = parse_url("http://example.org/" + path)
    return trap(url) if traps is None else trap(url, traps)


def segments(count):
    """A path of so many different segments."""
    return "/".join(f"s{number}" for number in range(count))


def parameters(count):
    """A query of so many different parameters."""
    return "&".join(f"p{number}=1" for number in range(count))


@pytest.mark.parametrize(
    "path", ["", "a", "a/b/c/d/e/f", "?a=1&b=2", "a//b//c//d//e//", "2025/1/2"]
)
def test_an_ordinary_url_is_no_trap(path):
    """None of the guards that are on by default minds it."""
    assert caught(path) is None


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (segments(20), None),
        (segments(20) + "/", None),
        (segments(21), PATH_DEPTH),
        ("/" * 21, PATH_DEPTH),
        (segments(3) + "?u=" + segments(30), None),
        ("a/b/a/c/a", None),
        ("a/b/a/c/a/d/a", REPEATED_SEGMENT),
        ("a/a/a/a", REPEATED_SEGMENT),
        ("a/%61/a/%61/", REPEATED_SEGMENT),
        ("a/a/a/b/b/b/c/c/c", None),
        ("a/a/a?u=/a/a/a/", None),
        ("?" + parameters(30), None),
        ("?" + parameters(31), MANY_PARAMETERS),
        ("?" + parameters(30) + "&utm_source=x&gclid=y", None),
        ("&" * 40 + "?a", None),
        (segments(5) + "?" + parameters(31), MANY_PARAMETERS),
    ],
)
def test_a_guard_refuses_over_and_not_at_its_limit(path, reason):
    """Twenty segments, three times one segment and thirty parameters still pass."""
    assert caught(path) == reason


@pytest.mark.parametrize(
    ("traps", "path", "reason"),
    [
        (Traps(path_depth=0), segments(99), None),
        (Traps(repeated_segment=0), "a/" * 19, None),
        (Traps(many_parameters=0), "?" + parameters(99), None),
        (Traps(path_depth=1), "a", None),
        (Traps(path_depth=1), "a/b", PATH_DEPTH),
        (Traps(repeated_segment=1), "a/b", None),
        (Traps(repeated_segment=1), "a/a", REPEATED_SEGMENT),
        (Traps(many_parameters=1), "?a", None),
        (Traps(many_parameters=1), "?a&b", MANY_PARAMETERS),
    ],
)
def test_limits_are_the_crawls_own_and_zero_is_none(traps, path, reason):
    """Each guard is turned off or tightened by itself."""
    assert caught(path, traps) == reason


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("calendar/x", CALENDAR),
        ("Kalender", CALENDAR),
        ("events?month=5", CALENDAR),
        ("a/2025/05/17/", CALENDAR),
        ("a/2025-5-7", CALENDAR),
        ("2025/05/title", None),
        ("a/2025/13/01", None),
        ("daylight/update/monthly", None),
        ("a/12025/05/17", None),
    ],
)
def test_the_calendar_guard_knows_days_and_words(path, reason):
    """A whole date or a word of its own; off unless asked for."""
    assert caught(path, Traps(calendar=True)) == reason
    assert caught(path) is None


def test_the_calendar_guard_does_not_read_the_host():
    """A site about days may be crawled."""
    url = parse_url("http://calendar.example.org/a")

    assert trap(url, Traps(calendar=True)) is None
