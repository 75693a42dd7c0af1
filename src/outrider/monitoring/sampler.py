"""The sampler of a crawl: reads one sample in a few short calls, however large the crawl is.

No call keeps the process that holds the store busy for more than a few milliseconds. Long lists are
read in stretches, one per sample, again and again, so parts of a huge crawl's sample are some
samples old.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from outrider.core.progress import INTERVAL, Progress, ProgressSample, with_now
from outrider.core.states import TaskState
from outrider.frontier.metrics import Metrics, Readings, metrics_of
from outrider.frontier.progress import sample_of_view
from outrider.monitoring.dead_letters import DeadLetters
from outrider.monitoring.hosts import Hosts
from outrider.monitoring.rates import RateHistory, Rates, counts_of
from outrider.store.protocol import (
    CrawlView,
    FullStore,
    Heat,
    QueueView,
    ResultPage,
    TaskFilter,
    WorkerView,
)

if TYPE_CHECKING:
    from outrider.frontier import Frontier

Read: TypeAlias = Callable[..., Awaitable[ResultPage[Any]]]

# Queues that are read, at most: a pass over more would take longer than a user watches.
MAX_QUEUES: Final = 100_000
INLINE_STRETCHES: Final = 100  # at once, of a store in this process: no other process waits
_DEAD: Final = TaskFilter(state=TaskState.DEAD)


class Sample(msgspec.Struct, frozen=True):
    """A crawl at one instant of its store's clock."""

    at: float
    crawl: CrawlView
    heat: Heat
    queues: Mapping[str, int]  # by state
    rates: Rates | None
    progress: Progress  # since the crawl began
    metrics: Metrics | None = None  # if asked for, as are workers
    workers: Sequence[WorkerView] = ()


class SampleRequest(msgspec.Struct, frozen=True):
    """What a sample is to contain besides the counters."""

    hosts: Collection[str] = ()  # keys to read in this sample, whichever stretch is next
    dead_letters: bool = False  # found only by reading tasks
    metrics: bool = False  # and the workers
    whole: bool = False  # read every queue, however long it takes


class Sampler:
    """Reads samples; keeps the rates of the last minutes, hosts and dead letters."""

    def __init__(self) -> None:
        self._reset("")

    def _reset(self, store: str) -> None:
        self._store = store
        self.rate_history, self.hosts, self.dead_letters = RateHistory(), Hosts(), DeadLetters()
        self._views = RollingReader(step=100, limit=1000, upto=MAX_QUEUES)
        self._dead = RollingReader(step=250, limit=5000)
        self._samples: Sequence[ProgressSample] = ()  # of the crawl's progress, read at an interval
        self._samples_at = -inf

    async def read(self, frontier: Frontier, request: SampleRequest) -> Sample:
        """Read the next sample; for another store than before, all that was kept is dropped."""
        store, name = frontier.store, frontier.crawl
        if store.id != self._store:
            self._reset(store.id)
        times = INLINE_STRETCHES if store.is_inline or request.whole else 1
        view, heat = await store.crawl(name), await store.heatmap(name)
        if not 0 <= heat.updated_at - self._samples_at < INTERVAL:
            await self._read_progress(frontier, heat.updated_at)
        self.rate_history.add(counts_of(view, heat.updated_at))
        await self._read_hosts(store, name, times, heat.updated_at)
        await self._read_requested(store, name, request.hosts, heat.updated_at)
        if request.dead_letters and not self.dead_letters.is_complete(view.dead):
            await self._read_dead_letters(store, name, times)
        sample = self._sample(view, heat)
        return await _with_metrics(sample, store) if request.metrics else sample

    def _sample(self, view: CrawlView, heat: Heat) -> Sample:
        queues = {state: count for state, count in view.queues.items() if count}
        progress = with_now(self._samples, sample_of_view(view, heat.updated_at))
        return Sample(heat.updated_at, view, heat, queues, self.rate_history.rates, progress)

    async def _read_progress(self, frontier: Frontier, now: float) -> None:
        """Read the samples that workers took; the first time, rates begin with those."""
        is_first, self._samples_at = not self._samples, now
        self._samples = (await frontier.progress()).samples[:-1]
        if is_first:
            self.rate_history.begin_with(self._samples, now)

    async def _read_hosts(self, store: FullStore, name: str, times: int, now: float) -> None:
        async for _, page in self._views.stretch(times, store.queues, name):
            self.hosts.update(page.items, now)

    async def _read_requested(
        self, store: FullStore, name: str, keys: Collection[str], now: float
    ) -> None:
        if not self._views.is_at_once:
            views = [await store.queue(name, key) for key in keys]
            self.hosts.update(filter(_was_used, views), now)
        self.hosts.trim(keys)

    async def _read_dead_letters(self, store: FullStore, name: str, times: int) -> None:
        async for after, page in self._dead.stretch(times, store.tasks, name, _DEAD):
            self.dead_letters.add_page(after, page.items, is_last=page.after is None)


async def _with_metrics(sample: Sample, store: FullStore) -> Sample:
    crawl = sample.crawl
    workers, totals = await store.workers(crawl.crawl), await store.worker_totals(crawl.crawl)
    metrics = metrics_of(Readings(crawl, sample.progress, workers, totals))
    return msgspec.structs.replace(sample, metrics=metrics, workers=workers)


class RollingReader:
    """Reads a long list, or its first `upto` items, in stretches, again and again.

    A stretch has at most `limit` items, a call to the store `step`.
    """

    def __init__(self, *, step: int, limit: int, upto: int | None = None) -> None:
        self.rounds = 0  # complete passes over the list
        self.is_at_once = False  # the last stretch was the whole list
        self._step, self._limit, self._upto = step, limit, upto
        self._after = 0

    async def stretch(
        self, times: int, read: Read, *args: Any
    ) -> AsyncIterator[tuple[int, ResultPage[Any]]]:
        """Yield the pages of some stretches, each with its cursor, up to the end of the list."""
        first = self._after
        for _ in range(times * self._limit // self._step):
            after = self._after
            page = await read(*args, after=after, limit=self._step)
            self._after = page.after or 0
            yield after, page
            if page.after is None:
                self.rounds += 1
                self.is_at_once = first == 0
                return
        self.is_at_once = False
        if times == 1 and self._upto is not None and self._after >= self._upto:
            self._after = 0


def _was_used(view: QueueView) -> bool:
    """Whether a queue ever had a task; a key without one is read as an empty queue."""
    return bool(view.pending + view.in_flight + view.done + view.dead + view.dropped)
