"""Arguments and options that commands share, with one name and one meaning in all of them."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

import typer

TABLE_ROWS: Final = 100  # of a list shown as a table, without --limit

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_seconds(text: str) -> float:
    """Parse seconds, or a number with a unit: 90, 1.5h, 7d."""
    found = _DURATION.fullmatch(str(text))
    if found is None:
        raise typer.BadParameter(
            f"{text!r} is not a duration: give seconds, or a number with s, m, h, d or w, as in 2h"
        )
    return float(found[1]) * _UNITS[found[2]]


Store: TypeAlias = Annotated[
    str, typer.Argument(metavar="STORE", help="File or URL of the store.", show_default=False)
]
Crawl: TypeAlias = Annotated[
    str, typer.Option("--crawl", metavar="NAME", help="Name of the crawl in the store.")
]
Profile: TypeAlias = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="Profile to start with; see `config profiles`."),
]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON: one object, or one per line.")
]
Limit: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=0,
        help=f"Maximal number of items; 0: all.  [default: {TABLE_ROWS} in a table, all as JSON]",
        show_default=False,
    ),
]
Key: TypeAlias = Annotated[str | None, typer.Option("--key", help="Only tasks of this queue.")]
Type: TypeAlias = Annotated[str | None, typer.Option("--type", help="Only tasks of this type.")]
Tag: TypeAlias = Annotated[str | None, typer.Option("--tag", help="Only tasks with this tag.")]
Reason: TypeAlias = Annotated[
    str | None, typer.Option("--reason", help="Only tasks with this reason.")
]
Pattern: TypeAlias = Annotated[
    str | None,
    typer.Option("--pattern", help="Only tasks whose URL matches this regular expression."),
]
OlderThan: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--older-than",
        metavar="SECONDS",
        parser=parse_seconds,
        help="Only tasks known for longer: 90, 15m, 2h, 7d.",
    ),
]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Only count; change nothing.")]
By: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="NAME",
        help="Who does this, for history and events.  [default: user@host]",
        show_default=False,
    ),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]


def row_limit(limit: int | None, *, as_json: bool) -> int | None:
    """The greatest number of items to show; None: no limit."""
    if limit is None:
        return None if as_json else TABLE_ROWS
    return limit or None
