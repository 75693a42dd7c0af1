"""All commands in one place, and what every one of them promises about errors and exit codes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from outrider import __version__
from outrider.cli import (
    add,
    bench,
    checkpoint,
    config,
    copy,
    crawl,
    dead,
    demo,
    doctor,
    drop,
    explain,
    export,
    heatmap,
    importing,
    queue,
    queues,
    rescore,
    signals,
    simulate,
    stats,
    tasks,
    turn,
    version,
    watch,
    work,
    workers,
)
from outrider.cli.showing import note
from outrider.errors import OutriderError
from outrider.logs import escape
from outrider.store.address import hide_addresses

HELP: Final = """\
A crawl frontier: decides which URL is visited next, politely, within budget, losing nothing.

Exit codes: 0 all is well; 1 something was found wrong, or nothing was found; 2 the command cannot
do what it was asked, and says why on standard error.
"""
REFUSED: Final = 2
DRIVERS: Final = ("psycopg", "redis")
EXTRAS: Final = {  # which of ours brings a package that a command may miss
    **dict.fromkeys(("aiohttp", "brotli", "protego", "selectolax"), "crawl"),
    "textual": "cli",
    "warcio": "warc",
}


class _Commands(TyperGroup):
    """All commands; what is wrong with their arguments is said without secrets of an address."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """See click: reads the arguments before the command's name."""
        with _usage_shown():
            return super().make_context(*args, **kwargs)

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        """See click: reads the arguments of the command, and runs it."""
        with _usage_shown():
            return super().invoke(*args, **kwargs)


@contextmanager
def _usage_shown() -> Iterator[None]:
    """Errors of click quote arguments; which click that is depends on the release of typer."""
    try:
        yield
    except Exception as error:
        message = getattr(error, "message", None)
        if hasattr(error, "format_message") and isinstance(message, str):
            setattr(error, "message", hide_addresses(message, sys.argv[1:]))  # noqa: B010 - its type has no such field
        raise


app = typer.Typer(
    name="outrider",
    cls=_Commands,
    help=HELP,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: Final[Mapping[str, Mapping[str, Callable[..., None]]]] = {
    "Crawling": {
        "crawl": crawl.crawl,
        "work": work.work,
    },
    "A crawl in a store": {
        "add": add.add,
        "watch": watch.watch,
        "workers": workers.workers,
        "stats": stats.stats,
        "queues": queues.queues,
        "tasks": tasks.tasks,
        "heatmap": heatmap.heatmap,
        "explain": explain.explain,
        "queue": queue.queue,
        "drop": drop.drop,
        "rescore": rescore.rescore,
        "signals": signals.signals,
        "predict": signals.predict,
        "problem": signals.problem,
        "dead": dead.dead,
        "pause": turn.pause,
        "resume": turn.resume,
        "cancel": turn.cancel,
        "export": export.export,
        "import": importing.import_,
    },
    "A store as a whole": {
        "copy": copy.copy,
        "checkpoint": checkpoint.checkpoint,
        "doctor": doctor.doctor,
    },
    "Outrider itself": {
        "demo": demo.demo,
        "simulate": simulate.simulate,
        "bench": bench.bench,
        "version": version.version,
    },
}
for _panel, _commands in COMMANDS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(_command)
app.add_typer(config.config, name="config", rich_help_panel="A crawl in a store")


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
    """Run the command line; an error of ours, or of the system, is one line, never a traceback."""
    _quieten()
    try:
        app(prog_name="outrider")
    except OutriderError as error:
        note(str(error))
        return REFUSED
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        note(f"{error.name} is not installed: pip install 'outrider[{extra}]'")
        return REFUSED
    except OSError as error:
        note(f"{error.filename or 'the system'}: {error.strerror or error}")
        return REFUSED
    return 0


def _quieten() -> None:
    """What a driver has to say comes as an error of ours, once; its log would say it every time."""
    for name in DRIVERS:
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False
    if not logging.getLogger().handlers:  # else Python would print records as they are
        logging.getLogger().addHandler(LogLines(logging.WARNING))


class LogLines(logging.Handler):
    """Log records, of Outrider and of libraries, as lines on standard error like all others."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; what cannot be written is dropped."""
        with suppress(Exception):
            escape(record)
            for line in (record.getMessage(), *(record.exc_text or "").splitlines()):
                note(line)


__all__ = ["__version__", "app", "run"]
