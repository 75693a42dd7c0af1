import zlib

import pytest

from outrider.core.policy.keying import (
    MAX_KEY,
    checked_key,
    keying,
    registrable_domain,
    suffixes,
)
from outrider.core.url import UrlRules, parse_url


def url(text):
    """The `Url` of a text, private or not."""
    return parse_url(text, UrlRules(allow_private=True))


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("host", "https://www.example.org:8443/a?b", "www.example.org"),
        ("host", "http://[::1]:80/", "[::1]"),
        ("domain", "https://www.example.org/", "example.org"),
        ("domain", "https://example.org/", "example.org"),
        ("domain", "https://a.b.example.co.uk/", "example.co.uk"),
        ("domain", "https://a.alice.github.io/", "alice.github.io"),
        ("domain", "https://github.io/", "github.io"),
        ("domain", "https://bücher.example.рф/", "example.xn--p1ai"),
        ("domain", "http://localhost:8000/", "localhost"),
        ("domain", "http://10.1.2.3/", "10.1.2.3"),
        ("domain", "http://[2001:db8::1]:81/", "[2001:db8::1]"),
        ("domain", "http://a..b/", "a..b"),
        ("surt", "http://www.example.org/a", "org,example,www"),
        ("surt", "https://www.example.org:443/", "org,example,www"),
        ("surt", "https://www.example.org:8443/:9", "org,example,www:8443"),
        ("surt", "http://example.org.:81/", "org,example:81"),
        ("surt", "http://10.1.2.3:81/", "10.1.2.3:81"),
        ("surt", "http://[::1]/", "[::1]"),
        ("surt", "http://[::1]:81/", "[::1]:81"),
        ("surt", "http://localhost/", "localhost"),
    ],
)
def test_a_named_keying_gives_its_key(name, text, key):
    """Host, registrable domain and SURT authority, for names and addresses alike."""
    assert keying(name)(url(text)) == key


def test_buckets_spread_hosts_and_never_move_them():
    """A host's bucket depends on nothing but its name, and all buckets are used."""
    bucket = keying("buckets:16")
    keys = {bucket(url(f"http://host-{number}.org/")) for number in range(400)}

    assert keys == {f"bucket-{number:04}" for number in range(16)}
    assert bucket(url("http://a.org/1")) == bucket(url("https://a.org:8443/2"))
    assert bucket(url("http://a.org/")) == f"bucket-{zlib.crc32(b'a.org') % 16:04}"


@pytest.mark.parametrize("count", [1, 65_536])
def test_buckets_are_one_to_65536(count):
    """Both ends are allowed."""
    assert keying(f"buckets:{count}")(url("http://a.org/")).startswith("bucket-")


@pytest.mark.parametrize("count", ["0", "65537", "-1", "", "x", "1.5", "٣", "0" * 9 + "9" * 99])
def test_other_numbers_of_buckets_are_refused(count):
    """The message says what was wrong and what is allowed."""
    with pytest.raises(ValueError, match=r"buckets must be 1 to 65536"):
        keying(f"buckets:{count}")


def test_a_function_is_a_keying():
    """What the user gives is used as it is."""
    assert keying(len) is len


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hots", r"unknown keying 'hots': .*host, domain, surt, buckets:N; did you mean 'host'\?"),
        ("mine:key", r"unknown keying 'mine:key': not one of"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(name, message):
    """`module:function` too: names of modules are resolved outside the core."""
    with pytest.raises(ValueError, match=message):
        keying(name)


@pytest.mark.parametrize("key", ["a", "example.org", "münchen", "a key", "k" * MAX_KEY])
def test_a_printable_text_can_be_a_key(key):
    """It comes back unchanged."""
    assert checked_key(key) == key


@pytest.mark.parametrize("key", ["", "k" * (MAX_KEY + 1), "a\nb", "\ud800", "\0", None, 7, b"a"])
def test_anything_else_can_not(key):
    """Keys are shown, indexed and typed by people."""
    assert checked_key(key) is None


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a.example.org", [".a.example.org", ".example.org", ".org"]),
        ("org", [".org"]),
        ("10.1.2.3", [".10.1.2.3"]),
        ("[::ffff:a.b]", [".[::ffff:a.b]"]),
        ("bucket-0001", [".bucket-0001"]),
    ],
)
def test_suffixes_come_longest_first(key, expected):
    """A suffix speaks for itself and all below it; the digits of an address are no domains."""
    assert list(suffixes(key)) == expected


def test_the_registrable_domain_is_its_own():
    """Asking twice changes nothing."""
    assert registrable_domain(registrable_domain("a.b.example.org")) == "example.org"
