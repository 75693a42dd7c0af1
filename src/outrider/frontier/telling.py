"""Turns a store's answers into events, if anybody listens (O3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from outrider.clock import Clock
from outrider.core.states import TaskState
from outrider.core.task import Added, Lease
from outrider.core.verdict import Finished, Verdict
from outrider.events import EventBus
from outrider.frontier.batching import run_inline
from outrider.store.protocol import FullStore


class Teller:
    """Tells what one frontier did, and what the store did of itself meanwhile."""

    def __init__(self, bus: EventBus, clock: Clock, crawl: str) -> None:
        self._bus = bus
        self._clock = clock
        self._crawl = crawl
        self._seen = 0
        self._since = 0.0
        self.store: FullStore | None = None

    def listen(self) -> None:
        """From now on: the first who listens is told nothing of what was before."""
        if self._bus.is_heard or self.store is None:
            return
        self._since = self._clock.now_ms() / 1000
        if self.store.is_inline:
            run_inline(self._skip(self.store))

    async def _skip(self, store: FullStore) -> None:
        while changes := await store.events_since(self._crawl, after=self._seen):
            self._seen = changes[-1].sequence

    def tell(self, name: str, **data: Any) -> None:
        """One event, now."""
        if self._bus.is_heard:
            self._bus.emit(name, self._clock.now_ms() / 1000, **data)

    async def added(self, answers: Iterable[Added]) -> None:
        """What became of links."""
        if not self._bus.is_heard:
            return
        for answer in answers:
            self._tell_added(answer)
        await self.changed()

    def _tell_added(self, answer: Added) -> None:
        if answer.added:
            self.tell("added", url=answer.url, priority=answer.priority)
        else:
            self.tell("refused", url=answer.url[:200], reason=answer.reason)

    async def claimed(self, leases: Iterable[Lease]) -> None:
        """What was lent."""
        if not self._bus.is_heard:
            return
        await self.changed()
        for lease in leases:
            self.tell("claimed", url=lease.url, key=lease.key, attempt=lease.attempt)

    async def finished(
        self, leases: Sequence[Lease], verdicts: Sequence[Verdict], answers: Sequence[Finished]
    ) -> None:
        """What visits came to."""
        if not self._bus.is_heard:
            return
        for lease, verdict, answer in zip(leases, verdicts, answers, strict=True):
            for added in answer.answers:
                self._tell_added(added)
            if answer.state is not None:
                name = _event_name(verdict, answer.state)
                self.tell(name, url=lease.url, outcome=verdict.outcome, reason=verdict.reason)
        await self.changed()

    async def changed(self) -> None:
        """What the store did of itself since we last looked."""
        if not self._bus.is_heard or self.store is None:
            return
        for change in await self.store.events_since(self._crawl, after=self._seen):
            if change.sequence <= self._seen:
                continue  # another call of this frontier told it while we waited
            self._seen = change.sequence
            if change.at < self._since:
                continue
            self._bus.emit(change.name, change.at, subject=change.subject, detail=change.detail)


def _event_name(verdict: Verdict, state: TaskState) -> str:
    if verdict.outcome == "done":
        return "finished" if verdict.counts else "from-cache"
    if verdict.outcome == "throttled" and state is TaskState.PENDING:
        return "throttled"
    names = {TaskState.PENDING: "retried", TaskState.DEAD: "died", TaskState.DROPPED: "dropped"}
    return names.get(state, "finished")
