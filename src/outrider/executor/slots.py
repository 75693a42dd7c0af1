"""Slots for visits (J2), and the scaler that adds and removes slots (J3).

A slot has a permanent id and is idle, busy or draining. A parked visit has no slot; when it
resumes, it waits for one before any new claim gets it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count as count_from
from typing import Final, Literal, TypeAlias

import msgspec

from outrider.core.worker_totals import MAX_DECISIONS, ScalingDecision
from outrider.executor.visit import Visit
from outrider.settings.worker_schema import ExecutorSettings

SCALING_INTERVAL: Final = 5.0  # seconds between two readings
UP_COOLDOWN: Final = 30.0
DOWN_COOLDOWN: Final = 120.0
IDLE_BEFORE_SHRINK: Final = 120.0  # seconds with an idle slot before slots are removed
MAX_LAG: Final = 0.25  # seconds; no slot is added while the event loop is later than this

SlotState: TypeAlias = Literal["idle", "busy", "draining"]


class SlotView(msgspec.Struct, frozen=True):
    """One slot as an operator sees it."""

    id: int
    state: SlotState
    url: str | None


class Slots:
    """Gives the lowest idle ids first, so that the highest are idle when slots are removed."""

    def __init__(self, count: int) -> None:
        self.count = 0
        self._idle: list[int] = []  # a heap
        self._busy: dict[int, Visit] = {}
        self._slot_of: dict[Visit, int] = {}
        self._returning: deque[tuple[Visit, asyncio.Future[None]]] = deque()
        self._reserved = 0  # idle slots that a claim under way was made for
        self.resize(count)

    @property
    def busy(self) -> int:
        """How many visits have a slot."""
        return len(self._busy)

    @property
    def available(self) -> int:
        """How many visits may begin or resume now: draining slots count until they are free."""
        return max(0, min(len(self._idle), self.count - len(self._busy)))

    @property
    def free(self) -> int:
        """How many slots may be claimed for: visits that resume from parking come first."""
        return max(0, self.available - len(self._returning))

    def resize(self, count: int) -> None:
        """Change the number of slots; busy ones that are removed drain first."""
        for slot in range(self.count, count):
            if slot not in self._busy:
                heappush(self._idle, slot)
        self.count = count
        self._idle = sorted(slot for slot in self._idle if slot < count)
        self._serve()

    def take(self, visit: Visit) -> None:
        """Give the visit a slot; check `available` first."""
        slot = heappop(self._idle) if self._idle else self._draining_slot()
        self._busy[slot] = visit
        self._slot_of[visit] = slot

    def _draining_slot(self) -> int:
        """Return an id for a visit whose slot was removed during its claim: it drains."""
        return next(slot for slot in count_from(self.count) if slot not in self._busy)

    @contextmanager
    def reserved(self, count: int) -> Iterator[None]:
        """Keep so many idle slots from resuming visits until a claim is answered."""
        self._reserved = count
        try:
            yield
        finally:
            self._reserved = 0
            self._serve()

    def give(self, visit: Visit) -> None:
        """Free the visit's slot, if it has one."""
        slot = self._slot_of.pop(visit, None)
        if slot is None:
            return
        del self._busy[slot]
        if slot < self.count:
            heappush(self._idle, slot)
        self._serve()

    async def take_again(self, visit: Visit) -> None:
        """Wait for a slot, in order of the calls."""
        turn = asyncio.get_running_loop().create_future()
        self._returning.append((visit, turn))
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if (visit, turn) in self._returning:
                self._returning.remove((visit, turn))
            raise

    def _serve(self) -> None:
        while self.available > self._reserved and self._returning:
            visit, turn = self._returning.popleft()
            if not turn.done():
                self.take(visit)
                turn.set_result(None)

    def by_state(self) -> dict[str, int]:
        """Count the slots by state (J2)."""
        draining = sum(slot >= self.count for slot in self._busy)
        busy = len(self._busy) - draining
        return {"idle": len(self._idle), "busy": busy, "draining": draining}

    def views(self) -> list[SlotView]:
        """Return every slot, by id."""
        busy = [
            SlotView(slot, "busy" if slot < self.count else "draining", visit.url)
            for slot, visit in self._busy.items()
        ]
        return sorted([*busy, *(SlotView(slot, "idle", None) for slot in self._idle)], key=_slot_id)


def _slot_id(view: SlotView) -> int:
    return view.id


def slot_bounds(wanted: ExecutorSettings) -> tuple[int, int, int]:
    """Return the lowest and highest number of slots, and the memory above which none is added.

    A bound that is not set is `slots`, moved to the other bound where it lies beyond that.
    """
    most = wanted.max_slots or max(wanted.slots, wanted.min_slots)
    least = min(wanted.min_slots or wanted.slots, most)
    return least, most, wanted.max_memory


def max_slots(wanted: ExecutorSettings) -> int:
    """Return how many visits may run at one time, however slots are scaled."""
    return slot_bounds(wanted)[1]


def clamp(count: int, least: int, most: int) -> int:
    """Return the number of slots nearest to `count` that the bounds allow (J3)."""
    return min(max(count, least), most)


# ---- scaling


class SlotReading(msgspec.Struct, frozen=True):
    """What the scaler decides by: the state at one instant."""

    at: float
    slots: int
    idle: int
    has_ready: bool  # more tasks are due than slots were free
    lag: float = 0.0  # seconds the event loop was late
    memory: int = 0  # bytes this process holds


class Scaler:
    """Decides the number of slots between two bounds; remembers the last hundred decisions.

    Cooldowns prevent flapping: after a step up, or down, the next such step waits.
    """

    def __init__(self, least: int, most: int, max_memory: int = 0) -> None:
        self._least, self._most, self._max_memory = least, most, max_memory
        self._up_at = self._down_at = float("-inf")
        self._idle_since: float | None = None
        self.decisions: deque[ScalingDecision] = deque(maxlen=MAX_DECISIONS)

    def bound(self, least: int, most: int, max_memory: int = 0) -> None:
        """Change the bounds."""
        self._least, self._most, self._max_memory = least, most, max_memory

    def decide(self, reading: SlotReading) -> int:
        """Return how many slots there should be; record changes and changes held back."""
        self._update_idle_since(reading)
        if reading.has_ready and not reading.idle and reading.slots < self._most:
            return self._up(reading)
        if self._idle_since is not None and reading.slots > self._least:
            return self._down(reading)
        return reading.slots

    def _update_idle_since(self, reading: SlotReading) -> None:
        if not reading.idle:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = reading.at

    def _up(self, reading: SlotReading) -> int:
        if reading.at - self._up_at < UP_COOLDOWN:
            return reading.slots
        obstacle = self._obstacle(reading)
        if obstacle:
            return self._record(reading, reading.slots, obstacle)
        self._up_at = reading.at
        step = reading.slots // 2 + 1
        after = min(self._most, reading.slots + step)
        return self._record(reading, after, "ready work, no idle slot")

    def _obstacle(self, reading: SlotReading) -> str:
        if reading.lag > MAX_LAG:
            return f"held back: the loop is {reading.lag:.2f} s late"
        if self._max_memory and reading.memory > self._max_memory:
            return f"held back: {reading.memory:,} bytes of memory, over {self._max_memory:,}"
        return ""

    def _down(self, reading: SlotReading) -> int:
        idle_for = reading.at - (self._idle_since or reading.at)
        last_step = max(self._down_at, self._up_at)
        if idle_for < IDLE_BEFORE_SHRINK or reading.at - last_step < DOWN_COOLDOWN:
            return reading.slots
        self._down_at = reading.at
        step = min(reading.idle, max(1, reading.slots // 4))
        after = max(self._least, reading.slots - step)
        return self._record(reading, after, f"{reading.idle} idle, for {idle_for:.0f} s")

    def _record(self, reading: SlotReading, after: int, reason: str) -> int:
        decision = ScalingDecision(reading.at, reading.slots, after, reason)
        last = self.decisions[-1] if self.decisions else None
        is_new = last is None or (last.after, last.before) != (after, reading.slots)
        if is_new or after != reading.slots:
            self.decisions.append(decision)
        return after
