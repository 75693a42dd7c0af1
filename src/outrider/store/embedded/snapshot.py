"""Snapshots: the state of all crawls in pieces, written a piece at a time between verbs.

Pieces are taken at different moments, and that does no harm: a snapshot names the page it began
at, and the pages from there on are read again over it. What they store is current, and what they
do not mention did not change while the snapshot was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from outrider.store.embedded import log_pages, queue_codec
from outrider.store.embedded.crawl import FileCrawl, counts_row, value_rows
from outrider.store.embedded.file import CrawlFile, FileReader
from outrider.store.embedded.queue_codec import Entries
from outrider.store.embedded.task_table import SPAN, SPAN_BITS
from outrider.store.engine.records import CHUNK_BITS

UNLOADED_STEP: Final = 10_000
VALUES_STEP: Final = 64
DROPPED: Final = 4  # pieces of an older snapshot deleted at a time
QUEUE_PAGES_STEP: Final = 1 << 17


class CrawlPiece(msgspec.Struct, array_like=True, tag="crawl"):
    """A crawl's own numbers."""

    crawl: int
    update: log_pages.CrawlUpdate


class SpanPiece(msgspec.Struct, array_like=True, tag="span"):
    """States, pages and queues of a span of tasks."""

    crawl: int
    span: int
    states: bytes
    task_pages: bytes
    queue_numbers: bytes = b""  # 0: not known; older releases stored none


class ShapePiece(msgspec.Struct, array_like=True, tag="shape"):
    """The shape of the fingerprint table; its parts follow."""

    crawl: int
    shape: tuple[int, int, int, dict[int, int]]


class KnownPiece(msgspec.Struct, array_like=True, tag="known"):
    """A part of the fingerprint table."""

    crawl: int
    start: int
    hashes: bytes
    numbers: bytes


class QueuePiece(msgspec.Struct, array_like=True, tag="queue"):
    """Some queues, each as `queue_codec` packs it."""

    crawl: int
    queues: list[bytes]


class ListPiece(msgspec.Struct, array_like=True, tag="line"):
    """A part of a long list of a queue."""

    crawl: int
    queue: int
    index: int
    entries: Entries


class UnloadedPiece(msgspec.Struct, array_like=True, tag="away"):
    """Numbers of queues without work, by key."""

    crawl: int
    numbers: dict[str, int]


class QueuePagesPiece(msgspec.Struct, array_like=True, tag="wheres"):
    """The pages of a span of queues."""

    crawl: int
    start: int
    queue_pages: bytes


Piece = (
    CrawlPiece
    | SpanPiece
    | ShapePiece
    | KnownPiece
    | QueuePiece
    | ListPiece
    | UnloadedPiece
    | QueuePagesPiece
)
_encode = msgspec.msgpack.Encoder().encode
decode_piece = msgspec.msgpack.Decoder(Piece).decode


class SnapshotMark(msgspec.Struct, array_like=True):
    """Which snapshot is current, how many pieces it has, and between which pages it was taken."""

    snapshot: int
    pieces: int
    page: int
    end: int


_decode_mark = msgspec.msgpack.Decoder(SnapshotMark).decode


def current_snapshot(reader: FileReader) -> SnapshotMark:
    """Return the mark of the current snapshot; all 0 if there is none."""
    found = reader.meta("snapshot")
    return SnapshotMark(0, 0, 0, 0) if found is None else _decode_mark(found)


def take(
    file: CrawlFile, crawls: Sequence[FileCrawl], now: int, last_page: Callable[[], int]
) -> Iterator[int]:
    """Take a snapshot, a piece at every step, and yield how many bytes that wrote.

    The previous snapshot is current until this one is complete and the pages of the changes it
    contains are written.
    """
    old, page = current_snapshot(file.reader), file.last_page
    number, count = old.snapshot + 1, 0
    while file.drop_pieces(old.snapshot, DROPPED):  # of one that was never complete
        yield queue_codec.PIECE_BYTES
    for crawl in crawls:
        for piece in _pieces(crawl, now):
            data = _encode(piece)
            file.put_piece(number, count, data)
            count += 1
            yield len(data)
    end = last_page()
    while file.last_page < end:  # wait for the disk
        yield queue_codec.PIECE_BYTES
    file.set_meta("snapshot", _encode(SnapshotMark(number, count, page, end)))
    while file.drop_pieces(number, DROPPED):
        yield queue_codec.PIECE_BYTES


def _pieces(crawl: FileCrawl, now: int) -> Iterator[Piece]:
    update, tasks = complete_update(crawl, now), crawl.tasks
    yield CrawlPiece(crawl.index, update)
    yield from _value_pieces(crawl, update.crawl)
    for span, states in enumerate(tasks.states):
        used = min(SPAN, crawl.state.last_task + 1 - (span << SPAN_BITS))
        task_pages = tasks.task_pages[span][:used].tobytes()
        queues = tasks.queue_numbers[span][:used].tobytes()
        yield SpanPiece(crawl.index, span, bytes(states[:used]), task_pages, queues)
    tasks.flush_recent()
    parts = tasks.fingerprints.pieces()
    first = next(parts, None)  # from here on the table does not move
    yield ShapePiece(crawl.index, tasks.fingerprints.shape)
    if first is not None:
        yield KnownPiece(crawl.index, *first)
    for part in parts:
        yield KnownPiece(crawl.index, *part)
    yield from _queue_pieces(crawl)
    yield from _unloaded_pieces(crawl)


def complete_update(crawl: FileCrawl, now: int) -> log_pages.CrawlUpdate:
    """Return everything about a crawl itself, without its shared values."""
    state = crawl.state
    return log_pages.CrawlUpdate(
        crawl.row(now),
        [counts_row(counts) for counts in state.task_counts.values()],
        dict(state.outcomes),
        list(state.events),
        list(state.timeline),
        crawl.encoded_rules(),
        crawl.journal.all_roots(),
        state.settings,
        workers=crawl.journal.workers_by_name.all(),
        gone_totals=crawl.journal.workers_by_name.gone,
    )


def _value_pieces(crawl: FileCrawl, row: log_pages.CrawlRow) -> Iterator[Piece]:
    """Shared values, some at a time; later writes are in the pages that follow."""
    values = crawl.journal.values
    after, last = 0, values.last
    while after < last and (some := values.since(after, VALUES_STEP)):
        yield CrawlPiece(crawl.index, log_pages.CrawlUpdate(row, [], values=value_rows(some)))
        after = some[-1].number


def _unloaded_pieces(crawl: FileCrawl) -> Iterator[Piece]:
    """Queues without work, whether they are evicted or still resident."""
    queues = crawl.queues
    pages = queues.queue_pages
    for start in range(0, len(pages), QUEUE_PAGES_STEP):
        part = pages[start : start + QUEUE_PAGES_STEP].tobytes()
        yield QueuePagesPiece(crawl.index, start, part)
    idle = {queue.key: queue.number for queue in queues.idle.values()}
    yield UnloadedPiece(crawl.index, idle)
    for shard in queues.unloaded:
        numbers = list(shard.items())
        for start in range(0, len(numbers), UNLOADED_STEP):
            yield UnloadedPiece(crawl.index, dict(numbers[start : start + UNLOADED_STEP]))


def _queue_pieces(crawl: FileCrawl) -> Iterator[Piece]:
    """Queues in order of their numbers; long lists follow in pieces of their own."""
    batch, size = QueuePiece(crawl.index, []), 0
    for number in range(1, crawl.state.last_queue + 1):
        data, is_long = _pack(crawl, number)
        if data is None:
            continue
        batch.queues.append(data)
        size += len(data)
        if is_long or size > queue_codec.PIECE_BYTES:
            yield batch
            batch, size = QueuePiece(crawl.index, []), 0
        if is_long:
            yield from _list_pieces(crawl, number)
    yield batch


def _pack(crawl: FileCrawl, number: int) -> tuple[bytes | None, bool]:
    queue = crawl.queues.loaded[number >> CHUNK_BITS].get(number)
    if queue is not None:
        return queue_codec.pack_queue(queue, by_turn=crawl.state.by_turn)
    return crawl.queues.packed[number >> CHUNK_BITS].get(number), False


def _list_pieces(crawl: FileCrawl, number: int) -> Iterator[Piece]:
    """The delayed list first: a task that becomes due meanwhile is cut twice, and never missed."""
    for index in (2, 0, 1):
        start: int | None = 0
        while start is not None:
            entries, start = queue_codec.cut(
                queue_codec.lists_of(crawl.queues.get(number))[index], start
            )
            if entries is not None:
                yield ListPiece(crawl.index, number, index, entries)
