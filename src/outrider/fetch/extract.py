"""Extraction from HTML: links, robots directives, title and canonical URL, as an `Extracted` value.

The value can be sent to another process and back. References are resolved against the page's base
URL; most links of a site are on all of its pages, so resolved references are cached. Directives for
all robots and for this one add up: the stricter holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain, repeat
from threading import local
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from selectolax.lexbor import LexborCSSSelector, LexborHTMLParser, LexborNode, SelectolaxError

from outrider.core.link_validation import MAX_PLACES
from outrider.core.policy.link_types import ELEMENTS, FRAME, RELATIONS
from outrider.core.policy.url_groups import TAG_PATH
from outrider.core.task import Link
from outrider.core.url import Refusal, Url, UrlRules, parse_url
from outrider.fetch.document import Document
from outrider.settings.worker_schema import FetchSettings

# ---- the result

PageKind = Literal["html", "feed", "sitemap", "other"]


class ExtractRules(msgspec.Struct, frozen=True, array_like=True):
    """The settings that extraction needs."""

    url_rules: UrlRules
    product: str  # the name that robots tags address
    follow: bool
    nofollow: bool
    max_links: int
    max_unpacked: int  # bytes of a decompressed sitemap file
    tag_path: bool = False  # links carry their anchors' tag paths
    places: bool = False  # links carry where on the page they were found


def extract_rules(
    settings: FetchSettings, url_rules: UrlRules, *, places: bool = False
) -> ExtractRules:
    """Return the settings that extraction needs; `places`: links say where they were found."""
    return ExtractRules(
        url_rules,
        robot_name(settings.user_agent).lower(),
        settings.follow,
        settings.nofollow,
        settings.max_links,
        # The sitemap protocol allows 50 MB; the default of max_body is 10 MiB.
        5 * settings.max_body,
        settings.tag_path,
        places,
    )


class Extracted(msgspec.Struct, frozen=True, array_like=True):
    """The links of a page, and its metadata."""

    kind: PageKind
    depth: int = 0  # of its links
    urls: list[Url] = []  # in the page's order, each once
    type: str | None = None  # of its links; None: they bring none
    origin: str | None = None
    indexes: int = 0  # sitemap indexes on the path to its links
    nofollow: bool = False
    noindex: bool = False
    canonical: str | None = None
    title: str | None = None
    description: str | None = None
    lang: str | None = None
    bad: int = 0  # references that are not valid URLs
    fault: str | None = None  # why nothing, or not all, was extracted
    tag_paths: list[str] = []  # of the first URLs' anchors, if wanted; "": unknown
    places: list[str] = []  # of the first URLs, if wanted: words, as in `Link.found`; "": none

    @property
    def links(self) -> list[Link]:
        """Its links, ready to be added; a new list at every access."""
        if self.tag_paths or self.places:
            return self._links_with_context()
        if self.origin is None:
            return [Link(url, depth=self.depth) for url in self.urls]
        meta = {"indexes": self.indexes} if self.indexes else {}
        if self.type is None:
            return [Link(url, depth=self.depth, origin=self.origin, meta=meta) for url in self.urls]
        return [
            Link(url, type=self.type, depth=self.depth, origin=self.origin, meta=meta)
            for url in self.urls
        ]

    def _links_with_context(self) -> list[Link]:
        """Only pages have anchors and places; links of header fields come last."""
        paths, places = chain(self.tag_paths, repeat("")), chain(self.places, repeat(""))
        return [
            Link(
                url,
                depth=self.depth,
                meta={TAG_PATH: path} if path else {},
                found=place or None,
            )
            for url, path, place in zip(self.urls, paths, places, strict=False)
        ]


# ---- references

CACHED_REFERENCES: Final = 16_384
MAX_CACHED_REFERENCE: Final = 256  # characters

_ASCII_WHITESPACE: Final = "\t\n\f\r "
_OTHER_SCHEME: Final = re.compile(
    "(?:javascript|mailto|tel|data|sms|callto|skype|whatsapp|tg|viber|about|blob|intent|market"
    "|ftp|file|irc|magnet|webcal|geo|maps|chrome|android-app|ios-app):",
    re.IGNORECASE,
).match


class BaseUrl:
    """The URL that a page's references are resolved against."""

    __slots__ = ("_folder", "_origin", "_rules", "url")

    def __init__(self, url: Url, rules: UrlRules) -> None:
        self.url = url
        self._rules = rules
        path = url.text.partition("?")[0]
        self._folder = path[: path.rindex("/") + 1]
        self._origin = path[: path.index("/", len("https://")) + 1]

    def moved(self, reference: str) -> BaseUrl:
        """Return the base that `<base href>` gives; this one, if that is no URL."""
        url = self.resolve(reference)
        return BaseUrl(url, self._rules) if isinstance(url, Url) else self

    def resolve(self, reference: str) -> Url | Refusal | None:
        """Return the URL of a reference; None if it leads to no other page."""
        reference = reference.strip(_ASCII_WHITESPACE)
        first = reference[:1]
        if not first or first == "#":
            return None
        if first == "?" or len(reference) > MAX_CACHED_REFERENCE:
            return None if _OTHER_SCHEME(reference) else parse_url(reference, self._rules, self.url)
        # `/\\host` and `//host` name hosts; they take only the scheme from the base.
        if first == "/" and reference[1:2] not in "/\\\t\n\r":
            return _resolve_cached(reference, self._origin, self._rules)
        return _resolve_cached(reference, self._folder, self._rules)

    def resolve_all(self, references: Iterable[str], limit: int) -> tuple[list[Url], int]:
        """Return up to `limit` URLs in order, each once, and how many references are invalid."""
        urls: dict[str, Url] = {}
        bad = 0
        for reference in references:
            if len(urls) >= limit:
                break
            url = self.resolve(reference)
            if type(url) is Url:
                urls.setdefault(url.identity, url)
            elif url is not None:
                bad += 1
        return list(urls.values()), bad


@lru_cache(maxsize=CACHED_REFERENCES)
def _resolve_cached(reference: str, base: str, rules: UrlRules) -> Url | Refusal | None:
    """Resolve a reference for all pages whose URL begins with `base`, which ends in a slash."""
    if _OTHER_SCHEME(reference):
        return None
    seen_from = parse_url(base, rules)
    return parse_url(reference, rules, seen_from) if isinstance(seen_from, Url) else seen_from


# ---- robots directives and Link relations (RFC 8288)

FEED_TYPES: Final = frozenset(
    {
        "application/rss+xml",
        "application/atom+xml",
        "application/rdf+xml",
        "application/feed+json",
    }
)
_PAGE_TYPES: Final = FEED_TYPES | {"", "text/html", "application/xhtml+xml"}
_FOLLOWED_RELATIONS: Final = frozenset({"next", "prev", "previous", "canonical"})
_MAX_RELATIONS: Final = 1000


# Directives as bits of one number: an enum costs several times as much.
NOFOLLOW: Final = 1
NOINDEX: Final = 2
_DIRECTIVES: Final = {"nofollow": NOFOLLOW, "noindex": NOINDEX, "none": NOFOLLOW | NOINDEX}
_DIRECTIVES_WITH_VALUE: Final = frozenset(
    {"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"}
)


def meta_directives(content: str) -> int:
    """Return the directives of a robots meta tag."""
    directives = 0
    for word in content.lower().split(","):
        directives |= _DIRECTIVES.get(word.strip(), 0)
    return directives


def header_directives(values: Iterable[str], product: str) -> int:
    """Return the directives of X-Robots-Tag fields; `name:` addresses one robot until the next."""
    directives = 0
    for value in values:
        is_addressed = True
        for piece in value.lower().split(","):
            name, colon, word = piece.partition(":")
            if colon and name.strip() not in _DIRECTIVES_WITH_VALUE:
                is_addressed = name.strip() == product
                directives |= _DIRECTIVES.get(word.strip(), 0) * is_addressed
            elif is_addressed:
                directives |= _DIRECTIVES.get(piece.strip(), 0)
    return directives


class Relation(NamedTuple):
    """A typed link of a page or of its header fields."""

    reference: str
    names: frozenset[str]
    type: str = ""

    @property
    def places(self) -> str:
        """The relations that tell where it leads, as in `Link.found`."""
        return " ".join(sorted(self.names & _PLACES_OF_RELATIONS)[:MAX_PLACES])

    def leads(self) -> bool:
        """Whether it leads to another page or a feed, rather than to a part of this one."""
        if self.names & _FOLLOWED_RELATIONS:
            return True
        is_other = "alternate" in self.names and "stylesheet" not in self.names
        return is_other and self.type.partition(";")[0].strip().lower() in _PAGE_TYPES


# Possessive, and no reference holds `<`, so that nothing is read twice: it takes linear time.
_LINK: Final = re.compile(
    r"""<([^<>]*+)>((?:[ \t]*+;[ \t]*+[^=;,"\s]*+(?:[ \t]*+=[ \t]*+"""
    r"""(?:"(?:[^"\\]|\\.)*+"|[^;,"]*+))?+)*+)"""
).finditer
_PARAMETER: Final = re.compile(
    r""";[ \t]*+([^=;,"\s]++)[ \t]*+=[ \t]*+(?:"((?:[^"\\]|\\.)*+)"|([^;,"\s]*+))"""
).findall


def link_relations(values: Iterable[str]) -> Iterator[Relation]:
    """Yield the links of Link header fields, except those about another page (`anchor`)."""
    count = 0
    for value in values:
        for found in _LINK(value):
            count += 1
            if count > _MAX_RELATIONS:
                return
            parameters: dict[str, str] = {}
            for name, quoted, bare in _PARAMETER(found[2]):
                parameters.setdefault(name.lower(), quoted or bare)
            if "anchor" not in parameters:
                names = frozenset(parameters.get("rel", "").lower().split())
                yield Relation(found[1], names, parameters.get("type", ""))


# ---- tag paths

MAX_TAG_PATH: Final = 120
_ANCESTORS: Final = 5
_CLASS: Final = re.compile(r"\s*([A-Za-z_-][\w-]{0,30})", re.ASCII).match


def tag_path(anchor: LexborNode) -> str:
    """Return the tags around an anchor with their first classes: five ancestors and itself."""
    steps: list[str] = []
    node: LexborNode | None = anchor
    while node is not None and len(steps) <= _ANCESTORS and _is_element(tag := node.tag or "-"):
        steps.append(_step(tag, node))
        node = node.parent
    return ">".join(reversed(steps))[-MAX_TAG_PATH:]


def _is_element(tag: str) -> bool:
    """Whether a tag is an element: the document itself is called `-document`."""
    return not tag.startswith("-")


def _step(tag: str, node: LexborNode) -> str:
    """Return a tag with its first class, if that begins with a letter: others are rarely names."""
    found = _CLASS(node.attributes.get("class") or "")
    return f"{tag[:30]}.{found[1]}" if found else tag[:30]


# ---- places

_PLACES_OF_TAGS: Final = frozenset(ELEMENTS)
_PLACES_OF_ROLES: Final = {
    "navigation": "nav",
    "banner": "header",
    "contentinfo": "footer",
    "complementary": "aside",
    "main": "main",
    "article": "article",
    "search": "search",
}
_CONTENT: Final = frozenset({"main", "article", "aside"})  # their headers are not the page's
_FRAMES: Final = {"iframe": FRAME, "frame": FRAME}
_PLACES_OF_RELATIONS: Final = frozenset(RELATIONS)
_MAX_LEVELS: Final = 512  # ancestors of an anchor that are looked at


def _relation_words(rel: str) -> str:
    """Return the relations that tell where a link leads; others, such as `nofollow`, do not."""
    return " ".join(word for word in rel.lower().split() if word in _PLACES_OF_RELATIONS)


def _join_places(one: str, other: str) -> str:
    """Return the words of both, each once."""
    if not (one and other) or one == other:
        return one or other
    return " ".join(dict.fromkeys(f"{one} {other}".split()))


class _AnchorPlaces:
    """The elements that contain a page's anchors; every element is looked at once."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}  # by element

    def find(self, anchor: LexborNode) -> str:
        """Return the places that contain the anchor, the innermost first."""
        above: list[LexborNode] = []
        places, node = "", anchor.parent
        while node is not None and len(above) < _MAX_LEVELS:
            found = self._known.get(node.mem_id)
            if found is not None:
                places = found
                break
            above.append(node)
            node = node.parent
        for element in reversed(above):
            place = _place_of(element)
            if place is not None and not _is_of_content(place, places):
                places = _join_places(place, places)
            self._known[element.mem_id] = places
        return places


def _place_of(node: LexborNode) -> str | None:
    tag = node.tag
    if tag in _PLACES_OF_TAGS:
        return tag
    role = node.attributes.get("role") if tag in _ROLE_TAGS else None
    return _PLACES_OF_ROLES.get(role.strip().lower()) if role else None


_ROLE_TAGS: Final = frozenset({"div", "section", "ul", "form", "table"})


def _is_of_content(place: str, around: str) -> bool:
    """Tell whether a header or footer belongs to a part of the page, as in HTML."""
    return place in ("header", "footer") and not _CONTENT.isdisjoint(around.split())


# ---- HTML

MAX_TEXT: Final = 1000  # characters of a title or description

_SELECTOR: Final = "a,area,link,meta,base,iframe,frame,title"
_UNFOLLOWED: Final = frozenset({"nofollow", "ugc", "sponsored"})
# `5; url=/there`, with or without quotes, as browsers read it.
_REFRESH: Final = re.compile(
    r"\s*[\d.]*\s*[;,\s]\s*(?:url\s*=\s*)?+(?:\"([^\"]*)|'([^']*)|(.*))", re.IGNORECASE | re.DOTALL
).match

_Attributes: TypeAlias = dict[str, str | None]


class _HtmlWalk:
    """The state of one pass over a page's elements."""

    def __init__(self, rules: ExtractRules) -> None:
        self.rules = rules
        self.references: list[str] = []
        self.paths: dict[str, str] = {}  # reference → path of its first anchor
        self.places: dict[str, str] = {}  # reference → places of all its links
        self.directives = 0
        self.base: str | None = None
        self.canonical: str | None = None
        self.title: str | None = None
        self.description: str | None = None

    def visit(self, nodes: list[LexborNode]) -> None:
        """Handle every element, in the page's order."""
        add, is_nofollow_obeyed = self.references.append, self.rules.nofollow
        for node in nodes:
            attributes, tag = node.attributes, node.tag
            if tag == "a" or tag == "area":  # noqa: PLR1714 - almost all are `a`
                reference = attributes.get("href")
                if reference and not (is_nofollow_obeyed and _is_unfollowed(attributes.get("rel"))):
                    add(reference)
            else:
                _HANDLERS[tag or ""](self, attributes, node)

    def collect_paths(self, nodes: list[LexborNode]) -> None:
        """Collect the anchors' tag paths; rarely wanted, so it is a pass of its own."""
        for node in nodes:
            if node.tag == "a" and (reference := node.attributes.get("href")):
                self.paths.setdefault(reference, tag_path(node))

    def collect_places(self, nodes: list[LexborNode]) -> None:
        """Collect where every reference was found; only for crawls whose settings ask for it."""
        find, places = _AnchorPlaces().find, self.places
        for node in nodes:
            tag, attributes = node.tag, node.attributes
            reference = attributes.get("href") or attributes.get("src")
            if reference is None:
                continue
            found = find(node) if tag == "a" or tag == "area" else _FRAMES.get(tag or "", "")  # noqa: PLR1714 - as in `visit`
            rel = attributes.get("rel")
            if rel:
                found = _join_places(_relation_words(rel), found)
            if found:
                places[reference] = _join_places(places.get(reference, ""), found)

    def link(self, attributes: _Attributes, _: LexborNode) -> None:
        """`<link rel href>`: canonical URL, neighbours, feeds."""
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
            self.directives |= meta_directives(content)
        elif name == "description":
            self.description = self.description or collapse_spaces(content)
        elif (attributes.get("http-equiv") or "").strip().lower() == "refresh":
            found = _REFRESH(content)
            self.references.extend(filter(None, found.groups()) if found else ())

    def base_url(self, attributes: _Attributes, _: LexborNode) -> None:
        """`<base href>`: the first counts."""
        if self.base is None:
            self.base = attributes.get("href")

    def frame(self, attributes: _Attributes, _: LexborNode) -> None:
        """`<iframe src>`."""
        if reference := attributes.get("src"):
            self.references.append(reference)

    def title_text(self, _: _Attributes, node: LexborNode) -> None:
        """`<title>`: the first counts; an SVG image may have one too."""
        if self.title is None:
            self.title = collapse_spaces(node.text())


_HANDLERS: Final[dict[str, Callable[[_HtmlWalk, _Attributes, LexborNode], None]]] = {
    "link": _HtmlWalk.link,
    "meta": _HtmlWalk.meta,
    "base": _HtmlWalk.base_url,
    "iframe": _HtmlWalk.frame,
    "frame": _HtmlWalk.frame,
    "title": _HtmlWalk.title_text,
}


def extract_html(document: Document, page: BaseUrl, rules: ExtractRules) -> Extracted:
    """Extract everything from a page; the caller decides whether its links are wanted."""
    walk = _HtmlWalk(rules)
    try:
        tree = document.tree
        nodes = _nodes(tree)
        walk.visit(nodes)
        if rules.tag_path:
            walk.collect_paths(nodes)
        if rules.places:
            walk.collect_places(nodes)
        lang = tree.root.attributes.get("lang") if tree.root else None
    except SelectolaxError as error:
        return Extracted("html", fault=f"unreadable: {error}")
    base = page if walk.base is None else page.moved(walk.base)
    urls, bad = base.resolve_all(dict.fromkeys(walk.references), rules.max_links)
    canonical = base.resolve(walk.canonical) if walk.canonical else None
    return Extracted(
        "html",
        document.depth + 1,
        urls,
        nofollow=walk.directives & NOFOLLOW != 0,
        noindex=walk.directives & NOINDEX != 0,
        canonical=canonical.text if isinstance(canonical, Url) else None,
        title=walk.title,
        description=walk.description,
        lang=collapse_spaces(lang) if lang else None,
        bad=bad,
        tag_paths=_tag_paths(walk.paths, base, urls) if walk.paths else [],
        places=_places(walk.places, base, urls) if walk.places else [],
    )


def _tag_paths(paths: dict[str, str], base: BaseUrl, urls: list[Url]) -> list[str]:
    """Return, for each URL, the path of the first anchor that leads to it."""
    by_identity: dict[str, str] = {}
    for reference, path in paths.items():
        url = base.resolve(reference)
        if isinstance(url, Url):
            by_identity.setdefault(url.identity, path)
    return [by_identity.get(url.identity, "") for url in urls]


def _places(places: dict[str, str], base: BaseUrl, urls: list[Url]) -> list[str]:
    """Return, for each URL, all places of the page where it was found."""
    by_identity: dict[str, str] = {}
    for reference, found in places.items():
        url = base.resolve(reference)
        if isinstance(url, Url):
            before = by_identity.get(url.identity, "")
            by_identity[url.identity] = _join_places(before, found)
    return [_few_places(by_identity.get(url.identity, "")) for url in urls]


@lru_cache(maxsize=256)
def _few_places(found: str) -> str:
    """Return as many places as a link may have."""
    return " ".join(found.split()[:MAX_PLACES])


class _Selectors(local):
    """One selector per thread: creating one takes as long as parsing a small page."""

    def __init__(self) -> None:
        selector = LexborCSSSelector()  # type: ignore[no-untyped-call]  # untyped stub
        self.find = selector.find


_selectors = _Selectors()


def _nodes(tree: LexborHTMLParser) -> list[LexborNode]:
    return _selectors.find(_SELECTOR, tree.root) if tree.root else []


def collapse_spaces(text: str) -> str | None:
    """Collapse white space and cut long text; None if it is empty."""
    return " ".join(text[: 4 * MAX_TEXT].split())[:MAX_TEXT] or None


def _is_unfollowed(rel: str | None) -> bool:
    return rel is not None and not _UNFOLLOWED.isdisjoint(rel.lower().split())


def robot_name(user_agent: str) -> str:
    """Return the name in robots rules: `Outrider/1.0 (+…)` is `outrider`."""
    return re.split(r"[/\s(;,]", user_agent.strip(), maxsplit=1)[0].lower()
