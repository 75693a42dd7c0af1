"""The client's side: a store whose every verb is asked of the process that holds the file.

When no process holds it any more, the client may hold it itself (`take_over`), and goes on as the
same store: its callers keep their leases, and notice a call that failed at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

import msgspec

from outrider.errors import (
    Closed,
    OutriderError,
    StoreError,
    StoreUnattended,
    StoreUnavailable,
    StoreUnresponsive,
)
from outrider.store.forwarding import ForwardingStore
from outrider.store.protocol import (
    ClaimRequest,
    ClaimResult,
    FullStore,
)
from outrider.store.remote import wire
from outrider.store.remote.line import Line
from outrider.store.remote.verbs import SIGNATURES

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE: Final = 30.0  # seconds one call may take while its holder is alive
QUIET: Final = 1.5  # seconds without an answer after which the holder must say hello again

Explain: TypeAlias = Callable[[float], str]  # seconds without an answer → who is silent, what to do
TakeOver: TypeAlias = Callable[[], Awaitable[FullStore | None]]


class RemoteStore(ForwardingStore):
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

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
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

    async def _forward(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        await self._connect()
        if self._own is not None:
            return await getattr(self._own, verb)(*args, **kwargs)
        signature = SIGNATURES[verb]
        answer = await self._heard(verb, wire.encode(signature.bind(args, kwargs)))
        if answer.error:
            raise wire.raised(answer)
        return signature.answer(answer.value)

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

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """Name this process in the claim, unless it holds the file: its leases outlive that one."""
        if self._own is None:
            request = msgspec.structs.replace(request, process=self._process)
        return await super().claim(request)


def _retrieve(task: asyncio.Task[None]) -> None:
    """A failure whose callers have all left is no news."""
    if not task.cancelled():
        task.exception()
