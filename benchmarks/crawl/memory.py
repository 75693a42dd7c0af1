"""Benchmark of memory over a long crawl of small pages without delays.

The frontier keeps some 20 bytes of every finished task (its fingerprint, and where it stands), in
tables that grow by steps; nothing else may grow with the pages. What waits is little here: each
host is a chain of pages.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import fmean, linear_regression
from typing import Any

import msgspec
from crawlers import LOOK, Record, lost_work, ours, pause, started
from webs import cores, pin, served

from outrider.bench.measurement import Measure
from outrider.testing.web import Shape

WEB = Shape(seed=13, hosts=100, pages=1000, links=5, page_bytes=700, doubles=0, addresses=True)
SAMPLES = 20
EXPECTED = 64.0  # bytes a page: what is kept of a task, and room for noise


def measure(part: float, tell: Any, told: Any) -> dict[str, Any]:
    """One long crawl."""
    shape = msgspec.structs.replace(WEB, pages=max(10, round(WEB.pages * part)))
    pages = shape.hosts * shape.pages
    tell("memory", f"{pages:,} pages")
    if not Path("/proc/self/statm").exists():
        return {"reason": "this system does not tell"}
    with served(shape) as web, tempfile.TemporaryDirectory() as place:
        pin(web.pid, cores()[0])
        folder = Path(place)
        process = started(ours()(web.web.seeds()[0], folder), folder)
        samples = _samples(process, Record(web.record), pages // SAMPLES)
        lost = lost_work(web.hits(), web.web, folder, set(web.web.urls()))
    for one in _measures(pages, samples, lost):
        told(one)
    return {"pages": pages, "samples": samples, "lost": lost}


def _samples(process: Any, record: Record, every: int) -> list[tuple[int, int]]:
    """(pages, bytes) each time so many more are served."""
    samples: list[tuple[int, int]] = []
    while process.poll() is None:
        count = record.count()
        if count >= every * (len(samples) + 1):
            samples.append((count, _resident(process.pid)))
        pause(10 * LOOK)
    return [sample for sample in samples if sample[1]]


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):  # it has just ended
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _measures(pages: int, samples: list[tuple[int, int]], lost: str) -> list[Measure]:
    title = f"{pages:,} pages"
    if lost:
        return [Measure(f"{title}: lost work: {lost}"[:110], 1, "")]
    third = len(samples) // 3
    first, last = (fmean(b for _, b in part) for part in (samples[:third], samples[-third:]))
    # The first third is left out of the slope: buffers fill and modules load in it.
    counts, sizes = zip(*samples[third:], strict=True)
    slope = linear_regression(counts, sizes).slope
    return [
        Measure(f"{title}: resident, first third", first / 2**20, "MiB"),
        Measure("  resident, last third", last / 2**20, "MiB"),
        Measure("  growth after the first third, a page", slope, "B", EXPECTED, is_most=True),
    ]
