"""Pages a CPU second without delays: ours, Scrapy's and Crawlee's, on the same web in turns.

CPU is user and system time of the crawler and all it started. Start-up is taken off: that is what
a crawl of one page takes. A run that lost or doubled a page has no figure.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from crawlers import Command, Unmeasured, crawled, lost_work, ours, peer
from webs import cores, pin, served, spent_by

from outrider.bench.figures import Measure
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
    startup: float  # CPU seconds that one page takes
    wall: float
    served: float  # share of the wall time in which the server was at work
    lost: str = ""  # why it has no figure

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


def measure(part: float, rounds: int, tell: Any) -> tuple[list[Measure], dict[str, Any]]:
    """Ratios beside promises, and every run."""
    found, missing = crawlers()
    measures, runs = [], {}
    for title, shape in SHAPES.items():
        smaller = msgspec.structs.replace(shape, pages=max(2, round(shape.pages * part)))
        runs[title] = list(_runs(found, smaller, rounds, lambda text, t=title: tell(t, text)))
        measures += _measures(title, runs[title])
    return measures, {"runs": {t: [_shown(r) for r in of] for t, of in runs.items()}, "no": missing}


def _runs(found: Mapping[str, Command], shape: Shape, rounds: int, tell: Any) -> Iterator[Run]:
    single = msgspec.structs.replace(shape, hosts=1, pages=1)
    for turn in range(rounds):
        for name, command in found.items():
            tell(f"round {turn + 1}, {name}")
            first = _run(name, command, single, 0.0)
            run = _run(name, command, shape, first.cpu)
            lost = "; ".join(filter(None, (first.lost, run.lost)))
            yield msgspec.structs.replace(run, lost=lost)


def _run(name: str, command: Command, shape: Shape, startup: float) -> Run:
    with served(shape) as web, tempfile.TemporaryDirectory() as place:
        pin(web.pid, cores()[0])
        folder, wanted, before = Path(place), set(web.web.urls()), spent_by(web.pid)
        spent = crawled(command(web.web.seeds()[0], folder), folder)
        busy = (spent_by(web.pid) - before) / spent.wall
        lost = lost_work(web.hits(), web.web, folder, wanted)
        if spent.code:
            lost = f"exit code {spent.code}; {lost}"
        return Run(name, len(wanted), spent.cpu, startup, spent.wall, busy, lost)


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
        yield Measure(f"{title}: lost work in {len(lost)} runs: {lost[0]}"[:110], len(lost), "runs")
    if rates:
        yield Measure(f"{title}, pages a CPU second", median(rates), "/s")
        yield Measure("  of the best run", max(rates), "/s")
        yield Measure("  wall time, start-up included", median(run.wall for run in runs), "s")
        yield Measure("  share of it the server worked", median(r.served for r in runs), "")


def _shown(run: Run) -> dict[str, Any]:
    return {**msgspec.structs.asdict(run), "rate": None if run.lost else run.rate}
