"""PostgreSQL as a store: each verb is `heads` over the rows it touches, in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from outrider.clock import Clock, is_virtual
from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import QueueAction
from outrider.core.states import CrawlStatus
from outrider.core.task import Added, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.store.postgres.address import parsed
from outrider.store.postgres.migrate import Prepared, prepare_store
from outrider.store.postgres.notifications import Listener
from outrider.store.postgres.runner import Runner
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


class PostgresStore(FullStore):
    """Store, Admin and Inspect over one schema of one database.

    `promise` says what a crash of the server may lose, if anything.
    """

    def __init__(self, runner: Runner, watch: Listener, clock: Clock, found: Prepared) -> None:
        self._runner, self._watch, self._clock = runner, watch, clock
        self._id, self.promise = found
        self._run = runner.run

    @classmethod
    async def open(cls, url: str, clock: Clock) -> PostgresStore:
        """Connect, and bring the tables up to date; whatever is in the way is told at once."""
        address = parsed(url)
        found = await asyncio.to_thread(prepare_store, address)
        runner = Runner(address, clock, found.id)
        try:
            await runner.open()
        except BaseException:
            await runner.close()
            raise
        return cls(runner, Listener(address, found.id), clock, found)

    @property
    def id(self) -> str:
        """Kept in the database."""
        return self._id

    @property
    def is_inline(self) -> bool:
        """Never: a server takes time."""
        return False

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """See `protocol.FullStore`; made-up time has no use for a bell."""
        if is_virtual(self._clock):
            return lambda: None
        return self._watch.add(crawl, notify)

    async def close(self) -> None:
        """Let go of every connection, once the verbs under way have ended."""
        await self._watch.close()
        await self._runner.close()

    # ---- Store

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """See `protocol.Store`."""
        return await self._run(lambda attempt: attempt.add(tasks), "shared")

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """See `protocol.Store`."""
        return await self._run(lambda attempt: attempt.claim(request), "shared")

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """See `protocol.Store`."""
        return await self._run(lambda a: a.extend(leases, lease_for=lease_for), "shared")

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """See `protocol.Store`."""
        return await self._run(lambda attempt: attempt.finish(verdicts), "shared")

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """See `protocol.Store`."""
        return await self._run(lambda attempt: attempt.release(leases), "shared")

    async def expire(self, *, limit: int) -> int:
        """See `protocol.Store`."""
        return await self._run(lambda attempt: attempt.expire(limit=limit), "shared")

    # ---- Admin

    async def configure(self, crawl: str, rules: CrawlRules, settings: str = "") -> bool:
        """See `protocol.Admin`."""
        return await self._run(lambda a: a.configure(crawl, rules, settings), "exclusive")

    async def steer(
        self, crawl: str, target: str, act: QueueAction, *, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._run(
            lambda a: a.steer(crawl, target, act, after=after, limit=limit), "shared"
        )

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        """See `protocol.Admin`."""
        await self._run(lambda attempt: attempt.add_roots(crawl, mode, roots), "exclusive")

    async def set_status(
        self, crawl: str, status: CrawlStatus, reason: str = "operator"
    ) -> CrawlStatus:
        """See `protocol.Admin`."""
        return await self._run(
            lambda attempt: attempt.set_status(crawl, status, reason), "exclusive"
        )

    async def drop(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._run(
            lambda a: a.drop(crawl, which, dry_run=dry_run, after=after, limit=limit), "shared"
        )

    async def replay(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._run(
            lambda a: a.replay(crawl, which, dry_run=dry_run, after=after, limit=limit), "shared"
        )

    async def purge(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._run(
            lambda a: a.purge(crawl, which, dry_run=dry_run, after=after, limit=limit), "shared"
        )

    async def put_values(self, crawl: str, values: Sequence[SharedValueWrite]) -> list[int]:
        """See `protocol.Admin`."""
        return await self._run(lambda attempt: attempt.put_values(crawl, values), "shared")

    async def update_priorities(self, crawl: str, updates: Sequence[PriorityUpdate]) -> int:
        """See `protocol.Admin`."""
        return await self._run(lambda attempt: attempt.update_priorities(crawl, updates), "shared")

    async def heartbeat(self, crawl: str, heartbeat: Heartbeat) -> None:
        """See `protocol.Admin`."""
        await self._run(lambda attempt: attempt.heartbeat(crawl, heartbeat), "shared")

    async def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        """See `protocol.Admin`."""
        return await self._run(lambda attempt: attempt.restore(crawl, saved), "exclusive")

    # ---- Inspect

    async def crawls(self) -> list[str]:
        """See `protocol.Inspect`."""
        return await self._run(lambda attempt: attempt.crawls(), "read")

    async def crawl(self, crawl: str) -> CrawlView:
        """See `protocol.Inspect`."""
        return await self._run(lambda attempt: attempt.crawl(crawl), "read")

    async def queue_states(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Any]:
        """See `protocol.Inspect`."""
        return await self._run(lambda a: a.queue_states(crawl, after=after, limit=limit), "read")

    async def queue(self, crawl: str, key: str) -> QueueView:
        """See `protocol.Inspect`."""
        return await self._run(lambda attempt: attempt.queue(crawl, key), "read")

    async def queues(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueView]:
        """See `protocol.Inspect`."""
        return await self._run(lambda a: a.queues(crawl, after=after, limit=limit), "read")

    async def tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[TaskView]:
        """See `protocol.Inspect`."""
        return await self._run(lambda a: a.tasks(crawl, which, after=after, limit=limit), "read")

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        """See `protocol.Inspect`."""
        return await self._run(lambda attempt: attempt.task(crawl, fingerprint), "read")

    async def pending_tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Any]:
        """See `protocol.Inspect`."""
        return await self._run(
            lambda a: a.pending_tasks(crawl, which, after=after, limit=limit), "read"
        )

    async def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        """See `protocol.Inspect`."""
        return await self._run(lambda a: a.upcoming(crawl, key, limit=limit), "read")

    async def position(self, crawl: str, number: int) -> QueuePosition:
        """See `protocol.Inspect`."""
        return await self._run(lambda attempt: attempt.position(crawl, number), "read")

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        """See `protocol.Inspect`."""
        return await self._run(lambda a: a.roots(crawl, mode, after=after), "read")

    async def heatmap(self, crawl: str) -> Heat:
        """See `protocol.Inspect`."""
        return await self._run(lambda attempt: attempt.heatmap(crawl), "read")

    async def settings(self, crawl: str) -> str:
        """See `protocol.Inspect`."""
        return await self._run(lambda attempt: attempt.settings(crawl), "read")

    async def values_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[SharedValue]:
        """See `protocol.Inspect`."""
        return await self._run(lambda a: a.values_since(crawl, after=after, limit=limit), "read")

    async def workers(self, crawl: str) -> list[WorkerView]:
        """See `protocol.Inspect`."""
        return await self._run(lambda attempt: attempt.workers(crawl), "read")

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[Saved]:
        """See `protocol.Inspect`: while a page is read nobody is about to add to it unseen."""
        return await self._run(lambda a: a.export(crawl, after=after, limit=limit), "exclusive")

    async def events_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[StoreEvent]:
        """See `protocol.Inspect`."""
        return await self._run(lambda a: a.events_since(crawl, after=after, limit=limit), "read")
