import asyncio
import errno
import sys
import threading

import pytest

from outrider import Again, Done, Dropped, Failed, Frontier, Link, LocalFault, Throttled
from outrider.executor.page_handler import (
    MAX_ITEMS,
    IsolatedPageHandler,
    PageHandler,
    handler_children,
)
from outrider.executor.visit import Visit
from outrider.fetch.page import Page
from outrider.fetch.response import Response

BODY = b"<title>Hello</title><a href='/next'>next</a>"
RESPONSE = Response("https://a.example/", 200, (("Content-Type", "text/html"),), BODY, 0.1, 0.0)


@pytest.fixture
async def lease():
    """A real one."""
    async with Frontier.open("memory://") as frontier:
        await frontier.add([Link("https://a.example/", meta={"why": "seed"})])
        (lease,) = await frontier.claim(1)
        yield lease


def fetching(status=200):
    """What a fetcher does: a page, its links, and an outcome."""

    async def fetch(visit):
        response = Response(visit.url, status, (("Content-Type", "text/html"),), BODY, 0.1, 0.0)
        visit.page = Page(visit.lease, response)
        visit.page.links = visit.links = [Link("https://a.example/next", depth=1)]
        return Done(status, 0.1, len(BODY))

    return fetch


async def visited(lease, function, status=200):
    """The visit, with its outcome, after a user's function saw its page."""
    visit = Visit(lease)
    visit.outcome = await PageHandler(fetching(status), function)(visit)
    return visit


async def as_coroutine(page):
    """One item."""
    await asyncio.sleep(0)
    return {"url": page.url}


def as_function(page):
    """One item, made in a thread."""
    assert threading.current_thread() is not threading.main_thread()
    return {"url": page.url}


def as_generator(page):
    """Two items and a link."""
    yield {"n": 1}
    yield Link("https://b.example/", depth=1)
    yield {"n": 2}


async def as_async_generator(page):
    """The same, awaiting."""
    for one in as_generator(page):
        await asyncio.sleep(0)
        yield one


@pytest.mark.parametrize("function", [as_coroutine, as_function])
async def test_a_dict_is_an_item(lease, function):
    """K4: async or plain."""
    visit = await visited(lease, function)

    assert visit.outcome == Done(200, 0.1, len(BODY))
    assert visit.items == [{"url": "https://a.example/"}]
    assert [link.url for link in visit.links] == ["https://a.example/next"]


@pytest.mark.parametrize("function", [as_generator, as_async_generator])
async def test_a_generator_gives_items_and_links(lease, function):
    """As many as it likes, in its order."""
    visit = await visited(lease, function)

    assert visit.items == [{"n": 1}, {"n": 2}]
    assert [link.url for link in visit.links] == ["https://a.example/next", "https://b.example/"]


async def test_links_may_be_changed(lease):
    """What stands in `page.links` at the end is added."""

    async def function(page):
        page.links = [link for link in page.links if "next" not in link.url]

    assert (await visited(lease, function)).links == []


async def test_an_outcome_is_the_visits(lease):
    """A user may know better."""

    async def function(page):
        return Dropped("boring")

    assert (await visited(lease, function)).outcome == Dropped("boring")


async def test_function_may_send_its_page_back(lease):
    """G1: with what the next attempt needs to know."""

    async def function(page):
        return Again("login", meta={**page.lease.meta, "try": 2}, front=True)

    seen = await visited(lease, function)
    assert seen.outcome == Again("login", meta={"why": "seed", "try": 2}, front=True)


async def test_a_page_may_be_rewarded(lease):
    """F10: beside whatever the function returns."""

    def function(page):
        page.reward = 2
        return {"a": 1}

    visit = await visited(lease, function)

    assert visit.items == [{"a": 1}]
    assert visit.outcome == Done(200, 0.1, len(BODY), reward=2.0)


@pytest.mark.parametrize("reward", [float("nan"), "much", [1]])
async def test_a_reward_is_a_number(lease, reward):
    """J6: else the visit fails, and says why."""

    def function(page):
        page.reward = reward

    outcome = (await visited(lease, function)).outcome

    assert outcome.reason.startswith("handler: page.reward =")


@pytest.mark.parametrize("status", [301, 404, 304])
async def test_only_pages_that_were_sent_are_shown(lease, status):
    """A redirect, an error or an unchanged page is no page to look at."""

    async def function(page):
        raise AssertionError("not to be called")

    assert (await visited(lease, function, status)).outcome == Done(status, 0.1, len(BODY))


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("text", "handler: returned str; give"),
        ([{"a": 1}, 7], "handler: returned int; give"),
        ({"a": object()}, "handler: an item is not JSON"),
        ([{}] * (MAX_ITEMS + 1), "handler: 100,001 items of one page"),
    ],
)
async def test_rubbish_fails_its_visit_and_says_why(lease, answer, complaint):
    """J6."""

    async def function(page):
        return answer

    outcome = (await visited(lease, function)).outcome

    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith(complaint)


async def test_what_it_raises_fails_its_visit(lease):
    """J6: also out of a generator."""

    def function(page):
        yield {"a": 1}
        raise KeyError("b")

    assert (await visited(lease, function)).outcome == Failed("handler: KeyError: 'b'")


# ---- in processes of their own

ELSEWHERE = """
import os, sys, threading
from outrider import Again, Link, LocalFault, Throttled

def back(page):
    return Again("login", meta={"try": 2}, delay=3.0)

def two(page):
    yield {"n": 1, "title": page.css("title")[0].text()}
    yield Link("https://b.example/", depth=1)

def rewarded(page):
    page.reward = 3.5

def kill_it(page):
    os._exit(7)

def leave_it(page):
    sys.exit(3)

def hang(page):
    threading.Event().wait()

def lack_files(page):
    raise OSError(24, "Too many open files")

def lack_anything(page):
    raise LocalFault("the licence server is away; start it")
"""


@pytest.fixture
def isolated(lease, tmp_path, monkeypatch):
    """The visit after a function of a module saw its page elsewhere."""
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    monkeypatch.syspath_prepend(tmp_path)

    async def see(name, seconds=20.0):
        children = handler_children(seconds)
        handler = IsolatedPageHandler(fetching(), f"elsewhere:{name}", children)
        visit = Visit(lease)
        try:
            visit.outcome = await handler(visit)
        finally:
            await children.close()
        return visit

    yield see
    sys.modules.pop("elsewhere", None)


async def test_isolated_functions_answer_as_others_do(isolated):
    """J6: items, links and the outcome come back."""
    visit = await isolated("two")

    assert visit.items == [{"n": 1, "title": "Hello"}]
    assert [link.url for link in visit.links] == ["https://a.example/next", "https://b.example/"]
    assert visit.outcome == Done(200, 0.1, len(BODY))


async def test_isolated_functions_send_pages_back_as_others_do(isolated):
    """G1: with all fields of the outcome."""
    assert (await isolated("back")).outcome == Again("login", meta={"try": 2}, delay=3.0)


async def test_isolated_functions_reward_as_others_do(isolated):
    """F10: the rest of the outcome is the fetcher's."""
    assert (await isolated("rewarded")).outcome == Done(200, 0.1, len(BODY), reward=3.5)


@pytest.mark.parametrize("name", ["kill_it", "leave_it"])
async def test_a_function_that_kills_its_process_fails_alone(isolated, name):
    """J6: we are still here to say so."""
    outcome = (await isolated(name)).outcome

    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("handler: ")
    assert "SettingsError" not in outcome.reason


async def test_a_function_that_hangs_elsewhere_is_ended(isolated):
    """J6: its process goes, and nothing is left."""
    outcome = (await isolated("hang", seconds=1.0)).outcome

    assert outcome == Failed("handler: time: took longer than 1 s")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENFILE, "x"),
        RuntimeError("can't start new thread"),
        MemoryError(),
        LocalFault("the licence server is away; start it"),
    ],
)
async def test_function_that_lacks_something_of_this_machine_does_not_fail_its_page(lease, error):
    """H5: the visit has no outcome, so it is repeated."""

    async def function(_):
        raise error

    with pytest.raises(LocalFault):
        await visited(lease, function)


@pytest.mark.parametrize(
    ("name", "said"), [("lack_files", "too many open files"), ("lack_anything", "licence server")]
)
async def test_isolated_function_that_lacks_something_does_not_fail_its_page(isolated, name, said):
    """The same from another process, which is not used again: it may hold what it lacks."""
    with pytest.raises(LocalFault, match=said):
        await isolated(name)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EMFILE, "x"), "local: emfile"),
        (OSError(errno.ENOMEM, "x"), "local: enomem"),
        (BlockingIOError(errno.EAGAIN, "x"), "local: processes"),
        (RuntimeError("can't start new thread"), "local: threads"),
    ],
)
async def test_process_that_cannot_be_started_does_not_fail_a_page(
    isolated, monkeypatch, error, reason
):
    """Of a handler as of the parser: no page loses its links for it."""

    async def spawned():
        raise error

    monkeypatch.setattr("outrider.fetch.child_pool._spawn", spawned)
    with pytest.raises(LocalFault) as caught:
        await isolated("two")

    assert caught.value.reason == reason


FROM_CACHE = Done(200, 0.0, len(BODY), from_cache=True)
THROTTLED = Done(200, 0.5, len(BODY), from_cache=True, throttled=9.0, crawl_delay=2.0)


@pytest.mark.parametrize(
    ("fetched", "returned", "outcome"),
    [
        (FROM_CACHE, None, FROM_CACHE),
        (FROM_CACHE, Done(200, revisit_in=5.0), Done(200, revisit_in=5.0, from_cache=True)),
        (FROM_CACHE, Dropped("dull"), Dropped("dull", visited=False)),
        (FROM_CACHE, Failed("odd"), Failed("odd")),
        (THROTTLED, {"item": 1}, THROTTLED),
        (THROTTLED, Done(200), Done(200, from_cache=True, throttled=9.0)),
        (THROTTLED, Dropped("dull"), Throttled(9.0, 0.5, 2.0)),
        (THROTTLED, 7, Throttled(9.0, 0.5, 2.0)),
    ],
)
async def test_function_cannot_hide_what_a_cached_visit_says_of_its_host(
    lease, fetched, returned, outcome
):
    """D5: whether the host was visited, and that it throttled."""

    async def fetch(visit):
        visit.page = Page(visit.lease, RESPONSE, from_cache=True)
        return fetched

    assert await PageHandler(fetch, lambda _: returned)(Visit(lease)) == outcome


async def test_isolated_function_sees_that_a_page_is_from_the_cache(lease, tmp_path, monkeypatch):
    """J6, D5: as a function in this process does."""
    (tmp_path / "cached.py").write_text("def show(page): return {'cached': page.from_cache}")
    monkeypatch.syspath_prepend(tmp_path)

    async def fetch(visit):
        visit.page = Page(visit.lease, RESPONSE, from_cache=True)
        return FROM_CACHE

    children = handler_children(30.0)
    visit = Visit(lease)
    try:
        outcome = await IsolatedPageHandler(fetch, "cached:show", children)(visit)
    finally:
        await children.close()

    assert (outcome, visit.items) == (FROM_CACHE, [{"cached": True}])
