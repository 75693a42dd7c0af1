"""Before what cannot be taken back: a person at a terminal is asked, a program is not."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from outrider.cli.showing import many, say, say_json
from outrider.logs import printable


def confirm(question: str, *, yes: bool) -> None:
    """Go on, or leave with 1."""
    if not yes and is_person():
        typer.confirm(printable(question), abort=True, err=True)


def is_person() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def change(
    tasks: Callable[[bool], int], verb: str, past: str, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Change tasks and tell how many; `tasks(True)` only counts. Leaves with 1 if there are none.

    A person is asked between two calls, so that no store is held while they think.
    """
    if not (dry_run or yes) and is_person():
        found = tasks(True)
        if found:
            confirm(f"{verb} {many(found, 'task')}?", yes=False)
    count = tasks(dry_run)
    if as_json:
        say_json({past: count, "dry_run": dry_run})
    else:
        say(f"{'would be ' if dry_run else ''}{past}: {many(count, 'task')}")
    raise typer.Exit(0 if count else 1)
