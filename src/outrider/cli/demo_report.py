"""What is left on the screen when the demo is over: why it ended, how it went, what was missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich import box
from rich.columns import Columns
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.cli.demo_view import clock_face
from outrider.cli.showing import OUTCOMES
from outrider.simulation.crawl import CrawlReport, HostReport

_TOP: Final = 5
_ENDS: Final = {
    "finished": "finished: nothing is leased, and no host has a page left to visit",
    "running": "stopped: nothing but a person could bring more work",
}


def print_report(report: CrawlReport, console: Console) -> None:
    """Everything worth knowing afterwards."""
    console.print()
    console.print(_summary(report))
    console.print()
    console.print(Columns([_outcomes(report), _missed(report)], padding=(0, 3)))
    busiest = _hosts(report, "Busiest hosts", lambda host: host.visits)
    slowest = _hosts(report, "Slowest hosts", lambda host: host.mean)
    console.print(Columns([busiest, slowest], padding=(0, 3)))


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)


def _summary(report: CrawlReport) -> Table:
    moment = report.moment
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    table.add_row("ended", _ENDS.get(report.status, report.status))
    table.add_row("virtual time", f"{clock_face(moment.elapsed)}, {_peak(report)}")
    table.add_row("pages", _pages(report))
    table.add_row("politeness", _politeness(report))
    return table


def _peak(report: CrawlReport) -> str:
    best = max(report.moment.pace, default=0)
    return f"{report.moment.visits:,} visits, {best:,} in the busiest minute"


def _pages(report: CrawlReport) -> str:
    moment = report.moment
    rest = moment.known - moment.done - moment.dead - moment.held
    parts = f"{moment.done:,} done + {moment.dead:,} dead + {moment.held:,} held + {rest:,} other"
    return f"{moment.known:,} known = {parts}"


def _politeness(report: CrawlReport) -> Text:
    style = "bold red" if report.too_soon else "bold green"
    return Text.assemble(
        (f"visits too soon: {report.too_soon}", style),
        f", by the hosts' own record; at most {report.at_once} at a time on one host",
    )


def _outcomes(report: CrawlReport) -> Table:
    table = _table("Visits by outcome")
    table.add_column("outcome")
    table.add_column("visits", justify="right")
    table.add_column("share", justify="right")
    every = sum(report.outcomes.values()) or 1
    for name, count in sorted(report.outcomes.items(), key=lambda item: (-item[1], item[0])):
        table.add_row(Text(name, OUTCOMES.get(name, "")), f"{count:,}", f"{count / every:.1%}")
    return table


def _missed(report: CrawlReport) -> Table:
    table = _table("Not crawled, and why")
    table.add_column("why")
    table.add_column("pages", justify="right")
    for reason, count in report.missed.items():
        table.add_row(reason, f"{count:,}")
    if not report.missed:
        table.add_row("nothing was missed", "0")
    return table


def _hosts(report: CrawlReport, title: str, key: Callable[[HostReport], float]) -> Table:
    table = _table(title)
    table.add_column("host")
    table.add_column("kind", style="dim")
    table.add_column("visits", justify="right")
    table.add_column("s/visit", justify="right")
    for host in _best(report.hosts, key):
        name = host.name.removesuffix(".example")
        table.add_row(name, host.temper, f"{host.visits:,}", f"{host.mean:.2f}")
    return table


def _best(hosts: Sequence[HostReport], key: Callable[[HostReport], float]) -> list[HostReport]:
    return sorted(hosts, key=lambda host: (-key(host), host.name))[:_TOP]
