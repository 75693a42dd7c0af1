"""The event reporter: turns a store's answers into events, if there is a listener (O3)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

from msgspec import to_builtins

from outrider.clock import Clock
from outrider.core.states import TaskState
from outrider.core.task import LANES, Added, Lease, Task
from outrider.core.verdict import Finished, Verdict
from outrider.errors import SettingsError
from outrider.events import Event, EventBus, JsonlSink, Listener
from outrider.frontier.event_publisher import EventPublisher
from outrider.frontier.policies import Policies
from outrider.frontier.store_calls import run_inline
from outrider.store.event_ring import data_of
from outrider.store.protocol import FullStore


class EventReporter:
    """Reports what one frontier did, and the store's own events since the last report.

    Those who follow the crawl from another process get the former from `publisher`, and read the
    latter themselves.
    """

    def __init__(self, clock: Clock, crawl: str, worker: str, policies: Policies) -> None:
        self.publisher = EventPublisher(crawl, worker, clock)
        self._bus = EventBus(crawl)
        self._clock = clock
        self._crawl = crawl
        self._policies = policies
        self._sequence = 0  # of the last store event that was reported
        self._since = 0.0  # earlier store events are not reported
        self._store: FullStore | None = None
        self._file: JsonlSink | None = None

    @property
    def has_listeners(self) -> bool:
        """Whether events are wanted; callers ask before they make any."""
        return self._bus.has_listeners or self.publisher.is_active

    def use(self, store: FullStore) -> None:
        """Read store events from this store."""
        self._store = store
        self.publisher.use(store)

    def stream(self) -> AsyncIterator[Event]:
        """See `Frontier.events`."""
        self._start()
        return self._bus.stream()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """See `Frontier.subscribe`."""
        self._start()
        self._bus.subscribe(listener)
        return lambda: self._bus.unsubscribe(listener)

    def write_to(self, path: str) -> None:
        """Write events to this JSONL file, in place of the one before; "" for none."""
        old, self._file = self._file, _open_file(path) if path else None
        if self._file is not None:
            self._start()
            self._bus.subscribe(self._file)
        if old is not None:
            self._bus.unsubscribe(old)
            old.close()

    def _start(self) -> None:
        """For the first listener: skip the store events that happened before."""
        if self._bus.has_listeners or self._store is None:
            return
        self._since = self._clock.now_ms() / 1000
        if self._store.is_inline:
            run_inline(self._skip(self._store))

    async def _skip(self, store: FullStore) -> None:
        while events := await store.events_since(self._crawl, after=self._sequence):
            self._sequence = events[-1].sequence

    def emit(self, name: str, **data: Any) -> None:
        """Report one event, with the time of now."""
        at = self._clock.now_ms() / 1000
        if self._bus.has_listeners:
            self._bus.emit(name, at, **data)
        if self.publisher.is_active:
            self.publisher.put(name, at, data)

    async def added(self, answers: Iterable[Added], admitted: Iterable[Task | Added] = ()) -> None:
        """Report links that were added or refused; `admitted`: what admission made of each."""
        if not self.has_listeners:
            return
        for answer, one in zip_longest(answers, admitted):
            self._emit_added(answer, one if isinstance(one, Task) else None)
        await self.store_events()

    def _emit_added(self, answer: Added, task: Task | None) -> None:
        if not answer.added:
            known = {} if task is None else {"key": task.key, "type": task.type}
            self.emit("refused", url=answer.url[:200], reason=answer.reason, **known)
            return
        about = {} if task is None else self._about_added(task)
        self.emit("added", url=answer.url, priority=answer.priority, **about)

    def _about_added(self, task: Task) -> dict[str, Any]:
        about = {
            "key": task.key,
            "type": task.type,
            "lane": LANES[task.lane],
            "depth": task.depth,
            "origin": task.origin,
            "tag": task.tag,
        }
        is_wanted = self.publisher.wants_breakdown or self._policies.settings.events.breakdown
        if task.breakdown is not None and is_wanted:
            about["breakdown"] = to_builtins(task.breakdown)
        return about

    async def claimed(self, leases: Iterable[Lease]) -> None:
        """Report leased tasks."""
        if not self.has_listeners:
            return
        await self.store_events()
        for lease in leases:
            self.emit("claimed", url=lease.url, **_about_visit(lease))

    async def finished(
        self, leases: Sequence[Lease], verdicts: Sequence[Verdict], answers: Sequence[Finished]
    ) -> None:
        """Report finished visits, and the links they added."""
        if not self.has_listeners:
            return
        for lease, verdict, answer in zip(leases, verdicts, answers, strict=True):
            for added, task in zip(answer.answers, verdict.tasks, strict=False):
                self._emit_added(added, task)
            if answer.state is not None:
                self.emit(
                    _event_name(verdict, answer.state),
                    url=lease.url,
                    outcome=verdict.outcome,
                    reason=verdict.reason,
                    **_about_visit(lease),
                    status=None if verdict.answer is None else verdict.answer.status,
                )
        await self.store_events()

    async def store_events(self) -> None:
        """Report the store's own events since the last call."""
        if not self._bus.has_listeners or self._store is None:
            return
        for event in await self._store.events_since(self._crawl, after=self._sequence):
            if event.sequence <= self._sequence:
                continue  # another call of this frontier reported it during the await
            self._sequence = event.sequence
            if event.at < self._since:
                continue
            self._bus.emit(event.name, event.at, **data_of(event))


def _about_visit(lease: Lease) -> dict[str, Any]:
    return {
        "key": lease.key,
        "type": lease.type,
        "attempt": lease.attempt,
        "worker": lease.worker,
    }


def signature(by: str) -> dict[str, str]:
    """Return the part of an event's data that says who acted, if an operator said so."""
    return {"by": by} if by else {}


def _event_name(verdict: Verdict, state: TaskState) -> str:
    if verdict.outcome == "done":
        return "finished" if verdict.counts else "from-cache"
    if verdict.outcome == "throttled" and state is TaskState.PENDING:
        return "throttled"
    if verdict.outcome == "again":
        return "again"
    names = {TaskState.PENDING: "retried", TaskState.DEAD: "died", TaskState.DROPPED: "dropped"}
    return names.get(state, "finished")


def _open_file(path: str) -> JsonlSink:
    try:
        return JsonlSink(path)
    except OSError as error:
        raise SettingsError(
            f"events.jsonl = {path!r} cannot be written: {error.strerror}"
        ) from error
