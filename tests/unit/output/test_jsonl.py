"""Pages and items as JSON lines."""

import json
import re

import pytest
from msgspec.structs import replace

from outrider import Blocked, Done, Dropped, Failed, InvalidInput, Link, Throttled, Unreachable
from outrider.core.url import parse_url
from outrider.errors import OutputError
from outrider.output.jsonl import jsonl_sink


@pytest.fixture
def sink(tmp_path):
    """Where pages go."""
    opened = jsonl_sink(tmp_path / "news", body=False)
    yield opened
    opened.close()


@pytest.fixture
def written(sink, tmp_path, kit):
    """What a visit becomes."""

    def write(*visits, name="news.jsonl"):
        sink.write(visits)
        sink.settle([True] * len(visits))
        return kit.lines(tmp_path / name)

    return write


async def test_a_page_becomes_one_line_with_all_that_is_known_of_it(written, claimed, kit):
    """Nothing that is known is left out."""
    (lease,) = await claimed(1, depth=2, via="https://a.test/", tag="t", meta={"k": [1, "ü"]})
    links = [Link("https://b.test/"), Link(parse_url("https://C.test/x y"))]
    outcome = Done(200, etag='"e"', last_modified="then")
    page = {"canonical": "https://c.test/", "charset": "utf-8"}

    (line,) = written(kit.visit(lease, outcome=outcome, links=links, **page))

    assert line == {
        "url": lease.url,
        "status": 200,
        "at": "2023-11-14T22:13:20.125Z",
        "seconds": 0.25,
        "bytes": 12,
        "depth": 2,
        "type": "text/html",
        "charset": "utf-8",
        "title": "Hello",
        "via": "https://a.test/",
        "tag": "t",
        "digest": "d1",
        "etag": '"e"',
        "last_modified": "then",
        "canonical": "https://c.test/",
        "meta": {"k": [1, "ü"]},
        "links": ["https://b.test/", "https://c.test/x%20y"],
    }


def test_what_is_not_known_is_left_out(written, leases, kit):
    """But a page without links has none, and a seed has depth 0."""
    bare = dict.fromkeys(("media_type", "charset", "title", "digest"))

    (line,) = written(kit.visit(leases[0], **bare))

    assert list(line) == ["url", "status", "at", "seconds", "bytes", "depth", "links"]
    assert (line["links"], line["depth"]) == ([], 0)


def test_redirect_has_its_target(written, leases, kit):
    """As the page tells it."""
    (line,) = written(kit.visit(leases[0], status=301, location="https://b.test/"))

    assert (line["status"], line["redirect"]) == (301, "https://b.test/")


def test_page_from_the_cache_is_marked(written, leases, kit):
    """So that it is not taken for a fresh one."""
    (line,) = written(kit.visit(leases[0], from_cache=True))

    assert line["from_cache"] is True


def test_the_text_is_written_if_it_is_wanted(tmp_path, leases, kit):
    """As text, with its newlines escaped."""
    sink = jsonl_sink(tmp_path / "news", body=True)
    sink.write([kit.visit(leases[0], text="one\ntwo\u2028three")])
    sink.close()

    assert (tmp_path / "news.jsonl").read_bytes().count(b"\n") == 1
    assert json.loads((tmp_path / "news.jsonl").read_text())["body"] == "one\ntwo\u2028three"


def test_only_visits_that_were_answered_are_written(written, leases, kit):
    """Others come back, or have nothing to show."""
    others = [Failed("x"), Throttled(), Blocked("x"), Unreachable("x"), Dropped("x")]
    visits = [
        kit.visit(lease, outcome=outcome, items=[{"a": 1}])
        for lease, outcome in zip(leases, [*others, Done(200)], strict=True)
    ]

    assert [line["url"] for line in written(*visits)] == [leases[5].url]


def test_items_stand_in_a_file_of_their_own_with_nothing_added(written, leases, kit, tmp_path):
    """One line each, in order, of all pages."""
    visits = [
        kit.visit(leases[0], items=[{"a": 1}, {"b": [None, "ü"]}]),
        kit.visit(leases[1], items=[{}]),
    ]

    assert written(*visits, name="news.items.jsonl") == [{"a": 1}, {"b": [None, "ü"]}, {}]
    assert len(kit.lines(tmp_path / "news.jsonl")) == 2


def test_a_visit_without_a_page_may_have_items(written, leases, kit, tmp_path):
    """A handler need not fetch."""
    visit = kit.visit(leases[0], items=[{"a": 1}])
    visit.page = None

    assert written(visit, name="news.items.jsonl") == [{"a": 1}]
    assert kit.lines(tmp_path / "news.jsonl") == []


@pytest.mark.parametrize("item", [{"a": object()}, {"a": "\ud800"}, [1], "text", {"a": 1j}])
def test_an_item_that_is_no_json_object_is_refused_before_anything_is_written(
    item, sink, visits, kit, tmp_path
):
    """The message names the page."""
    visits[1].items = [{"fine": 1}, item]

    with pytest.raises(InvalidInput, match=re.escape(visits[1].lease.url)):
        sink.write(visits)

    assert kit.lines(tmp_path / "news.jsonl") == []
    assert not (tmp_path / "news.items.jsonl").exists()


def test_bytes_that_are_no_text_are_replaced(written, leases, kit):
    """A header may hold any bytes; a page is not lost for it."""
    outcome = Done(200, etag="\udce9tag")
    links = [Link("https://b.test/")]

    (line,) = written(kit.visit(leases[0], outcome=outcome, title="a\ud800b", links=links))

    assert "tag" in line["etag"]
    assert (line["title"][0], line["title"][-1]) == ("a", "b")
    assert line["links"] == ["https://b.test/"]


async def test_meta_with_newlines_stays_on_one_line(written, claimed, kit):
    """An import may bring JSON of any look."""
    (lease,) = await claimed(1, meta={"a": 1})
    about = replace(lease.about, meta=b'{\n "a":\n [1, 2]}')

    (line,) = written(kit.visit(replace(lease, about=about)))

    assert line["meta"] == {"a": [1, 2]}


@pytest.mark.parametrize("path", ["news", "news.jsonl"])
def test_a_path_may_end_in_jsonl(path, tmp_path):
    """Both name the same files."""
    jsonl_sink(tmp_path / path).close()

    assert [file.name for file in tmp_path.iterdir()] == ["news.jsonl"]


def test_output_of_an_earlier_crawl_is_continued(tmp_path, visits, kit):
    """After an orderly end there is no journal, and whole lines."""
    for visit in visits[:2]:
        sink = jsonl_sink(tmp_path / "news")
        sink.write([visit])
        sink.settle([True])
        sink.close()

    assert [path.name for path in tmp_path.iterdir()] == ["news.jsonl"]
    assert len(kit.lines(tmp_path / "news.jsonl")) == 2


@pytest.mark.parametrize("name", ["news.jsonl", "news.items.jsonl"])
def test_a_torn_line_that_no_journal_explains_is_refused_and_left(name, tmp_path):
    """It may be another program's; the message names the fix."""
    (tmp_path / name).write_bytes(b'{"url":"https://a.test/"}\n{"url":')

    for _ in range(2):
        with pytest.raises(OutputError, match=r"middle of a line.* remove its last line"):
            jsonl_sink(tmp_path / "news")

    assert (tmp_path / name).read_bytes() == b'{"url":"https://a.test/"}\n{"url":'
    assert not (tmp_path / "news.jsonl.journal").exists()


@pytest.mark.parametrize("data", [b"a,b,c\n1,2,3\n", b"\x89PNG\n", b'{"event":1}\n'])
def test_a_foreign_file_is_refused_and_left(data, tmp_path):
    """Nothing is ever appended to it."""
    (tmp_path / "news.jsonl").write_bytes(data)

    with pytest.raises(OutputError, match=r"news\.jsonl is a file, but not output of Outrider"):
        jsonl_sink(tmp_path / "news")

    assert (tmp_path / "news.jsonl").read_bytes() == data


def test_a_folder_that_is_not_there_is_named(tmp_path):
    """It is not made: it may be a typing error."""
    with pytest.raises(OutputError, match=r"there is no directory .*nowhere; create it first"):
        jsonl_sink(tmp_path / "nowhere" / "news")


def test_a_path_that_is_no_file_is_refused(tmp_path):
    """A folder cannot be written to."""
    (tmp_path / "news.jsonl").mkdir()

    with pytest.raises(OutputError, match=r"news\.jsonl"):
        jsonl_sink(tmp_path / "news")
