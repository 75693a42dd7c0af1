"""The queues a verb touches, as heads know them; whoever writes locks them when it loads them.

All that belongs to a queue changes under its lock. What was loaded is remembered as it was, so that
only what changed is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from outrider.core.order import DELAYED_BYTES, LANE_BYTES, NUMBER_BITS, NUMBER_MASK
from outrider.core.policy.rules import CrawlRules, covers
from outrider.store.heads.crawl import Crawl
from outrider.store.heads.records import (
    INACTIVE,
    READY,
    SHARDS,
    Queue,
    new_queue,
)
from outrider.store.heads.standing import parked_key
from outrider.store.postgres import queue_rows, rows, sql
from outrider.store.postgres.arrays import number_array, text_array
from outrider.store.postgres.columns import (
    ACQUISITION,
    DISCOVERY,
    NUMBERS,
    RULED,
)
from outrider.store.postgres.lazy_list import Shelf
from outrider.store.postgres.pipeline import Pipeline
from outrider.store.postgres.provisional_ids import LAST_QUEUE, LAST_TURN, ProvisionalIds

PAGE: Final = 1000  # keys looked at together


class QueueWas(NamedTuple):
    """A queue as its rows tell; what it was born as, nothing at all."""

    numbers: rows.Row = ()
    tops: tuple[int, int, int] = (0, 0, 0)
    ranks: tuple[int, int] = (0, 0)
    alarm: int = 0
    parked: int = 0


class _Whole(list[dict[int, Queue]]):
    """All queues in one piece, whatever their numbers."""

    def __init__(self, piece: dict[int, Queue]) -> None:
        super().__init__([piece])
        self._piece = piece

    def __getitem__(self, at: Any) -> Any:
        return self._piece

    def append(self, piece: dict[int, Queue]) -> None:
        """No more pieces."""


class Rest:
    """Where the rest of a queue's lines is."""

    def __init__(self, wire: Pipeline) -> None:
        self._wire = wire

    def more(self, queue: int, place: int, after: int, limit: int) -> list[int]:
        """See `lines.Fetch`."""
        base = queue >> NUMBER_BITS << NUMBER_BITS
        if place < 2:
            *order, number, _ = rows.lane_parts(after)
            params = (queue, place, *order, base | number, limit)
            return [rows.lane_entry(*row) for row in self._wire.rows(sql.LANE_AFTER, params)]
        _, (*order, number, due) = rows.delayed_parts(after)
        params = (queue, due, *order, base | number, limit)
        return [rows.delayed_entry(*row) for row in self._wire.rows(sql.DELAYED_AFTER, params)]


class Seating(Crawl):
    """A crawl of whose queues only some are at hand."""

    is_held = False  # whether nobody else works on it

    def __init__(
        self, name: str, store: str, rulebook: dict[int, CrawlRules], epoch: int, now: int
    ) -> None:
        super().__init__(name, store, rulebook[epoch], now)
        self.now = now
        self.epoch, self.rulebook = epoch, dict(rulebook)
        self.id = self.base = 0
        self.writes = False
        self.queues_were: dict[int, QueueWas] = {}
        self.numbers = ProvisionalIds()
        self.entries: dict[int, rows.Row] = {}  # of lanes: the columns they were read from
        self._obeying: dict[rows.Row, Queue] = {}  # by what their rows tell of their rules
        self._by_key: dict[str, Queue] = {}
        self._absent: set[str] = set()
        self.keys = [self._by_key] * SHARDS
        self._held: dict[int, Queue] = {}
        self.queues = _Whole(self._held)
        self.queue_count = LAST_QUEUE
        self.counter = LAST_TURN

    def attach(self, crawl: int, wire: Pipeline, *, writes: bool) -> None:
        """Where its rows are."""
        self.id, self.base = crawl, crawl << NUMBER_BITS
        self.wire, self.writes = wire, writes
        self._rest = Rest(wire)

    def turn_over(self, rules: CrawlRules) -> None:
        """See `Ledger`: queues that were not told keep their rules, however many those are."""
        self.epoch += 1
        self.obey(rules)

    # ---- queues

    def _locked(self, statement: sql.Lockable) -> str:
        return statement.lock if self.writes else statement.read

    def _seated(self, found: Iterable[rows.Row]) -> list[Queue]:
        return [self.seat(row) for row in found]

    def load_keys(self, keys: Iterable[str]) -> None:
        """Have the queues of these keys at hand, those that exist."""
        keys = [key for key in keys if key not in self._by_key and key not in self._absent]
        if keys:
            params = (self.id, text_array(keys))
            self._seated(self.wire.rows(self._locked(sql.QUEUES_BY_KEY), params))
            self._absent.update(key for key in keys if key not in self._by_key)

    def load_queues(self, numbers: Iterable[int]) -> None:
        """Have these queues at hand."""
        wanted = number_array(self.base | number for number in numbers if number not in self._held)
        if wanted != "{}":
            self._seated(self.wire.rows(self._locked(sql.QUEUES_BY_ID), (wanted,)))

    def queue_at(self, key: str) -> Queue | None:
        """See `Ledger`."""
        self.load_keys((key,))
        return self._by_key.get(key)

    def queue_of(self, number: int) -> Queue:
        """See `Ledger`."""
        self.load_queues((number,))
        return self._held[number]

    def alarm_of(self, number: int) -> int:
        """See `Ledger`."""
        return self.queue_of(number).alarm

    def glimpses(self, numbers: range) -> Iterator[Queue]:
        """See `Ledger`; between them some numbers may be nobody's."""
        span = (self.base + numbers.start - 1, self.base + numbers.stop - 1)
        return iter(self._seated(self.wire.rows(self._locked(sql.QUEUES_BETWEEN), span)))

    def reached(self, target: str, after: int) -> Iterator[Queue]:
        """See `Ledger`; only those that are reached are locked."""
        at, end = self.base | after, self.base | NUMBER_MASK
        while keys := self.wire.rows(sql.KEYS_AFTER, (at, end, PAGE)):
            numbers = [row & NUMBER_MASK for row, key in keys if covers(target, key)]
            self.load_queues(numbers)
            yield from [self._held[number] for number in numbers]
            at = keys[-1][0]

    def seat(self, row: rows.Row) -> Queue:
        """A queue as its row tells, at hand from now on."""
        number = row[0] & NUMBER_MASK
        seated: Queue | None = self._held.get(number)
        if seated is not None:
            return seated
        tops, like = queue_rows.tops_of(row), self.like(row[2], row[RULED])
        queue = queue_rows.queue_in(row, like, tops, self._rest)
        self._by_key[queue.key] = self._held[number] = queue
        if tops[0]:
            self.entries[tops[0]] = row[DISCOVERY]
        if tops[1]:
            self.entries[tops[1]] = row[ACQUISITION]
        if queue.standing:
            self._stand(queue)
        self.queues_were[number] = QueueWas(
            row[NUMBERS],
            tops,
            (queue.rank0, queue.rank1),
            queue.alarm,
            parked_key(queue) if queue.standing == INACTIVE else 0,
        )
        return queue

    def like(self, key: str, ruled: rows.Row) -> Queue:
        """One that obeys the rules of a queue; most share theirs."""
        like = self._obeying.get(ruled)
        if like is None:
            epoch, *said = ruled
            told = self.rulebook.get(epoch) or self.rulebook[min(self.rulebook)]
            rules = told.of(key)
            if [rules.paused, rules.retired] != said:
                rules = msgspec.structs.replace(rules, paused=said[0], retired=said[1])
            like = new_queue("", 0, 0, rules)
            if told.are_alike:
                self._obeying[ruled] = like
        return like

    def _stand(self, queue: Queue) -> None:
        self.standing += 1
        if queue.standing == READY:
            if queue.lane0.head:
                queue.rank0 = self._queue_key(queue, queue.lane0.head[0], 0.0)
                self.ready[0].push(queue.rank0)
            if queue.lane1.head:
                queue.rank1 = self._queue_key(queue, queue.lane1.head[0], 0.0)
                self.ready[1].push(queue.rank1)

    def _new_queue(self, key: str) -> Queue:
        queue = super()._new_queue(key)
        queue.lane0, queue.lane1 = Shelf(LANE_BYTES, []), Shelf(LANE_BYTES, [])
        queue.delayed = Shelf(DELAYED_BYTES, [])
        self.queues_were[queue.number] = QueueWas()
        return queue


def told_of(queue: Queue) -> QueueWas:
    """All that rows tell of a queue."""
    lane0, lane1, delayed = queue.lane0.head, queue.lane1.head, queue.delayed.head
    return QueueWas(
        queue_rows.numbers_of(queue),
        (
            lane0[0] if lane0 else 0,
            lane1[0] if lane1 else 0,
            delayed[0] if delayed else 0,
        ),
        (queue.rank0, queue.rank1),
        queue.alarm,
        parked_key(queue) if queue.standing == INACTIVE else 0,
    )
