"""STORE and --crawl → a frontier over what is there: no rules change, and only `add` creates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from outrider.cli.showing import note
from outrider.errors import InvalidInput
from outrider.frontier import Frontier
from outrider.settings import Layers
from outrider.store.address import check_address, show_address
from outrider.store.protocol import FullStore

T = TypeVar("T")
_NAMED: Final = 10  # crawls an error message lists


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
        source = source_of(store, creates=creates)
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


def source_of(store: str, *, creates: bool) -> str | FullStore:
    """What to open; whoever does not create is told so before anything is made."""
    check_address(store)
    if store.startswith("memory:"):
        raise InvalidInput("memory:// ends with its process, so no command sees it; name a file")
    if "://" not in store and not creates and not Path(store).exists():
        raise InvalidInput(f"no such file: {show_address(store)}; `outrider add` creates one")
    return store


async def check_crawl(frontier: Frontier, store: str) -> None:
    """Go on only if the store has the crawl; else name those it has."""
    names = await frontier.store.crawls()
    if frontier.crawl in names:
        return
    there = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    known = (
        f"it has {there}; say --crawl NAME" if names else "it has none; `outrider add` makes one"
    )
    raise InvalidInput(f"no crawl {frontier.crawl!r} in {show_address(store)}: {known}")


def say_promise(store: FullStore) -> None:
    """M5: what a crash of the server that keeps a store may lose, as the server was asked."""
    promise = getattr(store, "promise", "")
    if promise:
        note(f"the store: {promise}")
