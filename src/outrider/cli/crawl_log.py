"""The full log of a crawl: one line a visit, in a file, so that the screen stays quiet.

A log that cannot be written, for want of room, leaves lines out and ends no crawl.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from io import FileIO
from typing import Self

from outrider.cli.showing import instant, note
from outrider.clock import SystemClock
from outrider.core.outcome import Done, Outcome, Throttled
from outrider.executor.slots import ScalingDecision
from outrider.executor.visit import Visit
from outrider.logs import printable


class VisitLog:
    """Appends; "" writes nothing."""

    def __init__(self, path: str, decisions: Iterable[ScalingDecision] = ()) -> None:
        self._path = path
        self._decisions = decisions
        self._file: FileIO | None = None
        self._is_full = False
        self._clock = SystemClock()
        self._noted = float("-inf")

    def __enter__(self) -> Self:
        if self._path:
            self._file = FileIO(self._path, "a")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def __call__(self, visits: Sequence[Visit]) -> None:
        """These ended."""
        if self._file is not None:
            at = instant(self._clock.now_ms() / 1000)
            lines = [*self._scaled(), *map(_line, visits)]
            self._append("".join(f"{at} {line}\n" for line in lines))

    def _append(self, text: str) -> None:
        """What there is room for; the first time there is none, that is reported."""
        file = self._file
        if file is None:
            return
        try:
            file.write(text.encode("utf-8", "backslashreplace"))
            self._is_full = False
        except OSError as error:
            if not self._is_full:
                note(f"{self._path}: cannot be written ({error.strerror}); lines are left out")
            self._is_full = True

    def _scaled(self) -> list[str]:
        """J3: why slots were added, taken away or held back since the last line."""
        fresh = [one for one in self._decisions if one.at > self._noted]
        if fresh:
            self._noted = fresh[-1].at
        return [f"slots {one.before} → {one.after}: {one.reason}" for one in fresh]


def _line(visit: Visit) -> str:
    what = type(visit.outcome).__name__.lower()
    return printable(f"{what} {_detail(visit.outcome)} {visit.url} attempt {visit.lease.attempt}")


def _detail(outcome: Outcome | None) -> str:
    if isinstance(outcome, Done):
        cached = " from cache" if outcome.from_cache else ""
        return f"{outcome.status} {outcome.bytes} B {outcome.seconds:.3f} s{cached}"
    if isinstance(outcome, Throttled):
        return "" if outcome.retry_after is None else f"for {outcome.retry_after:.0f} s"
    return f"({getattr(outcome, 'reason', '')})"
