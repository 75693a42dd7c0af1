"""The rules of standing: who could be served, how a queue is judged, when a run ends (C1, E, I)."""

from __future__ import annotations

from outrider.clock import Clock
from outrider.core.policy.rules import CrawlRules
from outrider.core.states import CrawlStatus
from outrider.testing.model.records import LEASED, PENDING, C, Q, T
from outrider.testing.model.views import Views


class Standing(Views):
    """What holds of queues and crawls."""

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
            return
        is_spent = q.session is not None and q.session >= budget.balance
        q.session = None if is_spent else q.session  # E2: the session is over
        if q.session is None and (is_spent or budget.hold_queues) and not self.opens(c, q):
            q.standing, q.place = "inactive", c.count()
        else:
            q.session, q.standing = q.session or 0, "ready"

    def opens(self, c: C, q: Q) -> bool:
        """C9: whether the first due task of a lane opens its queue's session by itself."""
        below, now = c.rules.opens_below, self.clock.now_ms()
        firsts = [q.due(now, lane)[:1] for lane in (0, 1)]
        return below is not None and any(t.task.priority < below for first in firsts for t in first)

    def hasten(self, c: C, q: Q) -> None:
        """C9: a focus task does not wait for its queue's turn among the inactive."""
        if q.standing == "inactive" and self.opens(c, q):
            self.judge(c, q)

    def settle(self, q: Q) -> None:
        """E1: what stands keeps its place while it could be served; E2: empty ends a session."""
        if not self.servable(q):
            q.standing = None
        if not q.of(PENDING) and not q.of(LEASED):
            q.session = None

    def touch(self, c: C, q: Q) -> None:
        """E1: judged at once."""
        self.settle(q)
        if q.standing is None and self.servable(q):
            self.judge(c, q)
        self.hasten(c, q)

    def retire(self, c: C, q: Q, reason: str) -> None:
        """E5: set aside; a budget never overrides another reason."""
        if q.retired is None or reason not in ("budget", q.retired):
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

    def charge(self, q: Q, cost: int) -> None:
        """E3: to the total and the session now open."""
        q.spent += cost
        if q.session is not None:
            q.session += cost
        q.last_cost = cost
        q.cost_sum, q.cost_count = q.cost_sum + cost, q.cost_count + 1

    def visit_ended(self, q: Q, t: T, delay: int) -> None:
        """D1: next-ready is at least end (or start) + delay; it never moves back.

        C7: a borrower begins when it likes, so a lent visit counts as begun when it ends.
        """
        now = self.clock.now_ms()
        from_start = q.rules.politeness.count_from == "start" and not t.lent
        q.last_start = now if t.lent else q.last_start
        self.postpone(q, (t.claimed or now if from_start else now) + delay, "delay")
        q.last_end = now

    def keep_pace(self, q: Q) -> None:
        """D1: visits/s: 1/rate between two leases of a queue, whatever the delays and slots."""
        if q.pace_ms() and q.last_start is not None:
            self.postpone(q, q.last_start + q.pace_ms(), "delay")

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
