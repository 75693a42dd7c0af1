"""Pages of queues in order, merged from those of all shards.

A wake cursor of the whole store has the global number of a queue, so that queues of the same wake
time are in order of their shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from outrider.store.protocol import CursorPage, QueueView
from outrider.store.queue_order import QueueOrder, wake_cursor, wake_of_cursor
from outrider.store.shards.shard_set import LAST_LOCAL, global_number, split_number

Position: TypeAlias = tuple[int | str, ...]  # of a cursor in its order


class OrderedCursors:
    """The cursors of one order, in the whole store and in its shards."""

    def __init__(self, order: QueueOrder) -> None:
        self._order = order

    def local(self, cursor: str, shard: int) -> str:
        """Return where a shard's page begins, for the cursor of a page of the whole store."""
        if self._order == "key" or not cursor:
            return cursor
        at, number = wake_of_cursor(cursor)
        of, local = split_number(number)
        if of != shard:
            local = LAST_LOCAL if of > shard else 0
        return wake_cursor(at, local)

    def whole(self, cursor: str, shard: int) -> str:
        """Return the cursor of the whole store for one of a shard."""
        if self._order == "key" or not cursor:
            return cursor
        at, number = wake_of_cursor(cursor)
        return wake_cursor(at, global_number(shard, number))

    def position(self, cursor: str) -> Position:
        """Return what sorts as the order does."""
        return (cursor,) if self._order == "key" else wake_of_cursor(cursor)


def merge_pages(
    pages: Sequence[CursorPage[QueueView]], cursors: OrderedCursors, limit: int
) -> CursorPage[QueueView]:
    """Merge the pages of all shards, as far as all of them go."""
    found = [
        (cursors.whole(cursor, shard), view)
        for shard, page in enumerate(pages)
        for cursor, view in zip(page.cursors, page.items, strict=True)
    ]
    found.sort(key=lambda entry: cursors.position(entry[0]))
    ends = [cursors.whole(p.after, shard) for shard, p in enumerate(pages) if p.after is not None]
    more = min(ends, key=cursors.position) if ends else None
    if more is not None:
        end = cursors.position(more)
        found = [entry for entry in found if cursors.position(entry[0]) <= end]
    if len(found) > limit:
        found = found[:limit]
        more = found[-1][0]
    return CursorPage([view for _, view in found], [cursor for cursor, _ in found], more)
