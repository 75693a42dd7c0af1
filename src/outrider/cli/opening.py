"""STORE and --crawl → a frontier over what is there: no rules change, and only `add` creates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from outrider.cli.showing import note
from outrider.errors import InvalidInput
from outrider.frontier import Frontier
from outrider.monitoring.connection import check_crawl, check_store
from outrider.settings import Layers
from outrider.store.protocol import FullStore

T = TypeVar("T")


def on_crawl(
    store: str,
    crawl: str,
    work: Callable[[Frontier], Awaitable[T]],
    *,
    creates: bool = False,
    begins: Layers | None = None,
) -> T:
    """Do some work on a crawl of a store, and close it again; `begins`: it is to be a new one."""

    async def worked() -> T:
        source = check_store(store, creates=creates)
        if begins is not None:
            await _begin(source, crawl, begins)
        async with Frontier.attach(source, crawl=crawl) as frontier:
            if not creates:
                await check_crawl(frontier, store)
            return await work(frontier)

    return asyncio.run(worked())


async def _begin(source: str | FullStore, crawl: str, layers: Layers) -> None:
    async with Frontier.attach(source, crawl=crawl) as frontier:
        if crawl in await frontier.store.crawls():
            fix = "change one with `outrider config set`"
            raise InvalidInput(f"--profile: {crawl!r} is there, and keeps its settings; {fix}")
    async with Frontier.open(source, settings=layers, crawl=crawl):
        return


def say_promise(store: FullStore) -> None:
    """M5: what a crash of the server that keeps a store may lose, as the server was asked."""
    promise = getattr(store, "promise", "")
    if promise:
        note(f"the store: {promise}")
