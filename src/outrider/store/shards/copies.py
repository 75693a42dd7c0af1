"""Identities without a URL on a cluster: known on every shard, and counted once (B3).

Such an identity is a task on the shard of its key. On every other shard a copy of it, which no view
shows, makes later links to it duplicates, whatever their key. A link that makes it a task with a
URL does so with the copy of its own shard; what was the task before becomes a copy. An identity
that another shard knows as a task with a URL is a duplicate, and has copies elsewhere.
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

    async def add(self, tasks: Sequence[Task]) -> set[int]:
        """Make identities known on the shards they are not added to; again does no harm.

        Returns the places of duplicates, which are known on their own shards too then.
        """
        wanted = [place for place, task in enumerate(tasks) if not task.url]
        if not (wanted and self._shards.others):
            return set()
        own = {place: self._shards.of_key(tasks[place].key) for place in wanted}
        refused = await self._shards.gather(
            self._add_to(shard, tasks, [place for place in wanted if own[place] is not shard])
            for shard in self._shards.all
        )
        known = sorted(set[int]().union(*refused))
        owners = {id(own[place]): own[place] for place in known}.values()
        for shard in owners:
            here = [place for place in known if own[place] is shard]
            for place in set(here) - await self._add_to(shard, tasks, here):
                if not await self._is_task(tasks[place]):
                    await _forget(
                        shard, tasks[place].crawl, tasks[place].fingerprint
                    )  # so that it is added as what it is
                    known.remove(place)
        return set(known)

    async def _add_to(self, shard: Shard, tasks: Sequence[Task], places: Sequence[int]) -> set[int]:
        """Add copies to a shard; return the places of those that are known there."""
        if not places:
            return set()
        answers = await shard.add([_copy_of(tasks[place]) for place in places])
        pairs = zip(places, answers, strict=True)
        return {place for place, answer in pairs if not answer.added}

    async def _is_task(self, task: Task) -> bool:
        """Tell whether a shard knows an identity otherwise than as a copy."""
        found = await self._shards.gather(
            shard.task(task.crawl, task.fingerprint) for shard in self._shards.all
        )
        return any(view is not None and not is_copy(view) for view in found)

    async def make_way(self, tasks: Sequence[Task]) -> None:
        """Before links make copies tasks with a URL: the identity is counted there from then on."""
        wanted = [task for task in tasks if task.url and task.known in ("revisit", "set")]
        crawls = {task.crawl for task in wanted}
        with_copies = {crawl for crawl in crawls if await self._exist(crawl)}
        for task in wanted:
            if task.crawl in with_copies:
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

    async def count(self, crawl: str) -> int:
        """Return how many copies there are on all shards."""
        if not await self._exist(crawl):
            return 0
        views = await self._shards.gather(shard.queue(crawl, COPY) for shard in self._shards.all)
        return sum(view.done + view.dropped for view in views)

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
                await _forget(shard, crawl, fingerprint)


def is_copy(view: TaskView | None) -> bool:
    """Tell whether a shard's task is the copy of one on another shard."""
    return view is not None and view.key == COPY


async def _forget(shard: Shard, crawl: str, fingerprint: bytes) -> None:
    await shard.forget(crawl, TaskFilter(fingerprint=fingerprint), dry_run=False)


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
