"""Places for visits (J2): a slot has an id that stays, and is idle, busy, or draining.

A parked visit has no slot. When it comes back it waits for one, before any new claim gets it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count as count_from
from typing import Literal, TypeAlias

import msgspec

from outrider.executor.visit import Visit

SlotState: TypeAlias = Literal["idle", "busy", "draining"]


class SlotView(msgspec.Struct, frozen=True):
    """One slot as an operator sees it."""

    id: int
    state: SlotState
    url: str | None


class Slots:
    """The lowest idle ids are given first, so that the highest fall free when slots are taken."""

    def __init__(self, count: int) -> None:
        self.count = 0
        self._idle: list[int] = []  # a heap
        self._busy: dict[int, Visit] = {}
        self._of: dict[Visit, int] = {}
        self._returning: deque[tuple[Visit, asyncio.Future[None]]] = deque()
        self._reserved = 0  # idle ones that a claim under way was made for
        self.resize(count)

    @property
    def busy(self) -> int:
        """How many visits have one."""
        return len(self._busy)

    @property
    def room(self) -> int:
        """How many visits may begin or come back now: draining ones count until they end."""
        return max(0, min(len(self._idle), self.count - len(self._busy)))

    @property
    def free(self) -> int:
        """How many may be claimed for: those that come back from parking go first."""
        return max(0, self.room - len(self._returning))

    def resize(self, count: int) -> None:
        """More slots are there at once; of fewer, the busy ones drain first."""
        for slot in range(self.count, count):
            if slot not in self._busy:
                heappush(self._idle, slot)
        self.count = count
        self._idle = sorted(slot for slot in self._idle if slot < count)
        self._serve()

    def take(self, visit: Visit) -> None:
        """The visit has a slot from now on; ask `room` first."""
        slot = heappop(self._idle) if self._idle else self._beyond()
        self._busy[slot] = visit
        self._of[visit] = slot

    def _beyond(self) -> int:
        """For one whose slot was taken away while it was claimed for: it drains."""
        return next(slot for slot in count_from(self.count) if slot not in self._busy)

    @contextmanager
    def reserved(self, count: int) -> Iterator[None]:
        """So many idle slots are not given to those that come back, until a claim is answered."""
        self._reserved = count
        try:
            yield
        finally:
            self._reserved = 0
            self._serve()

    def give(self, visit: Visit) -> None:
        """The visit needs its slot no more; one that has none gives nothing."""
        slot = self._of.pop(visit, None)
        if slot is None:
            return
        del self._busy[slot]
        if slot < self.count:
            heappush(self._idle, slot)
        self._serve()

    async def take_again(self, visit: Visit) -> None:
        """Wait for a slot, in order of asking."""
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
        while self.room > self._reserved and self._returning:
            visit, turn = self._returning.popleft()
            if not turn.done():
                self.take(visit)
                turn.set_result(None)

    def views(self) -> list[SlotView]:
        """Every slot, by id."""
        busy = [
            SlotView(slot, "busy" if slot < self.count else "draining", visit.url)
            for slot, visit in self._busy.items()
        ]
        return sorted([*busy, *(SlotView(slot, "idle", None) for slot in self._idle)], key=_id)


def _id(view: SlotView) -> int:
    return view.id
