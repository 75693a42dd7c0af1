"""The writers of a verb: what it changed becomes rows, one statement for each table.

New queues and tasks are written first and in one order, so that two verbs that bring the same ones
never wait for each other in a circle; all else happens under the locks of its queues. Rows are
gathered by column: that is how they are compared, and how they are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, final

from outrider.core.order import (
    DUE_BITS,
    NUMBER_BITS,
    NUMBER_MASK,
    PRECEDENCE_LIMIT,
    QUEUE_RANK_SHIFT,
    TIE_MASK,
    TURN_BITS,
    queue_precedence,
    unordered,
)
from outrider.core.states import TaskState
from outrider.store.engine.records import Queue, TaskRecord
from outrider.store.engine.state import CrawlState
from outrider.store.postgres import columns, rows, sql
from outrider.store.postgres.columns import Columns
from outrider.store.postgres.lazy_list import DELAYED_PLACE, LazyList, lazy_lists
from outrider.store.postgres.pipeline import column_arrays, number_array, row_arrays
from outrider.store.postgres.queues import PostgresQueues, StoredQueue, stored_form
from outrider.store.postgres.session import LAST_QUEUE, LAST_TASK, LAST_TURN, Session
from outrider.store.postgres.tasks import PostgresTasks, StoredTask

_BITS_64: Final = (1 << 64) - 1
_RANK_MASK: Final = (1 << 80) - 1
_TURN_MASK: Final = (1 << TURN_BITS) - 1
_NO_ENTRY: Final = (None,) * len(columns.DISCOVERY)
_NO_DELAYED: Final = (None,) * len(columns.DELAYED)
_VALUE_SLICES: Final = columns.slices_of(columns.VALUE_PARTS)
_FIRST_ENTRY_PARTS: Final = range(len(columns.VALUE_PARTS), len(columns.QUEUE_PARTS))
_DELAYED_PART: Final = len(columns.QUEUE_PARTS) - 1
# Values of queues that may be provisional turns.
_TURNS: Final = tuple(columns.index_of(columns.QUEUE_VALUES, name) for name in ("turn", "place"))
_TASK_SLICES: Final = columns.slices_of(columns.TASK_PARTS)
# Values of a task that its lease has while it is leased.
_OF_LEASE: Final = tuple(
    columns.index_of(columns.TASK_HISTORY, name) for name in ("token", "claimed_at")
)


class ChangedQueue(NamedTuple):
    """A queue, its rows as they were loaded or written last, and as they will be."""

    queue: Queue
    before: StoredQueue
    after: StoredQueue


def send_rows(
    session: Session, statement: str, table: Columns, found: Sequence[Sequence[Any]]
) -> None:
    """Send a statement that takes rows of a table, if there are any."""
    if found:
        session.pipeline.send(statement, row_arrays(found, types_of(table)))


def types_of(table: Columns) -> list[str]:
    """Return the types of columns."""
    return [column.type for column in table]


@final
class QueueWriter:
    """Writes queues, their lists of tasks, and the lists of the schedule they are on.

    `new_entries` maps entries of new tasks to the columns they become.
    """

    __slots__ = ("_ids", "_queues", "_session", "_state", "new_entries")

    def __init__(self, session: Session, state: CrawlState, queues: PostgresQueues) -> None:
        self._session, self._state, self._queues = session, state, queues
        self._ids = session.ids
        self.new_entries: dict[int, rows.Row] = {}

    def id_of(self, queue: Queue) -> int:
        """Return the final id of a queue."""
        number = queue.number
        return self._session.base | (number if number <= LAST_QUEUE else self._ids.queue(number))

    # ---- values and first entries

    def changed_queues(self) -> list[ChangedQueue]:
        """Return the loaded queues whose rows change."""
        stored, changed = self._queues.stored, []
        for number, queue in self._queues.by_number.items():
            before, after = stored[number], stored_form(queue)
            if before != after or _has_moved_entries(queue):
                changed.append(ChangedQueue(queue, before, after))
        return changed

    def _values(self, after: list[StoredQueue]) -> list[Sequence[Any]]:
        """Return the values of queues by column, with final turns."""
        by_column: list[Sequence[Any]] = list(zip(*[one.values for one in after], strict=True))
        for at in _TURNS:
            if max(by_column[at]) > LAST_TURN:
                by_column[at] = list(map(self._ids.turn, by_column[at]))
        return by_column

    def _first_entries(self, after: list[StoredQueue], part: int) -> list[Sequence[Any]]:
        """Return the first entries of one list of queues by column."""
        entries = [one.firsts[part - len(columns.VALUE_PARTS)] for one in after]
        if part == _DELAYED_PART:
            found = [self._delayed_columns(entry) if entry else _NO_DELAYED for entry in entries]
        else:
            found = [self._lane_columns(entry) if entry else _NO_ENTRY for entry in entries]
        return list(zip(*found, strict=True))

    def _lane_columns(self, entry: int) -> rows.Row:
        known = self._queues.entries.get(entry)
        if known is None or entry >> DUE_BITS & NUMBER_MASK in self._ids.new_ties:
            known = self.new_entries.get(entry) or self._final(rows.lane_columns(entry))
        return known

    def _delayed_columns(self, entry: int) -> rows.Row:
        lane, order = rows.delayed_columns(entry)
        return (lane, *self._final(order))

    def _final(self, order: rows.Entry) -> rows.Row:
        """Return the columns of an entry with its final task and tie."""
        precedence, priority, tie, number, due = order
        tie = self._ids.tie(number, tie, self._state.rules.tie)
        return precedence, priority, tie, self._session.base | self._ids.task(number), due

    def write_new(self, changed: list[ChangedQueue]) -> None:
        """Write the queues that are new."""
        new = [one for one in changed if not one.before.values]
        if new:
            after = [one.after for one in new]
            crawl = self._session.crawl
            names = [rows.queue_names(self.id_of(q), crawl, q.key) for q, _, _ in new]
            by_column: list[Sequence[Any]] = list(zip(*names, strict=True))
            by_column += self._values(after)
            for part in _FIRST_ENTRY_PARTS:
                by_column += self._first_entries(after, part)
            arrays = column_arrays(by_column, types_of(columns.QUEUE_COLUMNS))
            self._session.pipeline.send(sql.INSERT_QUEUES, arrays)

    def write_changed(self, changed: list[ChangedQueue]) -> None:
        """Write the parts that changed of any of the other queues."""
        known = [one for one in changed if one.before.values]
        if not known:
            return
        after, parts = [one.after for one in known], []
        old_values = list(zip(*[one.before.values for one in known], strict=True))
        new_values = self._values(after)
        by_column: list[Sequence[Any]] = [[self.id_of(one.queue) for one in known]]
        for part, at in enumerate(_VALUE_SLICES):
            if new_values[at] != old_values[at]:
                parts.append(part)
                by_column += new_values[at]
        for part in _FIRST_ENTRY_PARTS:
            place = part - len(columns.VALUE_PARTS)
            if any(one.before.firsts[place] != one.after.firsts[place] for one in known):
                parts.append(part)
                by_column += self._first_entries(after, part)
        if parts:
            statement, table = sql.update_queues(tuple(parts))
            self._session.pipeline.send(statement, column_arrays(by_column, types_of(table)))

    # ---- lists of tasks

    def write_entries(self, changed: list[ChangedQueue]) -> None:
        """Write what left each list, and what was added to it."""
        moved = [
            (self.id_of(queue), place, found)
            for queue, _, _ in changed
            for place, found in lazy_lists(queue)
            if found.removed or found.added
        ]
        lanes = [(id_, place, one) for id_, place, one in moved if place != DELAYED_PLACE]
        left = [self._left(queue, place, e) for queue, place, one in lanes for e in one.removed]
        self._send(sql.DELETE_PENDING, columns.PENDING_KEY, left)
        new = self.new_entries  # written with their tasks
        added = [
            (queue, place, *self._lane_columns(entry))
            for queue, place, one in lanes
            for entry in one.added
            if entry not in new
        ]
        self._send(sql.INSERT_PENDING, columns.PENDING_COLUMNS, added)
        if len(moved) > len(lanes):
            self._write_delayed([(id_, one) for id_, place, one in moved if place == DELAYED_PLACE])

    def _write_delayed(self, moved: list[tuple[int, LazyList]]) -> None:
        left = [self._left_delayed(queue, entry) for queue, one in moved for entry in one.removed]
        added = [self._added_delayed(queue, entry) for queue, one in moved for entry in one.added]
        self._send(sql.DELETE_DELAYED, columns.DELAYED_KEY, left)
        self._send(sql.INSERT_DELAYED, columns.DELAYED_COLUMNS, added)

    def _send(self, statement: str, table: Columns, found: Sequence[Sequence[Any]]) -> None:
        send_rows(self._session, statement, table, found)

    def _left(self, queue: int, lane: int, entry: int) -> rows.Row:
        known = self._queues.entries.get(entry)
        if known is not None:
            *order, _ = known
            return (queue, lane, *order)
        *order, task, _ = rows.lane_columns(entry)
        return (queue, lane, *order, self._session.base | task)

    def _left_delayed(self, queue: int, entry: int) -> rows.Row:
        _, (*order, task, due) = rows.delayed_columns(entry)
        return (queue, due, *order, self._session.base | task)

    def _added_delayed(self, queue: int, entry: int) -> rows.Row:
        lane, *order, due = self._delayed_columns(entry)
        return (queue, due, *order, lane)

    # ---- lists of the schedule

    def write_schedule(self, changed: list[ChangedQueue]) -> None:
        """Write which ready lists, inactive list and wake times queues left, and have now."""
        self._write_ready([one for one in changed if one.before.ready_keys != one.after.ready_keys])
        self._write_wakeups([one for one in changed if one.before.wake_at != one.after.wake_at])
        self._write_inactive(
            [one for one in changed if one.before.inactive_key != one.after.inactive_key]
        )

    def _write_ready(self, moved: list[ChangedQueue]) -> None:
        keys = [
            (lane, self.id_of(queue), before.ready_keys[lane], after.ready_keys[lane])
            for queue, before, after in moved
            for lane in (0, 1)
            if before.ready_keys[lane] != after.ready_keys[lane]
        ]
        left = [self._ready_row(lane, old, queue) for lane, queue, old, _ in keys if old]
        added = [self._ready_row(lane, new, queue) for lane, queue, _, new in keys if new]
        self._send(sql.DELETE_READY, columns.READY_COLUMNS, left)
        self._send(sql.INSERT_READY, columns.READY_COLUMNS, added)

    def _write_wakeups(self, moved: list[ChangedQueue]) -> None:
        crawl = self._session.crawl
        left = [(crawl, old.wake_at, self.id_of(queue)) for queue, old, _ in moved if old.wake_at]
        added = [(crawl, new.wake_at, self.id_of(queue)) for queue, _, new in moved if new.wake_at]
        self._send(sql.DELETE_SNOOZE, columns.SNOOZE_COLUMNS, left)
        self._send(sql.INSERT_SNOOZE, columns.SNOOZE_COLUMNS, added)

    def _write_inactive(self, moved: list[ChangedQueue]) -> None:
        keys = [
            (self.id_of(queue), old.inactive_key, new.inactive_key) for queue, old, new in moved
        ]
        left = [self._inactive_row(old, queue) for queue, old, _ in keys if old]
        added = [self._inactive_row(new, queue) for queue, _, new in keys if new]
        self._send(sql.DELETE_INACTIVE, columns.INACTIVE_COLUMNS, left)
        self._send(sql.INSERT_INACTIVE, columns.INACTIVE_COLUMNS, added)

    def _ready_row(self, lane: int, key: int, queue: int) -> rows.Row:
        rank = key >> QUEUE_RANK_SHIFT & _RANK_MASK
        return (
            self._session.crawl,
            lane,
            queue_precedence(key),
            rank >> 64,
            unordered(rank & _BITS_64) if rank else 0.0,
            self._ids.turn(key >> NUMBER_BITS & _TURN_MASK),
            queue,
        )

    def _inactive_row(self, key: int, queue: int) -> rows.Row:
        precedence = (key >> NUMBER_BITS + TURN_BITS) - PRECEDENCE_LIMIT
        turn = self._ids.turn(key >> NUMBER_BITS & _TURN_MASK)
        return self._session.crawl, precedence, turn, queue


@final
class Writer:
    """Writes all that a verb changed in the tables of a crawl's tasks and queues."""

    __slots__ = ("_ids", "_queue_writer", "_queues", "_session", "_state", "_tasks")

    def __init__(
        self, session: Session, state: CrawlState, queues: PostgresQueues, tasks: PostgresTasks
    ) -> None:
        self._session, self._state, self._queues, self._tasks = session, state, queues, tasks
        self._ids = session.ids
        self._queue_writer = QueueWriter(session, state, queues)

    def flush(self) -> None:
        """Write what changed so far; the verb continues."""
        self._remember(self.write())

    def write(self) -> list[ChangedQueue]:
        """Write what changed since it was loaded or written; return the queues that did."""
        session, queues = self._session, self._queue_writer
        self._take_numbers()
        self._name_new_entries()
        changed = queues.changed_queues()
        for queue, _, _ in changed:
            self._state.count_queue(queue)
        queues.write_new(changed)
        self._write_new_tasks()
        self._write_additions()
        queues.write_changed(changed)
        queues.write_entries(changed)
        queues.write_schedule(changed)
        self._write_tasks()
        self._write_leases()
        session.wakes_waiters = session.wakes_waiters or any(map(_is_sooner, changed))
        return changed

    # ---- numbers

    def _take_numbers(self) -> None:
        """Take numbers of the sequences for the provisional ones."""
        session, state, ids = self._session, self._state, self._ids
        if session.is_exclusive:
            return
        wanted = (
            ("tasks", state.last_task - LAST_TASK, ids.tasks),
            ("queues", state.last_queue - LAST_QUEUE, ids.queues),
            ("turns", state.last_turn - LAST_TURN, ids.turns),
            ("arrivals", state.last_arrival - ids.first_arrival, ids.arrivals),
        )
        counts = [(name, max(0, count - len(taken))) for name, count, taken in wanted]
        if not any(count for _, count in counts):
            return
        params = [part for name, count in counts for part in (session.sequence(name), count)]
        (found,) = session.pipeline.rows(sql.NEXT_NUMBERS, params)
        for (_, _, taken), more in zip(wanted, found, strict=True):
            taken.extend(more)

    # ---- new tasks

    def _tie(self, record: TaskRecord) -> int:
        tie = record.key >> NUMBER_BITS & TIE_MASK
        return self._ids.tie(record.number, tie, self._state.rules.tie)

    def _name_new_entries(self) -> None:
        base, new = self._session.base, self._queue_writer.new_entries
        for record in self._tasks.inserted:
            task = record.task
            number = base | self._ids.task(record.number)
            order = (task.precedence, task.priority + 0.0, self._tie(record), number, record.due)
            new[record.key << DUE_BITS | record.due] = order

    def _write_new_tasks(self) -> None:
        inserted = self._tasks.inserted
        if not inserted:
            return
        is_new = all(record.is_untouched() for record in inserted)
        table = columns.NEW_TASK if is_new else columns.TASK_COLUMNS
        statement = sql.INSERT_NEW_TASKS if is_new else sql.INSERT_TASKS
        row_of = rows.new_task if is_new else rows.whole_task
        crawl, writer = self._session.crawl, self._queue_writer
        found = []
        for record in inserted:
            _, _, tie, number, _ = writer.new_entries[record.key << DUE_BITS | record.due]
            found.append(row_of(record, number, crawl, writer.id_of(record.queue), tie))
        arrays = row_arrays(found, types_of(table))
        self._session.pipeline.send(statement, (*arrays, self._session.now))

    def _write_additions(self) -> None:
        """Write queues that were locked and not loaded, and only got more tasks."""
        session, by_turn = self._session, self._state.by_turn
        new = self._queue_writer.new_entries
        for lane, statement in enumerate(sql.FAST_ADD):
            lanes = [(queue, queue.lane(lane).head) for queue in self._queues.added_to]
            found = [
                (session.base | queue.number, len(entries), *new[min(entries)])
                for queue, entries in lanes
                if entries
            ]
            if found:
                arrays = map(number_array, zip(*found, strict=True))
                params = (session.now, session.now, by_turn, *arrays, by_turn, by_turn)
                session.pipeline.send(statement, params)
        self._queues.added_to = []

    # ---- tasks and leases

    def _write_tasks(self) -> None:
        """Write what visits made of tasks, and what new links say of them."""
        tasks = self._tasks
        known = [(r, tasks.stored[n]) for n, r in tasks.updated.items() if n in tasks.stored]
        if known:  # a new task was written as a whole
            self._write_histories(known)
        descriptions = [
            (
                self._session.base | record.number,
                *rows.description(record.task, self._queue_writer.id_of(record.queue)),
            )
            for record, stored in known
            if record.task is not stored.task or record.queue.number != stored.queue
        ]
        table = columns.DESCRIPTION_UPDATE
        send_rows(self._session, sql.UPDATE_TASK_DESCRIPTIONS, table, descriptions)

    def _write_histories(self, known: list[tuple[TaskRecord, StoredTask]]) -> None:
        """Write the parts that changed of any of these tasks."""
        before = list(zip(*[stored.history for _, stored in known], strict=True))
        after = list(zip(*[self._history(*one) for one in known], strict=True))
        parts = [part for part, at in enumerate(_TASK_SLICES) if after[at] != before[at]]
        if parts:
            statement, table = sql.update_tasks(tuple(parts))
            by_column: list[Sequence[Any]] = [
                [self._session.base | record.number for record, _ in known]
            ]
            by_column += [column for part in parts for column in after[_TASK_SLICES[part]]]
            self._session.pipeline.send(statement, column_arrays(by_column, types_of(table)))

    def _history(self, record: TaskRecord, stored: StoredTask) -> rows.Row:
        """Return a task's history; while it is leased, its token and start are in the lease."""
        history = rows.history(record, self._tie(record))
        if record.state is not TaskState.LEASED:
            return history
        values = list(history)
        for at in _OF_LEASE:
            values[at] = stored.history[at]
        return tuple(values)

    def _write_leases(self) -> None:
        """Write which leases ended, and which began."""
        session, stored = self._session, self._tasks.stored
        ended: list[rows.Row] = []
        begun: list[rows.Row] = []
        for number, record in self._tasks.moved.items():
            before, after = stored.get(number), _lease_of(record)
            if before is not None and after != before.lease:
                if before.lease:
                    ended.append((session.base | number,))
                if after:
                    turn = session.ids.turn(record.lease_turn)
                    begun.append(rows.lease_row(record, turn, session.base, session.crawl))
        ended.sort()  # the order in which other transactions may lock them
        send_rows(session, sql.DELETE_LEASES, columns.LEASE_KEY, ended)
        send_rows(session, sql.INSERT_LEASES, columns.LEASE_COLUMNS, begun)

    # ---- afterwards

    def _remember(self, changed: list[ChangedQueue]) -> None:
        """Record what was written as stored."""
        tasks = self._tasks
        for queue, _, after in changed:
            self._queues.stored[queue.number] = after
            for _, found in lazy_lists(queue):
                found.forget_changes()
        for number, record in tasks.moved.items():
            before = tasks.stored.get(number)
            if before is not None:
                is_written = number in tasks.updated
                history = self._history(record, before) if is_written else before.history
                tasks.stored[number] = StoredTask(
                    record.task, record.queue.number, history, _lease_of(record)
                )
        tasks.inserted, tasks.updated, tasks.moved = [], {}, {}
        self._queue_writer.new_entries = {}


def _has_moved_entries(queue: Queue) -> bool:
    return any(found.added or found.removed for _, found in lazy_lists(queue))


def _is_sooner(one: ChangedQueue) -> bool:
    """C6: return whether a queue got on a list, or wakes earlier than before."""
    before, after = one.before, one.after
    is_listed = after.ready_keys != (0, 0) or after.inactive_key
    was_listed = before.ready_keys != (0, 0) or before.inactive_key
    is_earlier = 0 < after.wake_at < (before.wake_at or after.wake_at + 1)
    return bool(is_listed and not was_listed) or is_earlier


def _lease_of(record: TaskRecord) -> rows.Row | None:
    return rows.lease_values(record) if record.state is TaskState.LEASED else None
