"""What is seen while the demo runs: a live view for terminals, plain lines for everything else."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from outrider.cli.showing import OUTCOMES, STATES
from outrider.simulation.crawl import Moment

LINE_EVERY: Final = 600.0  # virtual seconds between two plain lines
_BARS: Final = "▁▂▃▄▅▆▇█"
_PACE_WIDTH: Final = 48


def clock_face(seconds: float) -> str:
    """Virtual time as hours, minutes and seconds."""
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


class PlainView:
    """A line every ten virtual minutes."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._next = 0.0
        console.print(f"outrider demo, {title}", soft_wrap=True)

    def see(self, moment: Moment) -> None:
        """Say how it stands, if it is time."""
        if moment.elapsed < self._next:
            return
        self._next = moment.elapsed // LINE_EVERY * LINE_EVERY + LINE_EVERY
        self._console.print(_line(moment), soft_wrap=True)


def _line(moment: Moment) -> str:
    states = ", ".join(f"{moment.hosts[s]:,} {s}" for s in STATES if moment.hosts.get(s))
    return (
        f"{clock_face(moment.elapsed)}  queued {moment.queued:,}  in flight {moment.in_flight:,}"
        f"  done {moment.done:,}  failed {moment.failed:,}  dead {moment.dead:,}"
        f"  {moment.rate:.1f} visits/s  hosts: {states}"
    )


class LiveView:
    """One panel, redrawn a few times a second from the last moment seen."""

    def __init__(self, console: Console, title: str) -> None:
        self._title = title
        self._moment: Moment | None = None
        self._live = Live(
            console=console, get_renderable=self._draw, refresh_per_second=12, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def see(self, moment: Moment) -> None:
        """Remember it until the next redraw."""
        self._moment = moment

    def _draw(self) -> RenderableType:
        body = Text("…") if self._moment is None else _panel_body(self._moment)
        return Panel(body, title="outrider demo", subtitle=self._title, padding=(1, 2), width=92)


def _panel_body(moment: Moment) -> RenderableType:
    # A bar ends without a new line, so the first of these only ends it.
    gap = (Text(), Text())
    return Group(_head(moment), _bar(moment), *gap, _numbers(moment), Text(), _latest(moment))


def _head(moment: Moment) -> Table:
    head = Table.grid(expand=True)
    head.add_column()
    head.add_column(justify="right")
    counts = Text.assemble((f"{moment.done:,}", "bold green"), f" of {moment.known:,} pages done")
    head.add_row(counts, Text.assemble((clock_face(moment.elapsed), "bold"), " virtual"))
    return head


def _bar(moment: Moment) -> ProgressBar:
    return ProgressBar(total=max(1, moment.known), completed=moment.done, complete_style="green")


def _numbers(moment: Moment) -> Table:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    rows.add_column()
    rows.add_row("tasks", _tasks(moment))
    rows.add_row("hosts", _hosts(moment))
    rows.add_row("pace", f"{_sparkline(moment)}  {moment.rate:.1f} visits a virtual second")
    return rows


def _tasks(moment: Moment) -> Text:
    names = ("queued", "in flight", "failed", "dead", "held")
    counts = (moment.queued, moment.in_flight, moment.failed, moment.dead, moment.held)
    parts = [(f"{count:,}", name) for name, count in zip(names, counts, strict=True)]
    return Text("   ").join(Text.assemble((count, "bold"), f" {name}") for count, name in parts)


def _hosts(moment: Moment) -> Text:
    parts = [
        Text.assemble((f"{moment.hosts[state]:,}", f"bold {style}"), (f" {state}", style))
        for state, style in STATES.items()
        if moment.hosts.get(state)
    ]
    return Text("   ").join(parts)


def _sparkline(moment: Moment) -> str:
    """Visits in each of the last virtual minutes."""
    pace = moment.pace[-_PACE_WIDTH:]
    most = max(pace, default=0) or 1
    return "".join(_BARS[min(len(_BARS) - 1, value * len(_BARS) // (most + 1))] for value in pace)


def _latest(moment: Moment) -> Table:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(width=11)
    rows.add_column(style="dim", no_wrap=True, overflow="ellipsis")
    for url, outcome in moment.latest:
        rows.add_row(Text(outcome, OUTCOMES.get(outcome, "")), Text(url))
    return rows
