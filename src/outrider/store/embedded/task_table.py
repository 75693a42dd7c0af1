"""The tasks of one crawl of a file: which are known, on which page each is, and how it is read.

Tasks that were read together are kept until the next such read: a caller that reads many changes
them next. A kept task is valid only while its current row is on the page it was read from.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count as count_from
from itertools import pairwise
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from outrider.core.order import DUE_BITS, NUMBER_MASK, task_key
from outrider.core.policy.rules import QueueRules
from outrider.core.states import FORGOTTEN, TaskState
from outrider.core.task import Task
from outrider.store.byte_limits import MAX_RESULT_BYTES, task_bytes
from outrider.store.embedded import log_pages
from outrider.store.embedded.fingerprint_table import FingerprintTable
from outrider.store.embedded.log_pages import AnyTaskRow
from outrider.store.embedded.queue_cache import PageReader, QueueCache
from outrider.store.engine.leases import Leases
from outrider.store.engine.port import Numbers
from outrider.store.engine.records import (
    COLUMNS,
    SHARD_MASK,
    SHARDS,
    Queue,
    TaskCounts,
    TaskRecord,
    new_queue,
)
from outrider.store.engine.state import CrawlState

SPAN_BITS: Final = 16  # tasks of one array of `states`, `task_pages` and `queue_numbers`
SPAN: Final = 1 << SPAN_BITS
SPAN_MASK: Final = SPAN - 1
SPAN_SIZES: Final = (256, 2048, 16_384, SPAN)  # of the arrays of a span that is not full
MAX_KEPT: Final = 2000  # tasks read together that are kept
SMALL_LOOKUP: Final = 16  # fingerprints looked up one by one rather than as arrays
MAX_SEARCHED: Final = 1 << 22  # tasks whose queues one step of a listing compares
MAX_RECENT: Final = 1000  # fingerprints collected before they are added to the table
PENDING: Final = COLUMNS[TaskState.PENDING]
DROPPED: Final = COLUMNS[TaskState.DROPPED]
FORGOTTEN_COLUMN: Final = len(COLUMNS)  # in `states`, of dropped tasks that are forgotten (C10)

# Of a record that is only read.
_NO_QUEUE: Final = new_queue("", 0, 0, QueueRules())
_NO_COUNTS: Final = TaskCounts("", None, "", 0, [])
_NOT_KEPT: Final = (0, None)


@final
class FileTasks:
    """See `port.TaskTable`. Inserted and updated tasks are collected until they are written."""

    __slots__ = (
        "_held",
        "_kept",
        "_queues",
        "_reader",
        "_recent",
        "_state",
        "fingerprints",
        "inserted",
        "known",
        "queue_numbers",
        "states",
        "task_pages",
        "updated",
    )

    def __init__(
        self,
        state: CrawlState,
        leases: Leases,
        queues: QueueCache,
        reader: PageReader,
        secret: bytes,
    ) -> None:
        self._state, self._held, self._queues, self._reader = state, leases.held, queues, reader
        self.known: list[dict[bytes, int]] = [{}] * SHARDS  # of the tasks last prefetched
        self.fingerprints = FingerprintTable(secret)
        self._recent: dict[bytes, int] = {}  # known, and not yet in the table
        self.states: list[bytearray] = []
        self.task_pages: list[array[int]] = []
        # 0: an older snapshot did not store it, and no listing has looked for it yet
        self.queue_numbers: list[array[int]] = []
        self._kept: dict[int, tuple[int, TaskRecord]] = {}  # read together, each with its page
        self.inserted: list[TaskRecord] = []
        self.updated: dict[int, TaskRecord] = {}

    # ---- fingerprints

    def prefetch(self, tasks: Sequence[Task], numbers: Iterable[int] = ()) -> None:  # noqa: ARG002 - leased tasks are in memory
        """See `port.TaskTable`: looks up all fingerprints at once, and loads the queues."""
        if not tasks:
            return
        table, wanted = self.fingerprints, [task.fingerprint for task in tasks]
        known: dict[bytes, int] = {}
        if table.count and len(tasks) <= SMALL_LOOKUP:
            known = table.get_few(wanted)
        elif table.count:
            found = table.find(table.hashes(wanted)).tolist()
            known = {name: number for name, number in zip(wanted, found) if number}  # noqa: B905 - slower
        recent = self._recent
        if recent:
            known.update({name: recent[name] for name in wanted if name in recent})
        self.known = [known] * SHARDS
        queues = self._queues
        if queues.unloaded_count:
            for key in {task.key for task in tasks}:
                queues.find(key)

    def load(self, numbers: Iterable[int]) -> None:
        """See `port.TaskTable`: `get` reads each task when it is needed."""

    def find(self, fingerprint: bytes) -> int | None:
        """See `port.TaskTable`: compares the whole fingerprint, the table has 64 bits of it."""
        number = self._recent.get(fingerprint) or self.fingerprints.get(fingerprint)
        if not number or self.get(number).task.fingerprint != fingerprint:
            return None
        return number

    def _add_recent(self) -> None:
        names = [record.task.fingerprint for record in self.inserted]
        self._recent.update(zip(names, count_from(self.inserted[0].number), strict=False))
        if len(self._recent) > MAX_RECENT:
            self.flush_recent()

    def flush_recent(self) -> None:
        """Add the recent fingerprints to the table: many at a time cost little each."""
        recent, self._recent = self._recent, {}
        if recent:
            numbers = np.fromiter(recent.values(), np.uint32, len(recent))
            self.fingerprints.add(self.fingerprints.hashes(list(recent)), numbers)

    # ---- changes

    def insert(self, record: TaskRecord) -> None:
        """See `port.TaskTable`."""
        self.inserted.append(record)

    def update(self, record: TaskRecord) -> None:
        """See `port.TaskTable`."""
        self.updated[record.number] = record

    def set_tie(self, record: TaskRecord) -> None:
        """See `port.TaskTable`: the task is updated anyway."""

    def set_queue(self, record: TaskRecord) -> None:
        """See `port.TaskTable`; the queue of a task of this verb is recorded when it is written."""
        number = record.number
        if not (self.inserted and number >= self.inserted[0].number):
            self.queue_numbers[number >> SPAN_BITS][number & SPAN_MASK] = record.queue.number

    def mark_written(
        self, first: int, bounds: Sequence[int], updates: Sequence[Sequence[TaskRecord]]
    ) -> None:
        """Record that the inserted tasks and these updates are on the pages from `first` on.

        `bounds` are where the inserted tasks of each page begin, and where the last ones end.
        """
        if self.inserted:
            number = self.inserted[0].number
            for page, (start, end) in enumerate(pairwise(bounds), first):
                self.set_new_task_page(number + start, end - start, page)
            self.set_queues(number, array("I", [r.queue.number for r in self.inserted]))
            self._add_recent()
        task_pages, states = self.task_pages, self.states
        for page, records in enumerate(updates, first):
            for record in records:
                record.body_page = record.body_page or page
                record.stored_key = 0
                if record.left is not None:
                    record.left = None
                column = COLUMNS[record.state]
                if column == DROPPED and record.reason == FORGOTTEN:
                    column = FORGOTTEN_COLUMN
                # `set_task_page`, written out: the task has a span
                span, index = record.number >> SPAN_BITS, record.number & SPAN_MASK
                task_pages[span][index], states[span][index] = page, column
        self.inserted, self.updated = [], {}

    # ---- pages of tasks

    def set_task_page(self, number: int, page: int, state: int, reason: str | None = None) -> None:
        """Record the page of a task's current row, and its state."""
        if state == DROPPED and reason == FORGOTTEN:
            state = FORGOTTEN_COLUMN
        span, index = number >> SPAN_BITS, number & SPAN_MASK
        if span == len(self.task_pages) or index >= len(self.states[span]):
            self._make_room(span, index + 1)
        self.task_pages[span][index] = page
        self.states[span][index] = state

    def set_new_task_page(self, number: int, count: int, page: int) -> None:
        """Record the page of new tasks with consecutive numbers."""
        span, index = number >> SPAN_BITS, number & SPAN_MASK
        if index + count <= SPAN:
            self._make_room(span, index + count)
            self.task_pages[span][index : index + count] = array("I", (page,)) * count
            return
        for each in range(number, number + count):
            self.set_task_page(each, page, PENDING)

    def set_queues(self, first: int, queues: array[int]) -> None:
        """Record the queues of tasks with consecutive numbers, which have a span."""
        while queues:
            index = first & SPAN_MASK
            some = queues[: SPAN - index]
            self._make_room(first >> SPAN_BITS, index + len(some))
            self.queue_numbers[first >> SPAN_BITS][index : index + len(some)] = some
            first, queues = first + len(some), queues[len(some) :]

    def _make_room(self, span: int, count: int) -> None:
        """Have places for the first `count` tasks of a span; a small crawl takes little memory."""
        if span == len(self.states):
            self.add_span(b"", b"", b"")
        if count > len(self.states[span]):
            task_pages, queues = self.task_pages[span], self.queue_numbers[span]
            wider = span_parts(
                bytes(self.states[span]), task_pages.tobytes(), queues.tobytes(), count
            )
            self.states[span], self.task_pages[span], self.queue_numbers[span] = wider

    def add_span(self, states: bytes, task_pages: bytes, queues: bytes) -> None:
        """Add the next span, with what is stored of it."""
        parts = span_parts(states, task_pages, queues, len(states))
        self.states.append(parts[0])
        self.task_pages.append(parts[1])
        self.queue_numbers.append(parts[2])

    def page_of(self, number: int) -> int:
        """Return the page of a task's current row."""
        return self.task_pages[number >> SPAN_BITS][number & SPAN_MASK]

    # ---- reading one task

    def is_forgotten(self, number: int) -> bool:
        """See `port.TaskTable`: reads no page."""
        found = self._in_memory(number)
        if found is not None:
            return found.is_forgotten()
        return self.states[number >> SPAN_BITS][number & SPAN_MASK] == FORGOTTEN_COLUMN

    def get(self, number: int) -> TaskRecord:
        """See `port.TaskTable`."""
        found = self._in_memory(number)
        if found is not None:
            return found
        page = self.task_pages[number >> SPAN_BITS][number & SPAN_MASK]
        at, record = self._kept.get(number, _NOT_KEPT)
        if record is None or at != page:
            record = self._from_row(number, page, self._row(number, page))
        task, state = record.task, self._state
        key = task.key  # most queues are resident: a call less for each
        queues = self._queues
        queue = queues.by_key[hash(key) & SHARD_MASK].get(key) or queues.find(key)
        assert queue is not None  # noqa: S101 - every known task has a queue
        record.queue = queue
        name = (task.type, task.tag, task.origin, task.depth if task.depth < 3 else 3)  # noqa: FURB136 - a call costs more
        record.counts = state.task_counts.get(name) or state.counts_of(task)
        return record

    def first(self, queue: Queue, entry: int) -> TaskRecord:
        """See `port.TaskTable`: the entry has the order key of a task that is still new."""
        number = entry >> DUE_BITS & NUMBER_MASK
        if number in self.updated:  # its lease expired in this very claim
            return self.updated[number]
        page = self.task_pages[number >> SPAN_BITS][number & SPAN_MASK]
        record = self._from_row(number, page, self._row(number, page), entry >> DUE_BITS)
        record.queue, record.counts = queue, self._state.counts_of(record.task)
        return record

    def url(self, number: int) -> str:
        """See `port.TaskTable`: loads no queue."""
        found = self._in_memory(number)
        if found is not None:
            return found.task.url
        return self._task_of(number, self._row(number, self.page_of(number))).url

    def _in_memory(self, number: int) -> TaskRecord | None:
        found = self._held.get(number) or self.updated.get(number)
        if found is None and self.inserted and number >= self.inserted[0].number:
            found = self.inserted[number - self.inserted[0].number]
        return found

    def _row(self, number: int, page: int) -> AnyTaskRow:
        is_new, content = log_pages.find_task(page, self._reader.page(page), number)
        return log_pages.decode_new_task(content) if is_new else log_pages.decode_task(content)

    def _from_row(self, number: int, page: int, row: AnyTaskRow, key: int = 0) -> TaskRecord:
        """Return the record of a row, without its queue and counts, which readers do not need.

        `key` is the order key of a task that is still new, if the caller knows it.
        """
        task = self._task_of(number, row)
        record = TaskRecord(number, task, _NO_QUEUE, _NO_COUNTS, key, row.due, row.discovered)
        if isinstance(row, log_pages.TaskRow):
            log_pages.fill_record(record, row, page)
        else:
            record.body_page = page
            record.key = key or task_key(task.precedence, task.priority, row.tie, number)
        return record

    def _task_of(self, number: int, row: AnyTaskRow) -> Task:
        """Return the task in a row, or on the page the row names."""
        if row.task is not None:
            return row.task
        assert isinstance(row, log_pages.TaskRow)  # noqa: S101 - a new task's row has its task
        task = self._row(number, row.body_page).task
        assert task is not None  # noqa: S101 - `body_page` names a page with the task
        return task

    # ---- reading many tasks

    def in_state(self, numbers: range, state: TaskState) -> Iterable[int]:
        """See `port.TaskTable`: between two verbs `states` is exact."""
        column, start = COLUMNS[state], numbers.start
        while start < numbers.stop:
            span, low = start >> SPAN_BITS, start & SPAN_MASK
            high = min(SPAN, low + numbers.stop - start)
            states = np.frombuffer(self.states[span], np.uint8)[low:high]
            yield from (np.flatnonzero(_is_in_state(states, column)) + start).tolist()
            start += high - low

    def in_queue(self, queue: int, state: TaskState | None, after: int, limit: int) -> Numbers:
        """See `port.TaskTable`: searches `queue_numbers` and `states`, span by span."""
        found: list[int] = []
        last, start = self._state.last_task, after + 1
        stop = min(last, after + MAX_SEARCHED) + 1
        while start < stop and len(found) <= limit:
            span, low = start >> SPAN_BITS, start & SPAN_MASK
            high = min(SPAN, low + stop - start)
            known = self._learn_queues(span, low, high)
            fits = np.frombuffer(self.queue_numbers[span], np.uint32)[low:known] == queue
            if state is not None:
                states = np.frombuffer(self.states[span], np.uint8)[low:known]
                fits &= _is_in_state(states, COLUMNS[state])
            found += (np.flatnonzero(fits) + start).tolist()
            start += known - low
            if known < high:
                break
        return Numbers.page(found, limit, start - 1, last)

    def _learn_queues(self, span: int, low: int, high: int) -> int:
        """Read the tasks of a part of a span whose queues are not known; return up to where."""
        queues = self.queue_numbers[span]
        unknown = np.flatnonzero(np.frombuffer(queues, np.uint32)[low:high] == 0) + low
        if not len(unknown):
            return high
        for record in self.read(((span << SPAN_BITS) + unknown[:MAX_KEPT]).tolist()):
            queues[record.number & SPAN_MASK] = self._queues.number_of(record.task.key)
        return high if len(unknown) <= MAX_KEPT else int(unknown[MAX_KEPT])

    def read(self, numbers: Iterable[int]) -> Iterator[TaskRecord]:
        """See `port.TaskTable`: decodes a page with many tasks once, and loads no queue."""
        wanted = list(numbers)
        is_many = log_pages.PAGE_ITEMS < len(wanted) <= MAX_KEPT
        kept = self._read_together(wanted) if is_many else {}
        for number in wanted:
            found = self._in_memory(number)
            if found is None:
                found = kept[number][1] if number in kept else self._read(number)
            yield found

    def _read(self, number: int) -> TaskRecord:
        page = self.page_of(number)
        return self._from_row(number, page, self._row(number, page))

    def _read_together(self, numbers: list[int]) -> dict[int, tuple[int, TaskRecord]]:
        """Decode pages until their tasks fill a result page, and keep these (M2)."""
        task_pages, room = self.task_pages, MAX_RESULT_BYTES
        wanted = {n: task_pages[n >> SPAN_BITS][n & SPAN_MASK] for n in numbers}
        self._kept = kept = {}
        for page in dict.fromkeys(wanted.values()):
            for record in self._records_on(page, wanted):
                kept[record.number] = page, record
                room -= task_bytes(record.task)
                if room <= 0:
                    return kept
        return kept

    def _records_on(self, page: int, wanted: Mapping[int, int]) -> Iterator[TaskRecord]:
        """Decode the tasks of which a page has the current row."""
        content = log_pages.decode_page(page, self._reader.page(page))
        for number, data in content.new_tasks:
            if wanted.get(number) == page:
                yield self._from_row(number, page, log_pages.decode_new_task(data))
        for number, data in content.tasks:
            if wanted.get(number) == page:
                yield self._from_row(number, page, log_pages.decode_task(data))


def span_parts(
    states: bytes, task_pages: bytes, queues: bytes, count: int
) -> tuple[bytearray, array[int], array[int]]:
    """Return the parts of a span with places for `count` tasks, or some more."""
    size = next(size for size in SPAN_SIZES if size >= count)
    return (
        bytearray(states.ljust(size, b"\0")),
        array("I", task_pages.ljust(4 * size, b"\0")),
        array("I", queues.ljust(4 * size, b"\0")),
    )


def _is_in_state(states: NDArray[np.uint8], column: int) -> NDArray[np.bool_]:
    """Return which tasks are in a state; forgotten ones are dropped."""
    found: NDArray[np.bool_] = states == column
    return found | (states == FORGOTTEN_COLUMN) if column == DROPPED else found
