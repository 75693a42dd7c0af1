"""Measurements of calls: wall time, and CPU seconds of a server's processes.

Rates come from the median call: a sync that took long, or a neighbour, moves it least.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import median, quantiles
from typing import Any

import msgspec
import psutil

from outrider.bench.measurement import Measure


class Line(msgspec.Struct, frozen=True):
    """One figure, and what of it would survive a power cut."""

    measure: Measure
    durability: str


class Calls:
    """Calls of one kind: how many items each had, and how long it took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.items = 0

    @contextmanager
    def timed(self, items: int = 1) -> Iterator[None]:
        """One call."""
        began = time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - began)
        self.items += items

    @property
    def rate(self) -> float:
        """Items a second, going by the median call."""
        if not self.seconds:
            return 0.0
        return self.items / len(self.seconds) / median(self.seconds)

    @property
    def p50(self) -> float:
        """Milliseconds of the median call."""
        return median(self.seconds) * 1e3

    @property
    def p99(self) -> float:
        """Milliseconds that one call in a hundred exceeds."""
        if len(self.seconds) < 2:
            return max(self.seconds, default=0.0) * 1e3
        return quantiles(self.seconds, n=100)[98] * 1e3

    def told(self) -> dict[str, Any]:
        """For the report."""
        return {
            "calls": len(self.seconds),
            "items": self.items,
            "rate": self.rate,
            "p50_ms": self.p50,
            "p99_ms": self.p99,
            "max_ms": max(self.seconds) * 1e3,
        }


def pin_apart(server: int) -> None:
    """Server and clients on cores of their own, where there are two."""
    with suppress(AttributeError, OSError):
        cores = sorted(os.sched_getaffinity(0))
        for task in psutil.Process(server).threads():
            os.sched_setaffinity(task.id, {cores[0]})
        os.sched_setaffinity(0, {cores[-1]})


def cpu_of(server: int) -> float:
    """CPU seconds of a process and of all it ever started."""
    first = psutil.Process(server)
    times = first.cpu_times()
    spent: float = times.user + times.system + times.children_user + times.children_system
    for child in first.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            own = child.cpu_times()
            spent += own.user + own.system
    return spent


def memory_of(server: int) -> float:
    """Bytes resident."""
    return float(psutil.Process(server).memory_info().rss)
