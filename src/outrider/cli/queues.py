"""`outrider queues` and `queue`: list queues; show and steer one, or all of a suffix (E7, E8)."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from outrider.cli.open_crawl import Columns, on_crawl, show_list
from outrider.cli.options import By, Crawl, Json, Limit, Store, parse_seconds
from outrider.cli.terminal import (
    format_counts,
    format_duration,
    format_instant,
    format_size,
    print_json,
    print_note,
    show_pairs,
)
from outrider.core.states import QueueState
from outrider.errors import InvalidInput
from outrider.frontier.admin import is_known
from outrider.frontier.reports import SuffixView
from outrider.store.protocol import QueueView

if TYPE_CHECKING:
    from outrider.frontier import Frontier


_COLUMNS: Final = (
    "key",
    "state",
    "pending",
    "in flight",
    "spent",
    "errors",
    "wakes in",
    "next URL",
)
_NUMBER_COLUMNS: Final = frozenset(_COLUMNS[2:7])
_WIDE_COLUMNS: Final = (
    *("key", "state", "total budget", "spent", "balance", "grant"),
    *("last cost", "average cost", "pending", "done", "errors"),
)
_WIDE_NUMBERS: Final = frozenset(_WIDE_COLUMNS[2:])


class Sort(StrEnum):
    """Sort orders of `queues`."""

    KEY = "key"
    PENDING = "pending"
    SPENT = "spent"
    WAKES_IN = "wakes_in"
    ERRORS = "errors"


SAMPLE_CALLS: Final = 20  # to read queues that are too many to be sorted; each takes some 0.3 s
SAMPLE_LIMIT: Final = 1000
_DESCENDING: Final = frozenset({Sort.PENDING, Sort.SPENT, Sort.ERRORS})


def queues(  # noqa: PLR0913 - a command's options are its parameters
    store: Store,
    *,
    state: Annotated[
        QueueState | None, typer.Option("--state", help="Only queues in this state.")
    ] = None,
    sort: Annotated[
        Sort | None, typer.Option("--sort", help="Sort order; most pending, spent or errors first.")
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse the order.")] = False,
    prefix: Annotated[
        str | None, typer.Option("--prefix", help="With --sort key: only keys that begin so.")
    ] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="Show what queues cost: budget, spent, balance, costs.")
    ] = False,
    key: Annotated[
        str | None, typer.Option("--key", help="Only this queue, or those of a suffix like .org.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", help="Only queues whose key matches this regular expression."),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option("--reason", help="Only queues retired or snoozed for this: budget, quota, …"),
    ] = None,
    min_spent: Annotated[
        int | None, typer.Option("--min-spent", min=0, help="Only queues that spent so much.")
    ] = None,
    min_errors: Annotated[
        int | None,
        typer.Option("--min-errors", min=0, help="Only queues with so many errors in a row."),
    ] = None,
    limit: Limit = None,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """List queues, oldest first unless sorted."""
    filters = {
        "state": state,
        "key": key,
        "pattern": pattern,
        "reason": reason,
        "min_spent": min_spent,
        "min_errors": min_errors,
        "prefix": prefix,
    }
    given = {name: value for name, value in filters.items() if value is not None}
    columns = Columns(_COLUMNS, _NUMBER_COLUMNS, _queue_row)
    show_list(
        (store, crawl),
        lambda frontier: read_queues(frontier, sort, given, reverse=reverse),
        Columns(_WIDE_COLUMNS, _WIDE_NUMBERS, _wide_row) if wide else columns,
        limit=limit,
        as_json=as_json,
    )


async def read_queues(
    frontier: Frontier, sort: Sort | None, filters: Mapping[str, Any], *, reverse: bool
) -> AsyncIterator[QueueView]:
    """Read the queues; of more than can be sorted, the worst of those that were read."""
    is_descending = reverse is not (sort in _DESCENDING)
    views = frontier.queues(sort=sort, reverse=is_descending, **filters)
    try:
        async for view in views:
            yield view
    except InvalidInput:
        if sort not in _DESCENDING or filters or reverse:
            raise
        for view in await _sample_queues(frontier, sort):
            yield view


async def _sample_queues(frontier: Frontier, sort: Sort) -> Sequence[QueueView]:
    """Read queues for some seconds, and note how many there are and were read."""
    sample = await frontier.worst_queues(sort, SAMPLE_LIMIT)
    for _ in range(SAMPLE_CALLS):
        if sample.examined >= sample.known:
            break
        sample = await frontier.worst_queues(sort, SAMPLE_LIMIT)
    print_note(
        f"of {sample.examined:,} queues that were read within {math.ceil(sample.age)} s;"
        f" there are {sample.known:,}"
    )
    return sample.items


def _queue_row(view: QueueView) -> tuple[object, ...]:
    spent = f"{view.spent:,}" + ("" if view.total_budget < 0 else f" of {view.total_budget:,}")
    return (
        *(view.key, _state(view), view.pending, view.in_flight, spent, view.errors_in_row),
        *(format_duration(view.wakes_in), view.next_url or ""),
    )


def _wide_row(view: QueueView) -> tuple[object, ...]:
    budget = "none" if view.total_budget < 0 else view.total_budget
    return (
        *(view.key, _state(view), budget, view.spent, view.balance, view.grant),
        *(view.last_cost, f"{view.average_cost:,.2f}", view.pending, view.done),
        view.errors_in_row,
    )


def _state(view: QueueView) -> str:
    return view.state + (f" ({view.reason})" if view.reason else "")


# ---- one queue


_LITERALS: Final = {"none": None, "true": True, "false": False}


class Act(StrEnum):
    """Actions of `queue`."""

    SHOW = "show"
    SET = "set"
    PAUSE = "pause"
    RESUME = "resume"
    RETIRE = "retire"
    REVIVE = "revive"
    SNOOZE = "snooze"
    WAKE = "wake"


def queue(
    store: Store,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Key of the queue, or a suffix such as .org.")
    ],
    act: Annotated[Act, typer.Argument(metavar="ACT", help=f"{', '.join(Act)}.")] = Act.SHOW,
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE|SECONDS", help="Arguments of set and snooze."),
    ] = None,
    *,
    by: By = None,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Show a queue, or steer it and show the result; changes are durable and act at once.

    `set` takes balance, total_budget, delay, max_in_flight, precedence and the other settings of
    politeness and budget; the value `none` undoes a change. Exits with 1 if there is no such queue.
    """
    arguments = parse_arguments(act, given or ())
    view = on_crawl(
        store, crawl, lambda frontier: act_on_queue(frontier, key, act, arguments), by=by
    )
    if as_json:
        print_json(view)
    else:
        show_pairs(_suffix_pairs(view) if isinstance(view, SuffixView) else queue_pairs(view))
    if _is_unknown(view):
        print_note(
            f"no task of {key} was ever added"
            + ("" if act is Act.SHOW else "; it applies to later tasks")
        )
        raise typer.Exit(1 if act is Act.SHOW else 0)


def parse_arguments(act: Act, given: Sequence[str]) -> dict[str, Any]:
    """The arguments of an action; raises InvalidInput for those it does not take."""
    if act is Act.SET:
        return _parse_changes(given)
    if act is Act.SNOOZE:
        if len(given) != 1:
            raise InvalidInput("queue snooze takes seconds, as in `snooze 15m`")
        return {"seconds": parse_seconds(given[0])}
    if given:
        raise InvalidInput(f"queue {act} takes no arguments; remove {given[0]!r}")
    return {}


def _parse_changes(given: Sequence[str]) -> dict[str, Any]:
    pairs = [text.partition("=") for text in given]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise InvalidInput(f"queue set takes NAME=VALUE, as in balance=100, not {name!r}")
    if not pairs:
        raise InvalidInput("queue set takes NAME=VALUE, as in balance=100")
    return {name: _parse_value(value) for name, _, value in pairs}


def _parse_value(text: str) -> object:
    """A number if the text is one; the settings check the type."""
    if text.lower() in _LITERALS:
        return _LITERALS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


async def act_on_queue(
    frontier: Frontier, key: str, act: Act, arguments: dict[str, Any]
) -> QueueView | SuffixView:
    """Run the action, and return the new view."""
    handle = frontier.queue(key)
    if act is Act.SHOW:
        return await handle.view()
    view: QueueView | SuffixView = await getattr(handle, act.value)(**arguments)
    return view


def _is_unknown(view: QueueView | SuffixView) -> bool:
    if isinstance(view, SuffixView):
        return not view.queues
    return not is_known(view)


def _suffix_pairs(view: SuffixView) -> Iterator[tuple[str, str]]:
    yield "suffix", view.key
    yield "queues", format_counts(view.queues)
    yield "pending", f"{view.pending:,}"
    yield "in flight", f"{view.in_flight:,}"
    yield "spent", f"{view.spent:,}"


def queue_pairs(view: QueueView) -> Iterator[tuple[str, str]]:
    """All fields of a queue, as text."""
    yield "queue", view.key
    yield "state", view.state + (f" ({view.reason})" if view.reason else "")
    yield "pending", f"{view.pending:,}, {view.delayed:,} of them not yet due"
    yield "in flight", f"{view.in_flight:,} of {view.max_in_flight:,}"
    yield (
        "done",
        f"{view.done:,}, {view.dead:,} dead, {view.dropped:,} dropped, {format_size(view.bytes)}",
    )
    yield "balance", f"{view.balance:,} left of {view.grant:,}"
    yield "spent", f"{view.spent:,} of {_total_budget(view)}; {view.average_cost:.2f} per visit"
    yield "precedence", f"{view.precedence:,}"
    yield "delay", f"{format_duration(view.delay)}, throttle level {view.level}"
    yield "errors", f"{view.errors_in_row:,} in a row"
    yield "last visit", format_instant(view.last_visit_at) or "none"
    yield "wakes in", format_duration(view.wakes_in) or "not by time alone"
    yield "next URL", view.next_url or "none"


def _total_budget(view: QueueView) -> str:
    return "no limit" if view.total_budget < 0 else f"{view.total_budget:,}"
