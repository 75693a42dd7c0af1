"""Settings → policies: the composition root."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from outrider.core.admission import Admission
from outrider.core.decide import Policy
from outrider.core.policy.cost import Cost, cost_function
from outrider.core.policy.focus import Classifier, Focus, classifier_of
from outrider.core.policy.queue_key import key_function
from outrider.core.policy.rules import CrawlRules
from outrider.core.policy.scope import compile_scope
from outrider.core.policy.score import Candidate, Score, Scorer
from outrider.core.policy.scorers import scorer_of
from outrider.core.signals import Signals
from outrider.core.task import Lease
from outrider.frontier.reports import ScoringReport
from outrider.frontier.revisits import Revisits
from outrider.settings import Settings, crawl_rules, resolve


class TimedScorer:
    """F9: counts and times what a scorer does."""

    def __init__(self, scorer: Scorer) -> None:
        self.inner = scorer
        self.features = scorer.features
        self.gathers = bool(getattr(scorer, "gathers", False))
        self._of_page = getattr(scorer, "score_page", None)
        self.score_plain = getattr(scorer, "score_plain", None)
        self._count = 0
        self._seconds = 0.0

    def score(self, batch: Sequence[Candidate]) -> Sequence[Score]:
        """The inner scorer's answer."""
        return self._timed(batch, None)

    def score_page(self, batch: Sequence[Candidate], page: Lease) -> Sequence[Score]:
        """The inner scorer's answer for links of a page."""
        return self._timed(batch, page)

    def _timed(self, batch: Sequence[Candidate], page: Lease | None) -> Sequence[Score]:
        before = time.perf_counter()
        of_page = None if page is None else self._of_page
        scores = self.inner.score(batch) if of_page is None else of_page(batch, page)
        self._seconds += time.perf_counter() - before
        self._count += len(batch)
        return scores

    def begin(self) -> None:
        """Count anew: what follows is another batch."""
        self._count, self._seconds = 0, 0.0

    def report(self) -> ScoringReport:
        """What was scored since the batch began."""
        return ScoringReport(self._count, self._seconds, tuple(self.features))


def scorer_for(settings: Settings, signals: Signals | None = None) -> TimedScorer:
    """The scorer the settings name."""
    scorer = resolve(settings.scoring.scorer, "scoring.scorer")
    return TimedScorer(scorer_of(replace(settings.scoring, scorer=scorer), signals))


def _classifier(focus: Focus) -> Classifier | None:
    """C9: the classifier the settings name, if the crawl is focused."""
    if not focus.on:
        return None
    named = resolve(focus.classifier, "focus.classifier")
    return classifier_of(focus, named if callable(named) else None)


def admission_for(
    settings: Settings,
    crawl: str,
    scorer: Scorer,
    dice: Callable[[], float],
    rules: CrawlRules | None = None,
) -> Admission:
    """Everything a link is asked, as the settings say; `rules` are theirs, if known already."""
    admits = compile_scope(settings.scope, resolve(settings.scope.function, "scope.function"))
    return Admission(
        crawl=crawl,
        key=key_function(resolve(settings.queue.key, "queue.key")),
        cost=cost_function(resolve(settings.budget.cost, "budget.cost")),
        scorer=scorer,
        acquisition=frozenset(settings.lanes.acquisition),
        url_rules=settings.url,
        traps=settings.traps,
        max_depth=settings.queue.max_depth,
        admits=admits,
        root=None if settings.scope.mode == "all" else settings.scope.root,
        bypass=resolve(settings.queue.bypass_depth, "queue.bypass_depth"),
        cost_of=_cost_by_key(rules or crawl_rules(settings)),
        classify=_classifier(settings.focus),
        parks=settings.focus.other == "park",
        roll=(lambda: int(dice() * 2**48)) if settings.queue.tie == "shuffle" else None,
    )


def _cost_by_key(rules: CrawlRules) -> Callable[[str], Cost] | None:
    """A4: a key may have a cost policy of its own; nobody pays for the question otherwise."""
    overrides = (*rules.keys.values(), *rules.said.values())
    if not any("cost" in override for override in overrides):
        return None
    return lambda key: cost_function(resolve(rules.of(key).budget.cost, f"keys.{key}.cost"))


def policy_for(
    settings: Settings, admission: Admission, revisits: Revisits | None = None
) -> Policy:
    """What `decide` needs beyond the lease."""
    revisit_in = None if revisits is None else revisits.plan
    return Policy(settings.retry, settings.lanes, admission.score_again, revisit_in)
