"""The queues of one crawl that a verb has loaded; a verb that writes locks them as it loads them.

All that belongs to a queue changes under its lock. A queue is remembered as it was loaded, so that
only what changed is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, final

import msgspec

from outrider.core.order import DELAYED_BYTES, LANE_BYTES, NUMBER_BITS, NUMBER_MASK
from outrider.core.policy.rules import QueueRules, covers
from outrider.store.engine.records import (
    CHUNK_BITS,
    EMPTY_LIST,
    INACTIVE,
    READY,
    SHARDS,
    Queue,
    column_of,
    new_queue,
)
from outrider.store.engine.schedule import Schedule, inactive_key
from outrider.store.engine.state import CrawlState
from outrider.store.postgres import rows, sql
from outrider.store.postgres.lazy_list import DELAYED_PLACE, END, LazyList, UnsortedAdditions
from outrider.store.postgres.pipeline import Pipeline, number_array, text_array
from outrider.store.postgres.session import Session

KEYS_STEP: Final = 1000  # keys compared with a target at a time
_NO_RULES: Final = QueueRules()


class StoredQueue(NamedTuple):
    """A queue as its rows are; a new one has none."""

    values: rows.Row = ()
    firsts: tuple[int, int, int] = (0, 0, 0)
    ready_keys: tuple[int, int] = (0, 0)
    wake_at: int = 0
    inactive_key: int = 0


@final
class ListRows:
    """The entries of queues' lists behind what is loaded; see `lazy_list.EntrySource`."""

    __slots__ = ("_pipeline",)

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def entries_after(self, queue: int, place: int, after: int, limit: int) -> list[int]:
        """See `lazy_list.EntrySource`."""
        base = queue >> NUMBER_BITS << NUMBER_BITS
        if place != DELAYED_PLACE:
            *order, number, _ = rows.lane_columns(after)
            params = (queue, place, *order, base | number, limit)
            return [rows.lane_entry(*row) for row in self._pipeline.rows(sql.LANE_AFTER, params)]
        _, (*order, number, due) = rows.delayed_columns(after)
        params = (queue, due, *order, base | number, limit)
        return [rows.delayed_entry(*row) for row in self._pipeline.rows(sql.DELAYED_AFTER, params)]


@final
class PostgresQueues:
    """See `port.QueueTable`.

    `schedule` is the engine's, set once when the engine is built: loaded queues are put on lists.
    """

    __slots__ = (
        "_absent",
        "_by_rules",
        "_list_rows",
        "_pipeline",
        "_session",
        "_state",
        "added_to",
        "by_key",
        "by_name",
        "by_number",
        "entries",
        "loaded",
        "schedule",
        "stored",
    )

    schedule: Schedule

    def __init__(self, session: Session, state: CrawlState) -> None:
        self._session, self._state, self._pipeline = session, state, session.pipeline
        self._list_rows = ListRows(session.pipeline)
        self.by_name: dict[str, Queue] = {}
        self.by_key = [self.by_name] * SHARDS
        self.by_number: dict[int, Queue] = {}
        self.loaded: dict[int, dict[int, Queue]] = {}
        self.stored: dict[int, StoredQueue] = {}
        self.entries: dict[int, rows.Row] = {}  # of lanes: the columns they were read from
        self.added_to: list[Queue] = []  # locked and not loaded: they only get more tasks
        self._by_rules: dict[rows.Row, Queue] = {}  # a queue under the rules that rows name
        self._absent: set[str] = set()  # keys of no queue

    # ---- the port

    def find(self, key: str) -> Queue | None:
        """See `port.QueueTable`."""
        self.load_keys((key,))
        return self.by_name.get(key)

    def get(self, number: int) -> Queue:
        """See `port.QueueTable`."""
        found = self.by_number.get(number)
        if found is None:
            self.load_numbers((number,))
            found = self.by_number[number]
        return found

    def create(self, key: str, number: int, turn: int, rules: QueueRules, epoch: int) -> Queue:
        """See `port.QueueTable`."""
        queue = new_queue(key, number, turn, rules, epoch)
        queue.lane0, queue.lane1 = LazyList(LANE_BYTES, []), LazyList(LANE_BYTES, [])
        queue.delayed = LazyList(DELAYED_BYTES, [])
        self.stored[number] = StoredQueue()
        self._insert(queue)
        return queue

    def wake_at(self, number: int) -> int:
        """See `port.QueueTable`."""
        return self.get(number).wake_at

    def read(self, numbers: Sequence[int]) -> Iterable[Queue]:
        """See `port.QueueTable`."""
        base = self._session.base
        if isinstance(numbers, range):
            span = (base + numbers.start - 1, base + numbers.stop - 1)
            statement = self._session.locking(sql.QUEUES_BETWEEN)
            return self.load_rows(self._pipeline.rows(statement, span))
        self.load_numbers(numbers)
        return [self.by_number[number] for number in numbers if number in self.by_number]

    def keys_between(self, low: str, high: str, limit: int) -> list[tuple[str, int]] | None:
        """See `port.QueueTable`: by an index of its own, in the order of code points."""
        params = (self._session.crawl, low, high, limit)
        rows = self._pipeline.rows(sql.KEYS_BETWEEN, params)
        return [(key, number & NUMBER_MASK) for number, key in rows]

    def matching(self, target: str, after: int) -> Iterator[Queue]:
        """See `port.QueueTable`; only queues that match are locked."""
        base = self._session.base
        at, end = base | after, base | NUMBER_MASK
        while keys := self._pipeline.rows(sql.KEYS_AFTER, (at, end, KEYS_STEP)):
            numbers = [number & NUMBER_MASK for number, key in keys if covers(target, key)]
            self.load_numbers(numbers)
            yield from [self.by_number[number] for number in numbers]
            at, _ = keys[-1]

    def load_all(self) -> None:
        """See `port.QueueTable`: the others' rows are changed by a statement at the verb's end."""

    # ---- loading

    def unknown_keys(self, keys: Iterable[str]) -> list[str]:
        """Return the keys of which it is not known whether they have a queue."""
        return [key for key in keys if key not in self.by_name and key not in self._absent]

    def mark_absent(self, keys: Iterable[str]) -> None:
        """Record that those of these keys that were not found have no queue."""
        self._absent.update(key for key in keys if key not in self.by_name)

    def load_keys(self, keys: Iterable[str]) -> None:
        """Load the queues of these keys, those that exist."""
        keys = self.unknown_keys(keys)
        if keys:
            statement = self._session.locking(sql.QUEUES_BY_KEY)
            params = (self._session.crawl, text_array(keys))
            self.load_rows(self._pipeline.rows(statement, params))
            self.mark_absent(keys)

    def load_numbers(self, numbers: Iterable[int]) -> None:
        """Load the queues of these numbers."""
        base, loaded = self._session.base, self.by_number
        wanted = number_array(base | number for number in numbers if number not in loaded)
        if wanted != "{}":
            statement = self._session.locking(sql.QUEUES_BY_ID)
            self.load_rows(self._pipeline.rows(statement, (wanted,)))

    def load_unlocked(self, numbers: Iterable[int]) -> None:
        """Load those queues of these numbers that no other transaction has locked."""
        base, loaded = self._session.base, self.by_number
        wanted = number_array(base | number for number in numbers if number not in loaded)
        if wanted != "{}":
            self.load_rows(self._pipeline.rows(sql.QUEUES_BY_ID.lock_free, (wanted,)))

    def load_locked(self, ids: list[int]) -> None:
        """Load queues that this transaction has locked."""
        if ids:
            self.load_rows(self._pipeline.rows(sql.QUEUES_BY_ID.read, (number_array(ids),)))

    def load_rows(self, found: Iterable[rows.Row]) -> list[Queue]:
        """Load the queues of these rows, and return them."""
        return [self.load_row(row) for row in found]

    def load_row(self, row: rows.Row) -> Queue:
        """Load the queue of a row, unless it is loaded, and put it on its list."""
        number = rows.queue_id(row) & NUMBER_MASK
        known = self.by_number.get(number)
        if known is not None:
            return known
        firsts = discovery, acquisition, _ = rows.first_entries(row)
        queue = self._queue_of(row, firsts)
        queue.counted_as = column_of(queue)
        self._insert(queue)
        if discovery:
            self.entries[discovery] = row[rows.DISCOVERY]
        if acquisition:
            self.entries[acquisition] = row[rows.ACQUISITION]
        if queue.list_state:
            self.schedule.listed += 1
            if queue.list_state == READY:
                self.schedule.update_ready_keys(queue)
        self.stored[number] = StoredQueue(
            row[rows.QUEUE_VALUES],
            firsts,
            (queue.ready_key0, queue.ready_key1),
            queue.wake_at,
            inactive_key(queue) if queue.list_state == INACTIVE else 0,
        )
        return queue

    def _queue_of(self, row: rows.Row, firsts: tuple[int, int, int]) -> Queue:
        """Return the queue of a row; of its lists only the first entries are loaded."""
        queue_id, source = rows.queue_id(row), self._list_rows
        like = self.with_rules(rows.queue_key(row), row[rows.RULES_KEY])
        first, second, third = firsts
        lane0 = lane1 = delayed = EMPTY_LIST
        is_whole = (first > 0) + (second > 0) + (third > 0) == rows.pending_count(row)
        if first:
            edge = END if is_whole else first
            lane0 = LazyList(LANE_BYTES, [first], None, 1, source, queue_id, 0, edge)
        if second:
            edge = END if is_whole else second
            lane1 = LazyList(LANE_BYTES, [second], None, 1, source, queue_id, 1, edge)
        if third:
            edge, size = END if is_whole else third, rows.stored_delayed(row)
            place = DELAYED_PLACE
            delayed = LazyList(DELAYED_BYTES, [third], None, 1, source, queue_id, place, edge, size)
        queue = rows.queue_from_row(row, like, lane0, lane1, delayed)
        if queue.gap >= 0:
            queue.update_gap()
        return queue

    def _insert(self, queue: Queue) -> None:
        number = queue.number
        self.by_name[queue.key] = self.by_number[number] = queue
        chunk = self.loaded.get(number >> CHUNK_BITS)
        if chunk is None:
            self.loaded[number >> CHUNK_BITS] = {number: queue}
        else:
            chunk[number] = queue

    def insert_unloaded(self, key: str, number: int) -> None:
        """Insert a locked queue that only gets more tasks: nothing else of it is loaded."""
        queue = new_queue(key, number, 0, _NO_RULES)
        queue.lane0 = UnsortedAdditions(LANE_BYTES, [])
        queue.lane1 = UnsortedAdditions(LANE_BYTES, [])
        queue.list_state = INACTIVE  # so that the engine does not reschedule it for a new task
        self.by_name[key] = queue
        self.added_to.append(queue)

    def with_rules(self, key: str, rules_key: rows.Row) -> Queue:
        """Return a queue under the rules that a row names; most queues share theirs."""
        like = self._by_rules.get(rules_key)
        if like is None:
            epoch, paused, retired = rules_key
            by_epoch = self._state.rules_by_epoch
            of_crawl = by_epoch.get(epoch) or by_epoch[min(by_epoch)]
            rules = of_crawl.of(key)
            if (rules.paused, rules.retired) != (paused, retired):
                rules = msgspec.structs.replace(rules, paused=paused, retired=retired)
            like = new_queue("", 0, 0, rules)
            if of_crawl.are_alike:
                self._by_rules[rules_key] = like
        return like


def stored_form(queue: Queue) -> StoredQueue:
    """Return a queue as its rows will be."""
    lane0, lane1, delayed = queue.lane0.head, queue.lane1.head, queue.delayed.head
    return StoredQueue(
        rows.queue_values(queue),
        (
            lane0[0] if lane0 else 0,
            lane1[0] if lane1 else 0,
            delayed[0] if delayed else 0,
        ),
        (queue.ready_key0, queue.ready_key1),
        queue.wake_at,
        inactive_key(queue) if queue.list_state == INACTIVE else 0,
    )
