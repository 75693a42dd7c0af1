"""`outrider demo`: a polite crawl of a synthetic web that this machine serves to itself."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.terminal import print_line, print_note

if TYPE_CHECKING:
    from outrider.cli.crawl_report import Closing
    from outrider.settings import Settings
    from outrider.testing.web import WebProcess


def demo(
    *,
    hosts: Annotated[int, typer.Option(min=1, max=1000, help="Number of hosts.")] = 60,
    pages: Annotated[
        int, typer.Option(min=1, max=10_000, help="Number of linked pages per host.")
    ] = 25,
    slots: Annotated[
        int, typer.Option(min=1, max=10_000, help="Number of simultaneous visits.")
    ] = 64,
    delay: Annotated[
        float, typer.Option(min=0, max=60, help="Seconds between two visits of a host.")
    ] = 0.3,
    seed: Annotated[
        int,
        typer.Option(min=0, max=2**32, help="Seed of the web; the same seed gives the same web."),
    ] = 7,
) -> None:
    """Crawl a synthetic web politely, over real sockets, on this machine only.

    Hosts with robots.txt, sitemaps and feeds answer on loopback and record every visit. Exits with
    1 if a host was visited too soon, or a page was missed.
    """
    from outrider.testing.web import Shape, WebProcess, violations

    shape = Shape(seed=seed, hosts=hosts, pages=pages, private=2, listed=3, fed=2)
    with WebProcess(shape) as web:
        print_note(f"serving {hosts:,} hosts on 127.0.0.1:{web.port}; seed {seed}")
        closed = _crawl(web, _settings(web, delay, slots))
        hits = web.hits()
        wrong = violations(hits, delay=delay, web=web.web)
        missed = _count_missed(web)
    print_line("")
    print_line(f"politeness  {len(wrong)} of {len(hits):,} visits too soon, by the hosts' records")
    for one in wrong[:3]:
        print_note(str(one))
    if wrong or missed or closed.code:
        print_note(f"{len(wrong)} visits too soon, {missed} pages missed")
        raise typer.Exit(1)


def _settings(web: WebProcess, delay: float, slots: int) -> Settings:
    from outrider.settings import merged, settings_of
    from outrider.wiring import SITES

    tree = merged(settings_of(SITES), web.settings())
    return merged(tree, {"politeness": {"delay": delay}, "executor": {"slots": slots}})


def _crawl(web: WebProcess, settings: Settings) -> Closing:
    """Crawl in a temporary folder."""
    from outrider.cli.crawl_plan import Plan
    from outrider.cli.crawl_report import show_summary
    from outrider.cli.crawl_run import run_crawl

    with tempfile.TemporaryDirectory() as folder:
        stem = str(Path(folder) / "demo")
        plan = Plan(
            f"{stem}.outrider", tuple(web.web.seeds()[:1]), _with_output(settings, stem), {}, ""
        )
        closed = asyncio.run(run_crawl(plan, isolate=False, quiet=False))
    show_summary(closed)
    return closed


def _with_output(settings: Settings, stem: str) -> Settings:
    from outrider.settings import merged

    return merged(settings, {"output": {"path": stem}})


def _count_missed(web: WebProcess) -> int:
    """The number of pages that were not fetched."""
    seen = {web.web.page(hit.host, hit.target) for hit in web.hits()}
    return len(set(web.web.urls()) - seen)
