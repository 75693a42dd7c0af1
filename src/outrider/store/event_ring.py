"""The event log of a crawl: the store's own events, and those that workers publish to a ring (O3).

Both have one numbering without holes. Of the ring the last batches are kept; a number for which
there is no event is part of a gap, and readers are told how many are missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import dropwhile, islice
from operator import attrgetter
from typing import Any, Final, NamedTuple, final

import msgspec

from outrider.events import GAP
from outrider.store.protocol import COUNTS_AT_END, EventBatch, EventPage, LoggedEvent, StoreEvent

RING_EVENTS: Final = 10_000  # a batch is forgotten once so many numbers came after it,
RING_BYTES: Final = 1 << 23  # or so many bytes
_EVENT_BYTES: Final = 100  # what an event takes besides its texts

_sequence = attrgetter("sequence")
_encode = msgspec.json.Encoder().encode


def batch_bytes(batch: EventBatch) -> int:
    """Return the bytes that a batch counts as."""
    return sum(len(one.name) + len(one.data.encode()) + _EVENT_BYTES for one in batch.events)


def data_of(event: StoreEvent) -> dict[str, Any]:
    """Return the data of a store's own event."""
    data: dict[str, Any] = {"subject": event.subject, "detail": event.detail}
    if event.by:
        data["by"] = event.by
    if event.counts:
        data["counts"] = {name: event.counts[name] for name in COUNTS_AT_END}
    return data


class NumberedBatch(NamedTuple):
    """A batch in the ring, and the number of its last event."""

    last: int
    batch: EventBatch

    def events(self) -> Iterator[LoggedEvent]:
        """Return its events with their numbers."""
        first = self.last - len(self.batch.events) + 1
        for number, event in enumerate(self.batch.events, first):
            yield LoggedEvent(number, event.at, event.name, event.data, self.batch.worker)


@final
class EventRing:
    """The last batches, in memory."""

    __slots__ = ("_batches", "_bytes", "_serials")

    def __init__(self) -> None:
        self._batches: deque[NumberedBatch] = deque()
        self._bytes = 0
        self._serials: dict[str, int] = {}  # of the last batch of each publisher in the ring

    def has(self, batch: EventBatch) -> bool:
        """Tell whether a batch was published before."""
        return self._serials.get(batch.publisher, 0) >= batch.serial

    def append(self, batch: EventBatch, last: int) -> None:
        """Append a batch, whose last event has this number; forget the oldest."""
        self._batches.append(NumberedBatch(last, batch))
        self._serials[batch.publisher] = batch.serial
        self._bytes += batch_bytes(batch)
        while self._is_over(last):
            self._forget_first()

    def _is_over(self, last: int) -> bool:
        first = self._batches[0]
        after = self._bytes - batch_bytes(first.batch)
        return first.last <= last - RING_EVENTS or after >= RING_BYTES

    def _forget_first(self) -> None:
        batch = self._batches.popleft().batch
        self._bytes -= batch_bytes(batch)
        if self._serials[batch.publisher] == batch.serial:
            del self._serials[batch.publisher]

    def after(self, number: int) -> Iterator[NumberedBatch]:
        """Return the batches that have events after a number, in order."""
        return dropwhile(lambda one: one.last <= number, self._batches)


def start_after(after: int, last: int) -> int:
    """Return the number to read on from: that of the reader, if the log has got so far.

    Otherwise it is one of an earlier crawl of that name, whose log was longer.
    """
    return after if after <= last else 0


def log_page(
    after: int,
    limit: int,
    own: Iterable[StoreEvent],
    published: Iterable[NumberedBatch],
    last: int,
) -> EventPage:
    """Return up to `limit` events after a number, and gaps where there is none.

    `own` and `published` are all there are after `start_after`, or at least `limit`; `last` is the
    highest number that was given.
    """
    events: list[LoggedEvent] = []
    if start_after(after, last) < after:
        events.append(LoggedEvent(0, 0.0, GAP, _encode({"missing": None}).decode()))
        after = 0
    from_store = (
        LoggedEvent(one.sequence, one.at, one.name, _encode(data_of(one)).decode()) for one in own
    )
    from_ring = (event for one in published for event in one.events() if event.sequence > after)
    found = list(islice(merge(from_store, from_ring, key=_sequence), limit))
    for event in found:
        if event.sequence > after + 1:
            events.append(_gap(after, event.sequence - 1))
        events.append(event)
        after = event.sequence
    if len(found) < limit and after < last:
        events.append(_gap(after, last))
    return EventPage(events, last)


def _gap(after: int, upto: int) -> LoggedEvent:
    """Return what stands for the events after a number, up to another one."""
    return LoggedEvent(upto, 0.0, GAP, _encode({"missing": upto - after}).decode())
