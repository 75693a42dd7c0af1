"""The learning scorer: groups of URLs that brought rewards come first (F10).

Scoring only reads what was learned, so the same knowledge gives the same scores. Groups are
bounded in number: the one that was met least recently is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Final

from outrider.core.policy.score import Candidate, Score, Terms, total
from outrider.core.policy.url_groups import TAG_PATH, groups_of, lead_groups_of
from outrider.core.policy.weights import Scoring
from outrider.core.task import DEFAULT_ORIGIN, Lease, Link

MAX_GROUPS: Final = 10_000

_TRUST: Final = 2.0  # visits after which a group counts as much as the coarser one above it
_AHEAD: Final = 0.5  # what a reward one link farther is worth
_MAX_REWARD: Final = 1e12  # a reward, either side of 0
_TOLERATED: Final = 0.1  # of the best reward: an error too small to matter
_TOO_WRONG: Final = 2.0  # best rewards of error after which all that waits is scored again


class Tallies:
    """Visits and rewards by group, for a bounded number of groups."""

    def __init__(self, most: int) -> None:
        self._sums: dict[str, tuple[float, float]] = {}  # least recently met first
        self._most = most

    def of(self, group: str) -> tuple[float, float]:
        """Return visits and the sum of their rewards."""
        return self._sums.get(group, (0.0, 0.0))

    def add(self, group: str, visits: float, reward: float) -> None:
        """Add visits and rewards of a group."""
        before = self.of(group)
        self.set(group, before[0] + visits, before[1] + reward)

    def set(self, group: str, visits: float, reward: float) -> None:
        """Replace the counts of a group; over the limit, the least recently used is forgotten."""
        self._sums.pop(group, None)
        self._sums[group] = (visits, reward)
        if len(self._sums) > self._most:
            del self._sums[next(iter(self._sums))]

    def take_all(self) -> dict[str, tuple[float, float]]:
        """Return all counts, and clear them."""
        taken, self._sums = self._sums, {}
        return taken


class LearningScorer:
    """Scores a link by the mean reward of its groups, or half of what their links brought.

    Untried groups count as much as the coarser ones around them, and the first as much as the best
    reward. A share of links, chosen by fingerprint, is tried whatever was learned.
    """

    features = ("expected", "exploration")

    def __init__(self, scoring: Scoring, most: int = MAX_GROUPS) -> None:
        self._explored = int(scoring.exploration * 2**32)
        self._known = Tallies(most)
        self._untold = Tallies(most)
        self._best = 0.0  # the best reward, or mean of rewards, there was
        self._wrong = 0.0  # sum of the errors of scores since the last rescoring, in best rewards

    @property
    def is_stale(self) -> bool:
        """Whether pending tasks should be scored again."""
        return self._wrong >= _TOO_WRONG

    def rescored(self) -> None:
        """Pending tasks are being scored again."""
        self._wrong = 0.0

    def score(self, batch: Sequence[Candidate]) -> list[Score]:
        """Score by the expected reward, negated; explored links get the best reward."""
        return [self._score(link, url.text, fingerprint) for link, url, _, fingerprint in batch]

    def reward(self, lease: Lease, value: float) -> None:
        """Record the reward of a visit."""
        task = lease.about
        value = min(max(value, -_MAX_REWARD), _MAX_REWARD)
        groups = groups_of(task.url, task.origin, lease.meta.get(TAG_PATH))
        for group in groups if task.via is None else (*groups, *lead_groups_of(task.via)):
            self._known.add(group, 1.0, value)
            self._untold.add(group, 1.0, value)
        self._best = max(self._best, value)
        self._compare(lease, self._expected(task.url, groups))

    def told(self) -> dict[str, tuple[float, float]]:
        """Return visits and rewards by group since the last call."""
        return self._untold.take_all()

    def hear(self, group: str, visits: float, reward: float) -> None:
        """Set what all workers know of a group; what was not yet shared is added to it."""
        if not (isfinite(visits) and isfinite(reward) and visits > 0):
            return
        more = self._untold.of(group)
        self._known.set(group, visits + more[0], reward + more[1])
        self._best = max(self._best, reward / visits)

    def _score(self, link: Link, url: str, fingerprint: bytes) -> Score:
        terms: Terms = (("bias", link.bias),) if link.bias else ()
        if link.base_priority is not None:
            return total("base", (("base_priority", link.base_priority), *terms))
        tag_path = link.meta.get(TAG_PATH) if isinstance(link.meta, dict) else None
        expected = self._expected(url, groups_of(url, link.origin or DEFAULT_ORIGIN, tag_path))
        terms = (("expected", -expected), *terms)
        if int.from_bytes(fingerprint[:4]) < self._explored:
            terms = (*terms, ("exploration", expected - self._optimum))
        return total("learned", terms)

    @property
    def _optimum(self) -> float:
        return self._best or 1.0

    def _expected(self, url: str, groups: Sequence[str]) -> float:
        there = self._mean(groups, self._optimum)
        return max(there, self._mean(lead_groups_of(url), there, _AHEAD))

    def _mean(self, groups: Sequence[str], mean: float, worth: float = 1.0) -> float:
        """Weigh each group by its number of visits, and the rest by the coarser group."""
        for group in groups:
            visits, reward = self._known.of(group)
            mean = (worth * reward + _TRUST * mean) / (visits + _TRUST)
        return mean

    def _compare(self, lease: Lease, expected: float) -> None:
        """Add the error of the score that this task had; pending tasks have similar errors."""
        breakdown = lease.about.breakdown
        before = None if breakdown is None else dict(breakdown.terms).get("expected")
        if before is not None:
            error = abs(expected + before) / self._optimum
            self._wrong += error if error > _TOLERATED else 0.0
