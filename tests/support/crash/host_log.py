"""The hosts' log of visits, over all processes of a file: checks spacing and concurrency.

A visit of a killed process ends when the file is opened again: the killer waits for the end.
"""

from __future__ import annotations

from outrider.clock import to_ms
from outrider.core.policy.politeness import min_delay_between
from outrider.core.policy.rules import CrawlRules
from outrider.testing.lease_history import require


class HostLog:
    """The visits of every host."""

    def __init__(self, rules: CrawlRules) -> None:
        self._rules = rules
        self._open: dict[str, set[str]] = {}
        self._last_end: dict[str, int] = {}
        self._last_end_before: dict[str, int] = {}  # before the call in progress
        self.visits = 0

    def visits_began(self, at: int, visits: list[tuple[str, str]]) -> None:
        """Check that visits are not too soon (D1, D7) and not too many (D2)."""
        for key, url in visits:
            self.visits += 1
            politeness = self._rules.of(key).politeness
            present = self._open.setdefault(key, set())
            delay = to_ms(min_delay_between(politeness, 0.0))
            early = self._last_end.get(key, 0) + delay - at
            require(early <= 0, "D7", f"{url} is visited {early} ms too soon")
            present.add(url)
            limit = politeness.max_in_flight
            require(len(present) <= limit, "D2", f"{key} has {len(present)} visits, of {limit}")

    def visits_ended(self, at: int, visits: list[tuple[str, str]]) -> None:
        """Record the ends of visits; if delays count from the start, only claims are spaced."""
        for key, url in visits:
            self._last_end_before.setdefault(key, self._last_end.get(key, 0))
            self._open[key].discard(url)  # reported again after a refusal
            if self._rules.of(key).politeness.count_from == "end":
                self._last_end[key] = max(self._last_end.get(key, 0), at)

    def answered(self, *, refused: bool) -> None:
        """Forget ends that the store refused, unless the host has one slot, which stays taken."""
        for key, last in self._last_end_before.items():
            if refused and self._rules.of(key).politeness.max_in_flight > 1:
                self._last_end[key] = last
        self._last_end_before.clear()

    def killed(self, at: int) -> None:
        """End all visits of a process that is dead."""
        for key, present in self._open.items():
            self.visits_ended(at, [(key, url) for url in list(present)])
