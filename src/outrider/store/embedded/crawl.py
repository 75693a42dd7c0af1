"""One crawl of a file: its engine over a queue cache and a task table, and its changes as pages.

Memory grows only with known fingerprints, entries of pending tasks, and queues with work. What a
verb changes is collected by the tables and the state; `build_pages` encodes it, and `mark_written`
records that the store has appended those pages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Sequence
from heapq import heappush
from itertools import islice, pairwise, takewhile
from operator import attrgetter
from typing import Final, NamedTuple, final

import msgspec

from outrider.core.order import NUMBER_BITS
from outrider.core.policy.rules import CrawlRules
from outrider.core.states import CrawlStatus
from outrider.core.worker_totals import WorkerTotals
from outrider.store.byte_limits import task_bytes
from outrider.store.embedded import log_pages, queue_codec
from outrider.store.embedded.log_pages import PAGE_BYTES, PAGE_ITEMS
from outrider.store.embedded.queue_cache import PageReader, QueueCache
from outrider.store.embedded.task_table import FileTasks
from outrider.store.engine.engine import CrawlEngine
from outrider.store.engine.journal import LastHeartbeat, MemoryJournal
from outrider.store.engine.leases import Leases
from outrider.store.engine.records import (
    QUEUE_COLUMNS,
    READY,
    UNCOUNTED,
    UNLISTED,
    Queue,
    TaskCounts,
    TaskRecord,
    column_of,
)
from outrider.store.engine.state import CrawlState
from outrider.store.protocol import NO_PROCESS, SharedValue

_body_page: Final = attrgetter("body_page")
_number: Final = attrgetter("number")


class CrawlSummary(NamedTuple):
    """What changes whenever anything in a crawl's own row does."""

    status: CrawlStatus
    is_idle: bool
    finished: int
    last_task: int
    last_queue: int
    last_turn: int
    last_token: int
    visits: int
    last_event: int
    rules: tuple[int, bool]
    at_finish: bool
    root_count: int
    settings: str
    last_value: int
    heartbeats: int


@final
class FileCrawl:
    """One crawl of a file."""

    __slots__ = (
        "_bounds",
        "_built",
        "_first_page",
        "_updates",
        "_written",
        "_written_roots",
        "engine",
        "index",
        "is_removed",
        "journal",
        "leases",
        "queues",
        "state",
        "tasks",
    )

    def __init__(
        self, name: str, store: str, now: int, *, index: int, reader: PageReader, secret: bytes
    ) -> None:
        self.index = index
        self.is_removed = False  # it is empty, until nothing of it is left in the file
        self.state = state = CrawlState(name, store, CrawlRules(), now, tracks_dirty=True)
        self.leases, self.journal = Leases(), MemoryJournal(state)
        self.queues = QueueCache(state, reader)
        self.tasks = FileTasks(state, self.leases, self.queues, reader, secret)
        self.engine = CrawlEngine(state, self.leases, self.tasks, self.queues, self.journal)
        # of the pages built last: the first one, where the new tasks of each begin and the last
        # ones end, the updated tasks by page, the summary
        self._first_page = 0
        self._bounds = [0]
        self._updates: list[list[TaskRecord]] = []
        self._built: CrawlSummary | None = None
        self._written: CrawlSummary | None = None  # in the file; None: nothing is
        self._written_roots: dict[str, int] = {}

    @property
    def name(self) -> str:
        """The name of the crawl."""
        return self.state.name

    def encoded_rules(self) -> dict[int, bytes]:
        """Return the rules that queues may have, by epoch."""
        return {epoch: encode_rules(rules) for epoch, rules in self.state.rules_by_epoch.items()}

    # ---- writing

    def _summary(self) -> CrawlSummary:
        state, journal = self.state, self.journal
        return CrawlSummary(
            state.status,
            state.is_idle,
            state.finished,
            state.last_task,
            state.last_queue,
            state.last_turn,
            state.last_token,
            state.visits,
            state.last_event,
            (id(state.rules), state.rules_applied),
            state.at_finish,
            sum(map(len, journal.roots_by_mode.values())),
            state.settings,
            journal.values.last,
            journal.workers_by_name.version,
        )

    def build_pages(self, first: int, now: int) -> list[log_pages.PageRow]:
        """Return what changed since the last write, as pages numbered from `first` on."""
        self.state.count_queues()
        summary, inserted, dirty = self._summary(), self.tasks.inserted, self.state.dirty_queues
        if not (inserted or self.tasks.updated or dirty or summary != self._written):
            self._first_page = 0
            return []
        update = self._update(summary, now)
        first_new = inserted[0].number if inserted else 0
        new_tasks = log_pages.encode_new_tasks(inserted)
        self._bounds = bounds = _bounds_of_pages(new_tasks)
        self._first_page, self._built, self._updates = first, summary, self._updates_by_page()
        queues = list(map(log_pages.encode_queue, dirty))
        count = max(1, len(self._updates), len(bounds) - 1, -(-len(queues) // PAGE_ITEMS))
        if count == 1:  # the common case
            tasks = self._updates[0] if self._updates else []
            new_numbers = range(first_new, first_new + len(inserted))
            numbers = [*new_numbers, *map(_number, tasks), *map(_number, dirty)]
            parts = new_tasks, list(map(log_pages.encode_task, tasks)), queues
            data = log_pages.encode_page(first, self.index, numbers, parts, update)
            return [log_pages.PageRow(first, data)]
        rows = []
        for index in range(count):
            low, high = index * PAGE_ITEMS, (index + 1) * PAGE_ITEMS
            start, end = bounds[index : index + 2] if index < len(bounds) - 1 else (0, 0)
            tasks = self._updates[index] if index < len(self._updates) else []
            new_numbers = range(first_new + start, first_new + end)
            numbers = [*new_numbers, *map(_number, tasks), *map(_number, dirty[low:high])]
            parts = new_tasks[start:end], list(map(log_pages.encode_task, tasks)), queues[low:high]
            page, tail = first + index, update if index == count - 1 else b""
            data = log_pages.encode_page(page, self.index, numbers, parts, tail)
            rows.append(log_pages.PageRow(page, data))
        return rows

    def _updates_by_page(self) -> list[list[TaskRecord]]:
        """Return updated tasks by page; an update of a new task is on the page of its insertion."""
        inserted, updated = self.tasks.inserted, self.tasks.updated
        if not inserted:
            return _cut(list(updated.values()))
        first = inserted[0].number
        found = _cut([record for record in updated.values() if record.number < first])
        for record in updated.values():
            if record.number >= first and not record.is_untouched():
                index = bisect_right(self._bounds, record.number - first) - 1
                found += [[] for _ in range(index + 1 - len(found))]
                found[index].append(record)
        return found

    def _update(self, new: CrawlSummary, now: int) -> bytes:
        """Encode the `CrawlUpdate` from what the file has to the new summary."""
        state, old = self.state, self._written
        last = 0 if old is None else old.last_event
        recent = takewhile(lambda one: one.number > last, reversed(state.events))
        events = list(recent)[::-1] if state.last_event > last else []
        return log_pages.encode_update(
            state,
            state.name,
            now,
            state.dirty_counts,
            dict(state.outcomes) if old is None or new.visits != old.visits else None,
            events,
            list(state.timeline) if old is None or events else None,
            self.encoded_rules() if old is None or new.rules != old.rules else None,
            self._new_roots() if old is None or new.root_count != old.root_count else None,
            state.settings if old is None or new.settings != old.settings else None,
            self._new_values(0 if old is None else old.last_value),
            *self._worker_rows(old, new),
        )

    def _new_values(self, after: int) -> list[tuple[int, float, str, str, str]]:
        values = self.journal.values
        return value_rows(values.since(after)) if values.last > after else []

    def _worker_rows(
        self, old: CrawlSummary | None, new: CrawlSummary
    ) -> tuple[list[LastHeartbeat], list[str], WorkerTotals | None]:
        """Return the fields `workers` to `gone_totals` of the update."""
        workers = self.journal.workers_by_name
        if old is None:
            return workers.all(), [], workers.gone
        if new.heartbeats == old.heartbeats:
            return [], [], None
        return workers.unwritten(), list(workers.removed), workers.new_gone

    def _new_roots(self) -> dict[str, list[str]] | None:
        written = self._written_roots
        new = {
            mode: list(islice(roots, written.get(mode, 0), None))
            for mode, roots in self.journal.roots_by_mode.items()
            if len(roots) > written.get(mode, 0)
        }
        return new or None

    def row(self, now: int) -> log_pages.CrawlRow:
        """Return the crawl's own numbers."""
        return log_pages.crawl_row(self.state, self.state.name, now)

    def mark_written(self) -> int:
        """Record that the built pages are in the file; return how many items they have."""
        first, tasks, state = self._first_page, self.tasks, self.state
        if not first:
            return 0
        count = len(tasks.inserted) + len(tasks.updated) + len(state.dirty_queues)
        count += self.journal.values.last - (
            0 if self._written is None else self._written.last_value
        )
        tasks.mark_written(first, self._bounds, self._updates)
        self.queues.mark_written(state.dirty_queues, first)
        for counts in state.dirty_counts:
            counts.is_dirty = False
        state.dirty_queues, state.dirty_counts = [], []
        self.journal.workers_by_name.mark_written()
        assert self._built is not None  # noqa: S101 - pages were built, see `build_pages`
        self._set_written(self._built)
        self.queues.shrink()
        return count

    def _set_written(self, summary: CrawlSummary) -> None:
        old, self._written = self._written, summary
        if old is None or summary.root_count != old.root_count:
            roots_by_mode = self.journal.roots_by_mode
            self._written_roots = {mode: len(roots) for mode, roots in roots_by_mode.items()}

    # ---- reopening

    def apply_update(self, update: log_pages.CrawlUpdate) -> None:
        """Set the crawl's own numbers from a page."""
        state, row = self.state, update.crawl
        for name in row.__struct_fields__:
            if name not in ("name", "now"):
                setattr(state, name, getattr(row, name))
        for counts in update.task_counts:
            state.counts_of(counts).by_state[:] = counts.by_state
        if update.rules is not None:
            state.rules_by_epoch = {e: decode_rules(rules) for e, rules in update.rules.items()}
            state.use_rules(state.rules_by_epoch[state.epoch])  # no queue is listed yet
        if update.outcomes is not None:
            state.outcomes = Counter(update.outcomes)
        if update.timeline is not None:
            state.timeline = deque(update.timeline, state.timeline.maxlen)
        last = state.events[-1].number if state.events else 0
        state.events.extend(event for event in update.events if event.number > last)
        for mode, roots in (update.roots or {}).items():
            self.journal.add_roots(mode, roots)
        state.settings = state.settings if update.settings is None else update.settings
        self.journal.values.insert_all(SharedValue(*value) for value in update.values)
        self.journal.workers_by_name.load(
            update.workers, update.removed_workers, update.gone_totals
        )

    def rebuild_schedule(self, now: int) -> None:
        """Put all queues back on their lists, after loading; nothing is dirty then."""
        self.engine.schedule.listed = 0
        self._load_outdated()
        for queue in list(self.queues.all_loaded()):
            self._relist(queue, now)
        for data in self.queues.all_packed():
            self._relist_packed(queue_codec.decode_header(data))
        for counts in self.state.task_counts.values():
            counts.is_dirty = False
        self.state.dirty_queues, self.state.dirty_counts = [], []
        self._set_written(self._summary())
        if not self.state.queue_counts:
            self.count_again()
        self.queues.shrink()

    def count_again(self) -> None:
        """O5: count queues by state and pending tasks by priority: their counts are not known."""
        state = self.state
        state.queue_counts = [0] * len(QUEUE_COLUMNS)
        state.critical = state.high = state.low = 0
        for queue in self.queues.read(range(1, state.last_queue + 1)):
            queue.counted_as = UNCOUNTED
            state.count_queue(queue)
            for priority in queue_codec.priorities(queue):
                state.count_priority(priority, 1)

    def _load_outdated(self) -> None:
        """Load packed queues whose ready keys were computed under another `queue.order`."""
        for data in list(self.queues.all_packed()):
            header = queue_codec.decode_header(data)
            if header.by_turn != self.state.by_turn:
                self.queues.get(header.number)

    def _relist_packed(self, header: queue_codec.PackedQueueHeader) -> None:
        schedule, (first, second, inactive) = self.engine.schedule, header.list_keys()
        schedule.listed += bool(first or second or inactive)
        for ready, key in zip(schedule.ready, (first, second), strict=True):
            if key:
                ready.push(key)
        if inactive:
            heappush(schedule.inactive, inactive)
        if header.wake_at:
            heappush(schedule.wakeups, header.wake_at << NUMBER_BITS | header.number)

    def _relist(self, queue: Queue, now: int) -> None:
        schedule = self.engine.schedule
        self.queues.restore_rules(queue)
        queue.ready_key0 = queue.ready_key1 = 0
        if queue.list_state == READY:
            queue.promote_due(now)  # its row may be newer than its lists in the snapshot
        if queue.list_state != UNLISTED:
            schedule.relist(queue)
        schedule.set_wake(queue, schedule.next_wake(queue, now))
        queue.counted_as = column_of(queue)
        queue.is_dirty = False
        self.queues.mark_used(queue)

    def pending_count(self) -> int:
        """Return the number of tasks in the lists of all queues."""
        resident = sum(queue.pending for queue in self.queues.all_loaded())
        packed = map(queue_codec.decode_header, self.queues.all_packed())
        return resident + sum(header.pending for header in packed)

    def expire_dead(self, now: int, is_dead: Callable[[str], bool]) -> None:
        """H4: expire the leases of dead processes; each of those visits ends now (D7).

        Leases of other processes stay. How often they were extended is not in the file, so each
        lasts its whole length from now: its worker may have had no store to ask for an extension.
        Of a lease that outlives every process the file has each deadline, and that one counts.
        """
        if self.state.status is CrawlStatus.CANCELLED:
            return
        for record in sorted(self.leases.held.values(), key=lambda r: (r.deadline, r.number)):
            if record.process == NO_PROCESS:
                continue
            if is_dead(record.process):
                self.engine.finisher.expire_lease(record, now)
            elif not record.named:  # leased by fingerprint for a moment, and never extended
                until = max(record.deadline, now + record.deadline - record.claimed)
                self.leases.set_deadline(record, until)


def _bounds_of_pages(contents: Sequence[bytes]) -> list[int]:
    """Return where the contents of each page begin, and where those of the last one end."""
    count = len(contents)
    if not count or max(map(len, contents)) <= PAGE_BYTES // PAGE_ITEMS:
        return [*range(0, count, PAGE_ITEMS), count] if count else [0]
    return _bounds([len(content) for content in contents])


def _cut(records: list[TaskRecord]) -> list[list[TaskRecord]]:
    """Return updated tasks by page; the row of one has its `Task` if no page has it yet."""
    if all(map(_body_page, records)):
        return [records[at : at + PAGE_ITEMS] for at in range(0, len(records), PAGE_ITEMS)]
    sizes = [0 if record.body_page else task_bytes(record.task) for record in records]
    return [records[start:end] for start, end in pairwise(_bounds(sizes))]


def _bounds(sizes: Sequence[int]) -> list[int]:
    """Return bounds of pages that have at most `PAGE_ITEMS` and `PAGE_BYTES`, or one item."""
    bounds, size = [0], 0
    for place, one in enumerate(sizes):
        size += one
        count = place - bounds[-1]
        if count and (count == PAGE_ITEMS or size > PAGE_BYTES):
            bounds.append(place)
            size = one
    return [*bounds, len(sizes)]


def counts_row(counts: TaskCounts) -> log_pages.CountsRow:
    """Return the row of task counts."""
    by_state = list(counts.by_state)
    return log_pages.CountsRow(counts.type, counts.tag, counts.origin, counts.depth, by_state)


def value_rows(values: Sequence[SharedValue]) -> list[tuple[int, float, str, str, str]]:
    """Return the rows of shared values."""
    return [(value.number, value.at, value.topic, value.name, value.text) for value in values]


def encode_rules(rules: CrawlRules) -> bytes:
    """Encode rules; a cost function is not stored, it is the caller's."""
    return msgspec.json.encode(rules, enc_hook=lambda _: "custom")


def decode_rules(data: bytes) -> CrawlRules:
    """Decode rules."""
    return msgspec.json.decode(data, type=CrawlRules)
