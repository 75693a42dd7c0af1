"""Rescuing a file: whatever is intact of it goes into a new one, the way everything is written.

The damaged file is only read. Tasks and queues are numbered anew, so that the new file has no gaps;
leases stay as they were, and whoever opens the file takes them back.
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
from outrider.store.embedded import pages, snapshot
from outrider.store.embedded.crawl import FileCrawl
from outrider.store.embedded.doctor import Examination, health_of
from outrider.store.embedded.file import CrawlFile
from outrider.store.embedded.inventory import SHOWN, Inventory
from outrider.store.embedded.loading import Loader
from outrider.store.embedded.lock import holder_of
from outrider.store.embedded.looking import Look, looked, recognise
from outrider.store.embedded.placing import begun, placed
from outrider.store.embedded.store import Shelf
from outrider.store.embedded.survey import Words, survey
from outrider.store.heads.records import COLUMNS, Record
from outrider.store.health import Rescued, Tell

STEP: Final = 1024  # tasks or queues written together
KEPT: Final = 512  # pages read lately
_PENDING: Final = COLUMNS[TaskState.PENDING]

Word = pages.Birth | pages.Paper


def rescue(path: Path, new: Path, clock: Clock, tell: Tell = lambda _: None) -> Rescued:
    """Write everything intact to a file that does not exist yet."""
    wrong, holder = recognise(path), holder_of(path)
    if holder is not None:
        raise InvalidInput(f"{path} is held by {holder.name}; end it first, then rescue")
    with begun(new) as draft:
        result = None if wrong else _by_its_tree(path, draft, clock, tell)
        if result is None:
            result = _Rescue(Examination(path, None, clock, tell), None, draft, tell).run()
        placed(draft, new)
    return msgspec.structs.replace(result, file=str(new))


def _by_its_tree(path: Path, draft: Path, clock: Clock, tell: Tell) -> Rescued | None:
    with suppress(StoreDamaged):
        return looked(
            path,
            lambda look: _Rescue(Examination(path, look, clock, tell), look, draft, tell).run(),
        )
    return None


class _Rescue:
    """One rescue: the old pages are read once, then queues, tasks and a snapshot are written."""

    def __init__(self, old: Examination, look: Look | None, draft: Path, tell: Tell) -> None:
        self._old, self._look, self._tell = old, look, tell
        for end in ("", "-wal", "-shm"):
            Path(f"{draft}{end}").unlink(missing_ok=True)
        self._file = CrawlFile(draft)
        self._shelf = Shelf(self._file)
        self._crawls: dict[int, _Refilled] = {}
        self._now = 0

    def run(self) -> Rescued:
        """All of it."""
        inventory = self._old.inventory(with_hidden=True)
        try:
            if self._look is not None:
                self._old.see_snapshot(self._look)
            return self._rescued(inventory)
        finally:
            inventory.close()
            self._file.close()

    def _rescued(self, inventory: Inventory) -> Rescued:
        self._tell("the last word on every task")
        found = survey(inventory, self._old.snapshot, self._hear)
        if not any(words.known > words.lost for words in found.values()):
            raise StoreUnusable(f"{self._old.path}: no task of it is intact; nothing was written")
        for index, words in found.items():
            old = _Old(inventory, words)
            words.name = words.name or old.name() or f"lost {index}"
            self._write(old, self._emptied(index, words.name))
        bare = [crawl.name for crawl in self._crawls.values() if not crawl.has_rules]
        self._settle()
        return Rescued(
            file="",
            pages=self._file.last_page,
            crawls=[
                health_of(i, words, self._old.snapshot, inventory) for i, words in found.items()
            ],
            lost={words.name: words.first_lost(SHOWN) for words in found.values() if words.lost},
            without_rules=bare,
            untold=self._old.snapshot.untold(inventory),
        )

    # ---- crawls

    def _hear(self, index: int, extra: pages.Extra) -> None:
        """What a crawl told of itself, in order; the last word holds."""
        row = extra.crawl
        self._crawl(index, row.name, row.created).hear(extra)
        self._now = max(self._now, row.now)

    def _crawl(self, index: int, name: str, created: int) -> _Refilled:
        if index not in self._crawls:
            self._crawls[index] = self._make(len(self._crawls), name, created)
        return self._crawls[index]

    def _make(self, index: int, name: str, created: int) -> _Refilled:
        file = self._file
        return _Refilled(
            name, file.id, created, index=index, reader=self._shelf, secret=file.secret
        )

    def _emptied(self, index: int, name: str) -> _Refilled:
        crawl = self._crawl(index, name, self._now)
        crawl.empty()
        return crawl

    # ---- queues and tasks

    def _write(self, old: _Old, crawl: _Refilled) -> None:
        self._tell(f"{crawl.name}: queues")
        rows = old.queues()
        while seats := list(islice(rows, STEP)):
            for row in seats:
                crawl.seat_anew(row)
            self._append(crawl)
        tasks = old.tasks()
        while found := list(islice(tasks, STEP)):
            self._enter(crawl, found)
            self._tell(f"{crawl.name}: task {crawl.count:,}")
        self._append(crawl)

    def _enter(self, crawl: _Refilled, found: list[tuple[Task, Word]]) -> None:
        """Born first, then what they became: two steps, as it came about."""
        records = [crawl.enter(task, word, self._now) for task, word in found]
        self._append(crawl)
        for record, (_, word) in zip(records, found, strict=True):
            if isinstance(word, pages.Paper):
                crawl.become(record, word)
        self._append(crawl)

    def _append(self, crawl: FileCrawl) -> None:
        if rows := crawl.gathered(self._file.last_page + 1, self._now):
            self._file.append(rows)
            crawl.written()

    # ---- at last

    def _settle(self) -> None:
        """A snapshot, read back as any opening does; then queues stand where they still can."""
        self._tell("a snapshot")
        file, crawls = self._file, list(self._crawls.values())
        for _ in snapshot.take(file, crawls, self._now, lambda: file.last_page):
            pass
        self._tell("reading it back")
        self._crawls.clear()
        for crawl in Loader(self._file, self._make).load():
            assert isinstance(crawl, _Refilled)  # noqa: S101 - `_make` made it
            crawl.settle_all(self._now)
            self._append(crawl)


class _Refilled(FileCrawl):
    """A crawl that gets back what is left of it."""

    has_rules = False

    def hear(self, extra: pages.Extra) -> None:
        """As a page told of it; rules that were lost are the default."""
        row = extra.crawl
        tokens, counter = max(self.tokens, row.tokens), max(self.counter, row.counter)
        if extra.rules is None:
            self.rulebook.setdefault(row.epoch, self.rules)
        self.has_rules = self.has_rules or extra.rules is not None
        self.recall(extra)
        self.tokens, self.counter = tokens, counter

    def empty(self) -> None:
        """No tasks, no queues."""
        self.count = self.queue_count = self.pending = self.leased = self.held = 0
        self.kinds, self.marks, self.kind_marks = {}, [], []

    def seat_anew(self, row: pages.QueueRow) -> None:
        """A queue as its row tells, under a new number; its settled tasks are counted again."""
        self.queue_count += 1
        row.number, row.done, row.dead, row.dropped = self.queue_count, 0, 0, 0
        self.mark(self.seat(row))

    def enter(self, task: Task, word: Word, now: int) -> Record:
        """A task becomes known, and waits if it did."""
        queue = self.queue_at(task.key) or self._new_queue(task.key)
        self.count += 1
        key = task_key(task.precedence, task.priority, _tie(word), self.count)
        kind = self._kind(task)
        record = Record(self.count, task, queue, kind, key, word.due, word.discovered)
        kind.counts[_PENDING] += 1
        self._mark_kind(kind)
        self.mark(queue)
        self._count(queue, TaskState.PENDING, 1)
        if isinstance(word, pages.Birth) or word.state == _PENDING:
            queue.enter(task.lane, key, word.due, now)
        self.born(record)
        return record

    def become(self, record: Record, paper: pages.Paper) -> None:
        """A task as it was last."""
        number, key = record.number, record.key
        pages.fill_record(record, paper, 0)
        state, record.state = record.state, TaskState.PENDING
        record.key, record.body = key, self.page_of(number)
        if state is TaskState.PENDING:
            self.changed(record)
        else:
            self._move(record, state)
        if state is TaskState.LEASED:
            self.leases[number] = record

    def settle_all(self, now: int) -> None:
        """What was lost may have been what a queue stood for, or what a run ended with."""
        for queue in [queue for chunk in self.queues for queue in chunk.values()]:
            self.settle(queue, now)
        is_open = self.leased or self.pending > self.held
        if self.status is CrawlStatus.FINISHED and is_open:
            self._worked(now)


class _Old:
    """The last intact words on one crawl, read from their pages."""

    def __init__(self, inventory: Inventory, words: Words) -> None:
        self._source, self._words = inventory.source, words
        self._lately: OrderedDict[int, bytes] = OrderedDict()

    def name(self) -> str:
        """Its name, as its tasks have it."""
        return next((task.crawl for task, _ in self.tasks()), "")

    def queues(self) -> Iterator[pages.QueueRow]:
        """In order of their numbers."""
        for number, page in enumerate(self._words.queues):
            if page:
                yield pages.queue_row_of(pages.queue_in(page, self._page(page), number))

    def tasks(self) -> Iterator[tuple[Task, Word]]:
        """Those that something describes, in order of their numbers."""
        for number, body in enumerate(self._words.bodies):
            if body:
                word = self._word(self._words.wheres[number], number)
                yield word.task or self._task(body, number), word

    def _task(self, page: int, number: int) -> Task:
        task = self._word(page, number).task
        if task is None:
            raise StoreDamaged(f"page {page} does not describe task {number}")
        return task

    def _word(self, page: int, number: int) -> Word:
        is_birth, content = pages.task_in(page, self._page(page), number)
        return pages.birth_of(content) if is_birth else pages.paper_of(content)

    def _page(self, number: int) -> bytes:
        data = self._lately.get(number)
        if data is None:
            data = self._lately[number] = self._source.page(number)
            if len(self._lately) > KEPT:
                self._lately.popitem(last=False)
        return data


def _tie(word: Word) -> int:
    if isinstance(word, pages.Birth):
        return word.tie
    return int.from_bytes(word.key, "big") >> NUMBER_BITS & TIE_MASK
