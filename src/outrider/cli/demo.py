"""`outrider demo`: a simulated polite crawl of some hundred hosts, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from outrider.simulation.crawl import CrawlReport, ImaginedCrawl


def demo(
    *,
    hosts: Annotated[int, typer.Option(min=1, max=5_000, help="Hosts of the web.")] = 400,
    pages: Annotated[int, typer.Option(min=1, max=100_000, help="Its articles, in all.")] = 12_000,
    slots: Annotated[int, typer.Option(min=1, max=10_000, help="Visits at one time.")] = 64,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63, help="Which web; same seed, same web.")
    ] = 7,
) -> None:
    """Crawl a simulated web politely, in virtual time.

    Hours pass in seconds: hosts answer, fail, throttle, doze or are gone; the frontier keeps its
    manners towards each. Leaves with 1 if any host was visited too soon or the crawl did not end.
    """
    from outrider.cli.demo_report import print_report
    from outrider.simulation.crawl import ImaginedCrawl, demo_web

    console = Console(highlight=False)
    crawl = ImaginedCrawl(demo_web(seed, hosts=hosts, pages=pages), slots=slots)
    report = asyncio.run(_watched(crawl, console, f"seed {seed} · {hosts} hosts · {slots} slots"))
    print_report(report, console)
    if report.too_soon or report.status != "finished":
        raise typer.Exit(1)


async def _watched(crawl: ImaginedCrawl, console: Console, title: str) -> CrawlReport:
    """Live in a terminal, plain lines everywhere else."""
    from outrider.cli.demo_view import LiveView, PlainView

    if not console.is_terminal:
        return await crawl.run(PlainView(console, title).see)
    with LiveView(console, title) as view:
        return await crawl.run(view.see)
