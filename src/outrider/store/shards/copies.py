"""Identities without a URL on a cluster: known on every shard, and counted once (B3).

Such an identity is a task on the shard of its key. On every other shard a copy of it, which no view
shows, makes later links to it duplicates, whatever their key. A link that makes it a task with a
URL does so with the copy of its own shard; what was the task before becomes a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from outrider.core.states import FORGOTTEN
from outrider.core.task import DEFAULT_ORIGIN, Task
from outrider.store.protocol import CrawlView, Step, TaskFilter, TaskView
from outrider.store.shards.shard_set import HOME, Shard, ShardSet

COPY: Final = "(copy)"  # the type and the queue of copies
_STATES: Final = ("pending", "leased", "done", "dead", "dropped")


class IdentityCopies:
    """Keeps the copies of identities in step with their tasks."""

    def __init__(self, shards: ShardSet) -> None:
        self._shards = shards

    async def add(self, tasks: Sequence[Task]) -> None:
        """Make identities known on the shards they were not added to; again does no harm."""
        wanted = [task for task in tasks if not task.url]
        if not (wanted and self._shards.others):
            return
        owners = [self._shards.number_of(task.key) for task in wanted]
        parts = {
            number: [_copy_of(t) for t, own in zip(wanted, owners, strict=True) if own != number]
            for number in range(len(self._shards))
        }
        await self._shards.gather(self._shards[n].add(part) for n, part in parts.items() if part)

    async def make_way(self, tasks: Sequence[Task]) -> None:
        """Before links make copies tasks with a URL: the identity is counted there from then on."""
        for task in tasks:
            if task.url and task.known in ("revisit", "set") and self._shards.others:
                await self._make_way(task)

    async def _make_way(self, task: Task) -> None:
        here = await self._shards.of_key(task.key).task(task.crawl, task.fingerprint)
        if not is_copy(here):
            return
        found = await self._shards.gather(
            shard.task(task.crawl, task.fingerprint) for shard in self._shards.all
        )
        for shard, view in zip(self._shards.all, found, strict=True):
            if view is not None and not is_copy(view):
                await shard.add([replace(_copy_of(task), known="set")])

    # ---- forgetting

    async def forget(
        self, shard: Shard, crawl: str, which: TaskFilter, after: int, limit: int, **how: Any
    ) -> Step:
        """C10: make a step on one shard; copies are forgotten with their tasks, and not counted."""
        matching = await self._identities(shard, crawl, which, after, limit)
        step = await shard.forget(crawl, which, after=after, limit=limit, **how)
        if not how["dry_run"]:
            for view in matching:
                if not is_copy(view):
                    await self._forget_copies(crawl, view.fingerprint)
        return Step(step.count - sum(map(is_copy, matching)), step.after)

    async def _identities(
        self, shard: Shard, crawl: str, which: TaskFilter, after: int, limit: int
    ) -> list[TaskView]:
        """Return the tasks without a URL that a step will forget, copies included."""
        if not await self._exist(crawl):
            return []
        if which.fingerprint is not None:
            view = await shard.task(crawl, which.fingerprint)
            found = [] if view is None else [view]
        else:
            found = list((await shard.tasks(crawl, which, after=after, limit=limit)).items)
        return [view for view in found if not view.url and view.reason != FORGOTTEN]

    async def _exist(self, crawl: str) -> bool:
        """Tell whether there is a copy: of two shards, one has a copy of every identity."""
        if not self._shards.others:
            return False
        views = await self._shards.gather(
            shard.queue(crawl, COPY) for shard in self._shards.all[: HOME + 2]
        )
        return any(view.done or view.dropped for view in views)

    async def _forget_copies(self, crawl: str, fingerprint: bytes) -> None:
        for shard in self._shards.all:
            if is_copy(await shard.task(crawl, fingerprint)):
                await shard.forget(crawl, TaskFilter(fingerprint=fingerprint), dry_run=False)


def is_copy(view: TaskView | None) -> bool:
    """Tell whether a shard's task is the copy of one on another shard."""
    return view is not None and view.key == COPY


async def without_copies(shard: Shard, view: CrawlView) -> CrawlView:
    """Return a shard's counters without its copies, and without their queue."""
    found = await shard.queues_in_order(view.crawl, "key", prefix=COPY, limit=1)
    if not found.items or found.items[0].key != COPY:
        return view
    copies: Mapping[str, int] = view.types.get(COPY, {})
    state = found.items[0].state.value
    return replace(
        view,
        queues={**view.queues, state: view.queues.get(state, 1) - 1},
        known=view.known - sum(copies.values()),
        types={name: counts for name, counts in view.types.items() if name != COPY},
        **{state: getattr(view, state) - copies.get(state, 0) for state in _STATES},
    )


def _copy_of(task: Task) -> Task:
    return replace(
        task,
        url="",
        key=COPY,
        type=COPY,
        lane=0,
        depth=0,
        precedence=1,
        priority=0.0,
        cost=1,
        delay=0.0,
        origin=DEFAULT_ORIGIN,
        via=None,
        tag=None,
        meta=b"",
        breakdown=None,
        text="",
        done=True,
    )
