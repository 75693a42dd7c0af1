import gzip
import tracemalloc

import pytest

from outrider.core.policy.rules import QueueRules
from outrider.core.task import Lease, PolitenessState
from outrider.core.url import UrlRules
from outrider.fetch import feeds, reader
from outrider.fetch.feeds import MAX_DEPTH, MAX_NESTED_INDEXES, MAX_TOKEN_BYTES, GzipChunks
from outrider.fetch.page import Page
from outrider.fetch.reader import extract_here
from outrider.fetch.response import Response
from outrider.settings.worker_schema import FetchSettings
from outrider.testing.builders import task

URL = "https://example.org/sitemap.xml"
XML = "application/xml"


def found(body, content_type=XML, *fields, type="sitemap", meta=b"", **settings):
    """What is found in a sitemap."""
    about = task(URL, type=type, depth=1, meta=meta)
    lease = Lease("s", 1, 1, about, 1, "w", 60.0, 0, 0, QueueRules(), PolitenessState())
    body = body.encode() if isinstance(body, str) else body
    response = Response(URL, 200, (("Content-Type", content_type), *fields), body, 0.1, 0.0)
    return extract_here(Page(lease, response), FetchSettings(**settings), UrlRules())


def paths(*args, **settings):
    """The links alone, less what they share."""
    return [url.text.removeprefix("https://example.org") for url in found(*args, **settings).urls]


def urlset(*locations):
    """A sitemap of these."""
    entries = "".join(f"<url><loc>{one}</loc></url>" for one in locations)
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'


def index(*locations):
    """A sitemap index of these."""
    entries = "".join(f"<sitemap><loc>{one}</loc></sitemap>" for one in locations)
    return f"<sitemapindex>{entries}</sitemapindex>"


def test_a_sitemap_leads_to_pages():
    """Its entries; an image's address is no entry, and whitespace is none of it."""
    body = """<?xml version="1.0" encoding="UTF-8"?><urlset xmlns:image="x">
    <url><loc> https://example.org/1?a=1&amp;b=2
    </loc><lastmod>2024-01-01</lastmod><image:image><image:loc>https://no/</image:loc></image:image></url>
    <url><loc><![CDATA[/2]]></loc></url><url><loc/></url><url><loc>http://[</loc></url></urlset>"""
    one = found(body)

    assert [url.text[19:] for url in one.urls] == ["/1?a=1&b=2", "/2"]
    assert (one.kind, one.bad, one.fault) == ("sitemap", 1, None)
    link = one.links[0]
    assert (link.type, link.origin, link.depth, link.meta) == ("page", "sitemap", 2, {})


def test_a_sitemap_with_a_prefix_is_read():
    """Names count, prefixes do not."""
    assert paths("<s:urlset xmlns:s='x'><s:url><s:loc>/1</s:loc></s:url></s:urlset>") == ["/1"]


def test_an_index_leads_to_sitemaps():
    """Which know that an index led there."""
    links = found(index("/a.xml", "/b.xml.gz")).links

    assert [(one.url.text[19:], one.type, one.origin, one.meta) for one in links] == [
        ("/a.xml", "sitemap", "sitemap", {"indexes": 1}),
        ("/b.xml.gz", "sitemap", "sitemap", {"indexes": 1}),
    ]


def test_an_index_that_leads_to_itself_comes_to_an_end():
    """Each level counts, and at the last nothing is read any more."""
    meta = b""
    for level in range(MAX_NESTED_INDEXES):
        (link,) = found(index(URL + f"?{level}"), meta=meta).links
        meta = b'{"indexes":%d}' % link.meta["indexes"]
    last = found(index(URL), meta=meta)

    assert (last.urls, last.fault) == ([], "more than 3 sitemap indexes, one in another")
    assert paths(urlset("/1"), meta=meta) == ["/1"]


def test_a_sitemap_is_known_by_its_first_tag():
    """Whatever name and task it comes under."""
    for name in ("text/html", "text/xml", "text/plain", "", "application/octet-stream"):
        assert paths(urlset("/1"), name) == ["/1"]
    assert paths(urlset("/1"), "text/html", type="page") == ["/1"]


def test_a_plain_text_sitemap_is_a_line_each():
    """If it was asked for as a sitemap; other text is none."""
    body = b"\xef\xbb\xbfhttps://example.org/1\r\n\r\n  https://example.org/2  \nnot a URL\n"

    assert paths(body, "text/plain") == ["/1", "/2"]
    assert paths(gzip.compress(body), "application/gzip") == ["/1", "/2"]
    assert paths(body, "text/plain", type="page") == []


@pytest.mark.parametrize("name", ["application/gzip", "application/x-gzip", XML, "", "text/html"])
def test_a_packed_sitemap_is_unpacked(name):
    """By its bytes, whatever its name."""
    assert paths(gzip.compress(urlset("/1", "/2").encode()), name) == ["/1", "/2"]
    assert paths(gzip.compress(urlset("/1").encode()), name, type="page") == ["/1"]


def test_a_packed_sitemap_is_read_in_its_charset():
    """The same as an unpacked one."""
    body = f'<?xml version="1.0" encoding="iso-8859-1"?>{urlset("/ä")}'.encode("latin-1")

    assert paths(gzip.compress(body)) == ["/%C3%A4"]


def test_another_archive_is_left_alone():
    """It is not unpacked further than its beginning."""
    one = found(gzip.compress(b"\0" * 1_000_000), "application/gzip", type="page")

    assert (one.kind, one.urls, one.fault) == ("other", [], None)


def test_a_packed_sitemap_that_is_cut_keeps_its_beginning():
    """And says so."""
    whole = gzip.compress(urlset(*(f"/{n}" for n in range(5000))).encode())
    one = found(whole[: len(whole) // 2])

    assert 0 < len(one.urls) < 5000
    assert one.fault is not None


def test_a_packed_sitemap_that_is_damaged_keeps_its_beginning():
    """What comes after is not trusted."""
    whole = bytearray(gzip.compress(urlset(*(f"/{n}" for n in range(20_000))).encode()))
    whole[len(whole) // 2 :] = b"\xff" * 100
    one = found(bytes(whole))

    assert 0 < len(one.urls) < 20_000
    assert one.fault is not None


def test_a_zip_bomb_is_cut():
    """Five times max_body is read, and no more memory is taken than a piece at a time."""
    bomb = gzip.compress(b"<urlset>" + b" " * 20_000_000)
    tracemalloc.start()
    one = found(bomb, max_body=1024 * 1024)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (one.urls, one.kind) == ([], "sitemap")
    assert one.fault is not None
    assert peak < 4_000_000


def test_unpacking_is_exact_about_its_bound():
    """As many bytes as allowed are whole; one more is too many."""
    packed = gzip.compress(b"x" * 1000)
    whole, cut = GzipChunks(packed, 1000), GzipChunks(packed, 999)

    assert (b"".join(whole), whole.fault) == (b"x" * 1000, None)
    assert (b"".join(cut), cut.fault) == (b"x" * 999, "unpacks to too many bytes")


BILLION_LAUGHS = """<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "/1">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>
<urlset><url><loc>&c;</loc></url></urlset>"""
QUADRATIC = f"<!DOCTYPE x [<!ENTITY a '{'x' * 100_000}'>]>" + urlset("&a;" * 1000)
EXTERNAL = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + urlset("&a;")
PARAMETER = '<!DOCTYPE x [<!ENTITY % a SYSTEM "http://127.0.0.1/x.dtd"> %a;]><urlset/>'


@pytest.mark.parametrize("body", [BILLION_LAUGHS, QUADRATIC, EXTERNAL, PARAMETER])
def test_entities_are_refused(body):
    """Neither expanded nor fetched: nothing is read."""
    one = found(body)

    assert (one.urls, one.fault) == ([], "a document type of its own is not read")
    assert found(gzip.compress(body.encode())).fault == one.fault


def test_an_unknown_entity_is_passed_over():
    """Sites write `&nbsp;` where XML has none."""
    assert paths(urlset("/1&nbsp;", "/2")) == ["/1", "/2"]


def test_an_external_document_type_is_not_fetched():
    """It may be named; it is ignored."""
    assert paths('<!DOCTYPE urlset SYSTEM "http://127.0.0.1/x.dtd">' + urlset("/1")) == ["/1"]


def test_nesting_is_bounded():
    """What was read before is kept."""
    body = "<urlset><url><loc>/1</loc></url>" + "<x>" * (MAX_DEPTH + 1)
    one = found(body)

    assert len(one.urls) == 1
    assert one.fault == f"elements are nested deeper than {MAX_DEPTH}"


@pytest.mark.parametrize("opening", ["<!--", "<x y='", "<x ", "<?x "])
def test_a_token_without_end_is_given_up(opening):
    """An XML parser reads one again with every piece: that would take quadratic time."""
    body = "<urlset><url><loc>/1</loc></url>" + opening + "y" * (4 * MAX_TOKEN_BYTES)
    one = found(body)

    assert len(one.urls) == 1
    assert one.fault == "a tag or comment is too long"


def test_an_address_without_end_is_no_address():
    """It is cut, and refused for its length."""
    one = found(urlset("/" + "x" * 100_000, "/2"))

    assert [url.text for url in one.urls] == ["https://example.org/2"]
    assert one.bad == 1


def test_a_sitemap_is_cut_at_what_the_protocol_allows(monkeypatch):
    """Fifty thousand; fewer if fewer links are wanted."""
    assert feeds.MAX_SITEMAP_URLS == 50_000
    monkeypatch.setattr(reader, "MAX_SITEMAP_URLS", 100)
    many = urlset(*(f"/{n}" for n in range(105)))

    assert len(found(many).urls) == 100
    assert found(many, max_links=10).fault == "cut at 10 links"


def test_a_sitemap_is_followed_without_follow():
    """`follow` is about links of pages; but what a header forbids is forbidden."""
    assert paths(urlset("/1"), follow=False) == ["/1"]
    assert paths(urlset("/1"), XML, ("X-Robots-Tag", "noindex, follow")) == ["/1"]
    assert paths(urlset("/1"), XML, ("X-Robots-Tag", "nofollow")) == []
