"""The forwarding store: every verb of the store protocol becomes one call of `_forward`.

Stores that run all verbs the same way (in a thread, over a socket, with faults, under observation)
implement `_forward`, and override only the verbs they change. A store made of several parts finds
the part that serves a verb in a `verb_table`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any, Final

from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import QueueAction
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import Added, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.core.worker_totals import WorkerTotals
from outrider.store.export_items import Saved
from outrider.store.protocol import (
    ALL_LEASES,
    Admin,
    ClaimRequest,
    ClaimResult,
    CrawlView,
    CursorPage,
    EventBatch,
    EventPage,
    Heartbeat,
    Heat,
    Inspect,
    LeaseFilter,
    LeaseView,
    Notifies,
    Pending,
    PriorityUpdate,
    QueuePosition,
    QueueView,
    ResultPage,
    SharedValue,
    SharedValueWrite,
    Step,
    Store,
    StoreEvent,
    TaskFilter,
    TaskView,
    Upcoming,
    WhichCrawl,
    WorkerView,
)
from outrider.store.queue_order import QueueOrder

# Every verb by its name, as the protocols declare it.
VERBS: Final[dict[str, Callable[..., Any]]] = {
    name: declared
    for protocol in (Store, Admin, Inspect)
    for name, declared in vars(protocol).items()
    if iscoroutinefunction(declared)
}


def verb_table(*parts: object) -> dict[str, Callable[..., Awaitable[Any]]]:
    """Return the method that serves each verb; exactly one of the parts must have it."""
    table = {}
    for verb in VERBS:
        serving = [part for part in parts if hasattr(part, verb)]
        if len(serving) != 1:
            names = ", ".join(type(part).__name__ for part in serving) or "no part"
            raise TypeError(f"verb {verb!r} is served by {names}: one part must serve it")
        table[verb] = getattr(serving[0], verb)
    return table


class ForwardingStore(ABC):
    """The verbs of `Store`, `Admin` and `Inspect` in terms of one method."""

    __slots__ = ()

    notifies: Notifies = "never"

    @abstractmethod
    async def _forward(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Run a verb with these arguments and return its answer."""

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        return await self._forward("add", tasks)

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        return await self._forward("claim", request)

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        return await self._forward("extend", leases, lease_for=lease_for)

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        return await self._forward("finish", verdicts)

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        return await self._forward("release", leases)

    async def expire(self, *, limit: int) -> int:
        return await self._forward("expire", limit=limit)

    async def configure(
        self,
        crawl: str,
        rules: CrawlRules,
        settings: str = "",
        *,
        only: WhichCrawl = "any",
        by: str = "",
    ) -> bool:
        return await self._forward("configure", crawl, rules, settings, only=only, by=by)

    async def steer(
        self,
        crawl: str,
        target: str,
        act: QueueAction,
        *,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        return await self._forward("steer", crawl, target, act, after=after, limit=limit, by=by)

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        return await self._forward("add_roots", crawl, mode, roots)

    async def set_status(
        self, crawl: str, status: CrawlStatus, reason: str = "operator", *, by: str = ""
    ) -> CrawlStatus:
        return await self._forward("set_status", crawl, status, reason, by=by)

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
        return await self._forward(
            "drop", crawl, which, dry_run=dry_run, after=after, limit=limit, by=by
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
        return await self._forward(
            "replay", crawl, which, dry_run=dry_run, after=after, limit=limit, by=by
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
        return await self._forward(
            "purge", crawl, which, dry_run=dry_run, after=after, limit=limit, by=by
        )

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
        return await self._forward(
            "forget", crawl, which, dry_run=dry_run, after=after, limit=limit, by=by
        )

    async def delete(self, crawl: str, *, limit: int = 1000, by: str = "") -> Step:
        return await self._forward("delete", crawl, limit=limit, by=by)

    async def put_values(self, crawl: str, values: Sequence[SharedValueWrite]) -> list[int]:
        return await self._forward("put_values", crawl, values)

    async def update_priorities(self, crawl: str, updates: Sequence[PriorityUpdate]) -> int:
        return await self._forward("update_priorities", crawl, updates)

    async def heartbeat(self, crawl: str, heartbeat: Heartbeat) -> None:
        return await self._forward("heartbeat", crawl, heartbeat)

    async def publish(self, crawl: str, batch: EventBatch) -> None:
        return await self._forward("publish", crawl, batch)

    async def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        return await self._forward("restore", crawl, saved)

    async def crawls(self) -> list[str]:
        return await self._forward("crawls")

    async def crawl(self, crawl: str) -> CrawlView:
        return await self._forward("crawl", crawl)

    async def queue_states(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueState]:
        return await self._forward("queue_states", crawl, after=after, limit=limit)

    async def queue(self, crawl: str, key: str) -> QueueView:
        return await self._forward("queue", crawl, key)

    async def queues(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueView]:
        return await self._forward("queues", crawl, after=after, limit=limit)

    async def queues_in_order(
        self,
        crawl: str,
        order: QueueOrder,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 1000,
    ) -> CursorPage[QueueView]:
        return await self._forward(
            "queues_in_order", crawl, order, prefix=prefix, after=after, limit=limit
        )

    async def tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[TaskView]:
        return await self._forward("tasks", crawl, which, after=after, limit=limit)

    async def queue_tasks(
        self,
        crawl: str,
        key: str,
        *,
        state: TaskState | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> ResultPage[TaskView]:
        return await self._forward("queue_tasks", crawl, key, state=state, after=after, limit=limit)

    async def leases(
        self,
        crawl: str,
        which: LeaseFilter = ALL_LEASES,
        *,
        after: int = 0,
        limit: int = 1000,
    ) -> ResultPage[LeaseView]:
        return await self._forward("leases", crawl, which, after=after, limit=limit)

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        return await self._forward("task", crawl, fingerprint)

    async def pending_tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Pending]:
        return await self._forward("pending_tasks", crawl, which, after=after, limit=limit)

    async def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        return await self._forward("upcoming", crawl, key, limit=limit)

    async def position(self, crawl: str, number: int) -> QueuePosition:
        return await self._forward("position", crawl, number)

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        return await self._forward("roots", crawl, mode, after=after)

    async def heatmap(self, crawl: str) -> Heat:
        return await self._forward("heatmap", crawl)

    async def settings(self, crawl: str) -> str:
        return await self._forward("settings", crawl)

    async def values_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[SharedValue]:
        return await self._forward("values_since", crawl, after=after, limit=limit)

    async def workers(self, crawl: str) -> list[WorkerView]:
        return await self._forward("workers", crawl)

    async def worker_totals(self, crawl: str) -> WorkerTotals:
        return await self._forward("worker_totals", crawl)

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[Saved]:
        return await self._forward("export", crawl, after=after, limit=limit)

    async def events_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[StoreEvent]:
        return await self._forward("events_since", crawl, after=after, limit=limit)

    async def event_log(self, crawl: str, *, after: int = 0, limit: int = 1000) -> EventPage:
        return await self._forward("event_log", crawl, after=after, limit=limit)
