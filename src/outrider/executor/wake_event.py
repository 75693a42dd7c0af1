"""The wake event of the executor's loop: set by whatever brings work, or by a timeout."""

from __future__ import annotations

import asyncio


class WakeEvent:
    """One task waits, any callback sets; an event that is set while no task waits is kept."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self) -> None:
        """Wake the task that waits."""
        self._is_set = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def set_in(self, seconds: float) -> None:
        """Set it a little later, once for all calls until then, so that events are batched."""
        if self._timer is None and not self._is_set:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.set)

    async def wait(self, seconds: float) -> None:
        """Wait until it is set, or the time is over; clear it."""
        if not self._is_set and seconds > 0:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timeout = loop.call_later(seconds, self.set)
            try:
                await self._waiter
            finally:
                timeout.cancel()
                self._waiter = None
        else:
            await asyncio.sleep(0)
        self._is_set = False
