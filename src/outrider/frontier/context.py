"""The context of one frontier: what all of its parts share.

That is the store, the clock, the names of crawl and worker, the policies made from the settings,
the event reporter and the background tasks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from outrider.clock import Clock
from outrider.core.task import LeaseId
from outrider.core.verdict import Finished, Verdict
from outrider.errors import Closed, StoreUnavailable
from outrider.frontier.event_reporter import EventReporter
from outrider.frontier.policies import Policies
from outrider.logs import logger_of
from outrider.store.acts import validate_by
from outrider.store.factory import open_store
from outrider.store.protocol import ClaimRequest, ClaimResult, FullStore

NOT_OPEN: Final = "this frontier is not open: use `async with Frontier.open(...)`"

T = TypeVar("T")
A = TypeVar("A")
CallRecorder: TypeAlias = Callable[[str, float], None]  # of a verb, and the seconds it took
_log = logger_of(__name__)


class LeaseSource(Protocol):
    """What a frontier claims from, finishes at and releases to: its store, or a workbench."""

    @property
    def is_inline(self) -> bool:
        """Whether no call ever suspends."""
        ...

    def claim(self, request: ClaimRequest, /) -> Coroutine[Any, Any, ClaimResult]:
        """As `Store.claim`."""
        ...

    def finish(self, verdicts: Sequence[Verdict], /) -> Coroutine[Any, Any, list[Finished]]:
        """As `Store.finish`."""
        ...

    def release(self, leases: Sequence[LeaseId], /) -> Coroutine[Any, Any, set[LeaseId]]:
        """As `Store.release`."""
        ...


class ClosedSource:
    """What a frontier calls before it was opened: every verb raises `Closed`."""

    is_inline = True

    async def add(self, *_: object) -> Any:
        """Raise `Closed`."""
        raise Closed(NOT_OPEN)

    claim = finish = release = add


class BackgroundTasks:
    """Tasks that run even if their caller is cancelled; closing the frontier waits for them."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task; the caller awaits it, or handles its error."""
        task = asyncio.get_running_loop().create_task(work)
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return task

    def run(self, work: Coroutine[Any, Any, object]) -> None:
        """Start a task that nothing awaits; log its error, unless the store is unavailable."""
        self.spawn(work).add_done_callback(log_failure)

    async def wait(self) -> None:
        """Wait until no task is left, including those started meanwhile."""
        while self.running:
            await asyncio.wait(self.running)


class Names(NamedTuple):
    """The names that one frontier uses."""

    crawl: str
    worker: str  # of its leases
    by: str  # of its acts, unless an act gives another one; "": acts are not signed


class FrontierContext:
    """Shared by all parts of one frontier; it is open between `open` and `release`."""

    def __init__(
        self,
        store: str | os.PathLike[str] | FullStore,
        names: Names,
        *,
        clock: Clock,
        policies: Policies,
    ) -> None:
        self.crawl, self.worker, self.by = names
        validate_by(self.by)
        self.clock = clock
        self.policies = policies
        self.reporter = EventReporter(clock, self.crawl, self.worker, policies)
        self.background = BackgroundTasks()
        self.call_recorder: CallRecorder | None = None
        self.is_closing = False
        self._given = store
        self._store: FullStore | None = None

    @property
    def store(self) -> FullStore:
        """The open store; `Closed` if the frontier is not open."""
        if self._store is None:
            raise Closed(NOT_OPEN)
        return self._store

    def timed(
        self, verb: str, call: Callable[[A], Coroutine[Any, Any, T]]
    ) -> Callable[[A], Coroutine[Any, Any, T]]:
        """Return a verb of the store that is timed while there is a `call_recorder`."""

        def timed_call(argument: A) -> Coroutine[Any, Any, T]:
            record = self.call_recorder
            return call(argument) if record is None else time_call(verb, call(argument), record)

        return timed_call

    def actor(self, by: str | None) -> str:
        """Return the name of who acts; None: the frontier's own. InvalidInput: it is none."""
        if by is not None:
            validate_by(by)
        return self.by if by is None else by

    @property
    def is_open(self) -> bool:
        """Whether the frontier has its store."""
        return self._store is not None

    async def open(self) -> FullStore:
        """Open the store, unless an open one was given."""
        if isinstance(self._given, str | os.PathLike):
            durability = self.policies.settings.store.durability
            store = await open_store(os.fspath(self._given), self.clock, durability=durability)
        else:
            store = self._given
        self._store = store
        self.reporter.use(store)
        return store

    async def release(self) -> None:
        """Close the store, if this frontier opened it, and the file of events."""
        store, self._store = self._store, None
        if store is not None and isinstance(self._given, str | os.PathLike):
            await store.close()
        self.reporter.write_to("")


async def time_call(verb: str, work: Awaitable[T], record: CallRecorder | None) -> T:
    """Return the answer of a call, and record how long it took; a call that failed is left out."""
    if record is None:
        return await work
    time = asyncio.get_running_loop().time
    began = time()
    answer = await work
    record(verb, time() - began)
    return answer


def log_failure(task: asyncio.Task[object]) -> None:
    """Log the error of a background task; the executor reports an unavailable store itself."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, StoreUnavailable):
        _log.warning("background task of the frontier failed: %s", error)
