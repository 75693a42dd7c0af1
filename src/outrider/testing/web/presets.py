"""Named webs for tests, the demo and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from outrider.testing.web import blocking_hosts, hostile, listings, robots, traps, unreliable_hosts
from outrider.testing.web.behaviours import reply_if_changed, serving
from outrider.testing.web.graph import FEED, ROBOTS, SITEMAP, Graph, Shape, number_of
from outrider.testing.web.messages import XML, Asked, Behaviour, Reply
from outrider.testing.web.site import Site, Web


def small_world(seed: int = 0, **shape: Any) -> Web:
    """Return a web of hosts that all answer, with one graph of pages; `shape` as in `Shape`."""
    return world_of(Shape(seed=seed, **shape))


def world_of(shape: Shape, port: int = 0) -> Web:
    """Return the small world of a shape."""
    graph = Graph(shape, port)
    pages = tuple(graph.paths())
    sites = [_site(graph, host, pages) for host in range(shape.hosts)]
    return Web(sites, port=port, at=partial(world_of, shape) if shape.addresses else None)


def rough_world(seed: int = 0) -> Web:
    """Return a web with a host of every kind of failure; their modules say what to expect."""
    sites = [
        *(robots.site(name) for name in robots.CASES),
        *unreliable_hosts.sites(seed),
        *listings.sites(),
        traps.site(seed),
        blocking_hosts.site(),
        hostile.site(),
        unreliable_hosts.secret(),
    ]
    return Web(sites, refusing=(unreliable_hosts.REFUSING,), tls=(unreliable_hosts.SECRET,))


WORLDS: Final[Mapping[str, Callable[[Shape], Web]]] = {
    "small": world_of,
    "rough": lambda shape: rough_world(shape.seed),
}


def _site(graph: Graph, host: int, pages: tuple[str, ...]) -> Site:
    shape = graph.shape
    return Site(
        graph.name(host),
        paths=_listings(graph, host),
        rest=(partial(_page, graph, host),),
        pages=pages,
        shut=graph.extras("private"),
        forbidden=("/private/",) if shape.private else (),
        crawl_delay=shape.crawl_delay or None,
    )


def _page(graph: Graph, host: int, asked: Asked) -> Reply | None:
    path = asked.path
    number = number_of(path)
    if number is not None and number < graph.shape.pages:
        return reply_if_changed(graph.page(host, number), asked)
    return graph.aside(host, path) if graph.has_extra(path) else None


def _listings(graph: Graph, host: int) -> dict[str, Behaviour]:
    """Return robots.txt, and a sitemap and a feed if there are pages for them."""
    paths = {ROBOTS: serving(_robots(graph, host), "text/plain")}
    if graph.shape.listed:
        paths[SITEMAP] = lambda _: Reply(listings.urlset(_urls(graph, host, "listed")), type=XML)
    if graph.shape.fed:
        home = graph.url(host, "/")
        paths[FEED] = lambda _: Reply(listings.rss(_urls(graph, host, "fed"), home), type=XML)
    return paths


def _urls(graph: Graph, host: int, kind: str) -> list[str]:
    return [graph.url(host, path) for path in graph.extras(kind)]


def _robots(graph: Graph, host: int) -> str:
    shape = graph.shape
    lines = ["User-agent: *", "Disallow: /private/" if shape.private else "Disallow:"]
    if shape.crawl_delay:
        lines.append(f"Crawl-delay: {shape.crawl_delay:g}")
    if shape.listed:
        lines.append(f"Sitemap: {graph.url(host, SITEMAP)}")
    return "\n".join([*lines, ""])
