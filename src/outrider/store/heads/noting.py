"""A crawl's notes: one for a topic and name, in the order of their numbers (F4, N1).

A number is never given twice: the highest note stays until a higher one takes its place.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from operator import attrgetter

from outrider.store.protocol import SharedValue, SharedValueWrite

_number = attrgetter("number")


class Notes:
    """What is noted now; what is gone is a note without text."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], SharedValue] = {}
        self._in_order: list[SharedValue] = []

    @property
    def last(self) -> int:
        """The highest number."""
        return self._in_order[-1].number if self._in_order else 0

    def write(self, note: SharedValueWrite, now: int) -> int:
        """The number of what is noted then; 0: it was written over something else."""
        old = self._known.get((note.topic, note.name))
        number, text = (old.number, old.text) if old else (0, "")
        if note.seen not in (None, number):
            return 0
        if note.text == text:
            return number
        new = SharedValue(self.last + 1, now / 1000, note.topic, note.name, note.text)
        self.keep(new)
        return new.number

    def keep_all(self, notes: Iterable[SharedValue]) -> None:
        """What was noted, as it was kept."""
        for note in notes:
            self.keep(note)

    def keep(self, new: SharedValue) -> None:
        """Let this be noted, unless something later is: in whatever order they come, and again."""
        name = (new.topic, new.name)
        old = self._known.get(name)
        if old is not None and old.number >= new.number:
            return
        if old is not None:
            del self._in_order[self._after(old.number) - 1]
        self._known[name] = new
        insort(self._in_order, new, key=_number)

    def since(self, after: int, limit: int | None = None) -> list[SharedValue]:
        """Those with a higher number, in order."""
        start = self._after(after)
        return self._in_order[start : None if limit is None else start + limit]

    def _after(self, number: int) -> int:
        return bisect_right(self._in_order, number, key=_number)
