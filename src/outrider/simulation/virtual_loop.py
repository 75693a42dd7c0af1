"""Virtual time for coroutines: who sleeps is woken in the order of their instants, never by a wait.

It stands in for an event loop where all waiting is for time: a thousand times fewer steps than
asyncio takes, and no step that depends on anything but the order in which naps were asked for.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from heapq import heappop, heappush
from types import coroutine
from typing import Any, Final, TypeAlias

from outrider.clock import to_ms

START: Final = 1_700_000_000_000  # milliseconds; any instant would do

Actor: TypeAlias = Coroutine[int, None, None]


@coroutine
def _until(instant: int) -> Generator[int, None, None]:
    yield instant


class Stage:
    """A clock, and the actors that live by it; each runs until it sleeps."""

    is_virtual = True  # stores on a server obey it, instead of their own clock

    def __init__(self) -> None:
        self._now = START
        self._count = 0
        self._asleep: list[tuple[int, int, Actor]] = []

    def now_ms(self) -> int:
        """The instant all actors share."""
        return self._now

    def elapsed(self) -> float:
        """Seconds since the curtain rose."""
        return (self._now - START) / 1000

    async def sleep(self, seconds: float) -> None:
        """Return once the stage has come that far; 0 lets the others of this instant go first."""
        await _until(self._now + to_ms(seconds))

    def enter(self, actor: Coroutine[Any, Any, None]) -> None:
        """Let an actor begin, after those who are already waiting for this instant."""
        self._wake_at(self._now, actor)

    def play(self, until: float) -> bool:
        """Run until nobody waits any more; False if so many seconds were not enough."""
        end = START + to_ms(until)
        asleep = self._asleep
        while asleep:
            if asleep[0][0] > end:
                return False
            self._now, _, actor = heappop(asleep)
            self._step(actor)
        return True

    def close(self) -> None:
        """Send everyone home who still waits."""
        for _, _, actor in self._asleep:
            actor.close()
        self._asleep.clear()

    def _step(self, actor: Actor) -> None:
        try:
            instant = actor.send(None)
        except StopIteration:
            return
        self._wake_at(instant, actor)

    def _wake_at(self, instant: int, actor: Actor) -> None:
        self._count += 1
        heappush(self._asleep, (instant, self._count, actor))
