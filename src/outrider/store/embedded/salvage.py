"""What is intact of a damaged file: its pages, and where the last row of each task and queue is.

Pages are read by SQLite's tree or carved, once and in order; the index has two page numbers per
task and one per queue.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from outrider.errors import StoreDamaged
from outrider.store.embedded import log_pages
from outrider.store.embedded.carving import Carving
from outrider.store.embedded.file import Row
from outrider.store.embedded.read_only_file import MAX_PAGES, ReadOnlyFile, is_page
from outrider.store.embedded.snapshot import SpanPiece
from outrider.store.embedded.task_table import SPAN

SHOWN = 100  # of what is lost, by number


class Source(Protocol):
    """Reads intact pages."""

    def rows(self) -> Iterator[Row]:
        """Return all of them, in order."""
        ...

    def page(self, number: int) -> bytes:
        """Return one of them."""
        ...


class Inventory:
    """The pages of a file from the first to the last that is known to have existed."""

    def __init__(
        self,
        path: Path,
        file: ReadOnlyFile | None,
        *,
        wanted: int,
        with_hidden: bool,
        tell: Callable[[int], None],
    ) -> None:
        self.intact = bytearray(1)  # by number: whether it is
        self.bad_rows = 0  # that are no pages
        self.broken = "" if file else "it cannot be opened"
        self._file = file
        self._carving: Carving | None = None
        if file is not None:
            self._walk(file, tell)
        self.hidden = 0 if wanted or file is None or file.holder else _hidden(path, self.last)
        self._extend(max(wanted, file.last_page if file and file.last_page < MAX_PAGES else 0))
        if self.lost or self.broken or (self.hidden and with_hidden):
            self._carve(path)

    @property
    def source(self) -> Source:
        """The reader of intact pages."""
        return self._carving or self

    @property
    def last(self) -> int:
        """The highest number that is known to have existed."""
        return len(self.intact) - 1

    @property
    def lost(self) -> int:
        """The number of lost pages."""
        return self.last - sum(self.intact)

    def first_lost(self) -> list[int]:
        """Return the first lost pages."""
        found: list[int] = []
        at = self.intact.find(0, 1)
        while at >= 0 and len(found) < SHOWN:
            found.append(at)
            at = self.intact.find(0, at + 1)
        return found

    def has(self, number: int) -> bool:
        """Return whether a page is intact."""
        return 0 < number <= self.last and bool(self.intact[number])

    def lost_after(self, number: int) -> int:
        """Return the number of lost pages after that one."""
        return max(0, self.last - number) - sum(self.intact[number + 1 :])

    def rows(self) -> Iterator[Row]:
        """See `Source`; by the tree."""
        if self._file is not None:
            yield from (row for row in self._file.rows() if self.has(row.number))

    def page(self, number: int) -> bytes:
        """See `Source`; by the tree."""
        if self._file is None:
            raise StoreDamaged(f"page {number} cannot be reached")
        return self._file.reader.page(number)

    def close(self) -> None:
        """Close what was opened."""
        if self._carving is not None:
            self._carving.close()

    # ---- reading

    def _walk(self, file: ReadOnlyFile, tell: Callable[[int], None]) -> None:
        try:
            for number, data in file.rows():
                if is_page(number, data):
                    self._keep(number)
                else:
                    self.bad_rows += 1
                if not number & 0x3FFF:
                    tell(number)
        except StoreDamaged as error:
            self.broken = str(error)

    def _carve(self, path: Path) -> None:
        """Use carved pages if there are more of them, or if the tree is broken."""
        carving = Carving(path)
        if carving.count <= sum(self.intact) and not self.broken:
            carving.close()
            return
        if not self.hidden:
            self.broken = self.broken or "it leaves out pages that are there"
        self._carving, last = carving, self.last
        self.intact = bytearray(carving.has(number) for number in range(carving.last + 1))
        self._extend(last)

    def _keep(self, number: int) -> None:
        self._extend(number)
        self.intact[number] = 1

    def _extend(self, last: int) -> None:
        self.intact += bytes(max(0, last + 1 - len(self.intact)))


def _hidden(path: Path, last: int) -> int:
    """Return the number of log pages SQLite ignores: unacknowledged, or behind a damaged frame."""
    with Carving(path, only_log=True) as carving:
        return sum(carving.has(number) for number in range(last + 1, carving.last + 1))


OnUpdate = Callable[[int, log_pages.CrawlUpdate], None]


class CrawlIndex:
    """The pages of the last intact rows of one crawl, by number; 0: there is none."""

    def __init__(self) -> None:
        self.name: str | None = None  # None: no page that says it is intact
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
            if page.crawl == log_pages.NO_CRAWL:
                continue
            found[page.crawl].add_page(page, inventory)
            if page.is_last:
                add_page(page.crawl, log_pages.decode_update(page.update))
        except msgspec.MsgspecError:  # written by a release whose format this one cannot read
            inventory.intact[number] = 0
    for index, update in waiting:
        add_page(index, update)
    return dict(sorted(found.items()))
