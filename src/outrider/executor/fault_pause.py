"""The executor's pause for faults of this machine: claims wait, and resume when it is over.

While a fault lasts, claims wait ever longer, then one visit tries; a visit that ends well ends the
pause. After a shortage (descriptors, memory, ports, threads) fewer visits run at one time: half as
many as met it, and one more for each round of visits that ended well.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Final

from outrider.errors import LocalFault
from outrider.fetch.local_faults import SHORTAGES
from outrider.logs import logger_of

FIRST: Final = 0.5  # seconds waited at most, at first; twice as long each time,
MAX_WAIT: Final = 30.0  # and never longer
REPEAT: Final = 60.0  # seconds in which the same fault is reported once
OUTPUT: Final = "local: output"  # the reason of a sink that cannot write

_log: Final = logger_of(__name__)


class FaultPause:
    """What one executor knows of its machine; times are those of the event loop."""

    def __init__(
        self,
        tell: Callable[[str], None] = _log.warning,
        *,
        waits_for_room: bool = False,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._tell = tell
        self.waits_for_room = waits_for_room  # of the output; else its error ends the run
        self.relieve: Callable[[], None] = lambda: None  # closes what is open and not needed
        self._dice = dice
        self._faults: dict[str, str] = {}  # reason → message, of what has not ended
        self._told_at: dict[str, float] = {}
        self._is_told = False  # that there is a pause
        self._since = 0.0
        self._met_at = -inf
        self._until = -inf
        self._tries = 0
        self._ceiling = inf  # visits at one time
        self.counts: Counter[str] = Counter()  # visits that were released, and failed writes
        self._seconds = 0.0  # all pauses that are over

    @property
    def is_on(self) -> bool:
        """Whether a fault has not ended."""
        return bool(self._faults)

    @property
    def message(self) -> str:
        """What is wrong now; "": nothing."""
        return next(iter(self._faults.values()), "")

    def seconds(self, now: float) -> float:
        """How long all pauses took, the present one included."""
        return self._seconds + (now - self._since if self._faults else 0.0)

    def wait(self, now: float) -> float:
        """Seconds until another try; 0: now."""
        return max(0.0, self._until - now) if self._faults else 0.0

    def room(self, busy: int, free: int, now: float) -> int:
        """For how many of the free slots may be claimed, beside the busy ones."""
        if self.wait(now):
            return 0
        most = 1 if self._faults else self._ceiling
        return free if most == inf else max(0, min(free, int(most) - busy))

    def met(self, fault: LocalFault, busy: int, now: float) -> None:
        """A visit was released because of this, while so many were under way, or a write failed."""
        reason = fault.reason
        self.counts[reason] += 1
        if not self._faults:
            self._since, self._tries = now, 0
        self._faults[reason] = str(fault)
        if reason in SHORTAGES:
            self.relieve()
        if now >= self._until:  # others that were under way when it began add nothing
            self._extend(reason, busy, now)
        self._met_at = now
        self._report(reason, str(fault), now)

    def _extend(self, reason: str, busy: int, now: float) -> None:
        self._until = now + (0.5 + self._dice() / 2) * min(MAX_WAIT, FIRST * 2.0**self._tries)
        self._tries = min(self._tries + 1, 10)
        if reason in SHORTAGES:
            self._ceiling = max(1, min(self._ceiling, busy) // 2)

    def _report(self, reason: str, message: str, now: float) -> None:
        if now - self._told_at.get(reason, -inf) < REPEAT:
            return
        self._told_at[reason] = now
        self._is_told = True
        self._tell(f"{message}. No page is charged: no new visits until this is over")

    def visited(self, began: float, slots: int, now: float) -> None:
        """A visit that began then ended with an outcome."""
        if began > self._met_at:
            self._clear(now, lambda reason: reason != OUTPUT)
        if self._ceiling != inf and not self._faults:
            self._ceiling += 1 / self._ceiling
            if self._ceiling >= slots:
                self._ceiling = inf

    def written(self, now: float) -> None:
        """The sink could write."""
        if self._faults:
            self._clear(now, lambda reason: reason == OUTPUT)

    def _clear(self, now: float, is_over: Callable[[str], bool]) -> None:
        if not self._faults:
            return
        self._faults = {key: text for key, text in self._faults.items() if not is_over(key)}
        if self._faults:
            return
        self._seconds += now - self._since
        if self._is_told:
            self._is_told = False
            self._tell(f"visits resume after {now - self._since:.1f} s")

    def hurry(self) -> None:
        """Try at once: the executor is to stop."""
        self._until = -inf
