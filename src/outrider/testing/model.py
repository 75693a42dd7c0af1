"""The naive model: the definition of the rules. Lists sorted on every call, nothing clever.

Every branch names its rule. When a store and this file differ, one of them is wrong; when a rule is
unclear, it is decided here first (docs/adr). Slow on purpose: never use it for a crawl.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

import msgspec

from outrider.core import act as acts
from outrider.core.pick import Streak
from outrider.core.policy.politeness import least_delay
from outrider.core.policy.rules import CrawlRules, QueueRules, covers
from outrider.core.states import STATUS_MOVES, CrawlStatus, QueueState, TaskState
from outrider.core.task import Added, Lease, LeaseId, Manners, Task
from outrider.core.verdict import Answer, Finished, Verdict
from outrider.store.protocol import Claimed, ClaimRequest, Step, Which
from outrider.testing.model_views import ModelViews

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.clock import Clock

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
    finished: int | None = None
    answer: Answer | None = None
    history: list[tuple[float, str, str]] = field(default_factory=list)

    def key(self) -> tuple[int, float, int]:
        """C2: precedence, priority, tie; lower is sooner."""
        return self.task.precedence, self.task.priority, self.tie


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
    place: int = 0
    session: int | None = None  # spent in the open session
    spent: int = 0
    next_ready: int = 0
    why: str = "delay"
    last_start: int | None = None
    last_end: int | None = None
    manners: Manners = Manners()
    errors: int = 0
    dones: int = 0
    bytes: int = 0
    costs: list[int] = field(default_factory=list)

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

    def has_slot(self) -> bool:
        """D2."""
        return len(self.of(LEASED)) < self.rules.politeness.max_in_flight

    def over_budget(self) -> bool:
        """E1: spent ≥ total ≥ 0, or a balance of 0."""
        budget = self.rules.budget
        return budget.balance == 0 or 0 <= budget.total_budget <= self.spent

    def delay_ms(self) -> int:
        """D7: the last delay, or the least if none."""
        least = least_delay(self.rules.politeness, self.manners.crawl_delay)
        return ms(least if self.manners.last_delay < 0 else self.manners.last_delay)


@dataclass(eq=False)
class C:
    """A crawl."""

    name: str
    rules: CrawlRules
    created: int
    status: CrawlStatus = CrawlStatus.RUNNING
    reason: str | None = None
    at_finish: bool = False  # paused at finish, and nothing freed since
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


class Model(ModelViews):
    """A store that is obviously right: all verbs, Admin and Inspect."""

    def __init__(self, clock: Clock) -> None:
        self.id = f"model-{id(self)}"
        self.is_inline = True
        self.clock = clock
        self.all: dict[str, C] = {}
        self.tokens = 0

    async def close(self) -> None:
        """Nothing to let go of."""

    def token(self) -> int:
        """H1: a new one at claim, release and expiry."""
        self.tokens += 1
        return self.tokens

    def crawl_of(self, name: str) -> C:
        """I1: created by the first add, or by name."""
        if name not in self.all:
            self.all[name] = C(name, CrawlRules(), self.clock.now_ms())
        return self.all[name]

    # ---- what holds of a queue

    def servable(self, q: Q) -> bool:
        """E1: unpaused, unretired, next-ready passed, a free slot, a due task."""
        now = self.clock.now_ms()
        free = not q.paused and not q.retired and q.next_ready <= now and q.has_slot()
        return free and bool(q.due(now))

    def judge(self, c: C, q: Q) -> None:
        """E1: retired, to the back of the inactive FIFO, or ready."""
        budget = q.rules.budget
        if q.over_budget():
            self.retire(c, q, "budget")
        elif budget.hold_queues if q.session is None else q.session >= budget.balance:
            q.session, q.standing, q.place = None, "inactive", c.count()  # E2: the session is over
        else:
            q.session, q.standing = q.session or 0, "ready"

    def settle(self, q: Q) -> None:
        """E1: one that stands keeps its place while it could be served; E2: empty ends a session."""
        if not self.servable(q):
            q.standing = None
        if not q.of(PENDING) and not q.of(LEASED):
            q.session = None

    def touch(self, c: C, q: Q) -> None:
        """E1: judged at once."""
        self.settle(q)
        if q.standing is None and self.servable(q):
            self.judge(c, q)

    def retire(self, c: C, q: Q, reason: str) -> None:
        """E5: set aside; a budget never overrides another reason."""
        if q.retired is None or (reason != "budget" and reason != q.retired):
            c.log.append((self.clock.now_ms(), "queue-retired", q.key, reason))
            q.retired = reason
        q.standing = None

    def bring_back(self, c: C, q: Q) -> None:
        """E5, I2: returned, judged at once; with pending tasks it makes a finished crawl run."""
        c.log.append((self.clock.now_ms(), "queue-returned", q.key, q.retired or ""))
        q.retired = None
        if q.of(PENDING):
            self.reopen(c)
        self.touch(c, q)

    def refund(self, q: Q, cost: int) -> None:
        """E3: to the total and the session now open, never below 0."""
        q.spent = max(0, q.spent - cost)
        if q.session is not None:
            q.session = max(0, q.session - cost)

    def visit_ended(self, q: Q, t: T, delay: int) -> None:
        """D1: next-ready is at least end (or start) + delay; it never moves back."""
        now = self.clock.now_ms()
        from_start = q.rules.politeness.count_from == "start"
        self.postpone(q, (t.claimed or now if from_start else now) + delay, "delay")
        q.last_end = now

    def postpone(self, q: Q, until: int, why: str) -> None:
        """D1: it never moves back."""
        if until > q.next_ready:
            q.next_ready, q.why = until, why

    # ---- what holds of a crawl

    def move(self, c: C, status: CrawlStatus, reason: str) -> None:
        """I1."""
        now = self.clock.now_ms()
        c.status, c.reason = status, reason
        c.timeline.append((now / 1000, status.value, reason))
        c.log.append((now, f"crawl-{status.value}", c.name, reason))

    def reopen(self, c: C) -> None:
        """I2: a task came, so a finished crawl runs again."""
        c.at_finish = False
        if c.status is CrawlStatus.FINISHED:
            self.move(c, CrawlStatus.RUNNING, "work")

    def check_limits(self, c: C) -> None:
        """I4: reached → paused with the reason."""
        limits, now = c.rules.limits, self.clock.now_ms()
        age = 0.0 if c.first is None else (now - c.first) / 1000
        reached = {"tasks": len(c.tasks), "done": c.dones, "bytes": c.bytes, "seconds": age}
        for name, value in reached.items():
            limit = getattr(limits, name)
            if limit and value >= limit and c.status is CrawlStatus.RUNNING:
                self.move(c, CrawlStatus.PAUSED, f"limit-{name}")

    def close_run(self, c: C) -> None:
        """I2: nothing leased, no unretired queue has a pending task; only a claim gets here."""
        if not c.tasks or c.all(LEASED) or c.open_pending():
            return
        if c.rules.pause_at_finish and not c.at_finish:
            c.at_finish = True
            self.move(c, CrawlStatus.PAUSED, "finish")
        else:
            c.runs, c.finished = c.runs + 1, self.clock.now_ms()
            self.move(c, CrawlStatus.FINISHED, f"run {c.runs}")

    # ---- add

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """B3, B4: an answer per task, in order."""
        answers = [self.add_one(self.crawl_of(task.crawl), task) for task in tasks]
        for name in dict.fromkeys(task.crawl for task in tasks):
            self.check_limits(self.crawl_of(name))
        return answers

    def add_one(self, c: C, task: Task) -> Added:
        """I1: cancelled; B3: duplicate; B4: queue-full; else added and its queue judged."""
        if c.status is CrawlStatus.CANCELLED:
            return Added(task.url, added=False, reason="cancelled")
        old = c.known.get(task.fingerprint)
        revisit = old is not None and task.known == "revisit" and old.state in (DONE, DEAD, DROPPED)
        if old is not None and not revisit:
            if task.known == "raise":
                self.raise_(old, task)
            return Added(task.url, added=False, reason="duplicate")
        q = c.queues.get(task.key)
        if self.is_full(c, q):
            return Added(task.url, added=False, reason="queue-full")
        self.insert(c, q or self.new_queue(c, task.key), task, old)
        return Added(task.url, added=True, priority=task.priority)

    def is_full(self, c: C, q: Q | None) -> bool:
        """B4: per crawl (retired queues don't count), then per queue."""
        most, most_each = c.rules.max_pending, c.rules.max_pending_per_queue
        if most and c.open_pending() >= most:
            return True
        return bool(most_each and q and len(q.of(PENDING)) >= most_each)

    def new_queue(self, c: C, key: str) -> Q:
        """C3: a turn at its creation; A4: what holds for its key."""
        rules = c.rules.of(key)
        retired = "operator" if rules.retired else None
        q = Q(key, len(c.queues) + 1, rules, c.count(), rules.paused, retired)
        c.queues[key] = q
        return q

    def insert(self, c: C, q: Q, task: Task, old: T | None) -> None:
        """C2: the tie is appended at insertion; B2: a revisit restarts attempts at 0."""
        now = self.clock.now_ms()
        number = old.number if old else len(c.tasks) + 1
        t = T(number, task, q, self.tie(c, task), now + ms(task.delay), now)
        if old:
            t.discovered, t.token = old.discovered, old.token
            old.queue.tasks.remove(old)
            c.tasks[old.number - 1] = t
        else:
            c.tasks.append(t)
        c.known[task.fingerprint] = t
        c.first = now if c.first is None else c.first
        q.tasks.append(t)
        self.reopen(c)
        self.touch(c, q)

    def tie(self, c: C, task: Task) -> int:
        """C2: arrival number, its complement, or the caller's roll; 48 bits."""
        c.arrivals += 1
        return {"fifo": c.arrivals, "lifo": 2**48 - 1 - c.arrivals, "shuffle": task.roll}[
            c.rules.tie
        ]

    def raise_(self, t: T, task: Task) -> None:
        """B3: a better priority moves a pending task forward, never back."""
        new, now = (task.precedence, task.priority), (t.task.precedence, t.task.priority)
        if t.state is PENDING and new < now:
            t.task = msgspec.structs.replace(
                t.task,
                precedence=task.precedence,
                priority=task.priority,
                breakdown=task.breakdown,
            )

    # ---- claim

    async def claim(self, request: ClaimRequest) -> Claimed:
        """ARCHITECTURE's algorithm, step by step."""
        c = self.crawl_of(request.crawl)
        self.take_back(c, EXPIRE_STEP)  # step 0: H4
        self.check_limits(c)
        leases: list[Lease] = []
        streak = request.streak
        if c.status is CrawlStatus.RUNNING:  # I1: one not running lends nothing
            self.wake(c)  # step 1
            leases, streak = self.pick_all(c, request)
            self.close_run(c)
        return Claimed(leases, self.wake_in(c, request, leases), c.status, streak)

    def wake(self, c: C) -> None:
        """E1: all others are judged by a claim, in (max(next-ready, first due), number) order."""
        waiting = [q for q in c.queues.values() if q.standing is None and self.servable(q)]
        waiting.sort(key=lambda q: (max(q.next_ready, q.first_due()), q.number))
        for q in waiting[:WAKE_STEP]:
            self.judge(c, q)

    def pick_all(self, c: C, request: ClaimRequest) -> tuple[list[Lease], Streak]:
        """Steps 2 to 5: activate, choose the lane, lease the best, until the limit."""
        leases: list[Lease] = []
        taken: Counter[int] = Counter()
        lane, count = request.streak
        while len(leases) < request.limit:
            # C5: a queue at its cap counts as not ready, and is not activated, for this claim
            free = [
                q
                for q in c.queues.values()
                if not request.per_queue or taken[q.number] < request.per_queue
            ]
            ready = [q for q in free if q.standing == "ready"]
            heads = [q for q in free if q.standing == "inactive"]
            head = min(heads, key=lambda q: (q.rules.precedence, q.place), default=None)
            if head and all(q.rules.precedence > head.rules.precedence for q in ready):
                self.activate(c, head)
                continue
            chosen = self.choose_lane(ready, Streak(lane, count), c.rules.burst)
            if chosen is None:
                break  # C4: the claim ends, lane and count stay
            lane, count = chosen
            in_lane = [q for q in ready if q.due(self.clock.now_ms(), lane)]
            q = min(in_lane, key=lambda q, lane=lane: self.rank(c, q, lane, taken[q.number]))
            leases.append(self.lease(c, q, q.due(self.clock.now_ms(), lane)[0], request))
            taken[q.number] += 1
        return leases, Streak(lane, count)

    def activate(self, c: C, q: Q) -> None:
        """E2: opens a session; over its budget it retires instead."""
        q.standing = None
        if q.over_budget():
            self.retire(c, q, "budget")
        else:
            q.session, q.standing = 0, "ready"

    def choose_lane(self, ready: list[Q], streak: Streak, burst: int) -> Streak | None:
        """C4: up to `burst` from one, then the other; an empty one is passed, the count restarts."""
        now = self.clock.now_ms()
        has = [any(q.due(now, lane) for q in ready) for lane in (0, 1)]
        if not any(has):
            return None
        lane, count = streak if streak.count < burst else (1 - streak.lane, 0)
        if not has[lane]:
            lane, count = 1 - lane, 0
        return Streak(lane, count + 1)

    def rank(self, c: C, q: Q, lane: int, taken: int) -> tuple[float, ...]:
        """C3: precedence, top task's precedence, priority + C5's discount, turn."""
        if c.rules.order == "round-robin":
            return q.rules.precedence, q.turn
        top = q.due(self.clock.now_ms(), lane)[0].task
        discounted = top.priority + c.rules.breadth_discount * taken
        return q.rules.precedence, top.precedence, discounted, q.turn

    def lease(self, c: C, q: Q, t: T, request: ClaimRequest) -> Lease:
        """H1, E3, C3, D1: token, deadline, charge, turn, next-ready; then the queue is judged."""
        now = self.clock.now_ms()
        t.state, t.token, t.worker = LEASED, self.token(), request.worker
        t.claimed, t.deadline = now, now + ms(request.lease_for)
        q.spent += t.task.cost
        q.session = (q.session or 0) + t.task.cost
        q.costs.append(t.task.cost)
        q.turn, q.last_start, q.standing = c.count(), now, None
        manners = q.rules.politeness
        if manners.count_from == "start" or manners.max_in_flight > 1:
            self.postpone(q, now + ms(least_delay(manners, q.manners.crawl_delay)), "delay")
        lease = self.lent(q, t, request)
        self.touch(c, q)
        return lease

    def lent(self, q: Q, t: T, request: ClaimRequest) -> Lease:
        """A lease carries what `decide` needs of its queue."""
        return Lease(
            store=self.id,
            task=t.number,
            token=t.token,
            about=t.task,
            attempt=t.attempts + 1,
            worker=request.worker,
            lease_for=request.lease_for,
            failures=t.failures,
            throttles=t.throttles,
            rules=q.rules,
            manners=q.manners,
        )

    def wake_in(self, c: C, request: ClaimRequest, leases: list[Lease]) -> float | None:
        """C6: 0 if cut short; else to the earliest deadline or queue that time alone can bring."""
        if c.status is not CrawlStatus.RUNNING:
            return None
        if len(leases) >= request.limit:
            return 0.0
        times = [t.deadline for t in c.all(LEASED)]
        for q in c.queues.values():
            if not q.paused and not q.retired and q.of(PENDING) and q.has_slot():
                times.append(max(q.next_ready, q.first_due()))
        if not times:
            return None
        return max(0, min(times) - self.clock.now_ms()) / 1000

    # ---- leases

    def held(self, lease: LeaseId) -> T | None:
        """H3: the task whose token this is, unless its crawl was cancelled (I3)."""
        c = self.all.get(lease.crawl)
        if c is None or c.status is CrawlStatus.CANCELLED or not 0 < lease.task <= len(c.tasks):
            return None
        t = c.tasks[lease.task - 1]
        return t if t.token == lease.token else None

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """H2."""
        kept = set()
        for lease in leases:
            t = self.held(lease)
            if t and t.state is LEASED:
                t.deadline = self.clock.now_ms() + ms(lease_for)
                kept.add(lease)
        return kept

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """H5, E3, D7: unpunished, refunded, in its old place; the visit's end is now."""
        freed = set()
        for lease in leases:
            t = self.held(lease)
            if t and t.state is LEASED:
                c, q = self.all[lease.crawl], t.queue
                t.state, t.token, t.due = PENDING, self.token(), self.clock.now_ms()
                t.worker = None
                self.refund(q, t.task.cost)
                self.visit_ended(q, t, q.delay_ms())
                self.return_if_affordable(c, q)
                self.touch(c, q)
                freed.add(lease)
        return freed

    async def expire(self, *, limit: int) -> int:
        """H4."""
        count = 0
        for c in list(self.all.values()):
            count += self.take_back(c, limit - count)
        return count

    def take_back(self, c: C, limit: int) -> int:
        """H4: overdue leases, in (deadline, arrival) order; each is a crash."""
        if c.status is CrawlStatus.CANCELLED:
            return 0
        now = self.clock.now_ms()
        overdue = sorted(
            (t for t in c.all(LEASED) if t.deadline <= now), key=lambda t: (t.deadline, t.number)
        )[:limit]
        for t in overdue:
            self.crash(c, t)
        return len(overdue)

    def crash(self, c: C, t: T) -> None:
        """H4: counts as an attempt, due at once; dead when failures or crashes are too many."""
        now, q = self.clock.now_ms(), t.queue
        t.token, t.due = self.token(), now
        t.attempts, t.crashes = t.attempts + 1, t.crashes + 1
        t.reason = "lease expired"
        t.history.append((now / 1000, t.worker or "", t.reason))
        c.visits += 1
        c.outcomes["crashed"] += 1
        q.errors += 1
        hopeless = t.failures > c.rules.max_retries or t.crashes >= c.rules.max_crashes
        t.state, t.finished = (DEAD, now) if hopeless else (PENDING, None)
        c.log.append((now, "died" if hopeless else "expired", t.task.url, t.worker or ""))
        self.visit_ended(q, t, q.delay_ms())
        self.touch(c, q)

    # ---- finish

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """H3, H6."""
        return [self.finish_one(verdict) for verdict in verdicts]

    def finish_one(self, v: Verdict) -> Finished:
        """H3: current and leased → applied; current and finished → True again; else False."""
        t = self.held(LeaseId(v.crawl, v.task, v.token))
        if t is None:
            return Finished(applied=False)
        if t.state is not LEASED:
            return Finished(applied=True)
        c = self.all[v.crawl]
        answers = [self.add_one(c, task) for task in v.tasks]  # H6: links first, in order
        self.apply(c, t.queue, t, v)
        self.check_limits(c)
        return Finished(applied=True, state=t.state, answers=answers)

    def apply(self, c: C, q: Q, t: T, v: Verdict) -> None:
        """The verdict's numbers, then the queue is judged."""
        now = self.clock.now_ms()
        c.visits += 1
        c.outcomes[v.outcome] += 1
        t.attempts += v.counts  # E3: charged exactly when the attempt counts
        t.failures += v.failed
        t.throttles += v.throttled
        if not v.counts:
            self.refund(q, t.task.cost)
        q.spent += v.penalty  # E3
        if q.session is not None:
            q.session += v.penalty
        self.apply_to_task(c, q, t, v)
        if v.touched:
            self.apply_manners(q, v)
            self.visit_ended(q, t, ms(v.delay))
            if v.snooze:
                self.postpone(q, now + ms(v.snooze), v.snooze_reason or "delay")
        if v.retire:  # D3, D4
            self.retire(c, q, v.retire)
        budget = q.rules.budget
        if 0 < budget.max_done <= q.dones or 0 < budget.max_bytes <= q.bytes:  # E6
            self.retire(c, q, "quota")
        self.return_if_affordable(c, q)
        self.touch(c, q)

    def return_if_affordable(self, c: C, q: Q) -> None:
        """E3: after a refund a budget-retired queue no longer over it returns."""
        if q.retired == "budget" and not q.over_budget():
            self.bring_back(c, q)

    def apply_to_task(self, c: C, q: Q, t: T, v: Verdict) -> None:
        """B2: the move; G3: a revisit comes back as another type, its attempts at 0."""
        now = self.clock.now_ms()
        t.state, t.reason = v.state, v.reason
        if v.reason and v.counts:  # G2
            t.history.append((now / 1000, t.worker or "", v.reason))
        if v.answer:
            t.answer = v.answer
            c.dones, q.dones = c.dones + 1, q.dones + 1
            c.bytes, q.bytes = c.bytes + v.answer.bytes, q.bytes + v.answer.bytes
        t.finished = None if v.state is PENDING and not v.revisit else now
        if v.revisit:
            self.come_again(c, t, v)
        elif v.state is PENDING:
            t.due = now + ms(v.retry_in)

    def come_again(self, c: C, t: T, v: Verdict) -> None:
        """G3, C2: inserted anew, as what the verdict says."""
        assert v.revisit is not None
        r = v.revisit
        t.tie = self.tie(c, t.task)
        t.attempts = t.failures = t.crashes = t.throttles = 0
        t.history = []
        t.due = self.clock.now_ms() + ms(r.after)
        t.task = msgspec.structs.replace(
            t.task,
            type=r.type,
            lane=r.lane,
            precedence=r.precedence,
            priority=r.priority,
            breakdown=r.breakdown,
        )

    def apply_manners(self, q: Q, v: Verdict) -> None:
        """D3, D4: set from what the lease saw; None leaves a count alone."""
        known = {name: getattr(q.manners, name) for name in q.manners.__struct_fields__}
        said = {name: getattr(v, name, None) for name in known if name != "calm"}
        new = known | {name: value for name, value in said.items() if value is not None}
        if v.calm is not None:
            new["calm"] = known["calm"] + 1 if v.calm else 0
            if v.calm and new["calm"] >= v.calm:  # D3: so many Done in a row lower it by one
                new |= {"level": max(0, new["level"] - 1), "calm": 0}
        q.manners = Manners(**new | {"last_delay": v.delay})
        if v.outcome == "done":
            q.errors = 0
        elif v.outcome != "dropped":
            q.errors += 1

    # ---- operators

    async def configure(self, crawl: str, rules: CrawlRules) -> bool:
        """A4: the layers below runtime; what was set by key at run time stays."""
        known = crawl in self.all
        c = self.crawl_of(crawl)
        new = msgspec.structs.replace(rules, runtime=c.rules.runtime)
        changed = known and new != c.rules
        c.rules = new
        return changed

    async def turn(self, crawl: str, status: CrawlStatus, reason: str = "operator") -> CrawlStatus:
        """I1, I3: an illegal move changes nothing; only work makes a finished crawl run."""
        c = self.crawl_of(crawl)
        by_work = c.status is CrawlStatus.FINISHED and status is CrawlStatus.RUNNING
        if status in STATUS_MOVES[c.status] and not by_work:
            self.move(c, status, reason)
        return c.status

    async def steer(
        self, crawl: str, target: str, act: acts.Act, *, after: int = 0, limit: int = 1000
    ) -> Step:
        """E7: recorded for queues to come, applied to those that match, in bounded steps."""
        c = self.crawl_of(crawl)
        changes = self.standing_order(act)
        if after == 0 and target and changes:
            c.rules = c.rules.ordered(target, changes)
        matching = [q for q in c.queues.values() if q.number > after and covers(target, q.key)]
        for q in matching[:limit]:
            self.apply_act(c, q, act, everywhere=not target)
        more = len(matching) > limit
        return Step(min(len(matching), limit), matching[limit - 1].number if more else None)

    def standing_order(self, act: acts.Act) -> dict[str, object]:
        """What a later queue of the same key or suffix is born with."""
        match act:
            case acts.Set(changes):
                return dict(changes)
            case acts.Pause() | acts.Resume():
                return {"paused": isinstance(act, acts.Pause)}
            case acts.Retire() | acts.Revive():
                return {"retired": isinstance(act, acts.Retire)}
            case _:
                return {}

    def apply_act(self, c: C, q: Q, act: acts.Act, *, everywhere: bool) -> None:
        """E5, E7."""
        now = self.clock.now_ms()
        match act:
            case acts.Set():
                rules = c.rules.of(q.key)
                if not everywhere or q.rules != rules:
                    self.apply_set(c, q, rules)
            case acts.Pause():
                q.paused = True
                self.settle(q)
            case acts.Resume():
                q.paused = False
                self.touch(c, q)
            case acts.Retire():
                self.retire(c, q, "operator")
            case acts.Revive():
                q.manners = msgspec.structs.replace(
                    q.manners, throttles_in_row=0, unreachable_in_row=0, blocks_in_row=0
                )
                if q.retired:
                    self.bring_back(c, q)
            case acts.Snooze(seconds):
                self.postpone(q, now + ms(seconds), "operator")
                self.settle(q)
            case acts.Wake():
                q.next_ready, q.why = min(q.next_ready, self.earliest(q)), "delay"

    def earliest(self, q: Q) -> int:
        """D1: `wake` goes back to the last visit's end + delay (or start + the least), no further."""
        manners = q.rules.politeness
        from_start = manners.count_from == "start"
        ended = q.last_start if from_start else q.last_end
        floor = 0 if q.last_end is None or ended is None else ended + q.delay_ms()
        if q.last_start is not None and (from_start or manners.max_in_flight > 1):
            floor = max(floor, q.last_start + ms(least_delay(manners, q.manners.crawl_delay)))
        return floor

    def apply_set(self, c: C, q: Q, rules: QueueRules) -> None:
        """E5: `set` acts at once: retires, returns, or judges anew what stands."""
        if rules.paused != q.rules.paused:
            q.paused = rules.paused
        q.rules = rules
        if q.over_budget():
            self.retire(c, q, "budget")
        elif q.retired == "budget":
            self.bring_back(c, q)
        self.settle(q)
        if q.standing:
            q.standing = None
            self.judge(c, q)

    # ---- tasks by filter

    async def drop(
        self, crawl: str, which: Which, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """C10: pending tasks become dropped (`operator`)."""

        def dropped(c: C, t: T) -> None:
            t.state, t.reason, t.finished = DROPPED, "operator", self.clock.now_ms()
            self.settle(t.queue)

        return self.each(crawl, which, PENDING, dropped, dry_run, after, limit)

    async def replay(
        self, crawl: str, which: Which, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """G2, B2: dead tasks become pending, attempts at 0, in their old place."""

        def replayed(c: C, t: T) -> None:
            t.state, t.due, t.finished = PENDING, self.clock.now_ms(), None
            t.attempts = t.failures = t.crashes = t.throttles = 0
            self.reopen(c)

        return self.each(crawl, which, DEAD, replayed, dry_run, after, limit)

    async def purge(
        self, crawl: str, which: Which, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """G2: dead tasks become dropped (`purged`)."""

        def purged(c: C, t: T) -> None:
            t.state, t.reason = DROPPED, "purged"

        return self.each(crawl, which, DEAD, purged, dry_run, after, limit)

    def each(self, crawl, which, state, act, dry_run, after, limit) -> Step:  # type: ignore[no-untyped-def]
        """A bounded step over tasks by number; a cancelled crawl's tasks read as dropped (I3)."""
        c = self.crawl_of(crawl)
        span = c.tasks[after : after + limit]
        live = [] if c.status is CrawlStatus.CANCELLED else span
        chosen = [t for t in live if t.state is state and self.matches(t, which)]
        for t in [] if dry_run else chosen:
            act(c, t)
        return Step(len(chosen), after + limit if after + limit < len(c.tasks) else None)

    def matches(self, t: T, which: Which) -> bool:
        """C10: all that match every field given."""
        now = self.clock.now_ms()
        return (
            (which.key is None or covers(which.key, t.task.key))
            and which.fingerprint in (None, t.task.fingerprint)
            and which.url in (None, t.task.url)
            and which.type in (None, t.task.type)
            and which.tag in (None, t.task.tag)
            and which.reason in (None, t.reason)
            and (which.pattern is None or bool(re.search(which.pattern, t.task.url)))
            and (which.older_than is None or now - t.discovered > which.older_than * 1000)
        )


__all__ = ["Model", "QueueState"]
