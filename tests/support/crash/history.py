"""The history of a file over several kills, read back from its call log.

Every call goes to the invariant checker and to the expected state. The one call that was in flight
at a kill was applied whole or not at all; the reopened file shows which.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from call_log import (
    Answered,
    Asked,
    Failed,
    Line,
    Opening,
    Replay,
    Settled,
    VisitsBegan,
    VisitsEnded,
)
from crash.expected_state import CHANGES, ExpectedState, fields_of
from crash.host_log import HostLog
from outrider.core.policy.rules import CrawlRules
from outrider.core.states import QueueState, TaskState
from outrider.store.protocol import FullStore, QueueView, TaskFilter, TaskView
from outrider.testing import audit
from outrider.testing.invariants import InvariantBroken, InvariantChecker
from outrider.testing.lease_history import require


class History:
    """What must hold of a file: after a kill, one expected state for each possibility."""

    def __init__(self, rules: CrawlRules, crawl: str) -> None:
        self._crawl = crawl
        self._states = [ExpectedState(rules)]
        self._checker = InvariantChecker()
        self._replay = Replay(self._checker)
        self._open: tuple[Asked, dict[str, Any]] | None = None
        self._opened_at = 0
        self.hosts = HostLog(rules)

    @property
    def expected(self) -> ExpectedState:
        """The expected state, if it is known what became of every call."""
        known = len(self._states) == 1
        require(known, "H6", f"it is not known whether {self._open} was applied")
        return self._states[0]

    def read(self, lines: Iterable[Line]) -> None:
        """Follow a whole log."""
        for line in lines:
            self.follow(line)

    def follow(self, line: Line) -> None:
        """Follow one more line."""
        match line:
            case Asked() | Answered() | Failed():
                self._follow_call(line)
            case Opening(at):
                self._reopened(at)
            case Settled():
                self._settled(line)
            case VisitsBegan(at, visits):
                self.hosts.visits_began(at, visits)
            case VisitsEnded(at, visits):
                self.hosts.visits_ended(at, visits)

    def _follow_call(self, line: Asked | Answered | Failed) -> None:
        self._replay.follow(line)
        if isinstance(line, Asked):
            if line.verb in CHANGES:  # others are made while a file is opened, too
                require(self._open is None, "H6", "the worker makes one call at a time")
                self._open = line, line.arguments
        elif self._answers_open(line):
            assert self._open is not None
            if isinstance(line, Answered):
                asked, arguments = self._open
                self.expected.apply(asked.verb, arguments, asked.at, line.answer(asked.verb))
            self.hosts.answered(refused=isinstance(line, Failed))
            self._open = None

    def _answers_open(self, line: Answered | Failed) -> bool:
        """Whether a line belongs to the open call, and not to a call after the kill."""
        is_killed = len(self._states) > 1
        return self._open is not None and not is_killed and self._open[0].number == line.number

    def _reopened(self, at: int) -> None:
        self._replay.kill()
        self._checker.reopened(self._crawl, at)
        if self._open is not None and len(self._states) == 1:
            self._opened_at = at
            applied = self._states[0].copy()
            asked, arguments = self._open
            if asked.verb != "claim":  # what it leased is known after the comparison
                applied.apply(asked.verb, arguments, asked.at, None)
            self._states.append(applied)
        for state in self._states:
            state.reopen(at)
        self.hosts.killed(at)

    def _settled(self, line: Settled) -> None:
        assert self._open is not None
        state = self._states[line.applied]
        for url in line.leased:
            _lease_unanswered(state, url, self._open[0].at, self._opened_at)
        self._states, self._open = [state], None

    # ---- comparing

    async def settle(self, store: FullStore, now: int) -> Settled | None:
        """Compare a reopened store with the history; return what became of the call in flight."""
        crawl = self._crawl
        await audit.check(store, crawl)
        tasks = await audit.everything(
            lambda after: store.tasks(crawl, TaskFilter(), after=after, limit=audit.PAGE)
        )
        queues = await audit.everything(
            lambda after: store.queues(crawl, after=after, limit=audit.PAGE)
        )
        line = self._what_became(tasks, queues, now)
        if line is not None:
            self.follow(line)
        faults = _differences(self.expected, tasks, queues, now)
        if faults:
            raise InvariantBroken("M3", f"{len(faults)} differ from the log: {faults[:5]}")
        return line

    def _what_became(
        self, tasks: list[TaskView], queues: list[QueueView], now: int
    ) -> Settled | None:
        if self._open is None:
            return None
        asked, arguments = self._open
        if asked.verb == "claim":
            return Settled(now, True, self._leased_unanswered(tasks, arguments["request"].limit))
        without, applied = (_differences(state, tasks, queues, now) for state in self._states)
        if without and applied:
            what = f"{asked.verb} {arguments} is half there: without it {without}; with {applied}"
            raise InvariantBroken("H6", what)
        return Settled(now, bool(without))

    def _leased_unanswered(self, tasks: list[TaskView], limit: int) -> list[str]:
        """Return what a claim without an answer leased: no more than it asked for."""
        expected = self._states[1].tasks
        leased = [
            view.url
            for view in tasks
            if view.url in expected and fields_of(view) != expected[view.url].view()
        ]
        require(len(leased) <= limit, "H1", f"a claim of {limit} leased {leased}")
        return leased


def _lease_unanswered(state: ExpectedState, url: str, asked: int, opened: int) -> None:
    task = state.tasks[url]
    require(task.state is TaskState.PENDING, "H1", f"{url} was leased, but is {task}")
    state.lease(url, -1, asked)
    state.crash(url, opened)


def _differences(
    expected: ExpectedState, tasks: list[TaskView], queues: list[QueueView], now: int
) -> list[tuple[object, ...]]:
    found = {view.url: fields_of(view) for view in tasks}
    faults: list[tuple[object, ...]] = []
    faults += [("lost", url, task) for url, task in expected.tasks.items() if url not in found]
    faults += [("never added", url) for url in found if url not in expected.tasks]
    faults += [
        ("other", url, task.view(), found[url])
        for url, task in expected.tasks.items()
        if url in found and task.view() != found[url]
    ]
    for view in queues:
        faults += _queue_differences(expected, view, now)
    return faults


def _queue_differences(
    expected: ExpectedState, view: QueueView, now: int
) -> list[tuple[object, ...]]:
    queue = expected.queue(view.key)
    wanted = (queue.spent, queue.delay, queue.bytes)
    found = (view.spent, round(view.delay * 1000), view.bytes)
    faults: list[tuple[object, ...]] = []
    if wanted != found:
        faults.append(("queue", view.key, wanted, found))
    is_retired = view.state is QueueState.RETIRED
    if queue.retired and not is_retired:
        faults.append(("retired", view))
    if queue.paused and not is_retired and view.state is not QueueState.PAUSED:
        faults.append(("paused", view))
    if view.wakes_in is not None and now + round(view.wakes_in * 1000) < queue.next_ready:
        faults.append(("too soon", view.key, queue.next_ready - now, view.wakes_in))
    return faults
