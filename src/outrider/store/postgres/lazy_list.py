"""A line of a queue whose entries are rows: its first few are at hand, more are fetched if needed.

All of the line up to `edge` stands in `head`; what joined behind it waits in `later`. Whatever
joined or left is remembered, and becomes rows when the verb is written.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final, Protocol

from msgspec import field

from outrider.core.order import DELAYED_BYTES, LANE_BYTES
from outrider.store.heads.lines import Line
from outrider.store.heads.records import NO_LINE, Queue

FETCHED: Final = 64  # entries at a time
ALL: Final = 1 << 30
END: Final = 1 << 512  # beyond every entry


_NOBODY: Final[set[int]] = set()  # never added to
_NONE_LATER: Final[list[int]] = []  # nor is this


def _nobody() -> set[int]:
    return _NOBODY


def _none_later() -> list[int]:
    return _NONE_LATER


class Fetch(Protocol):
    """Where the rest of a line is."""

    def more(self, queue: int, place: int, after: int, limit: int) -> list[int]:
        """The next entries after one, in order; 0: from the first on."""
        ...


class Shelf(Line, gc=False, eq=False):
    """One line of one queue: a lane, or the delayed."""

    fetch: Fetch | None = None
    queue: int = 0
    place: int = 0  # lane, or 2: the delayed
    edge: int = END
    size: int = 0  # of the delayed: how many there are
    # Made when first needed: most lines are only looked at.
    later: list[int] = field(default_factory=_none_later)
    gone: set[int] = field(default_factory=_nobody)  # left from behind the edge
    present: set[int] = field(default_factory=_nobody)  # known to stand behind the edge
    added: set[int] = field(default_factory=_nobody)
    removed: set[int] = field(default_factory=_nobody)

    def push(self, entry: int) -> None:
        """See `Line`."""
        self._joins(entry)
        if entry <= self.edge:
            insort(self.head, entry)
        elif self.later:
            insort(self.later, entry)
        else:
            self.later = [entry]

    def pop(self) -> int:
        """See `Line`."""
        entry = self.head.pop(0)
        self._leaves(entry)
        if not self.head:
            self.refill()
        return entry

    def discard(self, entry: int) -> bool:
        """See `Line`."""
        if entry > self.edge:
            return self._discard_behind(entry)
        head = self.head
        place = bisect_left(head, entry)
        if place == len(head) or head[place] != entry:
            return False
        del head[place]
        self._leaves(entry)
        if not head:
            self.refill()
        return True

    def _discard_behind(self, entry: int) -> bool:
        if entry in self.added:
            self.later.remove(entry)
        elif entry in self.present:
            self.present.discard(entry)
            self.gone = self.gone or set()
            self.gone.add(entry)
        else:
            return False
        self._leaves(entry)
        return True

    def refill(self) -> None:
        """See `Line`."""
        while not self.head and self.edge < END:
            self.reach(FETCHED)

    def reach(self, count: int) -> None:
        """Have that many more at hand, if there are."""
        if self.fetch is None or self.edge == END:
            return
        self.take(self.fetch.more(self.queue, self.place, self.edge, count), count)

    def depth(self) -> int:
        """How many rows the part at hand was made of."""
        if not self.added and not self.removed:
            return len(self.head)
        stayed = [entry for entry in self.head if entry not in self.added]
        return len(stayed) + len([entry for entry in self.removed if entry <= self.edge])

    def take(self, entries: list[int], asked: int) -> None:
        """The next rows after the edge came, of so many asked for."""
        self.edge = entries[-1] if len(entries) == asked else END
        cut = bisect_left(self.later, self.edge + 1)
        stay = [entry for entry in entries if entry not in self.gone]
        self.head = sorted([*self.head, *stay, *self.later[:cut]])
        self.later = self.later[cut:]

    def _joins(self, entry: int) -> None:
        self.size += 1
        if entry in self.removed:
            self.removed.discard(entry)
        elif self.added:
            self.added.add(entry)
        else:
            self.added = {entry}

    def _leaves(self, entry: int) -> None:
        self.size -= 1
        if entry in self.added:
            self.added.discard(entry)
        elif self.removed:
            self.removed.add(entry)
        else:
            self.removed = {entry}

    def point_out(self, entry: int) -> None:
        """It stands here, maybe behind the edge."""
        if entry > self.edge:
            self.present = self.present or set()
            self.present.add(entry)

    # ---- reading

    def count(self) -> int:
        """See `Line`."""
        return len(list(self))

    def beyond(self, bound: int) -> int:
        """See `Line`: asked of the delayed, which know how many they are."""
        return self.size - len(self.below(bound))

    def below(self, bound: int) -> list[int]:
        """See `Line`."""
        while self.edge < bound:
            self.reach(FETCHED)
        return self.head[: bisect_left(self.head, bound)]

    def first(self, count: int) -> list[int]:
        """See `Line`."""
        while len(self.head) < count and self.edge < END:
            self.reach(count)
        return self.head[:count]

    def __iter__(self) -> Iterator[int]:
        """All of it; there may be many."""
        while self.edge < END:
            self.reach(ALL)
        return iter(self.head)


class ServerQueue(Queue, gc=False, eq=False):
    """A queue whose lines remember who joined and who left; most have one lane and need no more."""

    def enter(self, lane: int, key: int, due: int, now: int) -> None:
        """See `Queue`."""
        if due > now and self.delayed is NO_LINE:
            self.delayed = Shelf(DELAYED_BYTES, [])
        super().enter(lane, key, due, now)

    def move(self, lane: int, old: int, new: int, due: int, now: int) -> None:
        """In before out: a shelf that runs empty asks the server for more."""
        self.enter(lane, new, due, now)
        self.leave(lane, old, due)

    def open_lane(self, lane: int) -> Line:
        """See `Queue`."""
        if self.lane(lane) is NO_LINE:
            setattr(self, f"lane{lane}", Shelf(LANE_BYTES, []))
        return self.lane(lane)


def shelves(queue: Queue) -> list[tuple[int, Shelf]]:
    """The lines a queue has, by their places."""
    found: list[tuple[int, Shelf]] = []
    if isinstance(queue.lane0, Shelf):
        found.append((0, queue.lane0))
    if isinstance(queue.lane1, Shelf):
        found.append((1, queue.lane1))
    if isinstance(queue.delayed, Shelf):
        found.append((2, queue.delayed))
    return found
