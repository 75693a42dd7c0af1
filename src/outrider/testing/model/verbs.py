"""The rules of the six verbs: add, claim, extend, finish, release, expire (B, C, D, E3, H)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite

import msgspec

from outrider.core.outcome import Last
from outrider.core.pick import Streak
from outrider.core.policy.politeness import min_delay_between
from outrider.core.states import CrawlStatus
from outrider.core.task import Added, Lease, LeaseId, PolitenessState, Task
from outrider.core.verdict import Finished, Verdict
from outrider.store.protocol import MAX_FINGERPRINTS, ClaimRequest, ClaimResult
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
from outrider.testing.model.schedule import Standing


class Verbs(Standing):
    """What a worker may ask."""

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
                self.raise_(c, old, task)
            elif task.known == "gather":
                self.gather(c, old, task)
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
            t.answer, t.answered = old.answer, old.answered
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

    def raise_(self, c: C, t: T, task: Task) -> None:
        """B3: a better priority moves a pending task forward, never back."""
        new, now = (task.precedence, task.priority), (t.task.precedence, t.task.priority)
        if t.state is PENDING and new < now:
            t.task = msgspec.structs.replace(
                t.task,
                precedence=task.precedence,
                priority=task.priority,
                breakdown=task.breakdown,
            )
            self.hasten(c, t.queue)

    def gather(self, c: C, t: T, task: Task) -> None:
        """F10: a priority below 0 is added to a pending task's; the breakdown stays as it was."""
        total = t.task.priority + task.priority
        if t.state is PENDING and task.priority < 0 and isfinite(total):
            t.task = msgspec.structs.replace(t.task, priority=total)
            self.hasten(c, t.queue)

    # ---- claim

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """ARCHITECTURE's algorithm, step by step."""
        c = self.crawl_of(request.crawl)
        self.take_back(c, EXPIRE_STEP)  # step 0: H4
        self.check_limits(c)
        leases: list[Lease] = []
        streak = request.streak
        if c.status is not CrawlStatus.RUNNING:  # I1: one not running lends nothing
            pass
        elif request.fingerprints:
            leases = self.lend_named(c, request)
        else:
            self.wake(c)  # step 1
            leases, streak = self.pick_all(c, request)
            self.close_run(c)
        return ClaimResult(leases, self.wake_in(c, request, leases), c.status, streak)

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
            q = min((self.rank(c, q, lane, taken[q.number]), q) for q in in_lane)[1]
            leases.append(self.lease(c, q, q.due(self.clock.now_ms(), lane)[0], request))
            taken[q.number] += 1
        for q in c.queues.values():
            if q.lent():  # C7: it competed in the claim that lends it, and in no other
                q.standing = None
        return leases, Streak(lane, count)

    def activate(self, c: C, q: Q) -> None:
        """E2: opens a session; over its budget it retires instead."""
        q.standing = None
        if q.over_budget():
            self.retire(c, q, "budget")
        else:
            q.session, q.standing = 0, "ready"

    def choose_lane(self, ready: list[Q], streak: Streak, burst: int) -> Streak | None:
        """C4: up to `burst` from one, then the other; an empty one is passed at once."""
        now = self.clock.now_ms()
        has = [any(q.due(now, lane) for q in ready) for lane in (0, 1)]
        if not any(has):
            return None
        lane, count = streak if streak.taken < burst else (1 - streak.lane, 0)
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
        self.charge(q, t.task.cost)
        q.turn, q.last_start, q.standing = c.count(), now, None
        manners = q.rules.politeness
        if manners.count_from == "start" or manners.max_in_flight > 1:
            self.postpone(q, now + ms(min_delay_between(manners, q.manners.crawl_delay)), "delay")
        self.keep_pace(q)
        lease = self.lent(q, t, request)
        if request.lend:
            t.lent = True
            q.standing = "ready" if self.goes_on(q) else None
        else:
            self.touch(c, q)
        return lease

    def goes_on(self, q: Q) -> bool:
        """C7: whatever slots and next-ready say, while it has due tasks and may spend."""
        spent = q.session is None or q.session >= q.rules.budget.balance
        return bool(q.due(self.clock.now_ms())) and not q.over_budget() and not spent

    def lend_named(self, c: C, request: ClaimRequest) -> list[Lease]:
        """D5: of the first 64 names, whatever next-ready, session and slots say."""
        leases: list[Lease] = []
        for t in [
            c.known[name] for name in request.fingerprints[:MAX_FINGERPRINTS] if name in c.known
        ]:
            free = not (t.queue.paused or t.queue.retired or t.queue.over_budget())
            due = t.state is PENDING and t.due <= self.clock.now_ms()
            if free and due and len(leases) < request.limit:
                leases.append(self.lease_named(c, t.queue, t, request))
        return leases

    def lease_named(self, c: C, q: Q, t: T, request: ClaimRequest) -> Lease:
        """D5: charged, but no visit begins; what stands ready is judged anew for its budget."""
        t.state, t.token, t.worker = LEASED, self.token(), request.worker
        t.deadline, t.named = self.clock.now_ms() + ms(request.lease_for), True
        self.charge(q, t.task.cost)
        lease = self.lent(q, t, request)
        if q.standing == "ready":
            q.standing = None
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
            last=self.last(t),
        )

    def last(self, t: T) -> Last | None:
        """G3: what a page that is visited again was answered, and how long ago."""
        if t.answer is None or t.answered is None:
            return None
        return Last(t.answer, max(0, self.clock.now_ms() - t.answered) / 1000)

    def wake_in(self, c: C, request: ClaimRequest, leases: list[Lease]) -> float | None:
        """C6: 0 if cut short; else to the earliest deadline or queue that time alone can bring."""
        if c.status is not CrawlStatus.RUNNING:
            return None
        if len(leases) >= request.limit:
            return 0.0
        times = [t.deadline for t in c.all(LEASED)]
        times += [
            max(q.next_ready, q.first_due())
            for q in c.queues.values()
            if not q.paused and not q.retired and q.of(PENDING) and q.has_slot()
        ]
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
                self.give_back(self.all[lease.crawl], t)
                freed.add(lease)
        return freed

    def give_back(self, c: C, t: T) -> None:
        """H5: released."""
        q = t.queue
        t.state, t.token, t.due = PENDING, self.token(), self.clock.now_ms()
        t.worker = None
        self.refund(q, t.task.cost)
        self.left_alone(q, t)
        self.return_if_affordable(c, q)
        self.touch(c, q)

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
            most = t.queue.rules.politeness.max_in_flight
            if t.lent and t.queue.crashed >= most:  # C7: no more can have been under way
                self.give_back(c, t)
            else:
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
        q.crashed += t.lent
        self.left_alone(q, t)
        self.touch(c, q)

    def left_alone(self, q: Q, t: T) -> None:
        """D7: nobody said how the visit ended; D5: by name there was none."""
        if not t.named:
            self.visit_ended(q, t, q.delay_ms())
        self.is_back(q, t)

    def is_back(self, q: Q, t: T) -> None:
        """D5, C7: however it was lent, it is no more; a loan ends with the last of its tasks.

        D1: a borrower begins when it likes, so the pace of a lent task counts from its end.
        """
        if t.lent and q.pace_ms():
            q.last_start = self.clock.now_ms()
            self.keep_pace(q)
        t.named = t.lent = False
        if not q.lent():
            q.crashed = 0

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
            if t.named:  # D5: its host was visited all the same, and that begins and ends now
                t.claimed = q.last_start = now
            self.apply_manners(q, v)
            self.visit_ended(q, t, ms(v.delay))
            if v.snooze:
                self.postpone(q, now + ms(v.snooze), v.snooze_reason or "delay")
        self.is_back(q, t)
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
            t.answer, t.answered = v.answer, now
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
        q.manners = PolitenessState(**new | {"last_delay": v.delay})
        if v.outcome == "done":
            q.errors = 0
        elif v.outcome != "dropped":
            q.errors += 1
