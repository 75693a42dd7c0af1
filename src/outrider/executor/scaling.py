"""How many slots there should be (J3): a decision from one reading, each with its reason.

Cooldowns are what keeps it from flapping: after a step up, or down, the same step waits.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

EVERY: Final = 5.0  # seconds between two readings
UP_COOLDOWN: Final = 30.0
DOWN_COOLDOWN: Final = 120.0
IDLE_FOR: Final = 120.0  # seconds with an idle slot before slots are taken away
MOST_LAG: Final = 0.25  # seconds the loop may be late before no slot is added
KEPT: Final = 100


class Reading(msgspec.Struct, frozen=True):
    """What is known at one instant."""

    at: float
    slots: int
    idle: int
    has_ready: bool  # a claim was cut short by the lack of slots
    lag: float = 0.0  # seconds the loop was late
    memory: int = 0  # bytes this process holds


class Decision(msgspec.Struct, frozen=True):
    """From how many slots to how many, and why."""

    at: float
    before: int
    after: int
    reason: str


class Scaler:
    """Between least and most; the last hundred decisions are kept."""

    def __init__(self, least: int, most: int, max_memory: int = 0) -> None:
        self._least, self._most, self._max_memory = least, most, max_memory
        self._up_at = self._down_at = float("-inf")
        self._idle_since: float | None = None
        self.decisions: deque[Decision] = deque(maxlen=KEPT)

    def bound(self, least: int, most: int, max_memory: int = 0) -> None:
        """Between these from now on."""
        self._least, self._most, self._max_memory = least, most, max_memory

    def decide(self, reading: Reading) -> int:
        """How many slots there shall be; what changes, or is held back, is noted."""
        self._watch_idle(reading)
        if reading.has_ready and not reading.idle and reading.slots < self._most:
            return self._up(reading)
        if self._idle_since is not None and reading.slots > self._least:
            return self._down(reading)
        return reading.slots

    def _watch_idle(self, reading: Reading) -> None:
        if not reading.idle:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = reading.at

    def _up(self, reading: Reading) -> int:
        if reading.at - self._up_at < UP_COOLDOWN:
            return reading.slots
        held = self._held_back(reading)
        if held:
            return self._noted(reading, reading.slots, held)
        self._up_at = reading.at
        step = reading.slots // 2 + 1
        after = min(self._most, reading.slots + step)
        return self._noted(reading, after, "ready work, no idle slot")

    def _held_back(self, reading: Reading) -> str:
        if reading.lag > MOST_LAG:
            return f"held back: the loop is {reading.lag:.2f} s late"
        if self._max_memory and reading.memory > self._max_memory:
            return f"held back: {reading.memory:,} bytes of memory, over {self._max_memory:,}"
        return ""

    def _down(self, reading: Reading) -> int:
        idle_for = reading.at - (self._idle_since or reading.at)
        if idle_for < IDLE_FOR or reading.at - max(self._down_at, self._up_at) < DOWN_COOLDOWN:
            return reading.slots
        self._down_at = reading.at
        step = min(reading.idle, max(1, reading.slots // 4))
        after = max(self._least, reading.slots - step)
        return self._noted(reading, after, f"{reading.idle} idle, for {idle_for:.0f} s")

    def _noted(self, reading: Reading, after: int, reason: str) -> int:
        decision = Decision(reading.at, reading.slots, after, reason)
        last = self.decisions[-1] if self.decisions else None
        is_news = last is None or (last.after, last.before) != (after, reading.slots)
        if is_news or after != reading.slots:
            self.decisions.append(decision)
        return after
