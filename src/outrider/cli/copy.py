"""`outrider copy`: crawls from one store into another, compared before they are let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.options import Json
from outrider.cli.showing import found_wrong, many, note, say, say_json, working
from outrider.errors import InvalidInput
from outrider.monitoring.connection import check_store

if TYPE_CHECKING:
    from outrider.frontier.copying import CopyReport
    from outrider.store.protocol import FullStore

See = Callable[[str], None]


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A file, or the URL of a store.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Another one; a file is created.")],
    *,
    crawl: Annotated[
        list[str] | None,
        typer.Option("--crawl", metavar="NAME", help="Only this one; may be said again."),
    ] = None,
    into: Annotated[
        str | None, typer.Option("--into", metavar="NAME", help="The name of the copy.")
    ] = None,
    pause: Annotated[
        bool, typer.Option("--pause", help="Pause what is copied; the copy goes on in its place.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Copy crawls from one store into another: a laptop's crawl becomes a cluster's.

    Whatever is leased is copied as if it were released. Both sides are read through and compared
    before the copy lends anything. If it breaks off, copy again: what is there is left alone.
    """
    with working() as see:
        reports = asyncio.run(run(source, target, crawl or [], into, see, pause=pause))
    for report in reports:
        if as_json:
            say_json(report)
        elif report.fault is None:
            say(_told(report))
    faults = [f"{report.crawl}: {report.fault}" for report in reports if report.fault]
    if faults:
        found_wrong("; ".join(faults))


async def run(
    source: str, target: str, crawls: list[str], into: str | None, see: See, *, pause: bool
) -> list[CopyReport]:
    """Copy each; what is wrong with one does not keep the others."""
    from outrider.frontier.copying import copy_crawl

    async with AsyncExitStack() as stack:
        there = await _opened(stack, source, creates=False)
        here = await _opened(stack, target, creates=True)
        names = crawls or await there.crawls()
        if into is not None and len(names) != 1:
            raise InvalidInput(f"--into names one copy, and there are {len(names)}: say --crawl")
        return [
            await copy_crawl(
                there, here, name, into=into or name, pause=pause, progress=_telling(name, see)
            )
            for name in names
        ]


async def _opened(stack: AsyncExitStack, url: str, *, creates: bool) -> FullStore:
    from outrider.clock import SystemClock
    from outrider.store.opening import open_store

    check_store(url, creates=creates)
    store = await open_store(url, SystemClock())
    stack.push_async_callback(store.close)
    return store


def _telling(crawl: str, see: See) -> Callable[[str, int, int], None]:
    return lambda part, tasks, known: see(f"{crawl}: {tasks:,} of {known:,} tasks {part}")


def _told(report: CopyReport) -> str:
    if report.leased:
        note(f"{report.crawl}: {many(report.leased, 'lease')} read as released")
    what = f"{many(report.queues, 'queue')}, {many(report.tasks, 'task')}"
    known = "" if report.new else "; it was there already"
    name = report.crawl if report.into == report.crawl else f"{report.crawl} as {report.into}"
    return f"{name}: {what}, the same on both sides ({report.checksum}), {report.status}{known}"
