"""The plain in-memory bound: a dict and heaps, no rules, no answers; what Python itself costs."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

from outrider.bench.measurement import Windows
from outrider.core.task import Task

Heaps = dict[str, list[tuple[float, int, tuple[Any, ...]]]]


def adds(tasks: Sequence[Task]) -> list[float]:
    """Known records and one heap per host, nothing else; rates of consecutive windows."""
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


def visits(tasks: Sequence[Task], count: int) -> list[float]:
    """The best host's best URL, again and again: two pops and a push."""
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
