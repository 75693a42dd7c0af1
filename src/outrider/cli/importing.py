"""`outrider import`: an export becomes a crawl again; one that is not whole lends nothing (I5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.opening import on_crawl
from outrider.cli.options import Crawl, Json, Store
from outrider.cli.showing import fields_of, many, note, say, say_json, working
from outrider.cli.streams import Read, chunks, reading
from outrider.errors import InvalidInput, OutriderError
from outrider.frontier.reports import RestoreReport

if TYPE_CHECKING:
    from outrider.frontier import Frontier


class Progress:
    """How far it came, for whoever watches and whoever is interrupted."""

    def __init__(self, see: Callable[[str], None]) -> None:
        self.report = RestoreReport()
        self._see = see

    def __call__(self, report: RestoreReport) -> None:
        """One block more."""
        self.report = report
        self._see(_summary(report))


def import_(
    store: Store,
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="An export; .gz is unpacked; - is a pipe.")
    ] = "-",
    *,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Restore a crawl from an export; creates the file, and the crawl, if there is none.

    The crawl must have no tasks. It lends nothing until all was read. If that breaks off, import
    the same export again: what is there is left alone.
    """
    name = "standard input" if file == "-" else file
    with reading(file) as read, working() as see:
        begin, progress = read(), Progress(see)
        with _named(name), _told_if_cut(progress):
            _check_begin(begin)
            status = on_crawl(
                store,
                crawl,
                lambda frontier: run(frontier, begin, read, progress),
                creates=True,
            )
    if as_json:
        say_json(fields_of(progress.report, into=crawl, status=status))
    else:
        say(f"{_summary(progress.report)} into {crawl}, which is {status}")


async def run(frontier: Frontier, begin: bytes, read: Read, progress: Progress) -> str:
    """Restore all of it; answers the crawl's status then."""
    progress.report = await frontier.restore(chunks(begin, read), progress=progress)
    return (await frontier.store.crawl(frontier.crawl)).status.value


def _check_begin(begin: bytes) -> None:
    """Refuse what is no export before a file is made for it."""
    from outrider.frontier.export import Reader

    reader = Reader()
    if begin:
        list(reader.feed(begin.partition(b"\n")[0] + b"\n"))
    else:
        reader.end()


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except InvalidInput as error:
        text = str(error)
        raise InvalidInput(text if text.startswith(name) else f"{name}: {text}") from error


@contextmanager
def _told_if_cut(progress: Progress) -> Iterator[None]:
    """Whoever stops it, a person or a full disk, learns how far it came, and how to go on."""
    try:
        yield
    except (KeyboardInterrupt, OutriderError):
        if progress.report != RestoreReport():
            so_far = _summary(progress.report)
            note(f"not all was read; until then {so_far}; import it again to go on")
        raise


def _summary(report: RestoreReport) -> str:
    known = f" ({many(report.known, 'item')} known already)" if report.known else ""
    return f"imported {many(report.queues, 'queue')}, {many(report.tasks, 'task')}{known}"
