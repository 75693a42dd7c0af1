import re
import zlib

import pytest

from outrider.core.policy.queue_key import (
    MAX_KEY,
    address,
    is_address,
    key_function,
    registrable_domain,
    suffixes,
    valid_key,
)
from outrider.core.policy.rules import covers
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
def test_named_key_function_gives_its_key(name, text, key):
    """Host, registrable domain and SURT authority, for names and addresses alike."""
    assert key_function(name)(url(text)) == key


def test_buckets_spread_hosts_and_never_move_them():
    """A host's bucket depends on nothing but its name, and all buckets are used."""
    bucket = key_function("buckets:16")
    keys = {bucket(url(f"http://host-{number}.org/")) for number in range(400)}

    assert keys == {f"bucket-{number:04}" for number in range(16)}
    assert bucket(url("http://a.org/1")) == bucket(url("https://a.org:8443/2"))
    assert bucket(url("http://a.org/")) == f"bucket-{zlib.crc32(b'a.org') % 16:04}"


@pytest.mark.parametrize("count", [1, 65_536])
def test_buckets_are_one_to_65536(count):
    """Both ends are allowed."""
    assert key_function(f"buckets:{count}")(url("http://a.org/")).startswith("bucket-")


@pytest.mark.parametrize("count", ["0", "65537", "-1", "", "x", "1.5", "٣", "0" * 9 + "9" * 99])
def test_other_numbers_of_buckets_are_refused(count):
    """The message says what was wrong and what is allowed."""
    with pytest.raises(ValueError, match=r"buckets must be 1 to 65536"):
        key_function(f"buckets:{count}")


def test_function_is_used_as_key_function():
    """What the user gives is used as it is."""
    assert key_function(len) is len


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
        key_function(name)


@pytest.mark.parametrize("key", ["a", "example.org", "münchen", "a key", "k" * MAX_KEY])
def test_a_printable_text_can_be_a_key(key):
    """It comes back unchanged."""
    assert valid_key(key) == key


@pytest.mark.parametrize("key", ["", "k" * (MAX_KEY + 1), "a\nb", "\ud800", "\0", None, 7, b"a"])
def test_anything_else_can_not(key):
    """Keys are shown, indexed and typed by people."""
    assert valid_key(key) is None


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a.example.org", [".a.example.org", ".example.org", ".org"]),
        ("org", [".org:", ".org"]),
        ("10.1.2.3", [".10.1.2.3:", ".10.1.2.3"]),
        ("[::ffff:a.b]", [".[::ffff:a.b]:", ".[::ffff:a.b]"]),
        ("bucket-0001", [".bucket-0001:", ".bucket-0001"]),
        ("org,example,a", [".org,example,a:", ".a.example.org", ".example.org", ".org"]),
        ("org,example:81", [".org,example:81", ".org,example:", ".example.org", ".org"]),
        ("localhost:81", [".localhost:81", ".localhost:", ".localhost"]),
        ("10.1.2.3:81", [".10.1.2.3:81", ".10.1.2.3:", ".10.1.2.3"]),
        ("[::1]:81", [".[::1]:81", ".[::1]:", ".[::1]"]),
        ("a.example.org:81", [".a.example.org:81", ".example.org:81", ".org:81"]),
    ],
)
def test_suffixes_come_longest_first(key, expected):
    """A suffix speaks for itself and all below it; the digits of an address are no domains."""
    assert list(suffixes(key)) == expected


def test_the_registrable_domain_is_its_own():
    """Asking twice changes nothing."""
    assert registrable_domain(registrable_domain("a.b.example.org")) == "example.org"


@pytest.mark.parametrize(
    ("keyed_by", "text", "target"),
    [
        ("host", "www.example.org", "www.example.org"),
        ("host", "WWW.Example.org.", "www.example.org"),
        ("host", "bücher.example", "xn--bcher-kva.example"),
        ("host", ".bücher.example", ".xn--bcher-kva.example"),
        ("host", ".org", ".org"),
        ("host", "[::1]", "[::1]"),
        ("host", "a key of a link", "a key of a link"),
        ("host", "site:1", "site:1"),
        ("domain", "example.co.uk", "example.co.uk"),
        ("domain", ".example.org", ".example.org"),
        ("domain", ".co.uk", ".co.uk"),
        ("domain", "10.1.2.3", "10.1.2.3"),
        ("surt", "www.example.org", ".org,example,www:"),
        ("surt", "www.example.org:81", "org,example,www:81"),
        ("surt", "org,example,www", "org,example,www"),
        ("surt", "org,example,www:81", "org,example,www:81"),
        ("surt", ".Example.org", ".example.org"),
        ("surt", "bücher.example", ".example,xn--bcher-kva:"),
        ("surt", "10.1.2.3", ".10.1.2.3:"),
        ("surt", "[::1]:81", "[::1]:81"),
        ("surt", "localhost", ".localhost:"),
        ("surt", ".org,example:", ".org,example:"),
        ("buckets:8", "bucket-0007", "bucket-0007"),
        ("buckets:8", "a key of a link", "a key of a link"),
        ("module:function", ".org", ".org"),
        (len, "Example.org:81", "Example.org:81"),
        (None, ".org", ".org"),
    ],
)
def test_address_is_what_a_store_matches_under_the_key_function(keyed_by, text, target):
    """A4: hosts and suffixes as people write them reach the keys of every keying."""
    assert address(keyed_by, text) == target


@pytest.mark.parametrize(
    ("keyed_by", "text", "fix"),
    [
        ("host", "example.org:81", "without a port; write 'example.org'"),
        ("host", ".example.org:81", "write '.example.org'"),
        ("host", "*.example.org", "write '.example.org'"),
        ("domain", "www.example.org", "registrable domain; write 'example.org'"),
        ("domain", ".www.example.co.uk", "write 'example.co.uk'"),
        ("domain", "example.org:81", "write 'example.org'"),
        ("surt", "org,example,", "write 'org,example', or '.example.org' for all below it"),
        ("surt", ".example.org:81", "a suffix has no port; write '.example.org'"),
        ("buckets:8", ".org", "none has a suffix; name them, or set queue.key"),
        ("buckets:8", "example.org", "example.org is in bucket-0007"),
        ("buckets:8", "10.1.2.3:81", "10.1.2.3 is in bucket-0001"),
        ("buckets:8", "bucket-0008", "8 buckets, bucket-0000 to bucket-0007"),
        ("buckets:8", "bucket-7", "8 buckets, bucket-0000 to bucket-0007"),
        ("buckets:8", "bucket-" + "9" * 200, "8 buckets, bucket-0000 to bucket-0007"),
    ],
)
def test_address_that_can_reach_no_key_is_refused_with_the_fix(keyed_by, text, fix):
    """A4: never silently."""
    with pytest.raises(ValueError, match=re.escape(fix)):
        address(keyed_by, text)


@pytest.mark.parametrize(
    "text",
    [
        "http://example.org/",
        "http://www.example.org:81/",
        "http://localhost:81/",
        "http://10.1.2.3:81/",
        "http://[::1]:81/",
        "https://bücher.example/",
    ],
)
@pytest.mark.parametrize("name", ["host", "domain", "surt"])
def test_address_of_a_key_or_host_reaches_the_queue_of_its_urls(name, text):
    """A4: the key itself, the host it is from unless its domain is the key, and every suffix."""
    parsed = url(text)
    key = key_function(name)(parsed)
    domain = registrable_domain(parsed.host)
    meant = {"host": parsed.host, "domain": domain, "surt": parsed.host}[name]

    for written in (key, meant, "." + meant, "." + meant.rpartition(".")[2]):
        is_part = written.startswith(".") and written != "." + meant and is_address(meant)
        assert covers(address(name, written), key) is not is_part
