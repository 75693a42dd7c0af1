"""Values → a terminal, a pipe, or JSON: all text of others passes `printable`, never as markup."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Literal, NoReturn

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.logs import printable
from outrider.store.address import hide_addresses

STATES: Final = {
    "ready": "green",
    "busy": "cyan",
    "snoozed": "blue",
    "inactive": "magenta",
    "paused": "magenta",
    "retired": "yellow",
    "empty": "dim",
}
OUTCOMES: Final = {
    "done": "green",
    "failed": "red",
    "throttled": "yellow",
    "blocked": "yellow",
    "unreachable": "red",
}
_STYLES: Final = {**STATES, **OUTCOMES, "dead": "red", "running": "green", "cancelled": "red"}
_PIPE_WIDTH: Final = 100_000  # what goes to a program is never cut


# ---- for programs


def say_json(value: object) -> None:
    """One value as one line of ASCII; a struct by its fields, bytes in hexadecimal."""
    plain = msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True)
    text = json.dumps(plain, default=bytes.hex, allow_nan=False)
    sys.stdout.write(text.replace("\x7f", "\\u007f") + "\n")  # the one control JSON leaves alone


def fields_of(view: msgspec.Struct, **more: Any) -> dict[str, Any]:
    """A struct's fields, and more, as one mapping."""
    return {name: getattr(view, name) for name in view.__struct_fields__} | more


# ---- for people


def say(text: str) -> None:
    """A line on standard output."""
    sys.stdout.write(printable(text) + "\n")


def note(text: str) -> None:
    """A line on standard error: true, and not the answer.

    Errors quote arguments: an address among them is shown without its secrets.
    """
    sys.stderr.write(f"outrider: {printable(hide_addresses(text, sys.argv[1:]))}\n")


def found_wrong(text: str) -> NoReturn:
    """Leave with 1, saying what was found."""
    note(text)
    raise typer.Exit(1)


@contextmanager
def working() -> Iterator[Callable[[str], None]]:
    """A line on a terminal's standard error while something takes long; gone at the end."""
    with Console(stderr=True, highlight=False).status("…") as status:
        yield lambda text: status.update(Text(printable(text)))


def show_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values, one a line; long values go on below."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(printable(name)), _cell(value))
    _console().print(grid)


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Collection[str] = ()
) -> None:
    """A table as wide as the terminal, or in a pipe as it needs; the last column gives way."""
    console = _console()
    style = box.SIMPLE_HEAD if console.is_terminal else None
    table = Table(box=style, pad_edge=False, collapse_padding=console.is_terminal)
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        table.add_column(name, justify=justify, no_wrap=name != columns[-1])
    for row in rows:
        table.add_row(*(_cell(value, is_cut=True) for value in row))
    console.print(table)


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console


def _cell(value: object, *, is_cut: bool = False) -> Text:
    text = printable(f"{value:,}" if isinstance(value, int) else str(value))
    overflow: Literal["ellipsis", "fold"] = "ellipsis" if is_cut else "fold"
    return Text(text, _STYLES.get(text, ""), no_wrap=is_cut, overflow=overflow)


# ---- words for numbers


def count_words(counts: Mapping[str, int]) -> str:
    """Counts by name, the zeros left out."""
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "none"


def many(count: int, thing: str) -> str:
    """A count of things in words."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def instant(at: float | None) -> str:
    """An instant of the store's clock, in UTC."""
    return "" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%SZ}"


def duration(seconds: float | None) -> str:
    """Seconds as people say them."""
    if seconds is None:
        return ""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def size(count: int) -> str:
    """Bytes as people say them."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.4g} {unit}"
        value /= 1000
    return f"{value:,.4g} TB"
