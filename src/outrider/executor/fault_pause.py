"""The pause for faults of this machine: the executor claims nothing until they are over.

While a fault lasts, claims wait ever longer, then one visit is tried; a visit with an outcome ends
the pause. After a shortage (descriptors, memory, ports, threads) fewer visits run at one time: half
as many as met it, and one more for each round of visits with outcomes.
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

FIRST_WAIT: Final = 0.5  # seconds, at most; doubled each time
MAX_WAIT: Final = 30.0  # seconds
REPORT_INTERVAL: Final = 60.0  # seconds in which the same fault is reported once
OUTPUT: Final = "local: output"  # the reason while a sink cannot write

_log: Final = logger_of(__name__)


class FaultPause:
    """The local faults of one executor; times are those of the event loop."""

    def __init__(
        self,
        tell: Callable[[str], None] = _log.warning,
        *,
        waits_for_space: bool = False,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._tell = tell
        self.waits_for_space = (
            waits_for_space  # for output without disk space; otherwise its error ends the run
        )
        self.relieve: Callable[[], None] = lambda: None  # closes connections that are not in use
        self._dice = dice
        self._faults: dict[str, str] = {}  # reason → message, of faults that last
        self._reported_at: dict[str, float] = {}
        self._is_reported = False  # the pause was reported
        self._since = 0.0
        self._met_at = -inf
        self._until = -inf
        self._attempts = 0
        self._max_visits = inf  # max. visits at one time
        self.counts: Counter[str] = Counter()  # visits that were released, and failed writes
        self._seconds = 0.0  # of all pauses that are over

    @property
    def is_on(self) -> bool:
        """Whether a fault lasts."""
        return bool(self._faults)

    @property
    def message(self) -> str:
        """What is wrong now; "": nothing."""
        return next(iter(self._faults.values()), "")

    def seconds(self, now: float) -> float:
        """Return how long all pauses took, the present one included."""
        return self._seconds + (now - self._since if self._faults else 0.0)

    def wait(self, now: float) -> float:
        """Return the seconds until another attempt; 0: now."""
        return max(0.0, self._until - now) if self._faults else 0.0

    def claimable(self, busy: int, free: int, now: float) -> int:
        """Return how many of the free slots may be claimed for, beside the busy ones."""
        if self.wait(now):
            return 0
        most = 1 if self._faults else self._max_visits
        return free if most == inf else max(0, min(free, int(most) - busy))

    def met(self, fault: LocalFault, busy: int, now: float) -> None:
        """Pause: one of so many running visits was released for this fault, or a write failed."""
        reason = fault.reason
        self.counts[reason] += 1
        if not self._faults:
            self._since, self._attempts = now, 0
        self._faults[reason] = str(fault)
        if reason in SHORTAGES:
            self.relieve()
        if now >= self._until:  # faults of visits that were running when it began do not extend it
            self._extend(reason, busy, now)
        self._met_at = now
        self._report(reason, str(fault), now)

    def _extend(self, reason: str, busy: int, now: float) -> None:
        self._until = now + (0.5 + self._dice() / 2) * min(
            MAX_WAIT, FIRST_WAIT * 2.0**self._attempts
        )
        self._attempts = min(self._attempts + 1, 10)
        if reason in SHORTAGES:
            self._max_visits = max(1, min(self._max_visits, busy) // 2)

    def _report(self, reason: str, message: str, now: float) -> None:
        if now - self._reported_at.get(reason, -inf) < REPORT_INTERVAL:
            return
        self._reported_at[reason] = now
        self._is_reported = True
        self._tell(f"{message}. No page is charged with it; no visits begin until it is over")

    def visited(self, began: float, slots: int, now: float) -> None:
        """End the pause if a visit that began after the last fault ended with an outcome."""
        if began > self._met_at:
            self._clear(now, lambda reason: reason != OUTPUT)
        if self._max_visits != inf and not self._faults:
            self._max_visits += 1 / self._max_visits
            if self._max_visits >= slots:
                self._max_visits = inf

    def written(self, now: float) -> None:
        """End the pause for output: the sink could write."""
        if self._faults:
            self._clear(now, lambda reason: reason == OUTPUT)

    def _clear(self, now: float, is_over: Callable[[str], bool]) -> None:
        if not self._faults:
            return
        self._faults = {key: text for key, text in self._faults.items() if not is_over(key)}
        if self._faults:
            return
        self._seconds += now - self._since
        if self._is_reported:
            self._is_reported = False
            self._tell(f"visits resume after {now - self._since:.1f} s")

    def hurry(self) -> None:
        """Attempt at once: the executor is to stop."""
        self._until = -inf
