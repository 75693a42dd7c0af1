"""A queue, or all queues of a suffix, in an operator's hand (E7)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from outrider.core import queue_action as actions
from outrider.core.policy.rules import covers
from outrider.errors import InvalidInput
from outrider.frontier.addressing import target_of
from outrider.frontier.reports import SuffixView
from outrider.settings import override_of
from outrider.store.protocol import FullStore, QueueView

if TYPE_CHECKING:
    from outrider.frontier import Frontier

LONGEST_SNOOZE = 10 * 365 * 86_400.0


class QueueHandle:
    """Live and durable; every act answers with the new view."""

    def __init__(self, frontier: Frontier, key: str) -> None:
        if not isinstance(key, str) or not key.strip("."):
            raise InvalidInput(f"a queue is named by its key or a suffix like '.org', not {key!r}")
        self.key = key
        self._frontier = frontier

    async def set(self, **changes: Any) -> QueueView | SuffixView:
        """Change balance, total_budget, delay, max_in_flight, precedence, …; acts at once (E5)."""
        return await self._act(
            actions.Set(override_of(changes, self.key.lower(), self._frontier.settings))
        )

    async def pause(self) -> QueueView | SuffixView:
        """Lend nothing of it until resumed."""
        return await self._act(actions.Pause())

    async def resume(self) -> QueueView | SuffixView:
        """End a pause."""
        return await self._act(actions.Resume())

    async def retire(self) -> QueueView | SuffixView:
        """Set it aside with its tasks; it no longer holds up the crawl."""
        return await self._act(actions.Retire())

    async def revive(self) -> QueueView | SuffixView:
        """End a retirement, whatever its reason."""
        return await self._act(actions.Revive())

    async def snooze(self, seconds: float) -> QueueView | SuffixView:
        """Leave it alone for so long."""
        if not (isinstance(seconds, int | float) and math.isfinite(seconds)):
            raise InvalidInput(f"snooze({seconds!r}): seconds must be a finite number")
        if not 0 <= seconds <= LONGEST_SNOOZE:
            raise InvalidInput(f"snooze({seconds!r}): seconds must be from 0 to ten years")
        return await self._act(actions.Snooze(float(seconds)))

    async def wake(self) -> QueueView | SuffixView:
        """End a snooze; the delay after the last visit is still kept."""
        return await self._act(actions.Wake())

    async def view(self) -> QueueView | SuffixView:
        """How it stands (E8); a suffix, and a host with several queues, answers with sums."""
        return await self._view(await target_of(self._frontier, self.key))

    async def _act(self, act: actions.QueueAction) -> QueueView | SuffixView:
        target = await target_of(self._frontier, self.key)
        await self._frontier.steer(target, act)
        return await self._view(target)

    async def _view(self, target: str) -> QueueView | SuffixView:
        store, crawl = self._frontier.store, self._frontier.crawl
        if not target.startswith("."):
            return await store.queue(crawl, target)
        if self.key.startswith("."):
            return await _sums(store, crawl, target, self.key)
        return await self._view_of_host(target)

    async def _view_of_host(self, target: str) -> QueueView | SuffixView:
        """Of a host under SURT, which has a queue for each of its ports, and mostly one."""
        store, crawl = self._frontier.store, self._frontier.crawl
        found = [view async for view in _covered(store, crawl, target)]
        if len(found) > 1:
            return await _sums(store, crawl, target, self.key)
        return found[0] if found else await store.queue(crawl, target[1:-1])


async def _sums(store: FullStore, crawl: str, suffix: str, name: str) -> SuffixView:
    states: Counter[str] = Counter()
    pending = in_flight = spent = 0
    async for view in _covered(store, crawl, suffix):
        states[view.state.value] += 1
        pending += view.pending
        in_flight += view.in_flight
        spent += view.spent
    return SuffixView(name, dict(states), pending, in_flight, spent)


async def _covered(store: FullStore, crawl: str, suffix: str) -> AsyncIterator[QueueView]:
    after: int | None = 0
    while after is not None:
        page = await store.queues(crawl, after=after)
        after = page.after
        for view in page.items:
            if covers(suffix, view.key):
                yield view
