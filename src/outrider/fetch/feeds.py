"""What feeds lead to: the pages of RSS, Atom and RDF items, and of JSON Feed."""

from __future__ import annotations

from typing import Final

import msgspec

from outrider.fetch.markup import Element

ROOTS: Final = frozenset({"rss", "feed", "rdf"})
NAMES: Final = frozenset({"link", "guid", "title"})
_ITEMS: Final = frozenset({"item", "entry"})
_LOOKED_AT: Final = 1024  # bytes in which a JSON Feed says that it is one
_FEEDS: Final = frozenset({"channel", "feed"})


def reference_of(element: Element) -> str | None:
    """The page an element of an item names, or the feed's next part (RFC 5005)."""
    attributes = element.attributes
    if element.name == "guid":
        told = attributes.get("isPermaLink", "true").strip().lower()
        is_link = told == "true" and element.text.strip().lower().startswith("http")
        return element.text if is_link else None
    if element.name != "link":
        return None
    if element.parent in _ITEMS:
        is_page = attributes.get("rel", "alternate").strip().lower() in {"", "alternate"}
        return (attributes.get("href") or element.text) if is_page else None
    return attributes.get("href") if attributes.get("rel", "").strip().lower() == "next" else None


def title_of(element: Element) -> str | None:
    """The feed's title."""
    return element.text if element.name == "title" and element.parent in _FEEDS else None


class _Item(msgspec.Struct):
    url: str | None = None
    external_url: str | None = None


class _Feed(msgspec.Struct):
    title: str | None = None
    next_url: str | None = None
    items: list[_Item] = []


_decode = msgspec.json.Decoder(_Feed).decode


def read_json(body: bytes) -> tuple[list[str], str | None] | None:
    """The pages and the title of a JSON Feed; None: it is none."""
    if b"jsonfeed.org/version" not in body[:_LOOKED_AT]:
        return None
    try:
        feed = _decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    pages = [item.url or item.external_url or "" for item in feed.items]
    return [*pages, feed.next_url or ""], feed.title
