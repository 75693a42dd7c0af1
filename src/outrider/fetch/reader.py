"""The page reader: extracts links from pages, feeds, sitemaps and header fields (K3).

Ordinary pages are read in this process, those that may be costly in a limited child process: a
hostile page may take quadratic time or gigabytes in an HTML parser, or exploit a flaw in it. What
is read here has a low upper bound of both (`parse_cost`); the worst such page found takes 0.3 s.
Nothing a host sends raises an error; what could not be read is reported as `fault`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final, Literal, Self, TypeAlias, assert_never

import msgspec

from outrider.core.url import Refusal, Url, UrlRules, parse_url
from outrider.fetch.child_pool import DEFAULT_SECONDS, ChildPool, Fault
from outrider.fetch.document import (
    GZIP,
    HTML,
    XML,
    Document,
    HeaderFields,
    charset_of,
    tree_fault,
    without_bom,
)
from outrider.fetch.extract import (
    NOFOLLOW,
    NOINDEX,
    BaseUrl,
    Extracted,
    ExtractRules,
    Relation,
    collapse_spaces,
    extract_html,
    extract_rules,
    header_directives,
    link_relations,
)
from outrider.fetch.feeds import (
    FEED_NAMES,
    FEED_ROOTS,
    MAX_NESTED_INDEXES,
    MAX_SITEMAP_URLS,
    SITEMAP_INDEX,
    SITEMAP_NAMES,
    SITEMAP_ORIGIN,
    SITEMAP_ROOTS,
    SITEMAP_TYPE,
    GzipChunks,
    XmlElement,
    XmlElements,
    chunks_of,
    feed_reference,
    feed_title,
    is_sitemap_line,
    read_json_feed,
    sitemap_lines,
    sitemap_reference,
)
from outrider.fetch.page import Page
from outrider.fetch.parse_cost import LARGE_PAGE
from outrider.settings.worker_schema import FetchSettings

# ---- extraction

Form: TypeAlias = Literal["html", "xml", "gzip", "json", "lines", "other"]

_FORMS: Final[dict[str, Form]] = {
    HTML: "html",
    "application/xhtml+xml": "html",
    XML: "xml",
    "text/xml": "xml",
    GZIP: "gzip",
    "application/x-gzip": "gzip",
    "application/feed+json": "json",
    "application/json": "json",
}
_WHITESPACE: Final = b"\t\n\f\r "
_GZIP_MAGIC: Final = b"\x1f\x8b"
_FORM_WITHIN: Final = 1024
_ROOT_TAGS: Final = (b"<rss", b"<feed", b"<rdf:rdf", b"<urlset", b"<sitemapindex")
_HTML_OPENINGS: Final = (b"<!doctype html", b"<html")
_XML_OPENINGS: Final = (b"<?xml", b"<!--", *_ROOT_TAGS)
_XML_NAMES: Final = FEED_NAMES | SITEMAP_NAMES


def extract_here(page: Page, settings: FetchSettings, url_rules: UrlRules) -> Extracted:
    """Extract a page's links and metadata in this process."""
    return extract(page, extract_rules(settings, url_rules))


def extract(document: Document, rules: ExtractRules) -> Extracted:
    """Extract a document's links and metadata in this process."""
    here = parse_url(document.url, rules.url_rules)
    if isinstance(here, Refusal):
        return Extracted(
            "other", document.depth + 1, fault=f"its own URL is refused: {here.reason}"
        )
    base = BaseUrl(here, rules.url_rules)
    found = _extract_form(document, base, rules)
    headers = document.headers
    if "link" in headers or "x-robots-tag" in headers:
        found = _with_headers(found, document, base, rules)
    return _apply_follow_rules(found, rules)


def form_of(document: Document) -> Form:
    """Return how to read a document: by its media type, or by its first bytes."""
    if document.body.startswith(_GZIP_MAGIC):
        return "gzip"
    declared = _FORMS.get(document.media_type, "other")
    if declared in {"html", "xml"} or document.media_type.endswith("+xml"):
        return _form_of_markup(document.body, "html" if declared == "html" else "xml")
    if declared == "other" and document.type == SITEMAP_TYPE:
        return "xml" if _is_markup(document.body) else "lines"
    return declared


def _form_of_markup(body: bytes, declared: Form) -> Form:
    """Return the form of markup: feeds are sent as HTML, and XHTML as XML."""
    head = _head(body).lower()
    if head.startswith(_HTML_OPENINGS):  # almost always
        return "html"
    if head.startswith(_XML_OPENINGS) and any(root in head for root in _ROOT_TAGS):
        return "xml"
    return "html" if b"<html" in head else declared


def _is_markup(body: bytes) -> bool:
    return _head(body).startswith(b"<")


def _head(body: bytes) -> bytes:
    return without_bom(body[:_FORM_WITHIN]).lstrip(_WHITESPACE)


def _extract_form(document: Document, base: BaseUrl, rules: ExtractRules) -> Extracted:
    form = form_of(document)
    match form:
        case "html":
            return extract_html(document, base, rules)
        case "xml":
            chunks = chunks_of(without_bom(document.body))
            return _extract_xml(
                document, XmlElements(chunks, document.charset, _XML_NAMES), base, rules
            )
        case "gzip":
            return _extract_gzip(document, base, rules)
        case "json":
            return _extract_json(document, base, rules)
        case "lines":
            return _extract_lines(document, document.body, base, rules)
        case "other":
            return Extracted("other", document.depth + 1)
        case _:
            assert_never(form)


def _extract_xml(
    document: Document, elements: XmlElements, base: BaseUrl, rules: ExtractRules
) -> Extracted:
    rest = iter(elements)
    first = tuple(islice(rest, 1))  # reads up to the root, at least
    if elements.base:
        base = base.moved(elements.base)
    if elements.root in SITEMAP_ROOTS:
        return _extract_sitemap(document, elements, chain(first, rest), base, rules)
    if elements.root not in FEED_ROOTS:
        return Extracted("other", document.depth + 1, fault=elements.fault)
    titles: list[str] = []
    references = _feed_references(chain(first, rest), titles)
    urls, bad = base.resolve_all(references, rules.max_links)
    return Extracted(
        "feed",
        document.depth + 1,
        urls,
        origin="feed",
        title=collapse_spaces(titles[0]) if titles else None,
        bad=bad,
        fault=elements.fault,
    )


def _feed_references(elements: Iterable[XmlElement], titles: list[str]) -> Iterator[str]:
    for element in elements:
        if not titles and (title := feed_title(element)):
            titles.append(title)
        if reference := feed_reference(element):
            yield reference


def _extract_sitemap(
    document: Document,
    elements: XmlElements,
    entries: Iterable[XmlElement],
    base: BaseUrl,
    rules: ExtractRules,
) -> Extracted:
    is_index = elements.root == SITEMAP_INDEX
    if is_index and document.indexes >= MAX_NESTED_INDEXES:
        fault = f"more than {MAX_NESTED_INDEXES} sitemap indexes, one in another"
        return Extracted("sitemap", document.depth + 1, fault=fault)
    references = filter(None, map(sitemap_reference, entries))
    urls, bad = base.resolve_all(references, _max_entries(rules))
    return Extracted(
        "sitemap",
        document.depth + 1,
        urls,
        SITEMAP_TYPE if is_index else None,
        SITEMAP_ORIGIN,
        document.indexes + 1 if is_index else 0,
        bad=bad,
        fault=elements.fault,
    )


def _extract_gzip(document: Document, base: BaseUrl, rules: ExtractRules) -> Extracted:
    """Extract a compressed sitemap; any other archive is left alone."""
    unpacked = GzipChunks(document.body, rules.max_unpacked)
    chunks = iter(unpacked)
    head = next(chunks, b"")
    if _is_markup(head):
        whole = chain((without_bom(head),), chunks)
        elements = XmlElements(whole, charset_of(head, None), _XML_NAMES)
        found = _extract_xml(document, elements, base, rules)
    elif document.type == SITEMAP_TYPE:
        found = _extract_lines(document, b"".join((head, *chunks)), base, rules)
    else:
        found = Extracted("other", document.depth + 1)
    return _with_fault(found, unpacked.fault)


def _extract_lines(
    document: Document, body: bytes, base: BaseUrl, rules: ExtractRules
) -> Extracted:
    lines = filter(is_sitemap_line, sitemap_lines(body))
    urls, bad = base.resolve_all(lines, _max_entries(rules))
    return Extracted("sitemap", document.depth + 1, urls, origin=SITEMAP_ORIGIN, bad=bad)


def _extract_json(document: Document, base: BaseUrl, rules: ExtractRules) -> Extracted:
    feed = read_json_feed(without_bom(document.body))
    if feed is None:
        return Extracted("other", document.depth + 1)
    references, title = feed
    urls, bad = base.resolve_all(references, rules.max_links)
    title = collapse_spaces(title) if title else None
    return Extracted("feed", document.depth + 1, urls, origin="feed", title=title, bad=bad)


def _max_entries(rules: ExtractRules) -> int:
    return min(rules.max_links, MAX_SITEMAP_URLS)


def _with_headers(
    found: Extracted, document: Document, base: BaseUrl, rules: ExtractRules
) -> Extracted:
    asks = header_directives(document.headers.all("x-robots-tag"), rules.product)
    links = [one for one in link_relations(document.headers.all("link")) if one.leads()]
    urls, bad = base.resolve_all((one.reference for one in links), rules.max_links)
    reference = next((one.reference for one in links if "canonical" in one.names), None)
    canonical = base.resolve(reference) if reference else None
    # Entries of sitemaps and feeds have another origin: header fields add to pages only.
    places = found.places
    if found.origin is None:
        known = {url.identity for url in found.urls}
        new = [url for url in urls if url.identity not in known]
        urls = [*found.urls, *new]
        if rules.places and new:
            places = [*places, *[""] * (len(found.urls) - len(places)), *_places(new, links, base)]
    else:
        urls = found.urls
    return msgspec.structs.replace(
        found,
        places=places[: rules.max_links],
        urls=urls[: rules.max_links],
        nofollow=found.nofollow or asks & NOFOLLOW != 0,
        noindex=found.noindex or asks & NOINDEX != 0,
        canonical=found.canonical or (canonical.text if isinstance(canonical, Url) else None),
        bad=found.bad + bad,
    )


def _places(urls: Iterable[Url], links: Iterable[Relation], base: BaseUrl) -> Iterator[str]:
    """Yield the relations of URLs that header fields name."""
    resolved = ((base.resolve(one.reference), one.places) for one in links)
    places = {url.identity: words for url, words in resolved if isinstance(url, Url)}
    return (places.get(url.identity, "") for url in urls)


def _apply_follow_rules(found: Extracted, rules: ExtractRules) -> Extracted:
    """Drop links that settings or the page forbid to follow; sitemaps are always followed."""
    is_unwanted = not rules.follow and found.kind != "sitemap"
    if is_unwanted or (found.nofollow and rules.nofollow):
        return msgspec.structs.replace(found, urls=[], places=[])
    if len(found.urls) >= rules.max_links:
        return _with_fault(found, f"cut at {rules.max_links} links")
    return found


def _with_fault(found: Extracted, fault: str | None) -> Extracted:
    return found if fault is None else msgspec.structs.replace(found, fault=found.fault or fault)


# ---- the reader

MAX_CHILDREN: Final = 2
CHILD_MEMORY: Final = 2**29  # bytes for one page
MAX_WAIT: Final = 60.0  # seconds for a child to become free: half of a handler's time


def needs_child(document: Document) -> bool:
    """Whether a document may take harmful time or memory; cheap to compute."""
    form, size = form_of(document), len(document.body)
    if form == "other":
        return False
    if form == "gzip" or size > LARGE_PAGE:
        return True
    return form == "html" and document.is_costly


class _ChildTask(msgspec.Struct, frozen=True, array_like=True):
    """A document, as sent to the child."""

    url: str
    fields: HeaderFields
    body: bytes
    type: str
    depth: int
    indexes: int
    rules: ExtractRules


class _ChildAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The child's result, and why the page's tree must not be built in the crawl's process."""

    found: Extracted
    tree_fault: str | None


def extract_in_child(argument: Any) -> _ChildAnswer:
    """Extract a document's links; runs in the child."""
    task = msgspec.convert(argument, _ChildTask)
    document = Document(task.url, task.fields, task.body)
    document.type, document.depth, document.indexes = task.type, task.depth, task.indexes
    fault = tree_fault(document) if form_of(document) == "html" else None
    return _ChildAnswer(extract(document, task.rules), fault)


class Reader:
    """Reads the pages of one crawl; open it with `async with`, which ends the children."""

    def __init__(
        self,
        settings: FetchSettings,
        url_rules: UrlRules,
        *,
        places: bool = False,
        seconds: float = DEFAULT_SECONDS,
        memory: int = CHILD_MEMORY,
    ) -> None:
        self._rules = extract_rules(settings, url_rules, places=places)
        target = f"{__name__}:{extract_in_child.__name__}"
        self._children = ChildPool(
            target,
            seconds=seconds,
            memory=memory,
            children=MAX_CHILDREN,
            quick=seconds / 10,
            max_wait=MAX_WAIT,
        )

    def locate(self, *, places: bool, tag_path: bool) -> None:
        """Set what the links of pages that are read from now on tell of where they were found."""
        self._rules = msgspec.structs.replace(self._rules, places=places, tag_path=tag_path)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the child processes."""
        await self._children.close()

    async def read(self, page: Page) -> Extracted:
        """Extract the page's links and metadata, and set them on the page."""
        found = await self._read_in_child(page) if needs_child(page) else extract(page, self._rules)
        page.found, page.links = found, found.links
        return found

    async def _read_in_child(self, page: Page) -> Extracted:
        fields, about = page.headers.fields, (page.type, page.depth, page.indexes)
        task = _ChildTask(page.url, fields, page.body, *about, self._rules)
        answer = await self._children.call(task, _ChildAnswer, key=page.lease.key)
        if isinstance(answer, Fault):
            page.tree_fault = f"{answer.kind}: {answer.detail}"
            return Extracted("other", page.depth + 1, fault=page.tree_fault)
        page.tree_fault = answer.tree_fault
        return answer.found
