"""Long lists and long works come in bounded pieces; the loop breathes between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from outrider.store.protocol import FullStore, ResultPage, SharedValue, Step


async def paged(read: Callable[[int], Awaitable[ResultPage[Any]]]) -> AsyncIterator[Any]:
    """The items of all pages, one after the other."""
    after: int | None = 0
    while after is not None:
        page = await read(after)
        after = page.after
        for item in page.items:
            yield item
        await asyncio.sleep(0)


async def noted(
    store: FullStore, crawl: str, topic: str | None = None
) -> AsyncIterator[SharedValue]:
    """What is noted of a crawl, or of one topic, in order; nothing of what is gone."""
    after = 0
    while notes := await store.values_since(crawl, after=after):
        after = notes[-1].number
        for note in notes:
            if note.text and topic in (None, note.topic):
                yield note
        await asyncio.sleep(0)


async def stepped(work: Callable[[int], Awaitable[Step]]) -> AsyncIterator[Step]:
    """All steps of a long work."""
    after: int | None = 0
    while after is not None:
        step = await work(after)
        after = step.after
        yield step
        await asyncio.sleep(0)
