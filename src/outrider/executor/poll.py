"""When a workbench is filled anew (J5): a strategy answers one reading with the seconds to wait.

A strategy is any function of a `Reading`; it holds no state, so it can be asked at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from outrider.settings import resolve
from outrider.settings.worker_schema import ExecutorSettings


class Reading(msgspec.Struct, frozen=True):
    """A workbench at one instant: what the last poll brought, and what of it nobody has begun."""

    since: float  # seconds since that poll
    tasks: int
    queues: int
    tasks_left: int
    queues_left: int


# 0 or less: poll now; otherwise, look again after so many seconds, or when nothing is left.
Strategy: TypeAlias = Callable[[Reading], float]


class Generic(msgspec.Struct, frozen=True):
    """Not before the least interval, not after the most, and in between when little is left."""

    least: float
    most: float
    check: float  # seconds between two looks
    tasks_ratio: float
    queues_ratio: float

    def __call__(self, reading: Reading) -> float:
        """Seconds to the next poll, or to the next look."""
        if reading.since < self.least:
            return self.least - reading.since
        if reading.since >= self.most or self._is_little(reading):
            return 0.0
        return min(self.check, self.most - reading.since)

    def _is_little(self, reading: Reading) -> bool:
        few_tasks = reading.tasks_left <= self.tasks_ratio * reading.tasks
        return few_tasks or reading.queues_left <= self.queues_ratio * reading.queues


def strategy_of(settings: ExecutorSettings) -> Strategy:
    """The strategy these settings name."""
    if settings.poll != "generic":
        found: Strategy = resolve(settings.poll, "executor.poll")
        return found
    return Generic(
        settings.poll_min,
        max(settings.poll_min, settings.poll_max),
        settings.poll_check,
        settings.poll_tasks_ratio,
        settings.poll_queues_ratio,
    )
