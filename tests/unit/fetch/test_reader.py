import gzip

import pytest

from outrider.core.policy.rules import QueueRules
from outrider.core.task import Lease, PolitenessState
from outrider.core.url import UrlRules
from outrider.fetch.page import Page
from outrider.fetch.parse_cost import LARGE_PAGE, MAX_START_TAGS, MAX_TAGS, SMALL_PAGE
from outrider.fetch.reader import Reader, needs_child
from outrider.fetch.response import Response
from outrider.settings.worker_schema import FetchSettings
from outrider.testing.builders import task

URL = "https://example.org/a/"
HTML = "text/html; charset=utf-8"
ATTRIBUTES = b" ".join(b"a%d" % n for n in range(5000))


def page(body, content_type=HTML, *, type="page", url=URL):
    """A page as a visit makes it."""
    about = task(url, type=type, depth=2)
    lease = Lease("s", 1, 1, about, 1, "w", 60.0, 0, 0, QueueRules(), PolitenessState())
    return Page(lease, Response(url, 200, (("Content-Type", content_type),), body, 0.1, 0.0))


@pytest.mark.parametrize(
    "body",
    [
        b"x" * (LARGE_PAGE + 1),
        b"<b>" * (MAX_START_TAGS + 1),
        b"<b></b>" * MAX_TAGS,
        b"<p " + ATTRIBUTES + b">",
        b"<p x=1>" * 99 + b"<p/" + ATTRIBUTES.replace(b" ", b"/") + b">",
        b"<p x='>' y=\">\" " + ATTRIBUTES + b">",
        b'<p x"y=">" ' + ATTRIBUTES + b">",
        b'<p =" z=">" ' + ATTRIBUTES + b">",
        b"<p " + ATTRIBUTES.replace(b" ", b'="1"') + b">",
        b"<p a = 1 b=' ' " + ATTRIBUTES.replace(b" ", b"='>' ") + b">",
        b"<p <p " + ATTRIBUTES + b">",
    ],
)
def test_dangerous_pages_are_recognised(body):
    """Too large, too many tags, or a tag of too many attributes however it hides its end."""
    assert needs_child(page(body))


def test_page_in_utf_16_is_judged_by_its_characters():
    """Its bytes look like no tags at all."""
    plain, bomb = "<p>" + "x" * SMALL_PAGE, "<p>" + "<b id=1>" * 500 + "<p>x" * 500

    assert needs_child(page(bomb.encode("utf-16"), "text/html"))
    assert not needs_child(page(plain.encode("utf-16"), "text/html"))
    assert not needs_child(page(plain.encode("koi8-r"), "text/html; charset=koi8-r"))


@pytest.mark.parametrize(
    "body",
    [
        b"<p>hello",
        b"<div class='a b' id=x><a href='/b' data-x='&lt;'>x</a></div>" * 500,
        b"<script>" + b"if (a < b) { c = d / e; } " * 1500 + b"</script>",
        b"<p>" + b"words and more words " * 5000,
        b"<li><a class='card' href='/b'><div><img src=x><h3>T</h3><p>t <b>x</b></p></div></a>"
        * 200,
        b'<a href="/b"><svg viewBox="0 0 1 1"><path d="M0 0"/></svg> <span>x</span></a>' * 500,
        b"<p>some <em>words <strong>within</strong> words</em> <A HREF=/b>x</A >" * 500,
        b"<p>left open: <b>x<p><i>y" + b"<p>and so on" * 500,
    ],
)
def test_ordinary_pages_are_not_dangerous(body):
    """They are read at once."""
    assert not needs_child(page(body))


def test_what_leads_nowhere_is_not_dangerous():
    """An image of any size is not read at all."""
    assert not needs_child(page(b"x" * (LARGE_PAGE + 1), "image/png"))


def test_what_is_packed_is_dangerous():
    """A few bytes may unpack to many."""
    assert needs_child(page(gzip.compress(b"<urlset/>"), "application/xml"))


async def test_an_ordinary_page_is_read_here():
    """No process is started for it; the page knows what was found."""
    async with Reader(FetchSettings(), UrlRules()) as reader:
        one = page(b"<title>T</title><a href=b>")
        found = await reader.read(one)
        assert not reader._children._alive

    assert (one.found, one.links, one.title) == (found, found.links, "T")
    assert [link.url.text for link in one.links] == ["https://example.org/a/b"]


async def test_a_dangerous_page_is_read_apart_with_the_same_result():
    """Whichever way, the answer is one."""
    html = b"<html lang=en><title>T</title><link rel=canonical href=c>" + b"<a href=b><p>" * 9
    large = html + b" " * LARGE_PAGE
    sitemap = gzip.compress(b"<sitemapindex><sitemap><loc>/s</loc></sitemap></sitemapindex>")
    async with Reader(FetchSettings(), UrlRules()) as reader:
        here, there = await reader.read(page(html)), await reader.read(page(large))
        assert reader._children._alive
        packed = page(sitemap, "application/gzip", type="sitemap")
        await reader.read(packed)

    assert here == there
    assert [(one.url.text, one.type, one.meta) for one in packed.links] == [
        ("https://example.org/s", "sitemap", {"indexes": 1})
    ]


async def test_a_page_that_is_read_apart_keeps_the_places_of_its_links():
    """K3: costly pages are no exception."""
    large = page(b"<nav><a rel=next href=b></a></nav>" + b" " * LARGE_PAGE)
    async with Reader(FetchSettings(), UrlRules(), places=True) as reader:
        await reader.read(large)

    assert [link.found for link in large.links] == ["next nav"]


async def test_a_page_that_takes_too_long_leads_nowhere():
    """Nested so that a parser takes quadratic time: it is given up, and the next page is read."""
    async with Reader(FetchSettings(), UrlRules(), seconds=1.0) as reader:
        slow = await reader.read(page(b"<div>" * 200_000))
        well = await reader.read(page(b"<a href=b>" + b" " * LARGE_PAGE))

    assert (slow.kind, slow.urls, slow.fault) == ("other", [], "time: took longer than 1 s")
    assert len(well.urls) == 1


async def test_a_page_that_takes_too_much_memory_leads_nowhere():
    """The bound is the child's; nothing else notices."""
    async with Reader(FetchSettings(), UrlRules(), memory=32 * 2**20) as reader:
        found = await reader.read(page(b"<a href=b></a>" * 500_000))

    assert found.urls == []
    assert found.fault is not None
