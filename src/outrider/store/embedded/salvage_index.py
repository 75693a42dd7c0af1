"""The salvage index: on which intact page the last row of each task and each queue is.

Pages are read once, in order; the index has two page numbers per task and one per queue.
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
    """The pages of the last intact rows of one crawl, by number; 0: there is none."""

    def __init__(self) -> None:
        self.name = ""
        self.stored_count = 0  # tasks according to its last page
        self.task_pages: array[int] = array("I", [0])
        self.bodies: array[int] = array("I", [0])  # the page with the `Task`
        self.queues: array[int] = array("I", [0])
        self.outdated_bodies: set[int] = set()  # known from an older page only

    @property
    def known(self) -> int:
        """The number of tasks it had."""
        return max(self.stored_count, len(self.task_pages) - 1)

    @property
    def lost(self) -> int:
        """The number of tasks whose URL is lost."""
        return self.known - int(np.count_nonzero(np.frombuffer(self.bodies, np.uint32)))

    def first_lost(self, count: int) -> list[int]:
        """Return the first lost tasks."""
        bodies = np.frombuffer(self.bodies, np.uint32)
        gaps = np.flatnonzero(bodies[1:] == 0)[:count] + 1
        beyond = range(len(bodies), self.known + 1)
        return [*gaps.tolist(), *beyond[: count - len(gaps)]]

    def outdated(self, spans: Iterable[SpanPiece], intact: bytearray) -> int:
        """Return the number of tasks whose last row is lost, while an earlier one is intact."""
        stale = set(self.outdated_bodies)
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
        """Add a page: its rows are later than all before it."""
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
            self.outdated_bodies.discard(number)
        elif self._body(number):
            self.outdated_bodies.add(number)

    def _body(self, number: int) -> int:
        return self.bodies[number] if number < len(self.bodies) else 0

    def _set(self, of: array[int], number: int, page: int) -> None:
        missing = number + 1 - len(of)
        if missing > 0:
            of.frombytes(bytes(of.itemsize * missing))
        of[number] = page


class Snapshot(NamedTuple):
    """What is intact of the current snapshot."""

    page: int = 0  # the last one before the snapshot
    updates: list[tuple[int, log_pages.CrawlUpdate]] = []  # noqa: RUF012
    spans: list[SpanPiece] = []  # noqa: RUF012
    is_whole: bool = False

    def untold(self, inventory: Inventory) -> int:
        """Return the number of lost pages it does not cover: their content is lost."""
        return inventory.lost_after(self.page if self.is_whole else 0)

    def of(self, index: int) -> list[SpanPiece]:
        """Return the spans of one crawl."""
        return [piece for piece in self.spans if piece.crawl == index]


def build_index(
    inventory: Inventory, snapshot: Snapshot, on_update: OnUpdate
) -> dict[int, CrawlIndex]:
    """Read every intact page; updates of crawls in the snapshot are passed on at its place."""
    found: defaultdict[int, CrawlIndex] = defaultdict(CrawlIndex)
    waiting = list(snapshot.updates)

    def add_page(index: int, update: log_pages.CrawlUpdate) -> None:
        crawl, row = found[index], update.crawl
        crawl.name, crawl.stored_count = row.name, max(crawl.stored_count, row.last_task)
        on_update(index, update)

    for number, data in inventory.source.rows():
        while waiting and number > snapshot.page:
            add_page(*waiting.pop(0))
        try:
            page = log_pages.decode_page(number, data)
            found[page.crawl].add_page(page, inventory)
            if page.is_last:
                add_page(page.crawl, log_pages.decode_update(page.update))
        except msgspec.MsgspecError:  # written by a release whose format this one cannot read
            inventory.intact[number] = 0
    for index, update in waiting:
        add_page(index, update)
    return dict(sorted(found.items()))
