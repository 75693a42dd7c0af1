"""A comparison of scorers: what each finds first, on a real frontier over a link graph (F10).

There are no delays, and all hosts are one queue unless sites are scored, so the order of visits is
the scorer's alone. `python -m outrider.simulation.scorers [SEED [PAGES]]` prints a comparison.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from outrider.core.outcome import Done
from outrider.core.policy.score import Scorer
from outrider.core.policy.scorers import scorer_of
from outrider.core.policy.url_groups import TAG_PATH
from outrider.core.policy.weights import Scoring
from outrider.core.task import Lease, Link
from outrider.frontier import Frontier
from outrider.simulation.link_graphs import Web, page_rank, planted, power_law, tagged
from outrider.testing import FakeClock

SHARES: Final = (0.1, 0.2, 0.3)
_SITES: Final = "largest-sites-first"


async def crawl(web: Web, name: str, share: float) -> list[str]:
    """Return the pages that a scorer visits first, in order: this share of all."""
    scorer = scorer_of(Scoring(name))
    settings = {
        "queue": {"key": "host" if name == _SITES else "buckets:1"},
        "politeness": {"delay": 0.0},
        "scoring": {"scorer": scorer},
    }
    most = int(share * len(web.reachable()))
    visited: list[str] = []
    async with Frontier.open("memory://", settings=settings, clock=FakeClock()) as frontier:
        await frontier.add(web.seeds)
        while len(visited) < most:
            (lease,) = await frontier.claim(1)
            visited.append(lease.url)
            await _visit(frontier, lease, web, scorer)
    return visited


async def _visit(frontier: Frontier, lease: Lease, web: Web, scorer: Scorer) -> None:
    links = [_link(url, lease, web) for url in web.links[lease.url]]
    reward = web.rewards.get(lease.url, 0.0) if web.rewards else None
    await frontier.finish(lease, Done(200, reward=reward), links=links)
    if getattr(scorer, "is_stale", False):
        await frontier.rescore()


def _link(url: str, lease: Lease, web: Web) -> Link:
    path = web.tag_paths.get(url)
    return Link(url, depth=lease.depth + 1, meta={TAG_PATH: path} if path else {})


def collected(visited: Sequence[str], worth: Mapping[str, float], pages: int) -> dict[float, float]:
    """Return the share of the total worth that was collected, after each share of pages."""
    whole = sum(worth.values())
    return {
        share: sum(worth.get(url, 0.0) for url in visited[: int(share * pages)]) / whole
        for share in SHARES
    }


def compare(web: Web, names: Sequence[str]) -> dict[str, dict[float, float]]:
    """Return what each scorer collected: rewards if the web has any, else PageRank."""
    pages = web.reachable()
    worth = web.rewards or page_rank({url: web.links[url] for url in web.links if url in pages})
    runs = {name: asyncio.run(crawl(web, name, SHARES[-1])) for name in names}
    return {name: collected(run, worth, len(pages)) for name, run in runs.items()}


def shown(title: str, rows: Mapping[str, Mapping[float, float]]) -> str:
    """Return a comparison as lines of text."""
    head = f"{title:24}" + "".join(f"{f'at {share:.0%}':>9}" for share in SHARES)
    lines = [
        f"{name:24}" + "".join(f"{value:9.3f}" for value in row.values())
        for name, row in rows.items()
    ]
    return "\n".join([head, *lines, ""])


def main(seed: int = 1, pages: int = 3000) -> None:
    """Print a comparison on every web."""
    names = ("breadth-first", "depth-first", _SITES, "opic")
    learners = ("breadth-first", "learning")
    sys.stdout.write(shown("power-law: PageRank", compare(power_law(seed, pages), names)))
    sys.stdout.write(shown("planted: reward", compare(planted(seed, 4, pages // 20), learners)))
    sys.stdout.write(shown("tagged: reward", compare(tagged(seed, pages), learners)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
