"""What a measurement is: figures beside promises, and CPU seconds in short windows.

The best window is what the code can do, noise only adds; the median tells how noisy the day is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Measure(msgspec.Struct, frozen=True):
    """One figure beside what the project promises."""

    name: str
    value: float
    unit: str
    target: float | None = None
    is_most: bool = False  # the target is a ceiling, not a floor

    @property
    def is_kept(self) -> bool | None:
        """Whether the promise holds; None: nothing was promised."""
        if self.target is None:
            return None
        return self.value <= self.target if self.is_most else self.value >= self.target


def best(
    name: str, work: Callable[[], Sequence[float]], rounds: int, target: float | None = None
) -> list[Measure]:
    """The best of all windows is what the code can do; the median tells how noisy the day is."""
    rates_ = sorted(rate for _ in range(rounds) for rate in work())
    return [
        Measure(name, rates_[-1], "/s", target),
        Measure(f"  median of {len(rates_)} windows", rates_[len(rates_) // 2], "/s"),
    ]


def run(work: Coroutine[Any, Any, T]) -> T:
    """In a loop of its own."""
    return asyncio.run(work)


def as_measured(work: AsyncIterator[T]) -> Iterator[T]:
    """What an asynchronous measurement finds, each as it is found, in a loop of its own."""
    with asyncio.Runner() as runner:
        while True:
            try:
                yield runner.run(_next(work))
            except StopAsyncIteration:
                return


async def _next(work: AsyncIterator[T]) -> T:
    return await anext(work)


class Windows:
    """Rates of consecutive stretches of work, in CPU seconds."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._count = 0
        self._since = time.process_time()
        self.rates: list[float] = []

    def done(self, count: int) -> None:
        """So much more is done."""
        self._count += count
        if self._count >= self._size:
            now = time.process_time()
            self.rates.append(self._count / (now - self._since))
            self._count, self._since = 0, now


def resident() -> int:
    """Bytes this process holds, as far as the system tells; 0 where it does not."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0
