"""Benchmark of pages per CPU second without delays: Outrider, Scrapy and Crawlee in turns.

CPU is user and system time of the crawler and all it started. Start-up is taken off: that is what
a crawl of one page takes, the least of all that were made, since noise only adds; a slow one would
flatter whoever is quick. A run that lost or doubled a page has no figure, nor has one that is
mostly start-up.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from crawlers import Command, Unmeasured, crawled, lost_work, ours, peer
from webs import cores, pin, served, spent_by

from outrider.bench.measurement import Measure
from outrider.testing.web import Shape

OURS, LEAN, USUAL, CRAWLEE = "ours", "scrapy, lean", "scrapy", "crawlee"
# Scrapy drops no tracking parameters, so no page is spelt twice here: `doubles` is 0.
SHAPES = {
    "30 KB, 60 links": Shape(
        seed=5, hosts=20, pages=250, links=60, page_bytes=30_000, doubles=0, addresses=True
    ),
    "4 KB, 10 links": Shape(
        seed=5, hosts=24, pages=250, links=10, page_bytes=4096, doubles=0, addresses=True
    ),
}
MOST_STARTUP = 1 / 3  # of a run's CPU
PROMISES = {
    ("30 KB, 60 links", LEAN): 4.0,
    ("30 KB, 60 links", CRAWLEE): 2.0,
    ("4 KB, 10 links", LEAN): 2.0,
    ("4 KB, 10 links", CRAWLEE): 2.0,
}


class Run(msgspec.Struct, frozen=True):
    """One crawl."""

    crawler: str
    pages: int
    cpu: float
    wall: float
    served: float  # share of the wall time in which the server was at work
    lost: str = ""  # why it has no figure
    startup: float = 0.0  # CPU seconds that one page takes

    @property
    def rate(self) -> float:
        """Pages a CPU second."""
        return (self.pages - 1) / (self.cpu - self.startup)


def crawlers() -> tuple[dict[str, Command], list[str]]:
    """All that can be had, and why others cannot."""
    peers = {LEAN: ("scrapy", "--lean"), USUAL: ("scrapy",), CRAWLEE: ("crawlee",)}
    found: dict[str, Command] = {OURS: ours()}
    missing = []
    for name, words in peers.items():
        try:
            found[name] = peer(*words)
        except Unmeasured as why:
            missing.append(str(why))
    return found, missing


def measure(part: float, rounds: int, tell: Any, told: Any) -> dict[str, Any]:
    """Yield ratios with their targets for each web, and every run."""
    found, missing = crawlers()
    for why in missing:
        tell("not measured", why)
    runs = {}
    for title, shape in SHAPES.items():
        smaller = msgspec.structs.replace(shape, pages=max(2, round(shape.pages * part)))
        runs[title] = _runs(found, smaller, rounds, lambda text, t=title: tell(t, text))
        for one in _measures(title, runs[title]):
            told(one)
    return {
        "runs": {t: [_shown(r) for r in of] for t, of in runs.items()},
        "missing": missing,
    }


def _runs(found: Mapping[str, Command], shape: Shape, rounds: int, tell: Any) -> list[Run]:
    single = msgspec.structs.replace(shape, hosts=1, pages=1)
    runs: list[Run] = []
    ones: defaultdict[str, list[Run]] = defaultdict(list)
    for turn in range(rounds):
        for name, command in found.items():
            tell(f"round {turn + 1}, {name}")
            ones[name].append(_run(name, command, single))
            runs.append(_run(name, command, shape))
            ones[name].append(_run(name, command, single))
    return [_less_startup(run, ones[run.crawler]) for run in runs]


def _less_startup(run: Run, ones: list[Run]) -> Run:
    startup = min(one.cpu for one in ones)
    faults = [fault for fault in (run.lost, *(one.lost for one in ones)) if fault]
    if startup > MOST_STARTUP * run.cpu:
        faults.append(f"too short: start-up is {startup / run.cpu:.0%} of it")
    return msgspec.structs.replace(run, startup=startup, lost="; ".join(faults))


def _run(name: str, command: Command, shape: Shape) -> Run:
    with served(shape) as web, tempfile.TemporaryDirectory() as place:
        pin(web.pid, cores()[0])
        folder, wanted, before = Path(place), set(web.web.urls()), spent_by(web.pid)
        spent = crawled(command(web.web.seeds()[0], folder), folder)
        busy = (spent_by(web.pid) - before) / spent.wall
        lost = lost_work(web.hits(), web.web, folder, wanted)
        if spent.code:
            lost = f"exit code {spent.code}; {lost}"
        return Run(name, len(wanted), spent.cpu, spent.wall, busy, lost)


def _measures(title: str, runs: Iterable[Run]) -> Iterator[Measure]:
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.crawler, []).append(run)
    rates = {name: [run.rate for run in of if not run.lost] for name, of in by_name.items()}
    for name, of in by_name.items():
        yield from _own(f"{title}: {name}", of, rates[name])
    for name in by_name:
        if name != OURS and rates[OURS] and rates[name]:
            medians = median(rates[OURS]) / median(rates[name])
            bests = max(rates[OURS]) / max(rates[name])
            yield Measure(f"{title}: ours ÷ {name}", medians, "×", PROMISES.get((title, name)))
            yield Measure("  of the best runs", bests, "×")


def _own(title: str, runs: list[Run], rates: list[float]) -> Iterator[Measure]:
    lost = [run.lost for run in runs if run.lost]
    if lost:
        yield Measure(f"{title}: no figure: {lost[0]}"[:110], len(lost), "runs")
    if rates:
        yield Measure(f"{title}, pages a CPU second", median(rates), "/s")
        yield Measure("  of the best run", max(rates), "/s")
        yield Measure("  wall time, start-up included", median(run.wall for run in runs), "s")
        yield Measure("  share of it the server worked", median(r.served for r in runs), "")


def _shown(run: Run) -> dict[str, Any]:
    return {**msgspec.structs.asdict(run), "rate": None if run.lost else run.rate}
