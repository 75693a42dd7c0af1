"""Drawing of the live view: values become styled text; text of others is never markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from textwrap import wrap
from typing import Final

from rich.text import Text

from outrider.cli.metrics import (
    LATENCY_COLUMNS,
    NO_WORKER,
    last_decision,
    latency_note,
    latency_rows,
    metric_pairs,
    slots_text,
)
from outrider.cli.terminal import STATES, format_duration, format_size
from outrider.cli.watch import ENDED, TASKS
from outrider.core.progress import Progress
from outrider.core.states import CrawlStatus
from outrider.logs import printable
from outrider.monitoring.connection import Presence
from outrider.monitoring.hosts import Host
from outrider.monitoring.monitor import Observation
from outrider.monitoring.rates import Rates
from outrider.monitoring.sampler import Sample
from outrider.store.protocol import WorkerView

RATES_WIDTH: Final = 30  # columns of the text beside the chart
BARS: Final = " ▁▂▃▄▅▆▇█"
STATUSES: Final = {
    CrawlStatus.RUNNING: ("●", "bold green"),
    CrawlStatus.PAUSED: ("‖", "bold magenta"),
    CrawlStatus.FINISHED: ("✔", "bold cyan"),
    CrawlStatus.CANCELLED: ("✘", "bold red"),
}
_TASK_STYLES: Final = {"leased": "cyan", "done": "green", "dead": "red", "held": "yellow"}
_SHADES: Final = ("#1c2733", "#1f3b4d", "#245a66", "#2f7a74", "#4f9a6d", "#8bb45c", "#d9c24a")


def plain_text(text: str, style: str = "") -> Text:
    """Text of others on one line: shown as it is, never read as markup."""
    return Text(printable(text), style, no_wrap=True, overflow="ellipsis", end="")


def short_count(number: float) -> str:
    """A count in at most seven characters."""
    for unit, least in (("G", 1e9), ("M", 1e6), ("k", 1e5)):
        if number >= least:
            return f"{number / (1e3 if unit == 'k' else least):,.4g}{unit}"
    return f"{number:,.0f}"


# ---- the header


def head(seen: Observation, place: str, width: int, stale_for: float) -> Text:
    """The header line: crawl, file and status."""
    right = _condition(seen, stale_for)
    name = f" {seen.sample.crawl.crawl} "
    left = Text.assemble((printable(name), "bold reverse"), "  ", end="", no_wrap=True)
    space = max(0, width - left.cell_len - right.cell_len - 2)
    left.append_text(Text(_cut_left(printable(place), space), "dim"))
    left.append(" " * max(2, width - left.cell_len - right.cell_len))
    return left.append_text(right)


def _cut_left(text: str, space: int) -> str:
    if len(text) <= space:
        return text
    return "…" + text[len(text) - space + 1 :] if space > 1 else ""


def _condition(seen: Observation, stale_for: float) -> Text:
    if seen.presence is Presence.LOST or stale_for > 0:
        return Text(f"○ no answer for {format_duration(stale_for)}", "bold red")
    crawl, is_alone = seen.sample.crawl, seen.presence is Presence.ALONE
    if is_alone and crawl.status is CrawlStatus.RUNNING:
        return Text("○ running, but no process runs it", "bold yellow")
    sign, style = STATUSES[crawl.status]
    reason = f" ({crawl.reason})" if crawl.reason else ""
    drawn = Text.assemble((f"{sign} {crawl.status}{printable(reason)}", style))
    return drawn.append(f" {_since(seen.sample)}", "dim")


def _since(sample: Sample) -> str:
    crawl = sample.crawl
    began = [at for at, status, _ in crawl.timeline if status == crawl.status]
    since = max(0.0, sample.at - (began[-1] if began else crawl.created_at))
    return (
        f"{format_duration(since)} ago"
        if crawl.status in ENDED
        else f"for {format_duration(since)}"
    )


# ---- the numbers


def counters(sample: Sample, width: int) -> Text:
    """Tasks by state: names above numbers, in columns."""
    each = max(9, width // len(TASKS))
    names, numbers = Text(no_wrap=True), Text(no_wrap=True)
    for name in TASKS:
        count = getattr(sample.crawl, name)
        shown = f"{count:,}" if len(f"{count:,}") < each - 1 else short_count(count)
        names.append(f"{name:<{each}}", "dim")
        style = _TASK_STYLES.get(name, "") if count else "dim"
        numbers.append(f"{shown:<{each}}", f"bold {style}")
    return Text("\n").join([names, numbers])


def rates(current: Rates | None, pace: Sequence[float], width: int, height: int) -> Text:
    """The current rates, beside a chart of the last minutes."""
    words = [*_rate_words(current, height), *[""] * height][:height]
    lines = bars(pace, max(8, width - RATES_WIDTH), height)
    rows = Text(no_wrap=True)
    for number, (word, line) in enumerate(zip(words, lines, strict=True)):
        rows.append_text(_cut_right(word, RATES_WIDTH - 1, "" if number else "bold"))
        rows.append(f" {line}\n", "green")
    rows.right_crop(1)
    return rows


def progress(found: Progress, width: int) -> Text:
    """The time that is left, beside a line of all visits since the crawl began."""
    space, left = max(8, width - RATES_WIDTH), found.time_left()
    words = "time left unknown" if left is None else f"about {format_duration(left)} left"
    is_running = found.now.status is CrawlStatus.RUNNING
    drawn = _cut_right(words if is_running else "", RATES_WIDTH - 1, "dim" if not left else "")
    if len(found.samples) > 1:
        drawn.append(f" {pace_line(found, space)}", "green")
    return drawn


def pace_line(found: Progress, width: int) -> str:
    """Visits per second since the crawl began as a line of bars; a dot: no worker."""
    pace = found.pace(width)
    (line,) = bars([value or 0.0 for value in pace], width, 1)
    return "".join("·" if value is None else bar for bar, value in zip(line, pace, strict=True))


def _rate_words(current: Rates | None, height: int) -> list[str]:
    if current is None:
        return ["– visits/s"]
    visits, fetched = f"{current.visits:,.1f} visits/s", f"{format_size(round(current.bytes))}/s"
    ends = (f"{current.done:,.1f} done", f"{current.failed:,.1f} failed")
    if height >= 4:
        return [visits, *ends, fetched]
    return [f"{current.visits:,.1f} visits/s {fetched}", "  ".join(ends)]


def bars(values: Sequence[float], width: int, height: int) -> list[str]:
    """A bar chart, the newest value at the right; the highest value fills it."""
    values = list(values[-width:])
    highest = max(values, default=0.0)
    steps = len(BARS) - 1
    levels = [round(value / highest * height * steps) if highest > 0 else 0 for value in values]
    # Values above zero are visible.
    levels = [
        max(level, 1) if value > 0 else 0 for level, value in zip(levels, values, strict=True)
    ]
    blank = " " * (width - len(values))
    return [
        blank + "".join(BARS[max(0, min(steps, level - row * steps))] for level in levels)
        for row in reversed(range(height))
    ]


def states(sample: Sample, width: int) -> Text:
    """Queues by state: a bar and its legend."""
    drawn = Text(no_wrap=True, overflow="ellipsis")
    for name, cells in _shares(sample.queues, width).items():
        drawn.append("━" * cells, STATES[name])
    drawn.append("\n")
    total = sum(sample.queues.values())
    drawn.append(f"{short_count(total)} {'queue' if total == 1 else 'queues'}", "bold")
    for name in STATES:
        if sample.queues.get(name):
            drawn.append(f"  {short_count(sample.queues[name])} {name}", STATES[name])
    return drawn


def _shares(counts: Mapping[str, int], width: int) -> dict[str, int]:
    """Cells of a bar by count; every state that occurs has at least one."""
    total = sum(counts.values())
    named = {name: counts[name] for name in STATES if counts.get(name)}
    cells = {name: max(1, count * width // total) for name, count in named.items()}
    if cells:
        largest = max(cells, key=lambda name: named[name])
        cells[largest] = max(1, cells[largest] + width - sum(cells.values()))
    return cells


# ---- hosts


def leaders(title: str, hosts: Iterable[Host], width: int, *, by_pace: bool) -> Text:
    """A short list of hosts under its title."""
    drawn = Text.assemble((title, "bold"))
    for host in hosts:
        value = per_minute(host.pace) + "/min" if by_pace else format_duration(host.view.delay)
        space = max(1, width - len(value) - 1)
        drawn.append("\n").append_text(_cut_right(host.view.key, space, STATES[host.view.state]))
        drawn.append(f" {value}")
    return drawn


def _cut_right(text: str, width: int, style: str) -> Text:
    drawn = Text(printable(text), style)
    drawn.truncate(width, overflow="ellipsis", pad=True)
    return drawn


def short_time(seconds: float | None) -> str:
    """Seconds in at most five characters."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return _short_number(seconds / length) + unit
    return _short_number(seconds) + "s"


def _short_number(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 9.95 else f"{min(value, 9999):.0f}"


def per_minute(pace: float) -> str:
    """A pace as visits per minute."""
    value = pace * 60
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.05 else "0"


def pairs(values: Iterable[tuple[str, str]], width: int, space: int = 12) -> Text:
    """Names and values, one pair per line; long values are wrapped."""
    lines = []
    for name, value in values:
        first, *more = wrap(printable(value), max(8, width - space)) or [""]
        lines.append(Text.assemble((f"{printable(name):<{space}}", "dim"), first))
        lines += [Text(" " * space + part) for part in more]
    return Text("\n").join(lines)


# ---- the heatmap


def heatmap(sample: Sample, width: int) -> Text:
    """Pending tasks by origin and group, brighter for more; and by depth."""
    heat = sample.heat
    drawn = Text.assemble((f"{heat.total:,} pending\n\n", "bold"))
    if not heat.total:
        return drawn
    origins = sorted(heat.cells.items(), key=lambda row: -sum(row[1].values()))
    drawn.append_text(_grid(origins[:_ORIGINS], max(12, min(30, width - 3 * _CELL - 2))))
    if len(origins) > _ORIGINS:
        drawn.append(f"… and {len(origins) - _ORIGINS:,} more origins\n", "dim")
    drawn.append("\n")
    return drawn.append_text(_depths(heat.depth, width))


_CELL: Final = 14
_ORIGINS: Final = 12


def _grid(rows: Sequence[tuple[str, Mapping[str, int]]], space: int) -> Text:
    groups = list(rows[0][1])
    drawn = Text.assemble((f"{'origin':<{space}}", "dim"))
    drawn.append("".join(f"{group:>{_CELL - 1}} " for group in groups) + "\n", "dim")
    highest = max(count for _, counts in rows for count in counts.values())
    for origin, counts in rows:
        drawn.append_text(_cut_right(origin, space, ""))
        for group in groups:
            drawn.append(f"{counts[group]:>{_CELL - 1},} ", _shade(counts[group], highest))
        drawn.append("\n")
    return drawn


def _shade(count: int, highest: int) -> str:
    if not count:
        return "dim"
    step = min(len(_SHADES) - 1, round((count / highest) ** 0.5 * (len(_SHADES) - 1)))
    return f"{'black' if step >= 4 else 'white'} on {_SHADES[step]}"


def _depths(depth: Mapping[str, int], width: int) -> Text:
    drawn = Text.assemble(("depth\n", "dim"))
    highest, space = max(depth.values()), max(10, width - 26)
    for name, count in depth.items():
        cells = max(1, count * space // highest) if count else 0
        drawn.append(f"{name:>8} {count:>12,}  ")
        drawn.append("█" * cells + "\n", _SHADES[4])
    return drawn


# ---- workers and metrics


_WORKERS: Final = 50  # shown one by one
_SERIES: Final = 14
_DURATION: Final = 9


def workers(sample: Sample, width: int) -> Text:
    """The metrics of a crawl, its latencies, and its workers, the latest first."""
    if sample.metrics is None:
        return Text("…", "dim")
    drawn = pairs(islice(metric_pairs(sample.metrics), 2, None), width)
    rows = latency_rows(sample.metrics)
    if rows:
        drawn.append("\n\n").append_text(_latencies(rows))
        drawn.append(f"\n{latency_note(sample.metrics)}", "dim")
    if not sample.workers:
        return drawn.append(f"\n\n{NO_WORKER}", "dim")
    for view in reversed(sample.workers[-_WORKERS:]):
        drawn.append("\n\n").append_text(_worker(view, width))
    more = len(sample.workers) - _WORKERS
    return drawn.append(f"\n\n… and {more:,} more", "dim") if more > 0 else drawn


def _latencies(rows: Sequence[tuple[str, ...]]) -> Text:
    drawn = [_latency_line(LATENCY_COLUMNS, "dim"), *(_latency_line(row, "") for row in rows)]
    return Text("\n").join(drawn)


def _latency_line(row: Sequence[str], style: str) -> Text:
    name, *numbers = row
    cells = "".join(f"{number:>{_DURATION}}" for number in numbers)
    return Text.assemble((f"{name:<{_SERIES}}", "dim"), (cells, style), no_wrap=True)


def _worker(view: WorkerView, width: int) -> Text:
    style = {"busy": "green", "gone": "dim", "draining": "yellow"}.get(view.state, "")
    head = Text.assemble((printable(view.worker), "bold"), "  ", (view.state, style))
    words = f"  {slots_text(view)}, {view.visits:,} visits"
    head.append_text(plain_text(words))
    decided = last_decision(view)
    if not decided:
        return head
    return Text("\n").join([head, _cut_right(f"  slots {decided}", width, "dim")])
