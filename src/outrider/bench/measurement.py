"""Measurements of a benchmark run: figures with their targets, CPU time windows, and the report.

A rate is measured in many short windows. The best window shows what the code can do, since noise
only makes it slower; the median shows how noisy the machine was. Every figure is printed, and
written to the report file, as soon as it is measured, so an interrupted run keeps its figures.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import msgspec

T = TypeVar("T")

_NAME: Final = 62  # width of the name column
_HEAD: Final = ("measure", "value", "", "promise", "kept")


class Measure(msgspec.Struct, frozen=True):
    """One measured figure, with its target if the project promises one."""

    name: str
    value: float
    unit: str
    target: float | None = None
    is_most: bool = False  # the target is a maximum, not a minimum

    @property
    def is_kept(self) -> bool | None:
        """Whether the target is met; None if there is no target."""
        if self.target is None:
            return None
        return self.value <= self.target if self.is_most else self.value >= self.target


def best(
    name: str, work: Callable[[], Sequence[float]], rounds: int, target: float | None = None
) -> list[Measure]:
    """Measure a rate over several rounds; return the best window and the median of all windows."""
    rates_ = sorted(rate for _ in range(rounds) for rate in work())
    return [
        Measure(name, rates_[-1], "/s", target),
        Measure(f"  median of {len(rates_)} windows", rates_[len(rates_) // 2], "/s"),
    ]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new event loop."""
    return asyncio.run(work)


def as_measured(work: AsyncIterator[T]) -> Iterator[T]:
    """Yield the items of an asynchronous measurement as they come, from a new event loop."""
    with asyncio.Runner() as runner:
        while True:
            try:
                yield runner.run(_next(work))
            except StopAsyncIteration:
                return


async def _next(work: AsyncIterator[T]) -> T:
    return await anext(work)


class Windows:
    """The rates of consecutive windows of work, per CPU second."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._count = 0
        self._since = time.process_time()
        self.rates: list[float] = []

    def done(self, count: int) -> None:
        """Count finished work, and close the window when it is full."""
        self._count += count
        if self._count >= self._size:
            now = time.process_time()
            self.rates.append(self._count / (now - self._since))
            self._count, self._since = 0, now


def resident() -> int:
    """Return the resident memory of this process in bytes; 0 where it is not reported."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


class Results:
    """The report of a run: prints a line per figure, and keeps a JSON file of all so far."""

    def __init__(
        self, path: Path | None, about: Mapping[str, Any], out: TextIO | None = None
    ) -> None:
        self._path = path
        self._report: dict[str, Any] = {**about, "complete": False, "measures": []}
        self._out = out or sys.stdout
        self._print(_HEAD)

    def add(self, measure: Measure, **more: str) -> None:
        """Add a figure: write it to the file, then print its line."""
        figure = {"name": measure.name, "value": measure.value, "unit": measure.unit}
        target = {"promise": measure.target, "kept": measure.is_kept}
        self._report["measures"].append({**figure, **target, **more})
        self._write()
        self._print((*row(measure), *more.values()))

    def note(self, name: str, value: object) -> None:
        """Store another value in the report file."""
        self._report[name] = value
        self._write()

    def complete(self) -> None:
        """Mark the report as complete."""
        self.note("complete", value=True)

    def _write(self) -> None:
        if self._path is not None:
            write_json(self._path, self._report)

    def _print(self, cells: Iterable[str]) -> None:
        name, value, unit, promise, *rest = cells
        line = f"{name:<{_NAME}} {value:>12} {unit:<3} {promise:>12}  {'  '.join(rest)}"
        self._out.write(f"{line.rstrip()}\n")
        self._out.flush()


def measure_parts(
    results: Results, parts: Iterable[tuple[str, Callable[[], Iterable[Measure]]]]
) -> None:
    """Measure the parts one after the other, and report every figure as soon as it is measured."""
    for title, part in parts:
        sys.stderr.write(f"{title}…\n")
        for measure in part():
            results.add(measure)
    results.complete()


def row(measure: Measure) -> tuple[str, str, str, str, str]:
    """Return the cells of a figure's line: name, value, unit, target, whether it is met."""
    promise = ""
    if measure.target is not None:
        promise = f"{'≤' if measure.is_most else '≥'} {measure.target:,.6g}"
    kept = {None: "", True: "yes", False: "no"}[measure.is_kept]
    is_whole = measure.value == int(measure.value) or abs(measure.value) >= 1000
    shown = f"{measure.value:,.0f}" if is_whole else f"{measure.value:,.3g}"
    return measure.name, shown, measure.unit, promise, kept


def write_json(path: Path, value: object) -> None:
    """Replace a JSON file atomically: readers see the old content or the new one."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(value, indent=1) + "\n")
    part.replace(path)
