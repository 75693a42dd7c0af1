"""What the intact pages of a file still tell: the last word on each task and each queue.

Pages are read once, in order; kept are two page numbers a task and one a queue.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from outrider.store.embedded import log_pages
from outrider.store.embedded.inventory import Inventory
from outrider.store.embedded.snapshot import SpanPiece
from outrider.store.embedded.task_table import SPAN

OnUpdate = Callable[[int, log_pages.CrawlUpdate], None]


class CrawlIndex:
    """The last intact words on one crawl, by number of task and queue; 0: there is none."""

    def __init__(self) -> None:
        self.name = ""
        self.told = 0  # tasks that its last page tells of
        self.task_pages: array[int] = array("I", [0])
        self.bodies: array[int] = array("I", [0])  # the page that describes the task
        self.queues: array[int] = array("I", [0])
        self.faded: set[int] = set()  # described by an older page than their last word means

    @property
    def known(self) -> int:
        """How many tasks it had."""
        return max(self.told, len(self.task_pages) - 1)

    @property
    def lost(self) -> int:
        """Tasks whose URL nothing tells any more."""
        return self.known - int(np.count_nonzero(np.frombuffer(self.bodies, np.uint32)))

    def first_lost(self, count: int) -> list[int]:
        """The first of them."""
        bodies = np.frombuffer(self.bodies, np.uint32)
        gaps = np.flatnonzero(bodies[1:] == 0)[:count] + 1
        beyond = range(len(bodies), self.known + 1)
        return [*gaps.tolist(), *beyond[: count - len(gaps)]]

    def outdated(self, spans: Iterable[SpanPiece], intact: bytearray) -> int:
        """Tasks whose last word a snapshot saw on a lost page, while an earlier one is intact."""
        stale = set(self.faded)
        whole = np.frombuffer(intact, np.uint8)
        for piece in spans:
            said = np.frombuffer(piece.task_pages, np.uint32)
            first = piece.span * SPAN
            have = np.frombuffer(self.task_pages, np.uint32)[first : first + len(said)]
            described = np.frombuffer(self.bodies, np.uint32)[first : first + len(said)]
            said = said[: len(have)]
            gone = whole[np.minimum(said, len(whole) - 1)] == 0
            places = np.flatnonzero((said > have) & gone & (have > 0) & (described > 0))
            stale.update((places + first).tolist())
        return len(stale)

    # ---- reading

    def add_page(self, page: log_pages.LogPage, inventory: Inventory) -> None:
        """A page's word on tasks and queues is later than all before it."""
        for number, _ in page.new_tasks:
            self._set(self.task_pages, number, page.number)
            self._set(self.bodies, number, page.number)
        for number, content in page.tasks:
            self._set(self.task_pages, number, page.number)
            self._describe(
                number, log_pages.decode_task(content).body_page or page.number, inventory
            )
        for number, _ in page.queues:
            self._set(self.queues, number, page.number)

    def _describe(self, number: int, body: int, inventory: Inventory) -> None:
        is_there = inventory.has(body)
        self._set(self.bodies, number, body if is_there else self._body(number))
        if is_there:
            self.faded.discard(number)
        elif self._body(number):
            self.faded.add(number)

    def _body(self, number: int) -> int:
        return self.bodies[number] if number < len(self.bodies) else 0

    def _set(self, of: array[int], number: int, page: int) -> None:
        missing = number + 1 - len(of)
        if missing > 0:
            of.frombytes(bytes(of.itemsize * missing))
        of[number] = page


class Snapshot(NamedTuple):
    """What is intact of the snapshot that holds."""

    page: int = 0  # after which the tail begins
    extras: list[tuple[int, log_pages.CrawlUpdate]] = []  # noqa: RUF012
    spans: list[SpanPiece] = []  # noqa: RUF012
    is_whole: bool = False

    def untold(self, inventory: Inventory) -> int:
        """Lost pages that it does not know: what stood there was lost without a trace."""
        return inventory.lost_after(self.page if self.is_whole else 0)

    def of(self, index: int) -> list[SpanPiece]:
        """The stretches of one crawl."""
        return [piece for piece in self.spans if piece.crawl == index]


def build_index(
    inventory: Inventory, snapshot: Snapshot, on_update: OnUpdate
) -> dict[int, CrawlIndex]:
    """Read every intact page; what the snapshot told of crawls themselves is heard in its place."""
    found: defaultdict[int, CrawlIndex] = defaultdict(CrawlIndex)
    waiting = list(snapshot.extras)

    def add_page(index: int, update: log_pages.CrawlUpdate) -> None:
        words, row = found[index], update.crawl
        words.name, words.told = row.name, max(words.told, row.last_task)
        on_update(index, update)

    for number, data in inventory.source.rows():
        while waiting and number > snapshot.page:
            add_page(*waiting.pop(0))
        try:
            page = log_pages.decode_page(number, data)
            found[page.crawl].add_page(page, inventory)
            if page.is_last:
                add_page(page.crawl, log_pages.decode_update(page.update))
        except msgspec.MsgspecError:  # written whole, but not by a release that we can read
            inventory.intact[number] = 0
    for index, update in waiting:
        add_page(index, update)
    return dict(sorted(found.items()))
