"""Progress of a crawl while it runs: a live panel, lines of text, and the log of visits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from io import FileIO
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from outrider.cli.terminal import OUTCOMES, STATES, format_instant, format_size, print_note
from outrider.clock import SystemClock
from outrider.core.outcome import Done, Outcome, Throttled
from outrider.core.policy.rules import Limits
from outrider.core.worker_totals import ScalingDecision
from outrider.errors import StoreUnavailable
from outrider.executor.slots import max_slots
from outrider.executor.visit import Visit
from outrider.fetch.local_faults import descriptor_shortage
from outrider.logs import printable
from outrider.settings import Settings
from outrider.store.protocol import CrawlView
from outrider.wiring import Crawling

RATE_WINDOW: Final = 10.0  # seconds over which a rate is taken
_BARS: Final = "▁▂▃▄▅▆▇█"
_RATES: Final = 48


class ProgressSample(msgspec.Struct, frozen=True):
    """The numbers of a crawl at one instant."""

    elapsed: float
    status: str
    known: int
    queued: int  # pending and not held
    held: int
    in_flight: int
    done: int
    failed: int  # visits of this run that failed
    dead: int
    dropped: int
    visits: int  # of this run
    bytes: int  # of this run
    slots: tuple[int, int]  # busy, total
    hosts: Mapping[str, int]  # by state
    left: str  # what the crawl's limits leave, as text
    latest: tuple[tuple[str, str], ...]


class VisitRate:
    """The rate of visits: differences between samples."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=600)
        self.minutes: deque[float] = deque(maxlen=_RATES)

    def add(self, at: float, visits: int) -> None:
        """Add one sample."""
        self._samples.append((at, visits))
        while len(self._samples) > 2 and self._samples[0][0] < at - RATE_WINDOW:
            self._samples.popleft()
        self.minutes.append(self.rate)

    @property
    def rate(self) -> float:
        """Visits per second over the last seconds."""
        if len(self._samples) < 2:
            return 0.0
        (start, before), (end, now) = self._samples[0], self._samples[-1]
        return (now - before) / (end - start) if end > start else 0.0


def format_elapsed(seconds: float) -> str:
    """Seconds as hours, minutes and seconds."""
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def text_line(sample: ProgressSample, rate: float) -> str:
    """A sample as one line."""
    waiting = sample.hosts.get("snoozed", 0)
    parts = [
        format_elapsed(sample.elapsed),
        f"queued {sample.queued:,}",
        f"in flight {sample.in_flight:,}",
        f"done {sample.done:,}",
        f"failed {sample.failed:,}",
        f"{rate:.1f} pages/s",
        f"{waiting:,} hosts waiting",
    ]
    if sample.status != "running":
        parts.insert(1, sample.status)
    if sample.left:
        parts.append(sample.left)
    return "  ".join(parts)


class TextView:
    """Prints a line at once, then at growing intervals, so that a long crawl fills no log."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._next = 0.0
        self._pace = VisitRate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is nothing to clean up."""

    def show(self, sample: ProgressSample) -> None:
        """Print the sample if a line is due."""
        self._pace.add(sample.elapsed, sample.visits)
        if sample.elapsed >= self._next:
            self._next = sample.elapsed + min(max(5.0, sample.elapsed / 4), 300.0)
            self._say(text_line(sample, self._pace.rate))


class SilentView:
    """Shows nothing, for --quiet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is nothing to clean up."""

    def show(self, sample: ProgressSample) -> None:
        """Show nothing."""


class LiveView:
    """One panel, redrawn a few times a second from the last sample."""

    def __init__(self, console: Console, title: str) -> None:
        self._title = Text(printable(title), no_wrap=True, overflow="ellipsis")
        self._sample: ProgressSample | None = None
        self._pace = VisitRate()
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

    def show(self, sample: ProgressSample) -> None:
        """Keep the sample for the next redraw."""
        self._pace.add(sample.elapsed, sample.visits)
        self._sample = sample

    def _draw(self) -> RenderableType:
        body = Text("starting …") if self._sample is None else self._body(self._sample)
        return Panel(body, title=self._title, padding=(0, 1), width=92)

    def _body(self, sample: ProgressSample) -> RenderableType:
        return Group(
            _head_row(sample),
            _progress_bar(sample),
            Text(),
            self._numbers(sample),
            _latest_visits(sample),
        )

    def _numbers(self, sample: ProgressSample) -> Table:
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim", no_wrap=True)
        rows.add_column()
        rows.add_row("tasks", _task_counts(sample))
        rows.add_row("hosts", _host_counts(sample))
        busy, slots = sample.slots
        pace = f"{_sparkline(self._pace.minutes)} {self._pace.rate:.1f} pages/s"
        rows.add_row("pace", f"{pace}, {format_size(sample.bytes)}, {busy} of {slots} slots busy")
        if sample.left:
            rows.add_row("left", sample.left)
        return rows


def _head_row(sample: ProgressSample) -> Table:
    head = Table.grid(expand=True)
    head.add_column()
    head.add_column(justify="right")
    counts = Text.assemble((f"{sample.done:,}", "bold green"), f" of {sample.known:,} pages done")
    if sample.status != "running":
        counts.append(f"  {sample.status}", "bold yellow")
    head.add_row(counts, Text(format_elapsed(sample.elapsed), "bold"))
    return head


def _progress_bar(sample: ProgressSample) -> ProgressBar:
    settled = sample.done + sample.dead + sample.dropped
    return ProgressBar(total=max(1, sample.known), completed=settled, complete_style="green")


def _task_counts(sample: ProgressSample) -> Text:
    names = ("queued", "in flight", "failed", "dead", "dropped", "held")
    counts = (
        *(sample.queued, sample.in_flight, sample.failed),
        *(sample.dead, sample.dropped, sample.held),
    )
    parts = [(f"{count:,}", name) for name, count in zip(names, counts, strict=True)]
    return Text("   ").join(Text.assemble((count, "bold"), f" {name}") for count, name in parts)


def _host_counts(sample: ProgressSample) -> Text:
    names = {"snoozed": "waiting"}
    parts = [
        Text.assemble(
            (f"{sample.hosts[state]:,}", f"bold {style}"), (f" {names.get(state, state)}", style)
        )
        for state, style in STATES.items()
        if sample.hosts.get(state)
    ]
    return Text("   ").join(parts)


def _sparkline(pace: deque[float]) -> str:
    highest = max(pace, default=0.0) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int(value / highest * len(_BARS)))] for value in pace)


def _latest_visits(sample: ProgressSample) -> Table:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(width=11)
    rows.add_column(style="dim", no_wrap=True, overflow="ellipsis")
    for url, outcome in sample.latest:
        rows.add_row(Text(outcome, OUTCOMES.get(outcome, "")), Text(printable(url)))
    return rows


# ---- samples


MIN_PAUSE: Final = 20  # times the duration of a sample: sampling takes a twentieth of the time
ProgressView: TypeAlias = LiveView | TextView | SilentView


class Sampling(NamedTuple):
    """How often the store is read."""

    interval: float = 0.5  # seconds between two samples


def note_shortage(settings: Settings) -> None:
    """Warn if the limit of open files may be too low for the simultaneous visits."""
    if warning := descriptor_shortage(max_slots(settings.executor)):
        print_note(warning)


@asynccontextmanager
async def showing_progress(
    crawling: Crawling, title: str, sampling: Sampling, *, quiet: bool
) -> AsyncIterator[None]:
    """Show progress during the block."""
    with _make_view(title, quiet=quiet) as view:
        sampler = asyncio.create_task(_sample_repeatedly(crawling, sampling, view.show))
        try:
            yield
        finally:
            sampler.cancel()
            with suppress(asyncio.CancelledError):
                await sampler


def _make_view(title: str, *, quiet: bool) -> ProgressView:
    console = Console(stderr=True, highlight=False)
    if quiet:
        return SilentView()
    if console.is_terminal:
        return LiveView(console, title)
    return TextView(print_note)


async def _sample_repeatedly(
    crawling: Crawling, sampling: Sampling, show: Callable[[ProgressSample], None]
) -> None:
    loop, frontier = asyncio.get_running_loop(), crawling.frontier
    began = loop.time()
    while True:
        before = loop.time()
        with suppress(StoreUnavailable):  # the executor reports it
            view = await frontier.store.crawl(frontier.crawl)
            show(_read_sample(crawling, view, before - began))
        await asyncio.sleep(max(sampling.interval, MIN_PAUSE * (loop.time() - before)))


def _read_sample(crawling: Crawling, view: CrawlView, elapsed: float) -> ProgressSample:
    executor, tally = crawling.executor, crawling.tally
    status = "stopping" if executor.is_stopping else view.status
    if executor.pause.is_on and status == "running":
        status = f"waiting: {executor.pause.message.partition(';')[0]}"
    return ProgressSample(
        elapsed=elapsed,
        status=f"paused ({view.reason})" if status == "paused" and view.reason else status,
        known=view.known,
        queued=view.pending - view.held,
        held=view.held,
        in_flight=executor.in_flight,
        done=view.done,
        failed=tally.visits - sum(tally.outcomes[name] for name in ("done", "dropped", "again")),
        dead=view.dead,
        dropped=view.dropped,
        visits=tally.visits,
        bytes=tally.bytes,
        slots=(executor.slots.busy, executor.slots.count),
        hosts=view.queues,
        left=_limits_left(crawling.frontier.settings.limits, view, elapsed),
        latest=tuple(tally.latest),
    )


def _limits_left(limits: Limits, view: CrawlView, elapsed: float) -> str:
    """What the crawl's limits leave, as text."""
    parts = []
    if limits.done:
        parts.append(f"{max(0, limits.done - view.outcomes.get('done', 0)):,} pages")
    if limits.seconds:
        parts.append(f"{max(0.0, limits.seconds - elapsed):.0f} s")
    if limits.bytes:
        parts.append(f"{max(0, limits.bytes - view.bytes):,} bytes")
    return f"limits leave {', '.join(parts)}" if parts else ""


# ---- the log of visits


class VisitLog:
    """Appends one line per visit to a file; an empty path writes nothing.

    If the disk is full, lines are left out and the crawl continues.
    """

    def __init__(self, path: str, decisions: Iterable[ScalingDecision] = ()) -> None:
        self._path = path
        self._decisions = decisions
        self._file: FileIO | None = None
        self._is_full = False
        self._clock = SystemClock()
        self._noted = float("-inf")

    def __enter__(self) -> Self:
        if self._path:
            self._file = FileIO(self._path, "a")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def __call__(self, visits: Sequence[Visit]) -> None:
        """Log visits that ended."""
        if self._file is not None:
            at = format_instant(self._clock.now_ms() / 1000)
            lines = [*self._scaling_lines(), *map(_visit_line, visits)]
            self._append("".join(f"{at} {line}\n" for line in lines))

    def _append(self, text: str) -> None:
        """Append text; the first of several failures in a row is reported."""
        file = self._file
        if file is None:
            return
        try:
            file.write(text.encode("utf-8", "backslashreplace"))
            self._is_full = False
        except OSError as error:
            if not self._is_full:
                print_note(
                    f"{self._path}: cannot be written ({error.strerror}); lines are left out"
                )
            self._is_full = True

    def _scaling_lines(self) -> list[str]:
        """Lines on slots that were added, removed or held back since the last call (J3)."""
        fresh = [one for one in self._decisions if one.at > self._noted]
        if fresh:
            self._noted = fresh[-1].at
        return [f"slots {one.before} → {one.after}: {one.reason}" for one in fresh]


def _visit_line(visit: Visit) -> str:
    what = type(visit.outcome).__name__.lower()
    return printable(
        f"{what} {_outcome_detail(visit.outcome)} {visit.url} attempt {visit.lease.attempt}"
    )


def _outcome_detail(outcome: Outcome | None) -> str:
    if isinstance(outcome, Done):
        cached = " from cache" if outcome.from_cache else ""
        return f"{outcome.status} {outcome.bytes} B {outcome.seconds:.3f} s{cached}"
    if isinstance(outcome, Throttled):
        return "" if outcome.retry_after is None else f"for {outcome.retry_after:.0f} s"
    return f"({getattr(outcome, 'reason', '') or ''})"
