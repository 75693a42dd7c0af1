"""`outrider export`: a crawl as JSON lines, to a file or a pipe, also while it runs (I5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from outrider.cli.opening import on_crawl
from outrider.cli.options import Crawl, Json, Store
from outrider.cli.showing import many, note, say, say_json, size, working
from outrider.cli.streams import check_target, writing

if TYPE_CHECKING:
    from outrider.frontier import Frontier


class Report(msgspec.Struct):
    """What was written."""

    crawl: str
    file: str
    queues: int = 0
    tasks: int = 0
    size: int = 0  # bytes, before they were compressed


def export(
    store: Store,
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="A new file; .gz is compressed; - is a pipe.")
    ] = "-",
    *,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Write a crawl as JSON lines, for `outrider import`: tasks, queues, budgets and manners.

    A lease is written as if it were released. The file appears when it is whole.
    """
    check_target(file)
    report = Report(crawl, file)
    with working() as see:
        on_crawl(store, crawl, lambda frontier: run(frontier, report, see))
    _tell(report, as_json=as_json)


async def run(frontier: Frontier, report: Report, see: Callable[[str], None]) -> None:
    """Write all of it; the report is whole at the end."""
    block = b""
    with writing(report.file) as write:
        async for block in frontier.export():
            write(block)
            report.size += len(block)
            see(f"{size(report.size)} written")
    last = msgspec.json.decode(block)
    report.queues, report.tasks = last["queues"], last["tasks"]


def _tell(report: Report, *, as_json: bool) -> None:
    """To a pipe went the export itself, so a word on it is a remark."""
    text = f"{many(report.queues, 'queue')}, {many(report.tasks, 'task')}, {size(report.size)}"
    if report.file == "-":
        note(f"exported {text}")
    elif as_json:
        say_json(report)
    else:
        say(f"{report.file}: {text}")
