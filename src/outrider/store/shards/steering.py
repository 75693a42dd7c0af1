"""What operators do: everywhere step by step, to one queue on its shard, to the crawl at home.

What is said of a key is also noted at home, so that home knows all the rules of a crawl.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from outrider.core.policy.rules import CrawlRules, Limits
from outrider.core.queue_action import QueueAction
from outrider.store.noting import checked_prices
from outrider.store.protocol import Heartbeat, PriorityUpdate, SharedValueWrite, Step, TaskFilter
from outrider.store.shards.runs import Runs
from outrider.store.shards.shard import HOME, Shard, joined, parted

Work: TypeAlias = Callable[[Shard, int, int], Awaitable[Step]]


def of_a_shard(rules: CrawlRules) -> CrawlRules:
    """Limits are looked at where all shards are counted."""
    return msgspec.structs.replace(rules, limits=Limits())


class Steering(Runs):
    """Admin, but for the crawl's status and its return from an export."""

    async def configure(self, crawl: str, rules: CrawlRules, settings: str = "") -> bool:
        """See `protocol.Admin`."""
        told = [await self._home.configure(crawl, rules, settings)]
        told += await self._all(shard.configure(crawl, of_a_shard(rules)) for shard in self._others)
        await self._pulse(crawl)
        return any(told)

    async def steer(
        self, crawl: str, target: str, act: QueueAction, *, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        if target and not target.startswith("."):
            step = await self._steer_one(crawl, target, act)
        else:
            step = await self._steer_all(crawl, target, act, after, limit)
        await self._heed(crawl)
        return step

    async def _steer_all(
        self, crawl: str, target: str, act: QueueAction, after: int, limit: int
    ) -> Step:
        """Shards without a queue hear of it too, for the queues to come."""
        (number, local), count = parted(after), 0
        while number < len(self._shards):
            if count >= limit:
                return Step(count, joined(number, local))
            left = limit - count
            step = await self._shards[number].steer(crawl, target, act, after=local, limit=left)
            count += step.count
            if step.after is not None:
                return Step(count, joined(number, step.after))
            number, local = number + 1, 0
        return Step(count, None)

    async def _steer_one(self, crawl: str, target: str, act: QueueAction) -> Step:
        number = self._shard_of(target)
        if number != HOME:
            await self._home.steer(crawl, target, act)
        return await self._shards[number].steer(crawl, target, act)

    async def _step(self, crawl: str, work: Work, after: int, limit: int) -> Step:
        """A step on one shard, and on the next if that was its last."""
        steps, more = await self._walk(crawl, work, after, limit)
        return Step(sum(step.count for _, step in steps), more)

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        """See `protocol.Admin`."""
        await self._home.add_roots(crawl, mode, roots)

    async def put_values(self, crawl: str, values: Sequence[SharedValueWrite]) -> list[int]:
        """See `protocol.Admin`."""
        return await self._home.put_values(crawl, values)

    async def update_priorities(self, crawl: str, updates: Sequence[PriorityUpdate]) -> int:
        """See `protocol.Admin`: each on its shard; home hears of all, so it knows the crawl."""
        checked_prices(updates)
        parts: dict[int, list[PriorityUpdate]] = {HOME: []}
        for price in updates:
            number, local = parted(price.task)
            if 0 <= number < len(self._shards):
                own = msgspec.structs.replace(price, task=local)
                parts.setdefault(number, []).append(own)
        return sum(
            await self._all(
                self._shards[n].update_priorities(crawl, part) for n, part in parts.items()
            )
        )

    async def heartbeat(self, crawl: str, heartbeat: Heartbeat) -> None:
        """See `protocol.Admin`."""
        await self._home.heartbeat(crawl, heartbeat)

    async def drop(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._step(
            crawl,
            lambda s, at, most: s.drop(crawl, which, dry_run=dry_run, after=at, limit=most),
            after,
            limit,
        )

    async def replay(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        step = await self._step(
            crawl,
            lambda s, at, most: s.replay(crawl, which, dry_run=dry_run, after=at, limit=most),
            after,
            limit,
        )
        if step.count and not dry_run:
            await self._wake_home(crawl, await self._pulse(crawl))
        return step

    async def purge(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._step(
            crawl,
            lambda s, at, most: s.purge(crawl, which, dry_run=dry_run, after=at, limit=most),
            after,
            limit,
        )
