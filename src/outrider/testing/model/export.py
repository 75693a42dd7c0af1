"""The rules of export and restore: the same claims, budgets and delays follow (I5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import fields

import msgspec

from outrider.core.breakdown import Breakdown
from outrider.core.outcome import Answer
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import PolitenessState, Task
from outrider.errors import InvalidInput
from outrider.store.export_items import (
    RESTORING,
    Saved,
    SavedAnswer,
    SavedCrawl,
    SavedEnd,
    SavedQueue,
    SavedTask,
    plain_rules,
    validate_items,
)
from outrider.store.protocol import ResultPage
from outrider.testing.model.admin import AdminVerbs
from outrider.testing.model.records import LEASED, PENDING, C, Q, T

# Fields that are saved under the names they have here.
SAME_OF_A_QUEUE = {field.name for field in fields(Q)} & {*SavedQueue.__struct_fields__}
SAME_OF_A_QUEUE -= {"key", "place"}
SAME_OF_A_TASK = {field.name for field in fields(T)} & {*SavedTask.__struct_fields__}
SAME_OF_A_TASK -= {"due", "state", "answer", "history"}
SAME_OF_A_CRAWL = (
    *("status", "reason", "at_finish", "counter", "arrivals", "dones", "bytes", "runs"),
    *("first", "finished", "recovered"),
)


class Export(AdminVerbs):
    """Exports a crawl, and restores it."""

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[Saved]:
        """Return the crawl, then further queues and tasks, and the end after all of them."""
        c = self.crawl_or_empty(crawl)
        queues_done, tasks_done = divmod(after, 2**32)
        queues = list(c.queues.values())[queues_done:][:limit]
        tasks = self.within(c.tasks[tasks_done:][: limit - len(queues)])
        items: list[Saved] = [] if after else [self.saved_crawl(c)]
        items += [self.saved_queue(c, q) for q in queues] + [self.saved_task(t) for t in tasks]
        queues_done, tasks_done = queues_done + len(queues), tasks_done + len(tasks)
        if (queues_done, tasks_done) == (len(c.queues), len(c.tasks)):
            return ResultPage([*items, self.saved_end(c)], None)
        return ResultPage(items, queues_done * 2**32 + tasks_done)

    def saved_crawl(self, c: C) -> SavedCrawl:
        """Return the crawl's own fields, before queues and tasks."""
        roots = {mode: list(roots) for mode, roots in c.roots.items()}
        return SavedCrawl(
            c.name, c.created, plain_rules(c.rules), c.rules_applied, roots, c.settings
        )

    def saved_queue(self, c: C, q: Q) -> SavedQueue:
        """Return a queue as if its leases were released now (H5)."""
        leases = [] if c.status is CrawlStatus.CANCELLED else q.of(LEASED)  # I3
        q = copy(q)
        for t in leases:
            self.refund(q, t.task.cost)
            if not t.named:  # D5
                self.visit_ended(q, t, q.delay_ms())
                self.apply_pace(q)
        if leases and q.retired == "budget" and not q.over_budget():
            q.retired = None
        if leases and q.next_ready > self.clock.now_ms():
            q.list_state = None
        politeness = msgspec.structs.asdict(q.politeness)
        last_delay = politeness.pop("last_delay")
        return SavedQueue(
            key=q.key,
            standing=q.list_state,  # type: ignore[arg-type] # one of two
            place=q.place if q.list_state == "inactive" else 0,
            said=(q.rules.paused, q.rules.retired),
            last_delay=None if last_delay < 0 else last_delay,
            **politeness,
            **{name: getattr(q, name) for name in SAME_OF_A_QUEUE},
        )

    def saved_task(self, t: T) -> SavedTask:
        """Return a task; a leased one as if it was released now (H5)."""
        task = msgspec.structs.asdict(t.task)
        del task["crawl"], task["done"]
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
        """Return the crawl's counts, after queues and tasks."""
        return SavedEnd(
            logged=c.last_event,
            outcomes=dict(c.outcomes),
            timeline=tuple(c.timeline)[-100:],
            **{name: getattr(c, name) for name in SAME_OF_A_CRAWL},
        )

    # ---- restore

    async def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        """Restore a whole batch or nothing; known items are skipped."""
        validate_items(saved)
        if not saved:
            return 0
        self.check_restore(self.crawl_or_empty(crawl), saved)
        c = self.crawl_of(crawl)
        return sum(self.restore_one(c, item) for item in saved)

    def is_restoring(self, c: C) -> bool:
        """Whether its end was not restored yet."""
        return c.status is CrawlStatus.PAUSED and c.reason == RESTORING

    def check_restore(self, c: C, saved: Sequence[Saved]) -> None:
        """Check the order: the crawl first, a queue before its tasks, the end last."""
        begins, keys = isinstance(saved[0], SavedCrawl), set(c.queues)
        if isinstance(saved[0], SavedCrawl):
            self.check_restored_crawl(c, saved[0])
        if any(isinstance(item, SavedCrawl) for item in saved[1:]):
            raise InvalidInput("a SavedCrawl comes first")
        if any(isinstance(item, SavedEnd) for item in saved[:-1]):
            raise InvalidInput("a SavedEnd comes last")
        for item in saved:
            keys |= {item.key} if isinstance(item, SavedQueue) else set()
            if isinstance(item, SavedTask) and item.key not in keys:
                raise InvalidInput(f"the queue {item.key!r} comes before {item.url}")
        if not (begins or self.is_restoring(c) or all(self.is_known(c, item) for item in saved)):
            raise InvalidInput(f"crawl {c.name!r} is not being restored")

    def check_restored_crawl(self, c: C, saved: SavedCrawl) -> None:
        """Check that the crawl has no tasks, or is being restored from the same export."""
        if self.is_restoring(c):
            if saved.created != c.created:
                raise InvalidInput(f"crawl {c.name!r} is being restored from another export")
        elif c.tasks or c.status is CrawlStatus.CANCELLED:
            raise InvalidInput(f"crawl {c.name!r} has tasks: restore by another name")

    def is_known(self, c: C, item: Saved) -> bool:
        """Whether an item was restored already."""
        if isinstance(item, SavedQueue):
            return item.key in c.queues
        return not isinstance(item, SavedTask) or item.fingerprint in c.known

    def restore_one(self, c: C, item: Saved) -> bool:
        """Restore an item; return whether it was new."""
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
        """Restore the crawl, paused until its end is restored."""
        c.created, c.rules, c.rules_applied = saved.created, saved.rules, saved.is_told
        c.settings = saved.settings
        c.roots = {mode: list(roots) for mode, roots in saved.roots.items()}
        c.status, c.reason = CrawlStatus.PAUSED, RESTORING
        return True

    def restore_queue(self, c: C, saved: SavedQueue) -> bool:
        """Restore a queue under the current rules, with its own pause and retirement."""
        counter, q = c.counter, self.new_queue(c, saved.key)
        said = msgspec.structs.asdict(saved)
        politeness = {name: said.pop(name) for name in PolitenessState.__struct_fields__}
        if politeness["last_delay"] is None:
            politeness["last_delay"] = -1.0
        q.politeness, q.saved_list = PolitenessState(**politeness), said.pop("standing")
        paused, retired = said.pop("said")
        q.rules = msgspec.structs.replace(q.rules, paused=paused, retired=retired)
        for name, value in said.items():
            setattr(q, name, value)
        c.counter = max(counter, q.turn, q.place)
        return True

    def restore_task(self, c: C, saved: SavedTask) -> bool:
        """Restore a task in its old order."""
        names = {*Task.__struct_fields__} & {*SavedTask.__struct_fields__}
        said = {name: getattr(saved, name) for name in names}
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
        if q.saved_list and self.servable(q):
            q.list_state, q.saved_list = q.saved_list, None
        if t.claimed is not None and t.claimed > (-1 if q.last_start is None else q.last_start):
            self.apply_later_visit(q, t)
        return True

    def apply_later_visit(self, q: Q, t: T) -> None:
        """Apply a visit that began after its queue was exported (D7)."""
        ended = min(self.clock.now_ms(), t.due if t.finished is None else t.finished)
        q.last_start, q.last_end = t.claimed, max(q.last_end or 0, ended)
        self.postpone(q, ended + q.delay_ms(), "delay")
        self.apply_pace(q)
        if not self.servable(q):
            q.list_state = None

    def restore_end(self, c: C, saved: SavedEnd) -> bool:
        """Restore the crawl's status and counts."""
        for name in (
            "status",
            "reason",
            "at_finish",
            "dones",
            "bytes",
            "runs",
            "first",
            "finished",
            "recovered",
        ):
            setattr(c, name, getattr(saved, name))
        c.counter = max(c.counter, saved.counter)
        c.arrivals = max(c.arrivals, saved.arrivals, len(c.tasks))
        c.outcomes, c.visits = Counter(saved.outcomes), sum(saved.outcomes.values())
        c.timeline = list(saved.timeline)
        c.last_event = max(c.last_event, saved.logged)
        self.log(c, "crawl-restored", c.name, saved.status.value)
        if c.open_pending():  # I2: exported as pending, and done before the end was exported
            self.reopen(c)
        return True
