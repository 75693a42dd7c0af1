"""The tasks of one crawl that a verb has loaded, under the locks of their queues."""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias, final

from outrider.core.order import DELAYED_SHIFT, DUE_BITS, NUMBER_MASK
from outrider.core.policy.rules import QueueRules
from outrider.core.states import TaskState
from outrider.core.task import Task
from outrider.store.byte_limits import MAX_RESULT_BYTES
from outrider.store.engine.leases import Leases
from outrider.store.engine.port import Numbers
from outrider.store.engine.records import SHARDS, Queue, TaskCounts, TaskRecord, new_queue
from outrider.store.engine.state import CrawlState
from outrider.store.postgres import rows, sql
from outrider.store.postgres.lazy_list import END, LazyList
from outrider.store.postgres.pipeline import Result, number_array, text_array, uuid_array
from outrider.store.postgres.queues import PostgresQueues
from outrider.store.postgres.session import LAST_TASK, Session

FEW: Final = 4  # tasks that are read together whatever their sizes
MAX_EXAMINED: Final = 5000  # tasks of a queue whose states one step of a listing compares
_NO_QUEUE: Final = new_queue("", 0, 0, QueueRules())  # of tasks that are only read
_NO_COUNTS: Final = TaskCounts("", None, "", 0, [])

Wanted: TypeAlias = list[tuple[LazyList, int]]  # lanes, and how many more entries of each


class StoredTask(NamedTuple):
    """A task as its rows are."""

    task: Task
    queue: int
    history: rows.Row
    lease: rows.Row | None


class Loading(NamedTuple):
    """Queues and tasks that were asked for; some queues by their keys."""

    keys: list[str]
    queues: Result | None = None
    tasks: Result | None = None
    add_only: frozenset[str] = frozenset()  # keys to which due tasks are added, and nothing else


@final
class PostgresTasks:
    """See `port.TaskTable`.

    `updated` are loaded tasks that changed, `moved` those and tasks that were leased.
    """

    __slots__ = (
        "_forgotten",
        "_gaps",
        "_known",
        "_leases",
        "_load_totals",
        "_pipeline",
        "_queues",
        "_session",
        "_state",
        "by_number",
        "inserted",
        "known",
        "moved",
        "stored",
        "updated",
    )

    def __init__(
        self,
        session: Session,
        state: CrawlState,
        leases: Leases,
        queues: PostgresQueues,
        load_totals: Callable[[], None],
    ) -> None:
        self._session, self._state, self._leases, self._queues = session, state, leases, queues
        self._pipeline, self._load_totals = session.pipeline, load_totals
        self.by_number: dict[int, TaskRecord] = {}
        self.stored: dict[int, StoredTask] = {}
        self.inserted: list[TaskRecord] = []
        self.updated: dict[int, TaskRecord] = {}
        self.moved: dict[int, TaskRecord] = {}
        self._gaps: set[int] = set()  # numbers of no task
        self._known: dict[bytes, int] = {}
        self._forgotten: set[int] = set()  # of those looked up, as they were then
        self.known = [self._known] * SHARDS
        state.last_task = LAST_TASK
        state.last_token = secrets.randbits(52)  # a task's tokens only have to differ

    # ---- known tasks

    def find(self, fingerprint: bytes) -> int | None:
        """See `port.TaskTable`."""
        if fingerprint not in self._known:
            self.look_up([fingerprint])
        return self._known.get(fingerprint)

    def look_up(self, fingerprints: Iterable[bytes]) -> None:
        """Complete `known` for these fingerprints."""
        self._learn(self._ask_known(fingerprints))

    def find_known(self, fingerprint: bytes) -> int:
        """Return the number of a fingerprint that was looked up; 0: it is unknown."""
        return self._known.get(fingerprint, 0)

    def loaded(self, numbers: Iterable[int]) -> list[TaskRecord]:
        """Return those of these tasks that are loaded, in order."""
        return [self.by_number[number] for number in numbers if number in self.by_number]

    def _ask_known(self, fingerprints: Iterable[bytes]) -> Result | None:
        wanted = uuid_array(name.hex() for name in dict.fromkeys(fingerprints))
        if wanted == "{}":
            return None
        return self._pipeline.send(sql.KNOWN_TASKS, (self._session.crawl, wanted))

    def _learn(self, result: Result | None) -> bool:
        """Add the rows of `known_tasks` to `known`; return whether there were any."""
        found = result.fetchall() if result else ()
        self._known.update({name: task & NUMBER_MASK for name, task, _ in found})
        forgotten = {task & NUMBER_MASK for _, task, is_forgotten in found if is_forgotten}
        self._state.forgotten += len(forgotten - self._forgotten)
        self._forgotten |= forgotten
        return bool(found)

    def is_forgotten(self, number: int) -> bool:
        """See `port.TaskTable`: readmitted by this verb or not, the loaded task says."""
        return number in self._forgotten and self.get(number).is_forgotten()

    # ---- before tasks are added and leases end

    def prefetch(self, tasks: Sequence[Task], numbers: Iterable[int] = ()) -> None:
        """See `port.TaskTable`: all queues are locked in one order.

        A known task needs no lock; what is unknown is looked up again under the locks.
        """
        if self._state.rules.max_pending and tasks:
            self._load_totals()
        known, wanted = self._known, [number for number in numbers if 0 < number < LAST_TASK]
        self.look_up(task.fingerprint for task in tasks)
        unknown = [task for task in tasks if task.fingerprint not in known]
        again = [task for task in tasks if self._may_change(task)]
        wanted += [known[task.fingerprint] for task in again if task.fingerprint in known]
        loading = self._ask_for_ends(wanted, unknown, again)
        result = self._ask_known(task.fingerprint for task in unknown)
        # Under the locks: what is in one of these queues arrived before what is added now.
        arrival = self._pipeline.send(sql.LAST_ARRIVAL, (self._session.sequence("arrivals"),))
        self._take_ends(loading)
        if self._learn(result):
            late = [task.fingerprint for task in unknown if self._may_change(task)]
            self.load([known[name] for name in late if name in known])
        if not self._session.is_exclusive:
            ((self._state.last_arrival,),) = arrival.fetchall()
            self._session.ids.first_arrival = self._state.last_arrival

    def _may_change(self, task: Task) -> bool:
        """Return whether adding this task may change it if it is known."""
        return task.known != "keep" or self._known.get(task.fingerprint) in self._forgotten

    def _ask_for_ends(self, numbers: list[int], new: list[Task], again: list[Task]) -> Loading:
        more = {t.key for t in (*new, *again) if t.delay or t.done or self._may_change(t)}
        add_only = frozenset(task.key for task in new) - more
        keys = {task.key: None for task in (*new, *again)}
        if not add_only or self._needs_queues():
            return self._ask_for(numbers, keys)
        ids, names = number_array(self._session.base | n for n in numbers), [*keys]
        params = (ids, self._session.crawl, text_array(names))
        queues = self._pipeline.send(sql.LOCK_QUEUES, params)
        tasks = self._pipeline.send(sql.LOAD_TASKS, (ids,)) if numbers else None
        return Loading(names, queues, tasks, add_only)

    def _needs_queues(self) -> bool:
        """Return whether a new task may concern more than its queue's first task and counts."""
        rules = self._state.rules
        is_bounded = rules.max_pending or rules.max_pending_per_queue
        may_activate = rules.opens_below is not None  # C9
        is_whole = self._session.is_exclusive or self._state.is_idle or self._queues.by_number
        return bool(is_whole or is_bounded or may_activate)

    def _take_ends(self, loading: Loading) -> None:
        if not loading.add_only:
            self._take(loading)
            return
        tasks = loading.tasks.fetchall() if loading.tasks is not None else []
        locked = loading.queues.fetchall() if loading.queues is not None else []
        with_tasks, rest = {rows.task_queue(row) for row in tasks}, []
        for queue, key, is_fast, is_unlisted in locked:
            if is_fast and key in loading.add_only and queue not in with_tasks:
                self._queues.insert_unloaded(key, queue & NUMBER_MASK)
                if is_unlisted:
                    self._session.wakes_waiters = True
            else:
                rest.append(queue)
        self._queues.load_locked(rest)
        self._queues.mark_absent(loading.keys)
        self._take_tasks(tasks)

    # ---- loading

    def load(self, numbers: Iterable[int]) -> None:
        """See `port.TaskTable`: queues are locked in one order."""
        wanted = [number for number in numbers if 0 < number < LAST_TASK]
        self._take(self._ask_for(wanted, ()))
        self._gaps.update(number for number in wanted if number not in self.by_number)

    def load_unlocked(self, numbers: list[int]) -> None:
        """Load tasks whose queues no other transaction has locked."""
        self._take(self._ask_for(numbers, (), sql.QUEUES_OF_TASKS.lock_free))

    def _ask_for(
        self, numbers: list[int], keys: Iterable[str], lock: str = sql.QUEUES_OF_TASKS.lock
    ) -> Loading:
        session = self._session
        ids = number_array(session.base | n for n in numbers if n not in self.by_number)
        names = self._queues.unknown_keys(keys)
        if ids == "{}" and not names:
            return Loading(names)
        statement = lock if session.writes else sql.QUEUES_OF_TASKS.read
        queues = self._pipeline.send(statement, (ids, session.crawl, text_array(names)))
        tasks = self._pipeline.send(sql.LOAD_TASKS, (ids,)) if ids != "{}" else None
        return Loading(names, queues, tasks)

    def _take(self, loading: Loading) -> None:
        if loading.queues is not None:
            self._queues.load_rows(loading.queues.fetchall())
            self._queues.mark_absent(loading.keys)
        self._take_tasks(loading.tasks.fetchall() if loading.tasks is not None else ())

    def _take_tasks(self, found: Sequence[rows.Row]) -> None:
        for row in found:
            self._take_task(row)
        if self._session.writes:
            numbers = [rows.task_id(row) & NUMBER_MASK for row in found if rows.is_in_lane(row)]
            self._load_next_entries(self.by_number[n] for n in numbers if n in self.by_number)

    def _take_task(self, row: rows.Row) -> None:
        queue = self._queues.by_number.get(rows.task_queue(row) & NUMBER_MASK)
        if queue is None:
            return  # another transaction has it locked
        record, lease = self._record_of(row, queue), rows.held_lease(row)
        if lease is not None:
            rows.set_lease(record, lease)
            self._leases.held[record.number] = record
            self._leases.set_deadline(record, record.deadline)
        elif record.state is TaskState.PENDING:
            _note_present(record, is_in_lane=rows.is_in_lane(row))
        self._insert(record, row, lease)

    def _record_of(self, row: rows.Row, queue: Queue) -> TaskRecord:
        state = self._state
        return rows.record_from_row(row, state.name, queue.key, queue, state.counts_of)

    def _insert(self, record: TaskRecord, row: rows.Row, lease: rows.Row | None) -> None:
        self.by_number[record.number] = record
        queue = rows.task_queue(row) & NUMBER_MASK
        self.stored[record.number] = StoredTask(record.task, queue, row[rows.HISTORY], lease)

    # ---- first tasks of lanes

    def ask_first(self, numbers: Iterable[int]) -> Result | None:
        """Ask for tasks that are first in their lanes; `take_first` loads them."""
        ids = number_array(self._session.base | n for n in numbers if n not in self.by_number)
        if ids == "{}":
            return None
        return self._pipeline.send(sql.FIRST_TASKS, (ids, MAX_RESULT_BYTES))

    def take_first(self, result: Result | None) -> None:
        """Load the tasks of `ask_first`."""
        for row in result.fetchall() if result else ():
            if rows.task_id(row) & NUMBER_MASK not in self.by_number:
                queue = self._queues.by_number[rows.task_queue(row) & NUMBER_MASK]
                self._insert(self._record_of(row, queue), row, None)

    def ask_entries(self, wanted: Wanted) -> Result | None:
        """Ask for the entries of lanes after the loaded ones; `take_entries` inserts them."""
        if not wanted:
            return None
        asked = [(lane.queue, lane.place, more, lane.loaded_rows()) for lane, more in wanted]
        arrays = [number_array(column) for column in zip(*asked, strict=True)]
        return self._pipeline.send(sql.LANE_ENTRIES, arrays)

    def take_entries(self, wanted: Wanted, result: Result | None) -> None:
        """Insert the entries of `ask_entries` into their lanes."""
        found: dict[tuple[int, int], list[int]] = {}
        for queue, lane, *order, _ in result.fetchall() if result else ():
            entry = rows.lane_entry(*order)
            self._queues.entries[entry] = tuple(order)
            found.setdefault((queue, lane), []).append(entry)
        for lazy, more in wanted:
            lazy.insert_loaded(found.get((lazy.queue, lazy.place), []), more)

    def _load_next_entries(self, records: Iterable[TaskRecord]) -> None:
        """Load the entries behind tasks that may leave their lanes: the next one is first then."""
        leaving = {record.number: record for record in records}
        counts = Counter((r.queue.number, r.task.lane) for r in leaving.values())
        wanted: Wanted = []
        for (number, place), count in counts.items():
            lane = self._queues.by_number[number].lane(place)
            if isinstance(lane, LazyList) and lane.edge < END and _first_number(lane) in leaving:
                wanted.append((lane, count))
        self.take_entries(wanted, self.ask_entries(wanted))

    # ---- the rest of the port

    def get(self, number: int) -> TaskRecord:
        """See `port.TaskTable`."""
        found = self.by_number.get(number)
        if found is None:
            if number not in self._gaps:
                self.load([number])
            found = self.by_number[number]
        return found

    def first(self, queue: Queue, entry: int) -> TaskRecord:  # noqa: ARG002 - other stores use it
        """See `port.TaskTable`."""
        return self.get(entry >> DUE_BITS & NUMBER_MASK)

    def insert(self, record: TaskRecord) -> None:
        """See `port.TaskTable`."""
        self.inserted.append(record)
        self.by_number[record.number] = record
        self._session.ids.new_ties[record.number] = self._state.last_arrival

    def update(self, record: TaskRecord) -> None:
        """See `port.TaskTable`; a lease is not in the task's own row."""
        self.moved[record.number] = record
        if record.state is not TaskState.LEASED:
            self.updated[record.number] = record

    def set_tie(self, record: TaskRecord) -> None:
        """See `port.TaskTable`."""
        self._session.ids.new_ties[record.number] = self._state.last_arrival

    def set_queue(self, record: TaskRecord) -> None:
        """See `port.TaskTable`: the task is updated anyway."""

    def in_state(self, numbers: range, state: TaskState) -> Iterable[int]:  # noqa: ARG002
        """See `port.TaskTable`."""
        return numbers

    def in_queue(self, queue: int, state: TaskState | None, after: int, limit: int) -> Numbers:
        """See `port.TaskTable`: by an index, which alone is read unless states are compared."""
        base, most = self._session.base, limit + 1 if state is None else MAX_EXAMINED
        statement = sql.TASKS_IN_QUEUE if state is None else sql.TASK_STATES_IN_QUEUE
        rows = self._pipeline.rows(statement, (base | queue, base | min(after, LAST_TASK), most))
        upto = rows[-1][0] & NUMBER_MASK if rows else after
        found = [row[0] & NUMBER_MASK for row in rows if state is None or row[1] == state.value]
        return Numbers.page(found, limit, upto, upto + (len(rows) == most))

    def read(self, numbers: Iterable[int]) -> Iterator[TaskRecord]:
        """See `port.TaskTable`: read in parts of a result page's bytes, on demand."""
        rest: Sequence[int] = numbers if isinstance(numbers, range) else list(numbers)
        while rest:
            count = self._count_within(rest)
            yield from self._read_part(rest[:count])
            rest = rest[count:]

    def _count_within(self, numbers: Sequence[int]) -> int:
        """Return how many of the tasks have the bytes of a result page together."""
        base = self._session.base
        if len(numbers) <= FEW:
            return len(numbers)
        if isinstance(numbers, range):
            span = (base + numbers.start - 1, base + numbers.stop - 1, MAX_RESULT_BYTES)
            filling = self._pipeline.rows(sql.FILLING_TASK, span)
        elif any(before >= after for before, after in pairwise(numbers)):
            return len(numbers)  # the first tasks of a queue, which are few
        else:
            ids = number_array(base | number for number in numbers)
            filling = self._pipeline.rows(sql.FILLING_TASK_OF, (ids, MAX_RESULT_BYTES))
        if not filling:
            return len(numbers)
        return bisect_right(numbers, filling[0][0] & NUMBER_MASK)

    def _read_part(self, numbers: Sequence[int]) -> Iterator[TaskRecord]:
        """Read tasks at once; a verb that writes loads them."""
        base = self._session.base
        if self._session.writes:
            self.load(numbers)
            return iter(self.loaded(numbers))
        if isinstance(numbers, range):
            span = (base + numbers.start - 1, base + numbers.stop - 1)
            return map(self._read_only, self._pipeline.rows(sql.READ_TASKS_BETWEEN, span))
        ids = number_array(base | number for number in numbers)
        records = map(self._read_only, self._pipeline.rows(sql.READ_TASKS, (ids,)))
        found = {record.number: record for record in records}
        return (found[number] for number in numbers if number in found)

    def _read_only(self, row: rows.Row) -> TaskRecord:
        state = self._state
        key = rows.read_key(row)
        record = rows.record_from_row(row, state.name, key, _NO_QUEUE, state.counts_of)
        lease = rows.held_lease(row)
        if lease is not None:
            rows.set_lease(record, lease)
        return record

    def url(self, number: int) -> str:
        """See `port.TaskTable`."""
        found = self.by_number.get(number)
        if found is not None:
            return found.task.url
        ((url,),) = self._pipeline.rows(sql.TASK_URL, (self._session.base | number,))
        return str(url)

    def load_leases(self, queues: Iterable[Queue]) -> None:
        """Load what these queues need to know of their leases, and no more of the tasks."""
        by_number = {queue.number: queue for queue in queues}
        ids = number_array(self._session.base | number for number in by_number)
        found = self._pipeline.rows(sql.LEASES_OF_QUEUES, (self._session.crawl, ids))
        for task, queue, cost, claimed, named, loaned in found:
            number = task & NUMBER_MASK
            held = TaskRecord(
                number, _task_of_cost(cost), by_number[queue & NUMBER_MASK], _NO_COUNTS, 0, 0, 0
            )
            held.claimed, held.named, held.loaned = claimed, named, loaned
            self._leases.held[number] = held

    def load_lease_page(self, after: int, limit: int) -> None:
        """Load the next leases after a turn, and one more; they are held in order."""
        found = self._pipeline.rows(sql.LEASE_PAGE, (self._session.crawl, after, limit + 1))
        self.load([task & NUMBER_MASK for (task,) in found])
        held = self._leases.held
        in_order = sorted(held.items(), key=lambda item: item[1].lease_turn)
        held.clear()
        held.update(in_order)


def _task_of_cost(cost: int) -> Task:
    return Task("", b"", "", "", "", 0, 0, 0, 0.0, cost)


def _first_number(lane: LazyList) -> int:
    return lane.head[0] >> DUE_BITS & NUMBER_MASK


def _note_present(record: TaskRecord, *, is_in_lane: bool) -> None:
    """Record that a task is in a list of which only the first entries are loaded."""
    lane, queue = record.task.lane, record.queue
    if is_in_lane:
        found, entry = queue.lane(lane), record.key << DUE_BITS | record.due
    else:
        found, entry = queue.delayed, record.due << DELAYED_SHIFT | record.key << 1 | lane
    if isinstance(found, LazyList):
        found.note_present(entry)
