"""`outrider queues`: the queues of a crawl, sorted and filtered (E8)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from outrider.cli.listing import Columns, show_list
from outrider.cli.options import Crawl, Json, Limit, Store
from outrider.cli.showing import duration
from outrider.core.states import QueueState

if TYPE_CHECKING:
    from outrider.frontier import Frontier
    from outrider.store.protocol import QueueView

_NAMES: Final = ("key", "state", "pending", "in flight", "spent", "errors", "wakes in", "next URL")
_NUMBERS: Final = frozenset(_NAMES[2:7])


class Sort(StrEnum):
    """What to sort by."""

    KEY = "key"
    PENDING = "pending"
    SPENT = "spent"
    WAKES_IN = "wakes_in"
    ERRORS = "errors"


_MOST_FIRST: Final = frozenset({Sort.PENDING, Sort.SPENT, Sort.ERRORS})


def queues(
    store: Store,
    *,
    state: Annotated[QueueState | None, typer.Option("--state", help="Only in this state.")] = None,
    sort: Annotated[
        Sort | None, typer.Option("--sort", help="Most pending, spent or errors first.")
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="The other way round.")] = False,
    limit: Limit = None,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """List queues, in order of their creation unless sorted."""
    show_list(
        (store, crawl),
        lambda frontier: run(frontier, state, sort, reverse=reverse),
        Columns(_NAMES, _NUMBERS, _row),
        limit=limit,
        as_json=as_json,
    )


def run(
    frontier: Frontier, state: QueueState | None, sort: Sort | None, *, reverse: bool
) -> AsyncIterator[QueueView]:
    """Read; nothing changes."""
    return frontier.queues(state=state, sort=sort, reverse=reverse is not (sort in _MOST_FIRST))


def _row(view: QueueView) -> tuple[object, ...]:
    state = view.state + (f" ({view.reason})" if view.reason else "")
    spent = f"{view.spent:,}" + ("" if view.total_budget < 0 else f" of {view.total_budget:,}")
    return (
        *(view.key, state, view.pending, view.in_flight, spent, view.errors_in_row),
        *(duration(view.wakes_in), view.next_url or ""),
    )
