"""The rules of the six verbs: add, claim, extend, finish, release, expire (B, C, D, E3, H)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite

import msgspec

from outrider.core.pick import Streak
from outrider.core.policy.politeness import (
    delay_at_start,
    draw_delay,
    draws_at_start,
    min_delay_between,
)
from outrider.core.states import CrawlStatus
from outrider.core.task import Added, Lease, LeaseId, PolitenessState, Task
from outrider.core.verdict import Finished, Requeue, Verdict
from outrider.store.byte_limits import MAX_RESULT_BYTES, task_bytes
from outrider.store.protocol import MAX_FINGERPRINTS, ClaimRequest, ClaimResult
from outrider.store.validation import validate_claim, validate_crawls
from outrider.testing.model.records import (
    DEAD,
    DONE,
    DROPPED,
    EXPIRE_STEP,
    LEASED,
    PENDING,
    WAKE_STEP,
    C,
    Q,
    T,
    ms,
)
from outrider.testing.model.schedule import Schedule


def is_full(leases: Sequence[Lease]) -> bool:
    """Whether the texts of leased tasks have as many bytes as a claim returns (C6)."""
    return sum(task_bytes(lease.about) for lease in leases) >= MAX_RESULT_BYTES


class Verbs(Schedule):
    """The verbs of workers."""

    # ---- add

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """Add tasks; one answer per task, in order (B3, B4)."""
        validate_crawls({task.crawl for task in tasks})  # N1
        answers = [self.add_one(self.all.get(task.crawl), task) for task in tasks]
        for name in dict.fromkeys(task.crawl for task in tasks):
            if self.exists(name):
                self.check_limits(self.all[name])
        return answers

    def add_one(self, c: C | None, task: Task, finishing: T | None = None) -> Added:
        """Add a task, or refuse it: cancelled (I1), duplicate (B3), queue-full (B4).

        No add creates a crawl: one that does not exist is as one that is cancelled.
        A link of a page to the page itself, which is being finished, is a duplicate (H6).
        """
        if c is None or c.status is CrawlStatus.CANCELLED:
            return Added(task.url, added=False, reason="cancelled")
        old = c.known.get(task.fingerprint)
        if old is not None and (old is finishing or not self.admits_again(old, task)):
            if task.known == "raise":
                self.raise_(c, old, task)
            elif task.known == "gather":
                self.gather(c, old, task)
            return Added(task.url, added=False, reason="duplicate")
        q = c.queues.get(task.key)
        is_waiting = old is not None and old.state is PENDING
        if not task.done and not is_waiting and self.is_full(c, q):  # B4
            return Added(task.url, added=False, reason="queue-full")
        if old is not None and old.state is LEASED:  # B3: its lease ends without punishment
            self.release_one(c, old)
        self.insert(c, q or self.new_queue(c, task.key), task, old)
        return Added(task.url, added=True, priority=task.priority)

    def admits_again(self, old: T, task: Task) -> bool:
        """Whether a link changes a known task into what it describes (B3)."""
        if old.forgotten:  # C10: as if it were not known
            return True
        is_ended = old.state in (DONE, DEAD, DROPPED)
        return task.known == "set" or (task.known == "revisit" and is_ended)

    def is_full(self, c: C, q: Q | None) -> bool:
        """Whether the crawl (without retired queues) or the queue is full (B4)."""
        most, most_each = c.rules.max_pending, c.rules.max_pending_per_queue
        if most and c.open_pending() >= most:
            return True
        return bool(most_each and q and len(q.of(PENDING)) >= most_each)

    def new_queue(self, c: C, key: str) -> Q:
        """Create a queue with a turn (C3) and the rules of its key (A4)."""
        rules = c.rules.of(key)
        retired = "operator" if rules.retired else None
        q = Q(key, len(c.queues) + 1, rules, c.count(), rules.paused, retired)
        c.queues[key] = q
        return q

    def insert(self, c: C, q: Q, task: Task, old: T | None) -> None:
        """Insert a task with its tie (C2); a known one starts again at 0 attempts (B2)."""
        now = self.clock.now_ms()
        number, is_done = old.number if old else len(c.tasks) + 1, task.done
        task = msgspec.structs.replace(task, done=False)
        t = T(number, task, q, self.tie(c, task), now + ms(task.delay), now)
        if old:
            t.discovered, t.token = old.discovered, old.token
            t.answer, t.answered = old.answer, old.answered
            old.queue.tasks.remove(old)
            c.tasks[old.number - 1] = t
        else:
            c.tasks.append(t)
        c.known[task.fingerprint] = t
        q.tasks.append(t)
        if old and old.state is PENDING and (is_done or old.queue is not q):
            self.refresh(old.queue)
        if is_done:  # B3: done now without a visit; it opens no run (I2)
            t.state, t.finished = DONE, now
            return
        c.first = now if c.first is None else c.first
        self.reopen(c)
        self.reschedule(c, q)

    def tie(self, c: C, task: Task) -> int:
        """Return the tie: arrival number, its complement, or the caller's roll; 48 bits (C2)."""
        c.arrivals += 1
        return {"fifo": c.arrivals, "lifo": 2**48 - 1 - c.arrivals, "shuffle": task.roll}[
            c.rules.tie
        ]

    def raise_(self, c: C, t: T, task: Task) -> None:
        """Give a pending task a better priority, never a worse one (B3)."""
        new, now = (task.precedence, task.priority), (t.task.precedence, t.task.priority)
        if t.state is PENDING and new < now:
            t.task = msgspec.structs.replace(
                t.task,
                precedence=task.precedence,
                priority=task.priority,
                breakdown=task.breakdown,
            )
            self.activate_for_focus(c, t.queue)

    def gather(self, c: C, t: T, task: Task) -> None:
        """Add a priority below 0 to that of a pending task; its breakdown stays (F10)."""
        total = t.task.priority + task.priority
        if t.state is PENDING and task.priority < 0 and isfinite(total):
            t.task = msgspec.structs.replace(t.task, priority=total)
            self.activate_for_focus(c, t.queue)

    # ---- claim

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """Claim by the algorithm of ARCHITECTURE.md, step by step."""
        validate_claim(request)  # H4
        if not self.exists(request.crawl):  # I1: a claim creates none, so removed ones stay so
            return ClaimResult([], None, CrawlStatus.CANCELLED, request.streak)
        c = self.all[request.crawl]
        self.expire_overdue(c, EXPIRE_STEP)  # step 0: H4
        self.check_limits(c)
        leases: list[Lease] = []
        streak = request.streak
        if c.status is not CrawlStatus.RUNNING:  # I1: leases no task
            pass
        elif request.fingerprints:
            leases = self.claim_named(c, request)
        else:
            self.wake(c)  # step 1
            leases, streak = self.pick_all(c, request)
            self.close_run(c)
        return ClaimResult(leases, self.wake_in(c, request, leases), c.status, streak)

    def wake(self, c: C) -> None:
        """List the servable queues, by (max(next-ready, first due), number) (E1)."""
        waiting = [q for q in c.queues.values() if q.list_state is None and self.servable(q)]
        waiting.sort(key=lambda q: (max(q.next_ready, q.first_due()), q.number))
        for q in waiting[:WAKE_STEP]:
            self.choose_list(c, q)

    def pick_all(self, c: C, request: ClaimRequest) -> tuple[list[Lease], Streak]:
        """Activate, choose the lane and lease the best task, until the limit (steps 2 to 5)."""
        leases: list[Lease] = []
        taken: Counter[int] = Counter()
        lane, count = request.streak
        while len(leases) < request.limit and not is_full(leases):
            # C5: all other queues count as not ready, and are not activated, for this claim
            free = [q for q in self.named_queues(c, request) if self.may_take(request, q, taken)]
            ready = [q for q in free if q.list_state == "ready"]
            heads = [q for q in free if q.list_state == "inactive"]
            head = min(heads, key=lambda q: (q.rules.precedence, q.place), default=None)
            if head and all(q.rules.precedence > head.rules.precedence for q in ready):
                self.activate(c, head)
                continue
            chosen = self.choose_lane(ready, Streak(lane, count), c.rules.burst)
            if chosen is None:
                break  # C4: the claim ends, lane and count stay
            lane, count = chosen
            in_lane = [q for q in ready if q.due(self.clock.now_ms(), lane)]
            q = min((self.rank(c, q, lane, taken[q.number]), q) for q in in_lane)[1]
            task, roll = q.due(self.clock.now_ms(), lane)[0], request.roll(len(leases))
            leases.append(self.lease(c, q, task, request, roll))
            taken[q.number] += 1
        for q in c.queues.values():
            if q.lent_tasks():  # C7: a lent queue is on no list for other claims
                q.list_state = None
        return leases, Streak(lane, count)

    def named_queues(self, c: C, request: ClaimRequest) -> list[Q]:
        """Return the queues a claim may lease from: all, or those of its keys (C5)."""
        if not request.keys:
            return list(c.queues.values())
        found = [c.queues.get(key) or c.queues.get(key.lower()) for key in request.keys]
        return list(dict.fromkeys(q for q in found if q))

    def may_take(self, request: ClaimRequest, q: Q, taken: Counter[int]) -> bool:
        """Whether a claim may take another task of a queue, after what it has taken (C5)."""
        if request.per_queue and taken[q.number] >= request.per_queue:
            return False
        most = request.max_queues
        return not most or q.number in taken or len(taken) < most

    def activate(self, c: C, q: Q) -> None:
        """Open a session, or retire a queue that is over its budget (E2)."""
        q.list_state = None
        if q.over_budget():
            self.retire(c, q, "budget")
        else:
            q.session, q.list_state = 0, "ready"

    def choose_lane(self, ready: list[Q], streak: Streak, burst: int) -> Streak | None:
        """Return the lane of the next lease: up to `burst` from one, then the other (C4)."""
        now = self.clock.now_ms()
        has = [any(q.due(now, lane) for q in ready) for lane in (0, 1)]
        if not any(has):
            return None
        lane, count = streak if streak.taken < burst else (1 - streak.lane, 0)
        if not has[lane]:
            lane, count = 1 - lane, 0
        return Streak(lane, count + 1)

    def rank(self, c: C, q: Q, lane: int, taken: int) -> tuple[float, ...]:
        """Return the order among queues: precedences, priority with discount (C5), turn (C3)."""
        if c.rules.order == "round-robin":
            return q.rules.precedence, q.turn
        top = q.due(self.clock.now_ms(), lane)[0].task
        discounted = top.priority + c.rules.breadth_discount * taken
        return q.rules.precedence, top.precedence, discounted, q.turn

    def lease(self, c: C, q: Q, t: T, request: ClaimRequest, roll: float) -> Lease:
        """Lease a task: token, deadline (H1), charge (E3), turn (C3), next-ready (D1)."""
        now = self.clock.now_ms()
        gap = -1.0 if q.last_end is None else (now - q.last_end) / 1000
        t.state, t.token, t.worker = LEASED, self.token(), request.worker
        t.claimed = t.leased = now
        t.lasts, t.deadline = ms(request.lease_for), now + ms(request.lease_for)
        self.charge(q, t.task.cost)
        t.turn = q.turn = c.count()
        q.last_start, q.list_state = now, None
        politeness = q.rules.politeness
        if politeness.count_from == "start" or politeness.max_in_flight > 1:
            self.postpone(
                q, now + ms(min_delay_between(politeness, q.politeness.crawl_delay)), "delay"
            )
        self.apply_pace(q)
        before, t.drawn = q.politeness, -1.0
        if draws_at_start(politeness) and not request.lend:  # C7: the borrower of a loan draws
            self.draw(q, t, roll)
        lease = msgspec.structs.replace(
            self.lease_of(t), lease_for=request.lease_for, manners=before, gap=gap
        )
        if request.lend:
            t.lent = True
            q.list_state = "ready" if self.may_lend_more(q) else None
        else:
            self.reschedule(c, q)
        return lease

    def draw(self, q: Q, t: T, roll: float) -> None:
        """Draw the delay that counts from the start of a visit; it is the last delay now (D1)."""
        rules, state = q.rules.politeness, q.politeness
        t.drawn = draw_delay(rules, roll)
        delay = delay_at_start(rules, t.drawn, state.crawl_delay, state.level)
        q.politeness = msgspec.structs.replace(state, last_delay=delay)
        self.postpone(q, self.clock.now_ms() + ms(delay), "delay")

    def may_lend_more(self, q: Q) -> bool:
        """Whether a loan may take another task: one is due, and the budget allows it (C7)."""
        spent = q.session is None or q.session >= q.rules.budget.balance
        return bool(q.due(self.clock.now_ms())) and not q.over_budget() and not spent

    def claim_named(self, c: C, request: ClaimRequest) -> list[Lease]:
        """Lease tasks by fingerprint, regardless of next-ready, session and slots (D5)."""
        leases: list[Lease] = []
        for t in [
            c.known[name] for name in request.fingerprints[:MAX_FINGERPRINTS] if name in c.known
        ]:
            free = not (t.queue.paused or t.queue.retired or t.queue.over_budget())
            due = t.state is PENDING and t.due <= self.clock.now_ms()
            if free and due and len(leases) < request.limit and not is_full(leases):
                leases.append(self.lease_named(c, t.queue, t, request))
        return leases

    def lease_named(self, c: C, q: Q, t: T, request: ClaimRequest) -> Lease:
        """Lease and charge a task by fingerprint; no visit begins (D5)."""
        t.state, t.token, t.worker = LEASED, self.token(), request.worker
        t.turn, t.leased = c.count(), self.clock.now_ms()  # its queue keeps its own turn
        t.lasts, t.deadline = ms(request.lease_for), t.leased + ms(request.lease_for)
        t.named, t.drawn = True, -1.0
        self.charge(q, t.task.cost)
        lease = msgspec.structs.replace(self.lease_of(t), lease_for=request.lease_for)
        if q.list_state == "ready":
            q.list_state = None
        self.reschedule(c, q)
        return lease

    def wake_in(self, c: C, request: ClaimRequest, leases: list[Lease]) -> float | None:
        """Return 0 if a limit ended the claim, else the seconds to the next event (C6)."""
        if c.status is not CrawlStatus.RUNNING:
            return None
        if len(leases) >= request.limit or is_full(leases):
            return 0.0
        times = [t.deadline for t in c.all(LEASED)]
        times += [
            max(q.next_ready, q.first_due())
            for q in self.named_queues(c, request)
            if not q.paused and not q.retired and q.of(PENDING) and q.has_slot()
        ]
        if not times:
            return None
        return max(0, min(times) - self.clock.now_ms()) / 1000

    # ---- leases

    def held(self, lease: LeaseId) -> T | None:
        """Return the task whose token this is, unless its crawl is cancelled (H3, I3)."""
        c = self.all.get(lease.crawl)
        if c is None or c.status is CrawlStatus.CANCELLED or not 0 < lease.task <= len(c.tasks):
            return None
        t = c.tasks[lease.task - 1]
        return t if t.token == lease.token else None

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """Extend leases (H2)."""
        validate_crawls({lease.crawl for lease in leases})
        kept = set()
        for lease in leases:
            t = self.held(lease)
            if t and t.state is LEASED:
                t.deadline = self.clock.now_ms() + ms(lease_for)
                kept.add(lease)
        return kept

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """Release leases: refunded (E3), in their old order (H5), the visit ends now (D7)."""
        validate_crawls({lease.crawl for lease in leases})
        freed = set()
        for lease in leases:
            t = self.held(lease)
            if t and t.state is LEASED:
                self.release_one(self.all[lease.crawl], t)
                freed.add(lease)
        return freed

    def release_one(self, c: C, t: T) -> None:
        """Release one lease (H5)."""
        q = t.queue
        t.state, t.token, t.due = PENDING, self.token(), self.clock.now_ms()
        t.worker = None
        self.refund(q, t.task.cost)
        self.visit_lost(q, t)
        self.return_if_affordable(c, q)
        self.reschedule(c, q)

    async def expire(self, *, limit: int) -> int:
        """Expire overdue leases of all crawls (H4)."""
        count = 0
        for c in list(self.all.values()):
            count += self.expire_overdue(c, limit - count)
        return count

    def expire_overdue(self, c: C, limit: int) -> int:
        """Expire overdue leases, by (deadline, arrival); each is a crash (H4)."""
        if c.status is CrawlStatus.CANCELLED:
            return 0
        now = self.clock.now_ms()
        overdue = sorted(
            (t for t in c.all(LEASED) if t.deadline <= now), key=lambda t: (t.deadline, t.number)
        )[:limit]
        for t in overdue:
            most = t.queue.rules.politeness.max_in_flight
            if t.lent and t.queue.crashed >= most:  # C7: no more visits can have been in flight
                self.release_one(c, t)
            else:
                self.crash(c, t)
        return len(overdue)

    def crash(self, c: C, t: T) -> None:
        """Count a crash as an attempt; the task is due at once, or dead after too many (H4)."""
        now, q = self.clock.now_ms(), t.queue
        t.token, t.due = self.token(), now
        t.attempts, t.crashes = t.attempts + 1, t.crashes + 1
        t.reason = "lease expired"
        t.history.append((now / 1000, t.worker or "", t.reason))
        c.visits += 1
        c.outcomes["crashed"] += 1
        q.errors += 1
        most = c.rules.max_crashes  # 0: a task never dies of crashes
        hopeless = t.failures > c.rules.max_retries or 0 < most <= t.crashes
        t.state, t.finished = (DEAD, now) if hopeless else (PENDING, None)
        self.log(c, "died" if hopeless else "expired", t.task.url, t.worker or "")
        q.crashed += t.lent
        self.visit_lost(q, t)
        self.reschedule(c, q)

    def visit_lost(self, q: Q, t: T) -> None:
        """End a visit without an outcome (D7); a named lease had none (D5)."""
        if not t.named:
            self.visit_ended(q, t, q.delay_ms())
        self.lease_ended(q, t)

    def lease_ended(self, q: Q, t: T) -> None:
        """End the lease of a task; a loan ends with the last of its tasks (C7).

        The pace of a lent task counts from its end, since the borrower chose its start (D1).
        """
        if t.lent and q.pace_ms():
            q.last_start = self.clock.now_ms()
            self.apply_pace(q)
        t.named = t.lent = False
        if not q.lent_tasks():
            q.crashed = 0

    # ---- finish

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """Apply verdicts (H3, H6)."""
        validate_crawls({verdict.crawl for verdict in verdicts})
        return [self.finish_one(verdict) for verdict in verdicts]

    def finish_one(self, v: Verdict) -> Finished:
        """Apply one verdict: applied if leased, True again if finished, else False (H3)."""
        t = self.held(LeaseId(v.crawl, v.task, v.token))
        if t is None:
            return Finished(applied=False)
        if t.state is not LEASED:
            return Finished(applied=True)
        c = self.all[v.crawl]
        answers = [self.add_one(c, task, t) for task in v.tasks]  # H6: links first, in order
        self.apply(c, t.queue, t, v)
        self.check_limits(c)
        return Finished(applied=True, state=t.state, answers=answers)

    def apply(self, c: C, q: Q, t: T, v: Verdict) -> None:
        """Apply the numbers of a verdict to task, queue and crawl."""
        now = self.clock.now_ms()
        c.visits += 1
        c.outcomes[v.outcome] += 1
        t.attempts += v.counts  # E3: charged exactly when the attempt counts
        t.failures += v.failed
        t.throttles += v.throttled
        self.count_blocks(c, t, v.outcome)
        if not v.counts:
            self.refund(q, t.task.cost)
        q.spent += v.penalty  # E3
        if q.session is not None:
            q.session += v.penalty
        self.apply_to_task(c, q, t, v)
        if v.touched:
            if t.named:  # D5: its host was visited, from now to now
                t.claimed = q.last_start = now
            self.apply_politeness(q, t, v)
            self.visit_ended(q, t, ms(v.delay))
            if v.snooze:
                self.postpone(q, now + ms(v.snooze), v.snooze_reason or "delay")
        self.lease_ended(q, t)
        if v.retire:  # D3, D4
            self.retire(c, q, v.retire)
        budget = q.rules.budget
        if 0 < budget.max_done <= q.dones or 0 < budget.max_bytes <= q.bytes:  # E6
            self.retire(c, q, "quota")
        self.return_if_affordable(c, q)
        self.reschedule(c, q)

    def count_blocks(self, c: C, t: T, outcome: str) -> None:
        """Count a visit that is done after its task had been blocked (O1)."""
        if outcome == "blocked":
            t.blocks += 1
        elif outcome == "done":
            c.recovered += t.blocks > 0
            t.blocks = 0

    def return_if_affordable(self, c: C, q: Q) -> None:
        """Revive a queue retired by its budget if a refund made it affordable (E3)."""
        if q.retired == "budget" and not q.over_budget():
            self.revive(c, q)

    def apply_to_task(self, c: C, q: Q, t: T, v: Verdict) -> None:
        """Set the task's state (B2); a revisit has another type and 0 attempts (G3)."""
        now = self.clock.now_ms()
        t.state, t.reason = v.state, v.reason
        if v.reason and v.counts:  # G2
            t.history.append((now / 1000, t.worker or "", v.reason))
        if v.answer:
            t.answer, t.answered = v.answer, now
            c.dones, q.dones = c.dones + 1, q.dones + 1
            c.bytes, q.bytes = c.bytes + v.answer.bytes, q.bytes + v.answer.bytes
        t.finished = None if v.state is PENDING and not v.revisit else now
        if v.revisit:
            self.revisit(c, t, v)
        elif v.requeue:
            self.requeue(t, v.requeue)
        elif v.state is PENDING:
            t.due = now + ms(v.retry_in)

    def revisit(self, c: C, t: T, v: Verdict) -> None:
        """Insert a task again, as its verdict says (G3, C2)."""
        assert v.revisit is not None
        r = v.revisit
        t.tie = self.tie(c, t.task)
        t.attempts = t.failures = t.crashes = t.throttles = t.blocks = 0
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

    def requeue(self, t: T, r: Requeue) -> None:
        """Return a task as its worker wants it (G1), in its old place or before all others (C2)."""
        t.tie = 0 if r.front else t.tie
        t.due = self.clock.now_ms() + ms(r.after)
        t.task = msgspec.structs.replace(
            t.task,
            type=r.type,
            lane=r.lane,
            precedence=r.precedence,
            priority=r.priority,
            breakdown=r.breakdown,
            meta=t.task.meta if r.meta is None else r.meta,
        )

    def apply_politeness(self, q: Q, t: T, v: Verdict) -> None:
        """Set the politeness state from the verdict; None leaves a count as it is (D3, D4)."""
        known = {name: getattr(q.politeness, name) for name in q.politeness.__struct_fields__}
        said = {name: getattr(v, name, None) for name in known if name != "calm"}
        new = known | {name: value for name, value in said.items() if value is not None}
        if v.calm is not None:
            new["calm"] = known["calm"] + 1 if v.calm else 0
            if v.calm and new["calm"] >= v.calm:  # D3: so many Done in a row lower the level by one
                new |= {"level": max(0, new["level"] - 1), "calm": 0}
        q.politeness = PolitenessState(**new | {"last_delay": self.last_delay(q, t, v)})
        if v.outcome == "done":
            q.errors = 0
        elif v.outcome not in ("dropped", "again"):
            q.errors += 1

    def last_delay(self, q: Q, t: T, v: Verdict) -> float:
        """Return the last delay after a visit: of drawn ones that of the last start (D1).

        A verdict may raise it, since the page or the host asked for more than what was drawn.
        """
        if t.drawn < 0 or not draws_at_start(q.rules.politeness):
            return v.delay
        is_last = t.claimed is not None and q.last_start is not None and t.claimed >= q.last_start
        return max(v.delay, q.politeness.last_delay) if is_last else q.politeness.last_delay
