"""Counts of one run: visits, outcomes, statuses and reasons, without asking the store."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from outrider.core.outcome import Done, Throttled
from outrider.executor.visit import Visit

MAX_LATEST: Final = 5
_MAX_REASONS: Final = 1000  # different reasons that are counted separately


class RunCounts:
    """Observes visits as they end and counts them."""

    def __init__(self) -> None:
        self.visits = 0
        self.bytes = 0
        self.fetched = 0  # pages that hosts sent with a 2xx status
        self.outcomes: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.reasons: Counter[tuple[str, str]] = Counter()  # (outcome, reason), unless done
        self.latest: deque[tuple[str, str]] = deque(maxlen=MAX_LATEST)

    def __call__(self, visits: Sequence[Visit]) -> None:
        """Count visits that ended."""
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
            self._count_reason(name, getattr(outcome, "reason", "") or "")

    def _count_reason(self, name: str, reason: str) -> None:
        key = name, reason[:200]
        if key in self.reasons or len(self.reasons) < _MAX_REASONS:
            self.reasons[key] += 1
        else:
            self.reasons[name, "other reasons"] += 1
