"""The full view of a crawl: every view of the store, to compare with a later one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from outrider.store.protocol import (
    CrawlView,
    FullStore,
    Heat,
    QueueView,
    StoreEvent,
    TaskFilter,
    TaskView,
)
from outrider.testing import audit


class FullView(msgspec.Struct, frozen=True):
    """Every view of a crawl, and the names of all crawls."""

    crawls: Sequence[str]
    crawl: CrawlView
    queues: Sequence[QueueView]
    tasks: Sequence[TaskView]
    heat: Heat
    changes: Sequence[StoreEvent]

    def differs(self, other: FullView) -> dict[str, tuple[Any, Any]]:
        """Return where two full views differ: the first difference of each kind."""
        return {
            name: _first_difference(getattr(self, name), getattr(other, name))
            for name in self.__struct_fields__
            if getattr(self, name) != getattr(other, name)
        }


def _first_difference(one: Any, other: Any) -> tuple[Any, Any]:
    if not isinstance(one, list) or len(one) != len(other):
        return one, other
    return next((a, b) for a, b in zip(one, other, strict=True) if a != b)


async def full_view(store: FullStore, crawl: str) -> FullView:
    """Read every view of a crawl."""
    return FullView(
        await store.crawls(),
        await store.crawl(crawl),
        await audit.everything(lambda after: store.queues(crawl, after=after, limit=audit.PAGE)),
        await audit.everything(
            lambda after: store.tasks(crawl, TaskFilter(), after=after, limit=audit.PAGE)
        ),
        await store.heatmap(crawl),
        await store.events_since(crawl, limit=10_000),
    )
