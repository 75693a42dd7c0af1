"""The state of one crawl besides its tasks and queues: status, rules, counters, events."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, final

from outrider.core.order import ordered
from outrider.core.policy.rules import CrawlRules, Limits
from outrider.core.states import DELETING, CrawlStatus, QueueState, TaskState
from outrider.core.task import CRITICAL, HIGH, LOW, Task
from outrider.store.byte_limits import MAX_SHORT_URL
from outrider.store.engine.records import (
    COLUMNS,
    INACTIVE,
    QUEUE_COLUMNS,
    READY,
    UNCOUNTED,
    Queue,
    TaskCounts,
    column_of,
)
from outrider.store.protocol import StoreEvent

EVENTS_KEPT: Final = 10_000
_BUSY: Final = QUEUE_COLUMNS[QueueState.BUSY]
_SNOOZED: Final = QUEUE_COLUMNS[QueueState.SNOOZED]
_LISTED: Final = {
    READY: QUEUE_COLUMNS[QueueState.READY],
    INACTIVE: QUEUE_COLUMNS[QueueState.INACTIVE],
}
TIMELINE_KEPT: Final = 100
EPOCHS_KEPT: Final = 8
_ENDED: Final = (TaskState.DONE, TaskState.DEAD, TaskState.DROPPED)
_NO_COUNTS: Final[Mapping[str, int]] = MappingProxyType({})


class Counted(Protocol):
    """What decides with which tasks a task is counted."""

    @property
    def type(self) -> str: ...  # noqa: D102
    @property
    def tag(self) -> str | None: ...  # noqa: D102
    @property
    def origin(self) -> str: ...  # noqa: D102
    @property
    def depth(self) -> int: ...  # noqa: D102


class CrawlEvent(NamedTuple):
    """O3: something that happened to the crawl; stored in this order."""

    number: int
    at: int  # milliseconds
    name: str
    subject: str
    detail: str
    by: str = ""  # the operator whose act caused it
    counts: dict[str, int] = {}  # noqa: RUF012 - see `StoreEvent`; never changed

    def view(self) -> StoreEvent:
        """Return the event as readers see it."""
        number, at, name, subject, detail, by, counts = self
        return StoreEvent(number, at / 1000, name, subject, detail, by, counts)


@final
class CrawlState:
    """Status, rules, counters and events of a crawl, and its dirty queues and task counts.

    `tracks_dirty`: the store writes changes, so changed queues and counts are listed.
    `keeps_all_rules`: the store keeps the rules of every epoch; else old epochs are dropped.
    """

    __slots__ = (
        "at_finish",
        "by",
        "by_turn",
        "bytes",
        "count_offset",
        "created",
        "critical",
        "dirty_counts",
        "dirty_queues",
        "epoch",
        "events",
        "finished",
        "forgotten",
        "has_bands",
        "has_long_texts",
        "has_new_status",
        "has_new_work",
        "high",
        "is_idle",
        "is_limited",
        "keeps_all_rules",
        "last_arrival",
        "last_event",
        "last_queue",
        "last_task",
        "last_token",
        "last_turn",
        "leased",
        "loaded_counts",
        "low",
        "name",
        "opens_below",
        "outcomes",
        "pending",
        "queue_counts",
        "reason",
        "recovered",
        "retired_pending",
        "rules",
        "rules_applied",
        "rules_by_epoch",
        "runs",
        "settings",
        "started",
        "status",
        "store",
        "task_counts",
        "timeline",
        "tracks_dirty",
        "visits",
        "visits_done",
    )

    def __init__(
        self,
        name: str,
        store: str,
        rules: CrawlRules,
        now: int,
        *,
        tracks_dirty: bool = False,
        keeps_all_rules: bool = False,
        has_all_tasks: bool = False,
    ) -> None:
        self.name, self.store, self.created = name, store, now
        self.tracks_dirty, self.keeps_all_rules = tracks_dirty, keeps_all_rules
        self.epoch = 0
        self.rules_by_epoch: dict[int, CrawlRules] = {}  # while queues may still have them
        self.use_rules(rules)
        self.rules_applied = True  # every queue has the crawl's current rules
        self.status = CrawlStatus.RUNNING
        self.reason: str | None = None
        self.at_finish = False  # paused instead of finished once: the next end is a finish
        self.is_idle = True  # no task since the last run: the next one starts a run
        # last numbers given
        self.last_task = self.last_queue = self.last_turn = 0
        self.last_arrival = self.last_token = self.last_event = 0
        self.count_offset = 0  # by how much `last_task` exceeds the number of known tasks
        # totals
        self.pending = self.leased = 0
        self.retired_pending = 0  # pending tasks of retired queues
        self.critical = self.high = self.low = 0  # pending tasks by priority; the rest is normal
        # Whether a task may have another priority than a normal one, or texts that a claim must
        # count. Where neither is so, claims read neither priorities nor URLs, which are seldom in
        # the processor's caches.
        self.has_bands = self.has_long_texts = not has_all_tasks
        self.queue_counts = [0] * len(QUEUE_COLUMNS)  # queues by state; see `count_queues`
        self.recovered = 0  # visits done, of tasks that had been blocked
        self.forgotten = 0  # C10: of all known tasks, or of those that a transaction looked up
        self.visits = self.visits_done = self.bytes = self.runs = 0
        self.started = self.finished = -1
        self.outcomes: Counter[str] = Counter()
        self.timeline: deque[tuple[float, str, str]] = deque(maxlen=TIMELINE_KEPT)
        self.events: deque[CrawlEvent] = deque(maxlen=EVENTS_KEPT)
        self.by = ""  # the operator whose act is being applied
        self.settings = ""  # the caller's text, for workers that join the crawl
        self.task_counts: dict[tuple[str, str | None, str, int], TaskCounts] = {}
        # Tasks by state that a store loaded as totals, of which `task_counts` has the differences.
        self.loaded_counts = [0] * len(COLUMNS)
        # C6, since `CrawlEngine.take_news`: a queue was listed or got a wake time; a new status
        self.has_new_work = self.has_new_status = False
        self.dirty_queues: list[Queue] = []
        self.dirty_counts: list[TaskCounts] = []

    @property
    def known(self) -> int:
        """The number of known tasks."""
        return self.last_task - self.count_offset

    @property
    def is_being_removed(self) -> bool:
        """I1: whether the crawl was cancelled to be removed."""
        return (self.status, self.reason) == (CrawlStatus.CANCELLED, DELETING)

    # ---- rules

    def use_rules(self, rules: CrawlRules) -> None:
        """Set the rules of the current epoch; queues get them one by one."""
        self.rules = self.rules_by_epoch[self.epoch] = rules
        self.by_turn = rules.order == "round-robin"
        self.is_limited = rules.limits != Limits()
        below = rules.opens_below
        self.opens_below = -1 if below is None else ordered(below)  # -1: below every priority

    @property
    def is_dropping_epoch(self) -> bool:
        """Whether the next epoch drops the rules of the oldest one."""
        return not self.keeps_all_rules and len(self.rules_by_epoch) >= EPOCHS_KEPT

    def start_epoch(self) -> None:
        """Start another epoch of rules; until a queue gets its rules, it keeps those it has."""
        self.epoch += 1
        while self.is_dropping_epoch:
            del self.rules_by_epoch[min(self.rules_by_epoch)]

    def confirm_rules(self, *, all_queues: bool) -> None:
        """Record that a change has been applied to every queue it concerns."""
        self.rules_applied = self.rules_applied or all_queues
        if self.rules_applied:
            self.rules_by_epoch = {self.epoch: self.rules}

    # ---- dirty queues and counts

    def mark_dirty(self, queue: Queue) -> None:
        """List a queue as changed, unless it is listed."""
        if not queue.is_dirty:
            queue.is_dirty = True
            self.dirty_queues.append(queue)

    def mark_counts_dirty(self, counts: TaskCounts) -> None:
        """List counts as changed, unless they are listed."""
        if not counts.is_dirty:
            counts.is_dirty = True
            self.dirty_counts.append(counts)

    def counts_of(self, task: Counted) -> TaskCounts:
        """Return the counts a task belongs to."""
        name = (task.type, task.tag, task.origin, min(task.depth, 3))
        found = self.task_counts.get(name)
        if found is None:
            found = TaskCounts(*name, [0] * len(COLUMNS), not self.tracks_dirty)
            self.task_counts[name] = found
        return found

    # ---- queues by state, tasks by priority

    def count_queue(self, queue: Queue) -> None:
        """C1, O5: count a queue with the state in which the schedule has it."""
        column = column_of(queue)
        if column != queue.counted_as:
            if queue.counted_as != UNCOUNTED:
                self.queue_counts[queue.counted_as] -= 1
            self.queue_counts[column] += 1
            queue.counted_as = column

    def count_queues(self) -> None:  # noqa: C901 - a hot loop: every visit passes here
        """Count the dirty queues; their list is cleared here unless the store writes them.

        A verb marks every queue dirty that it moves in the schedule, and no verb counts by itself:
        a queue that is leased and finished between two counts costs as much as one that waits.
        """
        counts = self.queue_counts
        for queue in self.dirty_queues:
            # `column_of` written out for queues with work
            if queue.list_state:
                column = _LISTED[queue.list_state]
            elif queue.wake_at:
                column = _SNOOZED
            elif queue.in_flight and queue.retired is None and not queue.paused:
                column = _BUSY
            else:
                column = column_of(queue)
            before = queue.counted_as
            if column != before:
                counts[column] += 1
                queue.counted_as = column
                if before != UNCOUNTED:
                    counts[before] -= 1
        if not self.tracks_dirty:
            for queue in self.dirty_queues:
                queue.is_dirty = False
            self.dirty_queues.clear()

    def count_priority(self, priority: float, by: int) -> None:
        """F8, O5: count a pending task by its priority, unless that is normal."""
        if priority >= LOW:
            self.low += by
        elif priority <= CRITICAL:
            self.critical += by
        elif priority <= HIGH:
            self.high += by
        else:
            return
        self.has_bands = True

    def note_texts(self, task: Task) -> None:
        """C6: note a task of which claims must count the bytes."""
        if task.meta or task.text or len(task.url) > MAX_SHORT_URL:
            self.has_long_texts = True

    # ---- status

    def add_event(
        self,
        now: int,
        name: str,
        subject: str,
        detail: str,
        counts: Mapping[str, int] = _NO_COUNTS,
    ) -> None:
        """O3: record what happened, and whose act caused it."""
        self.last_event += 1
        event = CrawlEvent(self.last_event, now, name, subject, detail, self.by, dict(counts))
        self.events.append(event)

    def set_status(
        self, status: CrawlStatus, reason: str, now: int, counts: Mapping[str, int] = _NO_COUNTS
    ) -> None:
        """I1."""
        self.status, self.reason, self.has_new_status = status, reason, True
        self.timeline.append((now / 1000, status.value, reason))
        self.add_event(now, f"crawl-{status.value}", self.name, reason, counts)

    def start_run(self, now: int) -> None:
        """I2: a task was added to an idle crawl, so a finished crawl runs again."""
        self.is_idle = self.at_finish = False
        if self.started < 0:
            self.started = now
        if self.status is CrawlStatus.FINISHED:
            self.set_status(CrawlStatus.RUNNING, "work", now)

    def check_limits(self, now: int) -> None:
        """I4: pause a running crawl that has reached a limit, with the limit as the reason."""
        limits = self.rules.limits
        age = 0.0 if self.started < 0 else (now - self.started) / 1000
        for name, limit, value in (
            ("tasks", limits.tasks, self.known),
            ("done", limits.done, self.visits_done),
            ("bytes", limits.bytes, self.bytes),
            ("seconds", limits.seconds, age),
        ):
            if limit and value >= limit:
                self.set_status(CrawlStatus.PAUSED, f"limit-{name}", now)
                return

    @property
    def is_run_over(self) -> bool:
        """I2: whether the run has no task left but pending ones of retired queues."""
        return self.started >= 0 and not self.leased and self.pending <= self.retired_pending

    def finish_run(self, now: int) -> None:
        """I2: finish the run if it is over."""
        if not self.is_run_over:
            return
        if self.rules.pause_at_finish and not self.at_finish:
            self.at_finish = self.is_idle = True
            self.set_status(CrawlStatus.PAUSED, "finish", now)
        else:
            self.runs, self.finished, self.is_idle = self.runs + 1, now, True
            self.set_status(CrawlStatus.FINISHED, f"run {self.runs}", now, self._counts_at_end())

    def _counts_at_end(self) -> dict[str, int]:
        """I2, O3: return what the end of a run reports: tasks by state, and visits."""
        totals = list(self.loaded_counts)
        for counts in self.task_counts.values():
            totals = [total + count for total, count in zip(totals, counts.by_state, strict=True)]
        ended = {state.value: totals[COLUMNS[state]] for state in _ENDED}
        return {"known": self.known, **ended, "held": self.pending, "visits": self.visits}
