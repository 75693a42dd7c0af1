"""What a verb changed, as rows: one statement a table, and nothing that is as it was.

New queues and tasks come first and in one order, so that two who bring the same never wait for each
other in a circle; all else happens under the locks of its queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outrider.core.order import DUE_BITS, NUMBER_BITS, TIE_MASK
from outrider.core.states import TaskState
from outrider.store.heads.records import Record
from outrider.store.postgres import columns, rows, sql
from outrider.store.postgres.arrays import column_arrays, number_array, row_arrays
from outrider.store.postgres.lazy_list import shelves
from outrider.store.postgres.loading import TaskWas
from outrider.store.postgres.provisional_ids import LAST_QUEUE, LAST_TASK, LAST_TURN
from outrider.store.postgres.queue_writing import Changed, QueueWriting, types_of

_TOKEN, _CLAIMED = 3, 5  # in a fate


class Writing(QueueWriting):
    """How it is kept."""

    def write(self) -> list[Changed]:
        """Hand in all that changed since it was loaded or last written; which queues did."""
        self._take_numbers()
        self._name_births()
        changed = self._changed_queues()
        self._write_new_queues(changed)
        self._write_births()
        self._write_growth()
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
            ("tasks", self.count - LAST_TASK - len(numbers.tasks)),
            ("queues", self.queue_count - LAST_QUEUE - len(numbers.queues)),
            ("turns", self.counter - LAST_TURN - len(numbers.turns)),
            ("arrivals", self.arrivals - numbers.first_arrival - len(numbers.arrivals)),
        )
        if all(count <= 0 for _, count in wanted):
            return
        params = [part for name, count in wanted for part in (self.sequence(name), max(0, count))]
        (taken,) = self.wire.rows(sql.NEXT_NUMBERS, params)
        for (name, _), more in zip(wanted, taken, strict=True):
            getattr(numbers, name).extend(more)

    # ---- tasks

    def _tie(self, record: Record) -> int:
        return self.numbers.tie(record.number, record.key >> NUMBER_BITS & TIE_MASK, self.rules.tie)

    def _name_births(self) -> None:
        """What is new, as it will be known and stand in a lane."""
        for record in self.births:
            number, task = self.base | self.numbers.task(record.number), record.task
            order = (task.precedence, task.priority + 0.0, self._tie(record), number, record.due)
            self.newborn[record.key << DUE_BITS | record.due] = order

    def _write_births(self) -> None:
        if not self.births:
            return
        if all(record.is_plain() for record in self.births):
            told, statement, birth = columns.BIRTH_COLUMNS, sql.INSERT_NEW_TASKS, self._birth
        else:
            told, statement, birth = columns.TASK_COLUMNS, sql.INSERT_TASKS, self._whole_birth
        self.wire.send(
            statement, (*row_arrays([*map(birth, self.births)], types_of(told)), self.now)
        )

    def _write_growth(self) -> None:
        """Queues of which nothing else was asked."""
        for lane, statement in enumerate(sql.FAST_ADD):
            grown = [(queue, queue.lane(lane).head) for queue in self.growing]
            told = [
                (self.base | queue.number, len(entries), *self.newborn[min(entries)])
                for queue, entries in grown
                if entries
            ]
            if told:
                arrays = map(number_array, zip(*told, strict=True))
                by_turn = self.by_turn
                params = (self.now, self.now, by_turn, *arrays, by_turn, by_turn)
                self.wire.send(statement, params)
        self.growing = []

    def _birth(self, record: Record) -> rows.Row:
        """In the order of `BIRTH_COLUMNS`."""
        queue = self.base | self.numbers.queue(record.queue.number)
        _, _, tie, number, due = self.newborn[record.key << DUE_BITS | record.due]
        about = rows.about_of(record.task, queue)
        return (number, self.id, record.task.fingerprint.hex(), record.discovered, *about, tie, due)

    def _whole_birth(self, record: Record) -> rows.Row:
        """In the order of `TASK_COLUMNS`."""
        *told, tie, _ = self._birth(record)
        return (*told, *rows.fate_of(record, tie))

    def _write_tasks(self) -> None:
        """What visits made of tasks, and what a new link says of them."""
        known = [(r, self.tasks_were[n]) for n, r in self.dirty.items() if n in self.tasks_were]
        if known:  # a birth told all of it
            self._write_fates(known)
        abouts = [
            (self.base | record.number, *rows.about_of(record.task, self._id_of(record.queue)))
            for record, was in known
            if record.task is not was.task or record.queue.number != was.queue
        ]
        self._send(sql.UPDATE_TASK_DESCRIPTIONS, columns.DESCRIPTION_COLUMNS, abouts)

    def _write_fates(self, known: list[tuple[Record, TaskWas]]) -> None:
        """Only the parts that changed of any of them."""
        before = list(zip(*[was.fate for _, was in known], strict=True))
        after = list(zip(*[self._fate(record, was) for record, was in known], strict=True))
        touched = [part for part, at in enumerate(columns.FATES) if after[at] != before[at]]
        if touched:
            statement, told = sql.update_tasks(tuple(touched))
            by_column: list[Sequence[Any]] = [[self.base | record.number for record, _ in known]]
            by_column += [column for part in touched for column in after[columns.FATES[part]]]
            self.wire.send(statement, column_arrays(by_column, types_of(told)))

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
        ended: list[rows.Row] = []
        lent: list[rows.Row] = []
        for number, record in self.moved.items():
            was = self.tasks_were.get(number)
            lease = _lease_of(record)
            if was is not None and lease != was.lease:
                if was.lease:
                    ended.append((self.base | number,))
                if lease:
                    lent.append(rows.lease_row(record, self.base, self.id))
        ended.sort()  # in the order in which others may lock them
        self._send(sql.DELETE_LEASES, columns.LEASE_COLUMNS[:1], ended)
        self._send(sql.INSERT_LEASES, columns.LEASE_COLUMNS, lent)

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
                fate = self._fate(record, was) if number in self.dirty else was.fate
                told_of_task = (record.task, record.queue.number, fate, _lease_of(record))
                self.tasks_were[number] = TaskWas(*told_of_task)
        self.births, self.newborn, self.dirty, self.moved = [], {}, {}, {}


def _is_sooner(one: Changed) -> bool:
    """Whether it stands now, or wakes sooner than before."""
    (_, _, ranks, alarm, place), (_, _, new_ranks, at, new_place) = one.was, one.told
    stands = new_ranks != (0, 0) or new_place
    is_new = ranks == (0, 0) and not place
    return bool(stands and is_new) or 0 < at < (alarm or at + 1)


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
