"""`outrider queue`: one queue, or all of a suffix, shown and steered (E7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from outrider.cli.opening import on_crawl
from outrider.cli.options import Crawl, Json, Store, seconds_of
from outrider.cli.showing import (
    count_words,
    duration,
    instant,
    note,
    say_json,
    show_pairs,
    size,
)
from outrider.errors import InvalidInput
from outrider.frontier.admin import is_known
from outrider.frontier.reports import SuffixView
from outrider.store.protocol import QueueView

if TYPE_CHECKING:
    from outrider.frontier import Frontier

_WORDS: Final = {"none": None, "true": True, "false": False}


class Act(StrEnum):
    """What to do with it."""

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
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key, or a suffix such as .org.")],
    act: Annotated[Act, typer.Argument(metavar="ACT", help=f"{', '.join(Act)}.")] = Act.SHOW,
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE|SECONDS", help="For set, and for snooze."),
    ] = None,
    *,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Show a queue or steer it: live, durable, and answered with the new view.

    `set` takes balance, total_budget, delay, max_in_flight, precedence and the other settings of
    politeness and budget; none takes a change back. Leaves with 1 if there is nothing to show.
    """
    asked = arguments_of(act, given or ())
    view = on_crawl(store, crawl, lambda frontier: run(frontier, key, act, asked))
    if as_json:
        say_json(view)
    else:
        show_pairs(_sums(view) if isinstance(view, SuffixView) else pairs_of(view))
    if _is_unknown(view):
        note(
            f"no task of {key} was ever added" + ("" if act is Act.SHOW else "; it holds for later")
        )
        raise typer.Exit(1 if act is Act.SHOW else 0)


def arguments_of(act: Act, given: Sequence[str]) -> dict[str, Any]:
    """What an act is called with; whatever it cannot take is refused."""
    if act is Act.SET:
        return _changes(given)
    if act is Act.SNOOZE:
        if len(given) != 1:
            raise InvalidInput("queue snooze takes seconds, as in `snooze 15m`")
        return {"seconds": seconds_of(given[0])}
    if given:
        raise InvalidInput(f"queue {act} takes nothing after it, not {given[0]!r}")
    return {}


def _changes(given: Sequence[str]) -> dict[str, Any]:
    pairs = [text.partition("=") for text in given]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise InvalidInput(f"queue set takes NAME=VALUE, as in balance=100, not {name!r}")
    if not pairs:
        raise InvalidInput("queue set takes NAME=VALUE, as in balance=100")
    return {name: _value(value) for name, _, value in pairs}


def _value(text: str) -> object:
    """A number if it is one; the settings know which kind each of them takes."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


async def run(
    frontier: Frontier, key: str, act: Act, asked: dict[str, Any]
) -> QueueView | SuffixView:
    """Act, and see what it came to."""
    handle = frontier.queue(key)
    if act is Act.SHOW:
        return await handle.view()
    view: QueueView | SuffixView = await getattr(handle, act.value)(**asked)
    return view


def _is_unknown(view: QueueView | SuffixView) -> bool:
    if isinstance(view, SuffixView):
        return not view.queues
    return not is_known(view)


def _sums(view: SuffixView) -> Iterator[tuple[str, str]]:
    yield "suffix", view.key
    yield "queues", count_words(view.queues)
    yield "pending", f"{view.pending:,}"
    yield "in flight", f"{view.in_flight:,}"
    yield "spent", f"{view.spent:,}"


def pairs_of(view: QueueView) -> Iterator[tuple[str, str]]:
    """All of a queue, for people."""
    yield "queue", view.key
    yield "state", view.state + (f" ({view.reason})" if view.reason else "")
    yield "pending", f"{view.pending:,}, {view.delayed:,} of them not yet due"
    yield "in flight", f"{view.in_flight:,} of {view.max_in_flight:,}"
    yield "done", f"{view.done:,}, {view.dead:,} dead, {view.dropped:,} dropped, {size(view.bytes)}"
    yield "balance", f"{view.balance:,} left of {view.grant:,}"
    yield "spent", f"{view.spent:,} of {_total(view)}; {view.average_cost:.2f} a visit"
    yield "precedence", f"{view.precedence:,}"
    yield "delay", f"{duration(view.delay)}, throttle level {view.level}"
    yield "errors", f"{view.errors_in_row:,} in a row"
    yield "last visit", instant(view.last_visit_at) or "none"
    yield "wakes in", duration(view.wakes_in) or "not by time alone"
    yield "next URL", view.next_url or "none"


def _total(view: QueueView) -> str:
    return "no limit" if view.total_budget < 0 else f"{view.total_budget:,}"
