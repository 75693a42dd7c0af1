import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from outrider import PageTooCostly
from outrider.core.policy.rules import QueueRules
from outrider.core.task import Lease, PolitenessState
from outrider.fetch.document import Document
from outrider.fetch.page import Page
from outrider.fetch.parse_cost import (
    LARGE_PAGE,
    MAX_COPIED_BYTES,
    copied_bytes,
    may_be_costly,
    tree_bytes,
)
from outrider.fetch.response import Response
from outrider.testing.builders import task

NAMES = ["a", "b", "big", "code", "em", "font", "i", "nobr"]
NAMES += ["s", "small", "strike", "strong", "tt", "u"]
FILLER = " ".join(f"attribute{number}=x" for number in range(20))

# Pages of a few kilobytes on the wire whose trees would take hundreds of megabytes or seconds.
BOMBS = {
    "formatting × paragraphs": "<p>" + "".join(f"<b id={n}>" for n in range(900)) + "<p>x" * 1000,
    "… × attributes": "<p>" + "".join(f"<b id={n} {FILLER}>" for n in range(200)) + "<p>x" * 900,
    "every name": "<p>" + "".join(f"<{t} id={n}>" for n in range(70) for t in NAMES) + "<p>x" * 900,
    "in capitals": "<P>" + "".join(f"<B ID={n}>" for n in range(900)) + "<P>x" * 1000,
    "one long value": f"<p><b title={'x' * 100_000}>" + "<p>x" * 1900,
    "one long value, quoted": f"<p><b title='{'x' * 100_000}'>" + "<p>x" * 1900,
    "one long value, adopted": f"<b title={'x' * 100_000}>" + "<div>" * 1800 + "</b>" * 100,
    "list items": "<ul><li>" + "".join(f"<i id={n}>" for n in range(900)) + "</ul><ul><li>x" * 500,
    "divisions": "<div>" + "".join(f"<u id={n}>" for n in range(900)) + "</div><div>x" * 500,
    "table cells": "<table>" + "".join(f"<b id={n}>" for n in range(900)) + "<tr><td>x" * 500,
    "ends within values": "<p>"
    + "".join(f"<b id={n} t='</b>'>" for n in range(900))
    + "<p>x" * 900,
    "ends within comments": "<p>" + "<b id={0}><!--</b>-->" * 500 + "<p>x" * 800,
    "ends within scripts": "<p>" + "<b><script></b></script>" * 300 + "<p>x" * 500,
    "ends within text areas": "<p>" + "<b><textarea></b></textarea>" * 300 + "<p>x" * 500,
    "ends out of scope": "<p>" + "<b><object></b></object>" * 400 + "<p>x" * 500,
    "ends within cells": "<p>" + "<b><table><td></b></table>" * 300 + "<p>x" * 500,
    "ends behind nine blocks": "<p>" + ("<a>" + "<div>" * 9 + "</a>") * 150 + "<p>x" * 500,
    "anchors in anchors": "<p>" + ("<a xx=1>" + "<div>" * 9) * 190 + "<p>x" * 100,
    "a quote where none belongs": "<p>" + '<b x"y="></b><i ">' * 300 + "<p>x" * 500,
    "a value without a name": "<p>" + '<b ="x="></b><i ">' * 300 + "<p>x" * 500,
    "attributes of the body": "".join(
        "<body " + " ".join(f"a{n:x}" for n in range(start, start + 60)) + ">"
        for start in range(0, 30_000, 60)
    ),
    "attributes of the root": "".join(f"<html a{n}=1>" for n in range(1900)),
    "attributes of one tag": "<p " + " ".join(f"a{n}" for n in range(30_000)) + ">",
    "elements in one another": "<div>" * 200_000,
    "elements side by side": "<b></b>" * 1_000_000,
    "select": "<select>" + "<option>" * 100_000,
}


def page(body, content_type="text/html; charset=utf-8"):
    """A page as a visit makes it."""
    lease = Lease(
        "s", 1, 1, task("https://a.example/"), 1, "w", 60.0, 0, 0, QueueRules(), PolitenessState()
    )
    return Page(lease, Response(lease.url, 200, (("Content-Type", content_type),), body, 0.1, 0.0))


@pytest.mark.parametrize("name", BOMBS)
def test_bomb_may_be_costly(name):
    """Whatever makes its end tags ineffective; and the answer is cheap."""
    assert may_be_costly(BOMBS[name].encode())


def test_html_in_utf_16_is_judged_as_it_is_parsed():
    """The bound is taken of what the parser is given, not of the bytes on the wire."""
    body = BOMBS["formatting × paragraphs"].encode("utf-16")

    assert Document("", (("Content-Type", "text/html"),), body).is_costly


PIECES = [
    *(f"<{name}>" for name in ("b", "i", "a", "nobr", "font size=1", "em class=x", "a href='/x'")),
    *(f"</{name}>" for name in ("b", "i", "a", "nobr", "font", "em", "p", "div", "table", "td")),
    *(f"<{name}>" for name in ("p", "div", "h1", "span", "li", "ul", "table", "tr", "td", "svg")),
    *("x", "</span>", "</object>", "<object>", "<button>", "</button>", "<!--", "-->", "<script>"),
    *("</script>", "<b id='", '<i title=">', '"', "'", ">", "<select>", "</select>", "<template>"),
    *("</template>", "<b>x</b>", "<a href='/y'><b>x</b></a>", "<math>", "<mi>", "</svg>"),
    *("<b id=1>", "<b id=2>", "<b id=3>", "<b id=4>", "<b id=5>", "<i id=1>", "<i id=2>"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=30), st.lists(st.sampled_from(PIECES)))
def test_tree_of_any_soup_takes_no_more_than_its_bound(before, again):
    """Copies of elements that are not contained are bounded; those that are, are copied little."""
    source = "".join([*before, *again * 20])
    bound = copied_bytes(source.lower().encode())
    if bound is None:
        return
    own = tree_bytes(_closed(source))

    assert tree_bytes(LexborHTMLParser(source).html) <= bound + 4 * own + 2000


def _closed(source):
    """A page in which every element has its end tag, and attributes are written out."""
    return re.sub(r"(<[a-z][^>]*>)", r"\1</x>", source).replace("=", '="')


MEASURE = """
import asyncio, resource, sys
sys.path[:0] = {path!r}
from test_parse_cost import BOMBS, page
from outrider import PageTooCostly
from outrider.core.url import UrlRules
from outrider.fetch.reader import Reader
from outrider.settings.worker_schema import FetchSettings

def taken():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

async def main():
    async with Reader(FetchSettings(), UrlRules(), seconds=1.0, memory=100 * 2**20) as reader:
        await reader.read(page(b"<a href=x>"))
        before = taken()
        for name in {names!r}:
            one = page(BOMBS[name].encode())
            await reader.read(one)
            assert one.found.fault and one.found.urls == [], name
            try:
                one.html
            except PageTooCostly:
                continue
            raise AssertionError(name)
        print(taken() - before)

asyncio.run(main())
"""


@pytest.mark.slow
def test_bombs_do_not_grow_the_crawling_process():
    """Read by the crawl and asked for by a handler: the process grows by less than 300 MB."""
    names = ["formatting × paragraphs", "… × attributes", "one long value", "divisions"]
    script = MEASURE.format(path=[path for path in sys.path if path] + [_here()], names=names)
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)

    assert told.returncode == 0, told.stderr.decode()
    assert int(told.stdout) < 300_000  # kilobytes; macOS tells bytes, and has no such limit


def test_handler_asking_for_the_tree_of_a_bomb_is_refused():
    """Also if the crawl did not read the page; what is merely large is parsed."""
    bomb = page(BOMBS["… × attributes"].encode(), "application/json")
    large = page(b"<p>" + b"words " * 50_000)

    with pytest.raises(PageTooCostly, match=r"page\.text or page\.body"):
        bomb.css("p")
    assert len(large.css("p")) == 1
    assert large.tree_fault == ""


def _here():
    return __file__.rpartition("/")[0]


def test_bound_grows_with_size_and_not_only_with_count():
    """One heavy element, opened again in every paragraph, is as bad as many light ones."""
    light = "<p><b title='x'>" + "<p>x" * 1000
    heavy = f"<p><b title='{'x' * 100_000}'>" + "<p>x" * 1000

    assert len(heavy) < LARGE_PAGE
    assert copied_bytes(light.encode()) < MAX_COPIED_BYTES < copied_bytes(heavy.encode())
