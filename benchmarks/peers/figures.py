"""Shared by the peers' scripts: windows of CPU seconds, and the JSON object each prints.

Standard library only: it runs in environments that hold a peer and nothing of ours.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

BUDGET = 8.0  # wall seconds a figure may take, so that a script ends within a minute
T = TypeVar("T")


class LostWork(Exception):
    """Work was lost or doubled: such a run has no figure."""


@dataclass(frozen=True)
class Given:
    """What a script is asked to measure on."""

    stream: list[str]  # raw text with duplicates, for adds
    pool: list[str]  # distinct URLs, for claims


class Run:
    """Work in batches, its rates in windows of CPU seconds; ends early when the budget is spent."""

    def __init__(self, window: int, batch: int) -> None:
        self._window, self._batch = window, batch
        self.rates: list[float] = []
        self.count, self.wall = 0, 0.0

    @property
    def is_spent(self) -> bool:
        """Whether the budget is used up."""
        return self.wall > BUDGET

    def batches(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        """Slices to work on; what happens until the next one is asked for is what is timed."""
        window = max(1, min(self._window, len(items) // 4))
        done, since, start = 0, time.process_time(), time.perf_counter()
        for batch in _slices(items, min(self._batch, window)):
            yield batch
            done += len(batch)
            self.count += len(batch)
            if done >= window:
                now = time.process_time()
                self.rates.append(done / (now - since))
                done, since = 0, now
            now_wall = time.perf_counter()
            self.wall, start = self.wall + now_wall - start, now_wall
            if self.is_spent:
                return

    def figure(self, what: str, **facts: Any) -> dict[str, Any]:
        """The figure as it is printed."""
        if not self.rates:
            raise LostWork("nothing was left to measure")
        rates = sorted(self.rates)
        return {
            "what": what,
            "unit": "/s",
            "best": rates[-1],
            "median": rates[len(rates) // 2],
            "windows": len(rates),
            "count": self.count,
            "wall": self.count / self.wall,
            "reason": None,
            **facts,
        }


def _slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def none_lost(what: str, found: int, expected: int) -> None:
    """Raise LostWork unless the two counts agree."""
    if found != expected:
        raise LostWork(f"{what}: {found:,} where {expected:,} were expected")


def nothing(reason: str) -> dict[str, Any]:
    """The figure that could not be had, and why."""
    return {"best": None, "median": None, "unit": "/s", "reason": reason}


def main(
    peer: str, packages: Sequence[str], measures: dict[str, Callable[[Given], dict[str, Any]]]
) -> None:
    """Read the arguments, take each figure, print one JSON object on standard output."""
    given = _given()
    figures = {f"{peer}.{name}": _taken(measure, given) for name, measure in measures.items()}
    versions = {package: version(package) for package in packages}
    json.dump({"version": versions[peer], "versions": versions, "figures": figures}, sys.stdout)


def _given() -> Given:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", type=Path, required=True, help="raw URLs, one a line")
    parser.add_argument("--claims", type=Path, help="distinct URLs for claims, one a line")
    parser.add_argument("--limit", type=int, help="lines of the workload to use")
    parser.add_argument("--core", type=int, help="the core to stay on")
    asked = parser.parse_args()
    if asked.core is not None:
        _stay_on(asked.core)
    stream = asked.workload.read_text().split()[: asked.limit]
    pool = asked.claims.read_text().split() if asked.claims else stream
    return Given(stream, list(dict.fromkeys(pool)))


def _stay_on(core: int) -> None:
    # Not every system can pin; CPU seconds are still what is counted.
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setaffinity(0, {core})


def _taken(measure: Callable[[Given], dict[str, Any]], given: Given) -> dict[str, Any]:
    gc.collect()  # or this figure would pay for what the last one left
    try:
        return measure(given)
    except LostWork as lost:
        return nothing(f"no figure: {lost}")
    except Exception as error:  # noqa: BLE001  a peer's own failure costs its figure, not the run
        return nothing(f"{type(error).__name__}: {error}")
