"""A fetched page, as user functions see it; nothing is computed before it is used."""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from outrider.core.task import Lease, Link
from outrider.core.url import Url, UrlRules, parse_url
from outrider.errors import PageTooCostly
from outrider.fetch.document import Document, tree_fault_in_child
from outrider.fetch.extract import Extracted
from outrider.fetch.response import Response

_NOT_EXTRACTED: Final = Extracted("other")
_ANY_URL_RULES: Final = UrlRules(allow_private=True)


class Page(Document):
    """The response to a leased URL. `links` may be changed: its final content is added."""

    def __init__(self, lease: Lease, response: Response, *, from_cache: bool = False) -> None:
        super().__init__(response.url, response.headers, response.body)
        self.lease = lease
        self.response = response
        self.from_cache = from_cache
        self.found: Extracted = _NOT_EXTRACTED
        self.links: list[Link] = []
        self.depth = lease.depth
        self.type = lease.type
        self.tree_fault: str | None = (
            None  # why `html` is refused; "": it was checked and is not; None: not checked
        )
        self.reward: float | None = None  # set it to the value of this page to the crawl (F10)
        if lease.type == "sitemap":
            self.indexes = _nested_indexes(lease)

    def __repr__(self) -> str:
        return f"<Page {self.status} {self.url}>"

    @property
    def status(self) -> int:
        """The response's status code."""
        return self.response.status

    @property
    def seconds(self) -> float:
        """Seconds from sending the request to the last byte."""
        return self.response.seconds

    @property
    def at(self) -> float:
        """When the request was sent, in seconds since 1970."""
        return self.response.at

    @cached_property
    def digest(self) -> str:
        """A hash of the body: pages with the same digest are equal byte by byte."""
        return blake2b(self.body, digest_size=16).hexdigest()

    @property
    def title(self) -> str | None:
        """The page's or feed's title."""
        return self.found.title

    @property
    def canonical(self) -> str | None:
        """The canonical URL that the page names."""
        return self.found.canonical

    @property
    def is_nofollow(self) -> bool:
        """Whether the page asks crawlers not to follow its links."""
        return self.found.nofollow

    @property
    def is_noindex(self) -> bool:
        """Whether the page asks crawlers not to index it."""
        return self.found.noindex

    @property
    def location(self) -> str | None:
        """The redirect's target as an absolute URL."""
        field = self.headers.get("location") if 300 <= self.status < 400 else None
        base = parse_url(self.url, _ANY_URL_RULES)
        if field is None or not isinstance(base, Url):
            return None
        target = parse_url(field, _ANY_URL_RULES, base)
        return target.text if isinstance(target, Url) else None

    @property
    def html(self) -> LexborHTMLParser:
        """The parsed body; raises `PageTooCostly` if that takes too much memory or time.

        A page that might is parsed in a child process first, unless the crawl did so already.
        """
        if self.is_costly and self.tree_fault is None:
            self.tree_fault = tree_fault_in_child(self.source)
        if self.tree_fault:
            raise PageTooCostly(
                f"{self.url} is not parsed: {self.tree_fault}; use page.text or page.body"
            )
        return self.tree

    def css(self, selector: str) -> list[LexborNode]:
        """Return the elements that a CSS selector matches."""
        return self.html.css(selector)


def _nested_indexes(lease: Lease) -> int:
    count = lease.meta.get("indexes", 0)
    return count if isinstance(count, int) else 0
