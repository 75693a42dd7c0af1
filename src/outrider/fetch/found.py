"""What was read out of a page, as a value that can cross to another process and back."""

from __future__ import annotations

from itertools import chain, repeat
from typing import Literal

import msgspec

from outrider.core.policy.url_groups import TAG_PATH
from outrider.core.task import Link
from outrider.core.url import Url, UrlRules
from outrider.fetch.robots_file import product
from outrider.settings.worker_schema import FetchSettings

Kind = Literal["html", "feed", "sitemap", "other"]


class ReadingRules(msgspec.Struct, frozen=True, array_like=True):
    """What a crawl wants of pages."""

    url_rules: UrlRules
    product: str  # by which robots tags address us
    follow: bool
    nofollow: bool
    max_links: int
    max_unpacked: int  # bytes of a sitemap that is packed as a file
    tag_path: bool = False  # links tell where in the page their anchors stand


def reading_rules(settings: FetchSettings, url_rules: UrlRules) -> ReadingRules:
    """The part of the settings that reading needs."""
    return ReadingRules(
        url_rules,
        product(settings.user_agent).lower(),
        settings.follow,
        settings.nofollow,
        settings.max_links,
        # The protocol allows 50 MB; the default of max_body is 10 MiB.
        5 * settings.max_body,
        settings.tag_path,
    )


class Found(msgspec.Struct, frozen=True, array_like=True):
    """Where a page leads and what it says of itself."""

    kind: Kind
    depth: int = 0  # of what it leads to
    urls: list[Url] = []  # in the page's order, each once
    type: str = "page"  # of what it leads to
    origin: str | None = None
    indexes: int = 0  # sitemap indexes passed on the way to its links
    nofollow: bool = False
    noindex: bool = False
    canonical: str | None = None
    title: str | None = None
    description: str | None = None
    lang: str | None = None
    bad: int = 0  # references that are no URL
    fault: str | None = None  # why nothing, or not all, was read
    tag_paths: list[str] = []  # of the first URLs' anchors, if asked for; "": it has none

    @property
    def links(self) -> list[Link]:
        """What it leads to, ready to be added; a fresh list at every reading."""
        if self.tag_paths:
            return self._links_with_paths()
        if self.origin is None:
            return [Link(url, depth=self.depth) for url in self.urls]
        meta = {"indexes": self.indexes} if self.indexes else {}
        return [
            Link(url, type=self.type, depth=self.depth, origin=self.origin, meta=meta)
            for url in self.urls
        ]

    def _links_with_paths(self) -> list[Link]:
        """Only HTML has anchors, and what a header adds comes last and has none."""
        paths = chain(self.tag_paths, repeat(""))
        return [
            Link(url, depth=self.depth, meta={TAG_PATH: path} if path else {})
            for url, path in zip(self.urls, paths, strict=False)
        ]
