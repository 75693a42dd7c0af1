"""SIGINT and SIGTERM of a command that crawls: a count that every phase of it looks at (J4).

A stop request is a state, so a phase that fails or swallows a cancellation cannot lose it:

- before the executor is there, a request cancels the command; if it goes on all the same, the
  executor is told of the request as soon as there is one;
- while the executor runs, the first request drains it and the second ends it at once;
- after that, only a second request cuts short what is left to be written and told.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import typer

from outrider.cli.showing import note
from outrider.errors import StoreUnavailable

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED: Final = 130  # the exit code of a command that was asked to stop
AT_ONCE: Final = 2  # requests after which nothing is waited for

T = TypeVar("T")


class StopSignals:
    """Counts the stop requests of one command, and hands them to the executor."""

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
        """A command that was asked to stop ends by itself: no later request may kill it."""
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
        """Call this from now on for each request, and for each that came before."""
        self._stop = stop
        for _ in range(self.count):
            stop()

    def request(self) -> None:
        """Stop; a second time: at once."""
        self.count += 1
        if self._stop is not None:
            self._stop()
        if self._task is not None and (self._stop is None or self.count > AT_ONCE):
            self._task.cancel()

    def ended(self) -> None:
        """The executor has ended: what is left takes moments, and a second request ends it."""
        self._stop = self._ignore_first

    def _ignore_first(self) -> None:
        if self._task is not None and self.count >= AT_ONCE:
            self._task.cancel()


async def stoppable(work: Callable[[StopSignals], Coroutine[Any, Any, T]]) -> T:
    """Do the work of a command; if a stop request cut it short, say so and exit with 130.

    So does a command that was asked to stop while its store was away.
    """
    with StopSignals() as signals:
        try:
            return await work(signals)
        except (asyncio.CancelledError, StoreUnavailable) as error:
            if not signals.count:
                raise
            if isinstance(error, StoreUnavailable):
                note(str(error))
    note("interrupted: asked to stop")
    raise typer.Exit(INTERRUPTED)
