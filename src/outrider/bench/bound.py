"""The plain in-memory bound: a dict and heaps, no rules, no answers; what Python itself costs."""

from __future__ import annotations

import time
from heapq import heappop, heappush


def adds_per_second(entries: list[tuple[str, str, float]]) -> float:
    """Known-set and one heap per host, nothing else."""
    known: set[str] = set()
    heaps: dict[str, list[tuple[float, int, str]]] = {}
    before = time.process_time()
    for number, (host, url, priority) in enumerate(entries):
        if url not in known:
            known.add(url)
            heappush(heaps.setdefault(host, []), (priority, number, url))
    return len(entries) / (time.process_time() - before)


def visits_per_second(entries: list[tuple[str, str, float]], visits: int) -> float:
    """The best host's best URL, again and again: two pops and a push."""
    heaps: dict[str, list[tuple[float, int, str]]] = {}
    for number, (host, url, priority) in enumerate(entries):
        heappush(heaps.setdefault(host, []), (priority, number, url))
    ready = [(heap[0][0], number, host) for number, (host, heap) in enumerate(heaps.items())]
    ready.sort()
    before = time.process_time()
    for turn in range(visits):
        _, _, host = heappop(ready)
        heap = heaps[host]
        heappop(heap)
        if heap:
            heappush(ready, (heap[0][0], turn, host))
    return visits / (time.process_time() - before)
