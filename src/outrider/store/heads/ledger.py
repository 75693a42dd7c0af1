"""What a crawl holds: tasks, queues, counters, status; the books balance (O5).

Where records of tasks are kept is a store's own affair: it says so in the methods under "keeping".
Whatever changes is marked, so that a store which writes knows what to write.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from outrider.core.order import DUE_BITS, NUMBER_MASK, QUEUE_BYTES, ordered
from outrider.core.policy.rules import CrawlRules, Limits, covers
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Task
from outrider.store.heads.lines import Line
from outrider.store.heads.noting import Notes
from outrider.store.heads.records import (
    CHUNK_BITS,
    COLUMNS,
    SHARDS,
    Kind,
    Queue,
    Record,
    new_queue,
)
from outrider.store.heads.workers import Workers

CHANGES_KEPT: Final = 10_000
TIMELINE_KEPT: Final = 100
RULES_KEPT: Final = 8
READY_HEAD: Final = 256  # queues come and go at the head of these lines all the time
SHARD_MASK: Final = SHARDS - 1
CHUNK_MASK: Final = (1 << CHUNK_BITS) - 1

PENDING, LEASED, DONE, DEAD = TaskState.PENDING, TaskState.LEASED, TaskState.DONE, TaskState.DEAD
_LEASED = COLUMNS[LEASED]


class Counted(Protocol):
    """Whatever is counted with its kind."""

    @property
    def type(self) -> str: ...  # noqa: D102
    @property
    def tag(self) -> str | None: ...  # noqa: D102
    @property
    def origin(self) -> str: ...  # noqa: D102
    @property
    def depth(self) -> int: ...  # noqa: D102


class Ledger(ABC):
    """The books of one crawl: a namespace of queues and tasks under one set of rules."""

    marks_changes = False  # True: queues and kinds that changed are listed in `marks`, `kind_marks`

    def __init__(self, name: str, store: str, rules: CrawlRules, now: int) -> None:
        self.name = name
        self.store = store
        self.epoch = 0
        self.rulebook: dict[int, CrawlRules] = {}  # by epoch, while queues may still go by them
        self.obey(rules)
        self.created = now
        self.status = CrawlStatus.RUNNING
        self.reason: str | None = None
        self.at_finish = False
        self.is_idle = True  # before the first task and after the last: the next one starts a run
        self.count = 0  # tasks known
        self.queue_count = 0
        self.counter = 0
        self.arrivals = 0
        self.tokens = 0
        self.pending = self.leased = self.held = 0
        self.visits = self.dones = self.bytes = self.runs = 0
        self.first = self.finished = -1
        self.outcomes: Counter[str] = Counter()
        self.timeline: deque[tuple[float, str, str]] = deque(maxlen=TIMELINE_KEPT)
        self.log: deque[tuple[int, int, str, str, str]] = deque(maxlen=CHANGES_KEPT)
        self.logged = 0
        self.kinds: dict[tuple[str, str | None, str, int], Kind] = {}
        self.known: list[dict[bytes, int]] = [{} for _ in range(SHARDS)]
        self.leases: dict[int, Record] = {}
        self.keys: list[dict[str, Queue]] = [{} for _ in range(SHARDS)]
        self.queues: list[dict[int, Queue]] = [{}]
        self.roots: dict[str, dict[str, None]] = {}  # of the scope, by its mode
        self.settings = ""  # the caller's text, for whoever joins the crawl
        self.notes = Notes()
        self.workers = Workers()
        self.is_told = True  # no queue still waits to hear of a change of the crawl's rules
        self.standing = 0
        self.ready: tuple[Line, Line] = (
            Line(QUEUE_BYTES, [], most=READY_HEAD),
            Line(QUEUE_BYTES, [], most=READY_HEAD),
        )
        self.parked: list[int] = []
        self.alarms: list[int] = []
        self.deadlines: list[int] = []
        self.marks: list[Queue] = []
        self.kind_marks: list[Kind] = []

    def obey(self, rules: CrawlRules) -> None:
        """Take over what holds now for the crawl; queues are told one by one."""
        self.rules = self.rulebook[self.epoch] = rules
        self.by_turn = rules.order == "round-robin"
        self.is_limited = rules.limits != Limits()
        below = rules.opens_below
        self.opens_below = -1 if below is None else ordered(below)  # -1: no priority is

    def configure(self, rules: CrawlRules) -> None:
        """Other rules, of which all queues are still to be told."""
        if rules != self.rules and self.queue_count:
            self.is_told = False
            self.turn_over(rules)
        else:
            self.obey(rules)

    def turn_over(self, rules: CrawlRules) -> None:
        """Other rules, step by step: until a queue is told, it goes by those it knows."""
        self.epoch += 1
        while len(self.rulebook) >= RULES_KEPT:
            del self.rulebook[min(self.rulebook)]
        self.obey(rules)

    def told(self, *, everyone: bool) -> None:
        """A change has reached all it concerns."""
        self.is_told = self.is_told or everyone
        if self.is_told:
            self.rulebook = {self.epoch: self.rules}

    # ---- keeping

    def expect(self, tasks: list[Task]) -> None:  # noqa: B027 - most need no notice
        """These are about to come: a store may look up in one go which of them are known."""

    @abstractmethod
    def born(self, record: Record) -> None:
        """A new task is known: keep it."""

    @abstractmethod
    def record(self, number: int) -> Record:
        """The record of a known task, to change it; what was changed is told to `changed`."""

    def due(self, queue: Queue, entry: int) -> Record:  # noqa: ARG002 - others may use it
        """The record of a task that was first in a line of its queue."""
        return self.record(entry >> DUE_BITS & NUMBER_MASK)

    @abstractmethod
    def changed(self, record: Record) -> None:
        """A record is other than it was: keep it so."""

    @abstractmethod
    def seen(self, numbers: Iterable[int]) -> Iterable[Record]:
        """The records of known tasks, to read only; their queues are asked for by themselves."""

    def of_state(self, numbers: range, state: TaskState) -> Iterable[int]:  # noqa: ARG002 - others may use it
        """Those of them that may be in that state: who can tell need not read the others."""
        return numbers

    def url_of(self, number: int) -> str:
        """Where a known task leads."""
        return next(record.task.url for record in self.seen([number]))

    @abstractmethod
    def find(self, fingerprint: bytes) -> int | None:
        """The number of the task of that identity."""

    # ---- looking up

    def queue(self, key: str) -> Queue | None:
        """The queue of that key; hosts are known in lower case."""
        return self.queue_at(key) or self.queue_at(key.lower())

    def queue_at(self, key: str) -> Queue | None:
        """The queue of exactly that key."""
        return self.keys[hash(key) & SHARD_MASK].get(key)

    def queue_of(self, number: int) -> Queue:
        """The queue of that number."""
        return self.queues[number >> CHUNK_BITS][number]

    def glimpse(self, number: int) -> Queue:
        """The queue of that number, to read and not to change."""
        return self.queue_of(number)

    def glimpses(self, numbers: range) -> Iterator[Queue]:
        """The queues of these numbers, to read and not to change."""
        return (self.glimpse(number) for number in numbers)

    def reached(self, target: str, after: int) -> Iterator[Queue]:
        """The queues after that number which an act on this target reaches, in their order."""
        for number in range(after + 1, self.queue_count + 1):
            queue = self.queue_of(number)
            if covers(target, queue.key):
                yield queue

    def alarm_of(self, number: int) -> int:
        """When the queue of that number set its alarm for; 0: it did not, or is gone."""
        return self.queues[number >> CHUNK_BITS][number].alarm

    def held_by(self, number: int, token: int) -> Record | None:
        """H3: the leased task whose current token this is; cancelled leases are refused (I3)."""
        record = self.leases.get(number)
        if record is None or record.token != token or self.status is CrawlStatus.CANCELLED:
            return None
        return record

    def has_ended(self, number: int, token: int) -> bool:
        """H3: whether this very lease was finished before; asked of lost ones only, so may read."""
        if not 0 < number <= self.count or self.status is CrawlStatus.CANCELLED:
            return False
        if number in self.leases:
            return False
        return any(record.token == token for record in self.seen((number,)))

    # ---- entering

    def _kind(self, task: Counted) -> Kind:
        name = (task.type, task.tag, task.origin, min(task.depth, 3))
        found = self.kinds.get(name)
        if found is None:
            found = self.kinds[name] = Kind(*name, [0] * len(COLUMNS), not self.marks_changes)
        return found

    def _new_queue(self, key: str) -> Queue:
        self.queue_count += 1
        self.counter += 1
        queue = new_queue(key, self.queue_count, self.counter, self.rules.of(key), self.epoch)
        queue.is_marked = not self.marks_changes
        self.mark(queue)
        if not self.queue_count & CHUNK_MASK:
            self.queues.append({})
        self._seat(queue)
        return queue

    def _seat(self, queue: Queue) -> None:
        self.keys[hash(queue.key) & SHARD_MASK][queue.key] = queue
        self.queues[queue.number >> CHUNK_BITS][queue.number] = queue

    def add_roots(self, mode: str, roots: Iterable[str]) -> None:
        """A5: what seeds contribute to the scope."""
        self.roots.setdefault(mode, {}).update(dict.fromkeys(roots))

    # ---- counting

    def mark(self, queue: Queue) -> None:
        """Its numbers change."""
        if not queue.is_marked:
            queue.is_marked = True
            self.marks.append(queue)

    def _mark_kind(self, kind: Kind) -> None:
        if not kind.is_marked:
            kind.is_marked = True
            self.kind_marks.append(kind)

    def _move(self, record: Record, state: TaskState) -> None:
        """B2, O5: the one place (but the hot loops) where a task changes state and is counted."""
        before, queue, counts = record.state, record.queue, record.kind.counts
        self.mark(queue)
        self._mark_kind(record.kind)
        record.state = state
        counts[COLUMNS[before]] -= 1
        counts[COLUMNS[state]] += 1
        self._count(queue, before, -1)
        self._count(queue, state, 1)
        if before is LEASED:
            del self.leases[record.number]
        self.changed(record)

    def _settle_lease(self, record: Record, state: TaskState) -> None:
        """`_move` for what happens most: a leased task is done, dead or dropped."""
        queue, kind = record.queue, record.kind
        if not kind.is_marked:
            self._mark_kind(kind)
        counts = kind.counts
        record.state = state
        del self.leases[record.number]
        self.changed(record)
        counts[_LEASED] -= 1
        counts[COLUMNS[state]] += 1
        self.leased -= 1
        queue.in_flight -= 1
        self._count_settled(queue, state, 1)

    def _count(self, queue: Queue, state: TaskState, by: int) -> None:
        if state is LEASED:
            self.leased += by
            queue.in_flight += by
        elif state is PENDING:
            self.pending += by
            queue.pending += by
            self.held += by if queue.retired is not None else 0
        else:
            self._count_settled(queue, state, by)

    def _count_settled(self, queue: Queue, state: TaskState, by: int) -> None:
        if state is DONE:
            queue.done += by
        elif state is DEAD:
            queue.dead += by
        else:
            queue.dropped += by

    def note(self, now: int, name: str, subject: str, detail: str) -> None:
        """O3: what the crawl did of itself, for those who follow it."""
        self.logged += 1
        self.log.append((self.logged, now, name, subject, detail))

    def move_to(self, status: CrawlStatus, reason: str, now: int) -> None:
        """I1."""
        self.status, self.reason = status, reason
        self.timeline.append((now / 1000, status.value, reason))
        self.note(now, f"crawl-{status.value}", self.name, reason)

    def _worked(self, now: int) -> None:
        """I2: a task came, so a finished crawl runs again."""
        self.is_idle = self.at_finish = False
        if self.first < 0:
            self.first = now
        if self.status is CrawlStatus.FINISHED:
            self.move_to(CrawlStatus.RUNNING, "work", now)

    def check_limits(self, now: int) -> None:
        """I4: reached → paused with the reason."""
        if not self.is_limited or self.status is not CrawlStatus.RUNNING:
            return
        limits = self.rules.limits
        age = 0.0 if self.first < 0 else (now - self.first) / 1000
        for name, limit, value in (
            ("tasks", limits.tasks, self.count),
            ("done", limits.done, self.dones),
            ("bytes", limits.bytes, self.bytes),
            ("seconds", limits.seconds, age),
        ):
            if limit and value >= limit:
                self.move_to(CrawlStatus.PAUSED, f"limit-{name}", now)
                return

    def _close_run(self, now: int) -> None:
        """I2: nothing leased, no unretired queue has a pending task."""
        if not self.count or self.leased or self.pending > self.held:
            return
        if self.rules.pause_at_finish and not self.at_finish:
            self.at_finish = self.is_idle = True
            self.move_to(CrawlStatus.PAUSED, "finish", now)
        else:
            self.runs, self.finished, self.is_idle = self.runs + 1, now, True
            self.move_to(CrawlStatus.FINISHED, f"run {self.runs}", now)
