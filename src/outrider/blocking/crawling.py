"""A whole crawl for code without a loop."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from outrider.blocking.loop import Loop
from outrider.core.task import Link
from outrider.settings import AnySettings

if TYPE_CHECKING:
    from outrider.wiring import CrawlReport

_GRACE = 10.0  # seconds an interrupted crawl gets to give back what it has


def crawl(
    urls: str | Link | Iterable[str | Link],
    handler: Callable[[Any], Any] | str | None = None,
    *,
    store: str | os.PathLike[str] = "memory://",
    settings: AnySettings = None,
    name: str = "default",
    progress: Callable[[Sequence[Any]], None] | None = None,
) -> CrawlReport:
    """See `outrider.crawl`; works in notebooks too, whatever loop runs there.

    `progress` is called in the crawl's thread.
    """
    from outrider.wiring import crawl as crawled  # noqa: PLC0415 - needs the `crawl` extra

    loop, ended = Loop(), threading.Event()

    async def whole() -> CrawlReport:
        try:
            return await crawled(
                urls, handler, store=store, settings=settings, name=name, progress=progress
            )
        finally:
            ended.set()

    try:
        return loop.run(whole())
    except KeyboardInterrupt:
        ended.wait(_GRACE)
        raise
    finally:
        loop.stop()
