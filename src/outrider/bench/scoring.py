"""Benchmarks of scoring a task, and of rescoring a million tasks (F9, C8)."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from outrider.bench.measurement import Measure, run
from outrider.core.policy.score import Candidate, DefaultScorer, Score
from outrider.core.policy.weights import Scoring
from outrider.core.signals import Cluster, Prediction, Signals
from outrider.core.task import Link
from outrider.core.url import Url, fingerprint
from outrider.frontier import Frontier
from outrider.store.protocol import ClaimRequest

BATCH: Final = 1000
KINDS: Final = ("article", "nav", "page", "hub-seed")
ORIGINS: Final = (None, "sitemap", "hub-seed", "link-discovery")
CLAIM_EVERY: Final = 0.02


def scores(rounds: int) -> Iterator[Measure]:
    """Measure a score with every feature on; one task in ten has a prediction or a cluster."""
    batch = [_candidate(number) for number in range(BATCH)]
    few = _cost(_scorer(_signals(batch)), batch, rounds)
    yield Measure("score a task, all features", few * 1e6, "µs", 2.0, is_most=True)
    unrelated = _signals(batch)
    for number in range(100_000):
        mark = fingerprint(f"https://elsewhere.example/{number}")
        unrelated.set_prediction(mark, Prediction("https://elsewhere.example/", 0.5, 0.5))
    many = _cost(_scorer(unrelated), batch, rounds)
    yield Measure("score a task, and 100,000 predictions of others", many * 1e6, "µs")
    yield Measure("  ratio", many / few, "×", 1.1, is_most=True)


def _candidate(number: int) -> Candidate:
    host = f"host{number % 200}.example"
    text = f"https://{host}/section{number % 7}/page-{number}-of-some-length"
    meta = {"knowledge_reuse": 0.5, "estimated_cost_ms": 50 + number % 600}
    kind, origin = KINDS[number % 4], ORIGINS[number // 4 % 4]
    link = Link(text, type=kind, depth=number % 5, origin=origin, meta=meta)
    return link, Url(text, text, host), host, fingerprint(text)


def _signals(batch: Sequence[Candidate]) -> Signals:
    """Return 100 predictions and 50 clusters of hosts, paths and words."""
    signals = Signals()
    for link, url, _, mark in batch[::10]:
        signals.set_prediction(mark, Prediction(url.text, 0.8, link.depth / 10))
    for number in range(50):
        targets = (f"host{number}.example", f"/part{number}", f"topic{number}")
        cluster = Cluster("missing-hub", "", targets[number % 3], ((0, 2 + number),))
        signals.set_cluster(str(number), cluster, 1)
    return signals


def _scorer(signals: Signals) -> Callable[[Sequence[Candidate]], list[Score]]:
    return DefaultScorer(Scoring(cost_aware=True), signals).score


def _cost(
    score: Callable[[Sequence[Candidate]], list[Score]], batch: list[Candidate], rounds: int
) -> float:
    costs = []
    for _ in range(rounds * 10):
        before = time.process_time()
        score(batch)
        costs.append(time.process_time() - before)
    return min(costs) / len(batch)


def rescoring(tasks: int) -> list[Measure]:
    """Measure rescoring all pending tasks of a file, with claims in between."""
    with TemporaryDirectory() as folder:
        added, seconds, waited, claims = run(_rescoring(Path(folder) / "crawl.outrider", tasks))
    most = 20.0 * tasks / 1_000_000
    return [
        Measure(f"add {tasks:,} tasks to a file", added, "s"),
        Measure(f"rescore {tasks:,} tasks of a file", seconds, "s", most, is_most=True),
        Measure(f"  longest of {claims:,} claims meanwhile", waited * 1e3, "ms", 50, is_most=True),
    ]


async def _rescoring(path: Path, tasks: int) -> tuple[float, float, float, int]:
    settings = {"politeness": {"delay": 0.0}}
    async with Frontier.open(str(path), settings=settings) as frontier:
        began = time.perf_counter()
        await frontier.add(
            (
                Link(f"https://host-{number % 20_000}.example/{number}", depth=number % 5)
                for number in range(tasks)
            ),
            answers=False,
        )
        added = time.perf_counter() - began
        gc.freeze()  # see docs/how-to/large-crawls.md: these are pauses of Python, not of the store
        before = time.perf_counter()
        work = asyncio.ensure_future(_changed(frontier))
        waits = await _claim_meanwhile(frontier, work)
        seconds = time.perf_counter() - before
        gc.unfreeze()
        if await work < tasks - len(waits):
            raise AssertionError("not all that waits was looked at")
        return added, seconds, max(waits), len(waits)


async def _changed(frontier: Frontier) -> int:
    """Change a weight, and wait for the rescoring that follows."""
    await frontier.configure({"scoring": {"weights": {"default": 50.0}}})
    job = await frontier.rescoring()
    while job.state != "done":
        await asyncio.sleep(CLAIM_EVERY)
        job = await frontier.rescoring()
    return job.looked


async def _claim_meanwhile(frontier: Frontier, work: asyncio.Task[int]) -> list[float]:
    """Return how long each claim took, counted from its planned time."""
    waits = []
    wanted = time.perf_counter()
    while not work.done():
        claimed = await frontier.store.claim(ClaimRequest(frontier.crawl, "bench", 1))
        waits.append(time.perf_counter() - wanted)
        await frontier.store.release([lease.id for lease in claimed.leases])
        wanted = time.perf_counter() + CLAIM_EVERY
        await asyncio.sleep(CLAIM_EVERY)
    return waits
