"""What a verb changed of queues, as rows: their numbers, their lines, and where they stand.

All of it happens under the locks of these queues. Rows are gathered by column: that is how they are
compared, and how they are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from outrider.core.order import (
    DUE_BITS,
    NUMBER_BITS,
    NUMBER_MASK,
    PRECEDENCE_LIMIT,
    QUEUE_RANK_SHIFT,
    TURN_BITS,
    queue_precedence,
    unordered,
)
from outrider.core.policy.rules import CrawlRules
from outrider.store.heads.records import Queue
from outrider.store.postgres import columns, rows, sql
from outrider.store.postgres.arrays import column_arrays, row_arrays
from outrider.store.postgres.counting import Counting
from outrider.store.postgres.lazy_list import shelves
from outrider.store.postgres.provisional_ids import LAST_QUEUE, LAST_TURN
from outrider.store.postgres.seating import QueueWas, told_of

_BITS_64: Final = (1 << 64) - 1
_RANK_MASK: Final = (1 << 80) - 1
_TURN_MASK: Final = (1 << TURN_BITS) - 1
_DELAYED: Final = 2  # the place of a queue's third line
_NO_TOP: Final = (None,) * 5
_NO_DELAYED: Final = (None,) * 6


class Changed(NamedTuple):
    """A queue that is other than it was."""

    queue: Queue
    was: QueueWas
    told: QueueWas


class QueueWriting(Counting):
    """How queues are kept."""

    def __init__(
        self, name: str, store: str, rulebook: dict[int, CrawlRules], epoch: int, now: int
    ) -> None:
        super().__init__(name, store, rulebook, epoch, now)
        self.newborn: dict[int, rows.Row] = {}  # entries of lanes: the columns they become

    def _send(self, statement: str, told: columns.Columns, found: Sequence[Sequence[Any]]) -> None:
        """Hand rows in, if there are any."""
        if found:
            self.wire.send(statement, row_arrays(found, types_of(told)))

    def _id_of(self, queue: Queue) -> int:
        number = queue.number
        return self.base | (number if number <= LAST_QUEUE else self.numbers.queue(number))

    # ---- numbers and first tasks

    def _changed_queues(self) -> list[Changed]:
        were, changed = self.queues_were, []
        for number, queue in self._held.items():
            was, told = were[number], told_of(queue)
            if was != told or _lines_moved(queue):
                changed.append(Changed(queue, was, told))
        return changed

    def _numbers(self, told: list[QueueWas]) -> list[Sequence[Any]]:
        """The numbers of queues by column, with turns as they will be known."""
        by_column: list[Sequence[Any]] = list(zip(*[one.numbers for one in told], strict=True))
        for at in (columns.TURN_AT, columns.PLACE_AT):
            if max(by_column[at]) > LAST_TURN:
                by_column[at] = list(map(self.numbers.turn, by_column[at]))
        return by_column

    def _tops(self, told: list[QueueWas], part: int) -> list[Sequence[Any]]:
        """The first entries of one line of queues, by column."""
        entries = [one.tops[part - columns.NUMBER_PARTS] for one in told]
        if part == columns.DELAYED_PART:
            found = [self._delayed_top(e) if e else _NO_DELAYED for e in entries]
        else:
            found = [self._top(e) if e else _NO_TOP for e in entries]
        return list(zip(*found, strict=True))

    def _top(self, entry: int) -> rows.Row:
        known = self.entries.get(entry)
        if known is None or entry >> DUE_BITS & NUMBER_MASK in self.numbers.new_ties:
            known = self.newborn.get(entry) or self._named(rows.lane_parts(entry))
        return known

    def _delayed_top(self, entry: int) -> rows.Row:
        lane, parts = rows.delayed_parts(entry)
        return (lane, *self._named(parts))

    def _named(self, parts: rows.Entry) -> rows.Row:
        """The columns of an entry, its task and tie as they will be known."""
        precedence, priority, tie, number, due = parts
        tie = self.numbers.tie(number, tie, self.rules.tie)
        return precedence, priority, tie, self.base | self.numbers.task(number), due

    def _write_new_queues(self, changed: list[Changed]) -> None:
        new = [one for one in changed if not one.was.numbers]
        if new:
            told = [one.told for one in new]
            numbers = [self._id_of(one.queue) for one in new]
            by_column: list[Sequence[Any]] = [
                numbers,
                [self.id] * len(new),
                [one.queue.key for one in new],
            ]
            by_column += self._numbers(told)
            for part in columns.TOP_PARTS:
                by_column += self._tops(told, part)
            self.wire.send(
                sql.INSERT_QUEUES, column_arrays(by_column, types_of(columns.QUEUE_COLUMNS))
            )

    def _write_queues(self, changed: list[Changed]) -> None:
        """Only the parts that changed of any of them."""
        known = [one for one in changed if one.was.numbers]
        if not known:
            return
        told, touched = [one.told for one in known], []
        before = list(zip(*[one.was.numbers for one in known], strict=True))
        after = self._numbers(told)
        by_column: list[Sequence[Any]] = [[self.base | one.queue.number for one in known]]
        for part, at in enumerate(columns.PARTS[: columns.NUMBER_PARTS]):
            if after[at] != before[at]:
                touched.append(part)
                by_column += after[at]
        for part in columns.TOP_PARTS:
            place = part - columns.NUMBER_PARTS
            if any(one.was.tops[place] != one.told.tops[place] for one in known):
                touched.append(part)
                by_column += self._tops(told, part)
        if touched:
            statement, types = sql.update_queues(tuple(touched))
            self.wire.send(statement, column_arrays(by_column, types_of(types)))

    # ---- lines

    def _write_lines(self, changed: list[Changed]) -> None:
        """What left each line, and what joined it."""
        moved = [
            (self._id_of(queue), place, line)
            for queue, _, _ in changed
            for place, line in shelves(queue)
            if line.removed or line.added
        ]
        lanes = [one for one in moved if one[1] != _DELAYED]
        left = [self._left(queue, place, e) for queue, place, line in lanes for e in line.removed]
        self._send(sql.DELETE_PENDING, columns.PENDING_KEY, left)
        born = self.newborn  # came to their lanes when they were written
        joined = [
            (q, p, *self._top(e)) for q, p, line in lanes for e in line.added if e not in born
        ]
        self._send(sql.INSERT_PENDING, columns.PENDING_COLUMNS, joined)
        if len(moved) > len(lanes):
            late = [(queue, line) for queue, place, line in moved if place == _DELAYED]
            left = [self._left_delayed(queue, e) for queue, line in late for e in line.removed]
            joined = [self._joined_delayed(queue, e) for queue, line in late for e in line.added]
            self._send(sql.DELETE_DELAYED, columns.DELAYED_KEY, left)
            self._send(sql.INSERT_DELAYED, columns.DELAYED_COLUMNS, joined)

    def _left(self, queue: int, lane: int, entry: int) -> rows.Row:
        known = self.entries.get(entry)
        if known is not None:
            return (queue, lane, *known[:4])
        *order, task, _ = rows.lane_parts(entry)
        return (queue, lane, *order, self.base | task)

    def _left_delayed(self, queue: int, entry: int) -> tuple[Any, ...]:
        _, (*order, task, due) = rows.delayed_parts(entry)
        return (queue, due, *order, self.base | task)

    def _joined_delayed(self, queue: int, entry: int) -> tuple[Any, ...]:
        lane, *order, due = self._delayed_top(entry)
        return (queue, due, *order, lane)

    # ---- where queues stand

    def _write_standing(self, changed: list[Changed]) -> None:
        """Where queues no longer stand, and where they stand now."""
        self._write_ready([one for one in changed if one.was.ranks != one.told.ranks])
        self._write_snoozes([one for one in changed if one.was.alarm != one.told.alarm])
        self._write_parked([one for one in changed if one.was.parked != one.told.parked])

    def _write_ready(self, moved: list[Changed]) -> None:
        ranks = [
            (lane, self._id_of(queue), was.ranks[lane], told.ranks[lane])
            for queue, was, told in moved
            for lane in (0, 1)
            if was.ranks[lane] != told.ranks[lane]
        ]
        left = [self._ready_row(lane, was, queue) for lane, queue, was, _ in ranks if was]
        joined = [self._ready_row(lane, rank, queue) for lane, queue, _, rank in ranks if rank]
        self._send(sql.DELETE_READY, columns.READY_COLUMNS, left)
        self._send(sql.INSERT_READY, columns.READY_COLUMNS, joined)

    def _write_snoozes(self, moved: list[Changed]) -> None:
        left = [(self.id, was.alarm, self._id_of(q)) for q, was, _ in moved if was.alarm]
        joined = [(self.id, told.alarm, self._id_of(q)) for q, _, told in moved if told.alarm]
        self._send(sql.DELETE_SNOOZE, columns.SNOOZE_COLUMNS, left)
        self._send(sql.INSERT_SNOOZE, columns.SNOOZE_COLUMNS, joined)

    def _write_parked(self, moved: list[Changed]) -> None:
        left = [self._parked_row(was.parked, self._id_of(q)) for q, was, _ in moved if was.parked]
        joined = [self._parked_row(t.parked, self._id_of(q)) for q, _, t in moved if t.parked]
        self._send(sql.DELETE_INACTIVE, columns.INACTIVE_COLUMNS, left)
        self._send(sql.INSERT_INACTIVE, columns.INACTIVE_COLUMNS, joined)

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


def types_of(told: columns.Columns) -> list[str]:
    """Of columns, in their order."""
    return [kind for _, kind in told]


def _lines_moved(queue: Queue) -> bool:
    return any(line.added or line.removed for _, line in shelves(queue))
