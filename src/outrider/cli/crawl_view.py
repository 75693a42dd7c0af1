"""What is seen while a crawl runs: a live view for terminals, a line now and then elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from outrider.cli.showing import OUTCOMES, STATES, size
from outrider.logs import printable

WINDOW: Final = 10.0  # seconds a rate is taken over
_BARS: Final = "▁▂▃▄▅▆▇█"
_PACE: Final = 48


class Moment(msgspec.Struct, frozen=True):
    """A crawl at one instant, as people want to see it."""

    elapsed: float
    status: str
    known: int
    queued: int  # pending, but for what is held
    held: int
    in_flight: int
    done: int
    failed: int  # visits of this run that went wrong
    dead: int
    dropped: int
    visits: int  # of this run
    bytes: int  # of this run
    slots: tuple[int, int]  # busy, in all
    hosts: Mapping[str, int]  # by state
    left: str  # what limits leave, in words
    latest: tuple[tuple[str, str], ...]


class Pace:
    """Rates as deltas between samples."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=600)
        self.minutes: deque[float] = deque(maxlen=_PACE)

    def add(self, at: float, visits: int) -> None:
        """One sample."""
        self._samples.append((at, visits))
        while len(self._samples) > 2 and self._samples[0][0] < at - WINDOW:
            self._samples.popleft()
        self.minutes.append(self.rate)

    @property
    def rate(self) -> float:
        """Visits a second over the last seconds."""
        if len(self._samples) < 2:
            return 0.0
        (start, before), (end, now) = self._samples[0], self._samples[-1]
        return (now - before) / (end - start) if end > start else 0.0


def clock_face(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def line_of(moment: Moment, rate: float) -> str:
    """A moment on one line."""
    waiting = moment.hosts.get("snoozed", 0)
    parts = [
        clock_face(moment.elapsed),
        f"queued {moment.queued:,}",
        f"in flight {moment.in_flight:,}",
        f"done {moment.done:,}",
        f"failed {moment.failed:,}",
        f"{rate:.1f} pages/s",
        f"{waiting:,} hosts waiting",
    ]
    if moment.status != "running":
        parts.insert(1, moment.status)
    if moment.left:
        parts.append(moment.left)
    return "  ".join(parts)


class PlainView:
    """A line at once, then ever more rarely: a long crawl must not fill a log."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._next = 0.0
        self._pace = Pace()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to clean up."""

    def see(self, moment: Moment) -> None:
        """Say how it stands, if it is time."""
        self._pace.add(moment.elapsed, moment.visits)
        if moment.elapsed >= self._next:
            self._next = moment.elapsed + min(max(5.0, moment.elapsed / 4), 300.0)
            self._say(line_of(moment, self._pace.rate))


class SilentView(PlainView):
    """For --quiet."""

    def see(self, moment: Moment) -> None:
        """Say nothing."""


class LiveView:
    """One panel, redrawn a few times a second from the last moment seen."""

    def __init__(self, console: Console, title: str) -> None:
        self._title = Text(printable(title), no_wrap=True, overflow="ellipsis")
        self._moment: Moment | None = None
        self._pace = Pace()
        self._live = Live(
            console=console, get_renderable=self._draw, refresh_per_second=8, transient=True
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
        self._pace.add(moment.elapsed, moment.visits)
        self._moment = moment

    def _draw(self) -> RenderableType:
        body = Text("starting …") if self._moment is None else self._body(self._moment)
        return Panel(body, title=self._title, padding=(0, 1), width=92)

    def _body(self, moment: Moment) -> RenderableType:
        return Group(_head(moment), _bar(moment), Text(), self._numbers(moment), _latest(moment))

    def _numbers(self, moment: Moment) -> Table:
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim", no_wrap=True)
        rows.add_column()
        rows.add_row("tasks", _tasks(moment))
        rows.add_row("hosts", _hosts(moment))
        busy, slots = moment.slots
        pace = f"{_sparkline(self._pace.minutes)} {self._pace.rate:.1f} pages/s"
        rows.add_row("pace", f"{pace}, {size(moment.bytes)}, {busy} of {slots} slots busy")
        if moment.left:
            rows.add_row("left", moment.left)
        return rows


def _head(moment: Moment) -> Table:
    head = Table.grid(expand=True)
    head.add_column()
    head.add_column(justify="right")
    counts = Text.assemble((f"{moment.done:,}", "bold green"), f" of {moment.known:,} pages done")
    if moment.status != "running":
        counts.append(f"  {moment.status}", "bold yellow")
    head.add_row(counts, Text(clock_face(moment.elapsed), "bold"))
    return head


def _bar(moment: Moment) -> ProgressBar:
    settled = moment.done + moment.dead + moment.dropped
    return ProgressBar(total=max(1, moment.known), completed=settled, complete_style="green")


def _tasks(moment: Moment) -> Text:
    names = ("queued", "in flight", "failed", "dead", "dropped", "held")
    counts = (
        *(moment.queued, moment.in_flight, moment.failed),
        *(moment.dead, moment.dropped, moment.held),
    )
    parts = [(f"{count:,}", name) for name, count in zip(names, counts, strict=True)]
    return Text("   ").join(Text.assemble((count, "bold"), f" {name}") for count, name in parts)


def _hosts(moment: Moment) -> Text:
    names = {"snoozed": "waiting"}
    parts = [
        Text.assemble(
            (f"{moment.hosts[state]:,}", f"bold {style}"), (f" {names.get(state, state)}", style)
        )
        for state, style in STATES.items()
        if moment.hosts.get(state)
    ]
    return Text("   ").join(parts)


def _sparkline(pace: deque[float]) -> str:
    most = max(pace, default=0.0) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int(value / most * len(_BARS)))] for value in pace)


def _latest(moment: Moment) -> Table:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(width=11)
    rows.add_column(style="dim", no_wrap=True, overflow="ellipsis")
    for url, outcome in moment.latest:
        rows.add_row(Text(outcome, OUTCOMES.get(outcome, "")), Text(printable(url)))
    return rows
