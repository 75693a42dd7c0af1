"""Polling strategies of the workbench (J5): a function that decides when to borrow again.

A strategy maps a `Reading` to seconds to wait; it holds no state, so it can be called at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from outrider.settings import resolve
from outrider.settings.worker_schema import ExecutorSettings


class Reading(msgspec.Struct, frozen=True):
    """A workbench at one instant: what the last poll borrowed, and what of it has not begun."""

    since: float  # seconds since that poll
    tasks: int
    queues: int
    tasks_left: int
    queues_left: int


# 0 or less: poll now; otherwise ask again after so many seconds, or when nothing is left.
Strategy: TypeAlias = Callable[[Reading], float]


class GenericStrategy(msgspec.Struct, frozen=True):
    """Polls after `least` seconds as soon as little is left, and after `most` in any case."""

    least: float
    most: float
    check: float  # seconds between two readings
    tasks_ratio: float
    queues_ratio: float

    def __call__(self, reading: Reading) -> float:
        """Return the seconds to the next poll, or to the next reading."""
        if reading.since < self.least:
            return self.least - reading.since
        if reading.since >= self.most or self._is_little(reading):
            return 0.0
        return min(self.check, self.most - reading.since)

    def _is_little(self, reading: Reading) -> bool:
        few_tasks = reading.tasks_left <= self.tasks_ratio * reading.tasks
        return few_tasks or reading.queues_left <= self.queues_ratio * reading.queues


def strategy_of(settings: ExecutorSettings) -> Strategy:
    """Return the strategy that `executor.poll` names."""
    if settings.poll != "generic":
        found: Strategy = resolve(settings.poll, "executor.poll")
        return found
    return GenericStrategy(
        settings.poll_min,
        max(settings.poll_min, settings.poll_max),
        settings.poll_check,
        settings.poll_tasks_ratio,
        settings.poll_queues_ratio,
    )
