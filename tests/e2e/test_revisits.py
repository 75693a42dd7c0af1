"""Pages read again: asked whether they changed, and served from what is kept (G3, D5)."""

import asyncio

import pytest

from outrider.core.outcome import Done
from outrider.core.policy import politeness
from outrider.settings import merged, settings_of
from outrider.testing.web import Site, Web, WebServer
from outrider.testing.web.behaviours import changing, linked, throttling_hits
from outrider.wiring import opened

HOST = "changing.web.test"
EVERY = {"politeness": {"delay": 0.05}, "revisit": {"policy": "fixed", "every": 0.3}}


class Watched:
    """A web that is crawled until something is so."""

    def __init__(self, web, settings):
        self.web, self.settings = web, settings
        self.ends, self.pages, self.asked = [], [], []

    async def until(self, is_so):
        """Crawl; the queue of the host, as it is when that is so, is the answer."""
        async with WebServer(self.web) as server:
            tree = merged(merged(settings_of(EVERY), server.settings()), self.settings)
            async with opened(settings=tree) as crawling:
                crawling.observe(self.observe)
                await crawling.frontier.add(self.web.seeds())
                running = asyncio.create_task(crawling.run())
                async with asyncio.timeout(60):
                    while not is_so():  # noqa: ASYNC110 - the web knows no events
                        await asyncio.sleep(0.02)
                queue = await crawling.frontier.queue(HOST).view()
                crawling.executor.stop()
                assert (await running).how == "stopped"
            self.hits = list(server.hits)
        return queue

    def observe(self, visits):
        """What came of them."""
        self.ends += [(visit.url, visit.outcome) for visit in visits]
        self.pages += [visit.page for visit in visits if visit.page is not None]

    def ends_of(self, path):
        """How visits of a page ended, in order."""
        return [end for url, end in self.ends if url == self.web.url(HOST, path)]


def noting(asked, behaviour):
    """The same, and what it was asked is written down."""
    return lambda request: asked.append(request) or behaviour(request)


@pytest.mark.slow
async def test_pages_that_did_not_change_are_asked_for_and_not_sent(tmp_path):
    """G3, K1: If-None-Match goes out from the second visit on, 304 comes back and is no body."""
    asked = []
    paths = {"/still": noting(asked, changing(1, 1e-9)), "/": linked("root", "/still")}
    watched = Watched(Web([Site(HOST, paths=paths)]), {})
    await watched.until(lambda: len(watched.ends_of("/still")) >= 3)
    first, *others = watched.ends_of("/still")
    assert (first.status, first.etag) == (200, '"1-0"')
    assert {end.status for end in others} == {304}
    assert [request.headers.get("if-none-match") for request in asked][:3] == [
        None,
        *['"1-0"'] * 2,
    ]
    assert [hit.status for hit in watched.hits if hit.target == "/still"][:3] == [200, 304, 304]


@pytest.mark.slow
async def test_pages_that_changed_are_sent_anew():
    """G3: with another digest, and other validators for the next time."""
    asked = []
    paths = {"/": noting(asked, changing(1, 20.0))}
    watched = Watched(Web([Site(HOST, paths=paths)]), {})
    await watched.until(lambda: len(watched.ends_of("/")) >= 4)
    ends = watched.ends_of("/")
    assert {end.status for end in ends} == {200}
    assert len({end.digest for end in ends}) == len(ends)
    sent = [request.headers.get("if-none-match") for request in asked[:4]]
    assert sent == [None, *(end.etag for end in ends[:3])]


@pytest.mark.slow
async def test_a_throttled_visit_ends_from_the_cache_and_its_host_is_left_alone(
    tmp_path, monkeypatch
):
    """D5: the page is there, marked as from the cache; the queue is throttled all the same."""
    monkeypatch.setattr(politeness, "FIRST_THROTTLE_SNOOZE", 5.0)
    site = Site(HOST, paths={"/": changing(1, 1e-9)}, first=(throttling_hits({3}, 7.0),))
    watched = Watched(Web([site]), {"fetch": {"cache": str(tmp_path / "cache")}})
    queue = await watched.until(lambda: len(watched.ends_of("/")) >= 2)
    first, second = watched.ends_of("/")[:2]
    assert (type(first), first.from_cache) == (Done, False)
    assert (type(second), second.status, second.from_cache) == (Done, 200, True)
    assert second.throttled == 7.0
    assert (queue.state, queue.reason) == ("snoozed", "throttled")
    assert queue.wakes_in > 5.0
    kept, again = watched.pages[:2]
    assert (again.from_cache, again.text) == (True, kept.text)
    assert [hit.status for hit in watched.hits] == [404, 200, 429]  # robots.txt first


@pytest.mark.slow
async def test_while_a_host_throttles_its_pages_come_from_the_cache_unasked(tmp_path):
    """D5: what is due is answered from what is kept; after the 429 the host hears nothing."""
    pages = {f"/{number}": changing(1, 1e-9) for number in range(3)}
    paths = {"/": changing(1, 1e-9, *pages), **pages}
    site = Site(HOST, paths=paths, first=(throttling_hits(range(14, 100), 60.0),))
    settings = {"fetch": {"cache": str(tmp_path / "cache")}, "revisit": {"every": 0.1}}
    watched = Watched(Web([site]), settings)
    await watched.until(
        lambda: any(getattr(end, "throttled", None) is not None for _, end in watched.ends[:-1])
    )
    spared = [end for _, end in watched.ends if getattr(end, "from_cache", False)]
    throttled, *others = spared
    assert throttled.throttled == 60.0
    assert {(end.status, end.throttled) for end in others} == {(200, None)}
    assert [hit.status for hit in watched.hits].count(429) == 1
    assert watched.hits[-1].status == 429


KEPT = {"/": ("/1", "/2"), "/1": ("/1/a",), "/2": (), "/1/a": ()}


def kept_site(*first):
    """A small site whose pages have validators and may be cached."""
    paths = {path: changing(1, 1e-9, *links) for path, links in KEPT.items()}
    return Web([Site(HOST, paths=paths, first=first)])


def noted(pages):
    """A function of pages that notes each, and whether it is from the cache."""

    async def handle(page):
        pages[page.url.partition(HOST)[2]] = page.from_cache

    return handle


async def test_crawl_with_the_cache_of_another_crawl_visits_every_page(crawled, tmp_path):
    """K1, G3: its links are read and its pages handled, as without a cache."""
    settings, pages = {"fetch": {"cache": str(tmp_path / "cache")}}, {}
    await crawled(kept_site(), settings=settings)
    again = await crawled(kept_site(), settings=settings, handler=noted(pages))

    assert pages == dict.fromkeys(KEPT, False)
    assert again.stats.done >= len(KEPT)
    assert 304 not in {hit.status for hit in again.hits}


async def test_first_visits_answered_from_the_cache_are_handled_and_lead_on(crawled, tmp_path):
    """D5: with or without a request, their links are added and the page function is called."""
    settings, pages = {"fetch": {"cache": str(tmp_path / "cache"), "sitemaps": False}}, {}
    await crawled(kept_site(), settings=settings)
    throttled = await crawled(
        kept_site(throttling_hits(range(2, 100), 60.0)),
        settings=settings | {"limits": {"done": 3}},
        handler=noted(pages),
    )

    assert pages == dict.fromkeys(("/", "/1", "/2"), True)
    assert throttled.stats.known == len(KEPT)
    assert [hit.status for hit in throttled.hits] == [404, 429]  # robots.txt first
