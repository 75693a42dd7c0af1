"""Workload W of the benchmarks, and a baseline in plain Python to compare the stores with.

The workload is synthetic URLs over hosts of Zipf sizes plus one giant host, determined by a seed.
The baseline handles it with a dict and heaps, without any rules: the cost of Python itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from typing import Any, cast

from outrider.bench.measurement import Windows
from outrider.core.task import Link, Task
from outrider.core.url import Url, parse_url

GIANT_SHARE = 0.05
TASKS_PER_HOST = 200
BATCH = 500

Heaps = dict[str, list[tuple[float, int, tuple[Any, ...]]]]


def pages(count: int, *, seed: int = 1, hosts: int | None = None) -> list[str]:
    """Return distinct URLs of about 70 bytes; host sizes are Zipf(1), one giant has 5 %."""
    dice = random.Random(seed)
    number = hosts or max(1, count // TASKS_PER_HOST)
    weights = list(accumulate(1 / rank for rank in range(1, number + 1)))
    chosen = dice.choices(range(number), cum_weights=weights, k=count)
    return [
        f"https://www.host-{0 if dice.random() < GIANT_SHARE else host}.example"
        f"/section/{page % 97}/article-{page:08d}.html"
        for page, host in enumerate(chosen)
    ]


def stream(new: list[str], *, known_share: float = 0.6, seed: int = 2) -> Iterator[str]:
    """Yield URLs as pages bring them: new ones, mixed with a share of known ones."""
    dice = random.Random(seed)
    repeats = known_share / (1 - known_share)
    owed = 0.0
    for position, url in enumerate(new):
        yield url
        owed += repeats
        while owed >= 1:
            owed -= 1
            yield new[dice.randrange(position + 1)]


def parsed(texts: list[str], *, seed: int = 3) -> list[Link]:
    """Return links parsed from these URLs, with random priorities, depths and types."""
    dice = random.Random(seed)
    links = []
    for text in texts:
        url = cast("Url", parse_url(text))
        kind = dice.choice(("page", "article", "nav"))
        links.append(Link(url, type=kind, depth=dice.randrange(6), priority=dice.random() * 10))
    return links


def batches(items: list[Link] | list[str], size: int = BATCH) -> Iterator[list[Link] | list[str]]:
    """Yield consecutive slices of the items."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def baseline_adds(tasks: Sequence[Task]) -> list[float]:
    """Add tasks to one dict and one heap per host; return the rates of consecutive windows."""
    known: dict[str, tuple[Any, ...]] = {}
    heaps: Heaps = {}
    windows = Windows(20_000)
    for start in range(0, len(tasks), 500):
        for number, task in enumerate(tasks[start : start + 500], start):
            url = task.url
            if url not in known:
                known[url] = record = (url, task.type, task.depth, task.meta)
                heappush(heaps.setdefault(task.key, []), (task.priority, number, record))
        windows.done(len(tasks[start : start + 500]))
    return windows.rates


def baseline_visits(tasks: Sequence[Task], count: int) -> list[float]:
    """Take the best URL of the best host, repeatedly: two pops and a push for each."""
    heaps: Heaps = {}
    for number, task in enumerate(tasks):
        heappush(heaps.setdefault(task.key, []), (task.priority, number, (task.url,)))
    ready = [(heap[0][0], number, host) for number, (host, heap) in enumerate(heaps.items())]
    ready.sort()
    windows = Windows(10_000)
    for turn in range(count):
        _, _, host = heappop(ready)
        heap = heaps[host]
        heappop(heap)
        if heap:
            heappush(ready, (heap[0][0], turn, host))
        windows.done(1)
    return windows.rates
