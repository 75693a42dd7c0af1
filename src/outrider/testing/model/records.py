"""What the model keeps: tasks, queues and crawls as plain records, their lists never sorted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import ceil

from outrider.core.outcome import Answer
from outrider.core.policy.politeness import min_delay_between, pace
from outrider.core.policy.rules import CrawlRules, QueueRules
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import PolitenessState, Task
from outrider.store.protocol import Heartbeat, SharedValue

PENDING, LEASED, DONE = TaskState.PENDING, TaskState.LEASED, TaskState.DONE
DEAD, DROPPED = TaskState.DEAD, TaskState.DROPPED
EXPIRE_STEP = 1000  # overdue leases one claim takes back
WAKE_STEP = 4096  # queues one claim wakes


def ms(seconds: float) -> int:
    """H7: whole milliseconds, waits rounded up."""
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
    reason: str | None = None
    worker: str | None = None
    claimed: int | None = None
    deadline: int = 0
    named: bool = False  # D5: lent by name
    lent: bool = False  # C7: part of its queue's loan
    finished: int | None = None
    answer: Answer | None = None
    answered: int | None = None  # when the visit that brought it ended
    history: list[tuple[float, str, str]] = field(default_factory=list)

    def key(self) -> tuple[int, float, int, int]:
        """C2: precedence, priority, tie; lower is sooner. Equal rolls go by number."""
        return self.task.precedence, self.task.priority, self.tie, self.number


@dataclass(eq=False)
class Q:
    """A queue and its manners, which survive emptiness."""

    key: str
    number: int
    rules: QueueRules
    turn: int
    paused: bool
    retired: str | None
    tasks: list[T] = field(default_factory=list)
    standing: str | None = None  # ready, inactive, or neither
    stood: str | None = None  # the same when it was saved, until it stands again
    place: int = 0
    session: int | None = None  # spent in the open session
    spent: int = 0
    next_ready: int = 0
    why: str = "delay"
    last_start: int | None = None
    last_end: int | None = None
    manners: PolitenessState = field(default_factory=PolitenessState)
    errors: int = 0
    dones: int = 0
    bytes: int = 0
    last_cost: int = 0
    cost_sum: int = 0
    cost_count: int = 0
    crashed: int = 0  # C7: crashes that the loan it is out on counted

    def of(self, state: TaskState) -> list[T]:
        """Its tasks in a state."""
        return [t for t in self.tasks if t.state is state]

    def due(self, now: int, lane: int | None = None) -> list[T]:
        """C6: the pending tasks that are visible now, in the order of C2."""
        visible = [t for t in self.of(PENDING) if t.due <= now]
        return sorted((t for t in visible if lane in (None, t.task.lane)), key=T.key)

    def first_due(self) -> int:
        """When the earliest pending task is or was due."""
        return min(t.due for t in self.of(PENDING))

    def lent(self) -> list[T]:
        """C7: its tasks that are out on a loan."""
        return [t for t in self.of(LEASED) if t.lent]

    def has_slot(self) -> bool:
        """D2; D5: whoever was lent by name takes none; C7: a loan shuts out everybody else."""
        taken = [t for t in self.of(LEASED) if not t.named]
        return not self.lent() and len(taken) < self.rules.politeness.max_in_flight

    def over_budget(self) -> bool:
        """E1: spent ≥ total ≥ 0, or a balance of 0."""
        budget = self.rules.budget
        return budget.balance == 0 or 0 <= budget.total_budget <= self.spent

    def pace_ms(self) -> int:
        """D1: visits/s, a promise over all slots: what passes between two leases; 0: none."""
        return ms(pace(self.rules.politeness))

    def delay_ms(self) -> int:
        """D7: the last delay, or the least if none."""
        least = min_delay_between(self.rules.politeness, self.manners.crawl_delay)
        return ms(least if self.manners.last_delay < 0 else self.manners.last_delay)


@dataclass(eq=False)
class W:
    """A worker: what it last said of itself, and when it was first and last heard."""

    beat: Heartbeat
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
    at_finish: bool = False  # paused at finish, and nothing freed since
    told: bool = True  # no queue still waits to hear of other rules
    queues: dict[str, Q] = field(default_factory=dict)
    tasks: list[T] = field(default_factory=list)
    known: dict[bytes, T] = field(default_factory=dict)
    counter: int = 0
    arrivals: int = 0
    visits: int = 0
    dones: int = 0
    bytes: int = 0
    runs: int = 0
    first: int | None = None
    finished: int | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    timeline: list[tuple[float, str, str]] = field(default_factory=list)
    log: list[tuple[int, str, str, str]] = field(default_factory=list)
    forgotten: int = 0  # changes from before the log
    roots: dict[str, list[str]] = field(default_factory=dict)
    settings: str = ""
    workers: dict[str, W] = field(default_factory=dict)
    notes: dict[tuple[str, str], SharedValue] = field(default_factory=dict)

    def count(self) -> int:
        """C3: the crawl's counter."""
        self.counter += 1
        return self.counter

    def all(self, state: TaskState) -> list[T]:
        """Its tasks in a state."""
        return [t for t in self.tasks if t.state is state]

    def open_pending(self) -> int:
        """B4, I2: pending tasks of unretired queues."""
        return sum(len(q.of(PENDING)) for q in self.queues.values() if not q.retired)
