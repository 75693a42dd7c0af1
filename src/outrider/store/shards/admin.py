"""Operators' verbs over shards: on one queue's shard, on all shards step by step, or at home.

An action on one key is also stored at home, so that home has all the rules of a crawl.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from outrider.core.policy.rules import CrawlRules, Limits
from outrider.core.queue_action import QueueAction
from outrider.core.states import DELETING
from outrider.store.protocol import (
    EventBatch,
    Heartbeat,
    PriorityUpdate,
    SharedValueWrite,
    Step,
    TaskFilter,
    WhichCrawl,
)
from outrider.store.shards.copies import IdentityCopies
from outrider.store.shards.shard_set import (
    HOME,
    RunStatus,
    Shard,
    ShardSet,
    global_number,
    split_number,
)
from outrider.store.validation import validate_priority_updates

Work: TypeAlias = Callable[[Shard, int, int], Awaitable[Step]]


def rules_of_shard(rules: CrawlRules) -> CrawlRules:
    """Return the rules for a shard other than home: limits count all shards, so they are home's."""
    return msgspec.structs.replace(rules, limits=Limits())


class ShardedAdmin:
    """Admin, without `set_status` and `restore`."""

    def __init__(self, shards: ShardSet, status: RunStatus, copies: IdentityCopies) -> None:
        self._shards = shards
        self._status = status
        self._copies = copies

    async def configure(
        self,
        crawl: str,
        rules: CrawlRules,
        settings: str = "",
        *,
        only: WhichCrawl = "any",
        by: str = "",
    ) -> bool:
        """See `protocol.Admin`: home last, so that the crawl exists on all shards once it does."""
        home = await self._status.home_summary(crawl)
        if only == ("new" if home.exists else "known"):
            return False
        there: WhichCrawl = "known" if only == "known" else "any"
        answers = await self._shards.gather(
            shard.configure(crawl, rules_of_shard(rules), only=there)
            for shard in self._shards.others
        )
        answers.append(await self._shards.home.configure(crawl, rules, settings, only=only, by=by))
        await self._status.home_summary(crawl)
        return any(answers)

    async def steer(
        self,
        crawl: str,
        target: str,
        act: QueueAction,
        *,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """See `protocol.Admin`."""
        if target and not target.startswith("."):
            step = await self._steer_one(crawl, target, act, by)
        else:
            step = await self._steer_all(crawl, target, act, after, limit, by)
        await self._status.queues_returned(crawl, by)
        return step

    async def _steer_all(
        self, crawl: str, target: str, act: QueueAction, after: int, limit: int, by: str
    ) -> Step:
        """Steer every shard, also those without a queue: the action holds for future ones."""
        (number, local), count = split_number(after), 0
        while number < len(self._shards):
            if count >= limit:
                return Step(count, global_number(number, local))
            left = limit - count
            step = await self._shards[number].steer(
                crawl, target, act, after=local, limit=left, by=by
            )
            count += step.count
            if step.after is not None:
                return Step(count, global_number(number, step.after))
            number, local = number + 1, 0
        return Step(count, None)

    async def _steer_one(self, crawl: str, target: str, act: QueueAction, by: str) -> Step:
        number = self._shards.number_of(target)
        if number != HOME:
            await self._shards.home.steer(crawl, target, act, by=by)
        return await self._shards[number].steer(crawl, target, act, by=by)

    async def _step(self, crawl: str, work: Work, after: int, limit: int) -> Step:
        """Make a step on one shard, and on the next if that was its last."""
        steps, more = await self._shards.walk(crawl, work, after, limit)
        return Step(sum(step.count for _, step in steps), more)

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        """See `protocol.Admin`."""
        await self._shards.home.add_roots(crawl, mode, roots)

    async def put_values(self, crawl: str, values: Sequence[SharedValueWrite]) -> list[int]:
        """See `protocol.Admin`."""
        return await self._shards.home.put_values(crawl, values)

    async def update_priorities(self, crawl: str, updates: Sequence[PriorityUpdate]) -> int:
        """See `protocol.Admin`: each on its shard."""
        validate_priority_updates(updates)
        parts: dict[int, list[PriorityUpdate]] = {}
        for update in updates:
            number, local = split_number(update.task)
            if self._shards.has(number):
                own = msgspec.structs.replace(update, task=local)
                parts.setdefault(number, []).append(own)
        return sum(
            await self._shards.gather(
                self._shards[n].update_priorities(crawl, part) for n, part in parts.items()
            )
        )

    async def publish(self, crawl: str, batch: EventBatch) -> None:
        """See `protocol.Admin`."""
        await self._shards.home.publish(crawl, batch)

    async def heartbeat(self, crawl: str, heartbeat: Heartbeat) -> None:
        """See `protocol.Admin`."""
        await self._shards.home.heartbeat(crawl, heartbeat)

    async def drop(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._step(
            crawl,
            lambda s, at, most: s.drop(crawl, which, dry_run=dry_run, after=at, limit=most, by=by),
            after,
            limit,
        )

    async def replay(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """See `protocol.Admin`."""
        step = await self._step(
            crawl,
            lambda s, at, most: s.replay(
                crawl, which, dry_run=dry_run, after=at, limit=most, by=by
            ),
            after,
            limit,
        )
        if step.count and not dry_run:
            await self._status.work_added(crawl, await self._status.home_summary(crawl), by)
        return step

    async def forget(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._step(
            crawl,
            lambda s, at, most: self._copies.forget(
                s, crawl, which, at, most, dry_run=dry_run, by=by
            ),
            after,
            limit,
        )

    async def delete(self, crawl: str, *, limit: int = 1000, by: str = "") -> Step:
        """See `protocol.Admin`: home is cancelled first and removed last, so a kill is safe."""
        home = await self._status.home_summary(crawl)
        if home.reason != DELETING and await self._begin_deletion(crawl, by):
            copies = await self._copies.count(crawl)
            await self._shards.gather(shard.delete(crawl) for shard in self._shards.others)
            return Step(-copies, 1)  # the steps to come count them with the tasks
        for shard in self._shards.others:
            step = await shard.delete(crawl, limit=limit)
            if step.count or step.after is not None:
                return Step(step.count, 1)
        return await self._shards.home.delete(crawl, limit=limit)

    async def _begin_deletion(self, crawl: str, by: str) -> bool:
        """Cancel the crawl at home; return False if it is not known there."""
        return (await self._shards.home.delete(crawl, by=by)).after is not None

    async def purge(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._step(
            crawl,
            lambda s, at, most: s.purge(crawl, which, dry_run=dry_run, after=at, limit=most, by=by),
            after,
            limit,
        )
