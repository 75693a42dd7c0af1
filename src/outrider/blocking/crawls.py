"""`crawls` and `removed_crawls` without a loop: plain iterators, each over a loop of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Iterator
from typing import TypeVar

from outrider.blocking.loop_thread import LoopThread
from outrider.clock import Clock
from outrider.frontier import crawls as async_crawls
from outrider.frontier.crawls import CrawlSummary, RemovedCrawl

T = TypeVar("T")


def crawls(
    store: str | os.PathLike[str],
    *,
    status: str | Collection[str] | None = None,
    clock: Clock | None = None,
) -> Iterator[CrawlSummary]:
    """Iterate over the crawls of a store, as `outrider.crawls` does."""
    return _iterate(async_crawls.crawls(store, status=status, clock=clock))


def removed_crawls(
    store: str | os.PathLike[str], *, clock: Clock | None = None
) -> Iterator[RemovedCrawl]:
    """Iterate over crawls that were removed from a store, as `outrider.removed_crawls` does."""
    return _iterate(async_crawls.removed_crawls(store, clock=clock))


def _iterate(items: AsyncIterator[T]) -> Iterator[T]:
    loop = LoopThread()
    try:
        yield from loop.iterate(items)
    finally:
        loop.stop()
