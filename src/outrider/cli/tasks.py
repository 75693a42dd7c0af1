"""`outrider tasks`, `explain`, `drop`, `forget` and `dead`: lists and changes of tasks."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
import typer

from outrider.cli.open_crawl import Columns, on_crawl, show_list
from outrider.cli.options import (
    By,
    Crawl,
    DryRun,
    Json,
    Key,
    Limit,
    OlderThan,
    Pattern,
    Reason,
    Store,
    Tag,
    Type,
    Yes,
)
from outrider.cli.terminal import (
    change_tasks,
    exit_with_problem,
    format_duration,
    format_instant,
    print_json,
    print_note,
    show_pairs,
    show_table,
)
from outrider.core.states import TaskState
from outrider.errors import InvalidInput
from outrider.frontier.reports import DeadLetter, Explanation, Term, dead_letter
from outrider.store.address import show_address

if TYPE_CHECKING:
    from outrider.frontier import Frontier
    from outrider.store.protocol import QueueView, TaskView


_TASK_COLUMNS: Final = ("number", "state", "type", "depth", "priority", "attempts", "reason", "URL")
_TASK_NUMBERS: Final = frozenset({"number", "depth", "priority", "attempts"})


def tasks(  # noqa: PLR0913 - a command's options are its arguments
    store: Store,
    *,
    key: Key = None,
    state: Annotated[
        TaskState | None, typer.Option("--state", help="Only tasks in this state.")
    ] = None,
    kind: Type = None,
    tag: Tag = None,
    reason: Reason = None,
    pattern: Pattern = None,
    older_than: OlderThan = None,
    limit: Limit = None,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """List tasks that match all given options, oldest first."""
    show_list(
        (store, crawl),
        lambda frontier: frontier.tasks(
            key=key,
            state=state,
            type=kind,
            tag=tag,
            reason=reason,
            pattern=pattern,
            older_than=older_than,
        ),
        Columns(_TASK_COLUMNS, _TASK_NUMBERS, _task_row),
        limit=limit,
        as_json=as_json,
    )


def _task_row(task: TaskView) -> tuple[object, ...]:
    return (
        *(task.number, task.state, task.type, task.depth, f"{task.priority:g}", task.attempts),
        *(task.reason or "", task.url),
    )


# ---- explain: O4


_ADMITTED: Final = ("known", "admissible")
_LACKS: Final = "checked without functions that only the crawl's own program has"


def explain(
    store: Store,
    url: Annotated[str, typer.Argument(metavar="URL", help="URL to explain.")],
    *,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Explain a URL: its identity, state, position and priority, or why it would be refused.

    Exits with 1 if the URL is not known and would be refused.
    """
    explanation, lacks = on_crawl(store, crawl, lambda frontier: explain_url(frontier, url))
    if as_json:
        print_json(explanation)
    else:
        show_pairs(_explain_pairs(explanation))
    if explanation.admission != "known" and lacks:
        print_note(f"{_LACKS}: {lacks}")
    raise typer.Exit(0 if explanation.admission in _ADMITTED else 1)


async def explain_url(frontier: Frontier, url: str) -> tuple[Explanation, str]:
    """The explanation, and which functions of the crawl's settings are missing here."""
    return await frontier.explain(url), frontier.lacks


def _explain_pairs(explanation: Explanation) -> Iterator[tuple[str, str]]:
    yield "URL", explanation.url
    yield "admission", _admission_text(explanation)
    if explanation.identity is not None:
        yield "identity", explanation.identity
        yield "fingerprint", explanation.fingerprint or ""
    if explanation.task is not None:
        yield from _task_pairs(explanation.task, explanation.typed_by)
    elif explanation.type is not None:
        yield "type", explanation.type
        yield "typed by", explanation.typed_by or ""
    if explanation.breakdown is not None:
        yield "priority", f"{explanation.breakdown.total:g} ({explanation.breakdown.source})"
        yield from ((f"  {term.name}", _term_text(term)) for term in explanation.terms)
    if explanation.queue is not None:
        yield "queue", _queue_text(explanation.queue)
    if explanation.place is not None:
        yield "place", f"{explanation.place:,} before it in its queue and lane"
        yield "", f"about {explanation.across or 0:,} before it in the whole crawl"
        yield "expected", _expected_text(explanation.expected_in)


def _admission_text(explanation: Explanation) -> str:
    if explanation.admission in _ADMITTED:
        return explanation.admission
    return f"refused: {explanation.admission}" + (
        f" ({explanation.detail})" if explanation.detail else ""
    )


def _task_pairs(task: TaskView, typed_by: str | None) -> Iterator[tuple[str, str]]:
    yield "state", task.state + (f" ({task.reason})" if task.reason else "")
    yield "type", f"{task.type}, depth {task.depth}, {task.lane}, {task.origin}"
    if typed_by is not None:
        yield "typed by", typed_by
    if task.tag is not None:
        yield "tag", task.tag
    if task.via is not None:
        yield "found on", task.via
    yield "attempts", f"{task.attempts}, {task.failures} failed, {task.crashes} lost"
    yield "discovered", format_instant(task.discovered_at)
    if task.due_at is not None:
        yield "due", format_instant(task.due_at)
    if task.finished_at is not None:
        yield "finished", format_instant(task.finished_at)
    if task.answer is not None:
        yield "answer", f"status {task.answer.status}, {task.answer.bytes:,} bytes"
    for at, worker, error in task.history:
        yield "failed", f"{format_instant(at)} {worker}: {error}"


def _term_text(term: Term) -> str:
    if term.setting is None:
        return f"{term.value:+g}"
    return f"{term.value:+g}   {term.setting} = {term.weight} ({term.origin})"


def _queue_text(queue: QueueView) -> str:
    why = f" ({queue.reason})" if queue.reason else ""
    return f"{queue.key}: {queue.state}{why}, {queue.pending:,} pending"


def _expected_text(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"in about {format_duration(seconds)}"


# ---- drop: C10


_DROP_WHICH: Final = (
    "drop: choose tasks by --key, --pattern, --type, --tag or --older-than; or all with --all"
)


def drop(  # noqa: PLR0913 - a command's options are its arguments
    store: Store,
    *,
    key: Key = None,
    pattern: Pattern = None,
    kind: Type = None,
    tag: Tag = None,
    older_than: OlderThan = None,
    everything: Annotated[bool, typer.Option("--all", help="Drop all pending tasks.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By = None,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Drop the pending tasks that match all given options.

    At a terminal it shows the count and asks for confirmation. Exits with 1 if nothing matches.
    """
    which = {"key": key, "pattern": pattern, "type": kind, "tag": tag, "older_than": older_than}
    if all(value is None for value in which.values()) is not everything:
        raise InvalidInput(_DROP_WHICH)
    if everything:
        which["pattern"] = ""

    def drop_or_count(only_count: bool) -> int:
        return on_crawl(
            store, crawl, lambda frontier: drop_tasks(frontier, which, dry_run=only_count), by=by
        )

    change_tasks(drop_or_count, "Drop", "dropped", dry_run=dry_run, yes=yes, as_json=as_json)


async def drop_tasks(frontier: Frontier, which: Mapping[str, Any], *, dry_run: bool) -> int:
    """Drop tasks, or only count them; return the number."""
    return await frontier.drop(**which, dry_run=dry_run)


# ---- forget: C10


_FORGET_WHICH: Final = (
    "forget: choose tasks by a URL, --key, --pattern, --type, --tag, --state or --older-than; "
    "or all with --all"
)


def forget(  # noqa: PLR0913 - a command's options are its arguments
    store: Store,
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="One URL, or an identity.")
    ] = None,
    *,
    key: Key = None,
    pattern: Pattern = None,
    kind: Type = None,
    tag: Tag = None,
    state: Annotated[
        TaskState | None, typer.Option("--state", help="Only tasks in this state.")
    ] = None,
    older_than: OlderThan = None,
    everything: Annotated[bool, typer.Option("--all", help="Forget all tasks.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By = None,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Forget the tasks that match all given options, whatever their state.

    They are dropped, and the next add of such a URL admits it again. At a terminal it shows the
    count and asks for confirmation. Exits with 1 if nothing matches.
    """
    chosen = {"url": url, "key": key, "pattern": pattern, "type": kind, "tag": tag}
    which: dict[str, Any] = {**chosen, "state": state, "older_than": older_than}
    if all(value is None for value in which.values()) is not everything:
        raise InvalidInput(_FORGET_WHICH)
    if everything:
        which["pattern"] = ""

    def forget_or_count(only_count: bool) -> int:
        return on_crawl(
            store,
            crawl,
            lambda frontier: forget_tasks(frontier, which, dry_run=only_count),
            by=by,
        )

    change_tasks(forget_or_count, "Forget", "forgotten", dry_run=dry_run, yes=yes, as_json=as_json)


async def forget_tasks(frontier: Frontier, which: Mapping[str, Any], *, dry_run: bool) -> int:
    """Forget tasks, or only count them; return the number."""
    return await frontier.forget(**which, dry_run=dry_run)


# ---- dead letters: G2


T = TypeVar("T")
_LETTER_COLUMNS: Final = ("died at", "type", "attempts", "reason", "URL")
_DEAD_WHICH: Final = "choose letters by a URL, --reason, --key or --type; or all with --all"


class DeadAct(StrEnum):
    """Actions of `dead`."""

    LIST = "list"
    SHOW = "show"
    REPLAY = "replay"
    PURGE = "purge"


class DeadRequest(msgspec.Struct, frozen=True):
    """The command line of `dead`."""

    store: str
    crawl: str
    url: str | None
    filters: Mapping[str, str | None]
    everything: bool
    by_reason: bool
    dry_run: bool
    yes: bool
    by: str | None
    limit: int | None
    as_json: bool

    def on_crawl(self, work: Callable[[Frontier], Awaitable[T]]) -> T:
        """Call `work` with the crawl."""
        return on_crawl(self.store, self.crawl, work, by=self.by)


def dead(  # noqa: PLR0913 - a command's options are its arguments
    store: Store,
    act: Annotated[
        DeadAct, typer.Argument(metavar="ACT", help="list, show, replay or purge.")
    ] = DeadAct.LIST,
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="Only the letter of this URL.")
    ] = None,
    *,
    reason: Reason = None,
    key: Key = None,
    kind: Type = None,
    everything: Annotated[bool, typer.Option("--all", help="Replay or purge all letters.")] = False,
    by_reason: Annotated[bool, typer.Option("--by-reason", help="List counts by reason.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By = None,
    limit: Limit = None,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """List dead letters, show one with every attempt, replay or purge them.

    Replayed tasks are pending again, with 0 attempts; purged ones are dropped, after confirmation.
    Exits with 1 if there is nothing to show, replay or purge.
    """
    filters = {"reason": reason, "key": key, "type": kind}
    request = DeadRequest(
        *(store, crawl, url, filters, everything, by_reason, dry_run, yes, by, limit, as_json)
    )
    _DEAD_ACTS[act](request)


def _show_command(request: DeadRequest) -> str:
    return f"outrider dead {shlex.quote(show_address(request.store))} show URL"


def _list_letters(request: DeadRequest) -> None:
    if request.url is not None:
        raise InvalidInput(f"dead list takes no URL; run `{_show_command(request)}`")
    if not request.by_reason:
        _list_all(request)
        return
    counts = request.on_crawl(lambda frontier: count_reasons(frontier, request.filters))
    if request.as_json:
        print_json(counts)
    else:
        show_table(
            ("letters", "reason"), [(n, name) for name, n in counts.items()], right={"letters"}
        )


def _list_all(request: DeadRequest) -> None:
    show_list(
        (request.store, request.crawl),
        lambda frontier: read_letters(frontier, request.filters),
        Columns(_LETTER_COLUMNS, {"attempts"}, _letter_row),
        limit=request.limit,
        as_json=request.as_json,
    )


def read_letters(frontier: Frontier, filters: Mapping[str, Any]) -> AsyncIterator[DeadLetter]:
    """The dead letters that match all filters."""
    return frontier.dead(**filters)


async def count_reasons(frontier: Frontier, filters: Mapping[str, Any]) -> dict[str, int]:
    """The count of each reason, the most frequent first."""
    counts = Counter([letter.reason async for letter in read_letters(frontier, filters)])
    return dict(counts.most_common())


def _show_letter(request: DeadRequest) -> None:
    if request.url is None:
        raise InvalidInput(f"dead show needs a URL, as in `{_show_command(request)}`")
    url = request.url
    letter = request.on_crawl(lambda frontier: find_letter(frontier, url))
    if not isinstance(letter, DeadLetter):
        exit_with_problem(f"{url} is not a dead letter: it is {letter}")
    if request.as_json:
        print_json(letter)
    else:
        show_pairs(letter_pairs(letter))


async def find_letter(frontier: Frontier, url: str) -> DeadLetter | str:
    """The dead letter of a URL, or its state if it is not dead."""
    task = (await frontier.explain(url)).task
    if task is None:
        return "not known"
    return dead_letter(task) if task.state is TaskState.DEAD else task.state.value


def _replay_letters(request: DeadRequest) -> None:
    _change_letters(request, "replay", "replayed", yes=True)


def _purge_letters(request: DeadRequest) -> None:
    _change_letters(request, "purge", "purged", yes=request.yes)


def _change_letters(request: DeadRequest, verb: str, past: str, *, yes: bool) -> None:
    is_chosen = request.url is not None or any(request.filters.values())
    if is_chosen is request.everything:
        raise InvalidInput(f"dead {verb}: {_DEAD_WHICH}")

    def change_or_count(only_count: bool) -> int:
        which = {**request.filters, "all": request.everything, "dry_run": only_count}
        count: int = request.on_crawl(
            lambda frontier: getattr(frontier, verb)(request.url, **which)
        )
        return count

    change_tasks(
        change_or_count,
        verb.title(),
        past,
        dry_run=request.dry_run,
        yes=yes,
        as_json=request.as_json,
    )


_DEAD_ACTS: Final[Mapping[DeadAct, Callable[[DeadRequest], None]]] = {
    DeadAct.LIST: _list_letters,
    DeadAct.SHOW: _show_letter,
    DeadAct.REPLAY: _replay_letters,
    DeadAct.PURGE: _purge_letters,
}


def _letter_row(letter: DeadLetter) -> tuple[object, ...]:
    return (
        *(format_instant(letter.died_at), letter.type, len(letter.attempts)),
        *(letter.reason, letter.url),
    )


def letter_pairs(letter: DeadLetter) -> Iterator[tuple[str, str]]:
    """All fields of a dead letter, as text."""
    yield "URL", letter.url
    yield "queue", letter.key
    yield "type", letter.type
    if letter.tag is not None:
        yield "tag", letter.tag
    if letter.meta:
        yield "meta", msgspec.json.encode(letter.meta).decode()
    yield "reason", letter.reason
    yield "died at", format_instant(letter.died_at)
    for number, attempt in enumerate(letter.attempts, 1):
        yield f"attempt {number}", f"{format_instant(attempt.at)} {attempt.worker}: {attempt.error}"
