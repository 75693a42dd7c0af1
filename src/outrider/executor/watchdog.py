"""Against a worker that is alive and does nothing (M6): a thread that ends the process instead.

It counts its own looks and reads no clock, so a process that was stopped for a while, or a machine
that slept, is not taken for one that hangs. Leases of a process that ends so expire: nothing is
lost, and a supervisor starts another.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Callable
from threading import Event, Thread
from types import TracebackType
from typing import Final, NoReturn, Protocol, Self

EXIT: Final = 75  # what the process ends with: try again (EX_TEMPFAIL of sysexits.h)
LOOKS: Final = 12  # without progress, one after the other, before it acts


class Watched(Protocol):
    """What is looked at, from another thread: numbers that grow while all is well."""

    @property
    def ticks(self) -> int:
        """Of the event loop."""
        ...

    @property
    def turns(self) -> int:
        """Of the executor: what ended is finished, free slots are claimed for."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether the store is away: then no turn is expected."""
        ...

    @property
    def stuck(self) -> str:
        """What should have ended long ago, in words; "": nothing."""
        ...


class Watchdog:
    """Looks from the moment it is entered until it is left."""

    def __init__(
        self, watched: Watched, seconds: float, end: Callable[[str], object] | None = None
    ) -> None:
        self._watched = watched
        self._every = seconds / LOOKS
        self._end = end or ended
        self._over = Event()
        self._thread = Thread(target=self._watch, name="outrider-watchdog", daemon=True)
        self._ticks = self._turns = -1
        self._still = self._idle = self._late = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            wrong = self.look()
            if wrong is not None:
                self._end(wrong)
                return

    def look(self) -> str | None:
        """What is wrong, once it was so for all looks of the limit."""
        watched, seconds = self._watched, self._every * LOOKS
        ticks, turns = watched.ticks, watched.turns
        self._still = 0 if ticks != self._ticks else self._still + 1
        moves = turns != self._turns or watched.is_waiting or self._still
        self._idle = 0 if moves else self._idle + 1
        stuck = watched.stuck
        self._late = self._late + 1 if stuck and not self._still else 0
        self._ticks, self._turns = ticks, turns
        if self._still >= LOOKS:
            return f"the event loop stood still for {seconds:g} s: something in it blocks"
        if self._idle >= LOOKS:
            return f"nothing was finished or claimed for {seconds:g} s, and the store is not away"
        if self._late >= LOOKS:
            return f"{stuck}, for {seconds:g} s"
        return None


def ended(wrong: str) -> NoReturn:
    """Say what is wrong and where every thread is, and end at once: nothing else can be trusted."""
    sys.stderr.write(f"outrider: watchdog: {wrong}; leaving with {EXIT}, to be started again\n")
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
    sys.stderr.flush()
    os._exit(EXIT)
