"""A store that sometimes loses, delays or repeats what it is told, as a network would.

It only decides how a call arrives: what arrives is applied by the store inside, unchanged. Every
fault comes from a plan, and the plan's dice from one seed, so that a failure can be repeated.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from outrider.clock import Clock
from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import QueueAction
from outrider.core.states import CrawlStatus
from outrider.core.task import Added, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.errors import StoreUnavailable
from outrider.store.protocol import (
    ClaimRequest,
    ClaimResult,
    CrawlView,
    FullStore,
    Heartbeat,
    Heat,
    PriorityUpdate,
    QueuePosition,
    QueueView,
    ResultPage,
    SharedValue,
    SharedValueWrite,
    Step,
    StoreEvent,
    TaskFilter,
    TaskView,
    Upcoming,
    WorkerView,
)
from outrider.store.saved import Saved

T = TypeVar("T")


class Fate(StrEnum):
    """What becomes of a call."""

    CALM = "calm"  # nothing
    LATE = "late"  # it arrives late
    SLOW = "slow"  # its answer arrives late
    DROP = "drop"  # it never arrives
    UNKNOWN = "unknown"  # it arrives, its answer never does
    DUPLICATE = "duplicate"  # it arrives twice, and the second answer is heard


class Fault(NamedTuple):
    """A fate, and how long whatever takes time takes."""

    fate: Fate
    seconds: float = 0.0


NO_FAULT: Final = Fault(Fate.CALM)
Plan: TypeAlias = Callable[[str], Fault]  # the verb called → what becomes of the call


class Shares(msgspec.Struct, frozen=True):
    """How often each fault strikes, as shares of 1, and how long a delay may be."""

    late: float = 0.0
    slow: float = 0.0
    drop: float = 0.0
    unknown: float = 0.0
    duplicate: float = 0.0
    longest: float = 5.0  # seconds


def calm(_verb: str) -> Fault:
    """Let every call through."""
    return NO_FAULT


def seeded(shares: Shares, dice: random.Random) -> Plan:
    """Faults in these shares, in an order that only the dice know."""
    fates = (Fate.LATE, Fate.SLOW, Fate.DROP, Fate.UNKNOWN, Fate.DUPLICATE)
    edges = list(accumulate(getattr(shares, fate.value) for fate in fates))

    def plan(_verb: str) -> Fault:
        roll = dice.random()
        if roll >= edges[-1]:
            return NO_FAULT
        fate = next(fate for fate, edge in zip(fates, edges, strict=True) if roll < edge)
        return Fault(fate, dice.random() * shares.longest)

    return plan


class FaultyStore:
    """Any store behind a bad line; `heal` mends the line for good."""

    def __init__(self, store: FullStore, clock: Clock, plan: Plan) -> None:
        self._store = store
        self._clock = clock
        self._plan = plan
        self.counts: Counter[str] = Counter()

    @property
    def id(self) -> str:
        """The id of the store inside: leases must not tell the difference."""
        return self._store.id

    @property
    def is_inline(self) -> bool:
        """Never: a line takes time."""
        return False

    def heal(self) -> None:
        """From now on nothing goes wrong."""
        self._plan = calm

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """Hand on."""
        return self._store.subscribe(crawl, notify)

    async def close(self) -> None:
        """Close the store inside."""
        await self._store.close()

    async def _call(self, verb: str, send: Callable[[], Coroutine[Any, Any, T]]) -> T:
        fate, seconds = self._plan(verb)
        if fate is Fate.CALM:
            return await send()
        self.counts[fate.value] += 1
        return await self._befall(verb, send, fate, seconds)

    async def _befall(
        self, verb: str, send: Callable[[], Coroutine[Any, Any, T]], fate: Fate, seconds: float
    ) -> T:
        if fate in (Fate.LATE, Fate.DROP):
            await self._clock.sleep(seconds)
        if fate is Fate.DROP:
            raise StoreUnavailable(f"{verb}: no answer (it never arrived)")
        answer = await send()
        if fate is not Fate.LATE:
            await self._clock.sleep(seconds)
        if fate is Fate.UNKNOWN:
            raise StoreUnavailable(f"{verb}: no answer (it was applied)")
        return await send() if fate is Fate.DUPLICATE else answer

    # ---- Store

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """See `protocol.Store`."""
        return await self._call("add", lambda: self._store.add(tasks))

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """See `protocol.Store`."""
        return await self._call("claim", lambda: self._store.claim(request))

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """See `protocol.Store`."""
        return await self._call("extend", lambda: self._store.extend(leases, lease_for=lease_for))

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """See `protocol.Store`."""
        return await self._call("finish", lambda: self._store.finish(verdicts))

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """See `protocol.Store`."""
        return await self._call("release", lambda: self._store.release(leases))

    async def expire(self, *, limit: int) -> int:
        """See `protocol.Store`."""
        return await self._call("expire", lambda: self._store.expire(limit=limit))

    # ---- Admin

    async def configure(self, crawl: str, rules: CrawlRules, settings: str = "") -> bool:
        """See `protocol.Admin`."""
        return await self._call("configure", lambda: self._store.configure(crawl, rules, settings))

    async def steer(
        self, crawl: str, target: str, act: QueueAction, *, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        store = self._store
        return await self._call(
            "steer", lambda: store.steer(crawl, target, act, after=after, limit=limit)
        )

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        """See `protocol.Admin`."""
        await self._call("add_roots", lambda: self._store.add_roots(crawl, mode, roots))

    async def set_status(
        self, crawl: str, status: CrawlStatus, reason: str = "operator"
    ) -> CrawlStatus:
        """See `protocol.Admin`."""
        return await self._call("set_status", lambda: self._store.set_status(crawl, status, reason))

    async def drop(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        store = self._store
        return await self._call(
            "drop", lambda: store.drop(crawl, which, dry_run=dry_run, after=after, limit=limit)
        )

    async def replay(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        store = self._store
        return await self._call(
            "replay", lambda: store.replay(crawl, which, dry_run=dry_run, after=after, limit=limit)
        )

    async def purge(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        store = self._store
        return await self._call(
            "purge", lambda: store.purge(crawl, which, dry_run=dry_run, after=after, limit=limit)
        )

    async def put_values(self, crawl: str, values: Sequence[SharedValueWrite]) -> list[int]:
        """See `protocol.Admin`."""
        return await self._call("put_values", lambda: self._store.put_values(crawl, values))

    async def update_priorities(self, crawl: str, updates: Sequence[PriorityUpdate]) -> int:
        """See `protocol.Admin`."""
        return await self._call(
            "update_priorities", lambda: self._store.update_priorities(crawl, updates)
        )

    async def heartbeat(self, crawl: str, heartbeat: Heartbeat) -> None:
        """See `protocol.Admin`."""
        await self._call("heartbeat", lambda: self._store.heartbeat(crawl, heartbeat))

    async def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        """See `protocol.Admin`."""
        return await self._call("restore", lambda: self._store.restore(crawl, saved))

    # ---- Inspect

    async def crawls(self) -> list[str]:
        """See `protocol.Inspect`."""
        return await self._call("crawls", self._store.crawls)

    async def crawl(self, crawl: str) -> CrawlView:
        """See `protocol.Inspect`."""
        return await self._call("crawl", lambda: self._store.crawl(crawl))

    async def queue_states(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Any]:
        """See `protocol.Inspect`."""
        store = self._store
        return await self._call(
            "queue_states", lambda: store.queue_states(crawl, after=after, limit=limit)
        )

    async def queue(self, crawl: str, key: str) -> QueueView:
        """See `protocol.Inspect`."""
        return await self._call("queue", lambda: self._store.queue(crawl, key))

    async def queues(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueView]:
        """See `protocol.Inspect`."""
        store = self._store
        return await self._call("queues", lambda: store.queues(crawl, after=after, limit=limit))

    async def tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[TaskView]:
        """See `protocol.Inspect`."""
        store = self._store
        return await self._call(
            "tasks", lambda: store.tasks(crawl, which, after=after, limit=limit)
        )

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        """See `protocol.Inspect`."""
        return await self._call("task", lambda: self._store.task(crawl, fingerprint))

    async def pending_tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Any]:
        """See `protocol.Inspect`."""
        store = self._store
        return await self._call(
            "pending_tasks", lambda: store.pending_tasks(crawl, which, after=after, limit=limit)
        )

    async def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        """See `protocol.Inspect`."""
        store = self._store
        return await self._call("upcoming", lambda: store.upcoming(crawl, key, limit=limit))

    async def position(self, crawl: str, number: int) -> QueuePosition:
        """See `protocol.Inspect`."""
        return await self._call("position", lambda: self._store.position(crawl, number))

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        """See `protocol.Inspect`."""
        return await self._call("roots", lambda: self._store.roots(crawl, mode, after=after))

    async def heatmap(self, crawl: str) -> Heat:
        """See `protocol.Inspect`."""
        return await self._call("heatmap", lambda: self._store.heatmap(crawl))

    async def settings(self, crawl: str) -> str:
        """See `protocol.Inspect`."""
        return await self._call("settings", lambda: self._store.settings(crawl))

    async def values_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[SharedValue]:
        """See `protocol.Inspect`."""
        store = self._store
        return await self._call(
            "values_since", lambda: store.values_since(crawl, after=after, limit=limit)
        )

    async def workers(self, crawl: str) -> list[WorkerView]:
        """See `protocol.Inspect`."""
        return await self._call("workers", lambda: self._store.workers(crawl))

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[Saved]:
        """See `protocol.Inspect`."""
        store = self._store
        return await self._call("export", lambda: store.export(crawl, after=after, limit=limit))

    async def events_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[StoreEvent]:
        """See `protocol.Inspect`."""
        store = self._store
        return await self._call(
            "events_since", lambda: store.events_since(crawl, after=after, limit=limit)
        )
