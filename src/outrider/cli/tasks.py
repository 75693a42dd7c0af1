"""`outrider tasks`: the tasks of a crawl that match everything given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from outrider.cli.listing import Columns, show_list
from outrider.cli.options import (
    Crawl,
    Json,
    Key,
    Limit,
    OlderThan,
    Pattern,
    Reason,
    Store,
    Tag,
    Type,
)
from outrider.core.states import TaskState

if TYPE_CHECKING:
    from outrider.store.protocol import TaskView

_NAMES: Final = ("number", "state", "type", "depth", "priority", "attempts", "reason", "URL")
_NUMBERS: Final = frozenset({"number", "depth", "priority", "attempts"})


def tasks(  # noqa: PLR0913 - a command's options are its arguments
    store: Store,
    *,
    key: Key = None,
    state: Annotated[TaskState | None, typer.Option("--state", help="Only in this state.")] = None,
    kind: Type = None,
    tag: Tag = None,
    reason: Reason = None,
    pattern: Pattern = None,
    older_than: OlderThan = None,
    limit: Limit = None,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """List tasks that match everything given, in order of their discovery."""
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
        Columns(_NAMES, _NUMBERS, _row),
        limit=limit,
        as_json=as_json,
    )


def _row(task: TaskView) -> tuple[object, ...]:
    return (
        *(task.number, task.state, task.type, task.depth, f"{task.priority:g}", task.attempts),
        *(task.reason or "", task.url),
    )
