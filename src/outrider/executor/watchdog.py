"""The watchdog (M6): a thread that ends the process of a worker that makes no progress.

It counts its own checks and reads no clock, so a process that was stopped for a while, or a machine
that slept, does not count as hanging. The leases of the ended process expire, so nothing is lost,
and a supervisor starts another.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Callable
from threading import Event, Thread
from types import TracebackType
from typing import Final, NoReturn, Protocol, Self

EXIT_CODE: Final = 75  # the exit code: try again (EX_TEMPFAIL of sysexits.h)
MAX_CHECKS: Final = 12  # in a row without progress, before the process is ended


class Watched(Protocol):
    """What is checked, from another thread: numbers that grow while there is progress."""

    @property
    def ticks(self) -> int:
        """Ticks of the event loop."""
        ...

    @property
    def turns(self) -> int:
        """Turns of the executor's loop."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether the store is unavailable: then no turn is expected."""
        ...

    @property
    def stuck(self) -> str:
        """What should have ended long ago, in words; "": nothing."""
        ...


class Watchdog:
    """Checks from entering the block until leaving it."""

    def __init__(
        self, watched: Watched, seconds: float, end: Callable[[str], object] | None = None
    ) -> None:
        self._watched = watched
        self._interval = seconds / MAX_CHECKS
        self._exit = end or exit_process
        self._stopped = Event()
        self._thread = Thread(target=self._watch, name="outrider-watchdog", daemon=True)
        self._ticks = self._turns = -1
        self._loop_still = self._turns_still = self._stuck_checks = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._interval):
            wrong = self.check()
            if wrong is not None:
                self._exit(wrong)
                return

    def check(self) -> str | None:
        """Check once; return what is wrong once it was wrong for all checks of the limit."""
        watched, seconds = self._watched, self._interval * MAX_CHECKS
        ticks, turns = watched.ticks, watched.turns
        self._loop_still = 0 if ticks != self._ticks else self._loop_still + 1
        moves = turns != self._turns or watched.is_waiting or self._loop_still
        self._turns_still = 0 if moves else self._turns_still + 1
        stuck = watched.stuck
        self._stuck_checks = self._stuck_checks + 1 if stuck and not self._loop_still else 0
        self._ticks, self._turns = ticks, turns
        if self._loop_still >= MAX_CHECKS:
            return f"the event loop stood still for {seconds:g} s: something in it blocks"
        if self._turns_still >= MAX_CHECKS:
            return f"nothing was finished or claimed for {seconds:g} s, and the store is available"
        if self._stuck_checks >= MAX_CHECKS:
            return f"{stuck}, for {seconds:g} s"
        return None


def exit_process(wrong: str) -> NoReturn:
    """Write what is wrong and every thread's traceback, and exit without cleaning up."""
    sys.stderr.write(f"outrider: watchdog: {wrong}; exiting with {EXIT_CODE}, to be restarted\n")
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
    sys.stderr.flush()
    os._exit(EXIT_CODE)
