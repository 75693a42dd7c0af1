"""Opening a crawl for a command: STORE and --crawl become a frontier; and listing its items.

A command changes no rules, and only those that say so create a store or a crawl.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from outrider.cli.options import row_limit
from outrider.cli.terminal import print_json, print_note, show_table
from outrider.core.policy.rules import CrawlRules
from outrider.errors import InvalidInput
from outrider.frontier import Frontier
from outrider.monitoring.connection import check_crawl, check_store, opened_for_command
from outrider.settings import Layers, person
from outrider.store.protocol import FullStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


T = TypeVar("T")


def on_crawl(
    store: str,
    crawl: str,
    work: Callable[[Frontier], Awaitable[T]],
    *,
    by: str | None = None,
    creates: bool = False,
    opens: bool = False,
    begins: Layers | None = None,
) -> T:
    """Call `work` with a crawl of a store, and close it.

    `by` is who acts, the user unless given. `creates`: the store, if it is a new file; `opens`: the
    crawl, under default settings, if it does not exist. `begins`: settings of a new crawl.
    """
    name = person() if by is None else by

    async def call() -> T:
        source = check_store(store, creates=creates)
        if begins is not None:
            await _create_crawl(source, crawl, begins)
        async with (
            opened_for_command(source) as opened,
            Frontier.attach(opened, crawl=crawl, by=name) as frontier,
        ):
            if opens:
                await frontier.store.configure(crawl, CrawlRules(), only="new")
            if not creates:
                await check_crawl(frontier, store)
            return await work(frontier)

    return asyncio.run(call())


def on_store(store: str, work: Callable[[FullStore], Awaitable[T]]) -> T:
    """Call `work` with an existing store, of whatever crawls, and close it."""

    async def call() -> T:
        async with opened_for_command(check_store(store, creates=False)) as opened:
            return await work(opened)

    return asyncio.run(call())


async def _create_crawl(source: str | FullStore, crawl: str, layers: Layers) -> None:
    async with Frontier.attach(source, crawl=crawl) as frontier:
        if crawl in await frontier.store.crawls():
            fix = "change them with `outrider config set`"
            raise InvalidInput(f"--profile: {crawl!r} exists, and keeps its settings; {fix}")
    async with Frontier.open(source, settings=layers, crawl=crawl):
        return


def note_durability(store: FullStore) -> None:
    """Note what a crash of the store's server may lose, as its configuration says (M5)."""
    promise = getattr(store, "promise", "")
    if promise:
        print_note(f"the store: {promise}")


# ---- lists


class Columns(NamedTuple):
    """The columns of a list: names, those aligned right, and the cells of an item."""

    names: Sequence[str]
    right: Collection[str]
    row: Callable[[Any], Sequence[object]]


def show_list(
    place: tuple[str, str],
    read: Callable[[Frontier], AsyncIterator[T]],
    columns: Columns,
    *,
    limit: int | None,
    as_json: bool,
) -> None:
    """Read a list of a crawl, given as (store, crawl), and show it: JSON lines, or a table."""
    limit, shown = row_limit(limit, as_json=as_json), list[T]()
    see = print_json if as_json else shown.append
    is_cut = on_crawl(*place, lambda frontier: take_items(read(frontier), limit, see))
    if not as_json:
        show_table(columns.names, map(columns.row, shown), right=columns.right)
        if is_cut:
            print_note(f"only the first {limit:,} are shown; --limit 0 shows all")


async def take_items(items: AsyncIterator[T], limit: int | None, see: Callable[[T], None]) -> bool:
    """Pass the first items to `see`; return whether there are more."""
    count = 0
    async with aclosing(cast("AsyncGenerator[T, None]", items)) as closing:
        async for item in closing:
            if count == limit:
                return True
            see(item)
            count += 1
    return False
