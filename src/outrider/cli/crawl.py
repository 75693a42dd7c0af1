"""`outrider crawl` and `outrider work`: the options of the commands that visit pages."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from outrider.cli.options import Crawl, Profile, Store, parse_seconds
from outrider.cli.terminal import print_json, print_note

if TYPE_CHECKING:
    from outrider.cli.crawl_plan import Plan
    from outrider.cli.crawl_report import Closing
    from outrider.cli.crawl_run import WorkerReport


_Many = list[str] | None


def crawl(  # noqa: PLR0913 - a command's options are its parameters
    urls: Annotated[
        _Many,
        typer.Argument(metavar="[URL]...", help="Start URLs; none: resume the crawl of --store."),
    ] = None,
    *,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="File or URL of the store. [default: HOST.outrider]",
        ),
    ] = None,
    crawl: Crawl = "default",
    seeds: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="FILE", help="More start URLs, one per line; -: standard input."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Prefix of output file names. [default: as --store]"),
    ] = None,
    form: Annotated[
        Literal["jsonl", "warc", "none"] | None,
        typer.Option("--format", help="Output format of pages. [default: jsonl]"),
    ] = None,
    body: Annotated[
        bool, typer.Option("--body", help="Include each page's text in its record.")
    ] = False,
    handler: Annotated[
        _Many,
        typer.Option(
            metavar="[TYPE=]MODULE:FUNCTION",
            help="Function to call with every page, or with those of a type; may be repeated.",
        ),
    ] = None,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="Run handlers in separate processes.")
    ] = False,
    scope: Annotated[
        Literal["domain", "host", "surt", "all"] | None,
        typer.Option(help="What a page must share with a start URL. [default: domain]"),
    ] = None,
    include: Annotated[
        _Many, typer.Option(metavar="REGEX", help="Visit only URLs that match.")
    ] = None,
    exclude: Annotated[
        _Many, typer.Option(metavar="REGEX", help="Visit no URLs that match.")
    ] = None,
    max_pages: Annotated[
        int | None, typer.Option(min=1, help="Pause after this many pages.")
    ] = None,
    max_depth: Annotated[
        int | None,
        typer.Option(min=0, help="Maximal number of links from a start URL. [default: 100]"),
    ] = None,
    max_time: Annotated[
        float | None,
        typer.Option(
            metavar="TIME", parser=parse_seconds, help="Pause after this time: 90, 15m, 2h, 7d."
        ),
    ] = None,
    max_per_host: Annotated[
        int | None, typer.Option(min=1, help="Maximal number of visits per host.")
    ] = None,
    delay: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Fixed delay between two visits of a host."),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Number of simultaneous visits, of all hosts.")
    ] = None,
    contact: Annotated[
        str | None, typer.Option(help="How a host's owner can reach you: an address or a page.")
    ] = None,
    user_agent: Annotated[str | None, typer.Option(help="User agent name that hosts see.")] = None,
    ignore_robots: Annotated[
        bool,
        typer.Option("--ignore-robots", help="Do not fetch robots.txt; only for your own hosts."),
    ] = False,
    no_sitemaps: Annotated[
        bool, typer.Option("--no-sitemaps", help="Do not read the sitemaps that robots.txt names.")
    ] = False,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="Also visit private and loopback addresses.")
    ] = False,
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Settings as TOML, followed while running; options override it."
        ),
    ] = None,
    profile: Profile = None,
    assign: Annotated[
        _Many,
        typer.Option("--set", metavar="NAME=VALUE", help="Set any setting: politeness.factor=3."),
    ] = None,
    start_over: Annotated[
        bool, typer.Option("--start-over", help="Start a new crawl; rename the old files.")
    ] = False,
    log: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Log file, one line per visit. [default: as --store]"),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show only the closing table.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the closing table as JSON.")
    ] = False,
) -> None:
    """Crawl websites politely; after an interrupt or a kill the same command resumes the crawl.

    robots.txt, crawl delays and 429s are obeyed. Exit codes: 0 finished, 3 budget reached,
    4 paused at finish, 5 blocked, 6 nothing fetched, 7 cancelled, 130 interrupted; 2 it could not
    be started.
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
    from outrider.cli.crawl_plan import CrawlRequest, make_plan, prepare_files
    from outrider.cli.crawl_run import run_crawl

    allow_local_imports()
    request = CrawlRequest(
        urls or [],
        seeds,
        store,
        options,
        settings,
        assign or [],
        log,
        handler or [],
        crawl,
        profile,
    )
    plan = make_plan(request)
    prepare_files(plan, start_over=start_over, tell=print_note)
    closed = asyncio.run(run_crawl(plan, isolate=isolate, quiet=quiet))
    _show_closing(plan, closed, as_json=as_json)
    if closed.code:
        raise typer.Exit(closed.code)


def _show_closing(plan: Plan, closed: Closing, *, as_json: bool) -> None:
    from outrider.cli.crawl_plan import resume_command
    from outrider.cli.crawl_report import show_closing

    resume = resume_command(plan.store, limited=closed.end == "budget")
    if as_json:
        print_json({"closing": closed, "files": plan.files, "resume": resume})
    else:
        show_closing(closed, plan.files, resume)


# ---- work


def work(  # noqa: PLR0913 - a command's options are its parameters
    store: Store,
    *,
    crawl: Crawl = "default",
    slots: Annotated[
        int | None, typer.Option(min=1, help="Number of simultaneous visits of this worker.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Prefix of output file names. [default: as STORE]"),
    ] = None,
    form: Annotated[
        Literal["jsonl", "warc", "none"] | None,
        typer.Option("--format", help="Output format of pages. [default: the crawl's]"),
    ] = None,
    body: Annotated[
        bool, typer.Option("--body", help="Include each page's text in its record.")
    ] = False,
    handler: Annotated[
        _Many,
        typer.Option(
            metavar="[TYPE=]MODULE:FUNCTION",
            help="Function to call with every page, or with those of a type; may be repeated.",
        ),
    ] = None,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="Run handlers in separate processes.")
    ] = False,
    settings: Annotated[
        str | None,
        typer.Option(
            "--settings",
            "--config",
            metavar="FILE",
            help="This worker's settings as TOML, followed while running; options override it.",
        ),
    ] = None,
    profile: Profile = None,
    assign: Annotated[
        _Many,
        typer.Option("--set", metavar="NAME=VALUE", help="Set any of them: fetch.http2=true."),
    ] = None,
    stay: Annotated[
        bool, typer.Option("--stay", help="When the crawl is finished, wait for more tasks.")
    ] = False,
    log: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Log file, one line per visit. [default: as --output]"),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show only the closing table.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the closing table as JSON.")
    ] = False,
) -> None:
    """Join a crawl as one more worker, until the crawl is finished.

    Settings are the crawl's, except executor, fetch, output and events, which are this worker's.
    It writes its own output files. Exit codes as `crawl`; 75: it hung, start it again.
    """
    options: dict[str, dict[str, Any]] = {
        "executor": {"slots": slots},
        "output": {"format": form, "path": output, "body": body or None},
    }
    from outrider.cli.crawl_plan import (
        WorkRequest,
        ignored_settings,
        own_layers,
        with_files,
        worker_stem,
    )
    from outrider.cli.crawl_run import run_worker
    from outrider.monitoring.connection import check_store
    from outrider.output.worker_files import worker_files

    allow_local_imports()
    request = WorkRequest(
        *(store, crawl, options, settings, assign or [], log, handler or [], isolate, stay, profile)
    )
    check_store(store, creates=False)
    own = own_layers(request)
    if ignored := ignored_settings(own):
        print_note(f"ignored, because the crawl sets them for all workers: {', '.join(ignored)}")
    with worker_files(worker_stem(request, own)) as name:
        report = asyncio.run(run_worker(request, with_files(name, own), name, quiet=quiet))
    _show_worker(report, as_json=as_json)
    if report.closing.code:
        raise typer.Exit(report.closing.code)


def _show_worker(report: WorkerReport, *, as_json: bool) -> None:
    from outrider.cli.crawl_report import show_summary
    from outrider.cli.terminal import show_pairs

    if as_json:
        print_json(report)
        return
    show_summary(report.closing)
    show_pairs([("worker", report.worker), *report.files.items()])


def allow_local_imports() -> None:
    """Let module:function be in the working directory; installed modules come first."""
    sys.path.append(str(Path.cwd()))
