"""Rescue of a damaged file: everything intact is written to a new file.

The damaged file is only read. Tasks and queues get new numbers, so that the new file has no gaps;
leases stay as they were, and expire when the new file is opened.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from outrider.clock import Clock
from outrider.core.order import NUMBER_BITS, TIE_MASK, task_key
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Task
from outrider.errors import InvalidInput, StoreDamaged, StoreUnusable
from outrider.store.byte_limits import MAX_RESULT_BYTES, task_bytes
from outrider.store.embedded import log_pages, snapshot
from outrider.store.embedded.atomic_file import new_file, publish
from outrider.store.embedded.crawl import FileCrawl
from outrider.store.embedded.doctor import Examination, health_of
from outrider.store.embedded.file import CrawlFile
from outrider.store.embedded.loader import FileLoader
from outrider.store.embedded.lock import holder_of
from outrider.store.embedded.log_pages import AnyTaskRow
from outrider.store.embedded.read_only_file import ReadOnlyFile, find_fault, read_file
from outrider.store.embedded.salvage import SHOWN, CrawlIndex, Inventory, build_index
from outrider.store.embedded.store import PageCache
from outrider.store.engine.records import COLUMNS, QUEUE_COLUMNS, TaskRecord
from outrider.store.health import Rescued, Tell
from outrider.store.protocol import STORE_VALUES

STEP: Final = 1024  # tasks or queues written together
MAX_CACHED: Final = 8 << 20  # bytes of pages read recently
_PENDING: Final = COLUMNS[TaskState.PENDING]


def rescue(path: Path, new: Path, clock: Clock, tell: Tell = lambda _: None) -> Rescued:
    """Write everything intact to a file that does not exist yet."""
    wrong, holder = find_fault(path), holder_of(path)
    if holder is not None:
        raise InvalidInput(f"{path} is held by {holder.name}; end it first, then rescue")
    with new_file(new) as draft:
        result = None if wrong else _rescue_through_sqlite(path, draft, clock, tell)
        if result is None:
            result = _Rescue(Examination(path, None, clock, tell), None, draft, tell).run()
        publish(draft, new)
    return msgspec.structs.replace(result, file=str(new))


def _rescue_through_sqlite(path: Path, draft: Path, clock: Clock, tell: Tell) -> Rescued | None:
    with suppress(StoreDamaged):
        return read_file(
            path,
            lambda file: _Rescue(Examination(path, file, clock, tell), file, draft, tell).run(),
        )
    return None


class _Rescue:
    """One rescue: reads the old pages once, then writes queues, tasks and a snapshot."""

    def __init__(
        self, old: Examination, source: ReadOnlyFile | None, draft: Path, tell: Tell
    ) -> None:
        self._old, self._source, self._tell = old, source, tell
        for end in ("", "-wal", "-shm"):
            Path(f"{draft}{end}").unlink(missing_ok=True)
        self._file = CrawlFile(draft)
        self._reader = PageCache(self._file.reader)
        self._crawls: dict[int, _Refilled] = {}
        self._now = 0

    def run(self) -> Rescued:
        """Rescue everything intact."""
        inventory = self._old.inventory(with_hidden=True)
        try:
            if self._source is not None:
                self._old.check_snapshot(self._source)
            return self._rescue(inventory)
        finally:
            inventory.close()
            self._file.close()

    def _rescue(self, inventory: Inventory) -> Rescued:
        self._tell("the last word on every task")
        found = build_index(inventory, self._old.snapshot, self._apply_update)
        if not any(index.known > index.lost for index in found.values()):
            raise StoreUnusable(f"{self._old.path}: no task of it is intact; nothing was written")
        for number, index in found.items():
            old = _OldCrawl(inventory, index)
            if index.name is None:
                index.name = old.name() or f"lost {number}"
            self._write(old, self._crawl(number, index.name, self._now))
        bare = [
            new.crawl.name
            for new in self._crawls.values()
            if not new.has_rules and new.crawl.name != STORE_VALUES
        ]
        self._finish()
        return Rescued(
            file="",
            pages=self._file.last_page,
            crawls=[
                health_of(i, index, self._old.snapshot, inventory)
                for i, index in found.items()
                if index.name != STORE_VALUES
            ],
            lost={
                index.name or "": index.first_lost(SHOWN) for index in found.values() if index.lost
            },
            without_rules=bare,
            untold=self._old.snapshot.untold(inventory),
        )

    # ---- crawls

    def _apply_update(self, index: int, update: log_pages.CrawlUpdate) -> None:
        """Apply what a crawl's pages say of itself, in order; the last one is current."""
        row = update.crawl
        self._crawl(index, row.name, row.created).apply_update(update)
        self._now = max(self._now, row.now)

    def _crawl(self, index: int, name: str, created: int) -> _Refilled:
        if index not in self._crawls:
            self._crawls[index] = _Refilled(self._make(len(self._crawls), name, created))
        return self._crawls[index]

    def _make(self, index: int, name: str, created: int) -> FileCrawl:
        file = self._file
        return FileCrawl(
            name, file.id, created, index=index, reader=self._reader, secret=file.secret
        )

    # ---- queues and tasks

    def _write(self, old: _OldCrawl, new: _Refilled) -> None:
        crawl = new.crawl
        self._tell(f"{crawl.name}: queues")
        new.clear()
        rows = old.queues()
        while some_rows := list(islice(rows, STEP)):
            for row in some_rows:
                new.add_queue(row)
            self._append(crawl)
        tasks = old.tasks()
        while some := _take(tasks):
            self._add_tasks(new, some)
            self._tell(f"{crawl.name}: task {crawl.state.last_task:,}")
        self._append(crawl)

    def _add_tasks(self, new: _Refilled, found: list[tuple[Task, AnyTaskRow]]) -> None:
        """Write the tasks as new ones, then their current rows."""
        records = [new.add_task(task, row, self._now) for task, row in found]
        self._append(new.crawl)
        for record, (_, row) in zip(records, found, strict=True):
            if isinstance(row, log_pages.TaskRow):
                new.apply_row(record, row)
        self._append(new.crawl)

    def _append(self, crawl: FileCrawl) -> None:
        if rows := crawl.build_pages(self._file.last_page + 1, self._now):
            self._file.append(rows)
            crawl.mark_written()

    # ---- at last

    def _finish(self) -> None:
        """Write a snapshot, open the file as any opening does, and refresh the schedule."""
        self._tell("a snapshot")
        file, crawls = self._file, [new.crawl for new in self._crawls.values()]
        for crawl in crawls:
            crawl.state.queue_counts = []  # counted again when the snapshot is read back
        for _ in snapshot.take(file, crawls, self._now, lambda: file.last_page):
            pass
        self._tell("reading it back")
        self._crawls.clear()
        for crawl in FileLoader(self._file.reader, self._make).load():
            _refresh_schedule(crawl, self._now)
            self._append(crawl)


class _Refilled:
    """A crawl of the new file while it is filled with what is intact."""

    def __init__(self, crawl: FileCrawl) -> None:
        self.crawl, self.has_rules = crawl, False

    def apply_update(self, update: log_pages.CrawlUpdate) -> None:
        """Apply what a page says of the crawl; rules that are lost are the default."""
        row, state = update.crawl, self.crawl.state
        last_token = max(state.last_token, row.last_token)
        last_turn = max(state.last_turn, row.last_turn)
        if update.rules is None:
            state.rules_by_epoch.setdefault(row.epoch, state.rules)
        self.has_rules = self.has_rules or update.rules is not None
        self.crawl.apply_update(update)
        state.last_token, state.last_turn = last_token, last_turn

    def clear(self) -> None:
        """Remove tasks and queues from the totals."""
        state = self.crawl.state
        state.last_task = state.last_queue = 0
        state.pending = state.leased = state.retired_pending = 0
        state.critical = state.high = state.low = 0
        state.queue_counts = [0] * len(QUEUE_COLUMNS)
        state.task_counts.clear()
        state.dirty_queues, state.dirty_counts = [], []

    def add_queue(self, row: log_pages.QueueRow) -> None:
        """Add a queue under a new number; its finished tasks are counted again."""
        state = self.crawl.state
        state.last_queue += 1
        row.number, row.done, row.dead, row.dropped = state.last_queue, 0, 0, 0
        state.mark_dirty(self.crawl.queues.load(row))

    def add_task(self, task: Task, row: AnyTaskRow, now: int) -> TaskRecord:
        """Add a task under a new number, and to the list of its queue if it is pending."""
        state, engine = self.crawl.state, self.crawl.engine
        queue = self.crawl.queues.find(task.key) or engine.adder.new_queue(task.key)
        state.last_task += 1
        key = task_key(task.precedence, task.priority, _tie(row), state.last_task)
        counts = state.counts_of(task)
        record = TaskRecord(state.last_task, task, queue, counts, key, row.due, row.discovered)
        counts.by_state[_PENDING] += 1
        state.mark_counts_dirty(counts)
        state.mark_dirty(queue)
        engine.transitions.count(queue, TaskState.PENDING, 1)
        if isinstance(row, log_pages.NewTaskRow) or row.state == _PENDING:
            queue.enter(task.lane, key, row.due, now)
        self.crawl.tasks.insert(record)
        return record

    def apply_row(self, record: TaskRecord, row: log_pages.TaskRow) -> None:
        """Give a task its current state and history."""
        number, key, tasks = record.number, record.key, self.crawl.tasks
        log_pages.fill_record(record, row, 0)
        state, record.state = record.state, TaskState.PENDING
        record.key, record.body_page = key, tasks.page_of(number)
        if state is TaskState.PENDING:
            tasks.update(record)
        else:
            self.crawl.engine.transitions.move(record, state)
        if state is TaskState.LEASED:
            self.crawl.leases.held[number] = record


def _refresh_schedule(crawl: FileCrawl, now: int) -> None:
    """Refresh all queues: the task that made one servable, or ended a run, may be lost."""
    state = crawl.state
    for queue in list(crawl.queues.all_loaded()):
        crawl.engine.schedule.refresh(queue, now)
    has_work = state.leased or state.pending > state.retired_pending
    if state.status is CrawlStatus.FINISHED and has_work:
        state.start_run(now)


class _OldCrawl:
    """The intact rows of one crawl of the damaged file."""

    def __init__(self, inventory: Inventory, index: CrawlIndex) -> None:
        self._source, self._index = inventory.source, index
        self._recent: OrderedDict[int, bytes] = OrderedDict()
        self._size = 0  # bytes of these

    def name(self) -> str:
        """Return its name, as its tasks have it."""
        return next((task.crawl for task, _ in self.tasks()), "")

    def queues(self) -> Iterator[log_pages.QueueRow]:
        """Return queues in order of their numbers."""
        for number, page in enumerate(self._index.queues):
            if page:
                yield log_pages.decode_queue(log_pages.find_queue(page, self._page(page), number))

    def tasks(self) -> Iterator[tuple[Task, AnyTaskRow]]:
        """Return tasks whose `Task` is intact, in order of their numbers."""
        for number, body in enumerate(self._index.bodies):
            if body:
                row = self._row(self._index.task_pages[number], number)
                yield row.task or self._task(body, number), row

    def _task(self, page: int, number: int) -> Task:
        task = self._row(page, number).task
        if task is None:
            raise StoreDamaged(f"page {page} does not have the description of task {number}")
        return task

    def _row(self, page: int, number: int) -> AnyTaskRow:
        is_new, content = log_pages.find_task(page, self._page(page), number)
        return log_pages.decode_new_task(content) if is_new else log_pages.decode_task(content)

    def _page(self, number: int) -> bytes:
        data = self._recent.get(number)
        if data is None:
            data = self._recent[number] = self._source.page(number)
            self._size += len(data)
            while self._size > MAX_CACHED and len(self._recent) > 1:
                _, oldest = self._recent.popitem(last=False)
                self._size -= len(oldest)
        return data


def _take(tasks: Iterator[tuple[Task, AnyTaskRow]]) -> list[tuple[Task, AnyTaskRow]]:
    """Return the next tasks to write together."""
    some: list[tuple[Task, AnyTaskRow]] = []
    room = MAX_RESULT_BYTES
    while len(some) < STEP and room > 0 and (one := next(tasks, None)) is not None:
        some.append(one)
        room -= task_bytes(one[0])
    return some


def _tie(row: AnyTaskRow) -> int:
    if isinstance(row, log_pages.NewTaskRow):
        return row.tie
    return int.from_bytes(row.key, "big") >> NUMBER_BITS & TIE_MASK
