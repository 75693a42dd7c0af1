"""A crawl with the profile `paced`, sped up: one pace over all hosts, lists before goods."""

from itertools import pairwise

import pytest

from outrider.testing.web import Site, Web
from outrider.testing.web.behaviours import linked, slow

SHOP, OTHER = "shop.web.test", "goods.web.test"
ROOT = f"http://{SHOP}/"
RULES = """
profile = "paced"

[fetch]
robots = false
sitemaps = false

[[types.rules]]
type = "search"
found = "seed"

[[types.rules]]
type = "pagination"
pattern = "[?&]page="

[[types.rules]]
type = "product"
pattern = "/item/"
"""


def shop(pages=4, goods=3):
    """A search, whose first page leads to the others; each leads to slow goods on two hosts."""

    def items(page):
        return [f"http://{(SHOP, OTHER)[n % 2]}/item/{page}-{n}" for n in range(goods)]

    def lists(asked):
        page = int(asked.target.partition("page=")[2] or 1)
        others = [f"/?page={n}" for n in range(2, pages + 1)] if page == 1 else []
        return linked(f"page {page}", *items(page), *others)(asked)

    every = [url for page in range(1, pages + 1) for url in items(page)]
    paths = {
        host: {
            url.partition(host)[2]: slow(linked("goods"), wait=0.6) for url in every if host in url
        }
        for host in (SHOP, OTHER)
    }
    return Web([Site(SHOP, paths={"/": lists, **paths[SHOP]}), Site(OTHER, paths=paths[OTHER])])


@pytest.mark.slow
def test_paced_crawl_visits_lists_first_at_one_pace_over_all_hosts(outrider, serve):
    """D1, C2, L1: no two requests closer than the least delay, several under way at a time."""
    (outrider.folder / "shop.toml").write_text(RULES)
    served = serve(shop())
    words = ("--settings", "shop.toml", "--quiet", "--scope", "all")
    pace = ("--set", "politeness.delay_to=0.3")
    ended = outrider(*outrider.on(served, ROOT, *words, *pace, delay=0.2))
    assert ended.code == 0, ended.err

    hits = sorted(served.hits(), key=lambda hit: hit.started_at)
    assert len(hits) == 4 + 12
    assert [number for number, hit in enumerate(hits) if hit.path == "/"] == [0, 1, 2, 3]
    assert {hit.host for hit in hits} == {SHOP, OTHER}
    spread = (hits[-1].started_at - hits[0].started_at) / (len(hits) - 1)
    assert spread >= 0.2
    assert any(later.started_at < hit.ended_at for hit, later in pairwise(hits[4:]))
    tasks = outrider.shown("tasks", outrider.folder / f"{SHOP}.outrider", "--json")
    assert {task["key"] for task in tasks} == {"bucket-0000"}
    kinds = [task["type"] for task in tasks]
    assert sorted(kinds) == ["pagination"] * 3 + ["product"] * 12 + ["search"]
