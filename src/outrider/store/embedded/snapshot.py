"""Snapshots: the heads of all crawls as pieces, taken a piece at a time while verbs go on.

Pieces are copied at different moments, and that does no harm: a snapshot names the page it began
at, and the pages from there on are read again over it. Their word is the last one on whatever they
touch, and what they don't touch did not change while it was copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from outrider.store.embedded import packing, pages
from outrider.store.embedded.crawl import FileCrawl, kind_row, said_by
from outrider.store.embedded.file import CrawlFile
from outrider.store.embedded.packing import Entries
from outrider.store.embedded.reading import SPAN, SPAN_BITS
from outrider.store.heads.records import CHUNK_BITS

AWAY_STEP: Final = 10_000
NOTES_STEP: Final = 64
DROPPED: Final = 4  # pieces of an older snapshot forgotten at a time
WHERES_STEP: Final = 1 << 17


class CrawlPiece(msgspec.Struct, array_like=True, tag="crawl"):
    """A crawl's own numbers."""

    crawl: int
    extra: pages.Extra


class SpanPiece(msgspec.Struct, array_like=True, tag="span"):
    """States and pages of a stretch of tasks."""

    crawl: int
    span: int
    states: bytes
    wheres: bytes


class ShapePiece(msgspec.Struct, array_like=True, tag="shape"):
    """How the table of known fingerprints lies; its parts follow."""

    crawl: int
    shape: tuple[int, int, int, dict[int, int]]


class KnownPiece(msgspec.Struct, array_like=True, tag="known"):
    """A part of the table."""

    crawl: int
    start: int
    hashes: bytes
    numbers: bytes


class QueuePiece(msgspec.Struct, array_like=True, tag="queue"):
    """Some queues, and the beginnings of their lines, each as `packing` writes it."""

    crawl: int
    queues: list[bytes]


class LinePiece(msgspec.Struct, array_like=True, tag="line"):
    """More of a long line."""

    crawl: int
    queue: int
    line: int
    entries: Entries


class AwayPiece(msgspec.Struct, array_like=True, tag="away"):
    """Queues that are not in memory."""

    crawl: int
    names: dict[str, int]


class WheresPiece(msgspec.Struct, array_like=True, tag="wheres"):
    """The pages of a stretch of queues."""

    crawl: int
    start: int
    wheres: bytes


Piece = (
    CrawlPiece
    | SpanPiece
    | ShapePiece
    | KnownPiece
    | QueuePiece
    | LinePiece
    | AwayPiece
    | WheresPiece
)
_encode = msgspec.msgpack.Encoder().encode
piece_of = msgspec.msgpack.Decoder(Piece).decode


class Mark(msgspec.Struct, array_like=True):
    """Which snapshot holds, how many pieces it has, and between which pages it was taken."""

    snapshot: int
    pieces: int
    page: int
    end: int


_mark_of = msgspec.msgpack.Decoder(Mark).decode


def mark_of(file: CrawlFile) -> Mark:
    """The snapshot that holds."""
    found = file.meta("snapshot")
    return Mark(0, 0, 0, 0) if found is None else _mark_of(found)


def take(
    file: CrawlFile, crawls: Sequence[FileCrawl], now: int, last_page: Callable[[], int]
) -> Iterator[int]:
    """Take a snapshot, a piece at every step, and say how many bytes that moved.

    The one before holds until this one is whole.

    This one holds no sooner than the pages whose changes it tells of are written.
    """
    old, page = mark_of(file), file.last_page
    number, count = old.snapshot + 1, 0
    while file.drop_pieces(old.snapshot, DROPPED):  # of one that was never whole
        yield packing.PIECE_BYTES
    for crawl in crawls:
        for piece in _pieces(crawl, now):
            data = _encode(piece)
            file.put_piece(number, count, data)
            count += 1
            yield len(data)
    end = last_page()
    while file.last_page < end:  # nothing to do but wait
        yield packing.PIECE_BYTES
    file.set_meta("snapshot", _encode(Mark(number, count, page, end)))
    while file.drop_pieces(number, DROPPED):
        yield packing.PIECE_BYTES


def _pieces(crawl: FileCrawl, now: int) -> Iterator[Piece]:
    whole = whole_extra(crawl, now)
    yield CrawlPiece(crawl.index, whole)
    yield from _note_pieces(crawl, whole.crawl)
    for span, states in enumerate(crawl.states):
        used = min(SPAN, crawl.count + 1 - (span << SPAN_BITS))
        wheres = crawl.wheres[span][:used].tobytes()
        yield SpanPiece(crawl.index, span, bytes(states[:used]), wheres)
    crawl.settle_known()
    parts = crawl.table.pieces()
    first = next(parts, None)  # the table stands still from here on
    yield ShapePiece(crawl.index, crawl.table.shape)
    if first is not None:
        yield KnownPiece(crawl.index, *first)
    for part in parts:
        yield KnownPiece(crawl.index, *part)
    yield from _queue_pieces(crawl)
    yield from _away_pieces(crawl)


def whole_extra(crawl: FileCrawl, now: int) -> pages.Extra:
    """All a crawl tells of itself, but for its notes."""
    return pages.Extra(
        crawl.row(now),
        [kind_row(kind) for kind in crawl.kinds.values()],
        dict(crawl.outcomes),
        list(crawl.log),
        list(crawl.timeline),
        crawl.kept_rules(),
        {mode: list(roots) for mode, roots in crawl.roots.items()},
        crawl.settings,
    )


def _note_pieces(crawl: FileCrawl, row: pages.CrawlRow) -> Iterator[Piece]:
    """What is noted, some at a time; what is noted meanwhile is told by the pages that follow."""
    after, last = 0, crawl.notes.last
    while after < last and (some := crawl.notes.since(after, NOTES_STEP)):
        yield CrawlPiece(crawl.index, pages.Extra(row, [], said=said_by(some)))
        after = some[-1].number


def _away_pieces(crawl: FileCrawl) -> Iterator[Piece]:
    """Queues without work, whether they were in the file or in memory meanwhile."""
    wheres = crawl.queue_wheres
    for start in range(0, len(wheres), WHERES_STEP):
        yield WheresPiece(crawl.index, start, wheres[start : start + WHERES_STEP].tobytes())
    yield AwayPiece(crawl.index, {queue.key: queue.number for queue in crawl.idle.values()})
    for shard in crawl.away:
        names = list(shard.items())
        for start in range(0, len(names), AWAY_STEP):
            yield AwayPiece(crawl.index, dict(names[start : start + AWAY_STEP]))


def _queue_pieces(crawl: FileCrawl) -> Iterator[Piece]:
    """Queues in order of their numbers; long lines come by themselves."""
    batch, size = QueuePiece(crawl.index, []), 0
    for number in range(1, crawl.queue_count + 1):
        data, is_long = _queue_data(crawl, number)
        if data is None:
            continue
        batch.queues.append(data)
        size += len(data)
        if is_long or size > packing.PIECE_BYTES:
            yield batch
            batch, size = QueuePiece(crawl.index, []), 0
        if is_long:
            yield from _long_lines(crawl, number)
    yield batch


def _queue_data(crawl: FileCrawl, number: int) -> tuple[bytes | None, bool]:
    queue = crawl.queues[number >> CHUNK_BITS].get(number)
    if queue is not None:
        return packing.pack(queue, by_turn=crawl.by_turn)
    sleeper = crawl.asleep[number >> CHUNK_BITS].get(number)
    return sleeper, False


def _long_lines(crawl: FileCrawl, number: int) -> Iterator[Piece]:
    """The delayed first: what becomes due meanwhile is then cut twice, and never missed."""
    for place in (2, 0, 1):
        start: int | None = 0
        while start is not None:
            line = packing.lines_of(crawl.queue_of(number))[place]
            entries, start = packing.cut(line, start)
            if entries is not None:
                yield LinePiece(crawl.index, number, place, entries)
