"""Scores: the default scorer, and what all scorers share (F1, F2, F3, F4, F5, F6, F7, F8, F9).

Scorers answer in batches and show every term. Lower is sooner. The terms of a breakdown sum to the
score, and a bonus is always subtracted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from outrider.core.breakdown import Breakdown, sum_of
from outrider.core.policy.weights import BONUSES, Scoring, bonus_of, weights_of
from outrider.core.signals import Prediction, Signals
from outrider.core.task import Link, Task
from outrider.core.url import Url

FAST_MS: Final = 100  # F7: below it a visit is cheap,
SLOW_MS: Final = 500  # above it dear
COST_SHARE: Final = 0.1
_MAX_PLAIN: Final = 4096  # types and origins are the caller's text: bounded


class Score(msgspec.Struct, frozen=True, gc=False):
    """A priority and its breakdown."""

    priority: float
    breakdown: Breakdown


def breakdown_of(task: Task) -> Breakdown:
    """Where a task's priority came from; one given with the link needs no record (F8)."""
    shown = task.breakdown or Breakdown("explicit", (("explicit", task.priority),))
    gathered = task.priority - shown.total
    if gathered:  # F10: what came to a pending task since it was scored
        shown = Breakdown(shown.source, (*shown.terms, ("gathered", gathered)))
    return shown if task.precedence else Breakdown("forced", shown.terms)


Candidate: TypeAlias = tuple[Link, Url, str, bytes]  # as asked, as read, queue key, fingerprint
Terms: TypeAlias = tuple[tuple[str, float], ...]


class Scorer(Protocol):
    """Answers how soon each of a batch is wanted; explicit priorities never reach it.

    It may also have `score_page(batch, page)`, asked in place of `score` for links found on a page,
    and `gathers = True`: then such links add their priority to what is known and pending (F10).
    """

    @property
    def features(self) -> Sequence[str]:
        """What it takes into account, for reports."""
        ...

    def score(self, batch: Sequence[Candidate]) -> Sequence[Score]:
        """One score per candidate, in order."""
        ...


class DefaultScorer:
    """Base less the bonuses for discovery, gaps, clusters and reuse, and the cost (F2)."""

    def __init__(self, scoring: Scoring, signals: Signals | None = None) -> None:
        self._how = scoring
        self._weights = weights_of(scoring)
        self._bonuses = {**BONUSES, **scoring.bonuses}
        self._signals = signals or Signals()
        self._plain: dict[tuple[str, int, str | None], Score] = {}
        self._reads_meta = bool((scoring.reuse and scoring.reuse_weight) or scoring.cost_aware)
        self.features = tuple(_features(scoring))

    def score(self, batch: Sequence[Candidate]) -> list[Score]:  # noqa: C901, PLR0912 - a measured hot loop
        """Links of one type, depth and origin share a score, to which few have anything to add.

        The hot loop of every add: what does not concern a link is one look-up, or none.
        """
        how, signals, plain, remember = self._how, self._signals, self._plain.get, self._remember
        gaps = signals.gaps if how.gap_driven else {}
        hosts = signals.hosts if how.clustering else {}
        find = signals.find if how.clustering else None
        reuse_weight = how.reuse_weight if how.reuse else 0.0
        cost_aware = how.cost_aware
        reads_meta = self._reads_meta
        scores: list[Score] = []
        for link, url, key, fingerprint in batch:
            if link.base_priority is None and not link.bias:
                score = plain((link.type, link.depth, link.origin)) or remember(link)
            else:
                score = self._start_terms(link)
            meta = link.meta if reads_meta else None
            is_gap = gaps and fingerprint in gaps
            is_cluster = (hosts and (key in hosts or url.host in hosts)) or (
                find is not None and find(url.text, 6) is not None  # 6: past the scheme
            )
            if not (meta or is_gap or is_cluster):
                scores.append(score)
                continue
            priority, why = score.priority, score.breakdown
            source, terms = why.source, [*why.terms]
            if is_gap:
                bonus = self._gap(gaps[fingerprint])
                if bonus:
                    priority -= bonus
                    terms.append(("gap", -bonus))
                    source = "gap"
            if is_cluster:
                bonus = signals.boost_of(key, url.host, url.text)
                if bonus:
                    priority -= bonus
                    terms.append(("cluster", -bonus))
                    source = "cluster"
            if meta and type(meta) is dict:
                reused = meta.get("knowledge_reuse")
                if reuse_weight and reused is not None:
                    bonus = _share(reused) * reuse_weight
                    if bonus:
                        priority -= bonus
                        terms.append(("reuse", -bonus))
                cost = meta.get("estimated_cost_ms") if cost_aware else None
                if cost is not None:
                    change = abs(priority) * _surcharge(cost)
                    if change:
                        priority += change
                        terms.append(("cost", change))
            scores.append(Score(priority, Breakdown(source, tuple(terms))))
        return scores

    def score_plain(self, tasks: Sequence[Task]) -> list[Score | None]:
        """C8: of tasks that brought nothing along and that no signal concerns; None: of others."""
        how, signals, plain = self._how, self._signals, self._plain.get
        gaps = signals.gaps if how.gap_driven else {}
        hosts = signals.hosts if how.clustering else {}
        find = signals.find if how.clustering else None
        scores: list[Score | None] = []
        for task in tasks:
            terms = () if task.breakdown is None else task.breakdown.terms
            is_other = (
                not terms
                or terms[0][0] != "type"
                or (len(terms) > 2 and terms[2][0] == "bias")
                or (task.meta and self._reads_meta)
                or (gaps and task.fingerprint in gaps)
                or (hosts and (task.key in hosts or f"//{task.key}/" not in task.url))
                or (find is not None and find(task.url, 6) is not None)
            )
            scores.append(None if is_other else plain((task.type, task.depth, task.origin)))
        return scores

    def _remember(self, link: Link) -> Score:
        score = self._start_terms(link)
        if len(self._plain) < _MAX_PLAIN:
            self._plain[link.type, link.depth, link.origin] = score
        return score

    def _start_terms(self, link: Link) -> Score:
        """F1, F3: what a link has by itself."""
        terms = self._base(link)
        bonus = self._bonuses[bonus_of(link.origin or "", self._how)]
        if bonus > 0:
            return total("discovery", (*terms, ("discovery", -bonus)))
        return total("base", terms)

    def _base(self, link: Link) -> Terms:
        """F1, F8."""
        if link.base_priority is not None:
            terms: Terms = (("base_priority", link.base_priority),)
        else:
            weight = self._weights.get(link.type, self._weights["default"])
            terms = (("type", weight), ("depth", link.depth))
        if link.bias:
            terms = (*terms, ("bias", link.bias))
        if self._how.base_weight != 1.0:
            base = sum_of(terms)
            terms = (*terms, ("base_weight", base * (self._how.base_weight - 1.0)))
        return terms

    def _gap(self, prediction: Prediction) -> float:
        """F4: capped, then weighed."""
        return min(prediction.score, self._bonuses["gap-prediction"]) * self._how.gap_weight


class FifoScorer:
    """All equal: the tie alone decides."""

    features = ("fifo",)

    def score(self, batch: Sequence[Candidate]) -> list[Score]:
        """Zero for everyone, but for what the link itself asks (F8)."""
        return [base_score("fifo", 0.0, link) for link, *_ in batch]


def base_score(name: str, value: float, link: Link) -> Score:
    """A score of one term, unless the link brings its own base, and of its bias (F8)."""
    term = (name, value) if link.base_priority is None else ("base_priority", link.base_priority)
    return total("base", (term, ("bias", link.bias)) if link.bias else (term,))


def total(source: str, terms: Sequence[tuple[str, float]]) -> Score:
    """The score that these terms sum to."""
    floats = tuple((name, float(value)) for name, value in terms)
    return Score(sum_of(floats), Breakdown(source, floats))


def explicit(priority: float) -> Score:
    """The score a priority given with the link stands for (F8)."""
    return Score(priority, Breakdown("explicit", (("explicit", priority),)))


def _features(scoring: Scoring) -> list[str]:
    switches = {
        "gap": scoring.gap_driven,
        "cluster": scoring.clustering,
        "reuse": scoring.reuse,
        "cost": scoring.cost_aware,
    }
    return ["base", "discovery", *(name for name, is_on in switches.items() if is_on)]


def _share(value: object) -> float:
    """Return the share of reused knowledge (F6), from 0 to 1; meta that is not a number
    counts as 0.
    """
    if (type(value) is float or type(value) is int) and value > 0:
        return value if value < 1 else 1.0
    return 0.0


def _surcharge(cost: object) -> float:
    """F7: a share of the score's magnitude, so a cheap visit is sooner below zero too."""
    if type(cost) is float or type(cost) is int:
        if cost < FAST_MS:
            return -COST_SHARE
        if cost > SLOW_MS:
            return COST_SHARE
    return 0.0
