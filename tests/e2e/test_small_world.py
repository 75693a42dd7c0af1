"""A whole crawl of hosts that all answer: every page once, politely, and nothing else."""

import asyncio

import pytest

from outrider.settings import merged, settings_of
from outrider.testing.web import Reply, Shape, Site, Web, WebServer, small_world, violations
from outrider.testing.web.behaviours import linked, serving
from outrider.testing.web.messages import TEXT
from outrider.testing.web.presets import world_of
from outrider.wiring import opened

SHAPE = Shape(seed=7, hosts=6, pages=10, private=2, listed=2, fed=2, page_bytes=2000)
EXTRAS = {"/robots.txt", "/sitemap.xml", "/feed.xml"}


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["in memory", "in a file"])
async def test_every_page_is_fetched_once_and_no_host_can_complain(crawled, tmp_path, kept):
    """D7, K2: pages only a sitemap or a feed lists are found; what robots.txt forbids is left."""
    store = tmp_path / "crawl.outrider" if kept == "in a file" else "memory://"
    web = world_of(SHAPE)
    done = await crawled(web, web.seeds()[0], store=store)
    assert done.ending.how == "finished"
    assert done.pages == dict.fromkeys(web.urls(), 1)
    assert violations(done.hits, delay=0.05, web=web) == []
    assert {hit.path for hit in done.hits} >= EXTRAS
    assert {done.last(host, "/private/0").reason for host in web.sites} == {"robots"}
    assert done.stats.done == len(list(web.urls())) + 2 * SHAPE.hosts  # and sitemaps, and feeds
    assert done.stats.dropped == len(list(web.disallowed()))


@pytest.mark.slow
async def test_a_crawl_delay_holds_from_the_first_request_on(crawled):
    """D1: what robots.txt asks for counts, though the crawl's own delay is shorter."""
    web = small_world(8, hosts=3, pages=5, crawl_delay=0.3)
    done = await crawled(web, settings={"politeness": {"delay": 0.0}})
    assert done.pages == dict.fromkeys(web.urls(), 1)
    assert violations(done.hits, delay=0.0, web=web) == []


@pytest.mark.slow
async def test_visits_at_one_time_stay_within_the_queue_s_limit(crawled):
    """D2: three at a time where three are allowed, and robots.txt before any of them."""
    web = small_world(9, hosts=2, pages=40, links=60)
    manners = {"delay": 0.0, "max_in_flight": 3}
    done = await crawled(web, web.seeds()[0], settings={"politeness": manners})
    assert done.pages == dict.fromkeys(web.urls(), 1)
    assert violations(done.hits, max_in_flight=3, web=web) == []


@pytest.mark.slow
async def test_a_crawl_from_one_host_stays_there_if_told(crawled):
    """A5: links abroad are refused, and their hosts hear nothing of us."""
    web = small_world(10, hosts=3, pages=6)
    done = await crawled(web, web.seeds()[0], settings={"scope": {"mode": "host"}})
    assert {hit.host for hit in done.hits} == {"h0001.web.test"}
    assert done.stats.refused["off-scope"] > 0


@pytest.mark.slow
async def test_what_robots_txt_said_outlives_the_visit_that_heard_it(tmp_path):
    """K2, D1: that one was let go; the next run knows the delay all the same, and the sitemap."""
    web = small_world(11, hosts=1, pages=3, listed=2, crawl_delay=0.5)
    beside = {"fetch": {"robots_cache": str(tmp_path / "robots")}, "politeness": {"delay": 0.0}}
    async with WebServer(web) as server:
        settings = merged(settings_of(beside), server.settings())
        for is_first in (True, False):
            async with opened(tmp_path / "crawl.outrider", settings=settings) as crawling:
                await crawling.frontier.add(web.seeds())
                running = asyncio.create_task(crawling.run())
                while is_first and not running.done():
                    await asyncio.sleep(0.01)
                    if list(server.hits):  # robots.txt: the visit waits for its delay now
                        crawling.executor.stop()
                        crawling.executor.stop()
                assert (await running).how == ("stopped" if is_first else "finished")
        hits = list(server.hits)
    paths = [hit.path for hit in hits]
    assert paths.count("/robots.txt") == 1
    assert sorted(paths) == sorted(["/robots.txt", "/sitemap.xml", *web.sites[hits[0].host].pages])
    assert violations(hits, web=web) == []


@pytest.mark.slow
async def test_a_robots_txt_that_is_read_again_may_name_another_sitemap(crawled):
    """K2: what it says when it is trusted no more is heard like the first time."""
    host = "new.web.test"

    def robots(asked):
        return Reply(f"Sitemap: http://{host}/map{min(asked.visit, 2)}.txt\n".encode(), type=TEXT)

    pages = {f"/{number}": linked(f"{number}") for number in range(12)}
    listed = {f"/map{n}.txt": serving(f"http://{host}/only/{n}", TEXT) for n in (1, 2)}
    only = {f"/only/{number}": linked(f"{number}") for number in (1, 2)}
    paths = {"/robots.txt": robots, "/": linked("root", *pages), **pages, **listed, **only}
    web = Web([Site(host, paths=paths)])
    done = await crawled(web, web.url(host, "/"), settings={"fetch": {"robots_max_age": 0.3}})
    assert {web.url(host, path) for path in only} <= set(done.pages)
    assert violations(done.hits, delay=0.05, web=web) == []
