"""The journal of one crawl: scope roots, shared values, workers, events.

Shared values are kept one per topic and name, in the order of their numbers (F4, N1). A number is
never given twice: the value with the highest number stays until a higher one is given.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple, final

import msgspec

from outrider.core.worker_totals import (
    NO_TOTALS,
    WorkerTotals,
    later_totals,
    sum_of_totals,
)
from outrider.store.engine.state import CrawlState
from outrider.store.event_ring import EventRing, log_page, start_after
from outrider.store.protocol import (
    MAX_WORKERS,
    WORKER_KEPT_SECONDS,
    EventBatch,
    EventPage,
    Heartbeat,
    SharedValue,
    SharedValueWrite,
    StoreEvent,
    WorkerView,
)

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


_KEPT_MS: Final = int(WORKER_KEPT_SECONDS * 1000)
_SAME_INTERVAL_MS: Final = 600_000  # between two writes of a worker whose heartbeats say the same


class LastHeartbeat(NamedTuple):
    """A worker's last heartbeat, and the times of its first and its last."""

    heartbeat: Heartbeat
    first: int
    last: int


@final
class Workers:
    """Workers by name; the silent are removed after a day, of too many the one silent longest.

    The totals of removed workers are added up in `gone`.
    """

    __slots__ = ("_by_name", "_changed_at", "changed", "gone", "new_gone", "removed", "version")

    def __init__(self) -> None:
        self._by_name: dict[str, LastHeartbeat] = {}
        self._changed_at: dict[str, int] = {}  # when each was put into `changed`
        self.gone = NO_TOTALS
        self.version = 0  # how many heartbeats changed something that is written
        # since `mark_written`
        self.changed: dict[str, None] = {}
        self.removed: dict[str, None] = {}
        self.new_gone: WorkerTotals | None = None

    def heartbeat(self, heartbeat: Heartbeat, now: int) -> None:
        """Record a heartbeat."""
        known = self._by_name.pop(heartbeat.worker, None)
        latest, left = after_heartbeat(known, heartbeat, now)
        self._keep_totals([left])
        if len(self._by_name) >= MAX_WORKERS:
            self._remove_silent(now)
        self._by_name[heartbeat.worker] = latest
        if known is None or latest.heartbeat != known.heartbeat or self._is_due(known, now):
            self.version += 1
            self._changed_at[heartbeat.worker] = now
            self.changed[heartbeat.worker] = None
            self.removed.pop(heartbeat.worker, None)

    def _is_due(self, worker: LastHeartbeat, now: int) -> bool:
        """Return whether a worker is to be written though its heartbeats say the same."""
        return now - self._changed_at[worker.heartbeat.worker] >= _SAME_INTERVAL_MS

    def _remove_silent(self, now: int) -> None:
        kept = {name: one for name, one in self._by_name.items() if now - one.last < _KEPT_MS}
        if len(kept) >= MAX_WORKERS:
            del kept[min(kept, key=lambda name: (kept[name].last, name))]
        removed = [name for name in self._by_name if name not in kept]
        self._keep_totals(self._by_name[name].heartbeat.totals for name in removed)
        self.removed.update(dict.fromkeys(removed))
        for name in removed:
            self.changed.pop(name, None)
            del self._changed_at[name]
        self._by_name = kept

    def _keep_totals(self, totals: Iterable[WorkerTotals]) -> None:
        together = sum_of_totals(totals)
        if together != NO_TOTALS:
            self.gone = self.new_gone = sum_of_totals([self.gone, together])

    def views(self, now: int) -> list[WorkerView]:
        """Return the workers by their first heartbeat, then by name."""
        return worker_views(self._by_name.values(), now)

    def totals(self) -> WorkerTotals:
        """Return the totals of all workers there ever were."""
        return sum_of_totals([self.gone, *(w.heartbeat.totals for w in self._by_name.values())])

    # ---- stores that write them

    def all(self) -> list[LastHeartbeat]:
        """Return every worker."""
        return list(self._by_name.values())

    def unwritten(self) -> list[LastHeartbeat]:
        """Return the workers that changed since they were written."""
        return [self._by_name[name] for name in self.changed]

    def mark_written(self) -> None:
        """Record that all changes were written."""
        self.changed, self.removed, self.new_gone = {}, {}, None

    def load(
        self, workers: Iterable[LastHeartbeat], removed: Iterable[str], gone: WorkerTotals | None
    ) -> None:
        """Apply what was written, in its order."""
        for name in removed:
            self._by_name.pop(name, None)
            self._changed_at.pop(name, None)
        for one in workers:
            self._by_name.pop(one.heartbeat.worker, None)
            self._by_name[one.heartbeat.worker] = one
            self._changed_at[one.heartbeat.worker] = one.last
        self.gone = self.gone if gone is None else gone


def with_later_totals(old: Heartbeat, new: Heartbeat) -> Heartbeat:
    """Return a worker's heartbeat with its totals so far: a late one lowers none of them (M6)."""
    totals = later_totals(old.totals, new.totals)
    return msgspec.structs.replace(new, totals=totals)


def is_same_process(one: Heartbeat, other: Heartbeat) -> bool:
    """Return whether two heartbeats of one name are of one process."""
    return (one.host, one.pid) == (other.host, other.pid)


def after_heartbeat(
    known: LastHeartbeat | None, heartbeat: Heartbeat, now: int
) -> tuple[LastHeartbeat, WorkerTotals]:
    """Return what is kept of a worker from now on, and what another process of its name left.

    A worker that was silent for a day is listed as a new one. Its totals go on if it is the same
    process, which had no store to ask: they are cumulative, and must not be counted twice (M6).
    """
    if known is None:
        return LastHeartbeat(heartbeat, now, now), NO_TOTALS
    is_known = now - known.last < _KEPT_MS
    if not is_known and not is_same_process(known.heartbeat, heartbeat):
        return LastHeartbeat(heartbeat, now, now), known.heartbeat.totals
    so_far = with_later_totals(known.heartbeat, heartbeat)
    return LastHeartbeat(so_far, known.first if is_known else now, now), NO_TOTALS


def worker_views(heartbeats: Iterable[LastHeartbeat], now: int) -> list[WorkerView]:
    """Return workers by their first heartbeat, then by name; without those silent for a day."""
    kept = [one for one in heartbeats if now - one.last < _KEPT_MS]
    kept.sort(key=lambda one: (one.first, one.heartbeat.worker))
    return [_view(one, now) for one in kept]


def _view(one: LastHeartbeat, now: int) -> WorkerView:
    """Return a worker's view; a silent one is reported as gone."""
    fields = msgspec.structs.asdict(one.heartbeat)  # shallow: `totals` stays what it is
    if now - one.last >= fields.pop("lasts") * 1000:
        fields["state"] = "gone"
    return WorkerView(**fields, started_at=one.first / 1000, seen_at=one.last / 1000)


@final
class MemoryJournal:
    """See `port.Journal`."""

    __slots__ = ("_ring", "_state", "roots_by_mode", "values", "workers_by_name")

    def __init__(self, state: CrawlState) -> None:
        self._state, self.workers_by_name = state, Workers()
        self._ring = EventRing()
        self.roots_by_mode: dict[str, dict[str, None]] = {}
        self.values = SharedValues()

    def add_roots(self, mode: str, roots: Iterable[str]) -> None:
        """See `port.Journal` (A5)."""
        self.roots_by_mode.setdefault(mode, {}).update(dict.fromkeys(roots))

    def roots(self, mode: str, after: int) -> list[str]:
        """See `port.Journal`."""
        return list(islice(self.roots_by_mode.get(mode, ()), after, None))

    def all_roots(self) -> dict[str, list[str]]:
        """See `port.Journal`."""
        return {mode: list(found) for mode, found in self.roots_by_mode.items()}

    def put_values(self, values: Sequence[SharedValueWrite], now: int) -> list[int]:
        """See `port.Journal`."""
        return [self.values.put(value, now) for value in values]

    def values_since(self, after: int, limit: int) -> list[SharedValue]:
        """See `port.Journal`."""
        return self.values.since(after, limit)

    def heartbeat(self, heartbeat: Heartbeat, now: int) -> None:
        """See `port.Journal`."""
        self.workers_by_name.heartbeat(heartbeat, now)

    def workers(self, now: int) -> list[WorkerView]:
        """See `port.Journal`."""
        return self.workers_by_name.views(now)

    def worker_totals(self) -> WorkerTotals:
        """See `port.Journal` (M6)."""
        return self.workers_by_name.totals()

    def events(self, after: int, limit: int) -> list[StoreEvent]:
        """See `port.Journal`."""
        found = (event for event in self._state.events if event.number > after)
        return [event.view() for event in islice(found, limit)]

    def publish(self, batch: EventBatch) -> None:
        """See `port.Journal` (O3): the events are in memory only, their numbers are not."""
        if not self._ring.has(batch):
            self._state.last_event += len(batch.events)
            self._ring.append(batch, self._state.last_event)

    def event_log(self, after: int, limit: int) -> EventPage:
        """See `port.Journal`."""
        last = self._state.last_event
        start = start_after(after, last)
        return log_page(after, limit, self.events(start, limit), self._ring.after(start), last)

    def adopt_workers(self, old: MemoryJournal) -> None:
        """Take over the workers of a journal that this one replaces."""
        self.workers_by_name = old.workers_by_name
