"""Breadth-first and depth-first: the number of links from a seed, and nothing else (F10)."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.core.policy.score import Candidate, Score, based


class BreadthFirstScorer:
    """What is nearer to a seed is sooner."""

    features = ("depth",)

    def score(self, batch: Sequence[Candidate]) -> list[Score]:
        """The depth, but for what the link itself asks (F8)."""
        return [based("depth", link.depth, link) for link, *_ in batch]


class DepthFirstScorer:
    """What is farther from a seed is sooner."""

    features = ("depth",)

    def score(self, batch: Sequence[Candidate]) -> list[Score]:
        """The depth below zero, but for what the link itself asks (F8)."""
        return [based("depth", -link.depth, link) for link, *_ in batch]
