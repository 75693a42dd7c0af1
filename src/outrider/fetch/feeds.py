"""Feeds and sitemaps: the pages that RSS, Atom, RDF, JSON Feed and sitemap files lead to.

XML is read in chunks, without entities, internal DTD or external files. What was read before an
error is kept, and the error is reported as `fault`. Compressed sitemaps are decompressed within a
bound, chunk by chunk.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from xml.parsers import expat

import msgspec

from outrider.fetch.document import decode_body

# ---- XML

MAX_DEPTH: Final = 256
MAX_ELEMENT_TEXT: Final = 16_384  # characters of one element
MAX_TOKEN_BYTES: Final = 2**20  # of an unfinished token: expat would read it again and again
CHUNK_BYTES: Final = 65_536


class XmlElement(NamedTuple):
    """A complete element: local names in lower case, attributes as written."""

    parent: str
    name: str
    attributes: dict[str, str]
    text: str


class _RefusedXml(Exception):
    """The document contains something that is not read."""


class XmlElements:
    """Iterates over a document's elements of given names, in the order of their ends."""

    def __init__(self, chunks: Iterable[bytes], codec: str, names: frozenset[str]) -> None:
        self.root = ""
        self.base: str | None = None  # xml:base of the root
        self.fault: str | None = None
        self._chunks = chunks
        self._codec = codec
        self._names = names
        self._path: list[str] = [""]
        self._open: list[tuple[dict[str, str], list[str]]] = []
        self._text_left = 0
        self._ended: list[XmlElement] = []

    def __iter__(self) -> Iterator[XmlElement]:
        try:
            yield from self._read()
        except _RefusedXml as refusal:
            self.fault = str(refusal)
        except expat.ExpatError as error:
            self.fault = f"malformed: {expat.ErrorString(error.code)}, line {error.lineno}"
        yield from self._taken()

    def _read(self) -> Iterator[XmlElement]:
        parser = self._parser()
        decode = codecs.getincrementaldecoder(self._codec)("replace").decode
        given = 0
        for chunk in self._chunks:
            data = decode(chunk).encode()
            given += len(data)
            parser.Parse(data, False)
            if given - max(parser.CurrentByteIndex, 0) > MAX_TOKEN_BYTES:
                raise _RefusedXml("a tag or comment is too long")
            yield from self._taken()
        parser.Parse(decode(b"", True).encode(), True)

    def _parser(self) -> expat.XMLParserType:
        parser = expat.ParserCreate("utf-8")
        parser.UseForeignDTD(True)  # none is loaded, but `&nbsp;` is skipped instead of an error
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _doctype
        parser.EntityDeclHandler = _entity
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        return parser

    def _taken(self) -> list[XmlElement]:
        taken, self._ended = self._ended, []
        return taken

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(":")[2].lower()
        if len(self._path) == 1:
            self.root, self.base = local, attributes.get("xml:base")
        if len(self._path) > MAX_DEPTH:
            raise _RefusedXml(f"elements are nested deeper than {MAX_DEPTH}")
        self._path.append(local)
        if local in self._names:
            self._open.append((attributes, []))
            self._text_left = MAX_ELEMENT_TEXT

    def _text(self, text: str) -> None:
        if self._open and self._path[-1] in self._names and self._text_left > 0:
            self._open[-1][1].append(text[: self._text_left])
            self._text_left -= len(text)

    def _end(self, _: str) -> None:
        local = self._path.pop()
        if local in self._names:
            attributes, texts = self._open.pop()
            self._ended.append(XmlElement(self._path[-1], local, attributes, "".join(texts)))


def _doctype(_name: str, _system: str | None, _public: str | None, has_subset: int) -> None:
    if has_subset:
        raise _RefusedXml("a document type of its own is not read")


def _entity(*_: object) -> None:
    raise _RefusedXml("an entity is declared")


def chunks_of(body: bytes) -> Iterator[bytes]:
    """Split a body into chunks."""
    return (body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES))


# ---- feeds

FEED_ROOTS: Final = frozenset({"rss", "feed", "rdf"})
FEED_NAMES: Final = frozenset({"link", "guid", "title"})
_ITEMS: Final = frozenset({"item", "entry"})
_JSON_FEED_WITHIN: Final = 1024  # bytes in which a JSON Feed names its version
_FEEDS: Final = frozenset({"channel", "feed"})


def feed_reference(element: XmlElement) -> str | None:
    """Return the page that an item's element names, or the feed's next part (RFC 5005)."""
    attributes = element.attributes
    if element.name == "guid":
        is_permalink = attributes.get("isPermaLink", "true").strip().lower()
        is_link = is_permalink == "true" and element.text.strip().lower().startswith("http")
        return element.text if is_link else None
    if element.name != "link":
        return None
    if element.parent in _ITEMS:
        is_page = attributes.get("rel", "alternate").strip().lower() in {"", "alternate"}
        return (attributes.get("href") or element.text) if is_page else None
    return attributes.get("href") if attributes.get("rel", "").strip().lower() == "next" else None


def feed_title(element: XmlElement) -> str | None:
    """Return the feed's title, if the element is it."""
    return element.text if element.name == "title" and element.parent in _FEEDS else None


class _JsonItem(msgspec.Struct):
    url: str | None = None
    external_url: str | None = None


class _JsonFeed(msgspec.Struct):
    title: str | None = None
    next_url: str | None = None
    items: list[_JsonItem] = []


_decode_json_feed = msgspec.json.Decoder(_JsonFeed).decode


def read_json_feed(body: bytes) -> tuple[list[str], str | None] | None:
    """Return the pages and the title of a JSON Feed; None if it is none."""
    if b"jsonfeed.org/version" not in body[:_JSON_FEED_WITHIN]:
        return None
    try:
        feed = _decode_json_feed(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    pages = [item.url or item.external_url or "" for item in feed.items]
    return [*pages, feed.next_url or ""], feed.title


# ---- sitemaps

SITEMAP_TYPE: Final = "sitemap"
SITEMAP_ORIGIN: Final = "sitemap"
SITEMAP_INDEX: Final = "sitemapindex"
SITEMAP_ROOTS: Final = frozenset({"urlset", SITEMAP_INDEX})
SITEMAP_NAMES: Final = frozenset({"loc"})
MAX_SITEMAP_URLS: Final = 50_000  # of one file, by the protocol
# The protocol allows one; some sites have an index of indexes.
MAX_NESTED_INDEXES: Final = 3

_ENTRIES: Final = frozenset({"url", "sitemap"})
_GZIP: Final = 16 + zlib.MAX_WBITS


def sitemap_reference(element: XmlElement) -> str | None:
    """Return the URL of an entry; None for an image's or a video's."""
    return element.text if element.parent in _ENTRIES else None


def sitemap_lines(body: bytes) -> list[str]:
    """Return the lines of a plain-text sitemap, one URL per line."""
    return decode_body(body, "utf-8").splitlines()


def is_sitemap_line(line: str) -> bool:
    """Whether a line of a plain-text sitemap is meant as a URL."""
    return line.lstrip().lower().startswith(("http://", "https://"))


class GzipChunks:
    """Decompresses a gzip file in chunks, within a limit; an error ends it and sets `fault`."""

    def __init__(self, body: bytes, limit: int) -> None:
        self.fault: str | None = None
        self._body = body
        self._left = limit

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._chunks()
        except zlib.error:
            self.fault = "malformed: not gzip to its end"

    def _chunks(self) -> Iterator[bytes]:
        unpacker = zlib.decompressobj(_GZIP)
        for packed in chunks_of(self._body):
            while packed and not unpacker.eof:
                if self._left <= 0:
                    self.fault = "unpacks to too many bytes"
                    return
                chunk = unpacker.decompress(packed, min(CHUNK_BYTES, self._left))
                packed = unpacker.unconsumed_tail  # noqa: PLW2901 - the rest of it
                self._left -= len(chunk)
                yield chunk
        if not unpacker.eof:
            self.fault = "cut short"
