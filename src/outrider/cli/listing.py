"""Long lists: a line of JSON each as they come, or one table of the first so many."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from outrider.cli.opening import on_crawl
from outrider.cli.options import rows
from outrider.cli.showing import note, say_json, show_table

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from outrider.frontier import Frontier

T = TypeVar("T")


class Columns(NamedTuple):
    """How an item becomes a row: names, those that stand right, and the cells."""

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
    """Read a list of a crawl, named by its store and itself, and show it."""
    most, shown = rows(limit, as_json=as_json), list[T]()
    see = say_json if as_json else shown.append
    is_cut = on_crawl(*place, lambda frontier: each(read(frontier), most, see))
    if not as_json:
        show_table(columns.names, map(columns.row, shown), right=columns.right)
        if is_cut:
            note(f"only the first {most:,} are shown; --limit 0 shows all")


async def each(items: AsyncIterator[T], most: int | None, see: Callable[[T], None]) -> bool:
    """Hand on the first so many; answers whether there are more."""
    count = 0
    async with aclosing(cast("AsyncGenerator[T, None]", items)) as left_early:
        async for item in left_early:
            if count == most:
                return True
            see(item)
            count += 1
    return False
