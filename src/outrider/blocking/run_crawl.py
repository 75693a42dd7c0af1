"""`crawl` without a loop: a whole crawl, run in a thread of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from outrider.blocking.loop_thread import LoopThread
from outrider.core.task import Link
from outrider.settings import AnySettings

if TYPE_CHECKING:
    from outrider.executor.page_handler import PageFunctions
    from outrider.wiring import CrawlReport

_STOP_TIMEOUT: Final = 10.0  # seconds an interrupted crawl has to release its leases


def crawl(
    urls: str | Link | Iterable[str | Link],
    handler: PageFunctions | None = None,
    *,
    store: str | os.PathLike[str] = "memory://",
    settings: AnySettings = None,
    name: str = "default",
    progress: Callable[[Sequence[Any]], None] | None = None,
) -> CrawlReport:
    """Crawl to the end, as `outrider.crawl` does; works in notebooks too, where a loop runs.

    `progress` is called in the crawl's thread.
    """
    from outrider.wiring import crawl as crawl_async  # noqa: PLC0415 - needs the `crawl` extra

    loop, ended = LoopThread(), threading.Event()

    async def run() -> CrawlReport:
        try:
            return await crawl_async(
                urls, handler, store=store, settings=settings, name=name, progress=progress
            )
        finally:
            ended.set()

    try:
        return loop.run(run())
    except KeyboardInterrupt:
        ended.wait(_STOP_TIMEOUT)
        raise
    finally:
        loop.stop()
