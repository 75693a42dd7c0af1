"""A crawl with the profile `paced`, sped up: one pace over all hosts, lists before goods."""

from collections import Counter
from itertools import pairwise

import pytest

from outrider.testing.web import Site, Web
from outrider.testing.web.behaviours import linked, redirecting, slow
from outrider.testing.web.messages import Reply

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


HOSTS = tuple(f"h{number}.web.test" for number in range(4))


def hosts_with_robots():
    """Pages on four hosts, each with a slow robots.txt; that of the last one is elsewhere on it."""
    rules = slow(lambda _: Reply(b"User-agent: *\nDisallow: /no", type="text/plain"), wait=0.9)
    paths = {"/robots.txt": rules, **{f"/{n}": linked("page") for n in range(3)}}
    moved = {**paths, "/robots.txt": redirecting("/robots-here.txt"), "/robots-here.txt": rules}
    return Web([Site(host, paths=moved if host == HOSTS[-1] else paths) for host in HOSTS])


@pytest.mark.slow
def test_paced_crawl_keeps_its_pace_between_all_requests_robots_txt_included(outrider, serve):
    """D1, D7: each request has a lease of its own, so that none is close to another's."""
    (outrider.folder / "hosts.toml").write_text('profile = "paced"')
    served = serve(hosts_with_robots())
    seeds = [f"http://{host}/{number}" for host in HOSTS for number in range(3)]
    words = (
        "--settings",
        "hosts.toml",
        "--quiet",
        "--scope",
        "all",
        "--set",
        "fetch.sitemaps=false",
    )
    pace = ("--set", "politeness.delay_to=0.4")
    ended = outrider(*outrider.on(served, *seeds, *words, *pace, delay=0.3))
    assert ended.code == 0, ended.err

    hits = sorted(served.hits(), key=lambda hit: hit.started_at)
    asked = Counter(f"http://{hit.host}{hit.target}" for hit in hits)
    assert {url: asked[url] for url in seeds} == dict.fromkeys(seeds, 1)
    assert sum(asked.values()) == len(seeds) + len(HOSTS) + 1  # each robots.txt once, and one moved
    gaps = [later.started_at - hit.started_at for hit, later in pairwise(hits)]
    assert min(gaps) >= 0.2, gaps
