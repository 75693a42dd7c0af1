"""Rows of tasks, queues and leases, to and from records.

The functions that every task and queue of a verb passes are compiled from the tables of `columns`
when this module is imported: the same code as if they were written out, and no list of fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec

from outrider.core.breakdown import Breakdown
from outrider.core.order import (
    DELAYED_SHIFT,
    DUE_BITS,
    DUE_MASK,
    KEY_MASK,
    NUMBER_BITS,
    NUMBER_MASK,
    TASK_RANK_SHIFT,
    TIE_MASK,
    task_key,
    unordered,
)
from outrider.core.outcome import Answer
from outrider.core.states import TaskState
from outrider.core.task import Lease, PolitenessState, Task
from outrider.store.engine.fields import compile_function
from outrider.store.engine.records import Queue, TaskCounts, TaskRecord
from outrider.store.engine.sorted_list import SortedList
from outrider.store.postgres import columns
from outrider.store.postgres.columns import Column, Columns, index_of
from outrider.store.postgres.lazy_list import LazyList, PostgresQueue

Row: TypeAlias = tuple[Any, ...]
Entry: TypeAlias = tuple[int, float, int, int, int]  # precedence, priority, tie, number, due

_BITS_64: Final = (1 << 64) - 1
_PRECEDENCE_SHIFT: Final = TASK_RANK_SHIFT + 64

_encode_json = msgspec.json.Encoder().encode
decode_answer = msgspec.json.Decoder(Answer).decode
_decode_breakdown = msgspec.json.Decoder(Breakdown).decode
_decode_history = msgspec.json.Decoder(tuple[tuple[float, str, str], ...]).decode
_STATES: Final = {state.value: state for state in TaskState}


# ---- entries of lists


def lane_entry(precedence: int, priority: float, tie: int, task: int, due: int) -> int:
    """Return a row of `pending` as an entry of its lane."""
    return task_key(precedence, priority, tie, task & NUMBER_MASK) << DUE_BITS | due


def delayed_entry(
    lane: int, precedence: int, priority: float, tie: int, task: int, due: int
) -> int:
    """Return a row of `delayed` as an entry of the delayed list."""
    key = task_key(precedence, priority, tie, task & NUMBER_MASK)
    return due << DELAYED_SHIFT | key << 1 | lane


def _key_columns(key: int, due: int) -> Entry:
    return (
        key >> _PRECEDENCE_SHIFT,
        unordered(key >> TASK_RANK_SHIFT & _BITS_64),
        key >> NUMBER_BITS & TIE_MASK,
        key & NUMBER_MASK,
        due,
    )


def lane_columns(entry: int) -> Entry:
    """Return an entry of a lane as columns."""
    return _key_columns(entry >> DUE_BITS, entry & DUE_MASK)


def delayed_columns(entry: int) -> tuple[int, Entry]:
    """Return an entry of the delayed list as its lane, and columns."""
    return entry & 1, _key_columns(entry >> 1 & KEY_MASK, entry >> DELAYED_SHIFT)


# ---- compiling


def _parts(source: Iterable[Column], record: str) -> list[str]:
    """Return lines that read each part of a record once."""
    found = dict.fromkeys(c.field.partition(".")[0] for c in source if "." in c.field)
    return [f"{part} = {record}.{part}" for part in found]


def _values(source: Iterable[Column], record: str, given: Mapping[str, str] | None = None) -> str:
    """Return the tuple of a record's values; `given`: expressions of columns that are no field."""
    items = []
    for column in source:
        field = column.field if "." in column.field else f"{record}.{column.field}"
        items.append((given or {}).get(column.name, field))
    return "(" + ", ".join(items) + ",)"


def _row_of(source: Iterable[Column]) -> str:
    return "(" + ", ".join(f"{column.name}_" for column in source) + ",)"


def _politeness(stored: Columns, given: Mapping[str, str]) -> str:
    """Return the call that makes a queue's politeness state."""
    by_field = {column.field: f"{column.name}_" for column in stored}
    names = PolitenessState.__struct_fields__
    arguments = [given.get(name) or by_field[f"politeness.{name}"] for name in names]
    return f"PolitenessState({', '.join(arguments)})"


def _unpack(source: Iterable[Column], used: str, row: str = "row") -> str:
    """Return the line that unpacks a row into variables with a column's name each."""
    names = [column.name if f"{column.name}_" in used else "_" for column in source]
    return "(" + ", ".join(f"{name}_" if name != "_" else "_" for name in names) + f",) = {row}"


def _construct(
    struct: type[msgspec.Struct], stored: Columns, given: Mapping[str, str], unstored: str = ""
) -> str:
    """Return the call of a struct's constructor with all its fields in order.

    Stored fields come from the variables of `_unpack`, others from `given`; those of `unstored`
    have their default. A field that is none of these fails here, at import.
    """
    by_field = {column.field.removeprefix("task."): f"{column.name}_" for column in stored}
    arguments = []
    for field in msgspec.structs.fields(struct):
        known = given.get(field.name) or by_field.get(field.name)
        if known is None and field.name not in unstored.split():
            raise TypeError(f"{struct.__name__}.{field.name} is in no column")
        arguments.append(known or repr(field.default))
    return f"{struct.__name__}({', '.join(arguments)})"


# ---- queues

queue_id: Final[Callable[[Row], int]] = itemgetter(index_of(columns.QUEUE_COLUMNS, "id"))
queue_key: Final[Callable[[Row], str]] = itemgetter(index_of(columns.QUEUE_COLUMNS, "key"))
pending_count: Final[Callable[[Row], int]] = itemgetter(index_of(columns.QUEUE_COLUMNS, "pending"))
stored_delayed: Final[Callable[[Row], int]] = itemgetter(index_of(columns.QUEUE_COLUMNS, "delayed"))


def _slice(all_columns: Columns, part: Columns) -> slice:
    start = index_of(all_columns, part[0].name)
    found = slice(start, start + len(part))
    if all_columns[found] != part:
        raise TypeError(f"the columns {part} are not together")
    return found


QUEUE_VALUES: Final = _slice(columns.QUEUE_COLUMNS, columns.QUEUE_VALUES)
RULES_KEY: Final = _slice(columns.QUEUE_COLUMNS, columns.RULES_KEY)
DISCOVERY: Final = _slice(columns.QUEUE_COLUMNS, columns.DISCOVERY)
ACQUISITION: Final = _slice(columns.QUEUE_COLUMNS, columns.ACQUISITION)
DELAYED: Final = _slice(columns.QUEUE_COLUMNS, columns.DELAYED)

_FROM_RULES: Final = (
    "rules",
    "precedence",
    "slots",
    "gap",
    "balance",
    "total",
    "hold",
    "has_quota",
    "from_start",
    "draws",
)


def fast_path_below(queue: Queue) -> int:
    """Return below which session the fast path may serve a queue; -1: never.

    The fast path (`fast_path.sql`) does what the engine would do to such a queue, and no more: one
    slot, no pace, no budget but the session's, nothing delayed, on loan or leased by fingerprint.
    """
    is_ordinary = (
        queue.slots == 1
        and queue.in_flight <= 1
        and queue.gap < 0
        and queue.total < 0
        and queue.retired is None
        and not (queue.delayed.head or queue.named or queue.loaned or queue.paused)
        and not (queue.has_quota or queue.hold or queue.politeness.level)
        and not (queue.wake_at and queue.list_state)  # a delayed task that is due by now
    )
    return queue.balance or -1 if is_ordinary else -1


def delayed_count(queue: Queue) -> int:
    """Return the number of a queue's delayed tasks."""
    return queue.delayed.size if isinstance(queue.delayed, LazyList) else 0


def _compile_queue_values() -> Callable[[Queue], Row]:
    given = {"delayed": "delayed_count(queue)", "routine_below": "fast_path_below(queue)"}
    source = columns.QUEUE_VALUES
    body = [*_parts(source, "queue"), f"return {_values(source, 'queue', given)}"]
    found: Callable[[Queue], Row] = compile_function("queue_values", "queue", body, globals())
    return found


def _compile_queue_from_row() -> Callable[
    [Row, Queue, SortedList, SortedList, SortedList], PostgresQueue
]:
    stored = (*columns.QUEUE_NAMES, *columns.QUEUE_VALUES)
    given = {
        "number": "id_ & NUMBER_MASK",
        "politeness": _politeness(stored, {}),
        "lane0": "lane0",
        "lane1": "lane1",
        "delayed": "delayed",
        **{name: f"like.{name}" for name in _FROM_RULES},
    }
    call = _construct(
        PostgresQueue, stored, given, "ready_key0 ready_key1 is_dirty is_used counted_as"
    )
    end = index_of(columns.QUEUE_COLUMNS, stored[-1].name) + 1
    body = [_unpack(stored, call, f"row[:{end}]"), f"return {call}"]
    found: Callable[..., PostgresQueue] = compile_function(
        "queue_from_row", "row, like, lane0, lane1, delayed", body, globals()
    )
    return found


def queue_names(number: int, crawl: int, key: str) -> Row:
    """Return the columns that identify a queue."""
    given = {"id": number, "crawl": crawl, "key": key}
    return tuple(given[column.name] for column in columns.QUEUE_NAMES)


queue_values: Final = _compile_queue_values()
queue_from_row: Final = _compile_queue_from_row()


def first_entries(row: Row) -> tuple[int, int, int]:
    """Return the first entry of each list of a queue: both lanes, the delayed; 0: it is empty."""
    precedence, priority, tie, task, due = row[DISCOVERY]
    first = second = third = 0
    if task is not None:
        first = task_key(precedence, priority, tie, task & NUMBER_MASK) << DUE_BITS | due
    precedence, priority, tie, task, due = row[ACQUISITION]
    if task is not None:
        second = task_key(precedence, priority, tie, task & NUMBER_MASK) << DUE_BITS | due
    lane, precedence, priority, tie, task, due = row[DELAYED]
    if task is not None:
        third = delayed_entry(lane, precedence, priority, tie, task, due)
    return first, second, third


# ---- tasks

LOADED_TASK: Final[Columns] = (*columns.TASK_COLUMNS, Column("is_in_lane", "boolean"))
task_id: Final[Callable[[Row], int]] = itemgetter(index_of(columns.TASK_COLUMNS, "id"))
task_queue: Final[Callable[[Row], int]] = itemgetter(index_of(columns.TASK_COLUMNS, "queue"))
is_in_lane: Final[Callable[[Row], bool]] = itemgetter(index_of(LOADED_TASK, "is_in_lane"))
read_key: Final[Callable[[Row], str]] = itemgetter(len(columns.TASK_COLUMNS))  # of `read_tasks`
HISTORY: Final = _slice(columns.TASK_COLUMNS, columns.TASK_HISTORY)
LEASE: Final = slice(len(LOADED_TASK), len(LOADED_TASK) + len(columns.HELD_LEASE))  # if it has one


def encode_answer(answer: Answer) -> str:
    """Return an answer as it is stored."""
    return _encode_json(answer).decode()


def encode_history(history: tuple[tuple[float, str, str], ...]) -> str:
    """Return a history as it is stored."""
    return _encode_json(history).decode() if history else "[]"


def encode_breakdown(breakdown: Breakdown | None) -> str | None:
    """Return a priority's breakdown as it is stored."""
    return None if breakdown is None else _encode_json(breakdown).decode()


_TASK_FIELDS: Final = {
    "key": "key",
    "crawl": "crawl",
    "meta": "meta_.encode()",
    "breakdown": "None if breakdown_ is None else _decode_breakdown(breakdown_)",
}


# How columns are written that are not as their field is.
_DESCRIPTION: Final = {
    "queue": "queue",
    "priority": "task.priority + 0.0",
    "meta": "task.meta.decode()",
    "breakdown": "encode_breakdown(task.breakdown)",
}


def _compile_description() -> Callable[[Task, int], Row]:
    body = [f"return {_values(columns.TASK_DESCRIPTION, 'task', _DESCRIPTION)}"]
    found: Callable[[Task, int], Row] = compile_function(
        "description", "task, queue", body, globals()
    )
    return found


_HISTORY: Final = {
    "tie": "tie",
    "state": "('pending' if record.state is TaskState.LEASED else record.state.value)",
    "answer": "None if record.answer is None else encode_answer(record.answer)",
    "history": "encode_history(record.history)",
}


def _compile_history() -> Callable[[TaskRecord, int], Row]:
    body = [f"return {_values(columns.TASK_HISTORY, 'record', _HISTORY)}"]
    found: Callable[[TaskRecord, int], Row] = compile_function(
        "history", "record, tie", body, globals()
    )
    return found


def _compile_record_from_row() -> Callable[
    [Row, str, str, Queue, Callable[[Task], TaskCounts]], TaskRecord
]:
    stored = columns.TASK_COLUMNS
    task = _construct(Task, stored, _TASK_FIELDS, "done")
    record = _construct(
        TaskRecord,
        stored,
        {
            "number": "number",
            "task": "task",
            "queue": "queue",
            "counts": "counts_of(task)",
            "key": "task_key(precedence_, priority_, tie_, number)",
            "state": "_STATES[state_]",
            "answer": "None if answer_ is None else decode_answer(answer_)",
            "history": "_decode_history(history_) if history_ != '[]' else ()",
        },
        "deadline worker named loaned process drawn body_page stored_key lease_turn leased lasts"
        " left",
    )
    body = [
        _unpack(stored, f"id_ {task} {record}", f"row[:{len(stored)}]"),
        "number = id_ & NUMBER_MASK",
        f"task = {task}",
        f"return {record}",
    ]
    parameters = "row, crawl, key, queue, counts_of"
    found: Callable[..., TaskRecord] = compile_function(
        "record_from_row", parameters, body, globals()
    )
    return found


TaskRow: TypeAlias = Callable[[TaskRecord, int, int, int, int], Row]


def _compile_task_row(table: Columns) -> TaskRow:
    """Compile what turns a record, its number, crawl, queue and tie into a row."""
    given = {
        "id": "number",
        "crawl": "crawl",
        "fingerprint": "task.fingerprint.hex()",
        **_DESCRIPTION,
        **_HISTORY,
    }
    body = ["task = record.task", f"return {_values(table, 'record', given)}"]
    parameters = "record, number, crawl, queue, tie"
    found: TaskRow = compile_function("task_row", parameters, body, globals())
    return found


new_task: Final = _compile_task_row(columns.NEW_TASK)
whole_task: Final = _compile_task_row(columns.TASK_COLUMNS)
description: Final = _compile_description()
history: Final = _compile_history()
record_from_row: Final = _compile_record_from_row()

# ---- leases


def _compile_lease_values() -> Callable[[TaskRecord], Row]:
    body = [f"return {_values(columns.HELD_LEASE, 'record')}"]
    found: Callable[[TaskRecord], Row] = compile_function("lease_values", "record", body, globals())
    return found


def _compile_set_lease() -> Callable[[TaskRecord, Row], None]:
    fields = ", ".join(f"record.{column.field}" for column in columns.HELD_LEASE)
    body = ["record.state = TaskState.LEASED", f"{fields} = lease"]
    found: Callable[[TaskRecord, Row], None] = compile_function(
        "set_lease", "record, lease", body, globals()
    )
    return found


lease_values: Final = _compile_lease_values()
set_lease: Final = _compile_set_lease()


def held_lease(row: Row, at: slice = LEASE) -> Row | None:
    """Return the lease of a task's row, if it has one."""
    lease = row[at]
    token, *_ = lease
    return None if token is None else lease


_LEASE_TURN: Final = index_of(columns.HELD_LEASE, "turn")


def lease_row(record: TaskRecord, turn: int, base: int, crawl: int) -> Row:
    """Return the row of `lease` of a leased task, with its final turn."""
    values = list(lease_values(record))
    values[_LEASE_TURN] = turn
    return (base | record.number, crawl, base | record.queue.number, *values)


# ---- what the fast path leased

LeaseOf: TypeAlias = Callable[
    [Row, str, str, str, float, Callable[[str, Row], Queue], int], tuple[Lease, str | None, int]
]


def _compile_fast_lease() -> LeaseOf:
    """Compile what turns a row of `fast_lease` into a lease, its last answer and that one's time.

    It takes the row, the names of crawl, store and worker, the lease's duration, what returns a
    queue under the rules that a row names, and the time.
    """
    stored = columns.FAST_LEASE
    given = {
        "store": "store",
        "task": "task_ & NUMBER_MASK",
        "token": "token_",
        "about": _construct(Task, stored, {**_TASK_FIELDS, "key": "key_"}, "done"),
        "attempt": "attempts_ + 1",
        "worker": "worker",
        "lease_for": "lease_for",
        "rules": f"with_rules(key_, {_row_of(columns.RULES_KEY)}).rules",
        "manners": _politeness(stored, {"level": "0"}),
        "delay": "-1.0",  # no fast lease draws one
        "waited": "(now - due_at_) / 1000",
        "gap": "(now - last_end_at_) / 1000 if last_end_at_ >= 0 else -1.0",
    }
    result = f"{_construct(Lease, stored, given, 'holder last')}, answer_, answered_at_"
    body = [_unpack(stored, result), f"return {result}"]
    parameters = "row, crawl, store, worker, lease_for, with_rules, now"
    found: LeaseOf = compile_function("fast_lease", parameters, body, globals())
    return found


fast_lease: Final = _compile_fast_lease()
