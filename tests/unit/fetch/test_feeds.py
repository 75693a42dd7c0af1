import pytest

from outrider.core.policy.rules import QueueRules
from outrider.core.task import Lease, PolitenessState
from outrider.core.url import UrlRules
from outrider.fetch.page import Page
from outrider.fetch.reader import extract_here
from outrider.fetch.response import Response
from outrider.settings.worker_schema import FetchSettings
from outrider.testing.builders import task

URL = "https://example.org/feed/all.xml"


def found(body, content_type="application/xml", **settings):
    """What is found in a feed."""
    lease = Lease("s", 1, 1, task(URL), 1, "w", 60.0, 0, 0, QueueRules(), PolitenessState())
    body = body.encode() if isinstance(body, str) else body
    response = Response(URL, 200, (("Content-Type", content_type),), body, 0.1, 0.0)
    return extract_here(Page(lease, response), FetchSettings(**settings), UrlRules())


def paths(*args, **settings):
    """The links alone, less what they share."""
    return [url.text.removeprefix("https://example.org") for url in found(*args, **settings).urls]


RSS_2 = """<?xml version="1.0"?>
<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel>
<title>A  feed</title><link>https://example.org/home</link>
<atom:link rel="self" href="https://example.org/feed"/><atom:link rel="next" href="/feed/2"/>
<image><link>https://example.org/image</link><title>no</title></image>
<item><title>1</title><link> https://example.org/1?a=1&amp;b=2 </link><guid>https://example.org/1g</guid></item>
<item><link><![CDATA[https://example.org/2]]></link><guid isPermaLink="false">https://no/</guid></item>
<item><guid>urn:x</guid><description>&lt;a href="/no"&gt;</description><link>/3</link></item>
</channel></rss>"""

ATOM = """<feed xmlns="http://www.w3.org/2005/Atom" xml:base="/blog/"><title>B</title>
<link href="/home"/><link rel="next" href="?page=2"/>
<entry><link href="1"/><link rel="edit" href="/no"/><link rel="enclosure" href="/no.mp3"/></entry>
<entry><link rel="alternate" type="text/html" href="/2"/>
<content type="xhtml"><a href="/no"/></content></entry>
</feed>"""

RDF = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/">
<channel rdf:about="x"><title>C</title><link>https://example.org/home</link></channel>
<item rdf:about="https://example.org/1"><link>https://example.org/1</link></item></rdf:RDF>"""

RSS_091 = """<!DOCTYPE rss PUBLIC "-//Netscape//DTD RSS 0.91//EN" "http://my.netscape.com/rss.dtd">
<rss version="0.91"><channel><title>D&nbsp;E</title><item><link>/1</link></item></channel></rss>"""

JSON = """{"version": "https://jsonfeed.org/version/1.1", "title": "J", "next_url": "/next",
"items": [{"id": "1", "url": "/1"}, {"id": "2", "external_url": "/2"}, {"id": "3"}]}"""


@pytest.mark.parametrize(
    ("body", "title", "expected"),
    [
        (RSS_2, "A feed", ["/feed/2", "/1?a=1&b=2", "/1g", "/2", "/3"]),
        (ATOM, "B", ["/blog/?page=2", "/blog/1", "/2"]),
        (RDF, "C", ["/1"]),
        (RSS_091, "DE", ["/1"]),
    ],
)
def test_feeds_lead_to_their_items(body, title, expected):
    """The pages of items and the next part of the feed; nothing that is in a page's text."""
    one = found(body)

    assert [url.text.removeprefix("https://example.org") for url in one.urls] == expected
    assert (one.kind, one.title, one.bad, one.fault) == ("feed", title, 0, None)


def test_a_json_feed_leads_to_its_items():
    """Under either of its names."""
    for name in ("application/feed+json", "application/json"):
        one = found(JSON, name)
        assert (one.kind, one.title) == ("feed", "J")
        assert paths(JSON, name) == ["/1", "/2", "/next"]


@pytest.mark.parametrize("body", ["{}", "[1]", JSON[:-9], '{"items": "jsonfeed.org/version"}'])
def test_other_json_leads_nowhere(body):
    """And is no fault."""
    one = found(body, "application/json")

    assert (one.kind, one.urls, one.fault) == ("other", [], None)


def test_links_of_a_feed_say_where_they_come_from():
    """Their origin is the feed; they are pages, one level deeper."""
    (link, *_) = found(RDF).links

    assert (link.type, link.origin, link.depth, link.meta) == ("page", "feed", 1, {})


@pytest.mark.parametrize(
    "name", ["text/html", "text/xml", "application/rss+xml", "text/html; charset=x"]
)
def test_a_feed_is_known_by_its_first_tag(name):
    """Whatever name it comes under."""
    assert paths(RDF, name) == ["/1"]


@pytest.mark.parametrize("codec", ["utf-8", "iso-8859-1", "shift_jis", "utf-16"])
def test_a_feed_is_read_in_its_charset(codec):
    """Also in those that the XML parser does not know."""
    body = f'<?xml version="1.0" encoding="{codec}"?><rss><item><link>/1</link></item></rss>'

    assert paths(body.encode(codec)) == ["/1"]


def test_the_charset_of_the_header_comes_first():
    """As for HTML."""
    body = "<rss><item><link>/ä</link></item></rss>".encode("latin-1")

    assert paths(body, "application/rss+xml; charset=iso-8859-1") == ["/%C3%A4"]


def test_what_stands_before_a_fault_is_kept():
    """A feed that is cut, or wrong at its end, leads to what could be read; the fault is told."""
    one = found("<rss><item><link>/1</link></item><item><link>/2</item></rss>")

    assert [url.text for url in one.urls] == ["https://example.org/1"]
    assert one.fault.startswith("malformed: mismatched tag")


@pytest.mark.parametrize("piece", ["<x", "</x>", "\x01", "&", "<!--"])
def test_a_fault_is_no_exception(piece):
    """Whatever is wrong."""
    one = found(f"<rss><item><link>/1</link></item>{piece}")

    assert len(one.urls) == 1
    assert one.fault.startswith("malformed")


def test_other_xml_leads_nowhere():
    """An SVG is no feed."""
    one = found("<svg><link>/1</link></svg>", "image/svg+xml")

    assert (one.kind, one.urls) == ("other", [])


def test_a_feed_obeys_what_was_asked():
    """No more links than wanted; none without `follow`."""
    assert paths(RSS_2, max_links=1) == ["/feed/2"]
    assert paths(RSS_2, follow=False) == []
