"""Store outages (M6): calls are repeated until the store answers, and the outage is reported once.

Every verb may be repeated (H3), so nothing is given up before the executor must stop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Final, TypeVar

from outrider.errors import StoreError, StoreFull, StoreUnattended, StoreUnavailable

T = TypeVar("T")

FIRST_WAIT: Final = 0.5  # seconds, at most; doubled each time
MAX_WAIT: Final = 30.0  # seconds; with full jitter, so that workers do not retry all at once


class Outage:
    """Repeats calls to a store while it is unavailable; `tell` gets its first failure and its end.

    A full disk of this machine needs an operator and is not waited for, unless `waits_for_space`:
    on a store's server other programs may free space.
    """

    def __init__(
        self,
        tell: Callable[[str], None] = lambda _: None,
        *,
        waits_for_space: bool = False,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._tell = tell
        self._kinds = (StoreUnavailable, StoreFull) if waits_for_space else (StoreUnavailable,)
        self._dice = dice
        self._since: float | None = None
        self._end_at = inf
        self._retry_now = asyncio.Event()

    @property
    def is_on(self) -> bool:
        """Whether the store is unavailable."""
        return self._since is not None

    def end_by(self, at: float) -> None:
        """Repeat nothing from that time of the loop's clock on; the earliest call holds."""
        self._end_at = min(self._end_at, at)
        self._retry_now.set()

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what the work returns, repeating it during an outage; raise all other errors.

        A file without a holder is not waited for: the caller may open it and become its holder.
        """
        attempts = 0
        while True:
            try:
                answer = await work()
            except StoreUnattended:
                raise
            except self._kinds as error:
                if not self._may_retry(error):
                    raise
                await self._wait(self._dice() * min(MAX_WAIT, FIRST_WAIT * 2.0**attempts))
                attempts = min(attempts + 1, 10)
            else:
                self._end()
                return answer

    def _may_retry(self, error: StoreError) -> bool:
        now = asyncio.get_running_loop().time()
        if now >= self._end_at:
            return False
        if self._since is None:
            self._since = now
            self._tell(f"{error}; waiting for the store, running visits continue")
        return True

    def _end(self) -> None:
        if self._since is not None:
            seconds = asyncio.get_running_loop().time() - self._since
            self._since = None
            self._retry_now.set()  # other callers retry at once: their leases run out
            self._tell(f"the store is back after {seconds:.1f} s")

    async def _wait(self, seconds: float) -> None:
        """Wait until the time is over, or another call succeeded, or the executor must stop.

        Not by `wait_for`: Python 3.11's loses a cancellation that comes together with the event.
        """
        left = self._end_at - asyncio.get_running_loop().time()
        self._retry_now.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(seconds, left))):
                await self._retry_now.wait()
