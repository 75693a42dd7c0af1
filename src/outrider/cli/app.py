"""All commands in one place, and what every one of them promises about errors and exit codes."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from outrider import __version__
from outrider.cli import bench, demo, simulate, version
from outrider.errors import OutriderError

HELP: Final = """\
A crawl frontier: decides which URL is visited next, politely, within budget, losing nothing.

Exit codes: 0 all is well; 1 the run found something wrong; 2 the command cannot do what it was
asked, and says why on standard error.
"""
REFUSED: Final = 2

app = typer.Typer(
    name="outrider",
    help=HELP,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("bench")(bench.bench)
app.command("demo")(demo.demo)
app.command("simulate")(simulate.simulate)
app.command("version")(version.version)


def _show_version(wanted: bool) -> None:
    if wanted:
        version.version()
        raise typer.Exit


@app.callback()
def _common(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """What holds for every command."""


def run() -> int:
    """Run the command line; an error of ours is one line, never a traceback."""
    try:
        app(prog_name="outrider")
    except OutriderError as error:
        sys.stderr.write(f"outrider: {error}\n")
        return REFUSED
    return 0


__all__ = ["__version__", "app", "run"]
