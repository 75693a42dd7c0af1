"""The durable format: a file is a sequence of pages, and a page says what is, never what to do.

Every verb that changes something appends pages: tasks born, tasks and queues as they are now, and
the crawl's own numbers. The last word on anything holds, so reading a page twice does no harm, and
whatever was copied while pages came in is mended by reading those pages again. A page begins with
the checksum of its number and its content, and a version.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from outrider.core.order import KEY_BITS, NUMBER_BITS, TIE_MASK
from outrider.core.outcome import Answer
from outrider.core.policy.rules import QueueRules
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import PolitenessState, Task
from outrider.errors import StoreDamaged
from outrider.store.heads.records import COLUMNS, Kind, Queue, Record

VERSION: Final = 1
CHUNK: Final = 16  # tasks or queues of one kind in a page: one is read without many others
LAST: Final = 1  # flag: the last page of a verb

_HEAD: Final = struct.Struct("<IBBIHHHI")  # checksum, version, flags, crawl, counts of three, extra
_NAME: Final = struct.Struct("<Q").unpack_from
_END: Final = struct.Struct("<I").unpack_from
_SPAN: Final = struct.Struct("<II").unpack_from
_KEY_BYTES: Final = KEY_BITS // 8
STATES: Final = tuple(COLUMNS)


class Birth(msgspec.Struct, array_like=True, gc=False):
    """A task as it became known."""

    task: Task
    tie: int
    due: int
    discovered: int


class Paper(msgspec.Struct, array_like=True, gc=False):
    """A task as it is now; its description is here, or on the page named `body`."""

    body: int
    task: Task | None
    queue: int
    lane: int
    key: bytes
    left: bytes | None  # the key its line knew it by until now, if another
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
    lent: bool
    process: str = ""  # while leased: the process that holds the lease; "": that of the file


class QueueRow(msgspec.Struct, array_like=True, gc=False):
    """A queue as it is now, but for its tasks and its rules."""

    key: str
    number: int
    turn: int
    paused: bool
    retired: str | None
    session: int
    spent: int
    next_ready: int
    why: str
    last_start: int
    last_end: int
    manners: tuple[int, int, int, int, int, float, float]
    errors: int
    dones: int
    bytes: int
    done: int
    dead: int
    dropped: int
    last_cost: int
    cost_sum: int
    cost_count: int
    standing: int
    place: int
    epoch: int
    said: tuple[bool, bool]  # what acts last said of it: paused, retired
    crashed: int


class CrawlRow(msgspec.Struct, array_like=True, gc=False):
    """A crawl's own numbers."""

    name: str
    now: int
    created: int
    status: CrawlStatus
    reason: str | None
    at_finish: bool
    is_idle: bool
    is_told: bool
    count: int
    queue_count: int
    counter: int
    arrivals: int
    tokens: int
    pending: int
    leased: int
    held: int
    visits: int
    dones: int
    bytes: int
    runs: int
    first: int
    finished: int
    logged: int
    epoch: int


class KindRow(msgspec.Struct, array_like=True, gc=False):
    """How many tasks of a kind are in each state."""

    type: str
    tag: str | None
    origin: str
    depth: int
    counts: list[int]


class Extra(msgspec.Struct, array_like=True, gc=False):
    """What a verb's last page tells of the crawl itself; None: as it was."""

    crawl: CrawlRow
    kinds: list[KindRow]
    outcomes: dict[str, int] | None = None
    notes: list[tuple[int, int, str, str, str]] = []
    timeline: list[tuple[float, str, str]] | None = None
    rules: dict[int, bytes] | None = None
    roots: dict[str, list[str]] | None = None
    settings: str | None = None
    said: list[tuple[int, float, str, str, str]] = []  # what was noted, as `Noted` has it


class Page(NamedTuple):
    """A page that was read: numbers and contents of what it tells, by kind."""

    number: int
    crawl: int
    is_last: bool
    births: Sequence[tuple[int, bytes]]
    papers: Sequence[tuple[int, bytes]]
    queues: Sequence[tuple[int, bytes]]
    extra: bytes


_encode = msgspec.msgpack.Encoder().encode
birth_of = msgspec.msgpack.Decoder(Birth).decode
paper_of = msgspec.msgpack.Decoder(Paper).decode
queue_row_of = msgspec.msgpack.Decoder(QueueRow).decode
extra_of = msgspec.msgpack.Decoder(Extra).decode


def encode_births(records: Sequence[Record]) -> list[bytes]:
    """Each as a `Birth`, without making one."""
    return [
        _encode((r.task, r.key >> NUMBER_BITS & TIE_MASK, r.due, r.discovered)) for r in records
    ]


def encode_paper(record: Record) -> bytes:
    """A `Paper`, without making one."""
    left = record.left.to_bytes(_KEY_BYTES, "big") if record.left else None
    return _encode(
        (
            record.body,
            None if record.body else record.task,
            record.queue.number,
            record.task.lane,
            record.key.to_bytes(_KEY_BYTES, "big"),
            left,
            COLUMNS[record.state],
            record.due,
            record.discovered,
            record.token,
            record.attempts,
            record.failures,
            record.crashes,
            record.throttles,
            record.deadline,
            record.claimed,
            record.finished,
            record.reason,
            record.worker,
            record.answer,
            record.history,
            record.answered,
            record.named,
            record.lent,
            record.process if record.state is TaskState.LEASED else "",
        )
    )


def encode_queue(queue: Queue) -> bytes:
    """A `QueueRow`, without making one."""
    manners = queue.manners
    return _encode(
        (
            queue.key,
            queue.number,
            queue.turn,
            queue.paused,
            queue.retired,
            queue.session,
            queue.spent,
            queue.next_ready,
            queue.why,
            queue.last_start,
            queue.last_end,
            (
                manners.level,
                manners.calm,
                manners.throttles_in_row,
                manners.unreachable_in_row,
                manners.blocks_in_row,
                manners.last_delay,
                manners.crawl_delay,
            ),
            queue.errors,
            queue.dones,
            queue.bytes,
            queue.done,
            queue.dead,
            queue.dropped,
            queue.last_cost,
            queue.cost_sum,
            queue.cost_count,
            queue.standing,
            queue.place,
            queue.epoch,
            (queue.rules.paused, queue.rules.retired),
            queue.crashed,
        )
    )


_ROW_FIELDS: Final = attrgetter(*CrawlRow.__struct_fields__[2:])


def crawl_row(crawl: object, name: str, now: int) -> CrawlRow:
    """A crawl's own numbers, off whatever has them under the same names."""
    return CrawlRow(name, now, *_ROW_FIELDS(crawl))


def encode_extra(crawl: object, name: str, now: int, kinds: Iterable[Kind], *rest: object) -> bytes:
    """An `Extra`, without making one; the rest as its fields follow."""
    rows = [(k.type, k.tag, k.origin, k.depth, k.counts) for k in kinds]
    return _encode(((name, now, *_ROW_FIELDS(crawl)), rows, *rest))


# What a queue and its row have under the same names.
_SHARED: Final = [
    name for name in QueueRow.__struct_fields__ if name not in ("key", "number", "manners", "said")
]
_shared: Final = attrgetter(*_SHARED)


def queue_of(row: QueueRow, rules: QueueRules) -> Queue:
    """A queue as its row says, under these rules."""
    shared: dict[str, Any] = dict(zip(_SHARED, _shared(row), strict=True))
    manners, said = PolitenessState(*row.manners), _as_said(rules, row)
    return Queue(key=row.key, number=row.number, rules=said, manners=manners, **shared)


def fill_queue(queue: Queue, row: QueueRow) -> None:
    """Let a queue be what its row says."""
    for name, value in zip(_SHARED, _shared(row), strict=True):
        setattr(queue, name, value)
    queue.manners, queue.rules = PolitenessState(*row.manners), _as_said(queue.rules, row)


def _as_said(rules: QueueRules, row: QueueRow) -> QueueRules:
    if (rules.paused, rules.retired) == row.said:
        return rules
    paused, retired = row.said
    return msgspec.structs.replace(rules, paused=paused, retired=retired)


def fill_record(record: Record, paper: Paper, page: int) -> None:
    """Let a record be what its paper says."""
    record.body = paper.body or page
    record.key, record.due = int.from_bytes(paper.key, "big"), paper.due
    record.state, record.discovered = STATES[paper.state], paper.discovered
    record.token, record.attempts, record.failures = paper.token, paper.attempts, paper.failures
    record.crashes, record.throttles = paper.crashes, paper.throttles
    record.deadline, record.claimed, record.finished = paper.deadline, paper.claimed, paper.finished
    record.reason, record.worker = paper.reason, paper.worker
    record.answer, record.history = paper.answer, paper.history
    record.answered = paper.answered
    record.named, record.lent, record.process = paper.named, paper.lent, paper.process


# ---- pages


def sealed(
    number: int, crawl: int, names: list[int], parts: Sequence[list[bytes]], extra: bytes
) -> bytes:
    """One page, whole: births, papers and queues; extra ends what a verb tells."""
    contents = [content for part in parts for content in part]
    body = b"".join(
        (
            array("Q", names).tobytes(),
            array("I", accumulate(map(len, contents))).tobytes(),
            *contents,
            extra,
        )
    )
    head = _HEAD.pack(0, VERSION, LAST if extra else 0, crawl, *map(len, parts), len(extra))
    checksum = crc32(body, crc32(head[4:], number & 0xFFFFFFFF))
    return b"".join((checksum.to_bytes(4, "little"), head[4:], body))


def checked(number: int, data: bytes) -> tuple[int, ...]:
    """The head of a page that is what was written; raises `StoreDamaged` otherwise."""
    if not isinstance(data, bytes) or len(data) < _HEAD.size:  # SQLite may take it for anything
        raise StoreDamaged(f"page {number} is {'cut short' if data else 'missing'}")
    head = _HEAD.unpack_from(data)
    if crc32(memoryview(data)[4:], number & 0xFFFFFFFF) != head[0]:
        raise StoreDamaged(f"page {number} is not what was written: its checksum differs")
    if head[1] > VERSION:
        raise StoreDamaged(f"page {number} was written by a newer release (format {head[1]})")
    return head


def opened(number: int, data: bytes) -> Page:
    """A page, read."""
    _, _, flags, crawl, births, papers, queues, extra = checked(number, data)
    items = list(_items(data, births + papers + queues))
    middle = births + papers
    return Page(
        number,
        crawl,
        bool(flags & LAST),
        items[:births],
        items[births:middle],
        items[middle:],
        data[len(data) - extra :],
    )


def _items(data: bytes, count: int) -> Iterator[tuple[int, bytes]]:
    names, start = _names(data, count)
    for name, (begin, end) in zip(names, _spans(data, count, start), strict=True):
        yield name, data[begin:end]


def _names(data: bytes, count: int) -> tuple[array[int], int]:
    end = _HEAD.size + 8 * count
    return array("Q", data[_HEAD.size : end]), end


def _spans(data: bytes, count: int, start: int) -> Iterator[tuple[int, int]]:
    first = start + 4 * count
    return pairwise([first, *[first + end for end in array("I", data[start:first])]])


def task_in(number: int, data: bytes, task: int) -> tuple[bool, bytes]:
    """What a page tells of one task, and whether that is its birth."""
    _, _, _, _, births, papers, queues, _ = _HEAD.unpack_from(data)
    count = births + papers + queues
    if papers:
        content = _one(data, count, task, births, births + papers)
        if content is not None:
            return False, content
    if births:  # numbered as they came: no need to search
        place = task - _NAME(data, _HEAD.size)[0]
        if 0 <= place < births:
            return True, _content(data, count, place)
    raise StoreDamaged(f"page {number} tells nothing of task {task}")


def _content(data: bytes, count: int, place: int) -> bytes:
    ends = _HEAD.size + 8 * count
    first = ends + 4 * count
    if not place:
        return data[first : first + _END(data, ends)[0]]
    begin, end = _SPAN(data, ends + 4 * place - 4)
    return data[first + begin : first + end]


def queue_in(number: int, data: bytes, queue: int) -> bytes:
    """What a page tells of one queue."""
    _, _, _, _, births, papers, queues, _ = _HEAD.unpack_from(data)
    start = births + papers
    content = _one(data, start + queues, queue, start, start + queues)
    if content is None:
        raise StoreDamaged(f"page {number} tells nothing of queue {queue}")
    return content


def _one(data: bytes, count: int, name: int, low: int, high: int) -> bytes | None:
    names, _ = _names(data, count)
    for place in range(low, high):
        if names[place] == name:
            return _content(data, count, place)
    return None
