"""Which pages of a file are intact, and where they are read: by its tree, or carved out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from outrider.errors import StoreDamaged
from outrider.store.embedded.carving import Carving
from outrider.store.embedded.file import Row
from outrider.store.embedded.read_only_file import MOST, ReadOnlyFile, is_page

SHOWN = 100  # of what is lost, by number


class Source(Protocol):
    """Where intact pages are read."""

    def rows(self) -> Iterator[Row]:
        """All of them, in order."""
        ...

    def page(self, number: int) -> bytes:
        """One of them."""
        ...


class Inventory:
    """The pages of a file from the first to the last that ever was, as far as anything tells."""

    def __init__(
        self,
        path: Path,
        look: ReadOnlyFile | None,
        *,
        wanted: int,
        with_hidden: bool,
        tell: Callable[[int], None],
    ) -> None:
        self.intact = bytearray(1)  # by number: whether it is
        self.hurt = 0  # rows that are no page
        self.broken = "" if look else "it cannot be opened"
        self._look = look
        self._carving: Carving | None = None
        if look is not None:
            self._walk(look, tell)
        self.hidden = 0 if wanted or look is None or look.holder else _hidden(path, self.last)
        self._stretch(max(wanted, look.last_page if look and look.last_page < MOST else 0))
        if self.lost or self.broken or (self.hidden and with_hidden):
            self._carve(path)

    @property
    def source(self) -> Source:
        """Where the intact ones are read."""
        return self._carving or self

    @property
    def last(self) -> int:
        """The highest number that ever was."""
        return len(self.intact) - 1

    @property
    def lost(self) -> int:
        """How many are not intact."""
        return self.last - sum(self.intact)

    def first_lost(self) -> list[int]:
        """The first ones that are not intact."""
        found: list[int] = []
        at = self.intact.find(0, 1)
        while at >= 0 and len(found) < SHOWN:
            found.append(at)
            at = self.intact.find(0, at + 1)
        return found

    def has(self, number: int) -> bool:
        """Whether that one is intact."""
        return 0 < number <= self.last and bool(self.intact[number])

    def lost_after(self, number: int) -> int:
        """How many behind that one are not intact."""
        return max(0, self.last - number) - sum(self.intact[number + 1 :])

    def rows(self) -> Iterator[Row]:
        """See `Source`; by the tree."""
        if self._look is not None:
            yield from ((number, data) for number, data in self._look.rows() if self.has(number))

    def page(self, number: int) -> bytes:
        """See `Source`; by the tree."""
        if self._look is None:
            raise StoreDamaged(f"page {number} cannot be reached")
        return self._look.page(number)

    def close(self) -> None:
        """Let go of what was opened."""
        if self._carving is not None:
            self._carving.close()

    # ---- looking

    def _walk(self, look: ReadOnlyFile, tell: Callable[[int], None]) -> None:
        try:
            for number, data in look.rows():
                if is_page(number, data):
                    self._keep(number)
                else:
                    self.hurt += 1
                if not number & 0x3FFF:
                    tell(number)
        except StoreDamaged as error:
            self.broken = str(error)

    def _carve(self, path: Path) -> None:
        """Taken instead of the tree if it finds more, or if the tree breaks off."""
        carving = Carving(path)
        if carving.count <= sum(self.intact) and not self.broken:
            carving.close()
            return
        if not self.hidden:
            self.broken = self.broken or "it leaves out pages that are there"
        self._carving, last = carving, self.last
        self.intact = bytearray(carving.has(number) for number in range(carving.last + 1))
        self._stretch(last)

    def _keep(self, number: int) -> None:
        self._stretch(number)
        self.intact[number] = 1

    def _stretch(self, last: int) -> None:
        self.intact += bytes(max(0, last + 1 - len(self.intact)))


def _hidden(path: Path, last: int) -> int:
    """Pages of the log that SQLite does not see: never acknowledged, or behind a hurt frame."""
    with Carving(path, only_log=True) as carving:
        return sum(carving.has(number) for number in range(last + 1, carving.last + 1))
