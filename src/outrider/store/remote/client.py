"""The other side: a store whose every verb is asked of the process that holds the file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import msgspec

from outrider.core.act import Act
from outrider.core.policy.rules import CrawlRules
from outrider.core.states import CrawlStatus
from outrider.core.task import Added, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.errors import Closed, StoreError, StoreUnavailable
from outrider.store.protocol import (
    Admin,
    Beat,
    Change,
    Claimed,
    ClaimRequest,
    CrawlView,
    FullStore,
    Heat,
    Inspect,
    Note,
    Noted,
    Page,
    Place,
    Price,
    QueueView,
    Step,
    Store,
    TaskView,
    Upcoming,
    Which,
    WorkerView,
)
from outrider.store.remote import wire
from outrider.store.remote.line import Line
from outrider.store.remote.verbs import VERBS
from outrider.store.saved import Saved

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE: Final = 30.0  # seconds


class RemoteStore(FullStore):
    """The store of another process; a lost line is looked for again by the next call."""

    def __init__(self, path: str, line: Line, patience: float) -> None:
        self._path = path
        self._line = line
        self._patience = patience
        self._store = line.store
        self._is_closed = False
        self._dialling = asyncio.Lock()

    @classmethod
    async def connect(cls, path: str, *, patience: float = PATIENCE) -> RemoteStore:
        """Speak to the process that holds the file at `path`; no call waits beyond `patience`."""
        return cls(path, await Line.open(path), patience)

    @property
    def id(self) -> str:
        """The owner's store's own."""
        return self._store

    @property
    def is_inline(self) -> bool:
        """Never: a line takes time."""
        return False

    def watch(self, crawl: str, ring: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        """Nobody is rung: a line only answers."""
        return lambda: None

    async def close(self) -> None:
        """Let go of the line; the owner's store stays open."""
        self._is_closed = True
        await self._line.close()

    async def _ask(
        self,
        verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        asked = VERBS[verb.__name__]
        answer = await self._heard(asked.name, wire.encode(asked.bind(args, kwargs)))
        if answer.error:
            raise wire.raised(answer)
        value: T = asked.answer(answer.value)
        return value

    async def _heard(self, verb: str, arguments: msgspec.Raw) -> wire.Answer:
        try:
            async with asyncio.timeout(self._patience):
                answer = await (await self._connected()).ask(verb, arguments)
        except TimeoutError as error:
            self._line.hang_up()
            raise self._unknown(verb, f"did not answer for {self._patience:g} s") from error
        if answer is None:
            raise self._unknown(verb, "went away")
        return answer

    def _unknown(self, verb: str, what: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"{verb}: the process that holds {self._path} {what}; "
            "unknown whether applied, safe to repeat"
        )

    async def _connected(self) -> Line:
        async with self._dialling:
            if self._line.is_lost and not self._is_closed:
                await self._dial()
        if self._is_closed:
            await self._line.close()  # closed while we dialled
            raise Closed(f"the store at {self._path} was closed")
        return self._line

    async def _dial(self) -> None:
        line = await Line.open(self._path)
        if line.store != self._store:
            await line.close()
            raise StoreError(f"{self._path} is another store now: open it again")
        self._line = line

    # ---- Store

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """See `protocol.Store`."""
        return await self._ask(Store.add, tasks)

    async def claim(self, request: ClaimRequest) -> Claimed:
        """See `protocol.Store`."""
        return await self._ask(Store.claim, request)

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """See `protocol.Store`."""
        return await self._ask(Store.extend, leases, lease_for=lease_for)

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """See `protocol.Store`."""
        return await self._ask(Store.finish, verdicts)

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """See `protocol.Store`."""
        return await self._ask(Store.release, leases)

    async def expire(self, *, limit: int) -> int:
        """See `protocol.Store`."""
        return await self._ask(Store.expire, limit=limit)

    # ---- Admin

    async def configure(self, crawl: str, rules: CrawlRules, settings: str = "") -> bool:
        """See `protocol.Admin`."""
        return await self._ask(Admin.configure, crawl, rules, settings)

    async def steer(
        self, crawl: str, target: str, act: Act, *, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._ask(Admin.steer, crawl, target, act, after=after, limit=limit)

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        """See `protocol.Admin`."""
        await self._ask(Admin.add_roots, crawl, mode, roots)

    async def turn(self, crawl: str, status: CrawlStatus, reason: str = "operator") -> CrawlStatus:
        """See `protocol.Admin`."""
        return await self._ask(Admin.turn, crawl, status, reason)

    async def drop(
        self, crawl: str, which: Which, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._ask(Admin.drop, crawl, which, dry_run=dry_run, after=after, limit=limit)

    async def replay(
        self, crawl: str, which: Which, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        ask = self._ask
        return await ask(Admin.replay, crawl, which, dry_run=dry_run, after=after, limit=limit)

    async def purge(
        self, crawl: str, which: Which, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._ask(Admin.purge, crawl, which, dry_run=dry_run, after=after, limit=limit)

    async def note(self, crawl: str, notes: Sequence[Note]) -> list[int]:
        """See `protocol.Admin`."""
        return await self._ask(Admin.note, crawl, notes)

    async def reprice(self, crawl: str, prices: Sequence[Price]) -> int:
        """See `protocol.Admin`."""
        return await self._ask(Admin.reprice, crawl, prices)

    async def beat(self, crawl: str, beat: Beat) -> None:
        """See `protocol.Admin`."""
        await self._ask(Admin.beat, crawl, beat)

    async def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        """See `protocol.Admin`."""
        return await self._ask(Admin.restore, crawl, saved)

    # ---- Inspect

    async def crawls(self) -> list[str]:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.crawls)

    async def crawl(self, crawl: str) -> CrawlView:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.crawl, crawl)

    async def census(self, crawl: str, *, after: int = 0, limit: int = 1000) -> Page:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.census, crawl, after=after, limit=limit)

    async def queue(self, crawl: str, key: str) -> QueueView:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.queue, crawl, key)

    async def queues(self, crawl: str, *, after: int = 0, limit: int = 1000) -> Page:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.queues, crawl, after=after, limit=limit)

    async def tasks(self, crawl: str, which: Which, *, after: int = 0, limit: int = 1000) -> Page:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.tasks, crawl, which, after=after, limit=limit)

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.task, crawl, fingerprint)

    async def waiting(self, crawl: str, which: Which, *, after: int = 0, limit: int = 1000) -> Page:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.waiting, crawl, which, after=after, limit=limit)

    async def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.upcoming, crawl, key, limit=limit)

    async def place(self, crawl: str, number: int) -> Place:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.place, crawl, number)

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.roots, crawl, mode, after=after)

    async def heatmap(self, crawl: str) -> Heat:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.heatmap, crawl)

    async def settings(self, crawl: str) -> str:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.settings, crawl)

    async def notes(self, crawl: str, *, after: int = 0, limit: int = 1000) -> list[Noted]:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.notes, crawl, after=after, limit=limit)

    async def workers(self, crawl: str) -> list[WorkerView]:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.workers, crawl)

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> Page:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.export, crawl, after=after, limit=limit)

    async def changes(self, crawl: str, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """See `protocol.Inspect`."""
        return await self._ask(Inspect.changes, crawl, after=after, limit=limit)
