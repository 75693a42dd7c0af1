import re
from pathlib import Path

import url as library
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.core.policy.cost import cost_function, valid_cost
from outrider.core.policy.queue_key import key_function, suffixes, valid_key
from outrider.core.policy.scope import Scope, compile_scope
from outrider.core.policy.traps import Traps, trap
from outrider.core.url import (
    DEFAULT,
    REASONS,
    Refusal,
    Url,
    UrlRules,
    fingerprint,
    parse_url,
)

REAL_URLS = Path(__file__).parents[2].parent / "shared" / "data" / "real_urls.txt"
PRIVATE_ALLOWED = UrlRules(allow_private=True)

any_text = st.text(st.characters(exclude_categories=()))
percent = st.sampled_from(["%41", "%7e", "%2F", "%2f", "%2e", "%", "%%", "%4", "%C3%a9", "%00"])
piece = st.one_of(
    percent,
    st.sampled_from(["a", "B", "0", ".", "..", "xn--", "é", "\u3002", "\ud800", "\\", "|", "[]"]),
    st.sampled_from(["a=1", "a", "=", "+", "'", "{", "^", "utm_x=1", "gclid", ":", "@", ";"]),
    st.sampled_from(["/", "//", "?", "&", "#", "\t", "\n", " ", "\0", "\x85", "~", "-", "_"]),
)
host = st.one_of(
    st.sampled_from(["example.org", "EXAMPLE.org", "a.b.co.uk", "münchen.de", "ex_a-m.org"]),
    st.sampled_from(
        ["127.0.0.1", "0x7f.1", "1.2.3.0x", "[::1]", "[2001:DB8::2]", "a..b", ".a.org"]
    ),
    st.text("abAB01.-_x", min_size=1, max_size=12),
)
rest = st.lists(piece, max_size=10).map("".join)
scheme = st.sampled_from(["http://", "https://", "HTTP://", "http:", "https:\\\\", "//", "/", ""])
port = st.sampled_from(["", ":80", ":443", ":8080", ":", ":0"])
url_like = st.builds(lambda *parts: "".join(parts), scheme, host, port, st.just("/"), rest)
relative = st.one_of(url_like, rest, any_text, rest.map("/{}".format))
bases = st.sampled_from(
    [None, "http://example.org/a/b?c", "https://example.org:8443/", "http://[2001:db8::1]/a/b/"]
)
limits = st.sampled_from([DEFAULT, PRIVATE_ALLOWED, UrlRules(max_bytes=40), UrlRules(tracking=())])


def parsed(text, rules=DEFAULT, base=None) -> Url | Refusal:
    """The answer to a text, seen from the text of a base."""
    return parse_url(text, rules, base and parse_url(base))


@given(relative, limits, bases)
@example("http://a.org/%%34%31", DEFAULT, None)
@example("http://a.org/?%%34%31=%%%25", DEFAULT, None)
@example("http://a.org/%2e%2e%2e/.%2e./", DEFAULT, None)
def test_every_text_is_a_fixed_point_or_a_refusal(text, rules, base):
    """Nothing raises; what was accepted is accepted again, and becomes the same again."""
    answer = parsed(text, rules, base)
    if isinstance(answer, Refusal):
        assert answer.reason in REASONS
        assert answer.detail.isprintable()
        return
    again = parse_url(answer.identity, rules)

    assert parse_url(answer.text, rules) == answer
    assert isinstance(again, Url)
    assert again.identity == answer.identity
    assert again.host == answer.host
    assert len(answer.identity) <= rules.max_bytes
    assert len(answer.text) <= rules.max_bytes
    assert len(fingerprint(answer.identity)) == 16


@given(relative, bases)
@example("///a.org/b", "http://example.org/a/b?c")
@example("\r///0", "http://example.org/a/b?c")
@example("/\t/a.org/b", "http://example.org/a/b?c")
def test_what_is_visited_is_what_the_library_says(text, base):
    """Our short cuts never read a text otherwise than the WHATWG parser."""
    answer = parsed(text, PRIVATE_ALLOWED, base)
    if isinstance(answer, Refusal) or re.match(r"\s*(?:[/\\]\s*){3}", text):
        return
    read = library.URL.parse(text, base and library.URL.parse(base))

    assert answer.text == str(read.with_fragment(None))
    assert answer.host == (read.host_str.removesuffix(".") or read.host_str)


@given(url_like)
def test_the_library_refuses_what_we_call_a_bad_url(text):
    """A `bad-url` is one to the WHATWG parser too, and not merely to a short cut."""
    answer = parse_url(text)
    if not isinstance(answer, Refusal) or answer.reason != "bad-url":
        return
    try:
        library.URL.parse(text)
    except (library.URLError, UnicodeError):
        return
    raise AssertionError(answer)


plain_byte = st.integers(0, 255)
unreserved = st.sampled_from("abcXYZ019-._~")
parameter = st.builds("{}={}".format, st.text("ab_", min_size=1), st.text("ab01.~", max_size=3))


def spelt(character, way):
    """One of the three ways to write a character."""
    code = ord(character)
    return (character, f"%{code:02x}", f"%{code:02X}")[way]


@given(st.lists(st.tuples(unreserved, st.integers(0, 2)), min_size=1), st.booleans())
def test_an_unreserved_character_may_be_escaped_or_not(letters, in_query):
    """Every spelling of one resource has one identity."""
    head = "http://example.org/?x=" if in_query else "http://example.org/x"
    bare = head + "".join(letter for letter, _ in letters)
    mixed = head + "".join(spelt(letter, way) for letter, way in letters)

    assert parse_url(mixed).identity == parse_url(bare).identity


@given(st.lists(plain_byte, min_size=1, max_size=20))
def test_an_escape_never_changes_its_byte(values):
    """Percent-decoding the identity gives the bytes that percent-decoding the text gave."""
    text = "http://example.org/x" + "".join(f"%{value:02x}" for value in values)
    found = parse_url(text).identity.removeprefix("http://example.org/x")
    read = re.findall(r"%([0-9A-F]{2})|(.)", found)

    assert [int(code, 16) if code else ord(letter) for code, letter in read] == values


@given(st.lists(parameter, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_parameters_and_tracking_do_not_matter(parameters, random):
    """A shuffled query with tracking mixed in is the same page."""
    shuffled = [*parameters, "utm_medium=mail", "GCLID=1"]
    random.shuffle(shuffled)
    plain = parse_url("http://example.org/a?" + "&".join(parameters))

    assert parse_url("http://example.org/a?" + "&".join(shuffled)).identity == plain.identity


@given(st.sampled_from(["http", "HTTPS", "Https"]), rest, st.text("aB1-", min_size=1, max_size=5))
def test_case_of_scheme_and_host_default_port_and_fragment_do_not_matter(name, tail, label):
    """Equivalent forms have one identity, whether they are plain enough for a short cut or not."""
    port_of = {"http": ":80", "https": ":443"}[name.lower()]
    path = "".join(filter(str.isprintable, tail)).partition("#")[0].rstrip()
    one = parse_url(f"{name.lower()}://{label.lower()}.org/{path}")
    other = parse_url(f" {name}://{label.upper()}.ORG{port_of}/{path}#{label}\n")

    assert getattr(one, "identity", one) == getattr(other, "identity", other)


policies = st.sampled_from(["host", "domain", "surt", "buckets:7"])


@given(url_like.map(lambda text: parse_url(text, PRIVATE_ALLOWED)), policies)
def test_every_url_has_a_key_a_cost_and_a_place(url, name):
    """No URL that can be made is beyond the shipped policies."""
    if isinstance(url, Refusal):
        return
    key = key_function(name)(url)

    assert valid_key(key) == key
    assert all(suffix.startswith(".") for suffix in suffixes(key))
    assert trap(url, Traps(1, 1, 1, calendar=True)) in {
        *(None, "path-depth", "repeated-segment", "many-parameters", "calendar")
    }
    for mode in ("host", "domain", "surt"):
        scope = Scope(mode=mode)
        assert compile_scope(scope)(url, {scope.root(url)})
    for policy in ("zero", "unit", "wag", "anti-calendar"):
        assert valid_cost(cost_function(policy)(url, url)) is not None


def real_urls():
    """Every tenth of the real URLs where they lie beside the repository, else a few like them."""
    if REAL_URLS.exists():
        return REAL_URLS.read_text("utf-8").splitlines()[::10]
    return [
        "https://www.asahi-net.or.jp/~uf8e-itu/",
        "https://mitpress.mit.edu/catalog/item/default.asp?ttype=2&amp;tid=3987",
        "https://singapore_aberdeen.tripod.com/mackenzie.html",
        "https://beefextension.com/new\\%20site\\%202/cccalc.html",
        "https://www.countrysidemag.com/issues/3_1998.htm#Swiss Goats",
    ]


def test_real_urls_are_read_as_the_library_reads_them():
    """Nearly all are accepted, and every one is a fixed point."""
    texts = real_urls()
    urls = [(text, url) for text in texts if isinstance(url := parse_url(text), Url)]

    assert len(urls) >= len(texts) * 0.99
    for text, url in urls:
        assert url.text == str(library.URL.parse(text).with_fragment(None))
        assert parse_url(url.text) == url
        assert parse_url(url.identity).identity == url.identity
