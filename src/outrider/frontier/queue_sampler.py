"""A sample of a crawl's queues: the worst of those that were read, and how old that is (E8).

Reading a million queues takes seconds, so that every call reads a bounded part and continues where
the last one stopped, round after round. Of what it reads, the worst are kept with the time at which
they were seen; those that have become better are so in the sample once they are read again.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, final

from outrider.errors import InvalidInput
from outrider.frontier.context import FrontierContext
from outrider.frontier.reports import QueueSample
from outrider.store.protocol import QueueView

MAX_EXAMINED: Final = 10_000  # queues that one call reads
MAX_SECONDS: Final = 0.25  # after which it reads no further page
PAGE: Final = 1000
MAX_WORST: Final = 1000  # queues kept for each order

SAMPLED_BY: Final[dict[str, Callable[[QueueView], int]]] = {
    "pending": lambda view: view.pending,
    "spent": lambda view: view.spent,
    "errors": lambda view: view.errors_in_row,
}


class _Seen(NamedTuple):
    value: int
    view: QueueView
    at: int  # milliseconds


@final
class QueueSampler:
    """Reads queues, some at each call, and keeps the worst of each order."""

    def __init__(self, context: FrontierContext) -> None:
        self._context = context
        self._after = 0  # where the next call continues
        self._began_at = 0  # this round
        self._examined = 0  # in this round
        self._last_round = 0  # how many queues the last whole round examined
        self._worst: dict[str, dict[str, _Seen]] = {by: {} for by in SAMPLED_BY}
        self._reading = asyncio.Lock()

    async def worst(self, by: str, limit: int) -> QueueSample:
        """See `Frontier.worst_queues`."""
        if by not in SAMPLED_BY:
            raise InvalidInput(f"worst_queues({by!r}): one of {', '.join(SAMPLED_BY)}")
        if type(limit) is not int or not 0 < limit <= MAX_WORST:
            raise InvalidInput(f"worst_queues(limit={limit!r}): a whole number, 1 to {MAX_WORST}")
        async with self._reading:
            await self._read_more()
        found = _first(self._worst[by].values(), limit)
        now = self._context.clock.now_ms()
        age = max((now - seen.at for seen in found), default=0)
        crawl = await self._context.store.crawl(self._context.crawl)
        known = sum(crawl.queues.values())
        examined = min(known, max(self._last_round, self._examined))
        return QueueSample(tuple(seen.view for seen in found), examined, known, max(0, age) / 1000)

    async def _read_more(self) -> None:
        """Read the next queues, at most to the end of the round."""
        context, began, examined = self._context, self._context.clock.now_ms(), 0
        if not self._after:
            self._began_at = began
        while examined < MAX_EXAMINED:
            page = await context.store.queues(context.crawl, after=self._after, limit=PAGE)
            now = context.clock.now_ms()
            self._keep(page.items, now)
            examined += len(page.items)
            self._examined += len(page.items)
            if page.after is None:
                self._end_round()
                return
            self._after = page.after
            if now - began > MAX_SECONDS * 1000:
                return

    def _end_round(self) -> None:
        """Forget queues that this round did not meet."""
        self._last_round, self._examined, self._after = self._examined, 0, 0
        for by, worst in self._worst.items():
            self._worst[by] = {key: s for key, s in worst.items() if s.at >= self._began_at}

    def _keep(self, views: Iterable[QueueView], now: int) -> None:
        for view in views:
            for by, value_of in SAMPLED_BY.items():
                value, worst = value_of(view), self._worst[by]
                if value > 0:
                    worst[view.key] = _Seen(value, view, now)
                else:
                    worst.pop(view.key, None)
        for by, worst in self._worst.items():
            if len(worst) > MAX_WORST:
                self._worst[by] = {s.view.key: s for s in _first(worst.values(), MAX_WORST)}


def _first(seen: Iterable[_Seen], limit: int) -> list[_Seen]:
    """Return the worst, and of equal ones the first by key."""
    return heapq.nsmallest(limit, seen, key=lambda one: (-one.value, one.view.key))
