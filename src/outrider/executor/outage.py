"""A store that does not answer (M6): said once, asked again ever more rarely, and said when back.

Nothing is given up meanwhile but by whoever must stop; every verb may be repeated (H3).
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

FIRST: Final = 0.5  # seconds waited at most, at first; twice as long each time,
MOST: Final = 30.0  # and never longer: with full jitter, so that workers do not come all at once


class Outage:
    """What is between an executor and its store; `tell` hears of the first failure and the end.

    A full disk of one's own is a person's to mend, so it is not waited for; what fills a server
    others may clear away.
    """

    def __init__(
        self,
        tell: Callable[[str], None] = lambda _: None,
        *,
        waits_for_room: bool = False,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._tell = tell
        self._kinds = (StoreUnavailable, StoreFull) if waits_for_room else (StoreUnavailable,)
        self._dice = dice
        self._since: float | None = None
        self._end_at = inf
        self._stirred = asyncio.Event()

    @property
    def is_on(self) -> bool:
        """Whether the store is away."""
        return self._since is not None

    def end_by(self, at: float) -> None:
        """From that instant of the loop's clock on nothing is waited for; the sooner one holds."""
        self._end_at = min(self._end_at, at)
        self._stirred.set()

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """What the work answers, however often it takes; what cannot be mended by time is raised.

        A file that nobody holds is not waited for: whoever finds it so may hold it.
        """
        tries = 0
        while True:
            try:
                answer = await work()
            except StoreUnattended:
                raise
            except self._kinds as error:
                if not self._goes_on(error):
                    raise
                await self._rest(self._dice() * min(MOST, FIRST * 2.0**tries))
                tries = min(tries + 1, 10)
            else:
                self._is_back()
                return answer

    def _goes_on(self, error: StoreError) -> bool:
        now = asyncio.get_running_loop().time()
        if now >= self._end_at:
            return False
        if self._since is None:
            self._since = now
            self._tell(f"{error}; waiting for the store, visits in flight go on")
        return True

    def _is_back(self) -> None:
        if self._since is not None:
            seconds = asyncio.get_running_loop().time() - self._since
            self._since = None
            self._stirred.set()  # other callers ask again at once: leases do not wait
            self._tell(f"the store is back after {seconds:.1f} s")

    async def _rest(self, seconds: float) -> None:
        """Until the time is over, or somebody must stop sooner.

        Not by `wait_for`: Python 3.11's forgets that it was cancelled if it was stirred as well.
        """
        left = self._end_at - asyncio.get_running_loop().time()
        self._stirred.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(seconds, left))):
                await self._stirred.wait()
