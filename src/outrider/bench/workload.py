"""Workload W: synthetic URLs over hosts of Zipf sizes plus one giant; deterministic by seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate
from typing import cast

from outrider.core.task import Link
from outrider.core.url import Url, parse_url

GIANT_SHARE = 0.05
TASKS_PER_HOST = 200
BATCH = 500


def pages(count: int, *, seed: int = 1, hosts: int | None = None) -> list[str]:
    """Distinct URLs of about 70 bytes; host sizes Zipf(1), one giant of 5 %."""
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
    """What pages bring: new URLs, and among them so many that were seen before."""
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
    """The same as parsed links with a priority, a depth and a type of their own."""
    dice = random.Random(seed)
    links = []
    for text in texts:
        url = cast("Url", parse_url(text))
        kind = dice.choice(("page", "article", "nav"))
        links.append(Link(url, type=kind, depth=dice.randrange(6), priority=dice.random() * 10))
    return links


def batches(items: list[Link] | list[str], size: int = BATCH) -> Iterator[list[Link] | list[str]]:
    """Consecutive slices."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
