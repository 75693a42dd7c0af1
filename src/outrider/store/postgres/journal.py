"""The journal and the counters of one crawl as rows: what it keeps beside tasks and queues.

A verb appends differences of counters, and reads totals only if it needs them. The state's totals
begin at 0, so they are the differences that the verb made.

A verb that writes shared values holds a lock that is for nothing else, so that their numbers come
in order: a reader that saw a number can have seen all lower ones, for each writer began after the
one before it had committed. Claims, adds and finishes never wait for that lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import msgspec

from outrider.core.states import TaskState
from outrider.core.worker_totals import NO_TOTALS, WorkerTotals, sum_of_totals
from outrider.store.engine.journal import (
    LastHeartbeat,
    SharedValues,
    after_heartbeat,
    worker_views,
)
from outrider.store.engine.records import COLUMNS, QUEUE_COLUMNS, TaskCounts
from outrider.store.engine.state import EVENTS_KEPT, CrawlEvent, CrawlState
from outrider.store.event_ring import (
    RING_BYTES,
    RING_EVENTS,
    NumberedBatch,
    batch_bytes,
    log_page,
    start_after,
)
from outrider.store.postgres import sql
from outrider.store.postgres.pipeline import number_array, storable, text_array
from outrider.store.postgres.rows import Row
from outrider.store.postgres.session import NeedsExclusiveLock, Session
from outrider.store.protocol import (
    MAX_WORKERS,
    EventBatch,
    EventPage,
    Heartbeat,
    PublishedEvent,
    SharedValue,
    SharedValueWrite,
    StoreEvent,
    WorkerView,
)

_OUTCOME: Final = "outcome "
# The names of counters in the tables, and the totals of the state they are.
_TOTALS: Final[Mapping[str, str]] = {
    "held": "retired_pending",
    "visits": "visits",
    "dones": "visits_done",
    "bytes": "bytes",
    "critical": "critical",
    "high": "high",
    "low": "low",
    "recovered": "recovered",
}
_QUEUES: Final = {f"queues {state.value}": column for state, column in QUEUE_COLUMNS.items()}
_encode = msgspec.json.Encoder().encode
_decode_totals = msgspec.json.Decoder(WorkerTotals).decode
_decode_published = msgspec.json.Decoder(list[PublishedEvent]).decode
_decode_counts_at_end = msgspec.json.Decoder(dict[str, int]).decode
_decode_counts = msgspec.json.Decoder(tuple[str, str | None, str, int]).decode


@final
class PostgresJournal:
    """See `port.Journal`."""

    __slots__ = ("_crawl", "_lock", "_pipeline", "_session")

    def __init__(self, session: Session, lock: Callable[[str], int]) -> None:
        self._session, self._pipeline, self._crawl = session, session.pipeline, session.crawl
        self._lock = lock  # the number of an advisory lock of the crawl

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
        self._pipeline.send(sql.LOCK_EXCLUSIVE, (self._lock("notes"),))
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
        """See `port.Journal`: under a lock for workers alone, so that no total is lost (M6)."""
        pipeline, crawl = self._pipeline, self._crawl
        pipeline.send(sql.LOCK_EXCLUSIVE, (self._lock("workers"),))
        found = pipeline.rows(sql.READ_WORKER, (crawl, storable(heartbeat.worker)))
        known = _heartbeat_of(*found[0]) if found else None
        latest, left = after_heartbeat(known, heartbeat, now)
        self._keep_totals([left])
        *values, totals = msgspec.structs.astuple(latest.heartbeat)
        row = [storable(value) if isinstance(value, str) else value for value in values]
        params = (crawl, *row, _encode_totals(totals), latest.first, latest.last)
        pipeline.send(sql.WRITE_HEARTBEAT, params)
        if known is None:
            removed = pipeline.rows(sql.DELETE_OLD_WORKERS, (crawl, crawl, MAX_WORKERS))
            self._keep_totals([_totals_of(text) for (text,) in removed])

    def _keep_totals(self, totals: list[WorkerTotals]) -> None:
        """Add the totals of workers that are removed to those of the removed."""
        if any(one != NO_TOTALS for one in totals):
            gone = sum_of_totals([self._gone_totals(), *totals])
            self._pipeline.send(sql.WRITE_WORKER_TOTAL, (self._crawl, _encode_totals(gone)))

    def _gone_totals(self) -> WorkerTotals:
        found = self._pipeline.rows(sql.READ_WORKER_TOTAL, (self._crawl,))
        return _totals_of(found[0][0]) if found else NO_TOTALS

    def workers(self, now: int) -> list[WorkerView]:
        """See `port.Journal`."""
        return worker_views(self._all_workers(), now)

    def worker_totals(self) -> WorkerTotals:
        """See `port.Journal`: of one snapshot, in which each worker is here or there."""
        workers = [one.heartbeat.totals for one in self._all_workers()]
        return sum_of_totals([self._gone_totals(), *workers])

    def _all_workers(self) -> list[LastHeartbeat]:
        found = self._pipeline.rows(sql.READ_WORKERS, (self._crawl,))
        return [_heartbeat_of(*row) for row in found]

    # ---- events

    def events(self, after: int, limit: int) -> list[StoreEvent]:
        """See `port.Journal`."""
        found = self._pipeline.rows(sql.EVENTS_SINCE, (self._crawl, after, limit))
        return [_event_of(row) for row in found]

    def publish(self, batch: EventBatch) -> None:
        """See `port.Journal` (O3): under the lock of the crawl's events, as all that log some."""
        crawl, pipeline = self._crawl, self._pipeline
        pipeline.send(sql.LOCK_EXCLUSIVE, (self._lock("events"),))
        params = (crawl, batch.publisher, batch.serial, crawl)
        ((is_known, size),) = pipeline.rows(sql.PUBLISHED_STATE, params)
        if is_known:
            return
        last = self._next_number(len(batch.events))
        size += batch_bytes(batch)
        events = _encode(batch.events).decode()
        row = (crawl, last, batch.publisher, batch.serial, batch.worker, size, events)
        pipeline.send(sql.ADD_PUBLISHED, row)
        bounds = (crawl, last - RING_EVENTS, crawl, size - RING_BYTES)
        pipeline.send(sql.DELETE_OLD_PUBLISHED, bounds)

    def event_log(self, after: int, limit: int) -> EventPage:
        """See `port.Journal`: up to the last number that was committed.

        A sequence is ahead of it while a verb that logs events is running.
        """
        ((last,),) = self._pipeline.rows(sql.LAST_LOGGED, (self._crawl, self._crawl))
        start = start_after(after, last)
        found = self._pipeline.rows(sql.PUBLISHED_SINCE, (self._crawl, start, limit))
        published = [
            NumberedBatch(last, EventBatch(publisher, serial, worker, _decode_published(events)))
            for last, publisher, serial, worker, events in found
        ]
        return log_page(after, limit, self.events(start, limit), published, last)

    def write_events(self, events: Sequence[CrawlEvent], last_event: int) -> None:
        """Write the events of a verb, numbered in the order in which they can be read."""
        if not events:
            return
        count = len(events)
        last = last_event if self._session.is_exclusive else self._next_number(count)
        _, at, *words, counts = zip(*events, strict=True)
        numbers = number_array(range(last - count + 1, last + 1))
        texts = text_array(_encode(one).decode() if one else "" for one in counts)
        params = (self._crawl, numbers, number_array(at), *map(text_array, words), texts)
        self._pipeline.send(sql.ADD_EVENTS, params)
        self._pipeline.send(sql.DELETE_OLD_EVENTS, (self._crawl, last - EVENTS_KEPT))

    def _next_number(self, count: int) -> int:
        """Return the number of the last of so many new events."""
        self._pipeline.send(sql.LOCK_EXCLUSIVE, (self._lock("events"),))
        params = (self._session.sequence("events"), count)
        ((numbers,),) = self._pipeline.rows(sql.NEXT_EVENT_NUMBERS, params)
        last: int = numbers[-1]
        return last


def _event_of(row: Row) -> StoreEvent:
    number, at, name, subject, detail, by, counts = row
    found = _decode_counts_at_end(counts) if counts else {}
    return CrawlEvent(number, at, name, subject, detail, by, found).view()


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


def _heartbeat_of(*row: Any) -> LastHeartbeat:
    *values, totals, first, last = row
    fields = [*values, _totals_of(totals)]
    return LastHeartbeat(Heartbeat(*fields), first, last)


def _totals_of(text: str) -> WorkerTotals:
    return _decode_totals(text) if text else NO_TOTALS


def _encode_totals(totals: WorkerTotals) -> str:
    return "" if totals == NO_TOTALS else _encode(totals).decode()


class LastNumbers(NamedTuple):
    """A row of `last_numbers`, in the order of `sql.SEQUENCES`."""

    tasks: int = 0
    queues: int = 0
    turns: int = 0
    arrivals: int = 0
    events: int = 0


@final
class Counters:
    """The totals of the state, of which only the differences are loaded."""

    __slots__ = ("_base", "_has_totals", "_last", "_session", "_state")

    def __init__(self, session: Session, state: CrawlState) -> None:
        self._session, self._state = session, state
        self._has_totals = False
        self._base: dict[str, int] = {}
        self._last = LastNumbers()

    # ---- last numbers

    def load_last_numbers(self) -> None:
        """Load the numbers that all processes gave, for a verb that reads or is exclusive."""
        session, state = self._session, self._state
        names = [session.sequence(name) for name in sql.SEQUENCES]
        (row,) = session.pipeline.rows(sql.LAST_NUMBERS, names)
        self._last = last = LastNumbers._make(row)
        state.count_offset += last.tasks - state.last_task
        state.last_task, state.last_queue = last.tasks, last.queues
        if session.is_exclusive or not session.writes:
            state.last_turn, state.last_arrival = last.turns, last.arrivals
            state.last_event = last.events

    def write_last_numbers(self) -> None:
        """Set the sequences to the numbers that an exclusive verb gave by itself."""
        session, state = self._session, self._state
        now = LastNumbers(
            state.last_task,
            state.last_queue,
            state.last_turn,
            state.last_arrival,
            state.last_event,
        )
        for name, before, after in zip(sql.SEQUENCES, self._last, now, strict=True):
            if after > before:
                session.pipeline.send(sql.SET_LAST_NUMBER, (session.sequence(name), after))

    # ---- totals

    def load_totals(self) -> None:
        """Complete the totals of the state."""
        if self._has_totals:
            return
        session, state = self._session, self._state
        self._has_totals = True
        params = (session.crawl, session.crawl)
        self._base = dict(session.pipeline.rows(sql.READ_COUNTERS, params))
        by_state = _sum_by_state(self._base)
        state.count_offset -= sum(by_state.values())
        state.loaded_counts = [by_state[name] for name in COLUMNS]
        state.pending += by_state[TaskState.PENDING]
        state.leased += by_state[TaskState.LEASED]
        for name, total in _TOTALS.items():
            setattr(state, total, getattr(state, total) + self._base.get(name, 0))
        for name, column in _QUEUES.items():
            state.queue_counts[column] += self._base.get(name, 0)
        state.outcomes.update(_outcomes(self._base))

    def load_task_counts(self) -> None:
        """Complete the counts by type, tag, origin and depth, for a verb that reads."""
        self._state.loaded_counts = [0] * len(COLUMNS)
        for name, count in self._base.items():
            state, _, counts = name.partition(" ")
            if counts.startswith("["):
                found = self._state.counts_of(TaskCounts(*_decode_counts(counts), []))
                found.by_state[COLUMNS[TaskState(state)]] += count

    # ---- writing

    def write(self) -> int:
        """Append the differences that the verb made; return how many rows they are."""
        changes = {name: count for name, count in self._differences().items() if count}
        if changes:
            params = (self._session.crawl, text_array(changes), number_array(changes.values()))
            self._session.pipeline.send(sql.ADD_COUNTER_DELTAS, params)
        return len(changes)

    def _differences(self) -> dict[str, int]:
        changes = self._total_differences()
        for name, counts in self._state.task_counts.items():
            text = _encode(name).decode()
            for state, column in COLUMNS.items():
                changes[f"{state.value} {text}"] = counts.by_state[column]
        return changes

    def _total_differences(self) -> dict[str, int]:
        base, state = self._base, self._state
        now = {name: getattr(state, total) for name, total in _TOTALS.items()}
        now.update({name: state.queue_counts[column] for name, column in _QUEUES.items()})
        now.update({f"{_OUTCOME}{name}": count for name, count in state.outcomes.items()})
        names = now.keys() | {name for name in base if name.startswith(_OUTCOME)}
        return {name: now.get(name, 0) - base.get(name, 0) for name in names}


def _sum_by_state(counters: dict[str, int]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for name, count in counters.items():
        state, _, counts = name.partition(" ")
        if counts.startswith("["):
            totals[state] += count
    return totals


def _outcomes(counters: dict[str, int]) -> dict[str, int]:
    return {
        name.removeprefix(_OUTCOME): count
        for name, count in counters.items()
        if name.startswith(_OUTCOME) and count
    }
