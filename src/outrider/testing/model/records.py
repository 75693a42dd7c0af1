"""The records of the model: tasks (T), queues (Q), workers (W) and crawls (C)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from outrider.core.outcome import Answer
from outrider.core.policy.politeness import min_delay_between, pace
from outrider.core.policy.rules import CrawlRules, QueueRules
from outrider.core.states import FORGOTTEN, CrawlStatus, TaskState
from outrider.core.task import PolitenessState, Task
from outrider.core.worker_totals import NO_TOTALS, WorkerTotals
from outrider.store.protocol import EventBatch, Heartbeat, SharedValue

PENDING, LEASED, DONE = TaskState.PENDING, TaskState.LEASED, TaskState.DONE
DEAD, DROPPED = TaskState.DEAD, TaskState.DROPPED
EXPIRE_STEP = 1000  # overdue leases that one claim expires
WAKE_STEP = 4096  # queues that one claim reschedules


def ms(seconds: float) -> int:
    """Convert seconds to whole milliseconds, rounded up (H7)."""
    return ceil(seconds * 1000 - 1e-6)


@dataclass(eq=False)
class T:
    """A task."""

    number: int
    task: Task
    queue: Q
    tie: int
    due: int
    discovered: int
    state: TaskState = PENDING
    token: int = 0
    attempts: int = 0
    failures: int = 0
    crashes: int = 0
    throttles: int = 0
    blocks: int = 0
    reason: str | None = None
    worker: str | None = None
    claimed: int | None = None
    deadline: int = 0
    turn: int = 0  # H1: of its lease: leases are in this order
    leased: int = 0  # when it was leased, also by fingerprint
    lasts: int = 0  # for how long
    named: bool = False  # D5: leased by fingerprint
    lent: bool = False  # C7: leased as part of a loan of its queue
    drawn: float = -1.0  # D1: drawn for its lease; below 0: none
    finished: int | None = None
    answer: Answer | None = None
    answered: int | None = None  # when the visit with that answer ended
    history: list[tuple[float, str, str]] = field(default_factory=list)

    @property
    def forgotten(self) -> bool:
        """Whether the next add admits it as if it were not known (C10)."""
        return self.state is DROPPED and self.reason == FORGOTTEN

    def key(self) -> tuple[int, float, int, int]:
        """Return the order key: precedence, priority, tie, number; lower is sooner (C2)."""
        return self.task.precedence, self.task.priority, self.tie, self.number


@dataclass(eq=False)
class Q:
    """A queue; its politeness state stays when it is empty."""

    key: str
    number: int
    rules: QueueRules
    turn: int
    paused: bool
    retired: str | None
    tasks: list[T] = field(default_factory=list)
    list_state: str | None = None  # ready, inactive, or None
    saved_list: str | None = None  # when it was saved, until it is listed again
    place: int = 0
    session: int | None = None  # spent in the open session
    spent: int = 0
    next_ready: int = 0
    why: str = "delay"
    last_start: int | None = None
    last_end: int | None = None
    politeness: PolitenessState = field(default_factory=PolitenessState)
    errors: int = 0
    dones: int = 0
    bytes: int = 0
    last_cost: int = 0
    cost_sum: int = 0
    cost_count: int = 0
    crashed: int = 0  # C7: crashes counted for its current loan

    def of(self, state: TaskState) -> list[T]:
        """Return its tasks in a state."""
        return [t for t in self.tasks if t.state is state]

    def due(self, now: int, lane: int | None = None) -> list[T]:
        """Return the pending tasks that are due now (C6), in the order of C2."""
        visible = [t for t in self.of(PENDING) if t.due <= now]
        return sorted((t for t in visible if lane in (None, t.task.lane)), key=T.key)

    def first_due(self) -> int:
        """Return when the earliest pending task is or was due."""
        return min(t.due for t in self.of(PENDING))

    def lent_tasks(self) -> list[T]:
        """Return its tasks that are leased as a loan (C7)."""
        return [t for t in self.of(LEASED) if t.lent]

    def has_slot(self) -> bool:
        """Whether a visit may begin (D2); named leases take no slot (D5), a loan takes all (C7)."""
        taken = [t for t in self.of(LEASED) if not t.named]
        return not self.lent_tasks() and len(taken) < self.rules.politeness.max_in_flight

    def over_budget(self) -> bool:
        """Whether it spent ≥ total ≥ 0, or has a balance of 0 (E1)."""
        budget = self.rules.budget
        return budget.balance == 0 or 0 <= budget.total_budget <= self.spent

    def pace_ms(self) -> int:
        """Return the least time between two leases, by visits per second; 0: none (D1)."""
        return ms(pace(self.rules.politeness))

    def delay_ms(self) -> int:
        """Return the last delay, or the least allowed if there was none (D7)."""
        least = min_delay_between(self.rules.politeness, self.politeness.crawl_delay)
        return ms(least if self.politeness.last_delay < 0 else self.politeness.last_delay)


@dataclass(eq=False)
class W:
    """A worker: its last heartbeat, and when its first and last one came."""

    heartbeat: Heartbeat
    started: int
    seen: int


@dataclass(eq=False)
class C:
    """A crawl."""

    name: str
    rules: CrawlRules
    created: int
    status: CrawlStatus = CrawlStatus.RUNNING
    reason: str | None = None
    at_finish: bool = False  # paused at finish, and no task since
    rules_applied: bool = True  # every queue has the current rules
    queues: dict[str, Q] = field(default_factory=dict)
    tasks: list[T] = field(default_factory=list)
    known: dict[bytes, T] = field(default_factory=dict)
    counter: int = 0
    arrivals: int = 0
    visits: int = 0
    dones: int = 0
    bytes: int = 0
    recovered: int = 0
    runs: int = 0
    first: int | None = None
    finished: int | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    timeline: list[tuple[float, str, str]] = field(default_factory=list)
    # number, at, name, subject, detail, by, counts
    log: list[tuple[int, int, str, str, str, str, Mapping[str, int]]] = field(default_factory=list)
    ring: list[tuple[int, EventBatch]] = field(default_factory=list)  # last number, events
    last_event: int = 0  # the highest number of an event
    by: str = ""  # the operator whose act is being applied
    roots: dict[str, list[str]] = field(default_factory=dict)
    settings: str = ""
    workers: dict[str, W] = field(default_factory=dict)
    gone: WorkerTotals = NO_TOTALS  # M6: of workers that were forgotten
    values: dict[tuple[str, str], SharedValue] = field(default_factory=dict)

    def count(self) -> int:
        """Return the next number of the crawl's counter (C3)."""
        self.counter += 1
        return self.counter

    def all(self, state: TaskState) -> list[T]:
        """Return its tasks in a state."""
        return [t for t in self.tasks if t.state is state]

    def open_pending(self) -> int:
        """Return the number of pending tasks in unretired queues (B4, I2)."""
        return sum(len(q.of(PENDING)) for q in self.queues.values() if not q.retired)
