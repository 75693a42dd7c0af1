"""What a crawl in memory holds: tasks, queues, counters, status; the books balance (O5)."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from outrider.core.policy.rules import CrawlRules, Limits
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Task
from outrider.store.memory.records import (
    CHUNK_BITS,
    COLUMNS,
    SHARDS,
    Kind,
    Queue,
    Record,
    new_queue,
)

CHANGES_KEPT: Final = 10_000
TIMELINE_KEPT: Final = 100
SHARD_MASK: Final = SHARDS - 1
CHUNK_MASK: Final = (1 << CHUNK_BITS) - 1

PENDING, LEASED, DONE, DEAD = TaskState.PENDING, TaskState.LEASED, TaskState.DONE, TaskState.DEAD
_LEASED = COLUMNS[LEASED]


class Ledger:
    """The books of one crawl: a namespace of queues and tasks under one set of rules."""

    def __init__(self, name: str, store: str, rules: CrawlRules, now: int) -> None:
        self.name = name
        self.store = store
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
        self.known: list[dict[bytes, Record]] = [{} for _ in range(SHARDS)]
        self.tasks: list[dict[int, Record]] = [{}]
        self.keys: list[dict[str, Queue]] = [{} for _ in range(SHARDS)]
        self.queues: list[dict[int, Queue]] = [{}]
        self.roots: dict[str, dict[str, None]] = {}  # of the scope, by its mode
        self.standing = 0
        self.ready: tuple[list[int], list[int]] = ([], [])
        self.parked: list[int] = []
        self.alarms: list[int] = []
        self.deadlines: list[int] = []

    def obey(self, rules: CrawlRules) -> None:
        """Take over what holds now for the crawl; queues are told one by one."""
        self.rules = rules
        self.by_turn = rules.order == "round-robin"
        self.is_limited = rules.limits != Limits()

    # ---- looking up

    def task(self, number: int) -> Record | None:
        """The task of that number."""
        chunk = number >> CHUNK_BITS
        return self.tasks[chunk].get(number) if 0 <= chunk < len(self.tasks) else None

    def find(self, fingerprint: bytes) -> Record | None:
        """The task of that identity."""
        return self.known[fingerprint[0]].get(fingerprint)

    def queue(self, key: str) -> Queue | None:
        """The queue of that key; hosts are known in lower case."""
        found = self.keys[hash(key) & SHARD_MASK].get(key)
        lower = key.lower()
        return found or self.keys[hash(lower) & SHARD_MASK].get(lower)

    def held_by(self, number: int, token: int) -> Record | None:
        """H3: the task whose current token this is; a cancelled crawl's leases are refused (I3)."""
        chunk = number >> CHUNK_BITS
        record = self.tasks[chunk].get(number) if 0 <= chunk < len(self.tasks) else None
        if record is None or record.token != token or self.status is CrawlStatus.CANCELLED:
            return None
        return record

    # ---- entering

    def _kind(self, task: Task) -> Kind:
        name = (task.type, task.tag, task.origin, min(task.depth, 3))
        found = self.kinds.get(name)
        if found is None:
            found = self.kinds[name] = Kind(*name, [0] * len(COLUMNS))
        return found

    def _new_queue(self, key: str) -> Queue:
        self.queue_count += 1
        self.counter += 1
        queue = new_queue(key, self.queue_count, self.counter, self.rules.of(key))
        self.keys[hash(key) & SHARD_MASK][key] = queue
        if not self.queue_count & CHUNK_MASK:
            self.queues.append({})
        self.queues[-1][self.queue_count] = queue
        return queue

    # ---- counting

    def _move(self, record: Record, state: TaskState) -> None:
        """B2, O5: the one place (but the hot loops) where a task changes state and is counted."""
        before, queue, counts = record.state, record.queue, record.kind.counts
        record.state = state
        counts[COLUMNS[before]] -= 1
        counts[COLUMNS[state]] += 1
        self._count(queue, before, -1)
        self._count(queue, state, 1)

    def _settle_lease(self, record: Record, state: TaskState) -> None:
        """`_move` for what happens most: a leased task is done, dead or dropped."""
        queue, counts = record.queue, record.kind.counts
        record.state = state
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
