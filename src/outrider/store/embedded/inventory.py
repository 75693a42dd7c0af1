"""The inventory of a file: which pages are intact, read by SQLite's tree or carved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from outrider.errors import StoreDamaged
from outrider.store.embedded.carving import Carving
from outrider.store.embedded.file import Row
from outrider.store.embedded.read_only_file import MAX_PAGES, ReadOnlyFile, is_page

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
