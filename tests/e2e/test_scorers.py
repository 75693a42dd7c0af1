"""Crawls under each scorer, over real sockets and a file (F10)."""

import pytest

from outrider import Done
from outrider.core.policy.url_groups import TAG_PATH
from outrider.testing.web import WebServer, small_world
from outrider.wiring import crawl

SCORERS = ("breadth-first", "depth-first", "opic", "largest-sites-first", "learning")


@pytest.fixture
async def server():
    """A small web in this loop."""
    async with WebServer(small_world(2, hosts=2, pages=4, page_bytes=500)) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("scorer", SCORERS)
async def test_a_crawl_ends_with_every_page_whatever_the_order(server, scorer, tmp_path):
    """Rewards are taken from whoever gives them; only who learns is told where anchors stand."""
    meta = {}

    async def handler(page):
        meta[page.url] = page.lease.meta
        return Done(page.status, seconds=page.seconds, reward=float(page.depth > 0))

    settings = {
        **server.settings(),
        "politeness": {"delay": 0.01},
        "scoring": {"scorer": scorer},
    }
    report = await crawl(
        server.web.seeds()[0], handler, store=tmp_path / "x.outrider", settings=settings
    )
    assert (report.ending.how, report.stats.done) == ("finished", 8)
    told = [one[TAG_PATH] for one in meta.values() if TAG_PATH in one]
    assert bool(told) is (scorer == "learning")
    assert all(path.endswith("a") for path in told)
