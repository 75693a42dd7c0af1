"""Operators' acts as events of a store: what is logged about who did what (O3).

An act that says who did it (`by`) is logged once, at its first step, before what it causes; all
events of its steps carry `by`. An act without a name is logged only by what it causes.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

import msgspec

from outrider.core import queue_action as actions
from outrider.core.pattern import compile_pattern
from outrider.errors import InvalidInput
from outrider.store.protocol import MAX_BY_CHARS, TaskFilter

PREFIX: Final = "act-"  # of the names of these events
MAX_TEXT: Final = 500  # characters of a subject or detail


class Act(NamedTuple):
    """What the event of an act says."""

    name: str
    subject: str
    detail: str


def validate_by(by: object) -> None:
    """Raise InvalidInput unless `by` is a name that can be shown and stored."""
    if not isinstance(by, str) or len(by) > MAX_BY_CHARS or not by.isprintable():
        raise InvalidInput(
            f"by = {str(by)[:MAX_BY_CHARS]!r} must be printable text of at most"
            f" {MAX_BY_CHARS} characters"
        )


def act_of_configure(crawl: str) -> Act:
    """Return the act of replacing a crawl's rules; which settings changed is in their history."""
    return Act(f"{PREFIX}configure", _short(crawl), "")


def act_of_steer(target: str, act: actions.QueueAction, after: int) -> Act | None:
    """Return the act of steering queues.

    None: a later step, or one that only applies rules that another act has set.
    """
    if after or (not target and act == actions.Set({})):
        return None
    return Act(f"{PREFIX}queue-{type(act).__name__.lower()}", _short(target), _values_of(act))


def act_of_filter(verb: str, which: TaskFilter, after: int, *, dry_run: bool) -> Act | None:
    """Return the act of changing the tasks of a filter; None: a later step, or a dry run.

    Raises InvalidInput if the pattern is no regular expression.
    """
    if which.pattern is not None:
        compile_pattern(which.pattern)
    if after or dry_run:
        return None
    fields = msgspec.structs.asdict(which).items()
    text = " ".join(f"{name}={_json(value)}" for name, value in fields if value is not None)
    return Act(f"{PREFIX}{verb}", _short(text), "")


def _values_of(act: actions.QueueAction) -> str:
    match act:
        case actions.Set(changes):
            return _short(_json(dict(changes)))
        case actions.Snooze(seconds):
            return f"{seconds:g}"
        case _:
            return ""


def _json(value: Any) -> str:
    return json.dumps(value, default=_plain)


def _plain(value: object) -> str:
    """Return the text of a value that JSON lacks: a fingerprint, or a function."""
    return value.hex() if isinstance(value, bytes) else "custom"


def _short(text: str) -> str:
    return (text if text.isprintable() else ascii(text))[:MAX_TEXT]
