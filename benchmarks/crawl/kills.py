"""Benchmark of kill -9 on a site of 1,500 pages: what is lost, fetched again, torn or doubled.

The instants are random pages of the server's record. Ours is killed ten times; Scrapy with JOBDIR,
its way of going on later, once at each of three instants, and is then started again. A task that
was in flight at three kills is given up (lease.max_crashes), as the setting says; that is counted.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crawlers import (
    Command,
    Record,
    Unmeasured,
    counts_of,
    crawled,
    killed_at,
    ours,
    pages_of,
    peer,
    started,
    written,
)
from webs import cores, pin, served

from outrider.bench.measurement import Measure
from outrider.testing.web import Shape

SITE = Shape(seed=11, hosts=1, pages=1500, links=30, page_bytes=4096, doubles=0, addresses=True)
KILLS = 10
INSTANTS = (0.2, 0.34, 0.6)  # of the site's pages, when Scrapy is killed


def measure(tell: Any, told: Any) -> dict[str, Any]:
    """Kill Outrider, then Scrapy; always on the whole site, since a small one ends too soon."""
    tell("kill -9", f"ours, {KILLS} times")
    mine = _tried(ours(), sorted(random.Random(3).sample(range(5, SITE.pages), KILLS)))
    for one in _our_measures(mine):
        told(one)
    theirs = []
    try:
        command = peer("scrapy", "--lean", "--jobdir", "{folder}/job")
        for instant in INSTANTS:
            tell("kill -9", f"Scrapy with JOBDIR, after {instant:.0%} of the pages")
            theirs.append(_tried(command, [round(instant * SITE.pages)]))
            told(_their_measure(theirs[-1]))
    except Unmeasured as why:
        tell("kill -9", str(why))
    return {"ours": mine, "scrapy": theirs}


def _tried(command: Command, instants: Sequence[int]) -> dict[str, Any]:
    """Killed at those pages, then left to end."""
    with served(SITE) as web, tempfile.TemporaryDirectory() as place:
        pin(web.pid, cores()[0])
        folder, record = Path(place), Record(web.record)
        line = command(web.web.seeds()[0], folder)
        kills = sum(
            killed_at(started(line, folder), lambda at=at: record.count() >= at) for at in instants
        )
        spent = crawled(line, folder)
        fetched, wrote = pages_of(web.hits(), web.web), written(folder)
        return {
            "pages": SITE.pages,
            "instants": list(instants),
            "kills": kills,
            "code": spent.code,
            "never": SITE.pages - len(fetched),
            "unwritten": len(set(web.web.urls()) - wrote.pages.keys()),
            "again": sum(fetched.values()) - len(fetched),
            "in_flight": counts_of(folder).get("outcomes", {}).get("crashed"),
            "given_up": counts_of(folder).get("dead"),
            "doubled": sum(count > 1 for count in wrote.pages.values()),
            "torn": wrote.torn,
        }


def _our_measures(mine: dict[str, Any]) -> list[Measure]:
    title = f"{mine['pages']:,} pages, ours killed {mine['kills']} times"
    return [
        Measure(f"{title}: pages never crawled", mine["never"], "", 0, is_most=True),
        Measure("  pages not in the output", mine["unwritten"], "", 0, is_most=True),
        Measure("  records torn or doubled", mine["torn"] + mine["doubled"], "", 0, is_most=True),
        Measure("  visits in flight at the kills, by the store", mine["in_flight"] or 0, ""),
        Measure("  pages fetched again", mine["again"], "", mine["in_flight"], is_most=True),
        Measure("  pages given up, in flight three times", mine["given_up"] or 0, ""),
    ]


def _their_measure(run: dict[str, Any]) -> Measure:
    title = f"{run['pages']:,} pages, Scrapy with JOBDIR killed once, after {run['instants'][0]:,}"
    return Measure(f"{title}: never crawled", run["never"], "")
