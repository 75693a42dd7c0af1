"""The hosts' own record: when visits began and ended, whoever made them; spacing is judged by it.

A visit of a killed process ends when somebody opens its file again: the killer waits for the end.
"""

from __future__ import annotations

from outrider.clock import to_ms
from outrider.core.policy.politeness import min_delay_between
from outrider.core.policy.rules import CrawlRules
from outrider.testing.lease_history import require


class Servers:
    """Every host's record."""

    def __init__(self, rules: CrawlRules) -> None:
        self._rules = rules
        self._visiting: dict[str, set[str]] = {}
        self._last: dict[str, int] = {}  # the end of its last visit
        self._before: dict[str, int] = {}  # the same, before the last call
        self.visits = 0

    def begun(self, at: int, visits: list[tuple[str, str]]) -> None:
        """D1, D2, D7."""
        for key, url in visits:
            self.visits += 1
            manners = self._rules.of(key).politeness
            present = self._visiting.setdefault(key, set())
            early = self._last.get(key, 0) + to_ms(min_delay_between(manners, 0.0)) - at
            require(early <= 0, "D7", f"{url} is visited {early} ms too soon")
            present.add(url)
            most = manners.max_in_flight
            require(len(present) <= most, "D2", f"{key} has {len(present)} visits, not {most}")

    def ended(self, at: int, visits: list[tuple[str, str]]) -> None:
        """Hosts are left alone from now on; counted from the start, only claims are spaced (D1)."""
        for key, url in visits:
            self._before.setdefault(key, self._last.get(key, 0))
            self._visiting[key].discard(url)  # told again after a refusal
            if self._rules.of(key).politeness.count_from == "end":
                self._last[key] = max(self._last.get(key, 0), at)

    def answered(self, *, refused: bool) -> None:
        """Of an end that was refused the store knows nothing; only a host's sole slot waits."""
        for key, last in self._before.items():
            if refused and self._rules.of(key).politeness.max_in_flight > 1:
                self._last[key] = last
        self._before.clear()

    def killed(self, at: int) -> None:
        """Whoever visited is dead."""
        for key, present in self._visiting.items():
            self.ended(at, [(key, url) for url in list(present)])
