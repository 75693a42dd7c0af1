"""The client's side: a store whose every verb is asked of the process that holds the file.

When no process holds it any more, the client may hold it itself (`take_over`), and goes on as the
same store: its callers keep their leases, and notice a call that failed at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

import msgspec

from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import QueueAction
from outrider.core.states import CrawlStatus
from outrider.core.task import Added, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.errors import (
    Closed,
    OutriderError,
    StoreError,
    StoreUnattended,
    StoreUnavailable,
    StoreUnresponsive,
)
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

PATIENCE: Final = 30.0  # seconds one call may take while its holder is alive
QUIET: Final = 1.5  # seconds without an answer after which the holder must say hello again

Explain: TypeAlias = Callable[[float], str]  # seconds without an answer → who is silent, what to do
TakeOver: TypeAlias = Callable[[], Awaitable[FullStore | None]]


class RemoteStore(FullStore):
    """The store of another process; a lost line is looked for again by the next call."""

    def __init__(
        self,
        path: str,
        line: Line,
        *,
        patience: float,
        process: str,
        take_over: TakeOver | None,
        explain: Explain | None,
    ) -> None:
        self._path = path
        self._line = line
        self._patience = patience
        self._process = process
        self._take_over = take_over
        self._explain = explain
        self._store = line.store
        self._own: FullStore | None = None  # the file's store, once it is held here
        self._is_closed = False
        self._dialling: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls,
        path: str,
        *,
        patience: float = PATIENCE,
        process: str = "",
        take_over: TakeOver | None = None,
        explain: Explain | None = None,
    ) -> RemoteStore:
        """Speak to the process that holds the file at `path`; no call waits beyond `patience`.

        `process` names this side in its claims. `take_over` opens and serves the file if no process
        holds it; None, if another one was quicker.
        """
        line = await Line.open(path, explain)
        return cls(
            path, line, patience=patience, process=process, take_over=take_over, explain=explain
        )

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
        """Let go of the line, or of the file if it is held here; another owner's stays open."""
        self._is_closed = True
        for task in (self._dialling, self._probing):
            if task is not None:
                with suppress(OutriderError, OSError):  # its callers were told
                    await asyncio.shield(task)
        await self._line.close()
        if self._own is not None:
            await self._own.close()

    async def _ask(
        self,
        verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        await self._connect()
        if self._own is not None:
            own: T = await getattr(self._own, verb.__name__)(*args, **kwargs)
            return own
        asked = VERBS[verb.__name__]
        answer = await self._heard(asked.name, wire.encode(asked.bind(args, kwargs)))
        if answer.error:
            raise wire.raised(answer)
        value: T = asked.answer(answer.value)
        return value

    async def _heard(self, verb: str, arguments: msgspec.Raw) -> wire.Answer:
        """The answer; while it does not come, the holder is asked now and then if it is alive."""
        line, loop = self._line, asyncio.get_running_loop()
        until = loop.time() + self._patience
        with line.asked(verb, arguments) as answer:
            while not answer.done():
                left = until - loop.time()
                if left <= 0:
                    line.hang_up(f"did not answer for {self._patience:g} s")
                    break
                await asyncio.wait([answer], timeout=min(QUIET, left))
                if not answer.done() and loop.time() < until:
                    await self._probe(line)
        found = answer.result()
        if found is None:
            raise self._unknown(verb, line)
        return found

    def _unknown(self, verb: str, line: Line) -> StoreUnavailable:
        what = f"{line.end}; unknown whether applied, safe to repeat"
        if line.is_silent:
            return StoreUnresponsive(f"{verb}: {what}")
        return StoreUnavailable(f"{verb}: the process that holds {self._path} {what}")

    async def _probe(self, line: Line) -> None:
        """Have a hello answered on a line of its own; if it is not, the holder is taken for hung.

        One probe serves all callers that wait.
        """
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._require_hello(line))
        await asyncio.shield(self._probing)

    async def _require_hello(self, line: Line) -> None:
        try:
            probe = await Line.open(self._path, self._explain)
        except StoreUnresponsive as error:
            line.hang_up(str(error), is_silent=True)
        except StoreError:  # it refuses more lines, or goes away: this line will tell
            return
        else:
            await probe.close()

    async def _connect(self) -> None:
        """A line to the holder, or the file itself; all callers that need one share the attempt."""
        if self._line.is_lost and self._own is None and not self._is_closed:
            if self._dialling is None or self._dialling.done():
                self._dialling = asyncio.create_task(self._dial())
                self._dialling.add_done_callback(_retrieve)
            await asyncio.shield(self._dialling)
        if self._is_closed:
            await self._line.close()  # closed while we dialled
            raise Closed(f"the store at {self._path} was closed")

    async def _dial(self) -> None:
        try:
            line = await Line.open(self._path, self._explain)
        except StoreUnattended:
            if self._take_over is None:
                raise
            await self._hold(self._take_over)
            return
        if line.store != self._store:
            await line.close()
            raise self._replaced()
        self._line = line

    async def _hold(self, take_over: TakeOver) -> None:
        store = await take_over()
        if store is None:
            raise StoreUnavailable(f"{self._path} changes hands: ask again")
        if store.id != self._store:
            await store.close()
            raise self._replaced()
        self._own = store

    def _replaced(self) -> StoreError:
        return StoreError(f"{self._path} is another store now: open it again")

    # ---- Store

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """See `protocol.Store`."""
        return await self._ask(Store.add, tasks)

    async def claim(self, request: ClaimRequest) -> Claimed:
        """See `protocol.Store`."""
        if self._own is None:  # else the process that holds the leases holds the file
            request = msgspec.structs.replace(request, process=self._process)
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
        self, crawl: str, target: str, act: QueueAction, *, after: int = 0, limit: int = 1000
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


def _retrieve(task: asyncio.Task[None]) -> None:
    """A failure whose callers have all left is no news."""
    if not task.cancelled():
        task.exception()
