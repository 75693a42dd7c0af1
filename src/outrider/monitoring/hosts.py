"""Hosts worth showing: of any number of queues, those that lead in some order."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final

import msgspec

from outrider.store.protocol import QueueView

KEPT: Final = 200  # leading hosts kept for each order
MAX_HOSTS: Final = 4096  # up to which all are kept
PACE_WINDOW: Final = 30.0  # seconds over which a host's pace is averaged, approximately


class HostOrder(StrEnum):
    """What hosts are ordered by; the first is shown first."""

    BUSIEST = "busiest"
    PENDING = "pending"
    SLOWEST = "slowest"
    WAITING = "waiting"
    ERRORS = "errors"
    DEAD = "dead"
    KEY = "key"

    @property
    def next(self) -> HostOrder:
        """The following order; after the last, the first."""
        every = list(HostOrder)
        return every[(every.index(self) + 1) % len(every)]


class Host(msgspec.Struct, frozen=True):
    """A queue at its last sample, and its pace since the first one."""

    view: QueueView
    at: float
    first_at: float
    pace: float = 0.0  # recent visits done per second

    def with_view(self, view: QueueView, at: float) -> Host:
        """The host at a newer sample; its pace is averaged, as single visits are no rate."""
        elapsed = at - self.at
        if elapsed <= 0:
            return Host(view, self.at, self.first_at, self.pace)
        now = max(0, view.done - self.view.done) / elapsed
        share = min(1.0, elapsed / min(PACE_WINDOW, at - self.first_at))
        return Host(view, at, self.first_at, self.pace + (now - self.pace) * share)


def _has_work(host: Host) -> bool:
    return host.view.pending + host.view.in_flight > 0


# Sort keys, smallest first; equal hosts are ordered by their queue's key.
_SORT_KEYS: Final[dict[HostOrder, Callable[[Host], tuple[float, ...]]]] = {
    HostOrder.BUSIEST: lambda host: (
        *(-host.pace, -host.view.in_flight, -(host.view.last_visit_at or 0)),
    ),
    HostOrder.PENDING: lambda host: (-host.view.pending,),
    HostOrder.SLOWEST: lambda host: (
        *(not _has_work(host), -host.view.delay, -host.view.errors_in_row),
    ),
    HostOrder.WAITING: lambda host: (-(host.view.wakes_in or 0.0),),
    HostOrder.ERRORS: lambda host: (-host.view.errors_in_row, -host.view.level),
    HostOrder.DEAD: lambda host: (-host.view.dead,),
    HostOrder.KEY: lambda _: (),
}


class Hosts:
    """A bounded table of hosts, by key."""

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    def get(self, key: str) -> Host | None:
        """The host of a key, if it is kept."""
        return self._hosts.get(key)

    def update(self, views: Iterable[QueueView], at: float) -> None:
        """Take these views, read at this instant of the store's clock."""
        for view in views:
            known = self._hosts.get(view.key)
            self._hosts[view.key] = (
                Host(view, at, at) if known is None else known.with_view(view, at)
            )

    def trim(self, pinned: Iterable[str] = ()) -> None:
        """Keep the leading hosts of each order and the pinned ones; all while they are few."""
        if len(self._hosts) <= MAX_HOSTS:
            return
        kept = {key: self._hosts[key] for key in pinned if key in self._hosts}
        for order in HostOrder:
            kept.update((host.view.key, host) for host in self.ranked(order, KEPT))
        self._hosts = kept

    def ranked(self, order: HostOrder, limit: int, part: str = "") -> list[Host]:
        """The first hosts in an order whose key contains `part`."""
        wanted = part.lower()
        chosen = [host for host in self._hosts.values() if wanted in host.view.key.lower()]
        sort_key = _SORT_KEYS[order]
        return heapq.nsmallest(limit, chosen, key=lambda host: (sort_key(host), host.view.key))
