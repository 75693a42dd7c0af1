"""What a verb changed, as rows: one statement a table, and nothing that is as it was.

New queues and tasks come first and in one order, so that two who bring the same never wait for each
other in a circle; all else happens under the locks of its queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

from outrider.core.order import (
    NUMBER_BITS,
    PRECEDENCE_LIMIT,
    QUEUE_RANK_SHIFT,
    TIE_MASK,
    TURN_BITS,
    queue_precedence,
    unordered,
)
from outrider.core.states import TaskState
from outrider.store.heads.records import Queue, Record
from outrider.store.postgres import columns, queue_rows, rows
from outrider.store.postgres import statements as sql
from outrider.store.postgres.arrays import copied, plain, turned
from outrider.store.postgres.counting import Counting
from outrider.store.postgres.lines import shelves
from outrider.store.postgres.loading import TaskWas
from outrider.store.postgres.numbering import QUEUES, TASKS, TURNS
from outrider.store.postgres.seating import QueueWas, told_of

COPIED_FROM: Final = 32  # new tasks from which on copying is faster
_BITS_64: Final = (1 << 64) - 1
_RANK_MASK: Final = (1 << 80) - 1
_TURN_MASK: Final = (1 << TURN_BITS) - 1
DELAYED: Final = 2  # the place of a queue's third line
_LENT, _SELDOM = 1, 3  # parts of a queue in which numbers stand that are taken late
_NO_TOP: Final = (None,) * 5
_NO_DELAYED: Final = (None,) * 6
_TOKEN, _CLAIMED = 3, 8  # in a fate


class Changed(NamedTuple):
    """A queue that is other than it was."""

    queue: Queue
    was: QueueWas
    told: QueueWas


class Batch:
    """Rows of one statement, gathered."""

    def __init__(self, statement: str, told: columns.Columns) -> None:
        self._statement, self._types = statement, _types(told)
        self.rows: list[Sequence[Any]] = []

    def send(self, crawl: Writing) -> None:
        """Hand it in, if there is anything."""
        if self.rows:
            crawl.wire.send(self._statement, turned(self.rows, self._types))


class Writing(Counting):
    """How it is kept."""

    stirs = False  # whether somebody who waits might be served sooner

    def write(self) -> list[Changed]:
        """Hand in all that changed since it was loaded or last written; which queues did."""
        self._take_numbers()
        changed = self._changed_queues()
        self._write_new_queues(changed)
        self._write_births()
        self._write_queues(changed)
        self._write_lines(changed)
        self._write_standing(changed)
        self._write_tasks()
        self._write_leases()
        self.stirs = self.stirs or any(_is_sooner(one) for one in changed)
        return changed

    # ---- numbers

    def sequence(self, name: str) -> str:
        """The sequence its numbers of a kind come from."""
        return f"{name}_{self.id}"

    def _take_numbers(self) -> None:
        numbers = self.numbers
        if self.is_held:
            return
        wanted = (
            ("tasks", self.count - TASKS - len(numbers.tasks)),
            ("queues", self.queue_count - QUEUES - len(numbers.queues)),
            ("turns", self.counter - TURNS - len(numbers.turns)),
            ("arrivals", self.arrivals - numbers.arrived - len(numbers.arrivals)),
        )
        if all(count <= 0 for _, count in wanted):
            return
        params = [part for name, count in wanted for part in (self.sequence(name), max(0, count))]
        (taken,) = self.wire.rows(sql.TAKE, params)
        for (name, _), more in zip(wanted, taken, strict=True):
            getattr(numbers, name).extend(more)

    # ---- queues

    def _changed_queues(self) -> list[Changed]:
        were = self.queues_were
        now = [Changed(queue, were[number], told_of(queue)) for number, queue in self._held.items()]
        return [one for one in now if one.was != one.told or _lines_moved(one.queue)]

    def _part(self, told: QueueWas, part: int) -> Sequence[Any]:
        """What is written of a queue together; see `QUEUE_PARTS`."""
        assert told.numbers is not None  # noqa: S101 - only what was is nothing
        if part >= columns.NUMBER_PARTS:
            return self._top_part(told.tops[part - columns.NUMBER_PARTS], part)
        if part == _LENT:
            turn, *lent = told.numbers.lent
            return (self.numbers.turn(turn), *lent)
        if part == _SELDOM:
            seldom = queue_rows.Seldom(*told.numbers.seldom)
            return seldom._replace(place=self.numbers.turn(seldom.place))
        return told.numbers[part]

    def _top_part(self, entry: int, part: int) -> Sequence[Any]:
        if part == columns.DELAYED_PART:
            return self._delayed_top(entry) if entry else _NO_DELAYED
        return self._top(entry) if entry else _NO_TOP

    def _top(self, entry: int) -> tuple[Any, ...]:
        return self._named(rows.lane_parts(entry))

    def _delayed_top(self, entry: int) -> tuple[Any, ...]:
        lane, parts = rows.delayed_parts(entry)
        return (lane, *self._named(parts))

    def _named(self, parts: rows.Entry) -> tuple[Any, ...]:
        """The columns of an entry, its task and tie as they will be known."""
        precedence, priority, tie, number, due = parts
        tie = self.numbers.tie(number, tie, self.rules.tie)
        return precedence, priority, tie, self.base | self.numbers.task(number), due

    def _write_new_queues(self, changed: list[Changed]) -> None:
        batch, every = (
            Batch(sql.INSERT_QUEUES, columns.QUEUE_COLUMNS),
            columns.EVERY_PART,
        )
        for queue, was, told in changed:
            if was.numbers is None:
                number = self.base | self.numbers.queue(queue.number)
                parts = chain.from_iterable(self._part(told, part) for part in every)
                batch.rows.append((number, self.id, queue.key, *parts))
        batch.send(self)

    def _write_queues(self, changed: list[Changed]) -> None:
        """Only the parts that changed of any of them."""
        known = [one for one in changed if one.was.numbers is not None]
        touched = tuple(part for part in columns.EVERY_PART if _is_touched(known, part))
        if touched:
            statement, _ = sql.update_queues(touched)
            arrays = [plain(self.base | one.queue.number for one in known)]
            for part in touched:
                told = [self._part(one.told, part) for one in known]
                arrays += turned(told, _types(columns.QUEUE_PARTS[part]))
            self.wire.send(statement, arrays)

    def _write_lines(self, changed: list[Changed]) -> None:
        """What left each line, and what joined it."""
        left = Batch(sql.DELETE_PENDING, sql.PENDING_KEY)
        joined = Batch(sql.INSERT_PENDING, sql.PENDING_COLUMNS)
        left_delayed = Batch(sql.DELETE_DELAYED, sql.DELAYED_KEY)
        joined_delayed = Batch(sql.INSERT_DELAYED, sql.DELAYED_COLUMNS)
        for queue, _, _ in changed:
            number = self.base | self.numbers.queue(queue.number)
            for place, line in shelves(queue):
                if place == DELAYED:
                    left_delayed.rows += [self._left_delayed(number, e) for e in line.removed]
                    joined_delayed.rows += [self._joined_delayed(number, e) for e in line.added]
                else:
                    left.rows += [self._left(number, place, e) for e in line.removed]
                    joined.rows += [(number, place, *self._top(e)) for e in line.added]
        if len(joined.rows) >= COPIED_FROM:
            told = copied(joined.rows, _types(sql.PENDING_COLUMNS))
            self.wire.copy(sql.COPY_PENDING, told)
            joined.rows = []
        for batch in (left, joined, left_delayed, joined_delayed):
            batch.send(self)

    def _left(self, queue: int, lane: int, entry: int) -> tuple[Any, ...]:
        *order, task, _ = rows.lane_parts(entry)
        return (queue, lane, *order, self.base | task)

    def _left_delayed(self, queue: int, entry: int) -> tuple[Any, ...]:
        _, (*order, task, due) = rows.delayed_parts(entry)
        return (queue, due, *order, self.base | task)

    def _joined_delayed(self, queue: int, entry: int) -> tuple[Any, ...]:
        lane, *order, due = self._delayed_top(entry)
        return (queue, due, *order, lane)

    def _write_standing(self, changed: list[Changed]) -> None:
        """Where queues no longer stand, and where they stand now."""
        left = Batch(sql.DELETE_READY, sql.READY_COLUMNS)
        joined = Batch(sql.INSERT_READY, sql.READY_COLUMNS)
        silenced = Batch(sql.DELETE_SNOOZE, sql.SNOOZE_COLUMNS)
        alarmed = Batch(sql.INSERT_SNOOZE, sql.SNOOZE_COLUMNS)
        unparked = Batch(sql.DELETE_INACTIVE, sql.INACTIVE_COLUMNS)
        parked = Batch(sql.INSERT_INACTIVE, sql.INACTIVE_COLUMNS)
        for queue, was, told in changed:
            number = self.base | self.numbers.queue(queue.number)
            for lane, (before, after) in enumerate(zip(was.ranks, told.ranks, strict=True)):
                if before != after:
                    left.rows += [self._ready_row(lane, before, number)] if before else []
                    joined.rows += [self._ready_row(lane, after, number)] if after else []
            if was.alarm != told.alarm:
                silenced.rows += [(self.id, was.alarm, number)] if was.alarm else []
                alarmed.rows += [(self.id, told.alarm, number)] if told.alarm else []
            if was.parked != told.parked:
                unparked.rows += [self._parked_row(was.parked, number)] if was.parked else []
                parked.rows += [self._parked_row(told.parked, number)] if told.parked else []
        for batch in (left, joined, silenced, alarmed, unparked, parked):
            batch.send(self)

    def _ready_row(self, lane: int, rank: int, number: int) -> tuple[Any, ...]:
        task_rank = rank >> QUEUE_RANK_SHIFT & _RANK_MASK
        return (
            self.id,
            lane,
            queue_precedence(rank),
            task_rank >> 64,
            unordered(task_rank & _BITS_64) if task_rank else 0.0,
            self.numbers.turn(rank >> NUMBER_BITS & _TURN_MASK),
            number,
        )

    def _parked_row(self, key: int, number: int) -> tuple[Any, ...]:
        precedence = (key >> NUMBER_BITS + TURN_BITS) - PRECEDENCE_LIMIT
        return self.id, precedence, self.numbers.turn(key >> NUMBER_BITS & _TURN_MASK), number

    # ---- tasks

    def _tie(self, record: Record) -> int:
        return self.numbers.tie(record.number, record.key >> NUMBER_BITS & TIE_MASK, self.rules.tie)

    def _write_births(self) -> None:
        births = sorted(self.births, key=lambda record: record.task.fingerprint)
        if len(births) < COPIED_FROM:
            batch = Batch(sql.INSERT_TASKS, columns.TASK_COLUMNS)
            batch.rows += [(*self._birth(r), *rows.fate_of(r, self._tie(r))) for r in births]
            batch.send(self)
        elif all(record.is_plain() for record in births):
            told = [(*self._birth(r), self._tie(r), r.due) for r in births]
            self.wire.copy(sql.COPY_BIRTHS, copied(told, _types(columns.BIRTH_COLUMNS)))
        else:
            told = [(*self._birth(r), *rows.fate_of(r, self._tie(r))) for r in births]
            self.wire.copy(sql.COPY_TASKS, copied(told, _types(columns.TASK_COLUMNS)))

    def _birth(self, record: Record) -> tuple[Any, ...]:
        queue = self.base | self.numbers.queue(record.queue.number)
        return (
            self.base | self.numbers.task(record.number),
            self.id,
            record.task.fingerprint.hex(),
            record.discovered,
            *rows.about_of(record.task, queue),
        )

    def _write_tasks(self) -> None:
        """What visits made of tasks, and what a new link says of them."""
        fates = Batch(sql.UPDATE_FATES, (("id", "bigint"), *columns.TASK_FATE))
        abouts = Batch(sql.UPDATE_ABOUTS, (("id", "bigint"), *columns.TASK_ABOUT))
        for number, record in self.dirty.items():
            was = self.tasks_were.get(number)
            if was is None:
                continue  # its birth told all of it
            fates.rows.append((self.base | number, *self._fate(record, was)))
            if record.task is not was.task or record.queue.number != was.queue:
                queue = self.base | self.numbers.queue(record.queue.number)
                abouts.rows.append((self.base | number, *rows.about_of(record.task, queue)))
        for batch in (fates, abouts):
            batch.send(self)

    def _fate(self, record: Record, was: TaskWas) -> rows.Row:
        """What its row tells; while it is lent, who holds it and since when stands elsewhere."""
        fate = rows.fate_of(record, self._tie(record))
        if record.state is not TaskState.LEASED:
            return fate
        told = list(fate)
        told[_TOKEN], told[_CLAIMED] = was.fate[_TOKEN], was.fate[_CLAIMED]
        return tuple(told)

    def _write_leases(self) -> None:
        """Who holds tasks, and who no longer does."""
        ended = Batch(sql.DELETE_LEASES, columns.LEASE_COLUMNS[:1])
        lent = Batch(sql.INSERT_LEASES, columns.LEASE_COLUMNS)
        for number, record in self.moved.items():
            was = self.tasks_were.get(number)
            lease = _lease_of(record)
            if was is not None and lease != was.lease:
                ended.rows += [(self.base | number,)] if was.lease else []
                lent.rows += [rows.lease_row(record, self.base, self.id)] if lease else []
        ended.rows.sort(key=itemgetter(0))  # in the order in which others may lock them
        for batch in (ended, lent):
            batch.send(self)

    # ---- afterwards

    def remember(self, changed: list[Changed]) -> None:
        """What was handed in is how it was, for a verb that goes on."""
        for queue, _, told in changed:
            self.queues_were[queue.number] = told
            for _, line in shelves(queue):
                line.added, line.removed = set(), set()
        for number, record in self.moved.items():
            was = self.tasks_were.get(number)
            if was is not None:
                told_of_task = (record.task, record.queue.number, was.fate, _lease_of(record))
                self.tasks_were[number] = TaskWas(*told_of_task)
        self.births, self.dirty, self.moved = [], {}, {}


def _types(told: columns.Columns) -> list[str]:
    return [kind for _, kind in told]


def _lines_moved(queue: Queue) -> bool:
    return any(line.added or line.removed for _, line in shelves(queue))


def _is_sooner(one: Changed) -> bool:
    """Whether it stands now, or wakes sooner than before."""
    was, told = one.was, one.told
    stands = told.ranks != (0, 0) or told.parked
    is_new = was.ranks == (0, 0) and not was.parked
    return bool(stands and is_new) or 0 < told.alarm < (was.alarm or told.alarm + 1)


def _is_touched(changed: list[Changed], part: int) -> bool:
    """Whether that part of any of these is other than it was."""
    if part >= columns.NUMBER_PARTS:
        place = part - columns.NUMBER_PARTS
        return any(one.was.tops[place] != one.told.tops[place] for one in changed)
    return any(
        one.was.numbers is not None
        and one.told.numbers is not None
        and one.was.numbers[part] != one.told.numbers[part]
        for one in changed
    )


def _lease_of(record: Record) -> tuple[Any, ...] | None:
    if record.state is not TaskState.LEASED:
        return None
    return (
        record.token,
        record.worker,
        record.claimed,
        record.deadline,
        record.named,
        record.lent,
    )
