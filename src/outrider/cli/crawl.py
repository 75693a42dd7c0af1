"""`outrider crawl`: visit pages politely from one machine, and go on where it stopped."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from outrider.cli.options import Crawl, Profile, seconds_of
from outrider.cli.showing import note, say_json

if TYPE_CHECKING:
    from outrider.cli.crawl_plan import Plan
    from outrider.cli.crawl_report import Closing

_Many = list[str] | None


def crawl(  # noqa: PLR0913 - a command's options are its parameters
    urls: Annotated[
        _Many,
        typer.Argument(metavar="[URL]...", help="Where to begin; none: go on with --store."),
    ] = None,
    *,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="A file, or the URL of a server's store. [default: HOST.outrider]",
        ),
    ] = None,
    crawl: Crawl = "default",
    seeds: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="More URLs, one a line; -: standard input."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="What output files begin with. [default: as --store]"),
    ] = None,
    form: Annotated[
        Literal["jsonl", "warc", "none"] | None,
        typer.Option("--format", help="How pages are written. [default: jsonl]"),
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
    scope: Annotated[
        Literal["domain", "host", "surt", "all"] | None,
        typer.Option(help="What a page must share with a seed. [default: domain]"),
    ] = None,
    include: Annotated[
        _Many, typer.Option(metavar="REGEX", help="Only URLs with this in them.")
    ] = None,
    exclude: Annotated[
        _Many, typer.Option(metavar="REGEX", help="No URLs with this in them.")
    ] = None,
    max_pages: Annotated[int | None, typer.Option(min=1, help="Pause after so many pages.")] = None,
    max_depth: Annotated[
        int | None, typer.Option(min=0, help="Links from a seed, at most. [default: 100]")
    ] = None,
    max_time: Annotated[
        float | None,
        typer.Option(metavar="TIME", parser=seconds_of, help="Pause after 90, 15m, 2h, 7d."),
    ] = None,
    max_per_host: Annotated[
        int | None, typer.Option(min=1, help="Visits of one host, at most.")
    ] = None,
    delay: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Between two visits of a host, fixed."),
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Visits at one time, all hosts.")] = None,
    contact: Annotated[
        str | None, typer.Option(help="Where a host's owner reaches you: an address or a page.")
    ] = None,
    user_agent: Annotated[str | None, typer.Option(help="The name hosts see.")] = None,
    ignore_robots: Annotated[
        bool,
        typer.Option("--ignore-robots", help="Do not ask for robots.txt: your own hosts only."),
    ] = False,
    no_sitemaps: Annotated[
        bool, typer.Option("--no-sitemaps", help="Leave sitemaps of robots.txt alone.")
    ] = False,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="Also private and loopback addresses.")
    ] = False,
    settings: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Settings as TOML, watched; options win over them."),
    ] = None,
    profile: Profile = None,
    assign: Annotated[
        _Many,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting: politeness.factor=3."),
    ] = None,
    start_over: Annotated[
        bool, typer.Option("--start-over", help="Begin anew; the old files are kept, renamed.")
    ] = False,
    log: Annotated[
        str | None, typer.Option(metavar="FILE", help="One line a visit. [default: as --store]")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only how it ended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The closing table as JSON.")] = False,
) -> None:
    """Crawl politely, and lose nothing: interrupt or kill it, and the same command goes on.

    robots.txt, crawl delays and 429s are obeyed. Exit codes: 0 finished, 3 budget reached,
    4 paused at finish, 5 blocked, 6 nothing fetched, 7 cancelled, 130 interrupted; 2 it could not
    be begun.
    """
    options: dict[str, dict[str, Any]] = {
        "scope": {"mode": scope, "include": include, "exclude": exclude},
        "limits": {"done": max_pages, "seconds": max_time},
        "queue": {"max_depth": max_depth},
        "budget": {"total_budget": max_per_host},
        "politeness": {"delay": delay},
        "executor": {"slots": slots},
        "fetch": {
            "contact": contact,
            "user_agent": user_agent,
            "robots": False if ignore_robots else None,
            "sitemaps": False if no_sitemaps else None,
        },
        "url": {"allow_private": allow_private or None},
        "output": {"format": form, "path": output, "body": body or None},
    }
    from outrider.cli import crawl_plan as plans
    from outrider.cli.crawl_run import run

    # So that module:function may lie here; last, so that it stands in for nothing installed.
    sys.path.append(str(Path.cwd()))
    asked = plans.Asked(
        urls or [], seeds, store, options, settings, assign or [], log, handler, crawl, profile
    )
    plan = plans.planned(asked)
    plans.begin(plan, start_over=start_over, tell=note)
    closed = asyncio.run(run(plan, isolate=isolate, quiet=quiet))
    _show(plan, closed, as_json=as_json)
    if closed.code:
        raise typer.Exit(closed.code)


def _show(plan: Plan, closed: Closing, *, as_json: bool) -> None:
    from outrider.cli.crawl_plan import resume_command
    from outrider.cli.crawl_report import show

    resume = resume_command(plan.store, limited=closed.end == "budget")
    if as_json:
        say_json({"closing": closed, "files": plan.files, "resume": resume})
    else:
        show(closed, plan.files, resume)
