"""Where the last word on every task of a crawl stands, and how it is read.

Tasks that were read in a row are kept until the next such reading: whoever reads many changes them
next. What was kept holds only while the last word on its task stands on the page it was read from.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import numpy as np

from outrider.core.order import DUE_BITS, NUMBER_MASK, task_key
from outrider.core.policy.rules import QueueRules
from outrider.core.states import TaskState
from outrider.core.task import Task
from outrider.store.embedded import pages
from outrider.store.embedded.roster import Reader, Roster
from outrider.store.heads.ledger import SHARD_MASK
from outrider.store.heads.records import COLUMNS, Kind, Queue, Record, new_queue

SPAN_BITS: Final = 16  # tasks of one stretch of `states` and `wheres`
SPAN: Final = 1 << SPAN_BITS
SPAN_MASK: Final = SPAN - 1
ROW_MOST: Final = 2000  # tasks read in a row that are kept
PENDING: Final = COLUMNS[TaskState.PENDING]

# Of a record that is only read.
_SOME_QUEUE: Final = new_queue("", 0, 0, QueueRules())
_SOME_KIND: Final = Kind("", None, "", 0, [])
_NOTHING: Final = (0, None)

Word: TypeAlias = pages.Birth | pages.Paper


class Reading(Roster):
    """A crawl whose tasks are on pages."""

    def __init__(self, name: str, store: str, now: int, *, reader: Reader) -> None:
        super().__init__(name, store, now, reader=reader)
        self.states: list[bytearray] = []
        self.wheres: list[array[int]] = []
        self._row: dict[int, tuple[int, Record]] = {}  # read in a row, each with its page
        self._newborn: list[Record] = []
        self._dirty: dict[int, Record] = {}

    # ---- where

    def stands(self, number: int, page: int, state: int) -> None:
        """On which page the last word on a task is."""
        span = number >> SPAN_BITS
        if span == len(self.wheres):
            self._new_span()
        self.wheres[span][number & SPAN_MASK] = page
        self.states[span][number & SPAN_MASK] = state

    def births_stand(self, number: int, count: int, page: int) -> None:
        """The births of one page."""
        span, place = number >> SPAN_BITS, number & SPAN_MASK
        if span == len(self.wheres):
            self._new_span()
        if place + count <= SPAN:
            self.wheres[span][place : place + count] = array("I", (page,)) * count
            return
        for each in range(number, number + count):
            self.stands(each, page, PENDING)

    def _new_span(self) -> None:
        self.wheres.append(array("I", bytes(4 * SPAN)))
        self.states.append(bytearray(SPAN))

    def page_of(self, number: int) -> int:
        """The page of the last word on a task."""
        return self.wheres[number >> SPAN_BITS][number & SPAN_MASK]

    # ---- one

    def record(self, number: int) -> Record:
        """See `Ledger`."""
        found = self._at_hand(number)
        if found is not None:
            return found
        page = self.wheres[number >> SPAN_BITS][number & SPAN_MASK]
        at, record = self._row.get(number, _NOTHING)
        if record is None or at != page:
            record = self._glimpsed(number, page, self._word(number, page))
        task = record.task
        key = task.key  # most queues are awake: a call less for each
        record.queue = self.keys[hash(key) & SHARD_MASK].get(key) or self.home_of(key)
        name = (task.type, task.tag, task.origin, task.depth if task.depth < 3 else 3)  # noqa: FURB136 - a call costs more
        record.kind = self.kinds.get(name) or self._kind(task)
        return record

    def due(self, queue: Queue, entry: int) -> Record:
        """See `Ledger`: most were never touched since their birth, and the entry tells the rest."""
        number = entry >> DUE_BITS & NUMBER_MASK
        if number in self._dirty:  # taken back in this very claim
            return self._dirty[number]
        page = self.wheres[number >> SPAN_BITS][number & SPAN_MASK]
        record = self._glimpsed(number, page, self._word(number, page), entry >> DUE_BITS)
        record.queue, record.kind = queue, self._kind(record.task)
        return record

    def url_of(self, number: int) -> str:
        """See `Ledger`; whoever asks for many must not wake their queues."""
        found = self._at_hand(number)
        if found is not None:
            return found.task.url
        return self._task_of(number, self._word(number, self.page_of(number))).url

    def _at_hand(self, number: int) -> Record | None:
        found = self.leases.get(number) or self._dirty.get(number)
        if found is None and self._newborn and number >= self._newborn[0].number:
            found = self._newborn[number - self._newborn[0].number]
        return found

    def _word(self, number: int, page: int) -> Word:
        is_birth, content = pages.task_in(page, self._reader.page(page), number)
        return pages.birth_of(content) if is_birth else pages.paper_of(content)

    def _glimpsed(self, number: int, page: int, word: Word, key: int = 0) -> Record:
        """A task as its last word tells, but for its queue and its kind, which readers don't need.

        The key of one that has waited since its birth may be known.
        """
        task = self._task_of(number, word)
        record = Record(number, task, _SOME_QUEUE, _SOME_KIND, key, word.due, word.discovered)
        if isinstance(word, pages.Paper):
            pages.fill_record(record, word, page)
        else:
            record.body = page
            record.key = key or task_key(task.precedence, task.priority, word.tie, number)
        return record

    def _task_of(self, number: int, word: Word) -> Task:
        """What it describes, or the page it names."""
        if word.task is not None:
            return word.task
        assert isinstance(word, pages.Paper)  # noqa: S101 - a birth describes its task
        task = self._word(number, word.body).task
        assert task is not None  # noqa: S101 - `body` names pages that describe their task
        return task

    # ---- many

    def of_state(self, numbers: range, state: TaskState) -> Iterable[int]:
        """See `Ledger`: between two verbs the file tells the state of each."""
        column, start = COLUMNS[state], numbers.start
        while start < numbers.stop:
            span, low = start >> SPAN_BITS, start & SPAN_MASK
            high = min(SPAN, low + numbers.stop - start)
            states = np.frombuffer(self.states[span], np.uint8)[low:high]
            yield from (np.flatnonzero(states == column) + start).tolist()
            start += high - low

    def seen(self, numbers: Iterable[int]) -> Iterator[Record]:
        """See `Ledger`; pages that tell of many are opened once, and no queue is woken."""
        wanted = list(numbers)
        row = self._read_in_a_row(wanted) if pages.CHUNK < len(wanted) <= ROW_MOST else {}
        for number in wanted:
            found = self._at_hand(number)
            if found is None:
                found = row[number][1] if number in row else self._read(number)
            yield found

    def _read(self, number: int) -> Record:
        page = self.page_of(number)
        return self._glimpsed(number, page, self._word(number, page))

    def _read_in_a_row(self, numbers: list[int]) -> dict[int, tuple[int, Record]]:
        wheres, glimpsed = self.wheres, self._glimpsed
        stand = {number: wheres[number >> SPAN_BITS][number & SPAN_MASK] for number in numbers}
        self._row = row = {}
        for page in dict.fromkeys(stand.values()):
            told = pages.opened(page, self._reader.page(page))
            for number, data in told.births:
                if stand.get(number) == page:
                    row[number] = page, glimpsed(number, page, pages.birth_of(data))
            for number, data in told.papers:
                if stand.get(number) == page:
                    row[number] = page, glimpsed(number, page, pages.paper_of(data))
        return row
