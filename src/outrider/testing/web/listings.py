"""Sitemaps and feeds, valid and malformed, and the hosts that serve them."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from outrider.testing.web.behaviours import linked, serving
from outrider.testing.web.graph import DOMAIN, FEED, ROBOTS, SITEMAP
from outrider.testing.web.messages import TEXT, XML, Asked, Behaviour, Reply
from outrider.testing.web.robots import rules
from outrider.testing.web.site import Site

_XMLNS: Final = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
_HUGE: Final = 60_000  # URLs: more than a sitemap may list
_DATE: Final = "2024-01-01"
LISTED: Final = "listed" + DOMAIN
FED: Final = "fed" + DOMAIN


def urlset(urls: Iterable[str]) -> bytes:
    """Return a sitemap."""
    entries = "".join(f"<url><loc>{url}</loc><lastmod>{_DATE}</lastmod></url>\n" for url in urls)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset {_XMLNS}>\n{entries}</urlset>\n'.encode()
    )


def index(urls: Iterable[str]) -> bytes:
    """Return a sitemap index."""
    entries = "".join(f"<sitemap><loc>{url}</loc></sitemap>\n" for url in urls)
    return f'<?xml version="1.0"?>\n<sitemapindex {_XMLNS}>\n{entries}</sitemapindex>\n'.encode()


def rss(urls: Iterable[str], home: str) -> bytes:
    """Return an RSS 2.0 feed."""
    items = "".join(
        f'<item><title>news</title><link>{url}</link><guid isPermaLink="true">{url}</guid></item>\n'
        for url in urls
    )
    return (
        f'<?xml version="1.0"?>\n<rss version="2.0"><channel><title>feed</title>'
        f"<link>{home}</link><description>news</description>\n{items}</channel></rss>\n"
    ).encode()


def atom(urls: Iterable[str], home: str) -> bytes:
    """Return an Atom feed."""
    entries = "".join(
        f'<entry><title>news</title><id>{url}</id><link href="{url}"/></entry>\n' for url in urls
    )
    return (
        f'<?xml version="1.0"?>\n<feed xmlns="http://www.w3.org/2005/Atom"><title>feed</title>'
        f'<id>{home}</id><link rel="self" href="{home}"/>\n{entries}</feed>\n'
    ).encode()


def entity_bomb() -> bytes:
    """Return a sitemap whose one URL has ten billion characters if entities are expanded."""
    names = "abcdefghij"
    entities = "".join(
        f'<!ENTITY {name} "{f"&{names[n - 1]};" * 10 if n else "lol"}">\n'
        for n, name in enumerate(names)
    )
    doctype = f"<!DOCTYPE urlset [\n{entities}]>\n"
    url = f"http://{LISTED}/bomb/&{names[-1]};"
    listed = f"<urlset {_XMLNS}><url><loc>{url}</loc></url></urlset>"
    return f'<?xml version="1.0"?>\n{doctype}{listed}\n'.encode()


def sites() -> list[Site]:
    """Return hosts whose pages are found only by their sitemaps, or only by their feeds."""
    return [_listed(), _fed()]


def _listed() -> Site:
    here = f"http://{LISTED}"
    maps = [f"{here}/{name}" for name in ("a.xml", "b.xml.gz", "c.txt", "again.xml", "bomb.xml")]
    pages = {kind: [f"/{kind}/{n}" for n in range(3)] for kind in ("a", "b", "c")}
    urls = {kind: [here + path for path in paths] for kind, paths in pages.items()}
    paths: dict[str, Behaviour] = {
        ROBOTS: rules("Disallow:", f"Sitemap: {here}{SITEMAP}"),
        SITEMAP: serving(index(maps), XML),
        "/a.xml": serving(urlset(urls["a"]), XML),
        "/b.xml.gz": serving(gzip.compress(urlset(urls["b"]), mtime=0), "application/gzip"),
        "/c.txt": serving("\n".join(urls["c"]), TEXT),
        "/again.xml": serving(index([f"{here}/again.xml", f"{here}{SITEMAP}"]), XML),
        "/bomb.xml": serving(entity_bomb(), XML),
        "/huge.xml": _huge_sitemap,
        "/": linked("nothing is linked"),
    }
    found = [path for group in pages.values() for path in group]
    paths |= {path: linked(path) for path in found}
    return Site(LISTED, paths=paths, pages=["/", *found])


def _fed() -> Site:
    here = f"http://{FED}"
    news, notes = ([f"/{kind}/{n}" for n in range(3)] for kind in ("news", "notes"))
    head = (
        f'<link rel="alternate" type="application/rss+xml" href="{FEED}">'
        '<link rel="alternate" type="application/atom+xml" href="/atom.xml">'
    )
    feeds: dict[str, Behaviour] = {
        FEED: serving(rss([here + path for path in news], here), "application/rss+xml"),
        "/atom.xml": serving(atom(notes, f"{here}/"), "application/atom+xml"),
        "/": serving(f"<!doctype html><html><head>{head}</head><body>hello</body></html>"),
    }
    found = [*news, *notes]
    return Site(FED, paths=feeds | {path: linked(path) for path in found}, pages=["/", *found])


def _huge_sitemap(_: Asked) -> Reply:
    return Reply(_huge(), type=XML)


@lru_cache(maxsize=1)
def _huge() -> bytes:
    return urlset(f"http://{LISTED}/huge/{n}" for n in range(_HUGE))
