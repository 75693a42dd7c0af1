"""The expected state of a crawl of unit costs, computed from acknowledged calls alone.

A reopened file is compared with it, task by task and queue by queue. Instants are lower bounds: the
store applied a call at the earliest when it was asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from outrider.clock import to_ms
from outrider.core import queue_action as actions
from outrider.core.policy.politeness import min_delay_between, pace
from outrider.core.policy.rules import CrawlRules, QueueRules
from outrider.core.states import TaskState
from outrider.core.task import Added, Lease, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.store.protocol import ClaimResult, Step, TaskFilter, TaskView
from outrider.testing.lease_history import require

PENDING, LEASED, DEAD, DROPPED = (
    TaskState.PENDING,
    TaskState.LEASED,
    TaskState.DEAD,
    TaskState.DROPPED,
)
# The verbs that change the expected state.
CHANGES: Final = frozenset(
    ["add", "claim", "finish", "release", "steer", "drop", "replay", "purge"]
)
_MATCHED: Final = {"drop": PENDING, "replay": DEAD, "purge": DEAD}
_replace = msgspec.structs.replace


class ExpectedTask(msgspec.Struct, frozen=True):
    """A task as it must be."""

    number: int
    key: str
    priority: float
    state: TaskState = PENDING
    token: int = -1
    attempts: int = 0
    failures: int = 0
    crashes: int = 0
    reason: str | None = None
    claimed: int = 0

    def view(self) -> tuple[object, ...]:
        """Return the fields that its view shows."""
        return (
            self.number,
            self.key,
            self.priority,
            self.state,
            self.attempts,
            self.failures,
            self.crashes,
            self.reason,
        )


def fields_of(view: TaskView) -> tuple[object, ...]:
    """Return the same fields of a view of the store."""
    return (
        view.number,
        view.key,
        view.priority,
        view.state,
        view.attempts,
        view.failures,
        view.crashes,
        view.reason,
    )


class ExpectedQueue(msgspec.Struct, frozen=True):
    """A queue as it must be; milliseconds."""

    delay: int
    next_ready: int = 0
    last_start: int = 0
    last_end: int = 0
    spent: int = 0
    bytes: int = 0
    paused: bool = False
    retired: bool = False  # by an operator


class ExpectedState:
    """Tasks and queues of one crawl."""

    def __init__(self, rules: CrawlRules) -> None:
        self._rules = rules
        self.tasks: dict[str, ExpectedTask] = {}
        self.queues: dict[str, ExpectedQueue] = {}
        self._urls: list[str] = []  # by number, from 1
        self._with_tasks: set[str] = set()  # other queues keep an operator's settings only

    def copy(self) -> ExpectedState:
        """Return a copy that can be changed independently."""
        twin = ExpectedState(self._rules)
        twin.tasks, twin.queues = dict(self.tasks), dict(self.queues)
        twin._urls, twin._with_tasks = list(self._urls), set(self._with_tasks)
        return twin

    def rules(self, key: str) -> QueueRules:
        """Return the rules of a queue."""
        return self._rules.of(key)

    def queue(self, key: str) -> ExpectedQueue:
        """Return a queue; a new one has its least delay."""
        found = self.queues.get(key)
        if found is None:
            least = to_ms(min_delay_between(self.rules(key).politeness, 0.0))
            found = self.queues[key] = ExpectedQueue(least)
        return found

    def _set_queue(self, key: str, **changes: object) -> None:
        self.queues[key] = _replace(self.queue(key), **changes)

    def _set_task(self, url: str, **changes: object) -> None:
        self.tasks[url] = _replace(self.tasks[url], **changes)

    # ---- calls

    def apply(self, verb: str, arguments: Mapping[str, Any], at: int, answer: Any) -> None:
        """Apply a call that was made at an instant, and check its answer if there is one."""
        match verb:
            case "add":
                self._apply_add(arguments["tasks"], answer)
            case "claim":
                self._apply_claim(answer, at)
            case "finish":
                self._apply_finish(arguments["verdicts"], at, answer)
            case "release":
                self._apply_release(arguments["leases"], at, answer)
            case "steer":
                self._steer(arguments["target"], arguments["act"], at)
            case "drop" | "replay" | "purge":
                self._apply_filter(verb, arguments, answer)
            case _:
                pass  # changes neither tasks nor queues

    def _apply_add(self, tasks: Sequence[Task], answers: Sequence[Added] | None) -> None:
        expected = [self._add(task) for task in tasks]
        found = None if answers is None else [answer.added for answer in answers]
        _require_same("B3", expected, found)

    def _apply_finish(
        self, verdicts: Sequence[Verdict], at: int, answers: Sequence[Finished] | None
    ) -> None:
        expected = [self._finish(verdict, at) for verdict in verdicts]
        found = None if answers is None else [answer.applied for answer in answers]
        _require_same("H3", expected, found)

    def _apply_release(
        self, leases: Sequence[LeaseId], at: int, freed: set[LeaseId] | None
    ) -> None:
        expected = [self._release(lease, at) for lease in leases]
        found = None if freed is None else [lease in freed for lease in leases]
        _require_same("H5", expected, found)

    def _apply_filter(self, verb: str, arguments: Mapping[str, Any], step: Step | None) -> None:
        which: TaskFilter = arguments["which"]
        count = self._filter(verb, which.key, arguments["after"], arguments["limit"])
        found = None if step is None else step.count
        _require_same("C10", count, found)

    def _add(self, task: Task) -> bool:
        """Add a task; return whether it is to be visited (B3)."""
        old = self.tasks.get(task.url)
        self.queue(task.key)
        if old is None:
            self._with_tasks.add(task.key)
            self._urls.append(task.url)
            self.tasks[task.url] = ExpectedTask(len(self._urls), task.key, task.priority)
            return True
        if task.known == "revisit" and old.state not in (PENDING, LEASED):
            # H3: its token stays current
            again = ExpectedTask(old.number, task.key, task.priority, token=old.token)
            self.tasks[task.url] = again
            return True
        if task.known == "raise" and old.state is PENDING and task.priority < old.priority:
            self._set_task(task.url, priority=task.priority)
        return False

    def _apply_claim(self, result: ClaimResult | None, asked: int) -> None:
        """Lease tasks; each continues the attempts of its task (H4)."""
        leases: Iterable[Lease] = result.leases if result else ()
        for lease in leases:
            task = self.tasks.get(lease.url)
            require(task, "B3", f"{lease} was never added")
            assert task is not None
            require(task.state is PENDING, "H1", f"{lease} was leased, but is {task}")
            count = (lease.task, lease.attempt, lease.failures)
            same = count == (task.number, task.attempts + 1, task.failures)
            require(same, "H4", f"{lease} does not follow {task}")
            self.lease(lease.url, lease.token, asked)

    def lease(self, url: str, token: int, asked: int) -> None:
        """Lease and charge a task."""
        key = self.tasks[url].key
        queue, gap = self.queue(key), self._gap(key)
        self._set_task(url, state=LEASED, token=token, claimed=asked)
        self._set_queue(
            key,
            spent=queue.spent + 1,
            last_start=asked,
            next_ready=max(queue.next_ready, asked + gap),
        )

    def _gap(self, key: str) -> int:
        """Return the least milliseconds between two leases of a queue, over all slots (D1)."""
        politeness = self.rules(key).politeness
        is_spaced = politeness.count_from == "start" or politeness.max_in_flight > 1
        least = min_delay_between(politeness, 0.0) if is_spaced else 0.0
        return to_ms(max(pace(politeness), least))

    def _finish(self, verdict: Verdict, at: int) -> bool:
        url = self._urls[verdict.task - 1]
        task = self.tasks[url]
        if task.token != verdict.token or task.state is not LEASED:
            return task.token == verdict.token
        for link in verdict.tasks:
            self._add(link)
        refund = 0 if verdict.counts else 1
        queue = self.queue(task.key)
        size = verdict.answer.bytes if verdict.answer else 0
        self._set_queue(
            task.key,
            spent=max(0, queue.spent - refund) + verdict.penalty,
            bytes=queue.bytes + size,
        )
        self._end_visit(url, task, verdict)
        if verdict.touched:
            self._set_queue(task.key, delay=to_ms(verdict.delay))
            self._apply_delay(task, at)
            self._postpone(task.key, at + to_ms(verdict.snooze))
        return True

    def _end_visit(self, url: str, task: ExpectedTask, verdict: Verdict) -> None:
        if verdict.revisit is not None:
            again = ExpectedTask(task.number, task.key, verdict.revisit.priority)
            self.tasks[url] = _replace(again, token=task.token, reason=verdict.reason)
            return
        self._set_task(
            url,
            state=verdict.state,
            attempts=task.attempts + verdict.counts,
            failures=task.failures + verdict.failed * verdict.counts,
            reason=verdict.reason,
        )

    def _apply_delay(self, task: ExpectedTask, at: int) -> None:
        queue, counted = self.queue(task.key), self.rules(task.key).politeness.count_from
        base = task.claimed if counted == "start" else at
        self._postpone(task.key, base + queue.delay)
        self._set_queue(task.key, last_end=at)

    def _postpone(self, key: str, until: int) -> None:
        self._set_queue(key, next_ready=max(self.queue(key).next_ready, until))

    def _release(self, lease: LeaseId, at: int) -> bool:
        url = self._urls[lease.task - 1]
        task = self.tasks[url]
        if task.state is not LEASED or task.token != lease.token:
            return False
        self._set_task(url, state=PENDING, token=-1)
        self._set_queue(task.key, spent=max(0, self.queue(task.key).spent - 1))
        self._apply_delay(task, at)
        return True

    def _steer(self, key: str, act: actions.QueueAction, at: int) -> None:
        queue = self.queue(key)
        match act:
            case actions.Pause() | actions.Resume():
                self._set_queue(key, paused=isinstance(act, actions.Pause))
            case actions.Retire() | actions.Revive():
                self._set_queue(key, retired=isinstance(act, actions.Retire))
            case actions.Snooze(seconds):
                self._postpone(key, at + to_ms(seconds) if key in self._with_tasks else 0)
            case actions.Wake():
                self._set_queue(key, next_ready=min(queue.next_ready, self._earliest(key)))
            case _:
                raise ValueError(f"the expected effect of {act} is not defined")

    def _earliest(self, key: str) -> int:
        """Return where `wake` goes back to: the last visit's end (or start) + delay (D1)."""
        queue, politeness = self.queue(key), self.rules(key).politeness
        ended = queue.last_start if politeness.count_from == "start" else queue.last_end
        return max(ended + queue.delay if queue.last_end else 0, queue.last_start + self._gap(key))

    def _filter(self, verb: str, key: str | None, after: int, limit: int) -> int:
        chosen = [
            url
            for url, task in self.tasks.items()
            if task.state is _MATCHED[verb]
            and task.key == key
            and after < task.number <= after + limit
        ]
        for url in chosen:
            if verb == "replay":
                self._set_task(url, state=PENDING, attempts=0, failures=0, crashes=0)
            else:
                reason = "operator" if verb == "drop" else "purged"
                self._set_task(url, state=DROPPED, reason=reason)
        return len(chosen)

    # ---- the kill

    def reopen(self, at: int) -> None:
        """Expire all leases: each is a crash, and its visit ends now (H4, D7)."""
        leased = [url for url, task in self.tasks.items() if task.state is LEASED]
        for url in leased:
            self.crash(url, at)

    def crash(self, url: str, at: int) -> None:
        """Expire one lease."""
        task, rules = self.tasks[url], self._rules
        crashes = task.crashes + 1
        is_dead = task.failures > rules.max_retries or 0 < rules.max_crashes <= crashes
        self._set_task(
            url,
            state=DEAD if is_dead else PENDING,
            token=-1,
            attempts=task.attempts + 1,
            crashes=crashes,
            reason="lease expired",
        )
        self._apply_delay(task, at)


def _require_same(rule: str, expected: object, found: object) -> None:
    same = found is None or expected == found
    require(same, rule, f"answered {found}, must be {expected}")
