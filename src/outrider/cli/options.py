"""What commands on a store share in their arguments: one word, one meaning, in all of them."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

import typer

TABLE_ROWS: Final = 100  # of a list, in a table, unless --limit says otherwise

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds_of(text: str) -> float:
    """Seconds, or a number with a unit: 90, 1.5h, 7d."""
    found = _DURATION.fullmatch(str(text))
    if found is None:
        raise typer.BadParameter(f"{text!r}: seconds, or a number with s, m, h, d or w, as in 2h")
    return float(found[1]) * _UNITS[found[2]]


Store: TypeAlias = Annotated[
    str, typer.Argument(metavar="STORE", help="A file, or the URL of a store.", show_default=False)
]
Crawl: TypeAlias = Annotated[
    str, typer.Option("--crawl", metavar="NAME", help="Which crawl of the store.")
]
Profile: TypeAlias = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="What to begin with; `config profiles`."),
]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="For programs: one JSON object, or one a line.")
]
Limit: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=0,
        help=f"How many at most; 0: all.  [default: {TABLE_ROWS} in a table, all as JSON]",
        show_default=False,
    ),
]
Key: TypeAlias = Annotated[str | None, typer.Option("--key", help="Only of this queue.")]
Type: TypeAlias = Annotated[str | None, typer.Option("--type", help="Only of this type.")]
Tag: TypeAlias = Annotated[str | None, typer.Option("--tag", help="Only with this tag.")]
Reason: TypeAlias = Annotated[str | None, typer.Option("--reason", help="Only for this reason.")]
Pattern: TypeAlias = Annotated[
    str | None, typer.Option("--pattern", help="Only if this regular expression is in the URL.")
]
OlderThan: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--older-than",
        metavar="SECONDS",
        parser=seconds_of,
        help="Only if known for longer; 90, 15m, 2h, 7d.",
    ),
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Only count; nothing is changed.")
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, even a person.")]


def rows(limit: int | None, *, as_json: bool) -> int | None:
    """How many items a list may have; None: no bound."""
    if limit is None:
        return None if as_json else TABLE_ROWS
    return limit or None
