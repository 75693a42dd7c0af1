"""Where an anchor stands in its page, told only when it is asked for."""

import pytest

from outrider.core.policy.url_groups import TAG_PATH
from outrider.core.url import UrlRules
from outrider.fetch.document import Document
from outrider.fetch.extract import Extracted, extract_rules
from outrider.fetch.reader import extract
from outrider.settings.worker_schema import FetchSettings

URL = "https://a.example/"
HTML = ("Content-Type", "text/html; charset=utf-8")


def found(body, *fields, **settings):
    """What is read out of a page, with the paths of its anchors unless told else."""
    rules = extract_rules(FetchSettings(**{"tag_path": True, **settings}), UrlRules())
    return extract(Document(URL, (HTML, *fields), body.encode()), rules)


def paths(body, *fields, **settings):
    """URL's last part → the tag path its link carries."""
    links = found(body, *fields, **settings).links
    return {link.url.text.rpartition("/")[2]: link.meta.get(TAG_PATH) for link in links}


@pytest.mark.parametrize(
    ("html", "path"),
    [
        ("<a href=x>", "html>body>a"),
        ("<main class=' big wide'><a class=q href=x>", "html>body>main.big>a.q"),
        ("<p class='9'><a href=x>", "html>body>p>a"),
        ("<p class><a href=x>", "html>body>p>a"),
        ("<ul><li><b><i><u><a href=x>", "ul>li>b>i>u>a"),
        (f"<b class={'c' * 99}><i class={'d' * 99}><a href=x>", None),
    ],
)
def test_a_link_carries_the_tags_around_its_anchor(html, path):
    """The nearest five with their first class, bounded."""
    told = paths(html)["x"]
    assert path is None or told == path
    assert len(told) <= 120


def test_tag_paths_are_absent_unless_wanted():
    """Most crawls do not learn: their links stay plain."""
    one = found("<main><a href=x>", tag_path=False)
    assert one.tag_paths == []
    assert [link.meta for link in one.links] == [{}]


def test_the_first_anchor_to_a_page_counts():
    """Also if another spells its address otherwise."""
    assert paths("<nav><a href=x></nav><main><a href=./x><a href='/y'>") == {
        "x": "html>body>nav>a",
        "y": "html>body>main>a",
    }


def test_links_that_are_no_anchors_have_no_path():
    """Frames, and what headers add."""
    body = "<iframe src=f></iframe><p><a href=x>"
    told = paths(body, ("Link", "</h>; rel=next"))
    assert told == {"f": None, "x": "html>body>p>a", "h": None}


def test_paths_belong_to_their_links_however_many_are_cut():
    """Unfollowed and elsewhere-leading anchors are left out, and the rest is not shifted."""
    body = "<a rel=nofollow href=n><b><a href=mailto:x@a.example></b><i><a href=x></i><u><a href=y>"
    assert paths(body, max_links=1) == {"x": "html>body>i>a"}


def test_a_page_that_wants_no_links_followed_has_no_paths_to_tell():
    """Its anchors are as if they were not there."""
    assert paths("<meta name=robots content=nofollow><p><a href=x>") == {}


def test_paths_cross_to_another_process():
    """A found page is a value."""
    one = Extracted("html", 1, [], tag_paths=["a"])
    assert one.links == []
