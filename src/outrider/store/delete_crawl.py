"""Removal of a whole crawl: every step of the verb `delete`, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from outrider.store.protocol import FullStore


async def delete_crawl(
    store: FullStore,
    crawl: str,
    *,
    limit: int = 1000,
    by: str = "",
    progress: Callable[[int], object] = lambda _: None,
) -> int:
    """Remove a crawl from a store; return how many tasks it had (I1).

    Other calls run between the steps. Interrupted, it may be called again. Where the process
    that removed it was killed, the count is of the tasks that were left. `progress` is called
    with the count after each step.
    """
    count, has_more = 0, True
    while has_more:
        step = await store.delete(crawl, limit=limit, by=by)
        count, has_more = count + step.count, step.after is not None
        progress(count)
        await asyncio.sleep(0)
    return count
