"""Slots that keys take in turn, so that none gets more than its share while others wait.

A key is a queue's: one host, as a rule. Of the keys that wait, the one with the fewest faults is
served first, then the one that holds the fewest slots, then the one that was served longest ago.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

MAX_KEYS: Final = 10_000  # whose faults are remembered
MAX_FAULTS: Final = 10  # that count


class FaultRecord:
    """How often in a row the calls of each key exhausted their limits; a success clears it."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def __getitem__(self, key: str) -> int:
        return self._counts.get(key, 0)

    def add(self, key: str) -> None:
        """Count one more."""
        self._counts[key] = min(self[key] + 1, MAX_FAULTS)
        self._counts.move_to_end(key)
        if len(self._counts) > MAX_KEYS:
            self._counts.popitem(last=False)

    def clear(self, key: str) -> None:
        """Forget those of a key."""
        self._counts.pop(key, None)


class FairSlots:
    """A number of slots, and those who wait for one."""

    def __init__(self, count: int, faults: FaultRecord) -> None:
        self._free = count
        self._faults = faults
        self._held: Counter[str] = Counter()
        # In the order in which they came; a key is absent as soon as none of its calls waits.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._turns = 0
        self._last_turn: dict[str, int] = {}  # of the keys that wait or hold a slot

    @asynccontextmanager
    async def slot(self, key: str, max_wait: float | None = None) -> AsyncIterator[None]:
        """One slot, for as long as the block lasts; TimeoutError if none came free in time."""
        await self._take(key, max_wait)
        try:
            yield
        finally:
            self._give_back(key)

    async def _take(self, key: str, max_wait: float | None) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        self._serve()
        try:
            async with asyncio.timeout(max_wait):
                await turn
        except BaseException:
            self._leave(key, turn)
            raise

    def _leave(self, key: str, turn: asyncio.Future[None]) -> None:
        """Stop waiting; a slot that was given at this very moment goes to the next."""
        if turn.done() and not turn.cancelled():
            self._give_back(key)
            return
        turns = self._waiting.get(key, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(key, None)
        self._forget(key)

    def _give_back(self, key: str) -> None:
        self._free += 1
        self._held[key] -= 1
        if self._held[key] <= 0:
            del self._held[key]
        self._forget(key)
        self._serve()

    def _forget(self, key: str) -> None:
        if key not in self._waiting and key not in self._held:
            self._last_turn.pop(key, None)

    def _serve(self) -> None:
        while self._free and self._waiting:
            key = min(self._waiting, key=self._rank)
            turns = self._waiting[key]
            turn = turns.popleft()
            if not turns:
                del self._waiting[key]
            if not turn.done():
                self._free -= 1
                self._held[key] += 1
                self._turns += 1
                self._last_turn[key] = self._turns
                turn.set_result(None)

    def _rank(self, key: str) -> tuple[int, int, int]:
        return self._faults[key], self._held[key], self._last_turn.get(key, 0)
