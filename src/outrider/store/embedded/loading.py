"""Reopening: the last snapshot, then every page after it; what counts was counted is checked.

Pages tell what is, so reading them over a snapshot that was copied while they came in mends it.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappush
from itertools import chain
from typing import NamedTuple, assert_never

import numpy as np

from outrider.core.order import NUMBER_BITS, task_key
from outrider.core.states import TaskState
from outrider.errors import StoreDamaged
from outrider.store.embedded import packing, pages
from outrider.store.embedded.births import Births
from outrider.store.embedded.crawl import FileCrawl
from outrider.store.embedded.file import CrawlFile, damaged
from outrider.store.embedded.known import Shape
from outrider.store.embedded.reading import PENDING, SPAN, SPAN_BITS
from outrider.store.embedded.snapshot import (
    AwayPiece,
    CrawlPiece,
    KnownPiece,
    LinePiece,
    Mark,
    Piece,
    QueuePiece,
    ShapePiece,
    SpanPiece,
    WheresPiece,
    mark_of,
    piece_of,
)
from outrider.store.heads.ledger import SHARD_MASK
from outrider.store.heads.records import COLUMNS

_LEASED = COLUMNS[TaskState.LEASED]


class _Tail(NamedTuple):
    """What the pages after a snapshot tell of a crawl's tasks."""

    copied: Births  # while the snapshot was taken: their lines may know them already
    births: Births  # since then
    papers: list[tuple[int, bytes, int]]  # number, content and page; 0: born, but not due


Make = Callable[[int, str, int], FileCrawl]


class Loader:
    """Makes crawls of what a file tells."""

    def __init__(self, file: CrawlFile, make: Make) -> None:
        self._file = file
        self._make = make
        self.crawls: dict[int, FileCrawl] = {}
        self.now = 0
        self.events = 0  # tasks, queues and notes the tail told of
        self._end = 0  # the last page that may be older than the snapshot's last piece
        self._verb: list[pages.Page] = []  # its pages so far
        self._tails: dict[int, _Tail] = {}
        self._long: set[tuple[int, int]] = set()  # queues whose lines came by themselves

    def load(self) -> list[FileCrawl]:
        """All crawls, as they were after the last page."""
        with _no_collecting():
            mark = mark_of(self._file)
            self._take_all(mark)
            self._end = mark.end
            for page in self._file.pages_after(mark.page):
                self._read(page)
            for crawl in self.crawls.values():
                self._settle(crawl, self._tails.pop(crawl.index, None))
                self._stand(crawl)
        return [self.crawls[index] for index in sorted(self.crawls)]

    # ---- pieces

    def _take_all(self, mark: Mark) -> None:
        count = 0
        for data in self._file.pieces(mark.snapshot):
            self._take(piece_of(data))
            count += 1
        if count != mark.pieces:
            what = f"snapshot {mark.snapshot} has {count} of {mark.pieces} pieces"
            raise StoreDamaged(damaged(self._file.path, what))
        for index, number in self._long:
            packing.sort_out(self.crawls[index].queue_of(number))
        for crawl in self.crawls.values():
            self._find_the_rest(crawl)

    def _take(self, piece: Piece) -> None:  # noqa: C901 - one line for each kind of piece
        if isinstance(piece, CrawlPiece):
            self._apply_extra(piece.crawl, piece.extra)
            return
        crawl = self.crawls[piece.crawl]
        match piece:
            case SpanPiece(_, _, states, wheres):
                crawl.states.append(bytearray(states.ljust(SPAN, b"\0")))
                crawl.wheres.append(array("I", wheres.ljust(4 * SPAN, b"\0")))
            case ShapePiece(_, shape):
                crawl.table.load(Shape(*shape))
            case KnownPiece(_, start, hashes, numbers):
                crawl.table.load_piece(start, hashes, numbers)
            case QueuePiece(_, queues):
                for data in queues:
                    crawl.lay_down(data)
            case LinePiece(_, number, line, entries):
                packing.join(crawl.queue_of(number), line, entries)
                self._long.add((piece.crawl, number))
            case AwayPiece(_, names):
                self._take_away(crawl, names)
            case WheresPiece(_, start, wheres):
                crawl.queue_wheres[start:] = array("I", wheres)
            case _:
                assert_never(piece)

    def _take_away(self, crawl: FileCrawl, names: dict[str, int]) -> None:
        for key, number in names.items():
            if key not in crawl.away[hash(key) & SHARD_MASK]:
                crawl.away[hash(key) & SHARD_MASK][key] = number
                crawl.away_count += 1

    def _find_the_rest(self, crawl: FileCrawl) -> None:
        """Queues that came back into memory while others were cut: their last page names them."""
        found = bytearray(crawl.queue_count + 1)
        for number in chain(*crawl.queues, *crawl.asleep, *(s.values() for s in crawl.away)):
            if number < len(found):  # younger ones are told by the pages that follow
                found[number] = 1
        for number in (n for n in range(1, len(found)) if not found[n]):
            row = crawl.row_of(number)
            crawl.away[hash(row.key) & SHARD_MASK][row.key] = number
            crawl.away_count += 1

    # ---- pages

    def _read(self, page: pages.Page) -> None:
        """A verb is read when its last page was: a queue may be told after its tasks."""
        self._verb.append(page)
        if not page.is_last:
            return
        told, self._verb = self._verb, []
        extra = pages.extra_of(page.extra)
        self._apply_extra(page.crawl, extra)
        self.events += len(extra.said)
        crawl = self.crawls[page.crawl]
        tail = self._tails.setdefault(page.crawl, _Tail(Births(), Births(), []))
        for each in told:
            for number, content in each.queues:
                self._take_row(crawl, number, content, each.number)
            if each.births:
                self._note_births(crawl, tail, each)
            tail.papers.extend([(name, content, each.number) for name, content in each.papers])
            self.events += len(each.births) + len(each.papers) + len(each.queues)

    def _take_row(self, crawl: FileCrawl, number: int, content: bytes, page: int) -> None:
        row = pages.queue_row_of(content)
        crawl.queue_stands(number, page)
        queue = crawl.queue_at(row.key)
        if queue is None:
            crawl.seat(row)
        else:
            pages.fill_queue(queue, row)

    def _note_births(self, crawl: FileCrawl, tail: _Tail, page: pages.Page) -> None:
        crawl.births_stand(page.births[0][0], len(page.births), page.number)
        births = tail.copied if page.number <= self._end else tail.births
        for number, content in births.read(page.births, self.now):
            tail.papers.append((number, content, 0))  # it may have been copied in either line

    def _settle(self, crawl: FileCrawl, tail: _Tail | None) -> None:
        """Whoever was born waits; then where each went from there, in the order of the pages."""
        if tail is None:
            return
        for births in (tail.copied, tail.births):
            for key, lane, entries in births.lines():
                line = crawl.home_of(key).open_lane(lane)
                line.extend(entries, is_new=births is tail.births)
            self._learn(crawl, births)
        for number, content, page in tail.papers:
            if page:
                self._take_paper(crawl, number, content, page)
            else:
                self._take_delayed(crawl, number, pages.birth_of(content))

    def _take_delayed(self, crawl: FileCrawl, number: int, birth: pages.Birth) -> None:
        task, key = birth.task, _key(number, birth)
        queue = crawl.home_of(task.key)
        queue.leave(task.lane, key, birth.due)
        queue.enter(task.lane, key, birth.due, self.now)

    def _take_paper(self, crawl: FileCrawl, number: int, content: bytes, page: int) -> None:
        """Where a task waited it waits no more; it may wait elsewhere, or again."""
        paper = pages.paper_of(content)
        queue, key = crawl.queue_of(paper.queue), int.from_bytes(paper.key, "big")
        if paper.left is not None:
            queue.leave(paper.lane, int.from_bytes(paper.left, "big"), paper.due)
        queue.leave(paper.lane, key, paper.due)
        if paper.state == PENDING:
            queue.enter(paper.lane, key, paper.due, self.now)
        crawl.stands(number, page, paper.state)

    def _learn(self, crawl: FileCrawl, births: Births) -> None:
        """What the pages made known, but for what the snapshot knew already."""
        if births.names:
            hashes = crawl.table.hashes(births.names)
            new = crawl.table.find(hashes) == 0
            crawl.table.add(hashes[new], np.array(births.numbers, np.uint32)[new])

    def _apply_extra(self, index: int, extra: pages.Extra) -> None:
        row = extra.crawl
        crawl = self.crawls.get(index)
        if crawl is None:
            crawl = self.crawls[index] = self._make(index, row.name, row.created)
        crawl.recall(extra)
        self.now = max(self.now, row.now)

    # ---- at last

    def _stand(self, crawl: FileCrawl) -> None:
        """What no page tells because it follows: leases, counts of queues, and their places."""
        for chunk in crawl.queues:
            for queue in chunk.values():
                queue.pending = packing.length_of(queue)
                queue.in_flight = queue.named = queue.lent = 0
        for number in self._leased(crawl):
            record = crawl.record(number)
            crawl.leases[number] = record
            record.queue.in_flight += not record.named
            record.queue.named += record.named
            record.queue.lent += record.lent
            heappush(crawl.deadlines, record.deadline << NUMBER_BITS | number)
        crawl.resume(self.now)
        self._check(crawl)

    def _leased(self, crawl: FileCrawl) -> Iterator[int]:
        for span, states in enumerate(crawl.states):
            for place in np.flatnonzero(np.frombuffer(states, np.uint8) == _LEASED).tolist():
                yield span << SPAN_BITS | place

    def _check(self, crawl: FileCrawl) -> None:
        pending = crawl.waiting()
        told = (crawl.count, crawl.pending, crawl.leased)
        found = (crawl.table.count, pending, len(crawl.leases))
        if told != found:
            what = f"crawl {crawl.name!r} tells of known, pending, leased {told}, but has {found}"
            raise StoreDamaged(damaged(self._file.path, what))


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Millions of objects come, and no garbage: the collector would look at all of them often."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _key(number: int, birth: pages.Birth) -> int:
    return task_key(birth.task.precedence, birth.task.priority, birth.tie, number)
