"""Where on a page its links are, found out only when it is asked for."""

import pytest

from outrider.core.task import DEFAULT_TYPE
from outrider.core.url import UrlRules
from outrider.fetch.document import Document
from outrider.fetch.extract import extract_rules
from outrider.fetch.reader import extract
from outrider.settings.worker_schema import FetchSettings

URL = "https://a.example/"
HTML = ("Content-Type", "text/html; charset=utf-8")
XML = ("Content-Type", "application/xml")


def read(body, *fields, places=True, media=HTML, **settings):
    """What is read out of a document."""
    rules = extract_rules(FetchSettings(**settings), UrlRules(), places=places)
    return extract(Document(URL, (media, *fields), body.encode()), rules)


def places(body, *fields, **how):
    """URL's last part → where it was found."""
    return {one.url.text.rpartition("/")[2]: one.found for one in read(body, *fields, **how).links}


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ("<a href=x>", None),
        ("<p><b><a href=x>", None),
        ("<nav><ul><li><a href=x>", "nav"),
        ("<main><a href=x>", "main"),
        ("<main><article><p><a href=x>", "article main"),
        ("<aside><a href=x>", "aside"),
        ("<footer><a href=x>", "footer"),
        ("<header><nav><a href=x>", "nav header"),
        ("<div role=navigation><a href=x>", "nav"),
        ("<div role=' Main '><a href=x>", "main"),
        ("<section role=contentinfo><a href=x>", "footer"),
        ("<div role=presentation><a href=x>", None),
        ("<article><header><a href=x>", "article"),
        ("<main><footer><a href=x>", "main"),
        ("<main><nav><a href=x>", "nav main"),
        ("<nav><nav><a href=x>", "nav"),
        ("<map><area href=x>", None),
        ("<nav><map><area href=x>", "nav"),
        ("<a rel='next nofollow' href=x>", "next"),
        ("<nav><a rel=prev href=x>", "prev nav"),
        ("<a rel='TAG' href=x>", "tag"),
        ("<link rel=canonical href=x>", "canonical"),
        ("<link rel=next href=x>", "next"),
        ("<link rel=alternate type=application/rss+xml href=x>", "alternate"),
        ("<iframe src=x>", "frame"),
    ],
)
def test_link_says_in_which_parts_of_its_page_it_is(html, found):
    """K3: the elements around it, the innermost first, by tag or role; and what it is to the page.

    Headers and footers of a part of the page are none of the page, as in HTML.
    """
    assert places(html, nofollow=False) == {"x": found}


def test_link_that_is_in_several_places_has_all_of_them():
    """K3: a menu before the content does not hide that an article leads to it."""
    html = "<nav><a href=x></nav><main><a href=./x><a href='/y'></main><footer><a href=/x>"

    assert places(html) == {"x": "nav main footer", "y": "main"}


def test_places_are_as_many_as_a_link_may_have():
    """B4: whatever a page says, its links are valid."""
    relations = "canonical next prev alternate tag author bookmark help license"
    (link,) = read(f"<nav><a rel='{relations}' href=x>").links

    assert len(link.found.split()) == 8


def test_places_are_absent_unless_wanted():
    """K3: links of most crawls stay plain."""
    found = read("<nav><a rel=next href=x>", places=False)

    assert found.places == []
    assert [link.found for link in found.links] == [None]


def test_header_fields_say_what_their_links_are():
    """K3: they come after the links of the page."""
    field = ("Link", '</n>; rel="next", </c>; rel=canonical, </x>; rel=next')

    assert places("<nav><a href=x><a href=y></nav>", field) == {
        "x": "nav",
        "y": "nav",
        "n": "next",
        "c": "canonical",
    }
    assert places("no links", field)["n"] == "next"
    assert places("<nav><a href=x>", field, places=False) == dict.fromkeys("xnc")


def test_links_that_are_not_followed_have_no_places():
    """K2: nothing is left of them."""
    assert read("<meta name=robots content=nofollow><nav><a href=x>").places == []


def test_deep_page_is_looked_at_once():
    """K3: a page of anchors in anchors' ancestors costs linear time, and a bounded depth."""
    html = "<nav>" + "<i>" * 400 + "<a href=x></a>" + "</i>" * 400 + "<b>" * 600 + "<a href=y></a>"
    found = places(html)

    assert found["x"] == "nav"
    assert found["y"] in (None, "nav")


@pytest.mark.parametrize(
    ("body", "kind", "origin"),
    [
        ("<rss><channel><item><link>https://a.example/1</link></item></channel></rss>", "feed", 1),
        ("<urlset><url><loc>https://a.example/1</loc></url></urlset>", "sitemap", 1),
    ],
)
def test_items_of_feeds_and_sitemaps_bring_no_type(body, kind, origin):
    """B1: `types` decides by their origin; without it they have the default."""
    found = read(body, media=XML)
    (link,) = found.links

    assert (found.kind, link.origin, len(found.links)) == (kind, kind, origin)
    assert link.type is DEFAULT_TYPE


def test_index_of_sitemaps_brings_its_type():
    """K3: these are read as sitemaps, whatever `types` says of pages."""
    body = "<sitemapindex><sitemap><loc>https://a.example/1.xml</loc></sitemap></sitemapindex>"

    assert [link.type for link in read(body, media=XML).links] == ["sitemap"]
