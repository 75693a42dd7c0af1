"""The rules of operators: acts by key, turns of a crawl, filters over tasks (C10, E5, E7, G2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from outrider.core import queue_action as actions
from outrider.core.pattern import compile_pattern
from outrider.core.policy.politeness import min_delay_between
from outrider.core.policy.rules import CrawlRules, QueueRules, acted, covers
from outrider.core.states import OPERATOR_MOVES, CrawlStatus, TaskState
from outrider.store.noting import checked_notes, checked_prices
from outrider.store.protocol import (
    MAX_WORKERS,
    WORKER_KEPT_SECONDS,
    Heartbeat,
    PriorityUpdate,
    SharedValue,
    SharedValueWrite,
    Step,
    TaskFilter,
)
from outrider.testing.model.records import DEAD, DROPPED, PENDING, C, Q, T, W, ms
from outrider.testing.model.verbs import Verbs


class Operators(Verbs):
    """What an operator may ask."""

    async def configure(self, crawl: str, rules: CrawlRules, settings: str = "") -> bool:
        """A4: the layers below runtime; what was set by key at run time stays."""
        c = self.crawl_of(crawl)
        c.settings = settings or c.settings
        new = msgspec.structs.replace(rules, runtime=c.rules.runtime)
        c.told = c.told and not (c.queues and new != c.rules)
        c.rules = new
        return not c.told

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        """A5: once each, in order of their coming."""
        known = self.crawl_of(crawl).roots.setdefault(mode, [])
        known += [root for root in dict.fromkeys(roots) if root not in known]

    async def put_values(self, crawl: str, values: Sequence[SharedValueWrite]) -> list[int]:
        """F4, N1: one note for a topic and name, written if the one it knows of still stands."""
        checked_notes(values)
        return [self.note_one(self.crawl_of(crawl), note) for note in values]

    def note_one(self, c: C, note: SharedValueWrite) -> int:
        """A number higher than all before, for whatever says something new."""
        old = c.notes.get((note.topic, note.name))
        number = old.number if old else 0
        if note.seen not in (None, number):
            return 0
        if (old.text if old else "") == note.text:
            return number
        highest = max((one.number for one in c.notes.values()), default=0)
        new = SharedValue(highest + 1, self.clock.now_ms() / 1000, note.topic, note.name, note.text)
        c.notes[note.topic, note.name] = new
        return new.number

    async def update_priorities(self, crawl: str, updates: Sequence[PriorityUpdate]) -> int:
        """C8: what is pending, at the priority it was seen at, gets another."""
        checked_prices(updates)
        c = self.crawl_of(crawl)
        return (
            0 if c.status is CrawlStatus.CANCELLED else sum(self.reprice_one(c, p) for p in updates)
        )

    def reprice_one(self, c: C, price: PriorityUpdate) -> bool:
        """C2: with its precedence, tie and due time as they were."""
        t = c.tasks[price.task - 1] if 0 < price.task <= len(c.tasks) else None
        if t is None or t.state is not PENDING or t.task.priority != price.seen:
            return False
        t.task = msgspec.structs.replace(t.task, priority=price.priority, breakdown=price.breakdown)
        self.hasten(c, t.queue)
        return True

    async def heartbeat(self, crawl: str, heartbeat: Heartbeat) -> None:
        """M6: a worker keeps its first beat; of too many the one silent longest is forgotten."""
        c, now = self.crawl_of(crawl), self.clock.now_ms()
        self.forget_silent(c)
        if heartbeat.worker not in c.workers and len(c.workers) >= MAX_WORKERS:
            del c.workers[min(c.workers, key=lambda name: (c.workers[name].seen, name))]
        first = c.workers[heartbeat.worker].started if heartbeat.worker in c.workers else now
        c.workers[heartbeat.worker] = W(heartbeat, first, now)

    def forget_silent(self, c: C) -> None:
        """M6: nobody is remembered after a day of silence."""
        since = self.clock.now_ms() - ms(WORKER_KEPT_SECONDS)
        c.workers = {name: w for name, w in c.workers.items() if w.seen > since}

    async def set_status(
        self, crawl: str, status: CrawlStatus, reason: str = "operator"
    ) -> CrawlStatus:
        """I1, I3: an illegal move changes nothing; only work makes a finished crawl run."""
        c = self.crawl_of(crawl)
        if status in OPERATOR_MOVES[c.status]:
            self.move(c, status, reason)
        return c.status

    async def steer(
        self,
        crawl: str,
        target: str,
        act: actions.QueueAction,
        *,
        after: int = 0,
        limit: int = 1000,
    ) -> Step:
        """E7: recorded for queues to come, applied to those that match, in bounded steps."""
        c = self.crawl_of(crawl)
        changes = self.standing_order(act)
        if after == 0 and target and changes:
            c.rules = c.rules.ordered(target, changes)
        if target and not target.startswith("."):
            named = c.queues.get(target) or c.queues.get(target.lower())
            target = named.key if named else target
        matching = [q for q in c.queues.values() if q.number > after and covers(target, q.key)]
        for q in matching[:limit]:
            self.apply_act(c, q, act, everywhere=not target)
        more = len(matching) > limit
        c.told = c.told or (not more and not target and isinstance(act, actions.Set))
        return Step(min(len(matching), limit), matching[limit - 1].number if more else None)

    def standing_order(self, act: actions.QueueAction) -> dict[str, object]:
        """What a later queue of the same key or suffix is born with."""
        match act:
            case actions.Set(changes):
                return dict(changes)
            case actions.Pause() | actions.Resume():
                return {"paused": isinstance(act, actions.Pause)}
            case actions.Retire() | actions.Revive():
                return {"retired": isinstance(act, actions.Retire)}
            case _:
                return {}

    def apply_act(  # noqa: C901 - one case an act
        self, c: C, q: Q, act: actions.QueueAction, *, everywhere: bool
    ) -> None:
        """E5, E7."""
        now = self.clock.now_ms()
        rules = c.rules.of(q.key)
        if not isinstance(act, actions.Set):
            q.rules = acted(q.rules, rules)  # what acts say holds at once, settings by `set` alone
        match act:
            case actions.Set():
                if not everywhere or q.rules != rules:
                    self.apply_set(c, q, rules)
            case actions.Pause():
                q.paused = True
                self.settle(q)
            case actions.Resume():
                q.paused = False
                self.touch(c, q)
            case actions.Retire():
                self.retire(c, q, "operator")
            case actions.Revive():
                q.manners = msgspec.structs.replace(
                    q.manners, throttles_in_row=0, unreachable_in_row=0, blocks_in_row=0
                )
                q.errors = 0  # D4: revive clears counts
                if q.retired:
                    self.bring_back(c, q)
            case actions.Snooze(seconds):
                self.postpone(q, now + ms(seconds), "operator")
                self.settle(q)
            case actions.Wake():
                q.next_ready, q.why = min(q.next_ready, self.earliest(q)), "delay"

    def earliest(self, q: Q) -> int:
        """D1: how far back `wake` goes: the last visit's end + delay (or start + the least)."""
        manners = q.rules.politeness
        from_start = manners.count_from == "start"
        ended = q.last_start if from_start else q.last_end
        floor = 0 if q.last_end is None or ended is None else ended + q.delay_ms()
        if q.last_start is not None and (from_start or manners.max_in_flight > 1):
            floor = max(floor, q.last_start + ms(min_delay_between(manners, q.manners.crawl_delay)))
        if q.last_start is not None and q.pace_ms():  # visits/s: no act breaks it
            floor = max(floor, q.last_start + q.pace_ms())
        return floor

    def apply_set(self, c: C, q: Q, rules: QueueRules) -> None:
        """E5: `set` acts at once: retires, returns, or judges anew what stands."""
        old, q.rules = q.rules, rules
        self.keep_pace(q)  # D1: a lower rate counts from the last lease
        if rules.paused != old.paused:
            q.paused = rules.paused
        if rules.retired and not old.retired:
            self.retire(c, q, "operator")
        elif old.retired and not rules.retired and q.retired == "operator":
            self.bring_back(c, q)
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
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """C10: pending tasks become dropped (`operator`)."""

        def dropped(_: C, t: T) -> None:
            t.state, t.reason, t.finished = DROPPED, "operator", self.clock.now_ms()
            self.settle(t.queue)

        return self.each(crawl, which, PENDING, dropped, dry_run, after, limit)

    async def replay(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """G2, B2: dead tasks become pending, attempts at 0, in their old place."""

        def replayed(c: C, t: T) -> None:
            t.state, t.due, t.finished = PENDING, self.clock.now_ms(), None
            t.attempts = t.failures = t.crashes = t.throttles = 0
            self.reopen(c)

        return self.each(crawl, which, DEAD, replayed, dry_run, after, limit)

    async def purge(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """G2: dead tasks become dropped (`purged`)."""

        def purged(_: C, t: T) -> None:
            t.state, t.reason = DROPPED, "purged"

        return self.each(crawl, which, DEAD, purged, dry_run, after, limit)

    def each(
        self,
        crawl: str,
        which: TaskFilter,
        state: TaskState,
        act: Callable[[C, T], None],
        dry_run: bool,
        after: int,
        limit: int,
    ) -> Step:
        """A bounded step over tasks by number; a cancelled crawl's tasks read as dropped (I3)."""
        c = self.crawl_of(crawl)
        span = c.tasks[after : after + limit]
        live = [] if c.status is CrawlStatus.CANCELLED else span
        wanted = which.state in (None, state)
        chosen = [t for t in live if t.state is state and wanted and self.matches(c, t, which)]
        for t in [] if dry_run else chosen:
            act(c, t)
        return Step(len(chosen), after + limit if after + limit < len(c.tasks) else None)

    def matches(self, c: C, t: T, which: TaskFilter) -> bool:
        """C10: all that match every field given."""
        now = self.clock.now_ms()
        return (
            (which.key is None or covers(which.key, t.task.key))
            and which.fingerprint in (None, t.task.fingerprint)
            and which.url in (None, t.task.url)
            and which.type in (None, t.task.type)
            and which.tag in (None, t.task.tag)
            and which.reason in (None, self.reads_as(c, t)[1])
            and (which.pattern is None or compile_pattern(which.pattern).search(t.task.url))
            and (which.older_than is None or now - t.discovered > which.older_than * 1000)
        )
