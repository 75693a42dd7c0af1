"""`outrider dead`: the dead letters of a crawl, listed, shown, replayed and purged (G2)."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
import typer

from outrider.cli.asking import change
from outrider.cli.listing import Columns, show_list
from outrider.cli.opening import on_crawl
from outrider.cli.options import Crawl, DryRun, Json, Key, Limit, Reason, Store, Type, Yes
from outrider.cli.showing import found_wrong, instant, say_json, show_pairs, show_table
from outrider.core.states import TaskState
from outrider.errors import InvalidInput
from outrider.frontier.reports import DeadLetter, dead_letter
from outrider.store.address import show_address

if TYPE_CHECKING:
    from outrider.frontier import Frontier

T = TypeVar("T")
_NAMES: Final = ("died at", "type", "attempts", "reason", "URL")
_WHICH: Final = "say which: a URL, --reason, --key or --type; or --all, and not both"


class Act(StrEnum):
    """What to do with them."""

    LIST = "list"
    SHOW = "show"
    REPLAY = "replay"
    PURGE = "purge"


class Asked(msgspec.Struct, frozen=True):
    """What the command was asked, as one value."""

    store: str
    crawl: str
    url: str | None
    filters: Mapping[str, str | None]
    everything: bool
    by_reason: bool
    dry_run: bool
    yes: bool
    limit: int | None
    as_json: bool

    def ask(self, work: Callable[[Frontier], Awaitable[T]]) -> T:
        """Do some work on the crawl."""
        return on_crawl(self.store, self.crawl, work)


def dead(  # noqa: PLR0913 - a command's options are its arguments
    store: Store,
    act: Annotated[
        Act, typer.Argument(metavar="ACT", help="list, show, replay or purge.")
    ] = Act.LIST,
    url: Annotated[str | None, typer.Argument(metavar="URL", help="Only this one.")] = None,
    *,
    reason: Reason = None,
    key: Key = None,
    kind: Type = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Replay or purge: every one of them.")
    ] = False,
    by_reason: Annotated[bool, typer.Option("--by-reason", help="List: counts by reason.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    limit: Limit = None,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """List dead letters, show one with every attempt, replay or purge them.

    Replayed tasks are pending again, attempts at 0; purged ones are dropped, and a person is asked
    first. Leaves with 1 if there is nothing to show, replay or purge.
    """
    filters = {"reason": reason, "key": key, "type": kind}
    asked = Asked(
        *(store, crawl, url, filters, everything, by_reason, dry_run, yes, limit, as_json)
    )
    _ACTS[act](asked)


def _show_command(asked: Asked) -> str:
    return f"outrider dead {shlex.quote(show_address(asked.store))} show URL"


def _list(asked: Asked) -> None:
    if asked.url is not None:
        raise InvalidInput(f"dead list takes no URL; say `{_show_command(asked)}`")
    if not asked.by_reason:
        _list_each(asked)
        return
    counts = asked.ask(lambda frontier: counted(frontier, asked.filters))
    if asked.as_json:
        say_json(counts)
    else:
        show_table(
            ("letters", "reason"), [(n, name) for name, n in counts.items()], right={"letters"}
        )


def _list_each(asked: Asked) -> None:
    show_list(
        (asked.store, asked.crawl),
        lambda frontier: letters(frontier, asked.filters),
        Columns(_NAMES, {"attempts"}, _row),
        limit=asked.limit,
        as_json=asked.as_json,
    )


def letters(frontier: Frontier, filters: Mapping[str, Any]) -> AsyncIterator[DeadLetter]:
    """Those that match everything given."""
    return frontier.dead(**filters)


async def counted(frontier: Frontier, filters: Mapping[str, Any]) -> dict[str, int]:
    """How many of each reason, the most frequent first."""
    counts = Counter([letter.reason async for letter in letters(frontier, filters)])
    return dict(counts.most_common())


def _show(asked: Asked) -> None:
    if asked.url is None:
        raise InvalidInput(f"dead show needs a URL, as in `{_show_command(asked)}`")
    url = asked.url
    letter = asked.ask(lambda frontier: found(frontier, url))
    if not isinstance(letter, DeadLetter):
        found_wrong(f"no dead letter: {url} is {letter}")
    if asked.as_json:
        say_json(letter)
    else:
        show_pairs(pairs_of(letter))


async def found(frontier: Frontier, url: str) -> DeadLetter | str:
    """The dead letter of a URL, or what it is instead."""
    task = (await frontier.explain(url)).task
    if task is None:
        return "not known"
    return dead_letter(task) if task.state is TaskState.DEAD else task.state.value


def _replay(asked: Asked) -> None:
    _change(asked, "replay", "replayed", yes=True)


def _purge(asked: Asked) -> None:
    _change(asked, "purge", "purged", yes=asked.yes)


def _change(asked: Asked, verb: str, past: str, *, yes: bool) -> None:
    is_chosen = asked.url is not None or any(asked.filters.values())
    if is_chosen is asked.everything:
        raise InvalidInput(f"dead {verb}: {_WHICH}")

    def changed(only_count: bool) -> int:
        which = {**asked.filters, "all": asked.everything, "dry_run": only_count}
        count: int = asked.ask(lambda frontier: getattr(frontier, verb)(asked.url, **which))
        return count

    change(changed, verb.title(), past, dry_run=asked.dry_run, yes=yes, as_json=asked.as_json)


_ACTS: Final[Mapping[Act, Callable[[Asked], None]]] = {
    Act.LIST: _list,
    Act.SHOW: _show,
    Act.REPLAY: _replay,
    Act.PURGE: _purge,
}


def _row(letter: DeadLetter) -> tuple[object, ...]:
    return (
        *(instant(letter.died_at), letter.type, len(letter.attempts)),
        *(letter.reason, letter.url),
    )


def pairs_of(letter: DeadLetter) -> Iterator[tuple[str, str]]:
    """All of a dead letter, for people."""
    yield "URL", letter.url
    yield "queue", letter.key
    yield "type", letter.type
    if letter.tag is not None:
        yield "tag", letter.tag
    if letter.meta:
        yield "meta", msgspec.json.encode(letter.meta).decode()
    yield "reason", letter.reason
    yield "died at", instant(letter.died_at)
    for number, attempt in enumerate(letter.attempts, 1):
        yield f"attempt {number}", f"{instant(attempt.at)} {attempt.worker}: {attempt.error}"
