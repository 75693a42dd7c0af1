"""The scorers by name (F10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from outrider.core.policy.depth import BreadthFirstScorer, DepthFirstScorer
from outrider.core.policy.learning import LearningScorer
from outrider.core.policy.opic import OpicScorer
from outrider.core.policy.score import DefaultScorer, FifoScorer, Scorer
from outrider.core.policy.sites import LargestSitesScorer
from outrider.core.policy.weights import Scoring
from outrider.core.signals import Signals

SCORERS: Final[Mapping[str, Callable[[Scoring, Signals], Scorer]]] = {
    "default": DefaultScorer,
    "fifo": lambda *_: FifoScorer(),
    "breadth-first": lambda *_: BreadthFirstScorer(),
    "depth-first": lambda *_: DepthFirstScorer(),
    "opic": lambda *_: OpicScorer(),
    "largest-sites-first": lambda *_: LargestSitesScorer(),
    "learning": lambda scoring, _: LearningScorer(scoring),
}


def scorer_of(scoring: Scoring, signals: Signals | None = None) -> Scorer:
    """The scorer a setting names, or the object it is."""
    if not isinstance(scoring.scorer, str):
        return scoring.scorer  # type: ignore[no-any-return]
    if scoring.scorer not in SCORERS:
        known = ", ".join(SCORERS)
        raise ValueError(f"scoring.scorer = {scoring.scorer!r} is unknown; use one of: {known}")
    return SCORERS[scoring.scorer](scoring, signals or Signals())
