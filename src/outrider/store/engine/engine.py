"""The engine of one crawl: its parts, and which of them knows which."""

from __future__ import annotations

from typing import final

from outrider.core.policy.rules import CrawlRules
from outrider.core.states import FORGOTTEN, CrawlStatus, TaskState
from outrider.store.engine.add import Adder
from outrider.store.engine.claim import Claimer
from outrider.store.engine.finish import Finisher
from outrider.store.engine.leases import Leases
from outrider.store.engine.port import FastPath, Journal, Loader, QueueTable, TaskTable
from outrider.store.engine.priorities import Priorities
from outrider.store.engine.records import Queue, TaskRecord
from outrider.store.engine.restore import Restorer
from outrider.store.engine.schedule import Schedule
from outrider.store.engine.state import CrawlState
from outrider.store.engine.transitions import Transitions

PENDING, LEASED, DROPPED = TaskState.PENDING, TaskState.LEASED, TaskState.DROPPED


@final
class CrawlEngine:
    """The rules of one crawl over the tables of a store.

    Every part is final, owns its state, and gets the parts it uses in its constructor.
    """

    __slots__ = (
        "adder",
        "claimer",
        "fast_path",
        "finisher",
        "journal",
        "known_deadline",
        "leases",
        "loader",
        "priorities",
        "queues",
        "restorer",
        "schedule",
        "state",
        "tasks",
        "transitions",
    )

    def __init__(
        self,
        state: CrawlState,
        leases: Leases,
        tasks: TaskTable,
        queues: QueueTable,
        journal: Journal,
        loader: Loader | None = None,
        fast_path: FastPath | None = None,
    ) -> None:
        self.state, self.leases, self.tasks, self.queues = state, leases, tasks, queues
        self.journal, self.loader, self.fast_path = journal, loader, fast_path
        self.known_deadline: int | None = None  # the earliest at the last `take_news`
        self.schedule = schedule = Schedule(state, queues, loader)
        self.transitions = transitions = Transitions(state, leases, tasks)
        self.priorities = Priorities(state, tasks, schedule)
        self.adder = adder = Adder(state, tasks, queues, schedule, transitions, self.priorities)
        self.finisher = finisher = Finisher(
            state, leases, tasks, schedule, transitions, adder, loader
        )
        adder.release = finisher.release
        self.claimer = Claimer(
            state, leases, tasks, queues, schedule, transitions, finisher, loader, fast_path
        )
        self.restorer = Restorer(
            state, tasks, queues, journal, schedule, transitions, adder, self.use_rules
        )

    # ---- notifications

    def take_news(self, *, by_claim: bool) -> bool:
        """C6: return whether waiting claims should claim again after a verb.

        What a claim does with queues concerns no other claim, since all know their wake times; but
        a lease may expire earlier than all that they wait for.
        """
        state, before = self.state, self.known_deadline
        self.known_deadline = deadline = self.leases.next_deadline()
        is_sooner = deadline is not None and (before is None or deadline < before)
        is_running = state.status is CrawlStatus.RUNNING and not state.rules.stay_open
        is_over = is_running and state.is_run_over
        has_work = not by_claim and (state.has_new_work or is_over)
        has_news = has_work or is_sooner or state.has_new_status
        state.has_new_work = state.has_new_status = False
        return has_news

    # ---- rules

    def use_rules(self, rules: CrawlRules) -> None:
        """Set the crawl's rules in this epoch; another order among queues applies at once."""
        state = self.state
        was_by_turn = state.by_turn
        if (rules.order == "round-robin") != was_by_turn:
            self.queues.load_all()
        state.use_rules(rules)
        if state.by_turn != was_by_turn:
            self.schedule.update_all_ready_keys()

    def replace_rules(self, rules: CrawlRules) -> None:
        """Set the crawl's rules in a new epoch; a queue keeps its rules until it gets the new."""
        if self.state.is_dropping_epoch:
            self.queues.load_all()
        self.state.start_epoch()
        self.use_rules(rules)

    def configure(self, rules: CrawlRules) -> None:
        """Replace the crawl's rules; `steer` then applies them to all queues step by step."""
        if rules != self.state.rules and self.state.last_queue:
            self.state.rules_applied = False
            self.replace_rules(rules)
        else:
            self.use_rules(rules)

    def queue(self, key: str) -> Queue | None:
        """Return the queue of a key; hosts are stored in lower case."""
        return self.queues.find(key) or self.queues.find(key.lower())

    # ---- operators' actions on single tasks

    def drop(self, record: TaskRecord, now: int) -> None:
        """C10: drop a pending task."""
        record.reason, record.finished = "operator", now
        record.queue.leave(record.task.lane, record.key, record.due)
        self.transitions.move(record, DROPPED)
        self.schedule.refresh(record.queue, now)

    def forget(self, record: TaskRecord, now: int) -> None:
        """C10: drop a task of any state, so that the next add admits it again."""
        if record.state is LEASED:
            self.finisher.release(record, now)
        queue, was_pending = record.queue, record.state is PENDING
        record.reason, record.finished = FORGOTTEN, now
        if was_pending:
            queue.leave(record.task.lane, record.key, record.due)
        self.transitions.move(record, DROPPED)
        self.state.forgotten += 1
        if was_pending:
            self.schedule.refresh(queue, now)

    def replay(self, record: TaskRecord, now: int) -> None:
        """G2: make a dead task pending in its old place; the next claim reschedules its queue."""
        record.restart()
        self.transitions.move(record, PENDING)
        self.transitions.enqueue(record, now, now)
        self.state.start_run(now)
        self.schedule.refresh(record.queue, now)

    def purge(self, record: TaskRecord, now: int) -> None:  # noqa: ARG002 - same signature as the others
        """G2: drop a dead task."""
        record.reason = "purged"
        self.transitions.move(record, DROPPED)
