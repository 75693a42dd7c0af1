"""Restoring a crawl from its export: queues and tasks get their old places back (I5).

Until its end has been restored the crawl is paused with the reason `RESTORING`. `inactive_turn`
says where a queue was listed: below 0 ready, above 0 at that place of the inactive list. A queue is
listed again as soon as it has a due task, since no queue may be listed that cannot be served.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final, final

import msgspec

from outrider.core.order import DUE_BITS, task_key
from outrider.core.outcome import Answer
from outrider.core.policy.rules import CrawlRules
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import PolitenessState, Task
from outrider.store.engine import fields
from outrider.store.engine.add import Adder
from outrider.store.engine.fields import QUEUE_FIELDS, TASK_FIELDS
from outrider.store.engine.port import Journal, QueueTable, TaskTable
from outrider.store.engine.records import (
    COLUMNS,
    INACTIVE,
    READY,
    UNLISTED,
    Queue,
    TaskCounts,
    TaskRecord,
)
from outrider.store.engine.schedule import Schedule
from outrider.store.engine.state import CrawlState
from outrider.store.engine.transitions import Transitions
from outrider.store.export_items import (
    RESTORING,
    Saved,
    SavedCrawl,
    SavedEnd,
    SavedQueue,
    SavedTask,
    task_of,
)

_WAS_READY: Final = -1
_STATES: Final = {state.value: state for state in TaskState}
PENDING: Final = TaskState.PENDING


@final
class Restorer:
    """Takes in the items of an export."""

    __slots__ = (
        "_adder",
        "_journal",
        "_queues",
        "_schedule",
        "_state",
        "_tasks",
        "_transitions",
        "_use_rules",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - the parts it uses
        self,
        state: CrawlState,
        tasks: TaskTable,
        queues: QueueTable,
        journal: Journal,
        schedule: Schedule,
        transitions: Transitions,
        adder: Adder,
        use_rules: Callable[[CrawlRules], None],
    ) -> None:
        self._state, self._tasks, self._queues, self._journal = state, tasks, queues, journal
        self._schedule, self._transitions, self._adder = schedule, transitions, adder
        self._use_rules = use_rules

    @property
    def is_under_way(self) -> bool:
        """Whether the end of the export is still to come."""
        return self._state.status is CrawlStatus.PAUSED and self._state.reason == RESTORING

    def refusal(self, saved: Sequence[Saved]) -> str | None:
        """Return why these items cannot be restored, or None; changes nothing."""
        begins = isinstance(saved[0], SavedCrawl)
        if begins:
            reason = self._begin_refusal(saved[0])  # type: ignore[arg-type] # checked above
            if reason is not None:
                return reason
        if any(isinstance(item, SavedCrawl) for item in saved[1:]):
            return "saved: a SavedCrawl comes first, and once"
        if any(isinstance(item, SavedEnd) for item in saved[:-1]):
            return "saved: a SavedEnd comes last"
        return self._order_refusal(saved, is_open=begins or self.is_under_way)

    def _begin_refusal(self, saved: SavedCrawl) -> str | None:
        state = self._state
        if self.is_under_way:
            if saved.created == state.created:
                return None
            what = "is being restored from another export"
        elif state.status is CrawlStatus.CANCELLED:
            what = "was cancelled"
        elif state.known:
            what = f"has {state.known} tasks"
        else:
            return None
        return f"crawl {state.name!r} {what}: restore into one that has none, by another name"

    def _order_refusal(self, saved: Sequence[Saved], *, is_open: bool) -> str | None:
        """New items come between a crawl's beginning and its end, a queue before its tasks."""
        keys: set[str] = set()
        for item in saved:
            if isinstance(item, SavedQueue):
                keys.add(item.key)
            elif isinstance(item, SavedTask) and item.key not in keys:
                if self._queues.find(item.key) is None:
                    return f"task {item.url}: its queue {item.key!r} comes before it"
                keys.add(item.key)
        if not is_open and any(self._is_new(item) for item in saved):
            return f"crawl {self._state.name!r} is not being restored: its SavedCrawl comes first"
        return None

    def _is_new(self, item: Saved) -> bool:
        if isinstance(item, SavedTask):
            return self._tasks.find(item.fingerprint) is None
        return isinstance(item, SavedQueue) and self._queues.find(item.key) is None

    def restore(self, saved: Sequence[Saved], now: int) -> int:
        """Restore items that were not refused; return how many were new."""
        tasks = [task_of(self._state.name, item) for item in saved if isinstance(item, SavedTask)]
        self._tasks.prefetch(tasks)
        remaining, count = iter(tasks), 0
        for item in saved:
            if isinstance(item, SavedTask):
                count += self._restore_task(next(remaining), item, now)
            elif isinstance(item, SavedQueue):
                count += self._restore_queue(item, now)
            elif isinstance(item, SavedCrawl):
                count += self._begin(item)
            else:
                count += self._end(item, now)
        return count

    def _begin(self, saved: SavedCrawl) -> bool:
        if self.is_under_way:
            return False
        state = self._state
        state.created, state.settings = saved.created, saved.settings
        state.rules_applied = saved.is_told
        self._use_rules(saved.rules)
        for mode, roots in saved.roots.items():
            self._journal.add_roots(mode, roots)
        state.status, state.reason = CrawlStatus.PAUSED, RESTORING
        return True

    def _end(self, saved: SavedEnd, now: int) -> bool:
        if not self.is_under_way:
            return False
        state = self._state
        state.status, state.reason, state.at_finish = saved.status, saved.reason, saved.at_finish
        state.last_turn = max(state.last_turn, saved.counter)
        state.last_arrival = max(state.last_arrival, saved.arrivals, state.last_task)
        state.visits_done, state.bytes, state.runs = saved.dones, saved.bytes, saved.runs
        state.started, state.finished = _or_never(saved.first), _or_never(saved.finished)
        state.recovered = saved.recovered
        state.outcomes, state.visits = Counter(saved.outcomes), sum(saved.outcomes.values())
        state.timeline = deque(saved.timeline, state.timeline.maxlen)
        state.is_idle = True  # so the next task checks whether a new run starts
        state.last_event = max(state.last_event, saved.logged)
        state.add_event(now, "crawl-restored", state.name, saved.status.value)
        if state.pending > state.retired_pending:  # exported as pending, finished before the end
            state.start_run(now)
        return True

    # ---- queues

    def _restore_queue(self, saved: SavedQueue, now: int) -> bool:
        if self._queues.find(saved.key) is not None:
            return False
        last_turn, queue = self._state.last_turn, self._adder.new_queue(saved.key)
        self._state.last_turn = max(last_turn, saved.turn, saved.place)
        _fill_queue(queue, saved)
        if saved.standing is not None and _can_be_listed(queue, now):
            queue.inactive_turn = saved.place if saved.standing == "inactive" else _WAS_READY
        return True

    def _relist(self, queue: Queue) -> None:
        self._state.mark_dirty(queue)
        if queue.inactive_turn < 0:
            queue.list_state, queue.inactive_turn = READY, 0
        else:
            queue.list_state = INACTIVE
        self._schedule.relist(queue)

    # ---- tasks

    def _restore_task(self, task: Task, saved: SavedTask, now: int) -> bool:
        state, shard = self._state, self._tasks.known[task.fingerprint[0]]
        if task.fingerprint in shard:
            return False
        state.note_texts(task)
        queue = self._queues.find(task.key)
        assert queue is not None  # noqa: S101 - a task without a queue was refused
        state.last_task = shard[task.fingerprint] = state.last_task + 1
        record = _record_of(state.last_task, task, saved, queue, state.counts_of(task))
        self._tasks.insert(record)
        if not record.is_untouched():
            self._tasks.update(record)
        state.mark_counts_dirty(record.counts)
        record.counts.by_state[COLUMNS[record.state]] += 1
        self._transitions.count(queue, record.state, 1)
        state.forgotten += record.is_forgotten()
        if record.state is PENDING:
            state.count_priority(task.priority, 1)
            self._enqueue(queue, record, now)
        else:
            state.mark_dirty(queue)
        if record.claimed > queue.last_start:
            self._add_later_visit(queue, record, now)
        return True

    def _add_later_visit(self, queue: Queue, record: TaskRecord, now: int) -> None:
        """D7: apply a visit that began after its queue was exported: its end is the task's."""
        self._state.mark_dirty(queue)
        ended = min(now, record.due if record.finished < 0 else record.finished)
        queue.last_start, queue.last_end = record.claimed, max(queue.last_end, ended)
        queue.postpone(ended + queue.delay_ms(), "delay")
        queue.apply_pace()
        if queue.next_ready > now:
            self._schedule.unlist(queue)
            self._schedule.set_wake(queue, self._schedule.next_wake(queue, now))

    def _enqueue(self, queue: Queue, record: TaskRecord, now: int) -> None:
        lane, key, due = record.task.lane, record.key, record.due
        queue.enter(lane, key, due, now)
        if due <= now:
            if queue.list_state == READY and queue.lane(lane).head[0] == key << DUE_BITS | due:
                self._schedule.update_ready_keys(queue)
            elif (
                queue.list_state == UNLISTED and queue.inactive_turn and _can_be_listed(queue, now)
            ):
                self._relist(queue)
        self._set_wake_for(queue, due, now)

    def _set_wake_for(self, queue: Queue, due: int, now: int) -> None:
        """Set the wake time for one more task, without scanning the others."""
        if queue.list_state != UNLISTED:
            at = due if due > now else 0
        else:
            at = 0 if queue.paused or queue.retired is not None else max(queue.next_ready, due)
        if at and (not queue.wake_at or at < queue.wake_at):
            self._schedule.set_wake(queue, at)


def _can_be_listed(queue: Queue, now: int) -> bool:
    """Return whether a queue with a due task could be served."""
    is_free = queue.retired is None and not queue.paused and queue.in_flight < queue.slots
    return is_free and queue.next_ready <= now


def _compile_fill_queue() -> Callable[[Queue, SavedQueue], None]:
    values = fields.imported_values(QUEUE_FIELDS, "saved")
    plain = {name: value for name, value in values.items() if "." not in name and name != "key"}
    part = {name[len("politeness.") :]: value for name, value in values.items() if "." in name}
    politeness = fields.arguments(PolitenessState.__struct_fields__, part, {})
    body = [
        *(f"queue.{name} = {value}" for name, value in plain.items()),
        f"queue.politeness = PolitenessState({', '.join(politeness)})",
        "paused, retired = saved.said",
        "queue.rules = replace(queue.rules, paused=paused, retired=retired)",
        "queue.update_gap()",
    ]
    scope = {"PolitenessState": PolitenessState, "replace": msgspec.structs.replace}
    return fields.compile_function("_fill_queue", "queue, saved", body, scope)  # type: ignore[no-any-return]


def _compile_record_of() -> Callable[[int, Task, SavedTask, Queue, TaskCounts], TaskRecord]:
    computed = {
        "number": "number",
        "task": "task",
        "queue": "queue",
        "counts": "counts",
        "key": "task_key(task.precedence, task.priority, saved.tie, number)",
        "due": "saved.discovered if saved.due is None else saved.due",
        "state": "STATES[saved.state]",
        "answer": "None if saved.answer is None else Answer(*astuple(saved.answer))",
    }
    imported = fields.imported_values(TASK_FIELDS, "saved")
    values = {name: value for name, value in imported.items() if "." not in name} | computed
    arguments = ", ".join(f"{name}={value}" for name, value in values.items())
    scope = {
        "TaskRecord": TaskRecord,
        "Answer": Answer,
        "STATES": _STATES,
        "task_key": task_key,
        "astuple": msgspec.structs.astuple,
    }
    body = [f"return TaskRecord({arguments})"]
    parameters = "number, task, saved, queue, counts"
    return fields.compile_function("_record_of", parameters, body, scope)  # type: ignore[no-any-return]


_fill_queue: Final = _compile_fill_queue()
_record_of: Final = _compile_record_of()


def _or_never(at: int | None) -> int:
    return -1 if at is None else at
