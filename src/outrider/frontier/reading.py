"""What a frontier shows: counters, queues, tasks, dead letters (E8, G2, O2, O5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from outrider.core.states import QueueState, TaskState
from outrider.errors import InvalidInput
from outrider.frontier.addressing import filter_key_of
from outrider.frontier.footing import Footing
from outrider.frontier.operating import checked_age, checked_pattern
from outrider.frontier.pages import paged
from outrider.frontier.reports import (
    DeadLetter,
    Heatmap,
    Reason,
    Stats,
    dead_letter,
)
from outrider.store.protocol import QueueView, TaskFilter, TaskView, Upcoming, WorkerView

_MOST_UPCOMING: Final = 1000


class Reader(Footing):
    """The seeing half of a frontier: nothing here changes anything."""

    async def stats(self) -> Stats:
        """Counters by state, type and tag, queues by state, status and timeline."""
        view = await self.store.crawl(self.crawl)
        states: Counter[str] = Counter({state.value: 0 for state in QueueState})
        async for state in paged(lambda after: self.store.queue_states(self.crawl, after=after)):
            states[state.value] += 1
        fields = {name: _in_order(getattr(view, name)) for name in view.__struct_fields__}
        return Stats(
            **fields,
            queues=dict(states),
            refused=dict(self._refused),
            bypassed=self._admission.bypassed,
        )

    async def why(self, limit: int = 20) -> list[Reason]:
        """What keeps the crawl open; empty when nothing does (I2)."""
        view = await self.store.crawl(self.crawl)
        reasons = []
        if view.leased:
            reasons.append(Reason("leased", "", f"{view.leased} visits are in flight"))
        async for queue in self.queues():
            if queue.pending and queue.state is not QueueState.RETIRED:
                reasons.append(_reason(queue))
            if len(reasons) >= limit:
                break
        return reasons

    async def workers(self) -> list[WorkerView]:
        """Who works on this crawl, and how they are; the silent read as gone (M6)."""
        return await self.store.workers(self.crawl)

    async def heatmap(self) -> Heatmap:
        """What is pending, by origin and group, and by depth (O2)."""
        heat = await self.store.heatmap(self.crawl)
        return Heatmap(heat.total, _in_order(heat.cells), heat.depth, heat.updated_at)

    async def queues(
        self, *, state: str | None = None, sort: str | None = None, reverse: bool = False
    ) -> AsyncIterator[QueueView]:
        """Queue views (E8); sorted by key, pending, spent, wakes_in or errors if asked."""
        wanted = None if state is None else _queue_state(state)
        views = paged(lambda after: self.store.queues(self.crawl, after=after))
        if sort is not None:
            views = _sorted(views, _sort_key(sort), reverse=reverse)
        async for view in views:
            if wanted is None or view.state is wanted:
                yield view

    async def upcoming(self, key: str, limit: int = 64) -> list[Upcoming]:
        """The first due tasks of a queue, each as (fingerprint, url), for `claim_named`."""
        if type(limit) is not int or not 0 < limit <= _MOST_UPCOMING:
            raise InvalidInput(f"upcoming(limit={limit!r}): a whole number, 1 to {_MOST_UPCOMING}")
        return await self.store.upcoming(self.crawl, key, limit=limit)

    async def tasks(
        self,
        *,
        key: str | None = None,
        state: str | None = None,
        type: str | None = None,
        tag: str | None = None,
        pattern: str | None = None,
        reason: str | None = None,
        older_than: float | None = None,
    ) -> AsyncIterator[TaskView]:
        """Tasks that match everything given, in order of their discovery."""
        which = TaskFilter(
            key=await filter_key_of(self, key),
            state=None if state is None else _task_state(state),
            type=type,
            tag=tag,
            pattern=checked_pattern(pattern),
            reason=reason,
            older_than=checked_age(older_than),
        )
        async for view in paged(lambda after: self.store.tasks(self.crawl, which, after=after)):
            yield view

    async def dead(
        self,
        *,
        reason: str | None = None,
        type: str | None = None,
        key: str | None = None,
    ) -> AsyncIterator[DeadLetter]:
        """Dead letters, with every attempt (G2)."""
        by_key = await filter_key_of(self, key)
        which = TaskFilter(state=TaskState.DEAD, reason=reason, type=type, key=by_key)
        async for view in paged(lambda after: self.store.tasks(self.crawl, which, after=after)):
            yield dead_letter(view)

    async def dead_by_reason(self) -> dict[str, int]:
        """How many dead letters of each reason."""
        return dict(Counter([letter.reason async for letter in self.dead()]))


def _reason(queue: QueueView) -> Reason:
    when = f", {queue.wakes_in:.1f} s to go" if queue.wakes_in else ""
    why = f" ({queue.reason})" if queue.reason else ""
    return Reason(queue.state.value, queue.key, f"{queue.pending} pending{why}{when}")


_SORTS: Final[dict[str, Callable[[QueueView], Any]]] = {
    "key": lambda view: view.key,
    "pending": lambda view: view.pending,
    "spent": lambda view: view.spent,
    "wakes_in": lambda view: (view.wakes_in is None, view.wakes_in or 0.0),
    "errors": lambda view: view.errors_in_row,
}


def _sort_key(name: str) -> Callable[[QueueView], Any]:
    if name not in _SORTS:
        raise InvalidInput(f"queues(sort={name!r}): one of {', '.join(_SORTS)}")
    return _SORTS[name]


async def _sorted(
    views: AsyncIterator[QueueView], key: Callable[[QueueView], Any], *, reverse: bool
) -> AsyncIterator[QueueView]:
    every: Sequence[QueueView] = sorted([view async for view in views], key=key, reverse=reverse)
    for view in every:
        yield view


def _queue_state(name: str) -> QueueState:
    try:
        return QueueState(name)
    except ValueError:
        raise InvalidInput(f"state = {name!r}: one of {', '.join(QueueState)}") from None


def _task_state(name: str) -> TaskState:
    try:
        return TaskState(name)
    except ValueError:
        raise InvalidInput(f"state = {name!r}: one of {', '.join(TaskState)}") from None


def _in_order(value: Any) -> Any:
    """Counters by name, whichever store counted them: reports of two stores can be compared."""
    if not isinstance(value, Mapping):
        return value
    return {name: _in_order(value[name]) for name in sorted(value)}
