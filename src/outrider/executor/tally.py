"""What visits came to, counted as they end: a run in numbers, without asking the store."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from outrider.core.outcome import Done, Throttled
from outrider.executor.visit import Visit

LATEST: Final = 5
_REASONS: Final = 1000  # different reasons that are kept apart


class Tally:
    """Counts of this run; reasons are kept to the first word before a colon."""

    def __init__(self) -> None:
        self.visits = 0
        self.bytes = 0
        self.fetched = 0  # pages a host sent with a 2xx
        self.outcomes: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.reasons: Counter[tuple[str, str]] = Counter()  # of visits that were not done
        self.latest: deque[tuple[str, str]] = deque(maxlen=LATEST)

    def __call__(self, visits: Sequence[Visit]) -> None:
        """These ended."""
        for visit in visits:
            self._count(visit)

    def _count(self, visit: Visit) -> None:
        outcome = visit.outcome
        name = type(outcome).__name__.lower()
        self.visits += 1
        self.outcomes[name] += 1
        self.latest.append((visit.url, name))
        if isinstance(outcome, Done):
            self.bytes += outcome.bytes
            self.statuses[outcome.status] += 1
            self.fetched += 200 <= outcome.status < 300
        elif not isinstance(outcome, Throttled):
            self._note(name, getattr(outcome, "reason", ""))

    def _note(self, name: str, reason: str) -> None:
        key = name, reason[:200]
        if key in self.reasons or len(self.reasons) < _REASONS:
            self.reasons[key] += 1
        else:
            self.reasons[name, "other reasons"] += 1
