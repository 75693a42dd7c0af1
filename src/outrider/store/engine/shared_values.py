"""The shared values of one crawl: one per topic and name, in the order of their numbers (F4, N1).

A number is never given twice: the value with the highest number stays until a higher one is given.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from operator import attrgetter
from typing import final

from outrider.store.protocol import SharedValue, SharedValueWrite

_number = attrgetter("number")


@final
class SharedValues:
    """Current values; a deleted one is kept with an empty text."""

    __slots__ = ("_by_name", "_in_order")

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], SharedValue] = {}
        self._in_order: list[SharedValue] = []

    @property
    def last(self) -> int:
        """The highest number."""
        return self._in_order[-1].number if self._in_order else 0

    def put(self, write: SharedValueWrite, now: int) -> int:
        """Return the number of the value after the write; 0: another value was there."""
        old = self._by_name.get((write.topic, write.name))
        number, text = (old.number, old.text) if old else (0, "")
        if write.seen not in (None, number):
            return 0
        if write.text == text:
            return number
        new = SharedValue(self.last + 1, now / 1000, write.topic, write.name, write.text)
        self.insert(new)
        return new.number

    def insert_all(self, values: Iterable[SharedValue]) -> None:
        """Insert stored values."""
        for value in values:
            self.insert(value)

    def insert(self, new: SharedValue) -> None:
        """Insert a value, unless a later one is there: in any order, and repeatedly."""
        name = (new.topic, new.name)
        old = self._by_name.get(name)
        if old is not None and old.number >= new.number:
            return
        if old is not None:
            del self._in_order[self._index_after(old.number) - 1]
        self._by_name[name] = new
        insort(self._in_order, new, key=_number)

    def since(self, after: int, limit: int | None = None) -> list[SharedValue]:
        """Return the values with a higher number, in order."""
        start = self._index_after(after)
        return self._in_order[start : None if limit is None else start + limit]

    def _index_after(self, number: int) -> int:
        return bisect_right(self._in_order, number, key=_number)
