import pytest

from outrider.errors import SettingsError
from outrider.fetch.dns import ConnectTarget, ConnectTo

TARGETS = ConnectTo(
    {
        "a.web.test": "10.0.0.1:1",
        ".web.test": "10.0.0.2:2",
        ".b.web.test": "[::1]:3",
        "bare.test": "10.0.0.4",
    }
)


@pytest.mark.parametrize(
    ("host", "target"),
    [
        ("a.web.test", ConnectTarget("10.0.0.1", 1)),
        ("a.web.test.", ConnectTarget("10.0.0.1", 1)),
        ("c.web.test", ConnectTarget("10.0.0.2", 2)),
        ("x.a.web.test", ConnectTarget("10.0.0.2", 2)),
        ("c.b.web.test", ConnectTarget("::1", 3)),
        ("bare.test", ConnectTarget("10.0.0.4", None)),
        ("web.test", None),
        ("c.bare.test", None),
        ("10.0.0.9", None),
    ],
)
def test_the_most_exact_entry_wins(host, target):
    """A host before a suffix, a longer suffix before a shorter; a suffix is not its own host."""
    assert TARGETS.of(host) == target


@pytest.mark.parametrize("everyone", [".", ""])
def test_one_entry_may_stand_for_everyone(everyone):
    """Literal addresses too; whoever has an entry keeps it."""
    targets = ConnectTo({everyone: "127.0.0.1:80", "a.test": "127.0.0.1:81"})
    assert {targets.of(host) for host in ("b.test", "localhost", "8.8.8.8", "::1")} == {
        ConnectTarget("127.0.0.1", 80)
    }
    assert targets.of("a.test") == ConnectTarget("127.0.0.1", 81)


@pytest.mark.parametrize("place", ["", ":80", "host:port", "1.1.1.1:70000", "::1", "a b:80"])
def test_what_is_no_address_is_refused(place):
    """The message names the entry."""
    with pytest.raises(SettingsError, match=r"connect_to\[\"a.test\"\]"):
        ConnectTo({"a.test": place})
