"""The `outrider` command: all subcommands, and how errors become messages and exit codes."""

from __future__ import annotations

import logging
import platform
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
    config,
    crawl,
    crawls,
    demo,
    doctor,
    events,
    queues,
    score,
    simulate,
    stats,
    steer,
    tasks,
    transfer,
    watch,
)
from outrider.cli.terminal import print_note
from outrider.errors import OutriderError
from outrider.logs import escape
from outrider.store.address import hide_addresses

HELP: Final = """\
A crawl frontier: decides which URL is visited next, politely, within budget, losing nothing.

Exit codes: 0 success; 1 a problem was found, or nothing was found; 2 the command cannot be carried
out, and says why on standard error.
"""
EXIT_REFUSED: Final = 2
DRIVERS: Final = ("psycopg", "redis")
EXTRAS: Final = {  # the extra that installs a package
    **dict.fromkeys(("aiohttp", "brotli", "protego", "selectolax"), "crawl"),
    "textual": "cli",
    "warcio": "warc",
}


class _Commands(TyperGroup):
    """All commands; errors about their arguments are shown without the secrets of addresses."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the arguments before the command's name; see click."""
        with _usage_without_secrets():
            return super().make_context(*args, **kwargs)

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the arguments of the command, and run it; see click."""
        with _usage_without_secrets():
            return super().invoke(*args, **kwargs)


@contextmanager
def _usage_without_secrets() -> Iterator[None]:
    """Hide secrets in click's errors, which quote arguments; typer may bring its own click."""
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


def version() -> None:
    """Show the version."""
    sys.stdout.write(f"outrider {__version__}, Python {platform.python_version()}\n")


COMMANDS: Final[Mapping[str, Mapping[str, Callable[..., None]]]] = {
    "Crawling": {
        "crawl": crawl.crawl,
        "work": crawl.work,
        "score": score.score,
    },
    "A crawl in a store": {
        "add": add.add,
        "watch": watch.watch,
        "events": events.events,
        "workers": stats.workers,
        "stats": stats.stats,
        "progress": crawls.progress,
        "queues": queues.queues,
        "tasks": tasks.tasks,
        "heatmap": stats.heatmap,
        "explain": tasks.explain,
        "queue": queues.queue,
        "drop": tasks.drop,
        "forget": tasks.forget,
        "rescore": steer.rescore,
        "signals": steer.signals,
        "predict": steer.predict,
        "problem": steer.problem,
        "dead": tasks.dead,
        "pause": steer.pause,
        "resume": steer.resume,
        "cancel": steer.cancel,
        "export": transfer.export,
        "import": transfer.import_,
    },
    "A store as a whole": {
        "crawls": crawls.crawls,
        "delete": crawls.delete,
        "copy": transfer.copy,
        "checkpoint": transfer.checkpoint,
        "doctor": doctor.doctor,
    },
    "Outrider itself": {
        "demo": demo.demo,
        "simulate": simulate.simulate,
        "bench": bench.bench,
        "version": version,
    },
}
for _panel, _commands in COMMANDS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(_command)
app.add_typer(config.config, name="config", rich_help_panel="A crawl in a store")


def _show_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _common(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options of the command itself."""


def run() -> int:
    """Run the command line; errors of Outrider and the system are one line, not a traceback."""
    _configure_logging()
    try:
        app(prog_name="outrider")
    except OutriderError as error:
        print_note(str(error))
        return EXIT_REFUSED
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        print_note(f"{error.name} is not installed: pip install 'outrider[{extra}]'")
        return EXIT_REFUSED
    except OSError as error:
        print_note(f"{error.filename or 'system error'}: {error.strerror or error}")
        return EXIT_REFUSED
    return 0


def _configure_logging() -> None:
    """Show log records as lines; silence drivers, whose messages Outrider's errors repeat."""
    for name in DRIVERS:
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False
    if not logging.getLogger().handlers:  # else Python would print records unescaped
        logging.getLogger().addHandler(LogLines(logging.WARNING))


class LogLines(logging.Handler):
    """Writes log records of Outrider and of libraries as lines on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; one that cannot be written is dropped."""
        with suppress(Exception):
            escape(record)
            for line in (record.getMessage(), *(record.exc_text or "").splitlines()):
                print_note(line)


__all__ = ["__version__", "app", "run"]
