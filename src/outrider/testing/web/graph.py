"""The page graph of a small world: links and bytes of a page, from (seed, host, number) alone.

Every page can be reached from the root of the first host, and every page of a host from its own
root: page n links to its children n·b+1 … n·b+b, the root of host h to the roots of hosts h·8+1 …
h·8+8, and sitemaps and feeds list pages of their own. All other links lead to pages of lower
numbers on any host, so a breadth-first crawl knows them already.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from outrider.testing.web.messages import Reply
from outrider.testing.web.seeded_random import PROSE_BYTES, SPAN, prose, rolls

ROBOTS: Final = "/robots.txt"
SITEMAP: Final = "/sitemap.xml"
FEED: Final = "/feed.xml"
SECTIONS: Final = ("harbour", "market", "council", "school", "parish", "river", "winter", "road")
DOMAIN: Final = ".web.test"
_HOST_BRANCH: Final = 8
_CACHED: Final = 1024  # pages
_LAST_MODIFIED: Final = "Mon, 01 Jan 2024 00:00:00 GMT"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Size and content of a small world."""

    seed: int = 0
    hosts: int = 10
    pages: int = 50  # of each host, reached by links
    links: int = 10  # of each page, at least
    page_bytes: int = 4096  # of each page, at least
    abroad: float = 0.1  # share of links that lead to another host
    doubles: float = 0.2  # share of links that spell a known page another way
    private: int = 0  # pages of each host that robots.txt forbids
    listed: int = 0  # pages of each host that only its sitemap lists
    fed: int = 0  # pages of each host that only its feed lists
    crawl_delay: float = 0.0  # in every robots.txt; 0: none
    addresses: bool = False  # hosts are 127.0.1.1, 127.0.1.2 … instead of names

    def __post_init__(self) -> None:
        if min(self.hosts, self.pages, self.links) < 1:
            raise ValueError("hosts, pages and links must be at least 1")
        if self.page_bytes > self.links * PROSE_BYTES:
            raise ValueError(f"page_bytes must be at most {PROSE_BYTES} per link")


class Graph:
    """All pages of one shape. `port` is part of the URLs only if hosts are addresses."""

    def __init__(self, shape: Shape, port: int = 0) -> None:
        self.shape = shape
        self._port = f":{port}" if shape.addresses and port else ""
        self._branch = max(1, shape.links // 10)
        self._abroad, self._doubles = shape.abroad * SPAN, shape.doubles * SPAN
        self._extras = {"private": shape.private, "listed": shape.listed, "fed": shape.fed}
        self._prose = prose(shape.seed)
        self.page = lru_cache(_CACHED)(self._page)

    def name(self, host: int) -> str:
        """`h0001.web.test`, or 127.0.1.1."""
        if self.shape.addresses:
            return f"127.0.{1 + host // 250}.{1 + host % 250}"
        return f"h{host + 1:04}{DOMAIN}"

    def url(self, host: int, path: str) -> str:
        """Return the URL of a path of a host."""
        return f"http://{self.name(host)}{self._port}{path}"

    def paths(self) -> Iterator[str]:
        """Yield the paths that a complete crawl fetches of any host."""
        yield from map(path_of, range(self.shape.pages))
        yield from self.extras("listed")
        yield from self.extras("fed")

    def extras(self, kind: str) -> list[str]:
        """Return the paths outside the graph of a kind: private, listed or fed."""
        return [f"/{kind}/{n}" for n in range(self._extras[kind])]

    def has_extra(self, path: str) -> bool:
        """Whether a path is outside the graph."""
        kind, _, digits = path[1:].partition("/")
        known = self._extras.get(kind, 0)
        return digits.isascii() and digits.isdigit() and int(digits[:9]) < known

    def _page(self, host: int, number: int) -> Reply:
        hrefs = self._hrefs(host, number)
        text = self._html(f"{self.name(host)} {number}", hrefs, number * 131 + host * 17)
        etag = f'"{self.shape.seed}-{host}-{number}"'
        return Reply(text, headers=(("ETag", etag), ("Last-Modified", _LAST_MODIFIED)))

    def aside(self, host: int, path: str) -> Reply:
        """Return a page outside the graph, which links to the root."""
        return Reply(self._html(f"{self.name(host)}{path}", ["/"], len(path)))

    def _hrefs(self, host: int, number: int) -> list[str]:
        shape = self.shape
        first = number * self._branch + 1
        hrefs = [path_of(n) for n in range(first, min(first + self._branch, shape.pages))]
        if number == 0:
            hrefs += self._first_hrefs(host)
        hrefs += self._back(host, number, shape.links - len(hrefs))
        return hrefs

    def _first_hrefs(self, host: int) -> Iterator[str]:
        first = host * _HOST_BRANCH + 1
        for other in range(first, min(first + _HOST_BRANCH, self.shape.hosts)):
            yield self.url(other, "/")
        yield from self.extras("private")

    def _back(self, host: int, number: int, count: int) -> Iterator[str]:
        """Yield links to pages that a breadth-first crawl knows."""
        dice = iter(rolls(f"{self.shape.seed} {host} {number}", 3 * max(0, count)))
        older, abroad, doubles = number + 1, self._abroad, self._doubles
        for where, which, spelling in zip(dice, dice, dice, strict=True):
            path = path_of(which % older)
            target = where % self.shape.hosts if where < abroad else host
            if spelling < doubles:
                yield self._double(target, path, spelling)
            else:
                yield path if target == host else self.url(target, path)

    def _double(self, host: int, path: str, spelling: int) -> str:
        """Return another URL of the same page."""
        url = self.url(host, path)
        match spelling % 6:
            case 0:
                return f"{url}?utm_source=page&amp;utm_campaign={spelling % 97}"
            case 1:
                return f"{url}#part-{spelling % 9}"
            case 2 if not self._port:
                return f"http://{self.name(host)}:80{path}"
            case 3:
                return self.url(host, f"/x/..{path}")
            case 4:
                return f"HTTP://{self.name(host).upper()}{self._port}{path}"
            case _:
                return f"{url}?fbclid=x{spelling % 97}"

    def _html(self, title: str, hrefs: list[str], offset: int) -> bytes:
        """Return paragraphs of prose with a link in each, padded to the page size."""
        feed = f'<link rel="alternate" type="application/rss+xml" href="{FEED}">'
        head = (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f"{feed if self.shape.fed else ''}</head>\n<body><h1>{title}</h1>\n"
        )
        links = sum(map(len, hrefs)) + len(hrefs) * len('<p> <a href="">read on</a></p>\n')
        room = self.shape.page_bytes - len(head) - links - len("</body></html>\n")
        share, rest = divmod(max(0, room), len(hrefs))
        prose = self._prose
        parts = [head]
        for n, href in enumerate(hrefs):
            start = (offset + n * 977) & 0xFFFF
            words = prose[start : start + share + (rest if n == 0 else 0)]
            parts.append(f'<p>{words} <a href="{href}">read on</a></p>\n')
        parts.append("</body></html>\n")
        return "".join(parts).encode()


def path_of(number: int) -> str:
    """Return the path of a page of the graph."""
    return f"/{SECTIONS[number % 8]}/{number}" if number else "/"


def number_of(path: str) -> int | None:
    """Return the number of the page of the graph at a path, or None."""
    if path == "/":
        return 0
    digits = path.rpartition("/")[2]
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        return None
    number = int(digits)
    return number if number and path_of(number) == path else None
