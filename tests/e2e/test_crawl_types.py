"""Types of found links: a crawl by the command, with the profile for news and with rules."""

from contextlib import AsyncExitStack

import pytest

from outrider import Frontier
from outrider.settings import merged, settings_of
from outrider.testing.web import Site, Web, WebServer
from outrider.testing.web.behaviours import linked, redirecting, serving
from outrider.wiring import joined

HOST = "news.web.test"
ROOT = f"http://{HOST}/"
FRONT = """<html><body>
<header><nav><a href=/world>World</a> <a href=/culture>Culture</a></nav></header>
<main><article><a href=/2024/05/31/river-rises.html>River</a></article>
<a href=/2024/05/30/old-bridge.html>Bridge</a> <a href=/go/1>More</a>
<a rel=next href=/page/2>Older</a></main>
<footer><a href=/about>About</a> <a href=/house-rules>Rules</a></footer></body></html>"""
TYPES = {
    "/": "hub-seed",
    "/world": "hub",
    "/culture": "hub",
    "/2024/05/31/river-rises.html": "article",
    "/2024/05/30/old-bridge.html": "article",
    "/2024/05/29/found-by-redirect.html": "article",
    "/go/1": "page",
    "/page/2": "history",
    "/about": "nav",
    "/house-rules": "nav",
}


def news_site():
    """A site with sections, stories, older pages, and pages about itself."""
    plain = {path: linked(path) for path in TYPES}
    moved = redirecting("/2024/05/29/found-by-redirect.html")
    return Web([Site(HOST, paths={**plain, "/": serving(FRONT), "/go/1": moved})])


@pytest.mark.slow
def test_profile_for_news_gives_every_link_its_type(outrider, serve):
    """F1, C4, O2: lanes, weights and heatmap tell links apart, and explain says why."""
    served = serve(news_site())
    store = outrider.folder / f"{HOST}.outrider"
    words = ("--profile", "news", "--quiet", "--set", "lanes.burst=1", "--max-pages")
    begun = outrider(*outrider.on(served, ROOT, *words, "1"))
    assert begun.code == 3, begun.err
    (heatmap,) = outrider.shown("heatmap", store, "--json")
    assert heatmap["cells"] == {"opportunistic": {"article": 2, "hub": 4, "other": 2}}

    ended = outrider(*outrider.on(served, ROOT, *words, "100"))
    assert ended.code == 0, ended.err
    tasks = {one["url"]: one for one in outrider.shown("tasks", store, "--json")}
    types = {path: tasks[ROOT + path.removeprefix("/")]["type"] for path in TYPES}
    assert types == TYPES
    lanes = {one["type"]: one["lane"] for one in tasks.values()}
    assert {kind for kind, lane in lanes.items() if lane == "acquisition"} == {"article", "history"}

    kinds = [TYPES[hit.path] for hit in served.hits() if hit.path in TYPES]
    assert kinds[1:5] == ["nav", "article", "nav", "article"]  # by weight within each lane
    explained = outrider("explain", store, ROOT + "house-rules")
    assert "nav, depth 1, discovery" in explained.out
    assert "news: a link in the footer" in explained.out


@pytest.mark.slow
def test_rules_of_a_file_come_before_the_built_in_set(outrider, serve):
    """N2: by pattern and by place; explain names the rule."""
    (outrider.folder / "types.toml").write_text(
        """
[types]
builtin = "news"

[[types.rules]]
type = "rules"
found = "footer"
pattern = "/house"
"""
    )
    served = serve(news_site())
    store = outrider.folder / f"{HOST}.outrider"
    words = ("--settings", "types.toml", "--quiet")
    ended = outrider(*outrider.on(served, ROOT, *words))
    assert ended.code == 0, ended.err

    (explained,) = outrider.shown("explain", store, ROOT + "house-rules", "--json")
    assert explained["type"] == explained["task"]["type"] == "rules"
    assert explained["typed_by"] == "types.rules.0, pattern '/house', found in footer"
    (about,) = outrider.shown("explain", store, ROOT + "about", "--json")
    assert about["typed_by"] == "news: a service page"


@pytest.mark.slow
def test_crawl_without_types_leaves_every_link_a_page(outrider, serve):
    """B1: as before."""
    served = serve(news_site())
    ended = outrider(*outrider.on(served, ROOT, "--quiet"))
    assert ended.code == 0, ended.err

    tasks = outrider.shown("tasks", outrider.folder / f"{HOST}.outrider", "--json")
    assert {one["type"] for one in tasks} <= {"page", "sitemap"}


PAGED = "<main><a href=/{}>a</a> <a rel=next href=/{}>next</a></main>"
BY_PLACE = {"types": {"rules": [{"type": "older", "found": "next"}]}}


@pytest.mark.slow
@pytest.mark.parametrize("is_attached", [False, True])
@pytest.mark.parametrize(
    ("changes", "found"),
    [(BY_PLACE, ("next main", False)), ({"scoring": {"scorer": "learning"}}, (None, True))],
)
async def test_running_worker_finds_places_once_settings_ask_for_them(
    tmp_path, is_attached, changes, found
):
    """N1, N3, F1: rules and scorer that are set at run time act on the next page that is read."""
    paths = {"/": serving(PAGED.format(1, 2)), "/2": serving(PAGED.format(3, 4))}
    links = {}
    async with WebServer(Web([Site(HOST, paths=paths)])) as server, AsyncExitStack() as stack:
        settings = merged(settings_of({"politeness": {"delay": 0.05}}), server.settings())
        store = tmp_path / "x.outrider"
        owner = await stack.enter_async_context(Frontier.open(store, settings=settings))
        worker = owner
        if is_attached:
            worker = await stack.enter_async_context(Frontier.attach(store, settings=settings))

        async def handle(page):
            links.update({str(link.url).rpartition("/")[2]: link for link in page.links})
            if page.url == ROOT:
                await owner.configure(changes)
                await worker.listen()

        crawling = await stack.enter_async_context(joined(worker, handler=handle))
        await owner.add([ROOT])
        await crawling.run()
        kind = (await owner.explain(f"{ROOT}4")).task.type

    assert (links["2"].found, "tag_path" in links["2"].meta) == (None, False)
    assert (links["4"].found, "tag_path" in links["4"].meta) == found
    assert kind == ("older" if changes is BY_PLACE else "page")
