"""The whole of what a store shows of a crawl, to be compared with itself at another time."""

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


class Whole(msgspec.Struct, frozen=True):
    """Every view there is, and the names of all crawls."""

    crawls: Sequence[str]
    crawl: CrawlView
    queues: Sequence[QueueView]
    tasks: Sequence[TaskView]
    heat: Heat
    changes: Sequence[StoreEvent]

    def differs(self, other: Whole) -> dict[str, tuple[Any, Any]]:
        """Where two differ: the first of each kind."""
        return {
            name: _first_difference(getattr(self, name), getattr(other, name))
            for name in self.__struct_fields__
            if getattr(self, name) != getattr(other, name)
        }


def _first_difference(one: Any, other: Any) -> tuple[Any, Any]:
    if not isinstance(one, list) or len(one) != len(other):
        return one, other
    return next((a, b) for a, b in zip(one, other, strict=True) if a != b)


async def whole_of(store: FullStore, crawl: str) -> Whole:
    """Read everything."""
    return Whole(
        await store.crawls(),
        await store.crawl(crawl),
        await audit.everything(lambda after: store.queues(crawl, after=after, limit=audit.PAGE)),
        await audit.everything(
            lambda after: store.tasks(crawl, TaskFilter(), after=after, limit=audit.PAGE)
        ),
        await store.heatmap(crawl),
        await store.events_since(crawl, limit=10_000),
    )
