"""Tasks go to the shard of their key, and are answered in the order they came in (B3, B4).

What is known is known within a shard: a URL that is added under two keys may be known twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Added, Task
from outrider.store.protocol import TaskView
from outrider.store.shards.runs import Runs
from outrider.store.shards.shard import Pulse, together

_OPEN = (TaskState.PENDING, TaskState.LEASED)


class Adding(Runs):
    """How tasks come in."""

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """See `protocol.Store`."""
        crawls = list(dict.fromkeys(task.crawl for task in tasks))
        if len(crawls) == 1:
            return await self._add_to(crawls[0], tasks)
        parts = [[task for task in tasks if task.crawl == crawl] for crawl in crawls]
        answers = [
            await self._add_to(crawl, part) for crawl, part in zip(crawls, parts, strict=True)
        ]
        by_crawl = {crawl: iter(part) for crawl, part in zip(crawls, answers, strict=True)}
        return [next(by_crawl[task.crawl]) for task in tasks]

    async def _add_to(self, crawl: str, tasks: Sequence[Task]) -> list[Added]:
        home = await self._pulse(crawl)
        if home.status is CrawlStatus.CANCELLED:
            await self._standing(crawl)
        if home.max_pending and self._others:
            answers = await self._add_within(crawl, tasks, home.max_pending)
        else:
            answers = await self._spread(tasks)
        await self._came(crawl, home, answers)
        return answers

    async def _came(self, crawl: str, home: Pulse, answers: Sequence[Added]) -> None:
        """I2, I4: what follows from tasks that were added."""
        if any(answer.added for answer in answers):
            await self._wake_home(crawl, home)
        if home.is_limited:
            await self._standing(crawl)

    async def _spread(self, tasks: Sequence[Task]) -> list[Added]:
        """Each to its shard, in order there."""
        wanted = [self._shard_of(task.key) for task in tasks]
        parts: dict[int, list[Task]] = {number: [] for number in wanted}
        for number, task in zip(wanted, tasks, strict=True):
            parts[number].append(task)
        answers = await self._all(self._shards[number].add(part) for number, part in parts.items())
        by_shard = {number: iter(part) for number, part in zip(parts, answers, strict=True)}
        return [next(by_shard[number]) for number in wanted]

    async def _add_within(self, crawl: str, tasks: Sequence[Task], most: int) -> list[Added]:
        """B4: `max_pending` of all shards together, exact to one batch a worker."""
        room = most - together(await self._pulses(crawl)).open
        if len(tasks) <= room:
            return await self._spread(tasks)
        admitted = await self._admitted(tasks, room)
        answers = iter(
            await self._spread([t for t, fits in zip(tasks, admitted, strict=True) if fits])
        )
        return [
            next(answers) if fits else Added(task.url, False, "queue-full")
            for task, fits in zip(tasks, admitted, strict=True)
        ]

    async def _admitted(self, tasks: Sequence[Task], room: int) -> list[bool]:
        """Whether each is known, or one of the first strangers there is room for."""
        known = await self._all(self._at(t.key).task(t.crawl, t.fingerprint) for t in tasks)
        first: dict[bytes, bool] = {}
        for task, view in zip(tasks, known, strict=True):
            if task.fingerprint not in first:
                is_strange = _waits_anew(task, view)
                first[task.fingerprint] = not is_strange or room > 0
                room -= is_strange
        return [first[task.fingerprint] for task in tasks]


def _waits_anew(task: Task, view: TaskView | None) -> bool:
    """Whether one more would be pending."""
    return view is None or (task.known == "revisit" and view.state not in _OPEN)
