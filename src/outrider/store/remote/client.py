"""The client of a file's store: every verb is a request to the process that holds the file.

If that process ends, the client may take over the file (`take_over`) and continues as the same
store: its callers keep their leases, and at most one of their calls fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from outrider.core.task import Added, Task
from outrider.core.verdict import Finished, Verdict
from outrider.errors import (
    Closed,
    OutriderError,
    StoreError,
    StoreUnattended,
    StoreUnavailable,
    StoreUnresponsive,
)
from outrider.store.byte_limits import (
    MAX_CALL_BYTES,
    parts_by_bytes,
    task_bytes,
    verdict_bytes,
)
from outrider.store.forwarding import ForwardingStore
from outrider.store.protocol import (
    ClaimRequest,
    ClaimResult,
    FullStore,
    Notifies,
)
from outrider.store.remote import frames
from outrider.store.remote.connection import Connection
from outrider.store.remote.signatures import SIGNATURES
from outrider.store.subscriptions import Subscriptions
from outrider.store.validation import validate_claim, validate_links

CALL_TIMEOUT: Final = 30.0  # seconds for one call while the holder is alive
PROBE_AFTER: Final = 1.5  # seconds without an answer after which the holder is probed with a hello

Explain: TypeAlias = Callable[[float], str]  # seconds without an answer → message with a fix
Item = TypeVar("Item")
TakeOver: TypeAlias = Callable[[], Awaitable[FullStore | None]]


class RemoteStore(ForwardingStore):
    """The store of another process; the next call after a lost connection opens another."""

    notifies: Notifies = "mostly"

    def __init__(
        self,
        path: str,
        connection: Connection,
        *,
        call_timeout: float,
        process: str,
        take_over: TakeOver | None,
        explain: Explain | None,
    ) -> None:
        self._path = path
        self._connection = connection
        self._call_timeout = call_timeout
        self._process = process
        self._take_over = take_over
        self._explain = explain
        self._store = connection.store
        self._held_store: FullStore | None = None  # the file's store, once this process holds it
        self._subscriptions = Subscriptions()
        self._held_subscriptions: dict[str, Callable[[], None]] = {}  # of the held store
        self._is_closed = False
        self._connecting: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls,
        path: str,
        *,
        call_timeout: float = CALL_TIMEOUT,
        process: str = "",
        take_over: TakeOver | None = None,
        explain: Explain | None = None,
    ) -> RemoteStore:
        """Connect to the process that holds the file at `path`; no call exceeds `call_timeout`.

        `process` names this process in its claims. `take_over` opens and serves the file if no
        process holds it, and returns None if another one did first.
        """
        connection = await Connection.open(path, explain)
        return cls(
            path,
            connection,
            call_timeout=call_timeout,
            process=process,
            take_over=take_over,
            explain=explain,
        )

    @property
    def id(self) -> str:
        """The id of the holder's store."""
        return self._store

    @property
    def is_inline(self) -> bool:
        """Never: every call waits for the socket."""
        return False

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """See `protocol.FullStore`; a new connection, or the file once it is held, notifies too."""
        is_first = crawl not in self._subscriptions.by_crawl
        unsubscribe = self._subscriptions.subscribe(crawl, notify)
        if is_first:
            self._subscribe_at_holder(crawl)
        else:
            self._subscriptions.ring([crawl])

        def end() -> None:
            unsubscribe()
            if crawl not in self._subscriptions.by_crawl:
                self._unsubscribe_at_holder(crawl)

        return end

    def _subscribe_at_holder(self, crawl: str) -> None:
        if self._held_store is not None:
            ring = partial(self._subscriptions.ring, [crawl])
            self._held_subscriptions[crawl] = self._held_store.subscribe(crawl, ring)
        else:
            self._connection.notify = self._ring
            self._connection.send("subscribe", frames.encode(frames.Subscribe(crawl)))

    def _unsubscribe_at_holder(self, crawl: str) -> None:
        unsubscribe = self._held_subscriptions.pop(crawl, None)
        if unsubscribe is not None:
            unsubscribe()
        elif self._held_store is None:
            self._connection.send("unsubscribe", frames.encode(frames.Subscribe(crawl)))

    def _subscribe_again(self) -> None:
        """Subscribe where verbs are sent to from now on; notifications may have been missed."""
        for crawl in self._subscriptions.by_crawl:
            self._subscribe_at_holder(crawl)
        self._subscriptions.ring(list(self._subscriptions.by_crawl))

    def _ring(self, crawl: str) -> None:
        self._subscriptions.ring([crawl])

    async def close(self) -> None:
        """Close the connection, or the file if this process holds it."""
        self._is_closed = True
        self._subscriptions.clear()
        for task in (self._connecting, self._probing):
            if task is not None:
                with suppress(OutriderError, OSError):  # its callers got the error
                    await asyncio.shield(task)
        await self._connection.close()
        if self._held_store is not None:
            await self._held_store.close()

    async def _forward(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        await self._connect()
        if self._held_store is not None:
            return await getattr(self._held_store, verb)(*args, **kwargs)
        signature = SIGNATURES[verb]
        answer = await self._request(verb, frames.encode(signature.bind(args, kwargs)))
        if answer.error:
            raise frames.error_of(answer)
        return signature.answer(answer.value)

    async def _request(self, verb: str, arguments: msgspec.Raw) -> frames.Answer:
        """Return the answer; probe the holder while none comes."""
        connection, loop = self._connection, asyncio.get_running_loop()
        until = loop.time() + self._call_timeout
        with connection.request(verb, arguments) as answer:
            while not answer.done():
                left = until - loop.time()
                if left <= 0:
                    connection.disconnect(f"did not answer for {self._call_timeout:g} s")
                    break
                await asyncio.wait([answer], timeout=min(PROBE_AFTER, left))
                if not answer.done() and loop.time() < until:
                    await self._probe_holder(connection)
        found = answer.result()
        if found is None:
            raise self._answer_unknown(verb, connection)
        return found

    def _answer_unknown(self, verb: str, connection: Connection) -> StoreUnavailable:
        what = f"{connection.end}; unknown whether applied, safe to repeat"
        if connection.is_silent:
            return StoreUnresponsive(f"{verb}: {what}")
        return StoreUnavailable(f"{verb}: the process that holds {self._path} {what}")

    async def _probe_holder(self, connection: Connection) -> None:
        """Require a hello on a connection of its own; without one the holder counts as hung.

        One probe serves all waiting callers.
        """
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._require_hello(connection))
        await asyncio.shield(self._probing)

    async def _require_hello(self, connection: Connection) -> None:
        try:
            probe = await Connection.open(self._path, self._explain)
        except StoreUnresponsive as error:
            connection.disconnect(str(error), is_silent=True)
        except (
            StoreError
        ):  # it refuses more connections, or ended: the open connection will show which
            return
        else:
            await probe.close()

    async def _connect(self) -> None:
        """Ensure a connection to the holder, or hold the file; all callers share one attempt."""
        if self._connection.is_lost and self._held_store is None and not self._is_closed:
            if self._connecting is None or self._connecting.done():
                self._connecting = asyncio.create_task(self._reconnect())
                self._connecting.add_done_callback(_ignore_result)
            await asyncio.shield(self._connecting)
        if self._is_closed:
            await self._connection.close()  # closed while a connection was opened
            raise Closed(f"the store at {self._path} was closed")

    async def _reconnect(self) -> None:
        try:
            connection = await Connection.open(self._path, self._explain)
        except StoreUnattended:
            if self._take_over is None:
                raise
            await self._take_over_file(self._take_over)
            return
        if connection.store != self._store:
            await connection.close()
            raise self._other_store_error()
        self._connection = connection
        self._subscribe_again()

    async def _take_over_file(self, take_over: TakeOver) -> None:
        store = await take_over()
        if store is None:
            raise StoreUnavailable(
                f"{self._path} is being taken over by another process: try again"
            )
        if store.id != self._store:
            await store.close()
            raise self._other_store_error()
        self._held_store = store
        self._subscribe_again()

    def _other_store_error(self) -> StoreError:
        return StoreError(f"{self._path} was replaced by another store: open it again")

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """Add the tasks in as many calls as their bytes need (M2)."""
        answers: list[Added] = []
        for part in _parts(tasks, task_bytes):
            answers += await super().add(part)
        return answers

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """Apply the verdicts in as many calls as their links need; those of one stay together."""
        for verdict in verdicts:
            validate_links(verdict)
        answers: list[Finished] = []
        for part in _parts(verdicts, verdict_bytes):
            answers += await super().finish(part)
        return answers

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """Name this process in the claim, unless it holds the file: its leases outlive that one."""
        validate_claim(request)
        if self._held_store is None:
            request = msgspec.structs.replace(request, process=self._process)
        return await super().claim(request)


def _parts(items: Sequence[Item], size_of: Callable[[Item], int]) -> Sequence[Sequence[Item]]:
    """Return the items in parts for one call each; what is no task is refused when it is sent."""
    try:
        return list(parts_by_bytes(items, size_of, MAX_CALL_BYTES))
    except TypeError:
        return [items]


def _ignore_result(task: asyncio.Task[None]) -> None:
    """Mark the exception as retrieved, also if every caller was cancelled."""
    if not task.cancelled():
        task.exception()
