"""A body and how to read it: media type, charset, text and HTML tree, each computed on first use.

Nothing raises because of what a host sent. A tree may be far larger than its page, so its cost is
checked in a child process (`tree_fault_in_child`) if its upper bound is high (`parse_cost`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from threading import BoundedSemaphore
from time import process_time
from typing import Final

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser

from outrider.fetch.child_pool import Fault, call_once
from outrider.fetch.parse_cost import may_be_costly, tree_bytes

# ---- charsets
#
# Bytes are decoded as browsers do it, with the codecs of this table only. What cannot be decoded
# becomes U+FFFD.

UTF_8: Final = "utf-8"
FALLBACK_CODEC: Final = "windows-1252"
CHARSET_WITHIN: Final = 1024  # bytes in which a page may name its charset

_BOMS: Final = ((b"\xef\xbb\xbf", UTF_8), (b"\xfe\xff", "utf-16-be"), (b"\xff\xfe", "utf-16-le"))
_BOM_STARTS: Final = frozenset(bom[:1] for bom, _ in _BOMS)

# Python's codec → the labels of the WHATWG Encoding Standard. Others are never used: a page
# cannot choose utf-7, zlib, or a codec that takes quadratic time.
_LABELS: Final = {
    UTF_8: "utf-8 utf8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8",
    FALLBACK_CODEC: "windows-1252 cp1252 x-cp1252 ascii us-ascii ansi_x3.4-1968 iso-8859-1 "
    "iso8859-1 "
    "iso88591 iso_8859-1 iso_8859-1:1987 iso-ir-100 latin1 latin-1 l1 csisolatin1 cp819 ibm819 "
    "x-user-defined",
    "windows-1250": "windows-1250 cp1250 x-cp1250",
    "windows-1251": "windows-1251 cp1251 x-cp1251",
    "windows-1253": "windows-1253 cp1253 x-cp1253",
    "windows-1254": "windows-1254 cp1254 x-cp1254 iso-8859-9 iso8859-9 iso88599 iso_8859-9 latin5 "
    "l5 csisolatin5 iso-ir-148",
    "windows-1255": "windows-1255 cp1255 x-cp1255",
    "windows-1256": "windows-1256 cp1256 x-cp1256",
    "windows-1257": "windows-1257 cp1257 x-cp1257",
    "windows-1258": "windows-1258 cp1258 x-cp1258",
    "cp874": "windows-874 dos-874 iso-8859-11 iso8859-11 iso885911 tis-620",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "iso-8859-2 iso8859-2 iso88592 iso_8859-2 latin2 l2 csisolatin2 iso-ir-101",
    "iso8859-3": "iso-8859-3 iso8859-3 iso88593 iso_8859-3 latin3 l3 csisolatin3 iso-ir-109",
    "iso8859-4": "iso-8859-4 iso8859-4 iso88594 iso_8859-4 latin4 l4 csisolatin4 iso-ir-110",
    "iso8859-5": "iso-8859-5 iso8859-5 iso88595 iso_8859-5 cyrillic csisolatincyrillic iso-ir-144",
    "iso8859-6": "iso-8859-6 iso8859-6 iso88596 iso_8859-6 arabic csisolatinarabic ecma-114 "
    "asmo-708 iso-8859-6-e iso-8859-6-i",
    "iso8859-7": "iso-8859-7 iso8859-7 iso88597 iso_8859-7 greek greek8 csisolatingreek ecma-118 "
    "elot_928 sun_eu_greek",
    "iso8859-8": "iso-8859-8 iso8859-8 iso88598 iso_8859-8 hebrew csisolatinhebrew visual "
    "iso-8859-8-e iso-8859-8-i csiso88598e csiso88598i logical",
    "iso8859-10": "iso-8859-10 iso8859-10 iso885910 latin6 l6 csisolatin6 iso-ir-157",
    "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859-15": "iso-8859-15 iso8859-15 iso885915 iso_8859-15 latin9 l9 csisolatin9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "koi koi8 koi8-r koi8_r cskoi8r",
    "koi8-u": "koi8-u koi8-ru",
    "mac-roman": "macintosh mac csmacintosh x-mac-roman",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "gb18030 gbk gb2312 gb_2312 gb_2312-80 chinese csgb2312 csiso58gb231280 iso-ir-58 "
    "x-gbk",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "euc-jp x-euc-jp cseucpkdfmtjapanese",
    "iso2022_jp": "iso-2022-jp csiso2022jp",
    "cp932": "shift_jis shift-jis sjis x-sjis ms932 ms_kanji windows-31j csshiftjis",
    "cp949": "euc-kr cseuckr korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949 "
    "csksc56011987 iso-ir-149",
    "utf-16-be": "utf-16be unicodefffe",
    "utf-16-le": "utf-16 utf-16le unicode unicodefeff ucs-2 iso-10646-ucs-2 csunicode",
}
_CODECS: Final = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}

# Possessive, so that no run of blanks is read twice: it takes linear time.
_HEADER_CHARSET: Final = re.compile(
    r"charset\s*+=\s*+[\"']?+\s*+([^\s\"';,]++)", re.IGNORECASE
).search
# Comments are skipped whole. Searched in CHARSET_WITHIN bytes only:
# it takes quadratic time for tags that begin again and again.
_PAGE_CHARSET: Final = re.compile(
    rb"<!--.*?(?:-->|\Z)"
    rb"|<meta[\s/][^>]*?charset\s*+=\s*+[\"']?+\s*+([^\s\"';/>]++)"
    rb"|<\?xml\s[^>]*?encoding\s*+=\s*+[\"']([^\"'>]++)",
    re.IGNORECASE | re.DOTALL,
).finditer


def charset_of(body: bytes, content_type: str | None) -> str:
    """Return the codec of a body: by BOM, header, the page's declaration, or a guess."""
    bom, codec = _find_bom(body)
    if bom:
        return codec
    named = _charset_in_header(content_type) or _charset_in_page(body[:CHARSET_WITHIN])
    return named or (UTF_8 if _is_utf_8(body) else FALLBACK_CODEC)


def decode_body(body: bytes, codec: str) -> str:
    """Decode a body without its byte order mark; never raises."""
    return without_bom(body).decode(codec, "replace")


def without_bom(body: bytes) -> bytes:
    """Return the bytes after the byte order mark, if there is one."""
    bom, _ = _find_bom(body)
    return body[len(bom) :] if bom else body


def _find_bom(body: bytes) -> tuple[bytes, str]:
    if body[:1] in _BOM_STARTS:
        for bom, codec in _BOMS:
            if body.startswith(bom):
                return bom, codec
    return b"", ""


def _charset_in_header(content_type: str | None) -> str | None:
    found = _HEADER_CHARSET(content_type) if content_type else None
    return None if found is None else _CODECS.get(found[1].lower())


def _charset_in_page(head: bytes) -> str | None:
    for found in _PAGE_CHARSET(head):
        label = found[1] or found[2]
        if label is None:
            continue
        codec = _CODECS.get(label.strip().lower().decode("ascii", "replace"))
        # A page whose declaration can be read as ASCII is not UTF-16, whatever it says.
        if codec is not None:
            return UTF_8 if codec.startswith("utf-16") else codec
    return None


def _is_utf_8(body: bytes) -> bool:
    try:
        return body.isascii() or bool(body.decode())
    except UnicodeDecodeError:
        return False


# ---- documents

OCTET_STREAM: Final = "application/octet-stream"
HTML: Final = "text/html"
XML: Final = "application/xml"
GZIP: Final = "application/gzip"

# Mutation events are for scripts; a hostile <select> makes them take quadratic time.
_NO_MUTATION_EVENTS: Final = int(LexborDocumentOptions.WO_EVENTS)
_SNIFFED_BYTES: Final = 512
_WHITESPACE: Final = b"\t\n\f\r "
_UNKNOWN_TYPES: Final = frozenset(
    {"", OCTET_STREAM, "unknown/unknown", "application/unknown", "*/*"}
)
_MAGIC_NUMBERS: Final = (
    (b"\x1f\x8b\x08", GZIP),
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF8", "image/gif"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"PK\x03\x04", "application/zip"),
)
_MARKUP_OPENINGS: Final = (
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
    """Header fields by name, in any letter case; of several the first."""

    __slots__ = ("_first", "fields")

    def __init__(self, fields: HeaderFields) -> None:
        self.fields = fields  # all, as the host wrote them
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
        """Return every field of a name, in order."""
        wanted = name.lower()
        if wanted not in self._first:
            return []
        return [value for key, value in self.fields if key.lower() == wanted]


class Document:
    """A response's header fields and body, and the type of its task."""

    type = "page"  # of the task
    depth = 0
    indexes = 0  # sitemap indexes on the path to it

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
        """The Content-Type; if it is absent or generic, by the first bytes."""
        declared = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return sniff_media_type(self.body) if declared in _UNKNOWN_TYPES else declared

    @cached_property
    def charset(self) -> str:
        """The body's codec: by BOM, header, the page's declaration, or a guess."""
        return charset_of(self.body, self.headers.get("content-type"))

    @cached_property
    def text(self) -> str:
        """The body as text, whatever its media type."""
        return decode_body(self.body, self.charset)

    @cached_property
    def source(self) -> bytes:
        """The body in UTF-8, as the HTML parser takes it."""
        return without_bom(self.body) if self.charset == UTF_8 else self.text.encode()

    @cached_property
    def is_costly(self) -> bool:
        """Whether parsing the body as HTML may take harmful time or memory."""
        return may_be_costly(self.source)

    @cached_property
    def tree(self) -> LexborHTMLParser:
        """The body parsed as HTML, whatever that costs."""
        return LexborHTMLParser(self.source, options=_NO_MUTATION_EVENTS)


def sniff_media_type(body: bytes) -> str:
    """Return the media type that the first bytes suggest."""
    for magic, kind in _MAGIC_NUMBERS:
        if body.startswith(magic):
            return kind
    head = without_bom(body[:_SNIFFED_BYTES]).lstrip(_WHITESPACE).lower()
    for opening, kind in _MARKUP_OPENINGS:
        if head.startswith(opening):
            return kind
    return OCTET_STREAM if b"\0" in head or not head else "text/plain"


# ---- the cost of a tree

MAX_CPU_SECONDS: Final = 2.0
MAX_BYTES: Final = 64 * 2**20
MAX_BYTES_PER_SOURCE_BYTE: Final = 24  # an ordinary tree takes about 7
CHECK_SECONDS: Final = 5.0
CHECK_MEMORY: Final = 2**29
_checks = BoundedSemaphore(2)  # child processes at one time, for all handlers


def tree_fault(document: Document) -> str:
    """Build the document's tree; return why that must not be done in the crawl's process, or ""."""
    started = process_time()
    tree = document.tree
    seconds = process_time() - started
    if seconds > MAX_CPU_SECONDS:
        return f"time: parsing it took {seconds:.1f} s, over {MAX_CPU_SECONDS:g} s"
    size = tree_bytes(tree.html or "")
    limit = MAX_BYTES + MAX_BYTES_PER_SOURCE_BYTE * len(document.source)
    if size > limit:
        return f"memory: its tree takes about {size >> 20} MiB, over {limit >> 20} MiB"
    return ""


def tree_fault_of_source(source: bytes) -> str:
    """`tree_fault` of UTF-8 text; runs in the child."""
    return tree_fault(Document("", (("Content-Type", "text/html; charset=utf-8"),), source))


def tree_fault_in_child(source: bytes) -> str:
    """`tree_fault` of UTF-8 text, computed in a child process; blocks."""
    target = f"{__name__}:{tree_fault_of_source.__name__}"
    with _checks:
        answer = call_once(target, source, str, seconds=CHECK_SECONDS, memory=CHECK_MEMORY)
    return f"{answer.kind}: {answer.detail}" if isinstance(answer, Fault) else answer
