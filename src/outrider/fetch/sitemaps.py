"""What sitemaps lead to: pages, or from an index further sitemaps; packed ones are unpacked within
a bound, piece by piece.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from outrider.fetch.charset import decoded
from outrider.fetch.markup import PIECE, Element, pieces_of

TYPE: Final = "sitemap"
ORIGIN: Final = "sitemap"
INDEX: Final = "sitemapindex"
ROOTS: Final = frozenset({"urlset", INDEX})
NAMES: Final = frozenset({"loc"})
MOST_URLS: Final = 50_000  # by the protocol, of one file
# The protocol allows one; some sites have an index of indexes.
MOST_INDEXES: Final = 3

_ENTRIES: Final = frozenset({"url", "sitemap"})
_GZIP: Final = 16 + zlib.MAX_WBITS


def reference_of(element: Element) -> str | None:
    """The address of an entry; an image's or a video's is none."""
    return element.text if element.parent in _ENTRIES else None


def lines_of(body: bytes) -> list[str]:
    """The addresses of a plain-text sitemap, one a line."""
    return decoded(body, "utf-8").splitlines()


def is_address(line: str) -> bool:
    """Whether a line of a plain-text sitemap is meant as one."""
    return line.lstrip().lower().startswith(("http://", "https://"))


class Unpacked:
    """A gzip file in pieces, at most so many bytes in all; a fault ends it and is kept."""

    def __init__(self, body: bytes, most: int) -> None:
        self.fault: str | None = None
        self._body = body
        self._left = most

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._pieces()
        except zlib.error:
            self.fault = "malformed: not gzip to its end"

    def _pieces(self) -> Iterator[bytes]:
        unpacker = zlib.decompressobj(_GZIP)
        for packed in pieces_of(self._body):
            while packed and not unpacker.eof:
                if self._left <= 0:
                    self.fault = "unpacks to too many bytes"
                    return
                piece = unpacker.decompress(packed, min(PIECE, self._left))
                packed = unpacker.unconsumed_tail  # noqa: PLW2901 - what is left of it
                self._left -= len(piece)
                yield piece
        if not unpacker.eof:
            self.fault = "cut short"
