"""Deletion of a crawl from the file: its pages and pieces are replaced by empty ones, in slices.

The file remembers under `removed` which crawls are being removed: from then on the loader skips
what is left of them, so that a kill at any moment does no harm. Numbers stay without gaps, since
an empty page takes the place of each; what they took goes back to the file system where the file
can shrink (`auto_vacuum`), and is used again by later pages where it cannot.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from outrider.store.embedded import log_pages
from outrider.store.embedded.file import CrawlFile, FileReader
from outrider.store.embedded.log_pages import NO_CRAWL
from outrider.store.embedded.snapshot import UnloadedPiece, decode_piece

PIECES_STEP: Final = 4  # pieces of snapshots looked at in one step
VACUUM_STEP: Final = 512  # pages of SQLite given back in one step

_EMPTY_PIECE: Final = msgspec.msgpack.encode(UnloadedPiece(NO_CRAWL, {}))


class RemovedCrawl(msgspec.Struct, array_like=True, frozen=True):
    """A crawl that is being removed: the index of its pages, its name, and when it was created.

    `page` and `piece` are the last ones that were looked at.
    """

    index: int
    name: str
    created: int
    page: int = 0
    piece: int = -1


class Removed(msgspec.Struct, array_like=True, frozen=True):
    """The crawls that are being removed, and the last token of all that ever were."""

    crawls: tuple[RemovedCrawl, ...] = ()
    last_token: int = 0


_decode: Final = msgspec.msgpack.Decoder(Removed).decode


def read_removed(reader: FileReader) -> Removed:
    """Return what the file remembers of removed crawls."""
    found = reader.meta("removed")
    return Removed() if found is None else _decode(found)


def write_removed(file: CrawlFile, removed: Removed) -> None:
    """Remember it."""
    file.set_meta("removed", msgspec.msgpack.encode(removed))


def remove_some(file: CrawlFile, crawl: RemovedCrawl, limit: int) -> RemovedCrawl | None:
    """Replace what is left of a crawl in so many pages and some pieces; None: nothing is left.

    When all pages were looked at, the pieces of snapshots are, and at last space is given back.
    """
    found = file.page_crawls(crawl.page, limit)
    own = [number for number, index in found if index == crawl.index]
    file.replace_pages([log_pages.PageRow(number, log_pages.empty_page(number)) for number in own])
    crawl = replace(crawl, page=found[-1][0] if found else crawl.page)
    if len(found) == limit:
        return crawl
    pieces = file.pieces_after(crawl.piece, PIECES_STEP)
    for key, data in pieces:
        if decode_piece(data).crawl == crawl.index:
            file.replace_piece(key, _EMPTY_PIECE)
    crawl = replace(crawl, piece=pieces[-1][0] if pieces else crawl.piece)
    return crawl if len(pieces) == PIECES_STEP or file.shrink(VACUUM_STEP) else None
