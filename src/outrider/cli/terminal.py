"""Output of commands to a terminal, a pipe or as JSON, and confirmation prompts.

Text that others wrote passes `printable`, and is never read as markup.
"""

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
_PIPE_WIDTH: Final = 100_000  # output to a program is never cut


# ---- JSON


def print_json(value: object) -> None:
    """Print a value as one line of ASCII JSON; structs by field, bytes in hexadecimal."""
    plain = msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True)
    text = json.dumps(plain, default=bytes.hex, allow_nan=False)
    sys.stdout.write(
        text.replace("\x7f", "\\u007f") + "\n"
    )  # the one control character that JSON does not escape


def fields_of(view: msgspec.Struct, **more: Any) -> dict[str, Any]:
    """A struct's fields and additional ones as one mapping."""
    return {name: getattr(view, name) for name in view.__struct_fields__} | more


# ---- text


def print_line(text: str) -> None:
    """Print a line on standard output."""
    sys.stdout.write(printable(text) + "\n")


def print_note(text: str) -> None:
    """Print a line on standard error, for remarks and errors.

    Errors quote arguments: addresses among them are shown without their secrets.
    """
    sys.stderr.write(f"outrider: {printable(hide_addresses(text, sys.argv[1:]))}\n")


def exit_with_problem(text: str) -> NoReturn:
    """Print the problem, and exit with 1."""
    print_note(text)
    raise typer.Exit(1)


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """Show a progress line on a terminal's standard error for the block; removed at its end."""
    with Console(stderr=True, highlight=False).status("…") as status:
        yield lambda text: status.update(Text(printable(text)))


def show_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair per line; long values are wrapped."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(printable(name)), _table_cell(value))
    _console().print(grid)


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Collection[str] = ()
) -> None:
    """Print a table as wide as the terminal, uncut in a pipe; the last column shrinks first."""
    console = _console()
    style = box.SIMPLE_HEAD if console.is_terminal else None
    table = Table(box=style, pad_edge=False, collapse_padding=console.is_terminal)
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        table.add_column(name, justify=justify, no_wrap=name != columns[-1])
    for row in rows:
        table.add_row(*(_table_cell(value, is_cut=True) for value in row))
    console.print(table)


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console


def terminal_width() -> int:
    """Return the width of the output in columns; a pipe has as many as there may be."""
    return _console().width


def _table_cell(value: object, *, is_cut: bool = False) -> Text:
    text = printable(f"{value:,}" if isinstance(value, int) else str(value))
    overflow: Literal["ellipsis", "fold"] = "ellipsis" if is_cut else "fold"
    return Text(text, _STYLES.get(text, ""), no_wrap=is_cut, overflow=overflow)


# ---- numbers as text


def format_counts(counts: Mapping[str, int]) -> str:
    """Counts by name, without zeros."""
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "none"


def format_count(count: int, thing: str) -> str:
    """A count and its noun, in singular or plural."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def format_instant(at: float | None) -> str:
    """An instant of the store's clock, in UTC; empty if None."""
    return "" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%SZ}"


def format_duration(seconds: float | None) -> str:
    """Seconds in a readable unit; empty if None."""
    if seconds is None:
        return ""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def format_size(count: int) -> str:
    """Bytes in a readable unit."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.4g} {unit}"
        value /= 1000
    return f"{value:,.4g} TB"


# ---- confirmation


def confirm(question: str, *, yes: bool) -> None:
    """Ask a user at a terminal to confirm; exit with 1 on "no". A program is not asked."""
    if not yes and is_interactive():
        typer.confirm(printable(question), abort=True, err=True)


def is_interactive() -> bool:
    """Whether standard input is a terminal, so that a user can be asked."""
    return sys.stdin.isatty()


def change_tasks(
    tasks: Callable[[bool], int], verb: str, past: str, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Change tasks and print how many; `tasks(True)` only counts. Exits with 1 if there are none.

    A user is asked between two calls, so that no store is held open during the prompt.
    """
    if not (dry_run or yes) and is_interactive():
        found = tasks(True)
        if found:
            confirm(f"{verb} {format_count(found, 'task')}?", yes=False)
    count = tasks(dry_run)
    if as_json:
        print_json({past: count, "dry_run": dry_run})
    else:
        print_line(f"{'would be ' if dry_run else ''}{past}: {format_count(count, 'task')}")
    raise typer.Exit(0 if count else 1)
