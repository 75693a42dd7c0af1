"""Opening a file: the current snapshot, then every page after it; totals are checked.

Pages store state, so reading them over a snapshot that was taken while they were appended corrects
it. New tasks of these pages are grouped by queue and lane and inserted at once: finding a queue and
its lane for every single task would be most of the time of a reopening.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple, assert_never, final

import numpy as np
from numpy.typing import NDArray

from outrider.core.order import LANE_BYTES, task_key
from outrider.core.states import DELETING, CrawlStatus, TaskState
from outrider.errors import StoreDamaged
from outrider.store.embedded import log_pages, queue_codec
from outrider.store.embedded.crawl import FileCrawl
from outrider.store.embedded.deletion import RemovedCrawl, read_removed
from outrider.store.embedded.file import FileReader, damaged
from outrider.store.embedded.fingerprint_table import Shape
from outrider.store.embedded.log_pages import NO_CRAWL
from outrider.store.embedded.snapshot import (
    CrawlPiece,
    KnownPiece,
    ListPiece,
    Piece,
    QueuePagesPiece,
    QueuePiece,
    ShapePiece,
    SnapshotMark,
    SpanPiece,
    UnloadedPiece,
    current_snapshot,
    decode_piece,
)
from outrider.store.embedded.task_table import PENDING, SPAN_BITS
from outrider.store.engine.records import COLUMNS, SHARD_MASK, Queue, TaskRecord

_LANES = 2


class NewTasks:
    """New tasks in the order of their pages; those that are due are grouped."""

    def __init__(self) -> None:
        self.fingerprints: list[bytes] = []  # of delayed tasks as well
        self.numbers: list[int] = []
        self.queues: list[int] = []  # of each, as an index of `keys`
        self.keys: dict[str, int] = {}
        self._due: list[tuple[int, int, float, int, int, int]] = []

    def read(self, rows: Sequence[tuple[int, bytes]], now: int) -> list[tuple[int, bytes]]:
        """Read the rows of a page; return the delayed ones, which the caller inserts."""
        fingerprints, numbers, due = self.fingerprints, self.numbers, self._due
        queues, keys = self.queues, self.keys
        delayed = []
        for number, content in rows:
            row = log_pages.decode_new_task(content)
            task = row.task
            fingerprints.append(task.fingerprint)
            numbers.append(number)
            queue = keys.setdefault(task.key, len(keys))
            queues.append(queue)
            if row.due <= now:
                lane = queue * _LANES + task.lane
                due.append((lane, task.precedence, task.priority, row.tie, number, row.due))
            else:
                delayed.append((number, log_pages.without_long_meta(content)))
        return delayed

    def entries_by_lane(self) -> Iterator[tuple[str, int, bytes]]:
        """Return queue key, lane and entries, as `SortedList.extend` takes them."""
        if not self._due:
            return
        places, *columns = zip(*self._due, strict=True)
        lanes = np.fromiter(places, np.int64, len(places))
        order = np.argsort(lanes, kind="stable")
        lanes, entries = lanes[order], _entries(*columns)[order]
        starts = np.flatnonzero(np.append(True, lanes[1:] != lanes[:-1]))
        keys = list(self.keys)
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(lanes)], strict=True):
            queue, lane = divmod(int(lanes[start]), _LANES)
            yield keys[queue], lane, entries[start:end].tobytes()


def _entries(
    precedences: tuple[int, ...],
    priorities: tuple[float, ...],
    ties: tuple[int, ...],
    numbers: tuple[int, ...],
    dues: tuple[int, ...],
) -> NDArray[np.uint8]:
    """Compute `order.task_key` with the due time below it for many tasks: a row of bytes each."""
    bits = (np.array(priorities, np.float64) + 0.0).view(np.uint64)
    sign = np.uint64(1 << 63)
    ranks = np.where(bits & sign, ~bits, bits | sign)
    columns = [
        _bytes(np.array(precedences, np.uint64), 2),
        _bytes(ranks, 8),
        _bytes(np.array(ties, np.uint64), 6),
        _bytes(np.array(numbers, np.uint64), 5),
        _bytes(np.array(dues, np.uint64), 6),
    ]
    entries = np.concatenate(columns, axis=1)
    assert entries.shape[1] == LANE_BYTES  # noqa: S101
    return entries


def _bytes(values: NDArray[np.uint64], width: int) -> NDArray[np.uint8]:
    return values.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - width :]


_LEASED = COLUMNS[TaskState.LEASED]


class _Tail(NamedTuple):
    """The task rows of a crawl in the pages after a snapshot."""

    overlapping: NewTasks  # written while the snapshot was taken: lists may have them already
    new_tasks: NewTasks  # written since then
    rows: list[tuple[int, bytes, int]]  # number, row and page; page 0: a new task, delayed


MakeCrawl = Callable[[int, str, int], FileCrawl]


@final
class FileLoader:
    """Builds the crawls of a file."""

    def __init__(self, reader: FileReader, make: MakeCrawl) -> None:
        self._reader = reader
        self._make = make
        self.crawls: dict[int, FileCrawl] = {}
        self.now = 0
        self.items = 0  # tasks, queues and shared values in the pages after the snapshot
        self._end = 0  # the last page that may be older than the snapshot's last piece
        self._verb: list[log_pages.LogPage] = []  # its pages so far
        self._tails: dict[int, _Tail] = {}
        self._long: set[tuple[int, int]] = set()  # queues whose lists are in pieces of their own
        removed = read_removed(reader)
        self._removed = removed.crawls
        self._ignored = {NO_CRAWL, *(crawl.index for crawl in removed.crawls)}

    def load(self) -> list[FileCrawl]:
        """Return all crawls as they were after the last page."""
        with _without_gc():
            mark = current_snapshot(self._reader)
            self._read_snapshot(mark)
            self._end = mark.end
            for page in self._reader.pages_after(mark.page):
                self._read_page(page)
            for crawl in self.crawls.values():
                self._insert_tasks(crawl, self._tails.pop(crawl.index, None))
                self._complete(crawl)
        for removed in self._removed:
            self.crawls[removed.index] = removed_crawl(self._make, removed)
        return [self.crawls[index] for index in sorted(self.crawls)]

    # ---- the snapshot

    def _read_snapshot(self, mark: SnapshotMark) -> None:
        count = 0
        for data in self._reader.pieces(mark.snapshot):
            self._read_piece(decode_piece(data))
            count += 1
        if count != mark.pieces:
            what = f"snapshot {mark.snapshot} has {count} of {mark.pieces} pieces"
            raise StoreDamaged(damaged(self._reader.path, what))
        for index, number in self._long:
            queue_codec.remove_promoted(self.crawls[index].queues.get(number))
        for crawl in self.crawls.values():
            self._find_missing_queues(crawl)

    def _read_piece(self, piece: Piece) -> None:  # noqa: C901, PLR0912 - one case for each kind of piece
        if piece.crawl in self._ignored:
            return
        if isinstance(piece, CrawlPiece):
            self._apply_update(piece.crawl, piece.update)
            return
        crawl = self.crawls[piece.crawl]
        queues, tasks = crawl.queues, crawl.tasks
        match piece:
            case SpanPiece(_, _, states, task_pages, queue_numbers):
                tasks.add_span(states, task_pages, queue_numbers)
            case ShapePiece(_, shape):
                tasks.fingerprints.load(Shape(*shape))
            case KnownPiece(_, start, hashes, numbers):
                tasks.fingerprints.load_piece(start, hashes, numbers)
            case QueuePiece(_, packed):
                for data in packed:
                    queues.insert_packed(data)
            case ListPiece(_, number, index, entries):
                queue_codec.insert_entries(queues.get(number), index, entries)
                self._long.add((piece.crawl, number))
            case UnloadedPiece(_, by_key):
                for key, number in by_key.items():
                    if key not in queues.unloaded[hash(key) & SHARD_MASK]:
                        queues.insert_unloaded(key, number)
            case QueuePagesPiece(_, start, queue_pages):
                queues.queue_pages[start:] = array("I", queue_pages)
            case _:
                assert_never(piece)

    def _find_missing_queues(self, crawl: FileCrawl) -> None:
        """Find queues that became resident while others were cut: their last page names them."""
        queues, found = crawl.queues, bytearray(crawl.state.last_queue + 1)
        unloaded = (shard.values() for shard in queues.unloaded)
        for number in chain(*queues.loaded.values(), *queues.packed.values(), *unloaded):
            if number < len(found):  # later queues are in the pages that follow
                found[number] = 1
        for number in (n for n in range(1, len(found)) if not found[n]):
            queues.insert_unloaded(queues.row(number).key, number)

    # ---- pages

    def _read_page(self, page: log_pages.LogPage) -> None:
        """Collect the pages of a verb; after its last one read it: a queue may follow its tasks."""
        if page.crawl in self._ignored:
            return
        self._verb.append(page)
        if not page.is_last:
            return
        verb, self._verb = self._verb, []
        update = log_pages.decode_update(page.update)
        self._apply_update(page.crawl, update)
        self.items += len(update.values)
        crawl = self.crawls[page.crawl]
        tail = self._tails.setdefault(page.crawl, _Tail(NewTasks(), NewTasks(), []))
        for each in verb:
            for number, row in each.queues:
                self._read_queue(crawl, number, row, each.number)
            if each.new_tasks:
                self._read_new_tasks(crawl, tail, each)
            tail.rows.extend(
                [(n, log_pages.without_long_task(row), each.number) for n, row in each.tasks]
            )
            self.items += len(each.new_tasks) + len(each.tasks) + len(each.queues)

    def _read_queue(self, crawl: FileCrawl, number: int, data: bytes, page: int) -> None:
        row = log_pages.decode_queue(data)
        crawl.queues.set_queue_page(number, page)
        queue = crawl.queues.find(row.key)
        if queue is None:
            crawl.queues.load(row)
        else:
            log_pages.fill_queue(queue, row)

    def _read_new_tasks(self, crawl: FileCrawl, tail: _Tail, page: log_pages.LogPage) -> None:
        crawl.tasks.set_new_task_page(page.new_tasks[0][0], len(page.new_tasks), page.number)
        new_tasks = tail.overlapping if page.number <= self._end else tail.new_tasks
        for number, row in new_tasks.read(page.new_tasks, self.now):
            tail.rows.append((number, row, 0))  # the snapshot may have it in either list

    def _insert_tasks(self, crawl: FileCrawl, tail: _Tail | None) -> None:
        """Insert new tasks into their lists; then apply task rows in the order of the pages."""
        if tail is None:
            return
        for new_tasks in (tail.overlapping, tail.new_tasks):
            for key, lane, entries in new_tasks.entries_by_lane():
                items = _queue_of(crawl, key).lane_to_fill(lane)
                items.extend(entries, is_new=new_tasks is tail.new_tasks)
            self._add_fingerprints(crawl, new_tasks)
            self._set_queues(crawl, new_tasks)
        for number, data, page in tail.rows:
            if page:
                self._apply_row(crawl, number, data, page)
            else:
                self._insert_delayed(crawl, number, log_pages.decode_new_task(data))

    def _insert_delayed(self, crawl: FileCrawl, number: int, row: log_pages.NewTaskRow) -> None:
        task = row.task
        key = task_key(task.precedence, task.priority, row.tie, number)
        queue = _queue_of(crawl, task.key)
        queue.leave(task.lane, key, row.due)
        queue.enter(task.lane, key, row.due, self.now)

    def _apply_row(self, crawl: FileCrawl, number: int, data: bytes, page: int) -> None:
        """Remove a task from the list it was in, and insert it again if it is pending."""
        row = log_pages.decode_task(data)
        queue, key = crawl.queues.get(row.queue), int.from_bytes(row.key, "big")
        if row.stored_key is not None:
            queue.leave(row.lane, int.from_bytes(row.stored_key, "big"), row.due)
        queue.leave(row.lane, key, row.due)
        if row.left is not None:
            number_left, lane, key_left, due = row.left
            crawl.queues.get(number_left).leave(lane, int.from_bytes(key_left, "big"), due)
        if row.state == PENDING:
            queue.enter(row.lane, key, row.due, self.now)
        crawl.tasks.set_task_page(number, page, row.state, row.reason)
        crawl.tasks.set_queues(number, array("I", (row.queue,)))

    def _set_queues(self, crawl: FileCrawl, new_tasks: NewTasks) -> None:
        queues = array("I", map(crawl.queues.number_of, new_tasks.keys))
        for number, queue in zip(new_tasks.numbers, new_tasks.queues, strict=True):
            crawl.tasks.set_queues(number, queues[queue : queue + 1])

    def _add_fingerprints(self, crawl: FileCrawl, new_tasks: NewTasks) -> None:
        """Add fingerprints to the table that the snapshot does not have."""
        if new_tasks.fingerprints:
            table = crawl.tasks.fingerprints
            hashes = table.hashes(new_tasks.fingerprints)
            is_new = table.find(hashes) == 0
            table.add(hashes[is_new], np.array(new_tasks.numbers, np.uint32)[is_new])

    def _apply_update(self, index: int, update: log_pages.CrawlUpdate) -> None:
        row = update.crawl
        crawl = self.crawls.get(index)
        if crawl is None:
            crawl = self.crawls[index] = self._make(index, row.name, row.created)
        crawl.apply_update(update)
        self.now = max(self.now, row.now)

    # ---- completing

    def _complete(self, crawl: FileCrawl) -> None:
        """Compute what is not stored: held leases, counts of queues, and the schedule."""
        for queue in crawl.queues.all_loaded():
            queue.pending = queue_codec.pending_count(queue)
            queue.in_flight = queue.named = queue.loaned = 0
        leased = sorted(map(crawl.tasks.get, self._leased(crawl)), key=_lease_order)
        for place, record in enumerate(leased, 1):
            record.lease_turn = record.lease_turn or place  # none: an earlier build wrote it
            crawl.leases.held[record.number] = record
            record.queue.in_flight += not record.named
            record.queue.named += record.named
            record.queue.loaned += record.loaned
            crawl.leases.set_deadline(record, record.deadline)
        crawl.rebuild_schedule(self.now)
        self._check(crawl)

    def _leased(self, crawl: FileCrawl) -> Iterator[int]:
        for span, states in enumerate(crawl.tasks.states):
            for index in np.flatnonzero(np.frombuffer(states, np.uint8) == _LEASED).tolist():
                yield span << SPAN_BITS | index

    def _check(self, crawl: FileCrawl) -> None:
        state = crawl.state
        stored = (state.last_task, state.pending, state.leased)
        pending, known = crawl.pending_count(), crawl.tasks.fingerprints.count
        found = (known, pending, len(crawl.leases.held))
        if stored != found:
            what = f"crawl {crawl.name!r} stores known, pending, leased {stored}, but has {found}"
            raise StoreDamaged(damaged(self._reader.path, what))


def _lease_order(record: TaskRecord) -> tuple[int, int, int]:
    return record.lease_turn, record.claimed, record.number


def removed_crawl(make: MakeCrawl, removed: RemovedCrawl) -> FileCrawl:
    """Return the empty crawl that stands for one that is being removed (I1)."""
    crawl = make(removed.index, removed.name, removed.created)
    crawl.is_removed = True
    crawl.state.status, crawl.state.reason = CrawlStatus.CANCELLED, DELETING
    return crawl


def _queue_of(crawl: FileCrawl, key: str) -> Queue:
    queue = crawl.queues.find(key)
    assert queue is not None  # noqa: S101 - every known task has a queue
    return queue


@contextmanager
def _without_gc() -> Iterator[None]:
    """Disable the collector: it would often scan millions of objects, none of them garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
