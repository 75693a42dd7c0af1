"""The journal of one crawl as rows: scope roots, shared values, workers, events.

A verb that writes shared values holds a lock that is for nothing else, so that their numbers come
in order: a reader that saw a number can have seen all lower ones, for each writer began after the
one before it had committed. Claims, adds and finishes never wait for that lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

import msgspec

from outrider.store.engine.shared_values import SharedValues
from outrider.store.engine.state import EVENTS_KEPT
from outrider.store.engine.workers import LastHeartbeat, worker_views
from outrider.store.postgres import sql
from outrider.store.postgres.arrays import number_array, storable, text_array
from outrider.store.postgres.rows import Row
from outrider.store.postgres.session import NeedsExclusiveLock, Session
from outrider.store.protocol import (
    MAX_WORKERS,
    WORKER_KEPT_SECONDS,
    Heartbeat,
    SharedValue,
    SharedValueWrite,
    StoreEvent,
    WorkerView,
)

_KEPT_MS = int(WORKER_KEPT_SECONDS * 1000)


@final
class PostgresJournal:
    """See `port.Journal`."""

    __slots__ = ("_crawl", "_events_lock", "_pipeline", "_session", "_values_lock")

    def __init__(self, session: Session, *, values_lock: int, events_lock: int) -> None:
        self._session, self._pipeline, self._crawl = session, session.pipeline, session.crawl
        self._values_lock, self._events_lock = values_lock, events_lock

    # ---- roots

    def add_roots(self, mode: str, roots: Iterable[str]) -> None:
        """See `port.Journal`."""
        if not self._session.is_exclusive:
            raise NeedsExclusiveLock
        crawl, mode = self._crawl, storable(mode)
        params = (crawl, mode, crawl, mode, text_array(roots), crawl, mode)
        self._pipeline.send(sql.ADD_ROOTS, params)

    def roots(self, mode: str, after: int) -> list[str]:
        """See `port.Journal`."""
        found = self._pipeline.rows(sql.READ_ROOTS, (self._crawl, storable(mode), after))
        return [root for (root,) in found]

    def all_roots(self) -> dict[str, list[str]]:
        """See `port.Journal`."""
        found: dict[str, list[str]] = {}
        for mode, root in self._pipeline.rows(sql.READ_ALL_ROOTS, (self._crawl,)):
            found.setdefault(mode, []).append(root)
        return found

    # ---- shared values

    def put_values(self, values: Sequence[SharedValueWrite], now: int) -> list[int]:
        """See `port.Journal`: each new value replaces the one that was there."""
        self._pipeline.send(sql.LOCK_EXCLUSIVE, (self._values_lock,))
        topics = text_array(value.topic for value in values)
        names = text_array(value.name for value in values)
        params = (topics, names, self._crawl, self._crawl)
        stored = [_value_of(row) for row in self._pipeline.rows(sql.VALUES_AT, params)]
        current = SharedValues()
        current.insert_all(stored)
        last = current.last
        numbers = [current.put(value, now) for value in values]
        new = current.since(last)
        if new:
            kept = {value.number for value in current.since(0)}
            replaced = [value.number for value in stored if value.number not in kept]
            self._pipeline.send(sql.DELETE_VALUES, (self._crawl, number_array(replaced)))
            self._pipeline.send(sql.INSERT_VALUES, (self._crawl, *_value_arrays(new)))
        return numbers

    def values_since(self, after: int, limit: int) -> list[SharedValue]:
        """See `port.Journal`."""
        found = self._pipeline.rows(sql.VALUES_SINCE, (self._crawl, after, limit))
        return [_value_of(row) for row in found]

    # ---- workers

    def heartbeat(self, heartbeat: Heartbeat, now: int) -> None:
        """See `port.Journal`."""
        values = [
            storable(value) if isinstance(value, str) else value
            for value in msgspec.structs.astuple(heartbeat)
        ]
        self._pipeline.send(sql.WRITE_HEARTBEAT, (self._crawl, *values, now, now, _KEPT_MS))
        self._pipeline.send(sql.DELETE_OLD_WORKERS, (self._crawl, self._crawl, MAX_WORKERS))

    def workers(self, now: int) -> list[WorkerView]:
        """See `port.Journal`."""
        found = self._pipeline.rows(sql.READ_WORKERS, (self._crawl,))
        return worker_views([_heartbeat_of(*row) for row in found], now)

    # ---- events

    def events(self, after: int, limit: int) -> list[StoreEvent]:
        """See `port.Journal`."""
        found = self._pipeline.rows(sql.EVENTS_SINCE, (self._crawl, after, limit))
        return [StoreEvent(sequence, at / 1000, *words) for sequence, at, *words in found]

    def write_events(
        self, events: Sequence[tuple[int, int, str, str, str]], last_event: int
    ) -> None:
        """Write the events of a verb, numbered in the order in which they can be read."""
        if not events:
            return
        count = len(events)
        last = last_event if self._session.is_exclusive else self._next_number(count)
        _, at, *words = zip(*events, strict=True)
        numbers = number_array(range(last - count + 1, last + 1))
        params = (self._crawl, numbers, number_array(at), *map(text_array, words))
        self._pipeline.send(sql.ADD_EVENTS, params)
        self._pipeline.send(sql.DELETE_OLD_EVENTS, (self._crawl, last - EVENTS_KEPT))

    def _next_number(self, count: int) -> int:
        """Return the number of the last of so many new events."""
        self._pipeline.send(sql.LOCK_EXCLUSIVE, (self._events_lock,))
        params = (self._session.sequence("events"), count)
        ((numbers,),) = self._pipeline.rows(sql.NEXT_EVENT_NUMBERS, params)
        last: int = numbers[-1]
        return last


def _value_of(row: Row) -> SharedValue:
    number, at, *words = row
    return SharedValue(number, at / 1000, *words)


def _value_arrays(values: Sequence[SharedValue]) -> list[str]:
    return [
        number_array(value.number for value in values),
        number_array(round(value.at * 1000) for value in values),
        text_array(value.topic for value in values),
        text_array(value.name for value in values),
        text_array(value.text for value in values),
    ]


def _heartbeat_of(*row: object) -> LastHeartbeat:
    *values, first, last = row
    return LastHeartbeat(Heartbeat(*values), first, last)  # type: ignore[arg-type] # of its columns
