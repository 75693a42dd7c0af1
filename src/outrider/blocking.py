"""The frontier for code without a loop: the same names, no `await` (R4).

Every frontier runs its own loop in a thread of its own, so it works in scripts, in threads, and in
notebooks whose loop is already running.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from outrider.clock import Clock
from outrider.core.act import Act
from outrider.core.outcome import Outcome
from outrider.core.states import CrawlStatus
from outrider.core.task import Lease, Link
from outrider.core.url import Url
from outrider.errors import Closed, InvalidInput
from outrider.events import Event, Listener
from outrider.frontier import Frontier as AsyncFrontier
from outrider.frontier.finishing import Visit
from outrider.frontier.reports import (
    AddReport,
    Claim,
    DeadLetter,
    Explanation,
    Heatmap,
    Reason,
    RestoreReport,
    Stats,
    SuffixView,
)
from outrider.frontier.steering import QueueHandle as AsyncQueueHandle
from outrider.settings import Settings
from outrider.store.protocol import FullStore, QueueView, TaskView, Upcoming, WorkerView

if TYPE_CHECKING:
    from types import TracebackType

    from outrider.wiring import CrawlReport

T = TypeVar("T")
View = QueueView | SuffixView


class _Loop:
    """An event loop in a daemon thread: hand it coroutines from anywhere."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise Closed("this frontier was closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Item by item; leaving early closes the source."""
        try:
            while True:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            self.run(_close(items))

    def call(self, function: Callable[[], T]) -> T:
        async def called() -> T:
            return function()

        return self.run(called())

    def stop(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


_GRACE = 10.0  # seconds an interrupted crawl gets to give back what it has


def crawl(
    urls: str | Link | Iterable[str | Link],
    handler: Callable[[Any], Any] | str | None = None,
    *,
    store: str | os.PathLike[str] = "memory://",
    settings: Settings | Mapping[str, Any] | None = None,
    name: str = "default",
    progress: Callable[[Sequence[Any]], None] | None = None,
) -> CrawlReport:
    """See `outrider.crawl`; works in notebooks too, whatever loop runs there.

    `progress` is called in the crawl's thread.
    """
    from outrider.wiring import crawl as crawled  # noqa: PLC0415 - needs the `crawl` extra

    loop, ended = _Loop(), threading.Event()

    async def whole() -> CrawlReport:
        try:
            return await crawled(
                urls, handler, store=store, settings=settings, name=name, progress=progress
            )
        finally:
            ended.set()

    try:
        return loop.run(whole())
    except KeyboardInterrupt:
        ended.wait(_GRACE)
        raise
    finally:
        loop.stop()


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _close(items: AsyncIterator[Any]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()


class Frontier:
    """`outrider.Frontier` without `await`; use it in a `with`, or `close` it yourself."""

    def __init__(self, frontier: AsyncFrontier) -> None:
        self._loop = _Loop()
        try:
            self._frontier = self._loop.run(_opened(frontier))
        except BaseException:
            self._loop.stop()
            raise

    @classmethod
    def open(
        cls,
        store: str | os.PathLike[str] | FullStore = "memory://",
        *,
        settings: Settings | Mapping[str, Any] | None = None,
        crawl: str = "default",
        clock: Clock | None = None,
        worker: str | None = None,
        dice: Callable[[], float] = random.random,
    ) -> Frontier:
        """Open a frontier; see `outrider.Frontier.open`."""
        return cls(
            AsyncFrontier.open(
                store, settings=settings, crawl=crawl, clock=clock, worker=worker, dice=dice
            )
        )

    @classmethod
    def attach(
        cls,
        store: str | os.PathLike[str] | FullStore,
        *,
        settings: Mapping[str, Any] | None = None,
        crawl: str = "default",
        clock: Clock | None = None,
        worker: str | None = None,
        dice: Callable[[], float] = random.random,
    ) -> Frontier:
        """Open a frontier over a crawl as it is; see `outrider.Frontier.attach`."""
        return cls(
            AsyncFrontier.attach(
                store, settings=settings, crawl=crawl, clock=clock, worker=worker, dice=dice
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<blocking {self._frontier!r}>"

    def close(self) -> None:
        """Apply what was handed in and let go; closing twice is fine."""
        try:
            self._loop.run(self._frontier.close())
        except Closed:
            return
        self._loop.stop()

    @property
    def crawl(self) -> str:
        """The crawl this frontier serves."""
        return self._frontier.crawl

    @property
    def worker(self) -> str:
        """The name its leases carry."""
        return self._frontier.worker

    @property
    def settings(self) -> Settings:
        """What holds now."""
        return self._frontier.settings

    @property
    def lacks(self) -> str:
        """What of the crawl's settings must be given by hand, if attached; "": nothing."""
        return self._frontier.lacks

    @property
    def is_attached(self) -> bool:
        """Whether the crawl was there, and keeps the settings it has."""
        return self._frontier.is_attached

    @property
    def store(self) -> FullStore:
        """The store underneath; its verbs are coroutines."""
        return self._frontier.store

    @property
    def clock(self) -> Clock:
        """What the frontier waits on."""
        return self._frontier.clock

    def steer(self, target: str, act: Act) -> int:
        """See `outrider.Frontier.steer`."""
        return self._loop.run(self._frontier.steer(target, act))

    def configure(self, changes: Mapping[str, Any]) -> Settings:
        """See `outrider.Frontier.configure`."""
        return self._loop.run(self._frontier.configure(changes))

    def add(
        self, links: Iterable[str | Url | Link] | str | Link, *, answers: bool = True
    ) -> AddReport:
        """See `outrider.Frontier.add`."""
        return self._loop.run(self._frontier.add(links, answers=answers))

    def claim(
        self,
        limit: int = 1,
        *,
        wait: float = 0.0,
        per_queue: int | None = None,
        lend: bool = False,
    ) -> Claim:
        """See `outrider.Frontier.claim`."""
        return self._held(self._frontier.claim(limit, wait=wait, per_queue=per_queue, lend=lend))

    def claim_named(self, fingerprints: Iterable[bytes]) -> Claim:
        """See `outrider.Frontier.claim_named`."""
        return self._held(self._frontier.claim_named(fingerprints))

    def _held(self, claiming: Coroutine[Any, Any, Claim]) -> Claim:
        claim = self._loop.run(claiming)
        for lease in claim:
            self._hold(lease)
        return claim

    def _hold(self, lease: Lease) -> Lease:
        """So that `with lease:` gives itself back without `await`."""
        msgspec.structs.force_setattr(lease, "holder", self)
        return lease

    def leases(self, limit: int = 64) -> Iterator[Lease]:
        """See `outrider.Frontier.leases`."""
        for lease in self._loop.iterate(self._frontier.leases(limit)):
            yield self._hold(lease)

    def finish(
        self, lease: Lease, outcome: Outcome, links: Iterable[str | Url | Link] = ()
    ) -> bool:
        """See `outrider.Frontier.finish`."""
        return self._loop.run(self._frontier.finish(lease, outcome, links))

    def finish_many(self, visits: Iterable[Visit]) -> list[bool]:
        """See `outrider.Frontier.finish_many`."""
        return self._loop.run(self._frontier.finish_many(visits))

    def extend(self, leases: Iterable[Lease]) -> set[Lease]:
        """See `outrider.Frontier.extend`."""
        return self._loop.run(self._frontier.extend(leases))

    def release(self, leases: Iterable[Lease]) -> set[Lease]:
        """See `outrider.Frontier.release`."""
        return self._loop.run(self._frontier.release(leases))

    def expire(self, *, limit: int = 1000) -> int:
        """See `outrider.Frontier.expire`."""
        return self._loop.run(self._frontier.expire(limit=limit))

    def queue(self, key: str) -> QueueHandle:
        """See `outrider.Frontier.queue`."""
        return QueueHandle(self._loop, self._frontier.queue(key))

    def pause(self) -> CrawlStatus:
        """See `outrider.Frontier.pause`."""
        return self._loop.run(self._frontier.pause())

    def resume(self) -> CrawlStatus:
        """See `outrider.Frontier.resume`."""
        return self._loop.run(self._frontier.resume())

    def cancel(self) -> CrawlStatus:
        """See `outrider.Frontier.cancel`."""
        return self._loop.run(self._frontier.cancel())

    def drop(self, **which: Any) -> int:
        """See `outrider.Frontier.drop`."""
        return self._loop.run(self._frontier.drop(**which))

    def replay(self, url: str | None = None, **which: Any) -> int:
        """See `outrider.Frontier.replay`."""
        return self._loop.run(self._frontier.replay(url, **which))

    def purge(self, url: str | None = None, **which: Any) -> int:
        """See `outrider.Frontier.purge`."""
        return self._loop.run(self._frontier.purge(url, **which))

    def stats(self) -> Stats:
        """See `outrider.Frontier.stats`."""
        return self._loop.run(self._frontier.stats())

    def why(self, limit: int = 20) -> list[Reason]:
        """See `outrider.Frontier.why`."""
        return self._loop.run(self._frontier.why(limit))

    def workers(self) -> list[WorkerView]:
        """See `outrider.Frontier.workers`."""
        return self._loop.run(self._frontier.workers())

    def learn(self) -> None:
        """See `outrider.Frontier.learn`."""
        self._loop.run(self._frontier.learn())

    def heatmap(self) -> Heatmap:
        """See `outrider.Frontier.heatmap`."""
        return self._loop.run(self._frontier.heatmap())

    def refusal_of(self, link: str | Url | Link, found_on: Lease) -> str | None:
        """See `outrider.Frontier.refusal_of`."""
        return self._loop.run(self._frontier.refusal_of(link, found_on))

    def explain(self, url: str) -> Explanation:
        """See `outrider.Frontier.explain`."""
        return self._loop.run(self._frontier.explain(url))

    def queues(
        self, *, state: str | None = None, sort: str | None = None, reverse: bool = False
    ) -> Iterator[QueueView]:
        """See `outrider.Frontier.queues`."""
        return self._loop.iterate(self._frontier.queues(state=state, sort=sort, reverse=reverse))

    def upcoming(self, key: str, limit: int = 64) -> list[Upcoming]:
        """See `outrider.Frontier.upcoming`."""
        return self._loop.run(self._frontier.upcoming(key, limit))

    def tasks(self, **which: Any) -> Iterator[TaskView]:
        """See `outrider.Frontier.tasks`."""
        return self._loop.iterate(self._frontier.tasks(**which))

    def dead(self, **which: Any) -> Iterator[DeadLetter]:
        """See `outrider.Frontier.dead`."""
        return self._loop.iterate(self._frontier.dead(**which))

    def dead_by_reason(self) -> dict[str, int]:
        """See `outrider.Frontier.dead_by_reason`."""
        return self._loop.run(self._frontier.dead_by_reason())

    def export(self) -> Iterator[bytes]:
        """See `outrider.Frontier.export`."""
        return self._loop.iterate(self._frontier.export())

    def restore(
        self, lines: Iterable[bytes], *, progress: Callable[[RestoreReport], None] | None = None
    ) -> RestoreReport:
        """See `outrider.Frontier.restore`; called back in the frontier's thread."""
        return self._loop.run(self._frontier.restore(lines, progress=progress))

    def events(self) -> Iterator[Event]:
        """See `outrider.Frontier.events`; listens from the first item on, in another thread."""
        return self._loop.iterate(self._loop.call(self._frontier.events))

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """See `outrider.Frontier.subscribe`; the listener is called in the frontier's thread."""
        end = self._loop.call(lambda: self._frontier.subscribe(listener))
        return lambda: self._loop.call(end)


class QueueHandle:
    """A queue, or all of a suffix, in an operator's hand; every act answers with the new view."""

    def __init__(self, loop: _Loop, handle: AsyncQueueHandle) -> None:
        self.key = handle.key
        self._loop = loop
        self._handle = handle

    def set(self, **changes: Any) -> View:
        """Change what holds; acts at once."""
        return self._loop.run(self._handle.set(**changes))

    def pause(self) -> View:
        """Lend nothing of it until resumed."""
        return self._loop.run(self._handle.pause())

    def resume(self) -> View:
        """End a pause."""
        return self._loop.run(self._handle.resume())

    def retire(self) -> View:
        """Set it aside with its tasks."""
        return self._loop.run(self._handle.retire())

    def revive(self) -> View:
        """End a retirement."""
        return self._loop.run(self._handle.revive())

    def snooze(self, seconds: float) -> View:
        """Leave it alone for so long."""
        return self._loop.run(self._handle.snooze(seconds))

    def wake(self) -> View:
        """End a snooze."""
        return self._loop.run(self._handle.wake())

    def view(self) -> View:
        """How it stands."""
        return self._loop.run(self._handle.view())


async def _opened(frontier: AsyncFrontier) -> AsyncFrontier:
    if not isinstance(frontier, AsyncFrontier):
        raise InvalidInput("a blocking frontier is made by outrider.blocking.Frontier.open(...)")
    return await frontier
