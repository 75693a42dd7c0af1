"""The hosts worth looking at: those that lead in something, of however many there are."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final

import msgspec

from outrider.store.protocol import QueueView

KEPT: Final = 200  # that lead, in each order
MOST: Final = 4096  # known before only those are kept
LATELY: Final = 30.0  # seconds that a host's pace is taken over, more or less


class Order(StrEnum):
    """What hosts are ordered by; the first is shown first."""

    BUSIEST = "busiest"
    PENDING = "pending"
    SLOWEST = "slowest"
    WAITING = "waiting"
    ERRORS = "errors"
    DEAD = "dead"
    KEY = "key"

    @property
    def next(self) -> Order:
        """The one after it, and after the last the first."""
        every = list(Order)
        return every[(every.index(self) + 1) % len(every)]


class Host(msgspec.Struct, frozen=True):
    """A queue as it was last seen, and its pace since it was seen first."""

    view: QueueView
    at: float
    first_at: float
    pace: float = 0.0  # visits done a second, of late

    def seen_again(self, view: QueueView, at: float) -> Host:
        """The newer sight; one visit in a while must not read as many a second."""
        gone = at - self.at
        if gone <= 0:
            return Host(view, self.at, self.first_at, self.pace)
        now = max(0, view.done - self.view.done) / gone
        share = min(1.0, gone / min(LATELY, at - self.first_at))
        return Host(view, at, self.first_at, self.pace + (now - self.pace) * share)


def _has_work(host: Host) -> bool:
    return host.view.pending + host.view.in_flight > 0


# The smallest first; equals stand by their keys.
_RANKS: Final[dict[Order, Callable[[Host], tuple[float, ...]]]] = {
    Order.BUSIEST: lambda host: (-host.pace, -host.view.in_flight, -(host.view.last_visit_at or 0)),
    Order.PENDING: lambda host: (-host.view.pending,),
    Order.SLOWEST: lambda host: (not _has_work(host), -host.view.delay, -host.view.errors_in_row),
    Order.WAITING: lambda host: (-(host.view.wakes_in or 0.0),),
    Order.ERRORS: lambda host: (-host.view.errors_in_row, -host.view.level),
    Order.DEAD: lambda host: (-host.view.dead,),
    Order.KEY: lambda _: (),
}


class Hosts:
    """A bounded book of hosts, by key."""

    def __init__(self) -> None:
        self._book: dict[str, Host] = {}

    def __len__(self) -> int:
        return len(self._book)

    def get(self, key: str) -> Host | None:
        """One of them, if it is kept."""
        return self._book.get(key)

    def see(self, views: Iterable[QueueView], at: float) -> None:
        """These were seen at this instant of the store's clock."""
        for view in views:
            known = self._book.get(view.key)
            self._book[view.key] = (
                Host(view, at, at) if known is None else known.seen_again(view, at)
            )

    def trim(self, pinned: Iterable[str] = ()) -> None:
        """Keep those that lead in some order, and those named; all of them while they are few."""
        if len(self._book) <= MOST:
            return
        kept = {key: self._book[key] for key in pinned if key in self._book}
        for order in Order:
            kept.update((host.view.key, host) for host in self.ranked(order, KEPT))
        self._book = kept

    def ranked(self, order: Order, most: int, part: str = "") -> list[Host]:
        """The first so many whose key has this part."""
        wanted = part.lower()
        chosen = [host for host in self._book.values() if wanted in host.view.key.lower()]
        rank = _RANKS[order]
        return heapq.nsmallest(most, chosen, key=lambda host: (rank(host), host.view.key))
