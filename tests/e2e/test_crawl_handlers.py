"""--handler: a user's function sees every page; what it does wrong hurts its own pages alone."""

import shlex

import pytest

from outrider.testing.web import Site, Web, small_world
from outrider.testing.web.behaviours import linked

ROOT = "http://h0001.web.test/"
STEM = "h0001.web.test"
MODULE = '''
"""Handlers of a user."""

import asyncio
import os
import threading

from outrider import Dropped, Link


async def coroutine(page):
    await asyncio.sleep(0)
    return {"url": page.url, "title": page.title, "words": len(page.text.split())}


def plain(page):
    return [{"url": page.url, "at": threading.current_thread().name}]


def generator(page):
    yield {"url": page.url}
    yield {"leaf": True} if "?" in page.url else Link(page.url + "?more=1", depth=page.depth + 1)


def faulty(page):
    if page.url.endswith("/market/1"):
        raise ValueError("a fault of mine")
    if page.url.endswith("/council/2"):
        return 42
    if page.url.endswith("/school/3"):
        return {"not": object()}
    if page.url.endswith("/parish/4"):
        threading.Event().wait(60)
    if page.url.endswith("/river/5"):
        return Dropped("not wanted")
    return {"url": page.url}


def deadly(page):
    if page.url.endswith("/market/1"):
        os._exit(9)
    return {"url": page.url, "pid": os.getpid()}


def start(page):
    yield {"start": page.url}
    if "?" not in page.url:
        yield Link(page.url + "?article", type="article", depth=1)


def article(page):
    return [{"article": page.url}, Link(page.url + "s", type="other type", depth=2)]
'''


@pytest.fixture
def handled(outrider, serve):
    """Crawls a small web with a handler of the user's module."""

    def crawl(name, *words, web=None):
        (outrider.folder / "mine.py").write_text(MODULE)
        served = serve(web or small_world(1, hosts=1, pages=8, page_bytes=600))
        answer = outrider(
            *outrider.on(served, served.web.seeds()[0], "--handler", f"mine:{name}", *words)
        )
        return served, answer

    return crawl


@pytest.mark.slow
@pytest.mark.parametrize("name", ["coroutine", "plain"])
def test_what_a_handler_returns_is_written_as_items(outrider, handled, name):
    """J1: async functions and plain ones, a line each, and the pages beside them."""
    served, answer = handled(name, "--quiet")
    assert answer.code == 0, answer.err
    items, urls = outrider.lines(f"{STEM}.items.jsonl"), sorted(served.web.urls())
    assert sorted(item["url"] for item in items) == urls
    assert sorted(line["url"] for line in outrider.lines(f"{STEM}.jsonl")) == urls
    if name == "plain":
        assert all(item["at"] != "MainThread" for item in items)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["warc", "none"])
def test_items_are_written_however_pages_are(outrider, handled, form):
    """K4: beside an archive, or alone."""
    served, answer = handled("coroutine", "--quiet", "--format", form)
    assert answer.code == 0, answer.err
    items = outrider.lines(f"{STEM}.items.jsonl")
    assert sorted(item["url"] for item in items) == sorted(served.web.urls())
    assert not (outrider.folder / f"{STEM}.jsonl").exists()
    assert bool(list(outrider.folder.glob("*.warc.gz"))) == (form == "warc")


@pytest.mark.slow
def test_a_handler_may_give_links(outrider, handled):
    """A generator gives items and links in any order; the links are visited too."""
    site = Site("one.web.test", paths={"/": linked("one")})
    served, answer = handled("generator", "--quiet", web=Web([site]))
    assert answer.code == 0, answer.err
    assert outrider.lines("one.web.test.items.jsonl") == [
        {"url": "http://one.web.test/"},
        {"url": "http://one.web.test/?more=1"},
        {"leaf": True},
    ]
    assert [hit.target for hit in served.hits()] == ["/robots.txt", "/", "/?more=1"]


@pytest.mark.slow
@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["here", "isolated"])
def test_crawl_calls_the_handler_of_a_task_s_type(outrider, handled, isolate):
    """J1: the plain one is called for every other type; the command to resume names both."""
    site = Site("one.web.test", paths={"/": linked("one")})
    words = ("--handler", "article=mine:article", *isolate, "--max-pages", "2", "--json")
    _, answer = handled("start", "--quiet", *words, web=Web([site]))
    assert answer.code == 3, answer.err
    assert outrider.lines("one.web.test.items.jsonl") == [
        {"start": "http://one.web.test/"},
        {"article": "http://one.web.test/?article"},
    ]
    resume = shlex.split(answer.json["resume"])
    assert resume.count("--handler") == 2
    assert {"mine:start", "article=mine:article"} <= set(resume)

    assert outrider(*resume[1:]).code == 0

    assert outrider.lines("one.web.test.items.jsonl")[2:] == [
        {"start": "http://one.web.test/?articles"},
    ]


@pytest.mark.slow
def test_types_without_a_handler_are_only_written(outrider, serve):
    """J1: with handlers for some types, all others are fetched as without any."""
    (outrider.folder / "mine.py").write_text(MODULE)
    served = serve(small_world(1, hosts=1, pages=8, page_bytes=600))
    answer = outrider(
        *outrider.on(served, served.web.seeds()[0], "--handler", "article=mine:deadly", "-q")
    )
    assert answer.code == 0, answer.err
    assert len(outrider.lines(f"{STEM}.jsonl")) == len(list(served.web.urls()))
    assert not (outrider.folder / f"{STEM}.items.jsonl").exists()


@pytest.mark.slow
def test_a_handler_that_errs_hangs_or_answers_rubbish_fails_its_own_pages(outrider, handled):
    """J6: the reasons are told, the others are done."""
    limits = ("retry.max_retries=0", "executor.handler_timeout=2")
    settings = [word for limit in limits for word in ("--set", limit)]
    _, answer = handled("faulty", "--quiet", "--json", *settings)
    assert answer.code == 0, answer.err
    missed = answer.json["closing"]["missed"]
    assert sorted(reason[:30] for reason in missed) == sorted(
        reason[:30]
        for reason in (
            "handler: ValueError: a fault of mine",
            "handler: returned int; give a dict",
            "handler: an item is not JSON: ",
            "time limit: handler",
            "not wanted",
        )
    )
    urls = {line["url"] for line in outrider.lines(f"{STEM}.jsonl")}
    assert urls == {ROOT, f"{ROOT}winter/6", f"{ROOT}road/7"}
    assert {item["url"] for item in outrider.lines(f"{STEM}.items.jsonl")} == urls


@pytest.mark.slow
def test_an_isolated_handler_may_kill_its_process(outrider, handled):
    """J6: the crawl goes on, and so does the handler, in another one."""
    _, answer = handled("deadly", "--quiet", "--json", "--isolate", "--set", "retry.max_retries=0")
    assert answer.code == 0, answer.err
    assert answer.json["closing"]["stats"]["dead"] == 1
    items = outrider.lines(f"{STEM}.items.jsonl")
    assert len({item["url"] for item in items}) == len(items) == 7
    assert len({item["pid"] for item in items}) == 2
