"""The frontier without `await`: every method is its twin's, run in the loop of its own thread."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import msgspec

from outrider.blocking.loop import Loop
from outrider.blocking.queue import QueueHandle
from outrider.clock import Clock
from outrider.core.outcome import Outcome
from outrider.core.queue_action import QueueAction
from outrider.core.signals import Cluster, Prediction, State
from outrider.core.states import CrawlStatus
from outrider.core.task import Lease, Link
from outrider.core.url import Url
from outrider.errors import Closed, InvalidInput
from outrider.events import Event, Listener
from outrider.frontier import Frontier as AsyncFrontier
from outrider.frontier.finishing import Visit
from outrider.frontier.footing import LeaseSource, SettingsWatcher
from outrider.frontier.heard import Rescoring
from outrider.frontier.learning import log
from outrider.frontier.reports import (
    AddReport,
    Claim,
    DeadLetter,
    Explanation,
    Heatmap,
    Reason,
    RestoreReport,
    Stats,
)
from outrider.settings import AnySettings, Change, Layers, Setting, Settings
from outrider.store.protocol import FullStore, QueueView, TaskView, Upcoming, WorkerView

if TYPE_CHECKING:
    from types import TracebackType


class Frontier:
    """`outrider.Frontier` without `await`; use it in a `with`, or `close` it yourself."""

    def __init__(self, frontier: AsyncFrontier) -> None:
        self._loop = Loop()
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
        settings: AnySettings = None,
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
        settings: Mapping[str, Any] | Layers | None = None,
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

    def steer(self, target: str, act: QueueAction) -> int:
        """See `outrider.Frontier.steer`."""
        return self._loop.run(self._frontier.steer(target, act))

    def configure(self, changes: Mapping[str, Any], *, by: str | None = None) -> Settings:
        """See `outrider.Frontier.configure`."""
        return self._loop.run(self._frontier.configure(changes, by=by))

    def unset(self, *paths: str, by: str | None = None) -> Settings:
        """See `outrider.Frontier.unset`."""
        return self._loop.run(self._frontier.unset(*paths, by=by))

    def config(self) -> list[Setting]:
        """See `outrider.Frontier.config`."""
        return self._loop.run(self._frontier.config())

    def config_history(self) -> list[Change]:
        """See `outrider.Frontier.config_history`."""
        return self._loop.run(self._frontier.config_history())

    def watch_settings(self, watcher: SettingsWatcher) -> Callable[[], None]:
        """See `outrider.Frontier.watch_settings`; called in the frontier's own thread."""
        end = self._loop.call(lambda: self._frontier.watch_settings(watcher))
        return lambda: self._loop.call(end)

    def follow(
        self, path: str | os.PathLike[str], *, tell: Callable[[str], object] = log.warning
    ) -> Callable[[], None]:
        """See `outrider.Frontier.follow`."""
        end = self._loop.run(self._frontier.follow(path, tell=tell))
        return lambda: self._loop.call(end)

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

    def rescore(self, **which: Any) -> int:
        """See `outrider.Frontier.rescore`."""
        return self._loop.run(self._frontier.rescore(**which))

    def rescoring(self) -> Rescoring:
        """See `outrider.Frontier.rescoring`."""
        return self._loop.run(self._frontier.rescoring())

    def predict(self, url: str, confidence: float, lift: float) -> bool:
        """See `outrider.Frontier.predict`."""
        return self._loop.run(self._frontier.predict(url, confidence, lift))

    def predict_many(self, guesses: Iterable[tuple[str, float, float]]) -> int:
        """See `outrider.Frontier.predict_many`."""
        return self._loop.run(self._frontier.predict_many(guesses))

    def predictions(self, *, state: State | None = None) -> Iterator[Prediction]:
        """See `outrider.Frontier.predictions`."""
        return self._loop.iterate(self._frontier.predictions(state=state))

    def report_problem(self, kind: str, scope: str, target: str) -> Cluster:
        """See `outrider.Frontier.report_problem`."""
        return self._loop.run(self._frontier.report_problem(kind, scope, target))

    def problems(self) -> list[Cluster]:
        """See `outrider.Frontier.problems`."""
        return self._loop.run(self._frontier.problems())

    def keep(self) -> None:
        """See `outrider.Frontier.keep`."""
        self._loop.run(self._frontier.keep())

    def learn(self) -> None:
        """See `outrider.Frontier.learn`."""
        self._loop.run(self._frontier.learn())

    def lease_through(self, source: LeaseSource | None) -> None:
        """See `outrider.Frontier.lease_through`; called in the frontier's own thread."""
        self._loop.run(self._frontier.lease_through(source))

    def listen(self) -> None:
        """See `outrider.Frontier.listen`."""
        self._loop.run(self._frontier.listen())

    def heatmap(self) -> Heatmap:
        """See `outrider.Frontier.heatmap`."""
        return self._loop.run(self._frontier.heatmap())

    def refusal_of(self, link: str | Url | Link, found_on: Lease) -> str | None:
        """See `outrider.Frontier.refusal_of`."""
        return self._loop.run(self._frontier.refusal_of(link, found_on))

    def explain(self, url: str | Link) -> Explanation:
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


async def _opened(frontier: AsyncFrontier) -> AsyncFrontier:
    if not isinstance(frontier, AsyncFrontier):
        raise InvalidInput("a blocking frontier is made by outrider.blocking.Frontier.open(...)")
    return await frontier
