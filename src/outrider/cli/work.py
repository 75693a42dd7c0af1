"""`outrider work`: one more worker of a crawl that is there, on this machine or another."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from outrider.cli.options import Crawl, Profile, Store
from outrider.cli.showing import note, say_json

_Many = list[str] | None


def work(  # noqa: PLR0913 - a command's options are its parameters
    store: Store,
    *,
    crawl: Crawl = "default",
    slots: Annotated[
        int | None, typer.Option(min=1, help="Visits of this worker at one time.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="What output files begin with. [default: as STORE]"),
    ] = None,
    form: Annotated[
        Literal["jsonl", "warc", "none"] | None,
        typer.Option("--format", help="How pages are written. [default: as the crawl says]"),
    ] = None,
    body: Annotated[
        bool, typer.Option("--body", help="Put each page's text into its record.")
    ] = False,
    handler: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Call this with every page; see the docs."),
    ] = None,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="Run the handler in a process of its own.")
    ] = False,
    settings: Annotated[
        str | None,
        typer.Option(
            "--settings",
            "--config",
            metavar="FILE",
            help="This worker's own settings as TOML, watched; options win over them.",
        ),
    ] = None,
    profile: Profile = None,
    assign: Annotated[
        _Many, typer.Option("--set", metavar="NAME=VALUE", help="Any of them: fetch.http2=true.")
    ] = None,
    stay: Annotated[
        bool, typer.Option("--stay", help="When the crawl is finished, wait for more.")
    ] = False,
    log: Annotated[
        str | None, typer.Option(metavar="FILE", help="One line a visit. [default: as --output]")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only how it ended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The closing table as JSON.")] = False,
) -> None:
    """Join a crawl: visit its pages beside other workers, until it is finished.

    Settings are the crawl's; of this worker's own only executor, fetch, output and events count.
    Output goes to files of its own. Exit codes as `crawl`; 75: it hung, start it again.
    """
    options: dict[str, dict[str, Any]] = {
        "executor": {"slots": slots},
        "output": {"format": form, "path": output, "body": body or None},
    }
    from outrider.cli import work_plan as plans
    from outrider.cli.work_run import run
    from outrider.monitoring.connection import check_store
    from outrider.output.worker_files import worker_files

    # So that module:function may lie here; last, so that it stands in for nothing installed.
    sys.path.append(str(Path.cwd()))
    asked = plans.Asked(
        *(store, crawl, options, settings, assign or [], log, handler, isolate, stay, profile)
    )
    check_store(store, creates=False)
    own = plans.own_of(asked)
    if strange := plans.ignored(own):
        note(f"left to the crawl, which says so for all workers: {', '.join(strange)}")
    with worker_files(plans.stem(asked, own)) as name:
        worked = asyncio.run(run(asked, plans.seated_at(name, own), name, quiet=quiet))
    _show(worked, as_json=as_json)
    if worked.closing.code:
        raise typer.Exit(worked.closing.code)


def _show(worked: Any, *, as_json: bool) -> None:
    from outrider.cli.crawl_report import summary
    from outrider.cli.showing import show_pairs

    if as_json:
        say_json(worked)
        return
    summary(worked.closing)
    show_pairs([("worker", worked.worker), *worked.files.items()])
