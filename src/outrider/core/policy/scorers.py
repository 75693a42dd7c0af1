"""The scorers by name, and the simple ones among them (F10).

`default` is in `score`, `learning` in `learning`; the rest need few lines each and are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from outrider.core.policy.learning import LearningScorer
from outrider.core.policy.score import (
    Candidate,
    DefaultScorer,
    FifoScorer,
    Score,
    Scorer,
    base_score,
    breakdown_of,
)
from outrider.core.policy.weights import Scoring, weights_of
from outrider.core.signals import Signals
from outrider.core.task import Lease, Link, Task

MAX_SITES: Final = 100_000  # queues whose links are counted
SCALE: Final = 100.0  # of OPIC: a seed gets the priority that is named `high`
_SEED: Final = 1.0
_OWN: Final = 0.01  # what any page has by itself; more of it, and seeds count for less


class TypeScorer:
    """The weight of the type alone: depth, origin and signals do not count (003)."""

    features = ("type",)

    def __init__(self, scoring: Scoring) -> None:
        self._weights = weights_of(scoring)

    def score(self, batch: Sequence[Candidate]) -> list[Score]:
        """Score by type; explicit parts of the link win (F8)."""
        weights, usual = self._weights, self._weights["default"]
        return [base_score("type", weights.get(link.type, usual), link) for link, *_ in batch]


class BreadthFirstScorer:
    """Tasks nearer to a seed are sooner."""

    features = ("depth",)

    def score(self, batch: Sequence[Candidate]) -> list[Score]:
        """Score by depth; explicit parts of the link win (F8)."""
        return [base_score("depth", link.depth, link) for link, *_ in batch]


class DepthFirstScorer:
    """Tasks farther from a seed are sooner."""

    features = ("depth",)

    def score(self, batch: Sequence[Candidate]) -> list[Score]:
        """Score by negative depth; explicit parts of the link win (F8)."""
        return [base_score("depth", -link.depth, link) for link, *_ in batch]


class OpicScorer:
    """On-line page importance: a page shares its cash among its links; more cash is sooner.

    Cash is a negative priority, so a store that sums up priorities (`gather`) sums up cash, and no
    other record is kept. What a page receives after its visit is not passed on. Readers start
    anywhere, not only at seeds, so every page has a little cash of its own.
    """

    features = ("cash",)
    gathers = True

    def score(self, batch: Sequence[Candidate]) -> list[Score]:
        """Score links without a page: a seed has cash, a revisited page starts with none."""
        return [_cash_score(0.0 if link.depth else _SEED, link) for link, *_ in batch]

    def score_page(self, batch: Sequence[Candidate], page: Lease) -> list[Score]:
        """Share the cash of the page equally among its links, except those to itself."""
        others = sum(fingerprint != page.fingerprint for *_, fingerprint in batch)
        share = (cash_of(page.about) + _OWN) / max(others, 1)
        return [
            _cash_score(share if fingerprint != page.fingerprint else 0.0, link)
            for link, *_, fingerprint in batch
        ]


def cash_of(task: Task) -> float:
    """Return the cash a page can share; one with an explicit priority has as much as a seed."""
    terms = dict(breakdown_of(task).terms)
    if "cash" not in terms:
        return _SEED
    return max(0.0, -(terms["cash"] + terms.get("gathered", 0.0)) / SCALE)


def _cash_score(cash: float, link: Link) -> Score:
    return base_score("cash", -cash * SCALE, link)


class LargestSitesScorer:
    """The more links to a queue's pages were found, the sooner it is.

    A queue's size is the number of doublings of its links; within one, the tie decides. A queue
    competes by its first task, its newest of the last doubling, so its place follows its size
    although older tasks keep their score. This process counts the links, for a bounded number of
    queues. Only `score_page` counts; `score` does not, so pending tasks can be rescored any time.
    """

    features = ("size",)

    def __init__(self, most: int = MAX_SITES) -> None:
        self._links: dict[str, int] = {}  # least recently linked first
        self._most = most

    def score(self, batch: Sequence[Candidate]) -> list[Score]:
        """Score by the size so far."""
        links = self._links
        return [
            base_score("size", -links.get(key, 0).bit_length(), link) for link, _, key, _ in batch
        ]

    def score_page(self, batch: Sequence[Candidate], page: Lease) -> list[Score]:  # noqa: ARG002 - every page counts the same
        """Count the links of a page, known or not, then score."""
        for _, _, key, _ in batch:
            self._links[key] = self._links.pop(key, 0) + 1
        while len(self._links) > self._most:
            del self._links[next(iter(self._links))]
        return self.score(batch)


SCORERS: Final[Mapping[str, Callable[[Scoring, Signals], Scorer]]] = {
    "default": DefaultScorer,
    "fifo": lambda *_: FifoScorer(),
    "type": lambda scoring, _: TypeScorer(scoring),
    "breadth-first": lambda *_: BreadthFirstScorer(),
    "depth-first": lambda *_: DepthFirstScorer(),
    "opic": lambda *_: OpicScorer(),
    "largest-sites-first": lambda *_: LargestSitesScorer(),
    "learning": lambda scoring, _: LearningScorer(scoring),
}


def scorer_of(scoring: Scoring, signals: Signals | None = None) -> Scorer:
    """Return the scorer that a setting names, or the object that it is."""
    if not isinstance(scoring.scorer, str):
        return scoring.scorer  # type: ignore[no-any-return]
    if scoring.scorer not in SCORERS:
        known = ", ".join(SCORERS)
        raise ValueError(f"scoring.scorer = {scoring.scorer!r} is unknown; use one of: {known}")
    return SCORERS[scoring.scorer](scoring, signals or Signals())
