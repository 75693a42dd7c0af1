"""The webs of the crawl benchmarks, each served by its own process on its own core.

Beside the small world of `outrider.testing.web` there are two whose hosts differ in manners: they
are worlds of addresses, so that a crawler needs no names, and host 0 leads to all others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from outrider.testing.web import Asked, Behaviour, Reply, Shape, Site, Web, WebProcess
from outrider.testing.web.__main__ import main
from outrider.testing.web.behaviours import serving, slow, throttling_hits
from outrider.testing.web.graph import ROBOTS, Graph, number_of
from outrider.testing.web.presets import WORLDS

CRAWL_DELAYS = (0.0, 0.5, 1.5, 2.0, 3.0)  # seconds in robots.txt, by turns; 0: none
SLOW = 0.2  # seconds that every seventh host takes to answer
BRANCH = 8  # hosts that a host's root leads to
THROTTLED = (6,)  # the hits of every fourth host that a throttling web answers with 429
RETRY_AFTER = 2.0


def served(shape: Shape, world: str = "small") -> WebProcess:
    """Any of the worlds, until its block ends."""
    return WebProcess(shape, world=world, program=(str(Path(__file__)),))


def cores() -> tuple[int | None, int | None]:
    """Return a core for the server and one for the crawler; None where cores cannot be chosen."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (allowed[0], allowed[-1]) if len(allowed) > 1 else (None, None)


def pin(pid: int, core: int | None) -> None:
    """Keep a process there."""
    if core is not None:
        os.sched_setaffinity(pid, {core})


def spent_by(pid: int) -> float:
    """Return the CPU seconds of a process so far; 0 where they are not reported."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def parent_of(host: int) -> int:
    """Whose root leads to a host's."""
    return (host - 1) // BRANCH


def mixed(shape: Shape, port: int = 0) -> Web:
    """Hosts with every kind of delay; the more a host asks for, the fewer pages it has."""
    return Web(_sites(shape, port), port=port, at=partial(mixed, shape))


def throttling(shape: Shape, port: int = 0) -> Web:
    """The same, and every fourth host says 429 once."""
    busy = throttling_hits(THROTTLED, RETRY_AFTER)
    sites = [
        msgspec.structs.replace(site, first=(busy,)) if number % 4 == 0 else site
        for number, site in enumerate(_sites(shape, port))
    ]
    return Web(sites, port=port, at=partial(throttling, shape))


def _sites(shape: Shape, port: int) -> Iterator[Site]:
    graphs = {wait: _graph(shape, port, wait) for wait in CRAWL_DELAYS}
    for host in range(shape.hosts):
        wait = CRAWL_DELAYS[host % len(CRAWL_DELAYS)]
        yield _site(graphs[wait], host, wait)


def _graph(shape: Shape, port: int, wait: float) -> Graph:
    pages = max(2, round(shape.pages / max(1.0, wait)))
    return Graph(msgspec.structs.replace(shape, pages=pages), port)


def _site(graph: Graph, host: int, wait: float) -> Site:
    page: Behaviour = partial(_page, graph, host)
    robots = "User-agent: *\nDisallow:\n" + (f"Crawl-delay: {wait:g}\n" if wait else "")
    return Site(
        graph.name(host),
        paths={ROBOTS: serving(robots, "text/plain")},
        rest=(slow(page, wait=SLOW) if host % 7 == 0 else page,),
        pages=tuple(graph.paths()),
        crawl_delay=wait or None,
    )


def _page(graph: Graph, host: int, asked: Asked) -> Reply | None:
    number = number_of(asked.path)
    if number is None or number >= graph.shape.pages:
        return None
    reply: Reply = graph.page(host, number)
    return reply


cast("dict[str, Any]", WORLDS).update(mixed=mixed, throttling=throttling)

if __name__ == "__main__":
    sys.exit(main())
