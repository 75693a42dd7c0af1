"""`outrider explain`: why a URL is where it is, or why it would be refused (O4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from outrider.cli.opening import on_crawl
from outrider.cli.options import Crawl, Json, Store
from outrider.cli.showing import duration, instant, note, say_json, show_pairs
from outrider.frontier.reports import Explanation, Term

if TYPE_CHECKING:
    from outrider.frontier import Frontier
    from outrider.store.protocol import QueueView, TaskView

_IN: Final = ("known", "admissible")
_LACKS: Final = "judged without what only the crawl's own program has"


def explain(
    store: Store,
    url: Annotated[str, typer.Argument(metavar="URL", help="The URL to explain.")],
    *,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Say why a URL is where it is: its identity, state, place in line and priority.

    Leaves with 1 if the URL is not known and would be refused.
    """
    told, lacks = on_crawl(store, crawl, lambda frontier: run(frontier, url))
    if as_json:
        say_json(told)
    else:
        show_pairs(_pairs(told))
    if told.admission != "known" and lacks:
        note(f"{_LACKS}: {lacks}")
    raise typer.Exit(0 if told.admission in _IN else 1)


async def run(frontier: Frontier, url: str) -> tuple[Explanation, str]:
    """Why, and what of the crawl's settings cannot be had here."""
    return await frontier.explain(url), frontier.lacks


def _pairs(told: Explanation) -> Iterator[tuple[str, str]]:
    yield "URL", told.url
    yield "admission", _admission(told)
    if told.identity is not None:
        yield "identity", told.identity
        yield "fingerprint", told.fingerprint or ""
    if told.task is not None:
        yield from _task_pairs(told.task)
    if told.breakdown is not None:
        yield "priority", f"{told.breakdown.total:g} ({told.breakdown.source})"
        yield from ((f"  {term.name}", _term(term)) for term in told.terms)
    if told.queue is not None:
        yield "queue", _queue(told.queue)
    if told.place is not None:
        yield "place", f"{told.place:,} before it in its queue and lane"
        yield "", f"about {told.across or 0:,} before it in the whole crawl"
        yield "expected", _expected(told.expected_in)


def _admission(told: Explanation) -> str:
    if told.admission in _IN:
        return told.admission
    return f"refused: {told.admission}" + (f" ({told.detail})" if told.detail else "")


def _task_pairs(task: TaskView) -> Iterator[tuple[str, str]]:
    yield "state", task.state + (f" ({task.reason})" if task.reason else "")
    yield "type", f"{task.type}, depth {task.depth}, {task.lane}, {task.origin}"
    if task.tag is not None:
        yield "tag", task.tag
    if task.via is not None:
        yield "found on", task.via
    yield "attempts", f"{task.attempts}, {task.failures} failed, {task.crashes} lost"
    yield "discovered", instant(task.discovered_at)
    if task.due_at is not None:
        yield "due", instant(task.due_at)
    if task.finished_at is not None:
        yield "finished", instant(task.finished_at)
    if task.answer is not None:
        yield "answer", f"status {task.answer.status}, {task.answer.bytes:,} bytes"
    for at, worker, error in task.history:
        yield "went wrong", f"{instant(at)} {worker}: {error}"


def _term(term: Term) -> str:
    if term.setting is None:
        return f"{term.value:+g}"
    return f"{term.value:+g}   {term.setting} = {term.weight} ({term.origin})"


def _queue(queue: QueueView) -> str:
    why = f" ({queue.reason})" if queue.reason else ""
    return f"{queue.key}: {queue.state}{why}, {queue.pending:,} pending"


def _expected(seconds: float | None) -> str:
    return "cannot be told" if seconds is None else f"in about {duration(seconds)}"
