"""Reopening: the last snapshot, then every page after it; what counts was counted is checked.

Pages tell what is, so reading them over a snapshot that was copied while they came in mends it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from heapq import heappush
from itertools import chain
from typing import NamedTuple, assert_never

import numpy as np

from outrider.core.order import NUMBER_BITS, task_key
from outrider.core.states import TaskState
from outrider.errors import StoreDamaged
from outrider.store.embedded import packing, pages
from outrider.store.embedded.crawl import PENDING, SPAN, SPAN_BITS, FileCrawl
from outrider.store.embedded.file import CrawlFile, damaged
from outrider.store.embedded.known import Shape
from outrider.store.embedded.snapshot import (
    AwayPiece,
    CrawlPiece,
    KnownPiece,
    LinePiece,
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
    """What the pages after a snapshot tell of a crawl: the last word on each task and queue."""

    births: dict[int, bytes]
    tasks: dict[int, tuple[int, bytes, bool]]  # by number: page, content, whether it was born there
    queues: dict[int, tuple[int, bytes]]
    left: dict[int | str, list[tuple[int, int, int]]]  # by queue: lane, key and due of entries


Make = Callable[[int, str, int], FileCrawl]


class Loader:
    """Makes crawls of what a file tells."""

    def __init__(self, file: CrawlFile, make: Make) -> None:
        self._file = file
        self._make = make
        self.crawls: dict[int, FileCrawl] = {}
        self.now = 0
        self.events = 0  # tasks and queues the tail told of
        self._tails: dict[int, _Tail] = {}
        self._long: set[tuple[int, int]] = set()  # queues whose lines came by themselves

    def load(self) -> list[FileCrawl]:
        """All crawls, as they were after the last page."""
        mark = mark_of(self._file)
        count = 0
        for data in self._file.pieces(mark.snapshot):
            self._take(piece_of(data))
            count += 1
        if count != mark.pieces:
            raise StoreDamaged(
                damaged(
                    self._file.path, f"snapshot {mark.snapshot} has {count} of {mark.pieces} pieces"
                )
            )
        for index, number in self._long:
            packing.sort_out(self.crawls[index].queue_of(number))
        for page in self._file.pages_after(mark.page):
            self._read(page, is_mending=page.number <= mark.end)
        for crawl in self.crawls.values():
            self._find_the_rest(crawl)
            self._settle(crawl)
            self._stand(crawl)
        return [self.crawls[index] for index in sorted(self.crawls)]

    # ---- pieces

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
            found[number] = 1
        tail = self._tails.get(crawl.index)
        for number in (n for n in range(1, len(found)) if not found[n]):
            if tail is None or number not in tail.queues:
                row = crawl.row_of(number)
                crawl.away[hash(row.key) & SHARD_MASK][row.key] = number
                crawl.away_count += 1

    # ---- pages

    def _read(self, page: pages.Page, *, is_mending: bool) -> None:
        """Note what a page tells; of what it tells again and again, the last word is enough."""
        tail = self._tails.setdefault(page.crawl, _Tail({}, {}, {}, {}))
        if page.extra:
            self._apply_extra(page.crawl, pages.extra_of(page.extra))
        for number, content in page.queues:
            tail.queues[number] = (page.number, content)
        for number, content in page.births:
            if is_mending:
                birth = pages.birth_of(content)
                self._leaves(tail, birth.task.key, birth.task.lane, _key(number, birth), birth.due)
            tail.births[number] = content
            tail.tasks[number] = (page.number, content, True)
        for number, content in page.papers:
            if is_mending or number not in tail.tasks:
                self._left(tail, pages.paper_of(content))
            tail.tasks[number] = (page.number, content, False)
        self.events += len(page.births) + len(page.papers) + len(page.queues)

    def _left(self, tail: _Tail, paper: pages.Paper) -> None:
        """The entries a line of the snapshot may have, although they are outdated."""
        for key in (paper.key, paper.left):
            if key is not None:
                entry = (paper.lane, int.from_bytes(key, "big"), paper.due)
                tail.left.setdefault(paper.queue, []).append(entry)

    def _leaves(self, tail: _Tail, name: str, lane: int, key: int, due: int) -> None:
        tail.left.setdefault(name, []).append((lane, key, due))

    def _settle(self, crawl: FileCrawl) -> None:
        tail = self._tails.get(crawl.index)
        if tail is None:
            return
        for number, (page, content) in tail.queues.items():
            self._take_row(crawl, number, content, page)
        for name, entries in tail.left.items():
            queue = crawl.home_of(name) if isinstance(name, str) else crawl.queue_of(name)
            for entry in entries:
                queue.leave(*entry)
        for number, word in tail.tasks.items():
            self._take_task(crawl, number, *word)
        self._learn(crawl, tail.births)

    def _take_row(self, crawl: FileCrawl, number: int, content: bytes, page: int) -> None:
        row = pages.queue_row_of(content)
        crawl.queue_stands(number, page)
        queue = crawl.queue_at(row.key)
        if queue is None:
            crawl.seat(row)
        else:
            pages.fill_queue(queue, row)

    def _take_task(
        self, crawl: FileCrawl, number: int, page: int, content: bytes, is_birth: bool
    ) -> None:
        """Where a task waits now."""
        if is_birth:
            birth = pages.birth_of(content)
            task = birth.task
            queue, key = crawl.home_of(task.key), _key(number, birth)
            queue.enter(task.lane, key, birth.due, self.now)
            crawl.stands(number, page, PENDING)
            return
        paper = pages.paper_of(content)
        if paper.state == PENDING:
            queue = crawl.queue_of(paper.queue)
            queue.enter(paper.lane, int.from_bytes(paper.key, "big"), paper.due, self.now)
        crawl.stands(number, page, paper.state)

    def _learn(self, crawl: FileCrawl, births: dict[int, bytes]) -> None:
        """What the tail made known, but for what the snapshot knew already."""
        if births:
            known = [pages.birth_of(content).task.fingerprint for content in births.values()]
            hashes = crawl.table.hashes(known)
            numbers = np.fromiter(births, np.uint32, len(births))
            new = crawl.table.find(hashes) == 0
            crawl.table.add(hashes[new], numbers[new])

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
                queue.in_flight = 0
        for number in self._leased(crawl):
            record = crawl.record(number)
            crawl.leases[number] = record
            record.queue.in_flight += 1
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


def _key(number: int, birth: pages.Birth) -> int:
    return task_key(birth.task.precedence, birth.task.priority, birth.tie, number)
