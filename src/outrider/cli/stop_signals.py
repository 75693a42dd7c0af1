"""SIGINT and SIGTERM of a command that crawls: a count that every phase of it reads (J4).

A stop request is a state, so a phase that fails or swallows a cancellation cannot lose it:

- before the executor exists, a request cancels the command; if the command continues all the same,
  the executor gets the request as soon as it exists;
- while the executor runs, the first request drains it and the second ends it at once;
- after that, only a second request interrupts the writing of the output and the report.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import typer

from outrider.cli.terminal import print_note
from outrider.errors import StoreUnavailable

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED: Final = 130  # the exit code of a command that was stopped by a signal
IMMEDIATE: Final = 2  # number of requests after which nothing is waited for

T = TypeVar("T")


class StopSignals:
    """Counts the stop requests of one command, and passes them to the executor."""

    def __init__(self) -> None:
        self.count = 0
        self._stop: Callable[[], None] | None = None
        self._task = asyncio.current_task()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for one in SIGNALS:
            loop.add_signal_handler(one, self.request)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ignore further signals of a command that was stopped: it is about to end by itself."""
        loop = asyncio.get_running_loop()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            for one in SIGNALS:
                loop.remove_signal_handler(one)
                if self.count:
                    signal.signal(one, signal.SIG_IGN)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def attach(self, stop: Callable[[], None]) -> None:
        """Call `stop` for each request, also for those that came before."""
        self._stop = stop
        for _ in range(self.count):
            stop()

    def request(self) -> None:
        """Request a stop; a second request stops at once."""
        self.count += 1
        if self._stop is not None:
            self._stop()
        if self._task is not None and (self._stop is None or self.count > IMMEDIATE):
            self._task.cancel()

    def mark_ended(self) -> None:
        """Note that the executor has ended: only a second request interrupts what is left."""
        self._stop = self._ignore_first

    def _ignore_first(self) -> None:
        if self._task is not None and self.count >= IMMEDIATE:
            self._task.cancel()


async def run_stoppable(work: Callable[[StopSignals], Coroutine[Any, Any, T]]) -> T:
    """Run the work of a command; if a stop request interrupted it, exit with 130.

    The same applies to a command that was stopped while its store was unavailable.
    """
    with StopSignals() as signals:
        try:
            return await work(signals)
        except (asyncio.CancelledError, StoreUnavailable) as error:
            if not signals.count:
                raise
            if isinstance(error, StoreUnavailable):
                print_note(str(error))
    print_note("interrupted: stopped by a signal")
    raise typer.Exit(INTERRUPTED)
