"""One look at a crawl: a few short calls, bounded however many queues and tasks there are.

No call keeps the store's owner busy for more than a few milliseconds. Long lists are read a stretch
a sample, round and round, so that what is shown of a huge crawl is some samples old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from outrider.cli.watch_hosts import Hosts
from outrider.cli.watch_letters import Letters
from outrider.cli.watch_rates import History, Rates, counts_of
from outrider.core.states import QueueState, TaskState
from outrider.store.protocol import CrawlView, FullStore, Heat, QueueView, ResultPage, TaskFilter

if TYPE_CHECKING:
    from outrider.frontier import Frontier

Read: TypeAlias = Callable[..., Awaitable[ResultPage[Any]]]

# Queues that are looked at, at most: a round over more would take longer than anyone watches.
QUEUES: Final = 100_000
ALONE: Final = 100  # stretches at once of a store that is in this process: nobody else waits
_DEAD: Final = TaskFilter(state=TaskState.DEAD)


class Sample(msgspec.Struct, frozen=True):
    """A crawl at one instant of its store's clock."""

    at: float
    crawl: CrawlView
    heat: Heat
    queues: Mapping[str, int]  # by state
    is_whole: bool  # every queue was counted; else only the first ones
    rates: Rates | None


class Asked(msgspec.Struct, frozen=True):
    """What whoever looks wants beside the counters."""

    near: Collection[str] = ()  # hosts to be seen now, whosever turn it is
    letters: bool = False  # dead letters, which are found only by reading tasks
    whole: bool = False  # however long it takes


class Sampler:
    """Reads samples, and keeps what they tell of the last minutes, of hosts and of dead letters."""

    def __init__(self) -> None:
        self._forget("")

    def _forget(self, store: str) -> None:
        self._store = store
        self.history, self.hosts, self.letters = History(), Hosts(), Letters()
        self._pages: dict[int, Counter[QueueState]] = {}
        self._states: Counter[QueueState] = Counter()
        self._census = Rolling(step=250, most=4000, upto=QUEUES)
        self._views = Rolling(step=100, most=1000, upto=QUEUES)
        self._dead = Rolling(step=250, most=5000)

    async def read(self, frontier: Frontier, asked: Asked) -> Sample:
        """The next sample; another store than before starts everything anew."""
        store, name = frontier.store, frontier.crawl
        if store.id != self._store:
            self._forget(store.id)
        times = ALONE if store.is_inline or asked.whole else 1
        view, heat = await store.crawl(name), await store.heatmap(name)
        self.history.note(counts_of(view, heat.updated_at))
        await self._count(store, name, times)
        await self._look_around(store, name, times, heat.updated_at)
        await self._look_up(store, name, asked.near, heat.updated_at)
        if asked.letters and not self.letters.is_complete(view.dead):
            await self._look_for_letters(store, name, times)
        return self._sample(view, heat)

    def _sample(self, view: CrawlView, heat: Heat) -> Sample:
        states = {state.value: self._states[state] for state in QueueState if self._states[state]}
        is_whole = self._census.rounds > 0
        return Sample(heat.updated_at, view, heat, states, is_whole, self.history.rates)

    async def _count(self, store: FullStore, name: str, times: int) -> None:
        async for after, page in self._census.stretch(times, store.queue_states, name):
            states = Counter(page.items)
            self._states.update(states)
            self._states.subtract(self._pages.get(after, {}))
            self._pages[after] = states

    async def _look_around(self, store: FullStore, name: str, times: int, now: float) -> None:
        async for _, page in self._views.stretch(times, store.queues, name):
            self.hosts.see(page.items, now)

    async def _look_up(
        self, store: FullStore, name: str, near: Collection[str], now: float
    ) -> None:
        if not self._views.is_at_once:
            views = [await store.queue(name, key) for key in near]
            self.hosts.see(filter(_was_used, views), now)
        self.hosts.trim(near)

    async def _look_for_letters(self, store: FullStore, name: str, times: int) -> None:
        async for after, page in self._dead.stretch(times, store.tasks, name, _DEAD):
            self.letters.see(after, page.items, is_last=page.after is None)


class Rolling:
    """Goes round and round over a long list, or its first so many items.

    At most so many items a stretch, and a step a call.
    """

    def __init__(self, *, step: int, most: int, upto: int | None = None) -> None:
        self.rounds = 0  # over the whole list
        self.is_at_once = False  # the last stretch was the whole list
        self._step, self._most, self._upto = step, most, upto
        self._after = 0

    async def stretch(
        self, times: int, read: Read, *args: Any
    ) -> AsyncIterator[tuple[int, ResultPage[Any]]]:
        """Pages of so many stretches, each with its cursor, to the end of the list at most."""
        first = self._after
        for _ in range(times * self._most // self._step):
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
    """A key nobody added to is an empty queue."""
    return bool(view.pending + view.in_flight + view.done + view.dead + view.dropped)
