"""The rules of the schedule: ready and inactive lists, budgets, delays, ends of runs (C1, E, I)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from outrider.clock import Clock
from outrider.core.policy.rules import CrawlRules
from outrider.core.states import CrawlStatus
from outrider.store.protocol import STORE_VALUES, Notifies
from outrider.store.validation import validate_crawls
from outrider.testing.model.records import DEAD, DONE, DROPPED, LEASED, PENDING, C, Q, T
from outrider.testing.model.views import Views

NO_COUNTS: Final[Mapping[str, int]] = MappingProxyType({})


class Schedule(Views):
    """Decides which list a queue is on, and the status of a crawl."""

    def __init__(self, clock: Clock) -> None:
        self.id = f"model-{id(self)}"
        self.is_inline = True
        self.notifies: Notifies = "never"
        self.clock = clock
        self.all: dict[str, C] = {}
        self.own = C(STORE_VALUES, CrawlRules(), clock.now_ms())  # N1: values of the store itself
        self.tokens = 0

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def token(self) -> int:
        """Return a new token: at claim, release and expiry (H1)."""
        self.tokens += 1
        return self.tokens

    def exists(self, name: str) -> bool:
        """Tell whether a crawl was created, and not removed since (I1)."""
        validate_crawls((name,))
        return name in self.all

    def crawl_of(self, name: str) -> C:
        """Return a crawl, created if it does not exist (I1): only by opening or restoring it."""
        validate_crawls((name,))  # not the store itself (N1)
        if name not in self.all:
            self.all[name] = C(name, CrawlRules(), self.clock.now_ms())
        return self.all[name]

    def servable(self, q: Q) -> bool:
        """Whether it is past next-ready, not paused or retired, with a slot and a due task (E1)."""
        now = self.clock.now_ms()
        free = not q.paused and not q.retired and q.next_ready <= now and q.has_slot()
        return free and bool(q.due(now))

    def choose_list(self, c: C, q: Q) -> None:
        """Retire a queue, or put it at the back of the inactive list or on the ready list (E1)."""
        budget = q.rules.budget
        if q.over_budget():
            self.retire(c, q, "budget")
            return
        is_spent = q.session is not None and q.session >= budget.balance
        q.session = None if is_spent else q.session  # E2: the session is over
        if q.session is None and (is_spent or budget.hold_queues) and not self.opens_session(c, q):
            q.list_state, q.place = "inactive", c.count()
        else:
            q.session, q.list_state = q.session or 0, "ready"

    def opens_session(self, c: C, q: Q) -> bool:
        """Whether the first due task of a lane opens its queue's session by itself (C9)."""
        below, now = c.rules.opens_below, self.clock.now_ms()
        firsts = [q.due(now, lane)[:1] for lane in (0, 1)]
        return below is not None and any(t.task.priority < below for first in firsts for t in first)

    def activate_for_focus(self, c: C, q: Q) -> None:
        """Activate an inactive queue whose first task is a focus task (C9)."""
        if q.list_state == "inactive" and self.opens_session(c, q):
            self.choose_list(c, q)

    def refresh(self, q: Q) -> None:
        """Unlist a queue that cannot be served (E1); end the session of an empty one (E2)."""
        if not self.servable(q):
            q.list_state = None
        if not q.of(PENDING) and not q.of(LEASED):
            q.session = None

    def reschedule(self, c: C, q: Q) -> None:
        """Decide again which list a queue is on (E1)."""
        self.refresh(q)
        if q.list_state is None and self.servable(q):
            self.choose_list(c, q)
        self.activate_for_focus(c, q)

    def retire(self, c: C, q: Q, reason: str) -> None:
        """Retire a queue; the reason "budget" never replaces another (E5)."""
        if q.retired is None or reason not in ("budget", q.retired):
            self.log(c, "queue-retired", q.key, reason)
            q.retired = reason
        q.list_state = None

    def revive(self, c: C, q: Q) -> None:
        """Revive a queue (E5); with pending tasks it makes a finished crawl run (I2)."""
        self.log(c, "queue-returned", q.key, q.retired or "")
        q.retired = None
        if q.of(PENDING):
            self.reopen(c)
        self.reschedule(c, q)

    def refund(self, q: Q, cost: int) -> None:
        """Refund a cost to the total and the open session, never below 0 (E3)."""
        q.spent = max(0, q.spent - cost)
        if q.session is not None:
            q.session = max(0, q.session - cost)

    def charge(self, q: Q, cost: int) -> None:
        """Charge a cost to the total and the open session (E3)."""
        q.spent += cost
        if q.session is not None:
            q.session += cost
        q.last_cost = cost
        q.cost_sum, q.cost_count = q.cost_sum + cost, q.cost_count + 1

    def visit_ended(self, q: Q, t: T, delay: int) -> None:
        """Postpone next-ready to the visit's end (or start) + delay (D1).

        The visit of a lent task counts as begun when it ends: the borrower paces it (C7).
        """
        now = self.clock.now_ms()
        from_start = q.rules.politeness.count_from == "start" and not t.lent
        q.last_start = now if t.lent else q.last_start
        self.postpone(q, (t.claimed or now if from_start else now) + delay, "delay")
        q.last_end = now

    def apply_pace(self, q: Q) -> None:
        """Postpone next-ready to the last lease + 1/visits_per_second (D1)."""
        if q.pace_ms() and q.last_start is not None:
            self.postpone(q, q.last_start + q.pace_ms(), "delay")

    def postpone(self, q: Q, until: int, why: str) -> None:
        """Move next-ready forward; it never moves back (D1)."""
        if until > q.next_ready:
            q.next_ready, q.why = until, why

    # ---- the crawl

    def log(
        self, c: C, name: str, subject: str, detail: str, counts: Mapping[str, int] = NO_COUNTS
    ) -> None:
        """Log an event, with the operator whose act caused it (O3)."""
        c.last_event += 1
        now = self.clock.now_ms()
        c.log.append((c.last_event, now, name, subject, detail, c.by, dict(counts)))

    def set_crawl_status(
        self, c: C, status: CrawlStatus, reason: str, counts: Mapping[str, int] = NO_COUNTS
    ) -> None:
        """Set the status of a crawl (I1)."""
        now = self.clock.now_ms()
        c.status, c.reason = status, reason
        c.timeline.append((now / 1000, status.value, reason))
        self.log(c, f"crawl-{status.value}", c.name, reason, counts)

    def counts_at_end(self, c: C) -> dict[str, int]:
        """Return what the end of a run reports: tasks by state, and visits (I2, O3)."""
        ended = {state.value: len(c.all(state)) for state in (DONE, DEAD, DROPPED)}
        held = len(c.all(PENDING))  # in retired queues: nothing else is left
        return {"known": len(c.tasks), **ended, "held": held, "visits": c.visits}

    def reopen(self, c: C) -> None:
        """Let a finished crawl run again, because of a new task (I2)."""
        c.at_finish = False
        if c.status is CrawlStatus.FINISHED:
            self.set_crawl_status(c, CrawlStatus.RUNNING, "work")

    def check_limits(self, c: C) -> None:
        """Pause a crawl that reached a limit (I4)."""
        limits, now = c.rules.limits, self.clock.now_ms()
        age = 0.0 if c.first is None else (now - c.first) / 1000
        reached = {"tasks": len(c.tasks), "done": c.dones, "bytes": c.bytes, "seconds": age}
        for name, value in reached.items():
            limit = getattr(limits, name)
            if limit and value >= limit and c.status is CrawlStatus.RUNNING:
                self.set_crawl_status(c, CrawlStatus.PAUSED, f"limit-{name}")

    def close_run(self, c: C) -> None:
        """End the run if nothing is leased or pending in an unretired queue (I2).

        A crawl that never had a pending task has no run to end.
        """
        if c.first is None or c.all(LEASED) or c.open_pending() or c.rules.stay_open:
            return
        if c.rules.pause_at_finish and not c.at_finish:
            c.at_finish = True
            self.set_crawl_status(c, CrawlStatus.PAUSED, "finish")
        else:
            c.runs, c.finished = c.runs + 1, self.clock.now_ms()
            counts = self.counts_at_end(c)
            self.set_crawl_status(c, CrawlStatus.FINISHED, f"run {c.runs}", counts)
