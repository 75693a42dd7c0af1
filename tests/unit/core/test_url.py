import json
from pathlib import Path

import pytest

from outrider.core.url import (
    BAD_URL,
    CONTROL_CHARACTERS,
    CREDENTIALS,
    DEFAULT,
    MAX_AUTHORITY,
    PRIVATE_ADDRESS,
    REASONS,
    SCHEME,
    TOO_LONG,
    TRACKING,
    Refusal,
    Url,
    UrlRules,
    fingerprint,
    is_private_address,
    parse_url,
)

SHARED_DATA = Path(__file__).parents[3].parent / "shared" / "data"
PRIVATE_ALLOWED = UrlRules(allow_private=True)


def made(text, rules=DEFAULT, base=None) -> Url:
    """The `Url` that this text must become."""
    url = parse_url(text, rules, base)
    assert isinstance(url, Url), url
    return url


def refused(text, rules=DEFAULT, base=None) -> str:
    """The reason for which this text must be refused, with a detail fit to print."""
    refusal = parse_url(text, rules, base)
    assert isinstance(refusal, Refusal), refusal
    assert refusal.reason in REASONS
    assert refusal.detail.isascii()
    assert refusal.detail.isprintable()
    assert len(refusal.detail) <= 120
    return refusal.reason


def identity(text, rules=DEFAULT) -> str:
    """The identity of a text that must become a `Url`."""
    return made(text, rules).identity


def test_serialised_url_stays_unchanged():
    """A text that already is its own serialisation comes back unchanged, as text and identity."""
    text = "https://www.example.org/a/b_c~d/e.html"

    assert made(text) == Url(text=text, identity=text, host="www.example.org")


def test_a_url_reads_as_what_is_visited():
    """`str(link.url)` is an address, whether the link was found or given."""
    assert str(parse_url("https://Example.org/a#b")) == "https://example.org/a"


@pytest.mark.parametrize(
    ("text", "visited"),
    [
        ("HTTP://EXAMPLE.org", "http://example.org/"),
        ("https://example.org:443/a", "https://example.org/a"),
        ("http://example.org:443/a", "http://example.org:443/a"),
        ("http://example.org/a/./b/../c", "http://example.org/a/c"),
        ("http://example.org/a/%2e/b/%2E%2e/c", "http://example.org/a/c"),
        ("http://example.org/a#part", "http://example.org/a"),
        ("http://example.org/?#part", "http://example.org/?"),
        ("http:\\\\example.org\\a", "http://example.org/a"),
        (" \t\r\n\fhttp://example.org/a\f\n ", "http://example.org/a"),
        ("http://exa\nmple.org/a\tb", "http://example.org/ab"),
        ("http://münchen.example/straße", "http://xn--mnchen-3ya.example/stra%C3%9Fe"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://[::0:1]:8080/", "http://[::1]:8080/"),
        ("http://example.org/?q=%c3%a9&b=2&a=1", "http://example.org/?q=%c3%a9&b=2&a=1"),
        ("http://:@example.org/", "http://example.org/"),
    ],
)
def test_what_is_visited_is_the_standards_serialisation_less_the_fragment(text, visited):
    """Browsers and we request the same; only the fragment, which no server sees, is gone."""
    assert made(text, PRIVATE_ALLOWED).text == visited


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("https://WWW.Example.org:8443/", "www.example.org"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
        ("http://[2001:DB8::1]:81/", "[2001:db8::1]"),
        ("http://[2001:db8::1]/", "[2001:db8::1]"),
        ("http://192.0.2.1./", "192.0.2.1"),
        ("http://localhost:8000/", "localhost"),
        ("http://example.org./", "example.org"),
        ("http://./", "."),
    ],
)
def test_the_host_is_bare(text, host):
    """No port and no root dot: whatever names one machine gives one key."""
    assert made(text).host == host


def test_a_root_dot_is_another_identity_but_the_same_host():
    """`example.org.` may be served differently, yet its politeness is `example.org`'s."""
    dotted, plain = made("http://example.org./a"), made("http://example.org/a")

    assert dotted.identity != plain.identity
    assert dotted.host == plain.host


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("http://example.org/%7euser/%41%2d%2E%5f", "http://example.org/~user/A-._"),
        ("http://example.org/a%2fb%3f%23", "http://example.org/a%2Fb%3F%23"),
        ("http://example.org/%c3%a9", "http://example.org/%C3%A9"),
        ("http://example.org/é", "http://example.org/%C3%A9"),
        ("http://example.org/100%", "http://example.org/100%25"),
        ("http://example.org/%%34%31", "http://example.org/%2541"),
        ("http://example.org/%zz", "http://example.org/%25zz"),
        ("http://example.org/%7B%5b%7c%5d%5e%5C", "http://example.org/%7B[|]^%5C"),
        ("http://example.org/?a%5B%5D=%7B1%7d%60%5c%7C", "http://example.org/?a[]={1}`\\|"),
        ("http://example.org/?b=2&a=1&b=1&a=1", "http://example.org/?a=1&a=1&b=1&b=2"),
        ("http://example.org/?a&a=&&", "http://example.org/?a&a="),
        ("http://example.org/?b=%26&a=%3d", "http://example.org/?a=%3D&b=%26"),
        ("http://example.org/?a=1+2&b=1%202", "http://example.org/?a=1+2&b=1%202"),
        ("http://example.org/?", "http://example.org/"),
        ("http://example.org/a/?&&", "http://example.org/a/"),
        ("http://example.org:80/a/", "http://example.org/a/"),
        ("http://example.org:8080/?b&a", "http://example.org:8080/?a&b"),
    ],
)
def test_the_identity_is_canonical(text, canonical):
    """Spellings of one resource share an identity, and it never says something else."""
    assert identity(text) == canonical


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://example.org/", "https://example.org/"),
        ("http://example.org/a", "http://example.org/a/"),
        ("http://example.org/a%2Fb", "http://example.org/a/b"),
        ("http://example.org/?a=1%262", "http://example.org/?a=1&2"),
        ("http://example.org/?u=a%2Fb", "http://example.org/?u=a/b"),
        ("http://example.org/?a", "http://example.org/?a="),
        ("http://example.org/?a=1", "http://example.org/?a=1&a=1"),
        ("http://example.org/A", "http://example.org/a"),
        ("http://example.org/", "http://www.example.org/"),
        ("http://example.org/", "http://example.org:8080/"),
    ],
)
def test_what_may_differ_stays_apart(one, other):
    """Losing a page is worse than visiting it twice."""
    assert identity(one) != identity(other)


def test_tracking_parameters_have_no_part_in_the_identity():
    """However it was clicked, it is one page; what is visited keeps them."""
    text = "http://example.org/?utm_source=x&b=2&GCLID=3&fbclid&a=1&utm%5Fterm=4&Utm_="

    assert identity(text) == "http://example.org/?a=1&b=2"
    assert made(text).text == text


def test_a_query_of_nothing_but_tracking_leaves_no_question_mark():
    """The identity is that of the page without a query."""
    assert identity("http://example.org/a?utm_source=x&gclid=1") == "http://example.org/a"


def test_tracking_names_match_whole_or_by_their_star():
    """`gclid` does not catch `gclidx`, and `utm_*` does not catch `utm`."""
    text = "http://example.org/?gclidx=1&utm=2&x=gclid&xutm_a=3"

    assert identity(text) == text


@pytest.mark.parametrize(
    ("tracking", "query"),
    [
        ((), "?a.b=2&gclid=1&session=3"),
        (("SESSION",), "?a.b=2&gclid=1"),
        (("a.*", ""), "?gclid=1&session=3"),
        (("a?b",), "?a.b=2&gclid=1&session=3"),
        (("*",), ""),
    ],
)
def test_the_tracking_list_is_the_crawls_own(tracking, query):
    """A crawl may drop none, others, or all; names are no patterns but for a last star."""
    text = "http://example.org/?a.b=2&gclid=1&session=3"

    assert identity(text, UrlRules(tracking=tracking)) == "http://example.org/" + query


@pytest.mark.parametrize("name", TRACKING)
def test_every_listed_tracking_parameter_is_dropped(name):
    """The list and the matcher agree, whatever the first letter."""
    query = name.replace("*", "x")

    assert identity(f"http://example.org/?{query}=1&a=2") == "http://example.org/?a=2"


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "example.org", "/a", "//example.org/", "a b", "#x", "?x"),
        *("http://", "https:///", "http://?", "http://#", "http://:80/", "http://@/"),
        *("http://[::1/", "http://1.2.3.4.5/", "http://256.256.256.256/", "http://a b/"),
        *("http://xn--/", "http://xn--a.example/", "http://a%2Fb/", "http://a%00b/", "http://a<b/"),
        *(
            "http://example.org:99999/",
            "http://example.org:x/",
            "http://\ud800/",
            "http://a/\udfff",
        ),
        *("http://\u00ad/", "http://a\u200d.\u200d/"),
    ],
)
def test_what_is_no_url_is_a_bad_url(text):
    """No host, no scheme, bad IDNA, half a surrogate pair: a reason, never an exception."""
    assert refused(text) == BAD_URL


@pytest.mark.parametrize("thing", [None, 7, b"http://example.org/", ["http://example.org/"], {}])
def test_what_is_no_text_is_a_bad_url(thing):
    """A batch may hold anything."""
    assert refused(thing) == BAD_URL


@pytest.mark.parametrize(
    "text",
    [
        *("javascript:alert(1)", "mailto:a@example.org", "ftp://example.org/", "data:,x"),
        *("tel:+1", "file:///etc/passwd", "ws://example.org/", "about:blank", "httpx://a/"),
        *("JavaScript:alert(1)", "view-source:http://example.org/", "blob:http://example.org/x"),
    ],
)
def test_only_http_and_https_are_visited(text):
    """Other schemes are refused for being other schemes."""
    assert refused(text) == SCHEME


@pytest.mark.parametrize(
    "text",
    [
        *("http://user@example.org/", "http://user:pass@example.org/", "http://:pass@example.org/"),
        *("http://user:@example.org/", "http:user:pass@example.org/a"),
    ],
)
def test_credentials_are_refused(text):
    """A user or a password in a URL would be stored and logged; an @ in the path is none."""
    assert refused(text) == CREDENTIALS
    assert made("http://example.org/@user?to=a@b").host == "example.org"


@pytest.mark.parametrize(
    "text", ["http://user:secret@example.org/", "http://user:secret@[/", "ftp://user:secret@a/"]
)
def test_a_refusal_never_tells_the_password(text):
    """Details reach logs and dashboards."""
    assert "secret" not in parse_url(text).detail


@pytest.mark.parametrize("control", ["\0", "\x01", "\v", "\x1b", "\x7f", "\x80", "\x9f"])
@pytest.mark.parametrize("form", ["{}http://a.org/", "http://a.org/{}x", "http://a.org/?x#x{}"])
def test_any_other_control_refuses(form, control):
    """Only ASCII whitespace is trimmed, and only tab and line ends vanish inside."""
    assert refused(form.format(control)) == CONTROL_CHARACTERS


def test_a_form_feed_is_trimmed_outside_and_refused_inside():
    """It is ASCII whitespace, but no line end."""
    assert made("\fhttp://example.org/\f").text == "http://example.org/"
    assert refused("http://example.org/a\fb") == CONTROL_CHARACTERS


def test_eight_kibibytes_are_the_limit():
    """At the limit it passes, over it it doesn't; bytes are counted, not characters."""
    head = "http://example.org/"
    room = 8192 - len(head)

    assert made(head + "a" * room).text == head + "a" * room
    assert refused(head + "a" * (room + 1)) == TOO_LONG
    assert refused(head + "é" * room) == TOO_LONG
    assert refused("\x00" * 1_000_000) == TOO_LONG


@pytest.mark.parametrize(
    "text",
    [
        "http://example.org/" + "é" * 2000,  # 6 bytes each when escaped
        "http://example.org/?" + "%" * 4000,  # 3 each in the identity
        "http://example.org:81/" + "%" * 4000,
    ],
)
def test_what_grows_over_the_limit_is_too_long(text):
    """What was accepted is accepted again: its text and identity are inside the limit too."""
    assert refused(text) == TOO_LONG


def test_the_limit_is_the_crawls_own():
    """`max_bytes` moves it, for relative links by what they become."""
    rules = UrlRules(max_bytes=30)
    base = made("http://example.org/a/", rules)

    assert refused("http://example.org/" + "a" * 12, rules) == TOO_LONG
    assert made("/" + "b" * 11, rules, base).text == "http://example.org/" + "b" * 11
    assert refused("/" + "b" * 12, rules, base) == TOO_LONG
    assert refused("b" * 11, rules, base) == TOO_LONG


def test_a_host_no_dns_could_carry_is_a_bad_url():
    """Keys stay short because hosts do."""
    longest = "a." * ((MAX_AUTHORITY - 3) // 2) + "org"

    assert made(f"http://{longest}/").host == longest
    assert refused(f"http://aa.{longest}/") == BAD_URL
    assert refused(f"http://{'a' * 300}.org/") == BAD_URL


PRIVATE = [
    "0.0.0.0",  # noqa: S104 - nothing is bound to it
    *("0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.9.9.9"),
    *("169.254.169.254", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("2130706433", "0x7f.1", "017700000001", "127.1", "127.0.0.1.", "0", "１２７.0.0.1"),
    *("[::]", "[::1]", "[fc00::1]", "[fdff::1]", "[fe80::1]", "[febf::1]", "[fec0::1]"),
    *("[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[::192.168.0.1]", "[::ffff:0:10.0.0.1]"),
    *("[2002:7f00:1::]", "[2002:c0a8:0101::1]", "[64:ff9b::10.1.2.3]", "[64:ff9b:1::1]"),
]
PUBLIC = [
    *("192.0.2.1", "198.51.100.7", "203.0.113.9", "8.8.8.8", "100.63.0.1", "100.128.0.1"),
    *("172.15.0.1", "172.32.0.1", "192.167.1.1", "11.0.0.1", "1.1.1.1"),
    *("[2001:db8::1]", "[2606:4700::1111]", "[::ffff:8.8.8.8]", "[2002:808:808::1]"),
    *("[64:ff9b::8.8.8.8]", "localhost", "10.0.0.1.example.org", "host10"),
]


@pytest.mark.parametrize("host", PRIVATE)
def test_private_addresses_are_refused_in_every_spelling(host):
    """A literal into somebody's network is refused, however it is written or embedded."""
    assert refused(f"http://{host}:8080/a") == PRIVATE_ADDRESS
    assert made(f"http://{host}/", PRIVATE_ALLOWED).text.endswith("/")


@pytest.mark.parametrize("host", PUBLIC)
def test_public_addresses_and_names_pass(host):
    """Documentation ranges are public; names are judged when they resolve."""
    assert made(f"http://{host}/").host == host or host.startswith("[")


@pytest.mark.parametrize(
    ("address", "private"),
    [("::1", True), ("fe80::1%eth0", True), ("2001:db8::1", False), ("x:1", False), ("", False)],
)
def test_addresses_of_a_resolver_can_be_checked(address, private):
    """Without brackets, with a zone, or no address at all."""
    assert is_private_address(address) is private


BASE = "https://example.org/dir/page?q=1"


@pytest.mark.parametrize(
    ("link", "visited"),
    [
        ("/a/b", "https://example.org/a/b"),
        ("/", "https://example.org/"),
        ("/a?b=1#c", "https://example.org/a?b=1"),
        ("/a/../b", "https://example.org/b"),
        ("/.hidden", "https://example.org/.hidden"),
        ("/é", "https://example.org/%C3%A9"),
        ("//other.org/a", "https://other.org/a"),
        ("///other.org/a", "https://other.org/a"),
        ("/\\/other.org/a", "https://other.org/a"),
        ("/\t/other.org/a", "https://other.org/a"),
        (" /\t//\n\\other.org/a", "https://other.org/a"),
        ("\\a", "https://example.org/a"),
        ("a", "https://example.org/dir/a"),
        ("../a", "https://example.org/a"),
        ("?b", "https://example.org/dir/page?b"),
        ("", BASE),
        ("#top", BASE),
        ("http://other.org/a", "http://other.org/a"),
        ("https:a", "https://example.org/dir/a"),
        ("http:a", "http://a/"),
    ],
)
def test_a_relative_link_is_resolved_against_its_base(link, visited):
    """As the standard resolves it, with or without the short cut for `/path`."""
    assert made(link, base=made(BASE)).text == visited


def test_a_relative_link_keeps_the_port_of_its_base():
    """The base's authority is taken whole."""
    base = made("http://example.org:8080/a/b")

    assert made("/c", base=base) == made("http://example.org:8080/c")


@pytest.mark.parametrize(
    ("link", "reason"),
    [("mailto:a@b.org", SCHEME), ("//", BAD_URL), ("//u@a.org/", CREDENTIALS), (7, BAD_URL)],
)
def test_a_base_does_not_help_what_is_refused(link, reason):
    """A link is judged by what it becomes."""
    assert refused(link, base=made(BASE)) == reason


def test_a_fingerprint_is_128_bits_of_the_identity():
    """Equal identities have equal fingerprints, different ones different, in every process."""
    assert fingerprint("http://example.org/").hex() == "3fd807b80b084d5d4cc99bc20279f6d8"
    assert fingerprint("http://example.org/") != fingerprint("http://example.org/a")


def test_any_identity_has_a_fingerprint():
    """A link may bring its own identity: empty, or half a surrogate pair."""
    assert len({fingerprint(text) for text in ("", "\ud800", "\udfff", "é", "\0")}) == 5


def web_platform_cases():
    """The web platform's own cases where they lie beside the repository, else four of them."""
    path = SHARED_DATA / "urltestdata.json"
    if path.exists():
        return [case for case in json.loads(path.read_text("utf-8")) if isinstance(case, dict)]
    return [
        {"input": "http://example\t.\norg", "base": None, "href": "http://example.org/"},
        {"input": "///test", "base": "http://example.org/", "href": "http://test/"},
        {"input": "http://a:b@c:29/d", "base": None, "href": "http://a:b@c:29/d"},
        {"input": "http://[www.google.com]/", "base": None, "failure": True},
    ]


def answers_to_web_platform_cases():
    """Each case that has no base or one that we accept, with our answer."""
    for case in web_platform_cases():
        base = parse_url(case["base"], PRIVATE_ALLOWED) if case.get("base") else None
        if not isinstance(base, Refusal):
            yield case, parse_url(case["input"], PRIVATE_ALLOWED, base)


def test_the_web_platforms_cases_are_read_as_it_says():
    """Every case is read as expected, fails as expected, or is refused for a reason of ours."""
    for case, answer in answers_to_web_platform_cases():
        if case.get("failure"):
            assert isinstance(answer, Refusal), case
        elif isinstance(answer, Url):
            assert answer.text == case["href"].partition("#")[0], case
        else:
            assert answer.reason in {SCHEME, CREDENTIALS, CONTROL_CHARACTERS}, (case, answer)


def test_the_web_platforms_urls_are_read_twice_alike():
    """Text and identity are fixed points."""
    for _, url in answers_to_web_platform_cases():
        if isinstance(url, Url):
            assert made(url.text, PRIVATE_ALLOWED).text == url.text
            assert made(url.identity, PRIVATE_ALLOWED).identity == url.identity
