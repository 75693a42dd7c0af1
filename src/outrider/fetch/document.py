"""A body and how to read it: media type, charset, text and tree, each found out when asked for.

Nothing here raises for what a host sent; reading is lazy, so an unread page costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser

from outrider.fetch.charset import UTF_8, charset_of, decoded, without_bom
from outrider.fetch.parse_cost import may_be_costly

OCTETS: Final = "application/octet-stream"
HTML: Final = "text/html"
XML: Final = "application/xml"
GZIP: Final = "application/gzip"

# Mutation events serve scripts; a hostile <select> makes them take quadratic time.
_WITHOUT_EVENTS: Final = int(LexborDocumentOptions.WO_EVENTS)
_SNIFFED: Final = 512
_WHITESPACE: Final = b"\t\n\f\r "
_UNTOLD: Final = frozenset({"", OCTETS, "unknown/unknown", "application/unknown", "*/*"})
_MAGIC: Final = (
    (b"\x1f\x8b\x08", GZIP),
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF8", "image/gif"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"PK\x03\x04", "application/zip"),
)
_OPENINGS: Final = (
    (b"<?xml", XML),
    (b"<rss", XML),
    (b"<feed", XML),
    (b"<urlset", XML),
    (b"<sitemapindex", XML),
    (b"<!doctype html", HTML),
    (b"<html", HTML),
    (b"<head", HTML),
    (b"<body", HTML),
    (b"<title", HTML),
    (b"<script", HTML),
    (b"<meta", HTML),
    (b"<!--", HTML),
    (b"<h1", HTML),
    (b"<div", HTML),
    (b"<table", HTML),
    (b"<p", HTML),
    (b"<a", HTML),
)

HeaderFields = tuple[tuple[str, str], ...]


class Headers(Mapping[str, str]):
    """Header fields by name, whatever its letter case; of several the first."""

    __slots__ = ("_first", "fields")

    def __init__(self, fields: HeaderFields) -> None:
        self.fields = fields  # all of them, as the host wrote them
        self._first: dict[str, str] = {}
        for name, value in fields:
            self._first.setdefault(name.lower(), value)

    def __getitem__(self, name: str) -> str:
        return self._first[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._first

    def __iter__(self) -> Iterator[str]:
        return iter(self._first)

    def __len__(self) -> int:
        return len(self._first)

    def __repr__(self) -> str:
        return f"Headers({self.fields!r})"

    def all(self, name: str) -> list[str]:
        """Every field of a name, in order."""
        wanted = name.lower()
        if wanted not in self._first:
            return []
        return [value for key, value in self.fields if key.lower() == wanted]


class Document:
    """What came, and as what it was asked for."""

    type = "page"  # of the task
    depth = 0
    indexes = 0  # sitemap indexes passed on the way here

    def __init__(self, url: str, fields: HeaderFields, body: bytes) -> None:
        self.url = url
        self.body = body
        self._fields = fields

    @cached_property
    def headers(self) -> Headers:
        """The header fields, by name."""
        return Headers(self._fields)

    @cached_property
    def media_type(self) -> str:
        """As the host says; if it does not say, as the first bytes look."""
        told = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return sniffed(self.body) if told in _UNTOLD else told

    @cached_property
    def charset(self) -> str:
        """The codec the body is read with: BOM, header, the page's own word, or a guess."""
        return charset_of(self.body, self.headers.get("content-type"))

    @cached_property
    def text(self) -> str:
        """The body as text, whatever it is."""
        return decoded(self.body, self.charset)

    @cached_property
    def source(self) -> bytes:
        """The body in UTF-8, as the HTML parser is given it."""
        return without_bom(self.body) if self.charset == UTF_8 else self.text.encode()

    @cached_property
    def is_costly(self) -> bool:
        """Whether parsing the body as HTML may take harmful time or memory."""
        return may_be_costly(self.source)

    @cached_property
    def tree(self) -> LexborHTMLParser:
        """The body as HTML, parsed here and now, whatever that costs."""
        return LexborHTMLParser(self.source, options=_WITHOUT_EVENTS)


def sniffed(body: bytes) -> str:
    """The media type the first bytes look like."""
    for magic, kind in _MAGIC:
        if body.startswith(magic):
            return kind
    head = without_bom(body[:_SNIFFED]).lstrip(_WHITESPACE).lower()
    for opening, kind in _OPENINGS:
        if head.startswith(opening):
            return kind
    return OCTETS if b"\0" in head or not head else "text/plain"
