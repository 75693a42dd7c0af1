"""The durable format of the file: a log of pages that store state, not commands.

Every verb that changes something appends pages: new tasks, tasks and queues as they are now, and
the crawl's own numbers. The last page about anything is current, so reading a page twice does no
harm, and a snapshot taken while pages were appended is corrected by reading those pages again. A
page begins with the checksum of its number and its content, and a version.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

import msgspec

from outrider.core.order import KEY_BITS, NUMBER_BITS, TIE_MASK
from outrider.core.outcome import Answer
from outrider.core.policy.rules import QueueRules
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import PolitenessState, Task
from outrider.core.worker_totals import WorkerTotals
from outrider.errors import StoreDamaged
from outrider.store.engine import fields
from outrider.store.engine.fields import QUEUE_FIELDS, TASK_FIELDS
from outrider.store.engine.journal import LastHeartbeat
from outrider.store.engine.records import COLUMNS, Queue, TaskCounts, TaskRecord
from outrider.store.engine.state import CrawlEvent

VERSION: Final = 2  # 1: before fields were added at the end of rows; such pages are read
PAGE_ITEMS: Final = 16  # tasks or queues of one kind in a page: one is read without many others
PAGE_BYTES: Final = 1 << 18  # of tasks of one kind in a page, unless a single one has more
LONG_ROW: Final = 1 << 14  # bytes above which a row is not kept whole while a file is opened
LAST_PAGE: Final = 1  # flag: the last page of a verb
NO_CRAWL: Final = 0xFFFFFFFF  # the crawl of a page or piece whose crawl was removed

_HEAD: Final = struct.Struct("<IBBIHHHI")  # checksum, version, flags, crawl, counts, update size
_NUMBER: Final = struct.Struct("<Q").unpack_from
_END: Final = struct.Struct("<I").unpack_from
_SPAN: Final = struct.Struct("<II").unpack_from
_KEY_BYTES: Final = KEY_BITS // 8
STATES: Final = tuple(COLUMNS)


class NewTaskRow(msgspec.Struct, array_like=True, gc=False):
    """A new task."""

    task: Task
    tie: int
    due: int
    discovered: int


class TaskRow(msgspec.Struct, array_like=True, gc=False):
    """A task as it is now; its `Task` is here, or on the page `body_page`."""

    body_page: int
    task: Task | None
    queue: int
    lane: int
    key: bytes
    stored_key: bytes | None  # the order key that older pages have, if another
    state: int
    due: int
    discovered: int
    token: int
    attempts: int
    failures: int
    crashes: int
    throttles: int
    deadline: int
    claimed: int
    finished: int
    reason: str | None
    worker: str | None
    answer: Answer | None
    history: tuple[tuple[float, str, str], ...]
    answered: int
    named: bool
    loaned: bool
    process: str = ""  # while leased: of the lease's holder; "": the file's; "*": outlives them all
    drawn: float = -1.0
    blocks: int = 0
    lease_turn: int = 0  # while leased
    leased: int = -1
    lasts: int = 0
    # The entry that older pages have, if an add moved the task: queue, lane, key, due.
    left: tuple[int, int, bytes, int] | None = None


class QueueRow(msgspec.Struct, array_like=True, gc=False):
    """A queue as it is now, without its tasks and its rules."""

    key: str
    number: int
    turn: int
    paused: bool
    retired: str | None
    session: int
    spent: int
    next_ready: int
    wait_reason: str
    last_start: int
    last_end: int
    politeness: tuple[int, int, int, int, int, float, float]
    errors_in_row: int
    visits_done: int
    bytes: int
    done: int
    dead: int
    dropped: int
    last_cost: int
    cost_sum: int
    cost_count: int
    list_state: int
    inactive_turn: int
    epoch: int
    rules: tuple[bool, bool]  # paused, retired: as operators' actions last set them
    loan_crashes: int


AnyTaskRow: TypeAlias = NewTaskRow | TaskRow


class CrawlRow(msgspec.Struct, array_like=True, gc=False):
    """A crawl's own numbers; from `created` on under the names of `CrawlState`."""

    name: str
    now: int
    created: int
    status: CrawlStatus
    reason: str | None
    at_finish: bool
    is_idle: bool
    rules_applied: bool
    last_task: int
    last_queue: int
    last_turn: int
    last_arrival: int
    last_token: int
    pending: int
    leased: int
    retired_pending: int
    visits: int
    visits_done: int
    bytes: int
    runs: int
    started: int
    finished: int
    last_event: int
    epoch: int
    critical: int = 0
    high: int = 0
    low: int = 0
    recovered: int = 0
    queue_counts: list[int] = []  # empty: written before these counts existed
    forgotten: int = 0


class CountsRow(msgspec.Struct, array_like=True, gc=False):
    """See `TaskCounts`."""

    type: str
    tag: str | None
    origin: str
    depth: int
    by_state: list[int]


class CrawlUpdate(msgspec.Struct, array_like=True, gc=False):
    """What the last page of a verb says of the crawl itself; None: unchanged."""

    crawl: CrawlRow
    task_counts: list[CountsRow]
    outcomes: dict[str, int] | None = None
    events: list[CrawlEvent] = []
    timeline: list[tuple[float, str, str]] | None = None
    rules: dict[int, bytes] | None = None
    roots: dict[str, list[str]] | None = None
    settings: str | None = None
    values: list[tuple[int, float, str, str, str]] = []  # shared values, as `SharedValue` has them
    workers: list[LastHeartbeat] = []  # those that changed, or were not written for ten minutes
    removed_workers: list[str] = []
    gone_totals: WorkerTotals | None = None  # of removed workers


class PageRow(NamedTuple):
    """A page as SQLite stores it."""

    number: int
    data: bytes


class LogPage(NamedTuple):
    """A decoded page: numbers and rows of what it stores, by kind."""

    number: int
    crawl: int
    is_last: bool
    new_tasks: Sequence[tuple[int, bytes]]
    tasks: Sequence[tuple[int, bytes]]
    queues: Sequence[tuple[int, bytes]]
    update: bytes


_encode = msgspec.msgpack.Encoder().encode
decode_new_task = msgspec.msgpack.Decoder(NewTaskRow).decode
decode_task = msgspec.msgpack.Decoder(TaskRow).decode
decode_queue = msgspec.msgpack.Decoder(QueueRow).decode
decode_update = msgspec.msgpack.Decoder(CrawlUpdate).decode


# ---- tasks


def without_long_meta(content: bytes) -> bytes:
    """Return the row of a new task for its lists: without the meta if it is long."""
    if len(content) <= LONG_ROW:
        return content
    row = decode_new_task(content)
    row.task = msgspec.structs.replace(row.task, meta=b"")
    return _encode(row)


def without_long_task(content: bytes) -> bytes:
    """Return the row of a task for its lists: without its `Task` if it is long."""
    if len(content) <= LONG_ROW:
        return content
    row = decode_task(content)
    row.task = None
    return _encode(row)


def encode_new_tasks(records: Sequence[TaskRecord]) -> list[bytes]:
    """Encode each as a `NewTaskRow`, without making one."""
    return [
        _encode((r.task, r.key >> NUMBER_BITS & TIE_MASK, r.due, r.discovered)) for r in records
    ]


# Zero in the row of a task that is not leased.
_OF_LEASE: Final = {"lease_turn": 0, "leased": -1, "lasts": 0}
# What a task's row does not have as its record has it.
_TASK_VALUES: Final = {
    "body_page": "record.body_page",
    "task": "None if record.body_page else record.task",
    "queue": "record.queue.number",
    "lane": "record.task.lane",
    "key": "record.key.to_bytes(KEY_BYTES, 'big')",
    "stored_key": "record.stored_key.to_bytes(KEY_BYTES, 'big') if record.stored_key else None",
    "state": "COLUMNS[record.state]",
    "process": "record.process if record.state is LEASED else ''",
    **{
        name: f"record.{name} if record.state is LEASED else {default}"
        for name, default in _OF_LEASE.items()
    },
    "left": "encode_left(record.left) if record.left else None",
}
_PLAIN_TASK_FIELDS: Final = [
    field.name for field in TASK_FIELDS if field.paged and field.name not in _TASK_VALUES
]


def _encode_left(left: tuple[int, int, int, int]) -> tuple[int, int, bytes, int]:
    queue, lane, key, due = left
    return queue, lane, key.to_bytes(_KEY_BYTES, "big"), due


def _compile_encode_task() -> Callable[[TaskRecord], bytes]:
    plain = {name: f"record.{name}" for name in _PLAIN_TASK_FIELDS}
    values = fields.arguments(TaskRow.__struct_fields__, plain, _TASK_VALUES)
    scope = {
        "encode": _encode,
        "encode_left": _encode_left,
        "COLUMNS": COLUMNS,
        "KEY_BYTES": _KEY_BYTES,
        "LEASED": TaskState.LEASED,
    }
    # What a row leaves out at its end has its default: most rows need none of it.
    names = TaskRow.__struct_fields__
    short = values[: names.index("process")]
    of_lease = {name: f"record.{name}" for name in ("process", *_OF_LEASE)}
    leased = fields.arguments(names, plain, {**_TASK_VALUES, **of_lease})
    body = [
        "if record.left is None:",
        "    if record.state is LEASED:",
        f"        return encode(({', '.join(leased[: names.index('left')])}))",
        "    if not record.blocks:",
        f"        return encode(({', '.join(short)}))",
        f"return encode(({', '.join(values)}))",
    ]
    return fields.compile_function("encode_task", "record", body, scope)  # type: ignore[no-any-return]


def _compile_fill_record() -> Callable[[TaskRecord, TaskRow, int], None]:
    body = [
        "record.body_page = row.body_page or page",
        "record.key = int.from_bytes(row.key, 'big')",
        "record.state = STATES[row.state]",
        "record.process = row.process",
        *(f"record.{name} = row.{name}" for name in _OF_LEASE),
        *(f"record.{name} = row.{name}" for name in _PLAIN_TASK_FIELDS),
    ]
    return fields.compile_function("fill_record", "record, row, page", body, {"STATES": STATES})  # type: ignore[no-any-return]


encode_task: Final = _compile_encode_task()  # a record as a `TaskRow`
fill_record: Final = _compile_fill_record()  # a record from its row on that page


# ---- queues


def _with_actions(rules: QueueRules, row: QueueRow) -> QueueRules:
    if (rules.paused, rules.retired) == row.rules:
        return rules
    paused, retired = row.rules
    return msgspec.structs.replace(rules, paused=paused, retired=retired)


_PAGED: Final = [field for field in QUEUE_FIELDS if field.paged]
_PLAIN_QUEUE_FIELDS: Final = [field.name for field in _PAGED if "." not in field.name]
_QUEUE_PARTS: Final = {
    "rules": "with_actions(rules, row)",
    "politeness": "PolitenessState(*row.politeness)",
}
_QUEUE_SCOPE: Final = {
    "Queue": Queue,
    "PolitenessState": PolitenessState,
    "with_actions": _with_actions,
    "encode": _encode,
}


def _compile_encode_queue() -> Callable[[Queue], bytes]:
    plain = {name: f"queue.{name}" for name in _PLAIN_QUEUE_FIELDS}
    parts = {
        part: "({})".format(", ".join(f.name for f in _PAGED if f.name.startswith(f"{part}.")))
        for part in _QUEUE_PARTS
    }
    values = fields.arguments(QueueRow.__struct_fields__, plain, parts)
    body = [*fields.load_parts(_PAGED, "queue"), f"return encode(({', '.join(values)}))"]
    return fields.compile_function("encode_queue", "queue", body, _QUEUE_SCOPE)  # type: ignore[no-any-return]


def _compile_queue_from_row() -> Callable[[QueueRow, QueueRules], Queue]:
    plain = {name: f"row.{name}" for name in _PLAIN_QUEUE_FIELDS}
    values = [f"{name}={value}" for name, value in {**plain, **_QUEUE_PARTS}.items()]
    body = [f"return Queue({', '.join(values)})"]
    return fields.compile_function("queue_from_row", "row, rules", body, _QUEUE_SCOPE)  # type: ignore[no-any-return]


def _compile_fill_queue() -> Callable[[Queue, QueueRow], None]:
    changing = [name for name in _PLAIN_QUEUE_FIELDS if name not in ("key", "number")]
    body = [
        "rules = queue.rules",
        *(f"queue.{name} = row.{name}" for name in changing),
        *(f"queue.{part} = {value}" for part, value in _QUEUE_PARTS.items()),
    ]
    return fields.compile_function("fill_queue", "queue, row", body, _QUEUE_SCOPE)  # type: ignore[no-any-return]


encode_queue: Final = _compile_encode_queue()  # a queue as a `QueueRow`
queue_from_row: Final = _compile_queue_from_row()  # a queue from its row, under these rules
fill_queue: Final = _compile_fill_queue()  # an existing queue from its row


# ---- crawls

_state_values: Final = attrgetter(*CrawlRow.__struct_fields__[2:])


def crawl_row(state: object, name: str, now: int) -> CrawlRow:
    """Return the row of a `CrawlState`."""
    return CrawlRow(name, now, *_state_values(state))


def encode_update(
    state: object, name: str, now: int, task_counts: Iterable[TaskCounts], *rest: object
) -> bytes:
    """Encode a `CrawlUpdate`, without making one; `rest` are its other fields in order."""
    rows = [(c.type, c.tag, c.origin, c.depth, c.by_state) for c in task_counts]
    return _encode(((name, now, *_state_values(state)), rows, *rest))


# ---- pages


def encode_page(
    number: int, crawl: int, numbers: list[int], parts: Sequence[list[bytes]], update: bytes
) -> bytes:
    """Encode a page of new tasks, tasks and queues; the last page of a verb has the update."""
    new_tasks, tasks, queues = parts
    contents = [*new_tasks, *tasks, *queues]
    ends = array("I", [*accumulate(map(len, contents))])
    body = b"".join((array("Q", numbers).tobytes(), ends.tobytes(), *contents, update))
    head = _HEAD.pack(0, VERSION, LAST_PAGE if update else 0, crawl, *map(len, parts), len(update))
    checksum = crc32(body, crc32(head[4:], number & 0xFFFFFFFF))
    return b"".join((checksum.to_bytes(4, "little"), head[4:], body))


def empty_page(number: int) -> bytes:
    """Encode a page that stores nothing, in place of one whose crawl was removed."""
    return encode_page(number, NO_CRAWL, [], ([], [], []), b"")


def check_page(number: int, data: bytes) -> tuple[int, ...]:
    """Return the head of a page whose checksum is right; raises `StoreDamaged` otherwise."""
    if (
        not isinstance(data, bytes) or len(data) < _HEAD.size
    ):  # in a damaged file SQLite may return any type
        raise StoreDamaged(f"page {number} is {'cut short' if data else 'missing'}")
    head: tuple[int, ...] = _HEAD.unpack_from(data)
    checksum, version, *_ = head
    if crc32(memoryview(data)[4:], number & 0xFFFFFFFF) != checksum:
        raise StoreDamaged(f"page {number} is not what was written: its checksum differs")
    if version > VERSION:
        raise StoreDamaged(f"page {number} was written by a newer release (format {version})")
    return head


def decode_page(number: int, data: bytes) -> LogPage:
    """Check and decode a page."""
    _, _, flags, crawl, new_tasks, tasks, queues, update = check_page(number, data)
    items = list(_items(data, new_tasks + tasks + queues))
    middle = new_tasks + tasks
    return LogPage(
        number,
        crawl,
        bool(flags & LAST_PAGE),
        items[:new_tasks],
        items[new_tasks:middle],
        items[middle:],
        data[len(data) - update :],
    )


def _items(data: bytes, count: int) -> Iterator[tuple[int, bytes]]:
    numbers, start = _numbers(data, count)
    for number, (begin, end) in zip(numbers, _spans(data, count, start), strict=True):
        yield number, data[begin:end]


def _numbers(data: bytes, count: int) -> tuple[array[int], int]:
    end = _HEAD.size + 8 * count
    return array("Q", data[_HEAD.size : end]), end


def _spans(data: bytes, count: int, start: int) -> Iterator[tuple[int, int]]:
    first = start + 4 * count
    return pairwise([first, *[first + end for end in array("I", data[start:first])]])


def find_task(number: int, data: bytes, task: int) -> tuple[bool, bytes]:
    """Return the row of one task, and whether it is a `NewTaskRow`."""
    _, _, _, _, new_tasks, tasks, queues, _ = _HEAD.unpack_from(data)
    count = new_tasks + tasks + queues
    if tasks:
        content = _one(data, count, task, new_tasks, new_tasks + tasks)
        if content is not None:
            return False, content
    if new_tasks:  # with consecutive numbers: no search needed
        index = task - _NUMBER(data, _HEAD.size)[0]
        if 0 <= index < new_tasks:
            return True, _content(data, count, index)
    raise StoreDamaged(f"page {number} has no row of task {task}")


def _content(data: bytes, count: int, index: int) -> bytes:
    ends = _HEAD.size + 8 * count
    first = ends + 4 * count
    if not index:
        return data[first : first + _END(data, ends)[0]]
    begin, end = _SPAN(data, ends + 4 * index - 4)
    return data[first + begin : first + end]


def find_queue(number: int, data: bytes, queue: int) -> bytes:
    """Return the row of one queue."""
    _, _, _, _, new_tasks, tasks, queues, _ = _HEAD.unpack_from(data)
    start = new_tasks + tasks
    content = _one(data, start + queues, queue, start, start + queues)
    if content is None:
        raise StoreDamaged(f"page {number} has no row of queue {queue}")
    return content


def _one(data: bytes, count: int, number: int, low: int, high: int) -> bytes | None:
    numbers, _ = _numbers(data, count)
    for index in range(low, high):
        if numbers[index] == number:
            return _content(data, count, index)
    return None
