"""What an HTML page leads to and says of itself, in one walk over its elements."""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import local
from typing import Final, TypeAlias

from selectolax.lexbor import (
    LexborCSSSelector,
    LexborHTMLParser,
    LexborNode,
    SelectolaxError,
)

from outrider.core.url import Url
from outrider.fetch.document import Document
from outrider.fetch.found import Found, ReadingRules
from outrider.fetch.hints import NOFOLLOW, NOINDEX, Relation, asked_of_all
from outrider.fetch.references import Base
from outrider.fetch.tag_path import tag_path_of

LONGEST_WORDS: Final = 1000  # characters of a title or description

_SELECTOR: Final = "a,area,link,meta,base,iframe,frame,title"
_UNFOLLOWED: Final = frozenset({"nofollow", "ugc", "sponsored"})
# `5; url=/there`, with or without quotes, as browsers read it.
_REFRESH: Final = re.compile(
    r"\s*[\d.]*\s*[;,\s]\s*(?:url\s*=\s*)?+(?:\"([^\"]*)|'([^']*)|(.*))", re.IGNORECASE | re.DOTALL
).match

_Attributes: TypeAlias = dict[str, str | None]


class _Walk:
    """What the elements told so far."""

    def __init__(self, rules: ReadingRules) -> None:
        self.rules = rules
        self.references: list[str] = []
        self.paths: dict[str, str] = {}  # by reference, of its first anchor
        self.asks = 0
        self.base: str | None = None
        self.canonical: str | None = None
        self.title: str | None = None
        self.description: str | None = None

    def over(self, nodes: list[LexborNode]) -> None:
        """Hear every element, in the page's order."""
        add, obeys = self.references.append, self.rules.nofollow
        for node in nodes:
            attributes, tag = node.attributes, node.tag
            if tag == "a" or tag == "area":  # noqa: PLR1714 - almost all are `a`
                reference = attributes.get("href")
                if reference and not (obeys and _is_unfollowed(attributes.get("rel"))):
                    add(reference)
            else:
                _HEARD[tag or ""](self, attributes, node)

    def note_paths(self, nodes: list[LexborNode]) -> None:
        """Where the anchors stand; asked for seldom, so it is a walk of its own."""
        for node in nodes:
            if node.tag == "a" and (reference := node.attributes.get("href")):
                self.paths.setdefault(reference, tag_path_of(node))

    def link(self, attributes: _Attributes, _: LexborNode) -> None:
        """`<link rel href>`: the canonical address, neighbours, feeds."""
        reference, rel = attributes.get("href"), attributes.get("rel")
        if not reference or not rel:
            return
        names = frozenset(rel.lower().split())
        if "canonical" in names and self.canonical is None:
            self.canonical = reference
        is_followed = not (self.rules.nofollow and names & _UNFOLLOWED)
        if is_followed and Relation(reference, names, attributes.get("type") or "").leads():
            self.references.append(reference)

    def meta(self, attributes: _Attributes, _: LexborNode) -> None:
        """`<meta>`: robots directives, a refresh, a description."""
        content = attributes.get("content")
        if not content:
            return
        name = (attributes.get("name") or "").strip().lower()
        if name in {"robots", self.rules.product}:
            self.asks |= asked_of_all(content)
        elif name == "description":
            self.description = self.description or words(content)
        elif (attributes.get("http-equiv") or "").strip().lower() == "refresh":
            found = _REFRESH(content)
            self.references.extend(filter(None, found.groups()) if found else ())

    def start(self, attributes: _Attributes, _: LexborNode) -> None:
        """`<base href>`: the first counts."""
        if self.base is None:
            self.base = attributes.get("href")

    def frame(self, attributes: _Attributes, _: LexborNode) -> None:
        """`<iframe src>`."""
        if reference := attributes.get("src"):
            self.references.append(reference)

    def name(self, _: _Attributes, node: LexborNode) -> None:
        """`<title>`: the first counts; an image may have one too."""
        if self.title is None:
            self.title = words(node.text())


_HEARD: Final[dict[str, Callable[[_Walk, _Attributes, LexborNode], None]]] = {
    "link": _Walk.link,
    "meta": _Walk.meta,
    "base": _Walk.start,
    "iframe": _Walk.frame,
    "frame": _Walk.frame,
    "title": _Walk.name,
}


def read_html(document: Document, page: Base, rules: ReadingRules) -> Found:
    """Everything a page tells; whether its links are wanted is the caller's to say."""
    walk = _Walk(rules)
    try:
        tree = document.tree
        nodes = _nodes(tree)
        walk.over(nodes)
        if rules.tag_path:
            walk.note_paths(nodes)
        lang = tree.root.attributes.get("lang") if tree.root else None
    except SelectolaxError as error:
        return Found("html", fault=f"unreadable: {error}")
    base = page if walk.base is None else page.moved(walk.base)
    urls, bad = base.resolve_all(dict.fromkeys(walk.references), rules.max_links)
    canonical = base.resolve(walk.canonical) if walk.canonical else None
    return Found(
        "html",
        document.depth + 1,
        urls,
        nofollow=walk.asks & NOFOLLOW != 0,
        noindex=walk.asks & NOINDEX != 0,
        canonical=canonical.text if isinstance(canonical, Url) else None,
        title=walk.title,
        description=walk.description,
        lang=words(lang) if lang else None,
        bad=bad,
        tag_paths=_paths(walk.paths, base, urls) if walk.paths else [],
    )


def _paths(paths: dict[str, str], base: Base, urls: list[Url]) -> list[str]:
    """Of each URL, the path of the first anchor that leads to it."""
    by_identity: dict[str, str] = {}
    for reference, path in paths.items():
        url = base.resolve(reference)
        if isinstance(url, Url):
            by_identity.setdefault(url.identity, path)
    return [by_identity.get(url.identity, "") for url in urls]


class _Selectors(local):
    """One a thread: to make one takes as long as parsing a small page."""

    def __init__(self) -> None:
        selector = LexborCSSSelector()  # type: ignore[no-untyped-call]  # its stub says nothing
        self.find = selector.find


_selectors = _Selectors()


def _nodes(tree: LexborHTMLParser) -> list[LexborNode]:
    return _selectors.find(_SELECTOR, tree.root) if tree.root else []


def words(text: str) -> str | None:
    """Text as people read it: one space between words, not too long, None if there is none."""
    return " ".join(text[: 4 * LONGEST_WORDS].split())[:LONGEST_WORDS] or None


def _is_unfollowed(rel: str | None) -> bool:
    return rel is not None and not _UNFOLLOWED.isdisjoint(rel.lower().split())
