"""What is read out of a response (K3): links of pages, feeds, sitemaps and headers.

Nothing a host sends makes it raise; what could not be read is told as `fault`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final, Literal, TypeAlias, assert_never

import msgspec

from outrider.core.url import Refusal, Url, UrlRules, parse_url
from outrider.fetch import feeds, sitemaps
from outrider.fetch.charset import charset_of, without_bom
from outrider.fetch.document import GZIP, HTML, XML, Document
from outrider.fetch.found import Found, ReadingRules, reading_rules
from outrider.fetch.hints import NOFOLLOW, NOINDEX, asked_by_headers, relations
from outrider.fetch.html import read_html, words
from outrider.fetch.markup import Element, Elements, pieces_of
from outrider.fetch.page import Page
from outrider.fetch.references import Base
from outrider.settings.worker_schema import FetchSettings

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
_MAGIC: Final = b"\x1f\x8b"
_LOOKED_AT: Final = 1024
_ROOT_TAGS: Final = (b"<rss", b"<feed", b"<rdf:rdf", b"<urlset", b"<sitemapindex")
_HTML_OPENINGS: Final = (b"<!doctype html", b"<html")
_XML_OPENINGS: Final = (b"<?xml", b"<!--", *_ROOT_TAGS)
_XML_NAMES: Final = feeds.NAMES | sitemaps.NAMES


def found_in(page: Page, settings: FetchSettings, url_rules: UrlRules) -> Found:
    """What a page leads to and says of itself; reads it here and now."""
    return read(page, reading_rules(settings, url_rules))


def read(document: Document, rules: ReadingRules) -> Found:
    """What a document leads to and says of itself; reads it here and now."""
    here = parse_url(document.url, rules.url_rules)
    if isinstance(here, Refusal):
        return Found("other", document.depth + 1, fault=f"its own URL is refused: {here.reason}")
    base = Base(here, rules.url_rules)
    found = _read(document, base, rules)
    headers = document.headers
    if "link" in headers or "x-robots-tag" in headers:
        found = _with_headers(found, document, base, rules)
    return _without_unwanted(found, rules)


def form_of(document: Document) -> Form:
    """How a document is to be read: as the host says, or as its first bytes show."""
    if document.body.startswith(_MAGIC):
        return "gzip"
    told = _FORMS.get(document.media_type, "other")
    if told in {"html", "xml"} or document.media_type.endswith("+xml"):
        return _form_of_markup(document.body, "html" if told == "html" else "xml")
    if told == "other" and document.type == sitemaps.TYPE:
        return "xml" if _is_markup(document.body) else "lines"
    return told


def _form_of_markup(body: bytes, told: Form) -> Form:
    """Feeds and sitemaps come under the name of HTML, and XHTML under that of XML."""
    head = _head(body).lower()
    if head.startswith(_HTML_OPENINGS):  # almost all
        return "html"
    if head.startswith(_XML_OPENINGS) and any(root in head for root in _ROOT_TAGS):
        return "xml"
    return "html" if b"<html" in head else told


def _is_markup(body: bytes) -> bool:
    return _head(body).startswith(b"<")


def _head(body: bytes) -> bytes:
    return without_bom(body[:_LOOKED_AT]).lstrip(_WHITESPACE)


def _read(document: Document, base: Base, rules: ReadingRules) -> Found:
    form = form_of(document)
    match form:
        case "html":
            return read_html(document, base, rules)
        case "xml":
            pieces = pieces_of(without_bom(document.body))
            return _read_xml(document, Elements(pieces, document.charset, _XML_NAMES), base, rules)
        case "gzip":
            return _read_packed(document, base, rules)
        case "json":
            return _read_json(document, base, rules)
        case "lines":
            return _read_lines(document, document.body, base, rules)
        case "other":
            return Found("other", document.depth + 1)
        case _:
            assert_never(form)


def _read_xml(document: Document, elements: Elements, base: Base, rules: ReadingRules) -> Found:
    rest = iter(elements)
    first = tuple(islice(rest, 1))  # now the root is known
    if elements.base:
        base = base.moved(elements.base)
    if elements.root in sitemaps.ROOTS:
        return _read_sitemap(document, elements, chain(first, rest), base, rules)
    if elements.root not in feeds.ROOTS:
        return Found("other", document.depth + 1, fault=elements.fault)
    titles: list[str] = []
    references = _items(chain(first, rest), titles)
    urls, bad = base.resolve_all(references, rules.max_links)
    return Found(
        "feed",
        document.depth + 1,
        urls,
        origin="feed",
        title=words(titles[0]) if titles else None,
        bad=bad,
        fault=elements.fault,
    )


def _items(elements: Iterable[Element], titles: list[str]) -> Iterator[str]:
    for element in elements:
        if not titles and (title := feeds.title_of(element)):
            titles.append(title)
        if reference := feeds.reference_of(element):
            yield reference


def _read_sitemap(
    document: Document,
    elements: Elements,
    entries: Iterable[Element],
    base: Base,
    rules: ReadingRules,
) -> Found:
    is_index = elements.root == sitemaps.INDEX
    if is_index and document.indexes >= sitemaps.MOST_INDEXES:
        fault = f"more than {sitemaps.MOST_INDEXES} sitemap indexes, one in another"
        return Found("sitemap", document.depth + 1, fault=fault)
    references = filter(None, map(sitemaps.reference_of, entries))
    urls, bad = base.resolve_all(references, _most_entries(rules))
    return Found(
        "sitemap",
        document.depth + 1,
        urls,
        sitemaps.TYPE if is_index else "page",
        sitemaps.ORIGIN,
        document.indexes + 1 if is_index else 0,
        bad=bad,
        fault=elements.fault,
    )


def _read_packed(document: Document, base: Base, rules: ReadingRules) -> Found:
    """A sitemap, if its beginning looks like one; any other archive is left alone."""
    unpacked = sitemaps.Unpacked(document.body, rules.max_unpacked)
    pieces = iter(unpacked)
    head = next(pieces, b"")
    if _is_markup(head):
        whole = chain((without_bom(head),), pieces)
        elements = Elements(whole, charset_of(head, None), _XML_NAMES)
        found = _read_xml(document, elements, base, rules)
    elif document.type == sitemaps.TYPE:
        found = _read_lines(document, b"".join((head, *pieces)), base, rules)
    else:
        found = Found("other", document.depth + 1)
    return _with_fault(found, unpacked.fault)


def _read_lines(document: Document, body: bytes, base: Base, rules: ReadingRules) -> Found:
    lines = filter(sitemaps.is_address, sitemaps.lines_of(body))
    urls, bad = base.resolve_all(lines, _most_entries(rules))
    return Found("sitemap", document.depth + 1, urls, origin=sitemaps.ORIGIN, bad=bad)


def _read_json(document: Document, base: Base, rules: ReadingRules) -> Found:
    told = feeds.read_json(without_bom(document.body))
    if told is None:
        return Found("other", document.depth + 1)
    references, title = told
    urls, bad = base.resolve_all(references, rules.max_links)
    title = words(title) if title else None
    return Found("feed", document.depth + 1, urls, origin="feed", title=title, bad=bad)


def _most_entries(rules: ReadingRules) -> int:
    return min(rules.max_links, sitemaps.MOST_URLS)


def _with_headers(found: Found, document: Document, base: Base, rules: ReadingRules) -> Found:
    asks = asked_by_headers(document.headers.all("x-robots-tag"), rules.product)
    links = [one for one in relations(document.headers.all("link")) if one.leads()]
    urls, bad = base.resolve_all((one.reference for one in links), rules.max_links)
    told = next((one.reference for one in links if "canonical" in one.names), None)
    canonical = base.resolve(told) if told else None
    # A sitemap's or feed's own entries have another origin: headers add to pages only.
    if found.origin is None:
        known = {url.identity for url in found.urls}
        urls = [*found.urls, *(url for url in urls if url.identity not in known)]
    else:
        urls = found.urls
    return msgspec.structs.replace(
        found,
        urls=urls[: rules.max_links],
        nofollow=found.nofollow or asks & NOFOLLOW != 0,
        noindex=found.noindex or asks & NOINDEX != 0,
        canonical=found.canonical or (canonical.text if isinstance(canonical, Url) else None),
        bad=found.bad + bad,
    )


def _without_unwanted(found: Found, rules: ReadingRules) -> Found:
    """Sitemaps are there to be followed; whether links are is a setting and the page's to say."""
    is_unwanted = not rules.follow and found.kind != "sitemap"
    if is_unwanted or (found.nofollow and rules.nofollow):
        return msgspec.structs.replace(found, urls=[])
    if len(found.urls) >= rules.max_links:
        return _with_fault(found, f"cut at {rules.max_links} links")
    return found


def _with_fault(found: Found, fault: str | None) -> Found:
    return found if fault is None else msgspec.structs.replace(found, fault=found.fault or fault)
