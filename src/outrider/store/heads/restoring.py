"""A crawl comes back from what was saved of it: queues and tasks stand where they stood (I5).

Until its end has come the crawl is paused for `RESTORING`. A queue that stood tells by its `place`
where: below 0 among the ready, above 0 there in the inactive FIFO; it stands again as soon as it
has a due task, since nothing may stand that cannot be served.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from heapq import heappush
from typing import Final

import msgspec

from outrider.core.order import DUE_BITS, task_key
from outrider.core.outcome import Answer
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import PolitenessState, Task
from outrider.store.export_items import (
    RESTORING,
    Saved,
    SavedCrawl,
    SavedEnd,
    SavedQueue,
    SavedTask,
    task_of,
)
from outrider.store.heads.adding import Adding
from outrider.store.heads.records import (
    COLUMNS,
    INACTIVE,
    NEITHER,
    READY,
    Kind,
    Queue,
    Record,
)
from outrider.store.heads.standing import parked_key

_AMONG_THE_READY: Final = -1
_STATES: Final = {state.value: state for state in TaskState}
PENDING: Final = TaskState.PENDING


class Restoring(Adding):
    """How a crawl comes back."""

    @property
    def is_restoring(self) -> bool:
        """Whether its end is still to come."""
        return self.status is CrawlStatus.PAUSED and self.reason == RESTORING

    def refusal(self, saved: Sequence[Saved]) -> str | None:
        """Why this cannot be taken in, or None; nothing is changed."""
        begins = isinstance(saved[0], SavedCrawl)
        if begins:
            fault = self._fault_of_beginning(saved[0])  # type: ignore[arg-type] # just asked
            if fault is not None:
                return fault
        if any(isinstance(item, SavedCrawl) for item in saved[1:]):
            return "saved: a SavedCrawl comes first, and once"
        if any(isinstance(item, SavedEnd) for item in saved[:-1]):
            return "saved: a SavedEnd comes last"
        return self._fault_of_strangers(saved, is_open=begins or self.is_restoring)

    def _fault_of_beginning(self, saved: SavedCrawl) -> str | None:
        if self.is_restoring:
            if saved.created == self.created:
                return None
            what = "is being restored from another export"
        elif self.status is CrawlStatus.CANCELLED:
            what = "was cancelled"
        elif self.count:
            what = f"has {self.count} tasks"
        else:
            return None
        return f"crawl {self.name!r} {what}: restore into one that has none, by another name"

    def _fault_of_strangers(self, saved: Sequence[Saved], *, is_open: bool) -> str | None:
        """What is new comes between a crawl's beginning and its end, a queue before its tasks."""
        keys: set[str] = set()
        for item in saved:
            if isinstance(item, SavedQueue):
                keys.add(item.key)
            elif isinstance(item, SavedTask) and item.key not in keys:
                if self.queue_at(item.key) is None:
                    return f"task {item.url}: its queue {item.key!r} comes before it"
                keys.add(item.key)
        if not is_open and any(self._is_strange(item) for item in saved):
            return f"crawl {self.name!r} is not being restored: its SavedCrawl comes first"
        return None

    def _is_strange(self, item: Saved) -> bool:
        if isinstance(item, SavedTask):
            return self.find(item.fingerprint) is None
        return isinstance(item, SavedQueue) and self.queue_at(item.key) is None

    def restore(self, saved: Sequence[Saved], now: int) -> int:
        """Take in what was not refused; how many items were not there yet."""
        tasks = [task_of(self.name, item) for item in saved if isinstance(item, SavedTask)]
        self.expect(tasks)
        waiting, count = iter(tasks), 0
        for item in saved:
            if isinstance(item, SavedTask):
                count += self._restore_task(next(waiting), item, now)
            elif isinstance(item, SavedQueue):
                count += self._restore_queue(item, now)
            elif isinstance(item, SavedCrawl):
                count += self._begin_restoring(item)
            else:
                count += self._end_restoring(item, now)
        return count

    def _begin_restoring(self, saved: SavedCrawl) -> bool:
        if self.is_restoring:
            return False
        self.created, self.is_told, self.settings = saved.created, saved.is_told, saved.settings
        self.obey(saved.rules)
        for mode, roots in saved.roots.items():
            self.add_roots(mode, roots)
        self.status, self.reason = CrawlStatus.PAUSED, RESTORING
        return True

    def _end_restoring(self, saved: SavedEnd, now: int) -> bool:
        if not self.is_restoring:
            return False
        self.status, self.reason, self.at_finish = saved.status, saved.reason, saved.at_finish
        self.counter = max(self.counter, saved.counter)
        self.arrivals = max(self.arrivals, saved.arrivals, self.count)
        self.dones, self.bytes, self.runs = saved.dones, saved.bytes, saved.runs
        self.first, self.finished = _instant(saved.first), _instant(saved.finished)
        self.outcomes, self.visits = Counter(saved.outcomes), sum(saved.outcomes.values())
        self.timeline = deque(saved.timeline, self.timeline.maxlen)
        self.is_idle = True  # only makes the next task look whether a new run begins
        self.logged = max(self.logged, saved.logged)
        self.note(now, "crawl-restored", self.name, saved.status.value)
        if self.pending > self.held:  # told as pending, and done before the end was told
            self._worked(now)
        return True

    # ---- queues

    def _restore_queue(self, saved: SavedQueue, now: int) -> bool:
        if self.queue_at(saved.key) is not None:
            return False
        counter, queue = self.counter, self._new_queue(saved.key)
        self.counter = max(counter, saved.turn, saved.place)
        _fill(queue, saved)
        if saved.standing is not None and self._may_stand(queue, now):
            queue.place = saved.place if saved.standing == "inactive" else _AMONG_THE_READY
        return True

    def _may_stand(self, queue: Queue, now: int) -> bool:
        """Whether a due task is all it wants."""
        is_free = queue.retired is None and not queue.paused and queue.in_flight < queue.slots
        return is_free and queue.next_ready <= now

    def _stand_again(self, queue: Queue) -> None:
        self.mark(queue)
        self.standing += 1
        if queue.place < 0:
            queue.standing, queue.place = READY, 0
            self._rank(queue)
        else:
            queue.standing = INACTIVE
            heappush(self.parked, parked_key(queue))

    # ---- tasks

    def _restore_task(self, task: Task, saved: SavedTask, now: int) -> bool:
        shard = self.known[task.fingerprint[0]]
        if task.fingerprint in shard:
            return False
        queue = self.queue_at(task.key)
        assert queue is not None  # noqa: S101 - what has none was refused
        self.count = shard[task.fingerprint] = self.count + 1
        record = _record_of(self.count, task, saved, queue, self._kind(task))
        self.born(record)
        if not record.is_plain():
            self.changed(record)
        self._mark_kind(record.kind)
        record.kind.counts[COLUMNS[record.state]] += 1
        self._count(queue, record.state, 1)
        if record.state is PENDING:
            self._wait_again(queue, record, now)
        else:
            self.mark(queue)
        if record.claimed > queue.last_start:
            self._visited_since(queue, record, now)
        return True

    def _visited_since(self, queue: Queue, record: Record, now: int) -> None:
        """D7: its queue was told before this visit, so the visit's end is learned from the task."""
        self.mark(queue)
        ended = min(now, record.due if record.finished < 0 else record.finished)
        queue.last_start, queue.last_end = record.claimed, max(queue.last_end, ended)
        queue.postpone(ended + queue.delay_ms(), "delay")
        queue.keep_pace()
        if queue.next_ready > now:
            self._stand_down(queue)
            self._set_alarm(queue, self._alarm_at(queue, now))

    def _wait_again(self, queue: Queue, record: Record, now: int) -> None:
        lane, key, due = record.task.lane, record.key, record.due
        queue.enter(lane, key, due, now)
        if due <= now:
            if queue.standing == READY and queue.lane(lane).head[0] == key << DUE_BITS | due:
                self._rank(queue)
            elif queue.standing == NEITHER and queue.place and self._may_stand(queue, now):
                self._stand_again(queue)
        self._alarm_for(queue, due, now)

    def _alarm_for(self, queue: Queue, due: int, now: int) -> None:
        """`_alarm_at` for one more task, without a look at the others."""
        if queue.standing != NEITHER:
            at = due if due > now else 0
        else:
            at = 0 if queue.paused or queue.retired is not None else max(queue.next_ready, due)
        if at and (not queue.alarm or at < queue.alarm):
            self._set_alarm(queue, at)


def _fill(queue: Queue, saved: SavedQueue) -> None:
    queue.turn, queue.paused, queue.retired = saved.turn, saved.paused, saved.retired
    queue.session = -1 if saved.session is None else saved.session
    queue.spent, queue.next_ready, queue.why = saved.spent, saved.next_ready, saved.why
    queue.last_start, queue.last_end = _instant(saved.last_start), _instant(saved.last_end)
    queue.manners = PolitenessState(
        saved.level,
        saved.calm,
        saved.throttles_in_row,
        saved.unreachable_in_row,
        saved.blocks_in_row,
        -1.0 if saved.last_delay is None else saved.last_delay,
        saved.crawl_delay,
    )
    queue.errors, queue.dones, queue.bytes = saved.errors, saved.dones, saved.bytes
    queue.last_cost, queue.cost_sum = saved.last_cost, saved.cost_sum
    queue.cost_count = saved.cost_count
    paused, retired = saved.said
    queue.rules = msgspec.structs.replace(queue.rules, paused=paused, retired=retired)
    queue.measure_gap()


def _record_of(number: int, task: Task, saved: SavedTask, queue: Queue, kind: Kind) -> Record:
    answer = saved.answer
    return Record(
        number,
        task,
        queue,
        kind,
        task_key(task.precedence, task.priority, saved.tie, number),
        saved.discovered if saved.due is None else saved.due,
        saved.discovered,
        _STATES[saved.state],
        0,
        saved.attempts,
        saved.failures,
        saved.crashes,
        saved.throttles,
        0,
        _instant(saved.claimed),
        _instant(saved.finished),
        saved.reason,
        None,
        None if answer is None else Answer(*msgspec.structs.astuple(answer)),
        saved.history,
        answered=_instant(saved.answered),
    )


def _instant(at: int | None) -> int:
    return -1 if at is None else at
