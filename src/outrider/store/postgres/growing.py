"""Queues that only grow: new tasks join a lane of theirs, and nothing else about them is asked.

Most links lead to queues of which only the first task and the count matter: those are locked but
not loaded, and one statement lets them grow (see `fast_path.sql`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from outrider.core.order import LANE_BYTES, NUMBER_MASK
from outrider.core.policy.rules import CrawlRules, QueueRules
from outrider.core.task import Task
from outrider.store.heads.lines import Line
from outrider.store.heads.records import INACTIVE, Queue, new_queue
from outrider.store.postgres import sql
from outrider.store.postgres.arrays import number_array, text_array
from outrider.store.postgres.loading import QUEUE_AT, Asked, Loading
from outrider.store.postgres.rows import Row

_NO_RULES: Final = QueueRules()


class Arrivals(Line, gc=False, eq=False):
    """A lane of which only those who join are at hand, in no order."""

    def push(self, entry: int) -> None:
        """See `Line`."""
        self.head.append(entry)


class Growing(Loading):
    """A crawl of which some queues at hand can do nothing but grow."""

    def __init__(
        self, name: str, store: str, rulebook: dict[int, CrawlRules], epoch: int, now: int
    ) -> None:
        super().__init__(name, store, rulebook, epoch, now)
        self.growing: list[Queue] = []
        self.stirs = False  # whether somebody who waits might be served sooner
        self._grow_only: set[str] = set()  # keys to which due tasks come, and nothing else

    def _ask_for_ends(self, numbers: list[int], new: list[Task], again: list[Task]) -> Asked:
        more = {task.key for task in (*new, *again) if task.delay or task.known != "keep"}
        self._grow_only = {task.key for task in new} - more
        if not self._grow_only or self._looks_at_all():
            self._grow_only = set()
            return super()._ask_for_ends(numbers, new, again)
        ids = number_array(self.base | n for n in numbers)
        names = [*{task.key: None for task in (*new, *again)}]
        queues = self.wire.send(sql.LOCK_QUEUES, (ids, self.id, text_array(names)))
        tasks = self.wire.send(sql.LOAD_TASKS, (ids,)) if numbers else None
        return Asked(names, queues, tasks)

    def _looks_at_all(self) -> bool:
        """Whether a new task may concern more than its queue."""
        rules = self.rules
        is_bounded = rules.max_pending or rules.max_pending_per_queue
        may_open = rules.opens_below is not None  # C9: an inactive queue is judged for it
        return bool(self.is_held or self.is_idle or is_bounded or may_open or self._held)

    def _take_ends(self, asked: Asked) -> None:
        if not self._grow_only:
            super()._take_ends(asked)
            return
        tasks = asked.tasks.fetchall() if asked.tasks is not None else []
        queues = asked.queues.fetchall() if asked.queues is not None else []
        self._seat_all(queues, {row[QUEUE_AT] for row in tasks})
        self._absent.update(key for key in asked.keys if key not in self._by_key)
        self._take_tasks(tasks)

    def _seat_all(self, queues: Iterable[Row], whole: set[int]) -> None:
        """Some as they can grow; the others as they are, under the locks they have by now."""
        rest: list[int] = []
        for row in queues:
            number, key, is_routine, _ = row
            if is_routine and key in self._grow_only and number not in whole:
                self._seat_growing(row)
            else:
                rest.append(number)
        if rest:
            self._seated(self.wire.rows(sql.QUEUES_BY_ID.read, (number_array(rest),)))

    def _seat_growing(self, row: Row) -> None:
        queue = new_queue(row[1], row[0] & NUMBER_MASK, 0, _NO_RULES)
        queue.lane0, queue.lane1 = Arrivals(LANE_BYTES, []), Arrivals(LANE_BYTES, [])
        queue.standing = INACTIVE  # nobody judges it for a task that came
        self._by_key[queue.key] = queue
        self.growing.append(queue)
        self.stirs = self.stirs or row[3]
