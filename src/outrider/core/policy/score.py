"""How soon a task is wanted, and why: scorers answer in batches and show every term (F1, F8).

Lower is sooner. The terms of a breakdown sum to the score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from outrider.core.breakdown import Breakdown
from outrider.core.task import Link, Task
from outrider.core.url import Url

TYPE_WEIGHTS: Final[Mapping[str, float]] = {
    "article": 0.0,
    "hub-seed": 4.0,
    "history": 6.0,
    "nav": 10.0,
    "refresh": 25.0,
    "default": 12.0,
}

_Weight = Annotated[float, Meta(ge=-1e12, le=1e12)]


class Scoring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which scorer answers, and with which weights."""

    scorer: Annotated[
        str | Any, Meta(description="default | fifo | module:name | an object with `score`")
    ] = "default"
    weights: Annotated[
        dict[str, _Weight],
        Meta(description="priority by task type; `default` for all other types; lower is sooner"),
    ] = {}


class Score(msgspec.Struct, frozen=True, gc=False):
    """A priority and its breakdown."""

    priority: float
    breakdown: Breakdown


def breakdown_of(task: Task) -> Breakdown:
    """Where a task's priority came from; one given with the link needs no record (F8)."""
    shown = task.breakdown or Breakdown("explicit", (("explicit", task.priority),))
    return shown if task.precedence else Breakdown("forced", shown.terms)


Candidate: TypeAlias = tuple[Link, Url]


class Scorer(Protocol):
    """Answers how soon each of a batch is wanted; explicit priorities never reach it."""

    @property
    def features(self) -> Sequence[str]:
        """What it takes into account, for reports."""
        ...

    def score(self, batch: Sequence[Candidate]) -> Sequence[Score]:
        """One score per candidate, in order."""
        ...


class DefaultScorer:
    """Base = type weight + depth + bias (F1)."""

    features = ("base",)

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = {**TYPE_WEIGHTS, **weights}
        self._plain: dict[tuple[str, int], Score] = {}

    def score(self, batch: Sequence[Candidate]) -> list[Score]:
        """Plain links of one type and depth share one score."""
        plain = self._plain.get
        return [
            (link.base_priority is None and not link.bias and plain((link.type, link.depth)))
            or self._scored(link)
            for link, _ in batch
        ]

    def _scored(self, link: Link) -> Score:
        if link.base_priority is not None:
            return _total("base", (("base_priority", link.base_priority), ("bias", link.bias)))
        weight = self._weights.get(link.type, self._weights["default"])
        if link.bias:
            return _total("base", (("type", weight), ("depth", link.depth), ("bias", link.bias)))
        return self._remember(link, _total("base", (("type", weight), ("depth", link.depth))))

    def _remember(self, link: Link, score: Score) -> Score:
        if len(self._plain) < 4096:  # types are the caller's text: bounded
            self._plain[link.type, link.depth] = score
        return score


class FifoScorer:
    """All equal: the tie alone decides."""

    features = ("fifo",)

    def score(self, batch: Sequence[Candidate]) -> list[Score]:
        """Zero for everyone, but for what the link itself asks (F8)."""
        return [self._scored(link) for link, _ in batch]

    def _scored(self, link: Link) -> Score:
        base = 0.0 if link.base_priority is None else link.base_priority
        return _total("base", (("fifo", base), ("bias", link.bias)))


def _total(source: str, terms: Sequence[tuple[str, float]]) -> Score:
    floats = tuple((name, float(value)) for name, value in terms)
    breakdown = Breakdown(source, floats)
    return Score(breakdown.total, breakdown)


def explicit(priority: float) -> Score:
    """The score a priority given with the link stands for (F8)."""
    return Score(priority, Breakdown("explicit", (("explicit", priority),)))


SCORERS: Final[Mapping[str, Callable[[Scoring], Scorer]]] = {
    "default": lambda scoring: DefaultScorer(scoring.weights),
    "fifo": lambda _: FifoScorer(),
}


def scorer_of(scoring: Scoring) -> Scorer:
    """The scorer a setting names, or the object it is."""
    if not isinstance(scoring.scorer, str):
        return scoring.scorer  # type: ignore[no-any-return]
    if scoring.scorer not in SCORERS:
        known = ", ".join(SCORERS)
        raise ValueError(f"scoring.scorer = {scoring.scorer!r} is unknown; use one of: {known}")
    return SCORERS[scoring.scorer](scoring)
