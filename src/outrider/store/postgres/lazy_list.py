"""Lazy lists: lanes and delayed lists of a queue of which only the first entries are loaded.

`head` holds all entries up to `edge`; entries pushed behind the edge wait in `later`. What was
added and removed is remembered, and becomes rows when the verb is written.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final, Protocol

from msgspec import field

from outrider.core.order import DELAYED_BYTES, LANE_BYTES
from outrider.store.engine.records import EMPTY_LIST, Queue
from outrider.store.engine.sorted_list import SortedList

LOAD_STEP: Final = 64  # entries loaded at a time
ALL: Final = 1 << 30
END: Final = 1 << 512  # beyond every entry
DELAYED_PLACE: Final = 2  # of a queue's lists: lane 0, lane 1, the delayed

_NO_ENTRIES: Final[set[int]] = set()  # shared, never added to
_NO_LATER: Final[list[int]] = []  # as above


def _no_entries() -> set[int]:
    return _NO_ENTRIES


def _no_later() -> list[int]:
    return _NO_LATER


class EntrySource(Protocol):
    """Where the entries behind the edge come from."""

    def entries_after(self, queue: int, place: int, after: int, limit: int) -> list[int]:
        """Return the next entries of a queue's list, in order."""
        ...


class LazyList(SortedList, gc=False, eq=False):
    """One list of one queue."""

    source: EntrySource | None = None
    queue: int = 0
    place: int = 0  # lane, or `DELAYED_PLACE`
    edge: int = END
    size: int = 0  # of a delayed list: how many entries it has
    # Made when first needed: most lists are only read.
    later: list[int] = field(default_factory=_no_later)
    removed_later: set[int] = field(default_factory=_no_entries)  # from behind the edge
    present: set[int] = field(default_factory=_no_entries)  # known to be behind the edge
    added: set[int] = field(default_factory=_no_entries)
    removed: set[int] = field(default_factory=_no_entries)

    def push(self, entry: int) -> None:
        """See `SortedList`."""
        self._add(entry)
        if entry <= self.edge:
            insort(self.head, entry)
        elif self.later:
            insort(self.later, entry)
        else:
            self.later = [entry]

    def pop(self) -> int:
        """See `SortedList`."""
        entry = self.head.pop(0)
        self._remove(entry)
        if not self.head:
            self.refill()
        return entry

    def discard(self, entry: int) -> bool:
        """See `SortedList`."""
        if not self._has(entry):
            return False
        if entry > self.edge:
            self._discard_later(entry)
        else:
            del self.head[bisect_left(self.head, entry)]
        self._remove(entry)
        if not self.head:
            self.refill()
        return True

    def swap(self, old: int, new: int) -> bool:
        """See `SortedList`; pushed first: a list that runs empty loads more."""
        if not self._has(old):
            return False
        if new != old:
            self.push(new)
            self.discard(old)
        return True

    def _has(self, entry: int) -> bool:
        if entry > self.edge:
            return entry in self.added or entry in self.present
        at = bisect_left(self.head, entry)
        return at < len(self.head) and self.head[at] == entry

    def _discard_later(self, entry: int) -> None:
        if entry in self.added:
            self.later.remove(entry)
        else:
            self.present.discard(entry)
            self.removed_later = self.removed_later or set()
            self.removed_later.add(entry)

    def refill(self) -> None:
        """See `SortedList`."""
        while not self.head and self.edge < END:
            self.load(LOAD_STEP)

    def load(self, count: int) -> None:
        """Load that many more entries, if there are."""
        if self.source is None or self.edge == END:
            return
        found = self.source.entries_after(self.queue, self.place, self.edge, count)
        self.insert_loaded(found, count)

    def loaded_rows(self) -> int:
        """Return how many rows the loaded part was made of."""
        if not self.added and not self.removed:
            return len(self.head)
        kept = [entry for entry in self.head if entry not in self.added]
        return len(kept) + len([entry for entry in self.removed if entry <= self.edge])

    def insert_loaded(self, entries: list[int], asked: int) -> None:
        """Insert the next rows after the edge, of so many asked for."""
        self.edge = entries[-1] if len(entries) == asked else END
        cut = bisect_left(self.later, self.edge + 1)
        kept = [entry for entry in entries if entry not in self.removed_later]
        self.head = sorted([*self.head, *kept, *self.later[:cut]])
        self.later = self.later[cut:]

    def _add(self, entry: int) -> None:
        self.size += 1
        if entry in self.removed:
            self.removed.discard(entry)
        elif self.added:
            self.added.add(entry)
        else:
            self.added = {entry}

    def _remove(self, entry: int) -> None:
        self.size -= 1
        if entry in self.added:
            self.added.discard(entry)
        elif self.removed:
            self.removed.add(entry)
        else:
            self.removed = {entry}

    def note_present(self, entry: int) -> None:
        """Record that an entry is in the list, maybe behind the edge."""
        if entry > self.edge:
            self.present = self.present or set()
            self.present.add(entry)

    def forget_changes(self) -> None:
        """Record that all changes were written."""
        self.added, self.removed = set(), set()

    # ---- reading

    def count(self) -> int:
        """See `SortedList`."""
        return len(list(self))

    def count_from(self, bound: int) -> int:
        """See `SortedList`: asked of delayed lists, which know their size."""
        return self.size - len(self.below(bound))

    def below(self, bound: int) -> list[int]:
        """See `SortedList`."""
        while self.edge < bound:
            self.load(LOAD_STEP)
        return self.head[: bisect_left(self.head, bound)]

    def first(self, count: int) -> list[int]:
        """See `SortedList`."""
        while len(self.head) < count and self.edge < END:
            self.load(count)
        return self.head[:count]

    def __iter__(self) -> Iterator[int]:
        """Load and iterate over all entries; there may be many."""
        while self.edge < END:
            self.load(ALL)
        return iter(self.head)


class UnsortedAdditions(SortedList, gc=False, eq=False):
    """A lane of a queue that is locked and not loaded: only what is added to it, in no order."""

    def push(self, entry: int) -> None:
        """See `SortedList`."""
        self.head.append(entry)


class PostgresQueue(Queue, gc=False, eq=False):
    """A queue whose lists are lazy; most have one lane and need no others."""

    def enter(self, lane: int, key: int, due: int, now: int) -> None:
        """See `Queue`."""
        if due > now and self.delayed is EMPTY_LIST:
            self.delayed = LazyList(DELAYED_BYTES, [])
        super().enter(lane, key, due, now)

    def lane_to_fill(self, lane: int) -> SortedList:
        """See `Queue`."""
        if self.lane(lane) is EMPTY_LIST:
            setattr(self, f"lane{lane}", LazyList(LANE_BYTES, []))
        return self.lane(lane)


def lazy_lists(queue: Queue) -> list[tuple[int, LazyList]]:
    """Return the lists that a queue has, with their places."""
    found: list[tuple[int, LazyList]] = []
    if isinstance(queue.lane0, LazyList):
        found.append((0, queue.lane0))
    if isinstance(queue.lane1, LazyList):
        found.append((1, queue.lane1))
    if isinstance(queue.delayed, LazyList):
        found.append((DELAYED_PLACE, queue.delayed))
    return found
