"""`outrider copy`, `checkpoint`, `export` and `import`: crawls between stores and files (I5)."""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from io import FileIO
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Final, Protocol, TypeAlias

import msgspec
import typer

from outrider.cli.open_crawl import on_crawl
from outrider.cli.options import Crawl, Json, Store
from outrider.cli.terminal import (
    exit_with_problem,
    fields_of,
    format_count,
    format_size,
    print_json,
    print_line,
    print_note,
    progress_line,
)
from outrider.errors import InvalidInput, OutriderError
from outrider.frontier.reports import RestoreReport
from outrider.monitoring.connection import check_store, opened_for_command
from outrider.store.health import Copied

if TYPE_CHECKING:
    from outrider.frontier import Frontier
    from outrider.frontier.copy_crawl import CopyReport
    from outrider.store.protocol import FullStore


# ---- copy


See = Callable[[str], None]


def copy(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="File or URL of the store to copy from.")
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TO", help="File or URL of the store to copy to; a file is created."
        ),
    ],
    *,
    crawl: Annotated[
        list[str] | None,
        typer.Option("--crawl", metavar="NAME", help="Only this crawl; may be repeated."),
    ] = None,
    into: Annotated[
        str | None, typer.Option("--into", metavar="NAME", help="Name of the copy.")
    ] = None,
    pause: Annotated[
        bool,
        typer.Option("--pause", help="Pause the original, so that the copy continues instead."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Copy crawls from one store to another, such as from a file to a cluster.

    Leased tasks are copied as released. Both sides are read and compared before the copy leases any
    task. If it is interrupted, repeat the command: what was copied is skipped.
    """
    with progress_line() as see:
        reports = asyncio.run(copy_crawls(source, target, crawl or [], into, see, pause=pause))
    for report in reports:
        if as_json:
            print_json(report)
        elif report.fault is None:
            print_line(_copy_summary(report))
    faults = [f"{report.crawl}: {report.fault}" for report in reports if report.fault]
    if faults:
        exit_with_problem("; ".join(faults))


async def copy_crawls(
    source: str, target: str, crawls: list[str], into: str | None, see: See, *, pause: bool
) -> list[CopyReport]:
    """Copy each crawl; a problem with one does not affect the others."""
    from outrider.frontier.copy_crawl import copy_crawl

    async with AsyncExitStack() as stack:
        there = await _open_store(stack, source, creates=False)
        here = await _open_store(stack, target, creates=True)
        names = crawls or await there.crawls()
        if into is not None and len(names) != 1:
            raise InvalidInput(
                f"--into names one copy, but there are {len(names)} crawls: choose one with --crawl"
            )
        return [
            await copy_crawl(
                there, here, name, into=into or name, pause=pause, progress=_progress_of(name, see)
            )
            for name in names
        ]


async def _open_store(stack: AsyncExitStack, url: str, *, creates: bool) -> FullStore:
    source = check_store(url, creates=creates)
    return await stack.enter_async_context(opened_for_command(source))


def _progress_of(crawl: str, see: See) -> Callable[[str, int, int], None]:
    return lambda part, tasks, known: see(f"{crawl}: {tasks:,} of {known:,} tasks {part}")


def _copy_summary(report: CopyReport) -> str:
    if report.leased:
        print_note(f"{report.crawl}: {format_count(report.leased, 'lease')} copied as released")
    what = f"{format_count(report.queues, 'queue')}, {format_count(report.tasks, 'task')}"
    known = "" if report.new else "; it was there already"
    name = report.crawl if report.into == report.crawl else f"{report.crawl} as {report.into}"
    return f"{name}: {what}, equal on both sides ({report.checksum}), {report.status}{known}"


# ---- checkpoint


def checkpoint(
    store: Store,
    copy: Annotated[
        Path,
        typer.Argument(metavar="COPY", help="New file; must not exist.", show_default=False),
    ],
    *,
    as_json: Json = False,
) -> None:
    """Copy a file as it is now, also while its crawl runs.

    The copy appears under its name when it is complete and was verified. It opens like the file.
    """
    from outrider.store import factory

    with progress_line() as tell:
        made = asyncio.run(factory.checkpoint(store, copy, tell=tell))
    if as_json:
        print_json(made)
    else:
        _show_checkpoint(made)


def _show_checkpoint(made: Copied) -> None:
    print_line(
        f"{made.file}: {format_size(made.size)}, {format_count(made.pages, 'page')}, "
        "every checksum right"
    )
    for crawl in made.crawls:
        print_line(
            f"{crawl.crawl}: {crawl.known:,} known, {crawl.pending:,} pending, "
            f"{crawl.leased:,} leased"
        )
    if made.holder is not None:
        print_note(f"copied while {made.holder.name} continued")


# ---- export


class ExportReport(msgspec.Struct):
    """Counts of an export."""

    crawl: str
    file: str
    queues: int = 0
    tasks: int = 0
    size: int = 0  # bytes before compression


def export(
    store: Store,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-", help="New file, compressed if it ends in .gz; -: standard output."
        ),
    ] = "-",
    *,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Write a crawl as JSON lines for `outrider import`: tasks, queues, budgets and politeness.

    Leased tasks are written as released. The file appears under its name when it is complete.
    """
    check_target(file)
    report = ExportReport(crawl, file)
    with progress_line() as see:
        on_crawl(store, crawl, lambda frontier: write_export(frontier, report, see))
    _show_export(report, as_json=as_json)


async def write_export(
    frontier: Frontier, report: ExportReport, see: Callable[[str], None]
) -> None:
    """Write the export; the report is complete at the end."""
    block = b""
    with open_target(report.file) as write:
        async for block in frontier.export():
            write(block)
            report.size += len(block)
            see(f"{format_size(report.size)} written")
    last = msgspec.json.decode(block)
    report.queues, report.tasks = last["queues"], last["tasks"]


def _show_export(report: ExportReport, *, as_json: bool) -> None:
    """Print the counts; on standard error if the export itself went to standard output."""
    queues, tasks = format_count(report.queues, "queue"), format_count(report.tasks, "task")
    text = f"{queues}, {tasks}, {format_size(report.size)}"
    if report.file == "-":
        print_note(f"exported {text}")
    elif as_json:
        print_json(report)
    else:
        print_line(f"{report.file}: {text}")


# ---- import


class ImportProgress:
    """The progress of an import, for the progress line and for an interruption."""

    def __init__(self, see: Callable[[str], None]) -> None:
        self.report = RestoreReport()
        self._see = see

    def __call__(self, report: RestoreReport) -> None:
        """Take the report after one more block."""
        self.report = report
        self._see(_import_summary(report))


def import_(
    store: Store,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-",
            help="Export to read, decompressed if it ends in .gz; -: standard input.",
        ),
    ] = "-",
    *,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Restore a crawl from an export; creates the file and the crawl if they do not exist.

    The crawl must have no tasks. It leases no tasks until everything was read. If that is
    interrupted, import the same export again: what was imported is skipped.
    """
    name = "standard input" if file == "-" else file
    with open_source(file) as read, progress_line() as see:
        begin, progress = read(), ImportProgress(see)
        with _naming_source(name), _noted_if_interrupted(progress):
            _check_first_bytes(begin)
            status = on_crawl(
                store,
                crawl,
                lambda frontier: read_export(frontier, begin, read, progress),
                creates=True,
            )
    if as_json:
        print_json(fields_of(progress.report, into=crawl, status=status))
    else:
        print_line(f"{_import_summary(progress.report)} into {crawl}, which is {status}")


async def read_export(
    frontier: Frontier, begin: bytes, read: ReadBytes, progress: ImportProgress
) -> str:
    """Restore the export, and return the crawl's status."""
    progress.report = await frontier.restore(chunks(begin, read), progress=progress)
    return (await frontier.store.crawl(frontier.crawl)).status.value


def _check_first_bytes(begin: bytes) -> None:
    """Raise InvalidInput for a file that is not an export, before a crawl is created."""
    from outrider.frontier.export import ExportReader

    reader = ExportReader()
    if begin:
        list(reader.feed(begin.partition(b"\n")[0] + b"\n"))
    else:
        reader.end()


@contextmanager
def _naming_source(name: str) -> Iterator[None]:
    try:
        yield
    except InvalidInput as error:
        text = str(error)
        raise InvalidInput(text if text.startswith(name) else f"{name}: {text}") from error


@contextmanager
def _noted_if_interrupted(progress: ImportProgress) -> Iterator[None]:
    """Note how much was imported if a user or an error, such as a full disk, interrupts it."""
    try:
        yield
    except (KeyboardInterrupt, OutriderError):
        if progress.report != RestoreReport():
            so_far = _import_summary(progress.report)
            print_note(f"not everything was read; so far {so_far}; import it again to resume")
        raise


def _import_summary(report: RestoreReport) -> str:
    known = f" ({format_count(report.known, 'item')} known already)" if report.known else ""
    queues, tasks = format_count(report.queues, "queue"), format_count(report.tasks, "task")
    return f"imported {queues}, {tasks}{known}"


# ---- files and pipes of exports


CHUNK: Final = 1 << 18  # bytes read at once

ReadBytes: TypeAlias = Callable[[], bytes]


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


@contextmanager
def open_source(source: str) -> Iterator[ReadBytes]:
    """Yield a function that reads the next bytes, none at the end; its errors name the source."""
    if source == "-":
        # Unbuffered: a thread that still reads when the command ends holds no lock.
        pipe = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        yield lambda: _read_bytes(pipe, "standard input")
        return
    with _open_file(source) as stream:
        yield lambda: _read_bytes(stream, source)


def _open_file(source: str) -> gzip.GzipFile | FileIO:
    try:
        return gzip.GzipFile(source) if source.endswith(".gz") else FileIO(source)
    except OSError as error:
        raise InvalidInput(f"{source}: {error.strerror}") from error


def _read_bytes(stream: _Readable, name: str) -> bytes:
    try:
        return bytes(stream.read(CHUNK) or b"")
    except EOFError as error:
        raise InvalidInput(f"{name}: it is incomplete: {error}") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInput(f"{name}: it cannot be decompressed: {error}") from error
    except OSError as error:
        raise InvalidInput(f"{name}: {error.strerror}") from error


async def chunks(begin: bytes, read: ReadBytes) -> AsyncIterator[bytes]:
    """Yield the bytes already read, then the rest; a slow pipe does not block the store."""
    while begin:
        yield begin
        begin = await _read_in_thread(read)


async def _read_in_thread(read: ReadBytes) -> bytes:
    """Read in a daemon thread: the end of the command must not wait for an endless pipe."""
    future: Future[bytes] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(read())
        except OutriderError as error:
            future.set_exception(error)

    Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(future)


@contextmanager
def open_target(target: str) -> Iterator[Callable[[bytes], object]]:
    """Yield a function that writes bytes; the file appears under its name when complete."""
    if target == "-":
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
        return
    part = Path(f"{target}.part")
    try:
        with gzip.open(part, "wb", 6) if target.endswith(".gz") else part.open("wb") as stream:
            yield stream.write
        part.rename(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def check_target(target: str) -> None:
    """Raise InvalidInput if the target exists, before anything is written."""
    if target != "-" and os.path.lexists(target):
        raise InvalidInput(f"{target} exists; choose another file, or remove it")
