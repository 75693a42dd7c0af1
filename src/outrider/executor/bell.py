"""What the loop waits on: somebody rings, or the time is over."""

from __future__ import annotations

import asyncio


class Bell:
    """One waits, anybody rings; a ring that nobody waits for is kept."""

    def __init__(self) -> None:
        self._has_rung = False
        self._waiter: asyncio.Future[None] | None = None
        self._soon: asyncio.TimerHandle | None = None

    def ring(self) -> None:
        """Wake whoever waits."""
        self._has_rung = True
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def ring_in(self, seconds: float) -> None:
        """Ring a little later, once, however often it is asked for: so that more comes together."""
        if self._soon is None and not self._has_rung:
            self._soon = asyncio.get_running_loop().call_later(seconds, self.ring)

    async def rest(self, seconds: float) -> None:
        """Until it rings, or the time is over."""
        if not self._has_rung and seconds > 0:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            alarm = loop.call_later(seconds, self.ring)
            try:
                await self._waiter
            finally:
                alarm.cancel()
                self._waiter = None
        else:
            await asyncio.sleep(0)
        self._has_rung = False
