"""The rules of export and restore: what was saved gives the same claims, budgets, manners (I5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy

import msgspec

from outrider.core.breakdown import Breakdown
from outrider.core.outcome import Answer
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import PolitenessState, Task
from outrider.errors import InvalidInput
from outrider.store.protocol import ResultPage
from outrider.store.saved import (
    RESTORING,
    Saved,
    SavedAnswer,
    SavedCrawl,
    SavedEnd,
    SavedQueue,
    SavedTask,
    checked,
    plain_rules,
)
from outrider.testing.model.admin import Operators
from outrider.testing.model.records import LEASED, PENDING, C, Q, T

# What is saved under the name it has here.
SAME_OF_A_QUEUE = (
    *("turn", "session", "spent", "next_ready", "why", "last_start", "last_end", "paused"),
    *("retired", "errors", "dones", "bytes", "last_cost", "cost_sum", "cost_count"),
)
SAME_OF_A_TASK = (
    *("tie", "discovered", "attempts", "failures", "crashes", "throttles", "claimed"),
    *("finished", "reason", "answered"),
)
SAME_OF_A_CRAWL = (
    *("status", "reason", "at_finish", "counter", "arrivals", "dones", "bytes", "runs"),
    *("first", "finished"),
)


class Saving(Operators):
    """What is told of a crawl, and taken in again."""

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[Saved]:
        """The crawl, queues not told yet, tasks not told yet, and the end when all are."""
        c = self.seen(crawl)
        queues_told, tasks_told = divmod(after, 2**32)
        queues = list(c.queues.values())[queues_told:][:limit]
        tasks = c.tasks[tasks_told:][: limit - len(queues)]
        items: list[Saved] = [] if after else [self.saved_crawl(c)]
        items += [self.saved_queue(c, q) for q in queues] + [self.saved_task(t) for t in tasks]
        queues_told, tasks_told = queues_told + len(queues), tasks_told + len(tasks)
        if (queues_told, tasks_told) == (len(c.queues), len(c.tasks)):
            return ResultPage([*items, self.saved_end(c)], None)
        return ResultPage(items, queues_told * 2**32 + tasks_told)

    def saved_crawl(self, c: C) -> SavedCrawl:
        """What holds before anything is in it."""
        roots = {mode: list(roots) for mode, roots in c.roots.items()}
        return SavedCrawl(c.name, c.created, plain_rules(c.rules), c.told, roots, c.settings)

    def saved_queue(self, c: C, q: Q) -> SavedQueue:
        """H5: its leases read as released now; whether it stands then, the next claim says."""
        leases = [] if c.status is CrawlStatus.CANCELLED else q.of(LEASED)  # I3
        q = copy(q)
        for t in leases:
            self.refund(q, t.task.cost)
            if not t.named:  # D5
                self.visit_ended(q, t, q.delay_ms())
                self.keep_pace(q)
        if leases and q.retired == "budget" and not q.over_budget():
            q.retired = None
        if leases and q.next_ready > self.clock.now_ms():
            q.standing = None
        manners = msgspec.structs.asdict(q.manners)
        last_delay = manners.pop("last_delay")
        return SavedQueue(
            key=q.key,
            standing=q.standing,  # type: ignore[arg-type] # one of two
            place=q.place if q.standing == "inactive" else 0,
            said=(q.rules.paused, q.rules.retired),
            last_delay=None if last_delay < 0 else last_delay,
            **manners,
            **{name: getattr(q, name) for name in SAME_OF_A_QUEUE},
        )

    def saved_task(self, t: T) -> SavedTask:
        """H5: one that is leased reads as released now."""
        task = msgspec.structs.asdict(t.task)
        del task["crawl"]
        task["meta"] = t.task.meta.decode()
        b = t.task.breakdown
        task["breakdown"] = None if b is None else (b.source, b.terms)
        due = self.clock.now_ms() if t.state is LEASED else t.due
        state = PENDING if t.state is LEASED else t.state
        return SavedTask(
            due=None if state is not PENDING or due == t.discovered else due,
            state=state.value,  # type: ignore[arg-type] # never leased
            answer=None if t.answer is None else SavedAnswer(*msgspec.structs.astuple(t.answer)),
            history=tuple(t.history),
            **task,
            **{name: getattr(t, name) for name in SAME_OF_A_TASK},
        )

    def saved_end(self, c: C) -> SavedEnd:
        """What it counted."""
        return SavedEnd(
            logged=c.forgotten + len(c.log),
            outcomes=dict(c.outcomes),
            timeline=tuple(c.timeline)[-100:],
            **{name: getattr(c, name) for name in SAME_OF_A_CRAWL},
        )

    # ---- restore

    async def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        """All of a batch or nothing; what is known is left alone."""
        checked(saved)
        if not saved:
            return 0
        self.refuse(self.seen(crawl), saved)
        c = self.crawl_of(crawl)
        return sum(self.restore_one(c, item) for item in saved)

    def is_restoring(self, c: C) -> bool:
        """Whether its end is still to come."""
        return c.status is CrawlStatus.PAUSED and c.reason == RESTORING

    def refuse(self, c: C, saved: Sequence[Saved]) -> None:
        """A crawl comes first, a queue before its tasks, the end last; all new in between."""
        begins, keys = isinstance(saved[0], SavedCrawl), set(c.queues)
        if isinstance(saved[0], SavedCrawl):
            self.refuse_beginning(c, saved[0])
        if any(isinstance(item, SavedCrawl) for item in saved[1:]):
            raise InvalidInput("a SavedCrawl comes first")
        if any(isinstance(item, SavedEnd) for item in saved[:-1]):
            raise InvalidInput("a SavedEnd comes last")
        for item in saved:
            keys |= {item.key} if isinstance(item, SavedQueue) else set()
            if isinstance(item, SavedTask) and item.key not in keys:
                raise InvalidInput(f"the queue {item.key!r} comes before {item.url}")
        if not (begins or self.is_restoring(c) or all(self.is_there(c, item) for item in saved)):
            raise InvalidInput(f"crawl {c.name!r} is not being restored")

    def refuse_beginning(self, c: C, saved: SavedCrawl) -> None:
        """Into a crawl without tasks, or one that began with the same."""
        if self.is_restoring(c):
            if saved.created != c.created:
                raise InvalidInput(f"crawl {c.name!r} is being restored from another export")
        elif c.tasks or c.status is CrawlStatus.CANCELLED:
            raise InvalidInput(f"crawl {c.name!r} has tasks: restore by another name")

    def is_there(self, c: C, item: Saved) -> bool:
        """Whether it is known, or an end that has come."""
        if isinstance(item, SavedQueue):
            return item.key in c.queues
        return not isinstance(item, SavedTask) or item.fingerprint in c.known

    def restore_one(self, c: C, item: Saved) -> bool:
        """Whether it was not there yet."""
        match item:
            case SavedCrawl():
                return not self.is_restoring(c) and self.restore_crawl(c, item)
            case SavedQueue():
                return item.key not in c.queues and self.restore_queue(c, item)
            case SavedTask():
                return item.fingerprint not in c.known and self.restore_task(c, item)
            case SavedEnd():
                return self.is_restoring(c) and self.restore_end(c, item)

    def restore_crawl(self, c: C, saved: SavedCrawl) -> bool:
        """It lends nothing until its end has come."""
        c.created, c.rules, c.told = saved.created, saved.rules, saved.is_told
        c.settings = saved.settings
        c.roots = {mode: list(roots) for mode, roots in saved.roots.items()}
        c.status, c.reason = CrawlStatus.PAUSED, RESTORING
        return True

    def restore_queue(self, c: C, saved: SavedQueue) -> bool:
        """Under the rules of now, but for what was said of it; it stands when it has tasks."""
        counter, q = c.counter, self.new_queue(c, saved.key)
        said = msgspec.structs.asdict(saved)
        manners = {name: said.pop(name) for name in PolitenessState.__struct_fields__}
        if manners["last_delay"] is None:
            manners["last_delay"] = -1.0
        q.manners, q.stood = PolitenessState(**manners), said.pop("standing")
        paused, retired = said.pop("said")
        q.rules = msgspec.structs.replace(q.rules, paused=paused, retired=retired)
        for name, value in said.items():
            setattr(q, name, value)
        c.counter = max(counter, q.turn, q.place)
        return True

    def restore_task(self, c: C, saved: SavedTask) -> bool:
        """In its old place; counts follow from where it is."""
        said = {name: getattr(saved, name) for name in Task.__struct_fields__ if name != "crawl"}
        said["meta"] = saved.meta.encode()
        said["breakdown"] = saved.breakdown and Breakdown(*saved.breakdown)
        due = saved.discovered if saved.due is None else saved.due
        q = c.queues[saved.key]
        t = T(len(c.tasks) + 1, Task(c.name, **said), q, saved.tie, due, saved.discovered)
        t.state = TaskState(saved.state)
        for name in SAME_OF_A_TASK:
            setattr(t, name, getattr(saved, name))
        t.history = list(saved.history)
        if saved.answer is not None:
            t.answer = Answer(*msgspec.structs.astuple(saved.answer))
        c.tasks.append(t)
        q.tasks.append(t)
        c.known[saved.fingerprint] = t
        if q.stood and self.servable(q):
            q.standing, q.stood = q.stood, None
        if t.claimed is not None and t.claimed > (-1 if q.last_start is None else q.last_start):
            self.visited_since(q, t)
        return True

    def visited_since(self, q: Q, t: T) -> None:
        """D7: its queue was told before this visit, so the visit's end is learned from the task."""
        ended = min(self.clock.now_ms(), t.due if t.finished is None else t.finished)
        q.last_start, q.last_end = t.claimed, max(q.last_end or 0, ended)
        self.postpone(q, ended + q.delay_ms(), "delay")
        self.keep_pace(q)
        if not self.servable(q):
            q.standing = None

    def restore_end(self, c: C, saved: SavedEnd) -> bool:
        """It goes on as what it was."""
        for name in (
            "status",
            "reason",
            "at_finish",
            "dones",
            "bytes",
            "runs",
            "first",
            "finished",
        ):
            setattr(c, name, getattr(saved, name))
        c.counter = max(c.counter, saved.counter)
        c.arrivals = max(c.arrivals, saved.arrivals, len(c.tasks))
        c.outcomes, c.visits = Counter(saved.outcomes), sum(saved.outcomes.values())
        c.timeline = list(saved.timeline)
        c.forgotten = max(c.forgotten, saved.logged)
        c.log.append((self.clock.now_ms(), "crawl-restored", c.name, saved.status.value))
        if c.open_pending():  # I2: told as pending, and done before the end was told
            self.reopen(c)
        return True
