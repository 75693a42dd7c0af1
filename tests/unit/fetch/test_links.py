import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.link_validation import is_ordinary
from outrider.core.policy.rules import QueueRules
from outrider.core.task import Lease, Link, PolitenessState
from outrider.core.url import Url, UrlRules
from outrider.fetch import extract as extract_module
from outrider.fetch.extract import (
    NOFOLLOW,
    NOINDEX,
    header_directives,
    link_relations,
    meta_directives,
)
from outrider.fetch.page import Page
from outrider.fetch.reader import extract_here
from outrider.fetch.response import Response
from outrider.settings.worker_schema import FetchSettings
from outrider.testing.builders import task

URL = "https://example.org/a/page?q=1"
HTML = "text/html; charset=utf-8"


def found(body, *fields, content_type=HTML, url=URL, type="page", rules=None, **settings):
    """What is found in a page."""
    about = task(url, type=type, depth=2)
    lease = Lease("s", 1, 1, about, 1, "w", 60.0, 0, 0, QueueRules(), PolitenessState())
    body = body.encode() if isinstance(body, str) else body
    response = Response(url, 200, (("Content-Type", content_type), *fields), body, 0.1, 0.0)
    return extract_here(Page(lease, response), FetchSettings(**settings), rules or UrlRules())


def urls(*args, **settings):
    """The links alone, as text."""
    return [url.text for url in found(*args, **settings).urls]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ('<a href="/b">x</a>', "https://example.org/b"),
        ('<a href="b">x</a>', "https://example.org/a/b"),
        ('<a href="../b">x</a>', "https://example.org/b"),
        ('<a href="?p=2">x</a>', "https://example.org/a/page?p=2"),
        ('<a href="//other.org/x">x</a>', "https://other.org/x"),
        ('<a href="http://other.org">x</a>', "http://other.org/"),
        ('<a href="  /b \n">x</a>', "https://example.org/b"),
        ('<a href="/b\nc\td">x</a>', "https://example.org/bcd"),
        ('<a href="/b#part">x</a>', "https://example.org/b"),
        ('<a href="/b?x=1&amp;y=2">x</a>', "https://example.org/b?x=1&y=2"),
        ('<a href="/b?x=1&y=2">x</a>', "https://example.org/b?x=1&y=2"),
        ('<a href="&#x2f;b">x</a>', "https://example.org/b"),
        ('<A HREF="/b">x</A>', "https://example.org/b"),
        ("<a href=/b>x</a>", "https://example.org/b"),
        ("<a href='/b' href='/c'>x</a>", "https://example.org/b"),
        ('<a class=x data-y href = "/b">x', "https://example.org/b"),
        ('<a href="https://bücher.example/ü">x</a>', "https://xn--bcher-kva.example/%C3%BC"),
        ('<a href="\\b">x</a>', "https://example.org/b"),
        ('<a href="/\\other.org/b">x</a>', "https://other.org/b"),
        ('<a href="https:b">x</a>', "https://example.org/a/b"),
        ('<map><area href="/b"></map>', "https://example.org/b"),
        ('<iframe src="/b"></iframe>', "https://example.org/b"),
        ('<frameset><frame src="/b"></frameset>', "https://example.org/b"),
        ('<link rel="Next" href="/b">', "https://example.org/b"),
        ("<link rel=prev href=/b>", "https://example.org/b"),
        ("<link rel=canonical href=/b>", "https://example.org/b"),
        ("<link rel=alternate type=application/rss+xml href=/b>", "https://example.org/b"),
        ("<link rel=alternate hreflang=de href=/b>", "https://example.org/b"),
        ('<meta http-equiv=Refresh content="5; url=/b">', "https://example.org/b"),
        ("<meta http-equiv=refresh content=\"0;URL='/b'\">", "https://example.org/b"),
        ('<meta http-equiv=refresh content="0 /b">', "https://example.org/b"),
        ("<div><p><table><a href=/b>unclosed", "https://example.org/b"),
        ("<noscript><a href=/b>x</a></noscript>", "https://example.org/b"),
        ("<head><noscript><img></noscript><link rel=next href=/b></head>", "https://example.org/b"),
        ("<svg><a href=/b></a></svg>", "https://example.org/b"),
        ("<p>\0<a\0><a href=/b>", "https://example.org/b"),
    ],
)
def test_a_link_is_found(html, expected):
    """Wherever HTML may keep one, however it is written."""
    assert urls(html) == [expected]


@pytest.mark.parametrize(
    "html",
    [
        "<a>x</a>",
        '<a href="">x</a>',
        '<a href="  ">x</a>',
        '<a href="#top">x</a>',
        '<a href="javascript:void(0)">x</a>',
        '<a href=" JavaScript:x">x</a>',
        '<a href="mailto:a@b.c">x</a>',
        '<a href="tel:+1">x</a>',
        '<a href="data:text/html,x">x</a>',
        '<iframe src="about:blank"></iframe>',
        "<link rel=stylesheet href=/s.css>",
        '<link rel="alternate stylesheet" href=/s.css>',
        "<link rel=alternate type=application/json href=/api>",
        "<link href=/b>",
        "<link rel=next>",
        "<!-- <a href=/b>x</a> -->",
        "<script>'<a href=/b>x</a>'</script>",
        "<textarea><a href=/b>x</a></textarea>",
        "<img src=/b>",
        "<meta http-equiv=refresh content=5>",
        "<meta http-equiv=refresh>",
    ],
)
def test_what_leads_to_no_page_is_passed_over(html):
    """And it is no bad link either."""
    one = found(html)

    assert (one.urls, one.bad, one.fault) == ([], 0, None)


@pytest.mark.parametrize(
    "reference",
    ["http://[", "http://a b/", "foo:bar", "http://u:p@h/", "http://127.0.0.1/", "\x01"],
)
def test_a_bad_url_is_counted_and_spoils_nothing(reference):
    """The others are found."""
    one = found(f'<a href="/b">1</a><a href="{reference}">2</a><a href="/c">3</a>')

    assert [url.text for url in one.urls] == ["https://example.org/b", "https://example.org/c"]
    assert one.bad == 1


def test_links_come_in_order_and_once():
    """In the document's order; of two spellings of one identity the first."""
    html = "<a href=/c?b=1&a=2><link rel=next href=/b><a href=/c?a=2&b=1><iframe src=/d></iframe>"

    assert urls(html) == [f"https://example.org/{path}" for path in ("c?b=1&a=2", "b", "d")]


def test_links_are_plain():
    """One level deeper, already parsed, and such that admission need not look twice."""
    links = found("<a href=/b>").links

    assert links == [
        Link(Url("https://example.org/b", "https://example.org/b", "example.org"), depth=3)
    ]
    assert is_ordinary(links[0])


def test_links_are_bounded():
    """No more than are wanted, and it is said that there were more."""
    one = found("".join(f"<a href=/{n}>" for n in range(9)), max_links=5)

    assert [url.text[-1] for url in one.urls] == list("01234")
    assert one.fault == "cut at 5 links"
    assert urls("<a href=/b>", max_links=0) == []


def test_the_first_base_counts():
    """For all links, also those before it; it is itself seen from the page."""
    html = "<a href=x><base><base href='/b/'><base href=/c/><a href=?y><a href=/z>"

    assert urls(html) == [f"https://example.org/{path}" for path in ("b/x", "b/?y", "z")]


@pytest.mark.parametrize("base", ["javascript:x", "http://[", "", "#x", "data:,"])
def test_a_base_that_is_none_changes_nothing(base):
    """Links are seen from the page then."""
    assert urls(f'<base href="{base}"><a href=x>') == ["https://example.org/a/x"]


@pytest.mark.parametrize("rel", ["nofollow", "NoFollow noopener", "ugc", "x sponsored"])
def test_a_link_that_is_not_vouched_for_is_left_out(rel):
    """Unless the setting says to follow it all the same."""
    html = f'<a href=/b rel="{rel}"><a href=/c rel="noopener">'

    assert urls(html) == ["https://example.org/c"]
    assert len(urls(html, nofollow=False)) == 2


@pytest.mark.parametrize(
    ("html", "nofollow", "noindex"),
    [
        ("<meta name=robots content=nofollow>", True, False),
        ("<meta name=ROBOTS content='NoIndex, NoFollow'>", True, True),
        ("<meta name=robots content=none>", True, True),
        ("<meta name=robots content=noindex>", False, True),
        ("<meta name=robots content='index,follow'>", False, False),
        ("<meta name=outrider content=nofollow>", True, False),
        ("<meta name=googlebot content=none>", False, False),
        ("<meta name=robots content=noindex><meta name=Outrider content=nofollow>", True, True),
        ("<meta name=robots>", False, False),
    ],
)
def test_robots_meta_tags_are_obeyed(html, nofollow, noindex):
    """Those to everybody and those to us, added up."""
    one = found(html + "<a href=/b>")

    assert (one.nofollow, one.noindex) == (nofollow, noindex)
    assert len(one.urls) == (not nofollow)


def test_the_product_is_the_name_robots_tags_use():
    """Whatever version and contact follow it."""
    html = "<meta name=mybot content=nofollow><a href=/b>"

    assert urls(html, user_agent="MyBot/2.0 (+https://x)") == []
    assert len(urls(html, user_agent="MyBot/2.0", nofollow=False)) == 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["noindex, nofollow"], NOFOLLOW | NOINDEX),
        (["none"], NOFOLLOW | NOINDEX),
        (["noindex", "nofollow"], NOFOLLOW | NOINDEX),
        (["outrider: nofollow"], NOFOLLOW),
        (["Outrider: noindex, nofollow"], NOFOLLOW | NOINDEX),
        (["googlebot: noindex, nofollow"], 0),
        (["googlebot: noindex, outrider: nofollow"], NOFOLLOW),
        (["googlebot: nofollow", "noindex"], NOINDEX),
        (["unavailable_after: 25 Jun 2010 15:00:00 PST, nofollow"], NOFOLLOW),
        (["max-snippet:-1, noindex"], NOINDEX),
        (["", ",,:"], 0),
    ],
)
def test_robots_headers_speak_to_all_or_to_one(values, expected):
    """A name and a colon address one robot, until the next name."""
    assert header_directives(values, "outrider") == expected


def test_robots_words_are_exact():
    """A word inside another is not that word."""
    assert meta_directives("nofollowing, xnoindex") == 0
    assert meta_directives(" none ") == NOFOLLOW | NOINDEX


def test_a_robots_header_stops_links_of_any_kind():
    """Also of a page that says nothing itself."""
    one = found("<a href=/b>", ("X-Robots-Tag", "noindex"), ("x-robots-tag", "nofollow"))

    assert (one.urls, one.nofollow, one.noindex) == ([], True, True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("</b>; rel=next", [("/b", {"next"}, "")]),
        (
            '</b>;rel="next prefetch", </c> ; REL="prev"',
            [("/b", {"next", "prefetch"}, ""), ("/c", {"prev"}, "")],
        ),
        ('</b,c>; title="a, <x>; \\" b"; rel=next', [("/b,c", {"next"}, "")]),
        ('</b>; rel=alternate; type="text/html"', [("/b", {"alternate"}, "text/html")]),
        ("</b>; rel=next; rel=prev", [("/b", {"next"}, "")]),
        ('</b>; rel=next; anchor="/other"', []),
        ("</b>", [("/b", set(), "")]),
        ("garbage; rel=next", []),
        ("</b", []),
        ("<>; rel=next", [("", {"next"}, "")]),
    ],
)
def test_link_headers_are_read(value, expected):
    """By RFC 8288: quotes, commas in them, several links in one field."""
    assert [
        (one.reference, set(one.names), one.type) for one in link_relations([value])
    ] == expected


def test_headers_add_links_and_the_canonical_address():
    """After those of the page, each once; what belongs to the page itself is no link."""
    link = "</c>; rel=canonical, </b>; rel=next, </s.css>; rel=preload, <http://[>; rel=next"
    one = found("<a href=/b>", ("Link", link))

    assert [url.text for url in one.urls] == ["https://example.org/b", "https://example.org/c"]
    assert (one.canonical, one.bad) == ("https://example.org/c", 1)


def test_headers_lead_on_from_any_kind_of_body():
    """A PDF has a canonical page."""
    one = found(b"%PDF", ("Link", "</b>; rel=canonical"), content_type="application/pdf")

    assert (one.kind, one.canonical) == ("other", "https://example.org/b")
    assert [url.text for url in one.urls] == ["https://example.org/b"]


def test_a_page_says_what_it_is():
    """Title, description, language, canonical address: the first of each."""
    one = found(
        "<html lang=en><title> A\n  title </title><meta name=Description content='Of it'>"
        "<link rel=canonical href=/c><link rel=canonical href=/d><svg><title>no</title></svg>"
    )

    assert (one.kind, one.title, one.description, one.lang, one.canonical) == (
        "html",
        "A title",
        "Of it",
        "en",
        "https://example.org/c",
    )


def test_words_are_bounded():
    """A title of a megabyte is cut."""
    assert len(found(f"<title>{'x' * 100_000}</title>").title) == 1000
    assert found("<title> </title>").title is None


def test_links_can_be_left_alone():
    """Without `follow` a page is read, and leads nowhere."""
    one = found("<title>x</title><a href=/b>", follow=False)

    assert (one.urls, one.title) == ([], "x")


@pytest.mark.parametrize("charset", ["utf-16le", "koi8-r", "gb18030"])
def test_links_are_read_in_the_pages_charset(charset):
    """An escape is of UTF-8, as the standard says."""
    html = "<a href='/я'>".encode(charset)

    assert urls(html, content_type=f"text/html; charset={charset}") == [
        "https://example.org/%D1%8F"
    ]


def test_a_page_at_a_url_that_is_refused_leads_nowhere():
    """And says why."""
    assert found("<a href=/b>", url="http://127.0.0.1/").fault.endswith("private-address")
    private = UrlRules(allow_private=True)
    assert len(urls("<a href=/b>", url="http://127.0.0.1/", rules=private)) == 1


def test_xhtml_is_read_as_html():
    """Under either of its names."""
    body = '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><a href="/b"/></html>'

    for name in ("application/xhtml+xml", "application/xml", "text/xml"):
        assert urls(body, content_type=name) == ["https://example.org/b"]


@pytest.mark.parametrize("name", ["image/png", "text/plain", "application/pdf", "application/zip"])
def test_other_bodies_lead_nowhere(name):
    """They are not searched."""
    one = found("<a href=/b>", content_type=name)

    assert (one.kind, one.urls, one.fault) == ("other", [], None)


@pytest.mark.parametrize("page", ["https://example.org/x/y", "https://example.org/z/?q=/w/"])
@pytest.mark.parametrize(
    "reference",
    ["/b", "b", "../b", "?b", "//h/b", "https://h/b", "https:b", "/", ".", "/\\h", "\\b", "/../b"],
)
def test_what_is_remembered_is_what_would_be_parsed(page, reference):
    """The memory only saves time: after any other page the answer is the parser's own."""
    extract_module._resolve_cached.cache_clear()
    for other in ("https://example.org/x/y", "https://example.org/z/?q=/w/", "http://other.org/"):
        urls(f'<a href="{reference}">', url=other)
    wanted = extract_module.parse_url(reference, UrlRules(), extract_module.parse_url(page))

    assert urls(f'<a href="{reference}">', url=page) == [wanted.text]


def test_long_references_are_not_remembered():
    """So the memory is bounded in bytes too."""
    extract_module._resolve_cached.cache_clear()
    assert len(urls(f"<a href=/{'x' * 300}>")) == 1
    assert extract_module._resolve_cached.cache_info().currsize == 0


PIECES = st.sampled_from(
    [
        *(
            b"<a href=",
            b"<base href=",
            b"<link rel=next href=",
            b"<meta name=robots content=",
            b">",
        ),
        *(
            b"<?xml version='1.0'?>",
            b"<rss>",
            b"<item>",
            b"<link>",
            b"</link>",
            b"<urlset>",
            b"<url>",
        ),
        *(b"<loc>", b"</loc>", b"http://", b"<![CDATA[", b"<!DOCTYPE x [", b"&a;", b"\x1f\x8b\x08"),
        *(
            b"<table>",
            b"<template>",
            b"<svg>",
            b"<title>",
            b'"',
            b"'",
            b"\0",
            b"\xff",
            b"/b",
            b"<!--",
        ),
    ]
)
BODIES = st.lists(PIECES | st.binary(max_size=8), max_size=30).map(b"".join)
TYPES = st.sampled_from(
    [
        *("text/html", "application/xml", "application/rss+xml", "application/json", ""),
        *(
            "text/html; charset=utf-16",
            "text/html; charset=gb18030",
            "application/gzip",
            "text/plain",
        ),
    ]
)


@given(BODIES, TYPES, st.sampled_from(["page", "sitemap"]), st.text(max_size=40))
def test_nothing_makes_reading_raise(body, content_type, kind, header):
    """Whatever a host sends, as whatever: the answer is a value."""
    one = found(
        body, ("Link", header), ("X-Robots-Tag", header), content_type=content_type, type=kind
    )

    assert all(type(url) is Url for url in one.urls)
    assert len({url.identity for url in one.urls}) == len(one.urls)
    assert len(one.links) == len(one.urls)
