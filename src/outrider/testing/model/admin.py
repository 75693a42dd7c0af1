"""The rules of `Admin`: queue actions, crawl status, task filters, values (C10, E5, E7, G2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from outrider.core import queue_action as actions
from outrider.core.pattern import compile_pattern
from outrider.core.policy.politeness import draws_at_start, min_delay_between
from outrider.core.policy.rules import CrawlRules, QueueRules, covers, use_actions
from outrider.core.states import DELETING, FORGOTTEN, OPERATOR_MOVES, CrawlStatus, TaskState
from outrider.core.worker_totals import later_totals, sum_of_totals
from outrider.store.acts import (
    Act,
    act_of_configure,
    act_of_filter,
    act_of_steer,
    validate_by,
)
from outrider.store.event_ring import RING_BYTES, RING_EVENTS, batch_bytes
from outrider.store.protocol import (
    MAX_WORKERS,
    STORE_VALUES,
    WORKER_KEPT_SECONDS,
    EventBatch,
    Heartbeat,
    PriorityUpdate,
    SharedValue,
    SharedValueWrite,
    Step,
    TaskFilter,
    WhichCrawl,
)
from outrider.store.validation import (
    validate_batch,
    validate_crawls,
    validate_heartbeat,
    validate_priority_updates,
    validate_shared_values,
)
from outrider.testing.model.records import DEAD, DROPPED, LEASED, PENDING, C, Q, T, W, ms
from outrider.testing.model.verbs import Verbs


class AdminVerbs(Verbs):
    """The verbs of operators."""

    @contextmanager
    def signed(self, c: C, by: str, act: Act | None = None) -> Iterator[None]:
        """Log an act that says who did it; the events it causes carry that name (O3)."""
        c.by = by
        if by and act is not None:
            self.log(c, *act)
        yield
        c.by = ""

    async def configure(
        self,
        crawl: str,
        rules: CrawlRules,
        settings: str = "",
        *,
        only: WhichCrawl = "any",
        by: str = "",
    ) -> bool:
        """Replace the rules below the runtime layer; that one stays (A4); create the crawl (I1)."""
        validate_by(by)
        if only == ("new" if self.exists(crawl) else "known"):
            return False
        c = self.crawl_of(crawl)
        with self.signed(c, by, act_of_configure(crawl)):
            c.settings = settings or c.settings
            new = msgspec.structs.replace(rules, runtime=c.rules.runtime)
            c.rules_applied = c.rules_applied and not (c.queues and new != c.rules)
            c.rules = new
        return not c.rules_applied

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        """Record roots, each once, in order of arrival (A5)."""
        if not self.exists(crawl):  # I1: only opening or restoring a crawl creates it
            return
        known = self.all[crawl].roots.setdefault(mode, [])
        known += [root for root in dict.fromkeys(roots) if root not in known]

    async def put_values(self, crawl: str, values: Sequence[SharedValueWrite]) -> list[int]:
        """Write shared values, each if its last known version is current (F4, N1)."""
        validate_shared_values(values)
        c = self.own if crawl == STORE_VALUES else self.all.get(crawl)
        return [0 if c is None else self.put_value(c, note) for note in values]  # I1

    def put_value(self, c: C, note: SharedValueWrite) -> int:
        """Write one value; a changed one gets a number higher than all before."""
        old = c.values.get((note.topic, note.name))
        number = old.number if old else 0
        if note.seen not in (None, number):
            return 0
        if (old.text if old else "") == note.text:
            return number
        highest = max((one.number for one in c.values.values()), default=0)
        new = SharedValue(highest + 1, self.clock.now_ms() / 1000, note.topic, note.name, note.text)
        c.values[note.topic, note.name] = new
        return new.number

    async def update_priorities(self, crawl: str, updates: Sequence[PriorityUpdate]) -> int:
        """Update priorities of tasks that are pending at the priority seen (C8)."""
        validate_priority_updates(updates)
        c = self.crawl_or_empty(crawl)
        return (
            0
            if c.status is CrawlStatus.CANCELLED
            else sum(self.update_priority(c, p) for p in updates)
        )

    def update_priority(self, c: C, price: PriorityUpdate) -> bool:
        """Update one priority; precedence, tie and due time stay (C2)."""
        t = c.tasks[price.task - 1] if 0 < price.task <= len(c.tasks) else None
        if t is None or t.state is not PENDING or t.task.priority != price.seen:
            return False
        t.task = msgspec.structs.replace(t.task, priority=price.priority, breakdown=price.breakdown)
        self.activate_for_focus(c, t.queue)
        return True

    async def heartbeat(self, crawl: str, heartbeat: Heartbeat) -> None:
        """Record a heartbeat; of too many workers the one silent longest is forgotten (M6).

        Totals only grow; those of a forgotten worker stay in the crawl's sum. A worker silent for a
        day comes back as a new one, with its totals if it is the same process.
        """
        validate_heartbeat(heartbeat)
        if not self.exists(crawl):  # I1: workers outlive a removed crawl
            return
        c, now, name = self.all[crawl], self.clock.now_ms(), heartbeat.worker
        started, old = now, c.workers.get(name)
        if old is not None and now - old.seen < ms(WORKER_KEPT_SECONDS):
            started = old.started
        elif old is not None and not self.is_same_process(old.heartbeat, heartbeat):
            self.forget_worker(c, name)
            old = None
        if old is not None:
            totals = later_totals(old.heartbeat.totals, heartbeat.totals)
            heartbeat = msgspec.structs.replace(heartbeat, totals=totals)
        elif len(c.workers) >= MAX_WORKERS:
            self.forget_worker(c, min(c.workers, key=lambda other: (c.workers[other].seen, other)))
        c.workers[name] = W(heartbeat, started, now)

    def is_same_process(self, one: Heartbeat, other: Heartbeat) -> bool:
        """Tell whether two heartbeats of one name are of one process (M6)."""
        return (one.host, one.pid) == (other.host, other.pid)

    def forget_worker(self, c: C, name: str) -> None:
        """Forget a worker, and keep its totals (M6)."""
        c.gone = sum_of_totals([c.gone, c.workers.pop(name).heartbeat.totals])

    async def set_status(
        self, crawl: str, status: CrawlStatus, reason: str = "operator", *, by: str = ""
    ) -> CrawlStatus:
        """Set the crawl's status if the move is legal (I1, I3)."""
        validate_by(by)
        if not self.exists(crawl):  # I1
            return CrawlStatus.CANCELLED
        c = self.all[crawl]
        if status in OPERATOR_MOVES[c.status]:
            with self.signed(c, by):
                self.set_crawl_status(c, status, reason)
        return c.status

    async def steer(
        self,
        crawl: str,
        target: str,
        act: actions.QueueAction,
        *,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """Record an action for later queues, and apply it to matching ones in steps (E7)."""
        validate_by(by)
        if not self.exists(crawl):  # I1
            return Step(0, None)
        c = self.all[crawl]
        with self.signed(c, by, act_of_steer(target, act, after)):
            return self.steer_queues(c, target, act, after, limit)

    def steer_queues(
        self, c: C, target: str, act: actions.QueueAction, after: int, limit: int
    ) -> Step:
        """Record and apply an action (E7)."""
        changes = self.lasting_changes(act)
        if after == 0 and target and changes:
            c.rules = c.rules.with_override(target, changes)
        if target and not target.startswith("."):
            named = c.queues.get(target) or c.queues.get(target.lower())
            target = named.key if named else target
        matching = [q for q in c.queues.values() if q.number > after and covers(target, q.key)]
        for q in matching[:limit]:
            self.apply_action(c, q, act, everywhere=not target)
        more = len(matching) > limit
        c.rules_applied = c.rules_applied or (
            not more and not target and isinstance(act, actions.Set)
        )
        return Step(min(len(matching), limit), matching[limit - 1].number if more else None)

    def lasting_changes(self, act: actions.QueueAction) -> dict[str, object]:
        """Return what an action changes for later queues of the same key or suffix."""
        match act:
            case actions.Set(changes):
                return dict(changes)
            case actions.Pause() | actions.Resume():
                return {"paused": isinstance(act, actions.Pause)}
            case actions.Retire() | actions.Revive():
                return {"retired": isinstance(act, actions.Retire)}
            case _:
                return {}

    def apply_action(  # noqa: C901 - one case per action
        self, c: C, q: Q, act: actions.QueueAction, *, everywhere: bool
    ) -> None:
        """Apply an action to a queue (E5, E7)."""
        now = self.clock.now_ms()
        rules = c.rules.of(q.key)
        if not isinstance(act, actions.Set):
            q.rules = use_actions(q.rules, rules)  # actions hold at once, settings only by `set`
        match act:
            case actions.Set():
                if not everywhere or q.rules != rules:
                    self.apply_set(c, q, rules)
            case actions.Pause():
                q.paused = True
                self.refresh(q)
            case actions.Resume():
                q.paused = False
                self.reschedule(c, q)
            case actions.Retire():
                self.retire(c, q, "operator")
            case actions.Revive():
                q.politeness = msgspec.structs.replace(
                    q.politeness, throttles_in_row=0, unreachable_in_row=0, blocks_in_row=0
                )
                q.errors = 0  # D4: revive clears counts
                if q.retired:
                    self.revive(c, q)
            case actions.Snooze(seconds):
                self.postpone(q, now + ms(seconds), "operator")
                self.refresh(q)
            case actions.Wake():
                q.next_ready, q.why = min(q.next_ready, self.earliest(q)), "delay"

    def earliest(self, q: Q) -> int:
        """Return where `wake` goes back to: the last visit's end + delay (D1)."""
        politeness = q.rules.politeness
        from_start = politeness.count_from == "start"
        ended = q.last_start if from_start else q.last_end
        # Drawn as a visit begins, the last delay is known before the first visit has ended.
        is_known = q.last_end is not None or draws_at_start(politeness)
        earliest = ended + q.delay_ms() if is_known and ended is not None else 0
        if q.last_start is not None and (from_start or politeness.max_in_flight > 1):
            earliest = max(
                earliest, q.last_start + ms(min_delay_between(politeness, q.politeness.crawl_delay))
            )
        if q.last_start is not None and q.pace_ms():  # visits per second hold always
            earliest = max(earliest, q.last_start + q.pace_ms())
        return earliest

    def apply_set(self, c: C, q: Q, rules: QueueRules) -> None:
        """Apply new rules at once: retire, revive or reschedule the queue (E5)."""
        old, q.rules = q.rules, rules
        self.apply_pace(q)  # D1: counted from the last lease
        if rules.paused != old.paused:
            q.paused = rules.paused
        if rules.retired and not old.retired:
            self.retire(c, q, "operator")
        elif old.retired and not rules.retired and q.retired == "operator":
            self.revive(c, q)
        if q.over_budget():
            self.retire(c, q, "budget")
        elif q.retired == "budget":
            self.revive(c, q)
        self.refresh(q)
        if q.list_state:
            q.list_state = None
            self.choose_list(c, q)

    # ---- tasks by filter

    async def drop(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """Drop pending tasks (`operator`) (C10)."""

        def dropped(_: C, t: T) -> None:
            t.state, t.reason, t.finished = DROPPED, "operator", self.clock.now_ms()
            self.refresh(t.queue)

        return self.change_tasks(
            "drop", crawl, which, PENDING, dropped, (dry_run, after, limit), by
        )

    async def replay(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """Make dead tasks pending again, with 0 attempts (G2, B2)."""

        def replayed(c: C, t: T) -> None:
            t.state, t.due, t.finished = PENDING, self.clock.now_ms(), None
            t.attempts = t.failures = t.crashes = t.throttles = t.blocks = 0
            self.reopen(c)

        return self.change_tasks(
            "replay", crawl, which, DEAD, replayed, (dry_run, after, limit), by
        )

    async def purge(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """Drop dead tasks (`purged`) (G2)."""

        def purged(_: C, t: T) -> None:
            t.state, t.reason = DROPPED, "purged"

        return self.change_tasks("purge", crawl, which, DEAD, purged, (dry_run, after, limit), by)

    async def forget(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """Drop tasks of any state (`forgotten`), so that the next add admits them (C10)."""

        def forgotten(c: C, t: T) -> None:
            if t.state is LEASED:  # without punishment
                self.release_one(c, t)
            was_pending = t.state is PENDING
            t.state, t.reason, t.finished = DROPPED, FORGOTTEN, self.clock.now_ms()
            if was_pending:
                self.refresh(t.queue)

        step = (dry_run, after, limit)
        return self.change_tasks("forget", crawl, which, None, forgotten, step, by)

    async def publish(self, crawl: str, batch: EventBatch) -> None:
        """Append a worker's events to the log, and forget the oldest (O3)."""
        validate_crawls((crawl,))
        validate_batch(batch)
        c = self.all.get(crawl)
        if c is None or (c.status, c.reason) == (CrawlStatus.CANCELLED, DELETING):
            return
        known = [one.serial for _, one in c.ring if one.publisher == batch.publisher]
        if max(known, default=0) >= batch.serial:
            return
        c.last_event += len(batch.events)
        c.ring.append((c.last_event, batch))
        sizes = [batch_bytes(one) for _, one in c.ring]
        c.ring = [
            (last, one)
            for place, (last, one) in enumerate(c.ring, 1)
            if last > c.last_event - RING_EVENTS and sum(sizes[place:]) < RING_BYTES
        ]

    async def delete(self, crawl: str, *, limit: int = 1000, by: str = "") -> Step:  # noqa: ARG002
        """Remove a crawl: first it is cancelled, then nothing of it is left (I1)."""
        validate_crawls((crawl,))
        validate_by(by)
        c = self.all.get(crawl)
        if c is None:
            return Step(0, None)
        if (c.status, c.reason) != (CrawlStatus.CANCELLED, DELETING):
            with self.signed(c, by, None):
                self.set_crawl_status(c, CrawlStatus.CANCELLED, DELETING)
            return Step(0, 1)
        del self.all[crawl]
        return Step(len(c.tasks), None)

    def change_tasks(
        self,
        verb: str,
        crawl: str,
        which: TaskFilter,
        state: TaskState | None,
        act: Callable[[C, T], None],
        step: tuple[bool, int, int],
        by: str,
    ) -> Step:
        """Change matching tasks in a step by number; a cancelled crawl has none (I3).

        `state` is the one they must have; None: any, but those that are forgotten already.
        """
        validate_by(by)
        dry_run, after, limit = step
        logged = act_of_filter(verb, which, after, dry_run=dry_run)
        c = self.crawl_or_empty(crawl)  # I1: none is created
        span = self.within(c.tasks[after : after + limit])
        live = [] if c.status is CrawlStatus.CANCELLED else span
        chosen = [
            t
            for t in live
            if (not t.forgotten if state is None else t.state is state)
            and which.state in (None, t.state)
            and self.matches(c, t, which)
        ]
        with self.signed(c, by, logged):
            for t in [] if dry_run else chosen:
                act(c, t)
        upto = after + len(span)
        return Step(len(chosen), upto if upto < len(c.tasks) else None)

    def matches(self, c: C, t: T, which: TaskFilter) -> bool:
        """Whether a task matches every given field (C10)."""
        now = self.clock.now_ms()
        return (
            (which.key is None or covers(which.key, t.task.key))
            and which.fingerprint in (None, t.task.fingerprint)
            and which.url in (None, t.task.url)
            and which.type in (None, t.task.type)
            and which.tag in (None, t.task.tag)
            and which.reason in (None, self.visible_state(c, t)[1])
            and (which.pattern is None or compile_pattern(which.pattern).search(t.task.url))
            and (which.older_than is None or now - t.discovered > which.older_than * 1000)
        )
