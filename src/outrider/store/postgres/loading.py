"""The tasks a verb touches, under the locks of their queues; all others are left alone."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappush
from typing import Any, Final, NamedTuple

from outrider.core.order import (
    DELAYED_SHIFT,
    DUE_BITS,
    NUMBER_BITS,
    NUMBER_MASK,
)
from outrider.core.policy.rules import CrawlRules, QueueRules
from outrider.core.states import TaskState
from outrider.core.task import Task
from outrider.store.heads.records import (
    SHARDS,
    Queue,
    Record,
    new_queue,
)
from outrider.store.postgres import columns, rows, sql
from outrider.store.postgres.arrays import number_array, text_array, uuid_array
from outrider.store.postgres.lazy_list import Shelf
from outrider.store.postgres.pipeline import Result
from outrider.store.postgres.provisional_ids import LAST_TASK
from outrider.store.postgres.stocking import Stocking
from outrider.store.protocol import PriorityUpdate

QUEUE_AT: Final = len(columns.TASK_NAMES)  # in the row of a task
_ABOUT_AT: Final = QUEUE_AT
_FATE_AT: Final = _ABOUT_AT + len(columns.TASK_ABOUT)
_END_AT: Final = len(columns.TASK_COLUMNS)
_NOWHERE: Final = new_queue("", 0, 0, QueueRules())  # of tasks that are only read


class TaskWas(NamedTuple):
    """A task as its rows tell."""

    task: Task
    queue: int
    fate: rows.Row
    lease: tuple[Any, ...] | None


class Asked(NamedTuple):
    """Queues and tasks that were asked for, some of them by keys."""

    keys: list[str]
    queues: Result | None = None
    tasks: Result | None = None


class Loading(Stocking):
    """A crawl of which only a part is at hand."""

    def __init__(
        self, name: str, store: str, rulebook: dict[int, CrawlRules], epoch: int, now: int
    ) -> None:
        super().__init__(name, store, rulebook, epoch, now)
        self.records: dict[int, Record] = {}
        self.tasks_were: dict[int, TaskWas] = {}
        self.births: list[Record] = []
        self.born_count = 0
        self.dirty: dict[int, Record] = {}  # tasks that are other than they were
        self.moved: dict[int, Record] = {}  # of those and others, who were lent or given back
        self._known_now: dict[bytes, int] = {}
        self.known = [self._known_now] * SHARDS
        self.count = LAST_TASK
        self.tokens = secrets.randbits(52)  # a task's tokens only have to differ

    def find(self, fingerprint: bytes) -> int | None:
        """See `Ledger`."""
        if fingerprint not in self._known_now:
            self.look_up([fingerprint])
        return self._known_now.get(fingerprint)

    def look_up(self, fingerprints: Iterable[bytes]) -> None:
        """Know from now on which of these are known."""
        self._learn(self._ask_whether_known(fingerprints))

    def _ask_whether_known(self, fingerprints: Iterable[bytes]) -> Result | None:
        wanted = uuid_array(name.hex() for name in dict.fromkeys(fingerprints))
        return None if wanted == "{}" else self.wire.send(sql.KNOWN_TASKS, (self.id, wanted))

    def _learn(self, answer: Result | None) -> bool:
        """Whether there was anything to learn."""
        found = {name: task & NUMBER_MASK for name, task in answer.fetchall()} if answer else {}
        self._known_now.update(found)
        return bool(found)

    def expect(self, tasks: list[Task]) -> None:
        """See `Ledger`."""
        self.expect_ends((), tasks)

    def expect_ends(self, numbers: Iterable[int], tasks: list[Task]) -> None:
        """Leases are about to end and to bring tasks: all their queues are locked in one order.

        What is known needs no lock; what is not is looked up again under it.
        """
        wanted = [number for number in numbers if 0 < number < LAST_TASK]
        self.look_up(t.fingerprint for t in tasks)
        strange = [t for t in tasks if t.fingerprint not in self._known_now]
        again = [t for t in tasks if t.known != "keep"]
        wanted += [
            self._known_now[t.fingerprint] for t in again if t.fingerprint in self._known_now
        ]
        loaded = self._ask_for_ends(wanted, strange, again)
        known = self._ask_whether_known(t.fingerprint for t in strange)
        # Under the locks: whoever stands in one of these queues came before what comes now.
        arrived = self.wire.send(sql.LAST_ARRIVAL, (f"arrivals_{self.id}",))
        self._take_ends(loaded)
        if self._learn(known):
            late = [t.fingerprint for t in strange if t.known != "keep"]
            self.load_for([self._known_now[f] for f in late if f in self._known_now], set())
        if not self.is_held:
            ((self.arrivals,),) = arrived.fetchall()
            self.numbers.first_arrival = self.arrivals

    def _ask_for_ends(self, numbers: list[int], new: list[Task], again: list[Task]) -> Asked:
        return self._ask_for(numbers, {task.key for task in (*new, *again)})

    def _take_ends(self, asked: Asked) -> None:
        self._take(asked)

    def load_for(self, numbers: list[int], keys: set[str]) -> None:
        """Have tasks at hand, and their queues with those of some keys, locked in one order."""
        self._take(self._ask_for(numbers, keys))

    def load_free(self, numbers: list[int]) -> None:
        """Have tasks at hand, those whose queues nobody else has locked."""
        self._take(self._ask_for(numbers, set(), sql.QUEUES_OF_TASKS.lock_free))

    def _ask_for(
        self, numbers: list[int], keys: set[str], locking: str = sql.QUEUES_OF_TASKS.lock
    ) -> Asked:
        ids = number_array(self.base | n for n in numbers if n not in self.records)
        names = [key for key in keys if key not in self._by_key and key not in self._absent]
        if ids == "{}" and not names:
            return Asked(names)
        params = (ids, self.id, text_array(names))
        statement = locking if self.writes else sql.QUEUES_OF_TASKS.read
        queues = self.wire.send(statement, params)
        return Asked(names, queues, self.wire.send(sql.LOAD_TASKS, (ids,)) if ids != "{}" else None)

    def _take(self, asked: Asked) -> None:
        if asked.queues is not None:
            self._seated(asked.queues.fetchall())
            self._absent.update(key for key in asked.keys if key not in self._by_key)
        self._take_tasks(asked.tasks.fetchall() if asked.tasks is not None else ())

    def _take_tasks(self, found: Sequence[rows.Row]) -> None:
        for row in found:
            self._take_in(row)
        if self.writes:
            numbers = [row[0] & NUMBER_MASK for row in found if row[_END_AT]]
            self.stock(self.records[number] for number in numbers if number in self.records)

    def _take_in(self, row: rows.Row) -> None:
        number, queue = row[0] & NUMBER_MASK, self._held.get(row[_ABOUT_AT] & NUMBER_MASK)
        if queue is None:
            return  # somebody else has it
        record = self._record_of(row, queue)
        lease = row[_END_AT + 1 :]
        if lease[0] is not None:
            rows.lend(record, lease)
            self.leases[number] = record
            heappush(self.deadlines, record.deadline << NUMBER_BITS | number)
        elif record.state is TaskState.PENDING:
            _point_out(record, stands=row[_END_AT])
        self._keep(record, row, lease if lease[0] is not None else None)

    def _record_of(self, row: rows.Row, queue: Queue) -> Record:
        task = rows.task_of(self.name, queue.key, row[2], row[_ABOUT_AT:_FATE_AT])
        number, kind = row[0] & NUMBER_MASK, self._kind(task)
        return rows.record_of(number, task, queue, kind, row[3], row[_FATE_AT:_END_AT])

    def _keep(self, record: Record, row: rows.Row, lease: tuple[Any, ...] | None) -> None:
        self.records[record.number] = record
        queue, fate = row[_ABOUT_AT], row[_FATE_AT:_END_AT]
        self.tasks_were[record.number] = TaskWas(record.task, queue & NUMBER_MASK, fate, lease)

    def take_due(self, row: rows.Row) -> None:
        """A pending task that is known to be first in its line."""
        if row[0] & NUMBER_MASK not in self.records:
            queue = self._held[row[_ABOUT_AT] & NUMBER_MASK]
            self._keep(self._record_of(row, queue), row, None)

    def reprice(self, prices: Sequence[PriorityUpdate], now: int) -> int:
        """See `Pricing`: of those there are, with all their queues locked in one order."""
        self.load_for([price.task for price in prices if 0 < price.task < LAST_TASK], set())
        return super().reprice([one for one in prices if one.task in self.records], now)

    def born(self, record: Record) -> None:
        """See `Ledger`."""
        self.births.append(record)
        self.born_count += 1
        self.records[record.number] = record
        self.numbers.new_ties[record.number] = self.arrivals

    def record(self, number: int) -> Record:
        """See `Ledger`."""
        found = self.records.get(number)
        if found is None:
            self.load_for([number], set())
            found = self.records[number]
        return found

    def due(self, queue: Queue, entry: int) -> Record:  # noqa: ARG002 - as others use it
        """See `Ledger`."""
        return self.record(entry >> DUE_BITS & NUMBER_MASK)

    def changed(self, record: Record) -> None:
        """See `Ledger`; that a task is lent is not told by its own row."""
        self.moved[record.number] = record
        if record.state is not TaskState.LEASED:
            self.dirty[record.number] = record

    def _reinsert(self, record: Record, delay: float, now: int) -> None:
        super()._reinsert(record, delay, now)
        self.numbers.new_ties[record.number] = self.arrivals

    def seen(self, numbers: Iterable[int]) -> Iterator[Record]:
        """See `Ledger`; whoever writes has them at hand, and between them some may be nobody's."""
        if self.writes:
            numbers = list(numbers)
            self.load_for(numbers, set())
            return (self.records[number] for number in numbers if number in self.records)
        if isinstance(numbers, range):
            span = (self.base + numbers.start - 1, self.base + numbers.stop - 1)
            return map(self._shown, self.wire.rows(sql.READ_TASKS_BETWEEN, span))
        numbers = list(numbers)
        found = self.wire.rows(
            sql.READ_TASKS, (number_array(self.base | number for number in numbers),)
        )
        shown = {row[0] & NUMBER_MASK: self._shown(row) for row in found}
        return (shown[number] for number in numbers if number in shown)

    def _shown(self, row: rows.Row) -> Record:
        about, fate = row[_ABOUT_AT:_FATE_AT], row[_FATE_AT:_END_AT]
        task = rows.task_of(self.name, row[_END_AT], row[2], about)
        number = row[0] & NUMBER_MASK
        record = rows.record_of(number, task, _NOWHERE, self._kind(task), row[3], fate)
        if row[_END_AT + 1] is not None:
            rows.lend(record, row[_END_AT + 1 :])
        return record

    def shown_whole(self, number: int) -> Record:
        """A task to read, with its queue."""
        self.load_for([number], set())
        return self.records[number]

    def url_of(self, number: int) -> str:
        """See `Ledger`."""
        found = self.records.get(number)
        if found is not None:
            return found.task.url
        url: str = self.wire.rows(sql.TASK_URL, (self.base | number,))[0][0]
        return url

    def load_leases(self, queues: Iterable[int]) -> None:
        """Have the leases of these queues at hand."""
        wanted = number_array(self.base | number for number in queues)
        found = self.wire.rows(sql.LEASES_OF_QUEUES, (self.id, wanted))
        self.load_for([task & NUMBER_MASK for (task,) in found], set())


def _point_out(record: Record, *, stands: bool) -> None:
    """A task stands somewhere in a line of which only the first entries are at hand."""
    lane, queue = record.task.lane, record.queue
    if stands:
        shelf, entry = queue.lane(lane), record.key << DUE_BITS | record.due
    else:
        shelf, entry = queue.delayed, record.due << DELAYED_SHIFT | record.key << 1 | lane
    if isinstance(shelf, Shelf):
        shelf.point_out(entry)
