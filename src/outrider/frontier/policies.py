"""The policies of a crawl, made from its settings: scorer, admission, revisits, decisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from outrider.core.admission import Admission
from outrider.core.decide import Policy
from outrider.core.outcome import Answer, Last
from outrider.core.policy.cost import Cost, cost_function
from outrider.core.policy.focus import Classifier, Focus, classifier_of
from outrider.core.policy.link_types import link_types
from outrider.core.policy.queue_key import key_function
from outrider.core.policy.revisit import (
    Revisiting,
    first_price,
    interval,
    is_gone,
    next_price,
    price_paid,
)
from outrider.core.policy.rules import CrawlRules
from outrider.core.policy.scope import compile_scope
from outrider.core.policy.score import Candidate, Score, Scorer
from outrider.core.policy.scorers import scorer_of
from outrider.core.policy.user_function import link_with_url, name_failures
from outrider.core.signals import Signals
from outrider.core.task import Lease
from outrider.frontier.reports import ScoringReport
from outrider.settings import Settings, crawl_rules, resolve
from outrider.settings.schema import KeyLayers

PRICE_SAMPLES: Final = 32  # earlier prices whose mean a new worker takes over
_HOUR: Final = 3600.0
_MAX_BETWEEN_COUNTS: Final = 1000  # visits after which the pages are counted again


class Policies:
    """The policies in force, and the settings they were made from; replaced together by `use`.

    What the scorer and the revisits have learnt is kept while their own settings stay the same.
    """

    def __init__(self, settings: Settings, crawl: str, dice: Callable[[], float]) -> None:
        self.signals = Signals()
        self.dice = dice
        self._crawl = crawl
        self._may_draw: bool | None = None
        made = _make(
            settings,
            KeyLayers(settings.keys, {}),
            scorer_for(settings, self.signals),
            revisits_for(settings.revisit),
            crawl,
            dice,
        )
        self.settings, self.key_layers, self.scorer, self.admission, self.revisits, self.policy = (
            made
        )

    def make(self, settings: Settings, keys: KeyLayers) -> PolicySet:
        """Make the policies of other settings; a setting may name a function that is missing."""
        scorer, revisits = self.scorer, self.revisits
        if settings.scoring != self.settings.scoring:
            scorer = scorer_for(settings, self.signals)
        if settings.revisit != self.settings.revisit:
            revisits = revisits_for(settings.revisit)
        return _make(settings, keys, scorer, revisits, self._crawl, self.dice)

    def use(self, settings: Settings, keys: KeyLayers) -> None:
        """Replace all policies by those of other settings; counters of the admission stay."""
        bypassed = self.admission.bypassed
        made = self.make(settings, keys)
        self.settings, self.key_layers, self.scorer, self.admission, self.revisits, self.policy = (
            made
        )
        self.admission.bypassed = bypassed
        self._may_draw = None

    @property
    def may_draw_at_start(self) -> bool:
        """Whether leases may draw delays (D1) by the settings; queue actions are not known here."""
        if self._may_draw is None:
            self._may_draw = self.crawl_rules().may_draw_at_start
        return self._may_draw

    def crawl_rules(self) -> CrawlRules:
        """Return the rules that the settings give the crawl's queues, without queue actions."""
        return crawl_rules(self.settings, self.key_layers)


class PolicySet(NamedTuple):
    """Settings, and everything made from them."""

    settings: Settings
    key_layers: KeyLayers
    scorer: TimedScorer
    admission: Admission
    revisits: Revisits | None
    policy: Policy


def _make(
    settings: Settings,
    keys: KeyLayers,
    scorer: TimedScorer,
    revisits: Revisits | None,
    crawl: str,
    dice: Callable[[], float],
) -> PolicySet:
    rules = crawl_rules(settings, keys)
    admission = admission_for(settings, crawl, scorer, dice, rules)
    policy = policy_for(settings, admission, revisits)
    return PolicySet(settings, keys, scorer, admission, revisits, policy)


class TimedScorer:
    """Counts and times the calls of a scorer (F9), and offers what a learning one may have (F10).

    A scorer that does not learn ignores rewards, and has nothing to share.
    """

    def __init__(self, scorer: Scorer, *, is_own: bool = False) -> None:
        self.inner = scorer
        self._is_own = is_own  # a user's, which may read the URLs of links
        self.features = scorer.features
        self.gathers = bool(getattr(scorer, "gathers", False))
        self.score_plain = getattr(scorer, "score_plain", None)
        self.reward: Callable[[Lease, float], None] | None = getattr(scorer, "reward", None)
        self._score_page = getattr(scorer, "score_page", None)
        self._count = 0
        self._seconds = 0.0

    def score(self, batch: Sequence[Candidate]) -> Sequence[Score]:
        """Return the inner scorer's scores."""
        return self._timed(batch, None)

    def score_page(self, batch: Sequence[Candidate], page: Lease) -> Sequence[Score]:
        """Return the inner scorer's scores for the links of a page."""
        return self._timed(batch, page)

    def _timed(self, batch: Sequence[Candidate], page: Lease | None) -> Sequence[Score]:
        if self._is_own:
            batch = [(link_with_url(link, url), url, key, mark) for link, url, key, mark in batch]
        before = time.perf_counter()
        score_page = None if page is None else self._score_page
        scores = self.inner.score(batch) if score_page is None else score_page(batch, page)
        self._seconds += time.perf_counter() - before
        self._count += len(batch)
        return scores

    def copy(self) -> TimedScorer:
        """Return the same scorer with a count and time of its own."""
        return TimedScorer(self.inner, is_own=self._is_own)

    def begin(self) -> None:
        """Start a batch: reset count and time."""
        self._count, self._seconds = 0, 0.0

    def report(self) -> ScoringReport:
        """Report what was scored since the batch began."""
        return ScoringReport(self._count, self._seconds, tuple(self.features))

    def teach(self, group: str, visits: float, reward: float) -> None:
        """Give a learner what all workers know of a group of URLs."""
        hear = getattr(self.inner, "hear", None)
        if hear is not None:
            hear(group, visits, reward)

    def take_learnt(self) -> Mapping[str, tuple[float, float]] | None:
        """Return a learner's visits and rewards by group since the last call; None: no learner."""
        told = getattr(self.inner, "told", None)
        return None if told is None else told()

    @property
    def is_stale(self) -> bool:
        """Whether a learner wants all pending tasks to be scored again."""
        return bool(getattr(self.inner, "is_stale", False))

    def rescored(self) -> None:
        """Let a learner know that all pending tasks were scored again."""
        rescored = getattr(self.inner, "rescored", None)
        if rescored is not None:
            rescored()


def scorer_for(settings: Settings, signals: Signals | None = None) -> TimedScorer:
    """Make the scorer that the settings name."""
    scorer = resolve(settings.scoring.scorer, "scoring.scorer")
    made = scorer_of(replace(settings.scoring, scorer=scorer), signals)
    return TimedScorer(made, is_own=not isinstance(scorer, str))


def _function(setting: str, given: Any) -> Any:
    """Return what a setting gives; a function is named by what it raises."""
    return name_failures(setting, given) if callable(given) else given


def _classifier(focus: Focus) -> Classifier | None:
    """Make the classifier that the settings name, if the crawl is focused (C9)."""
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
    """Make the admission of links; `rules` are those of the settings, if already made."""
    admits = compile_scope(settings.scope, resolve(settings.scope.function, "scope.function"))
    return Admission(
        crawl=crawl,
        key=key_function(_function("queue.key", resolve(settings.queue.key, "queue.key"))),
        cost=cost_function(_function("budget.cost", resolve(settings.budget.cost, "budget.cost"))),
        scorer=scorer,
        acquisition=frozenset(settings.lanes.acquisition),
        url_rules=settings.url,
        traps=settings.traps,
        max_depth=settings.queue.max_depth,
        max_meta=settings.queue.max_meta,
        admits=admits,
        root=None if settings.scope.mode == "all" else settings.scope.root,
        bypass=_function(
            "queue.bypass_depth", resolve(settings.queue.bypass_depth, "queue.bypass_depth")
        ),
        cost_of=_cost_by_key(rules or crawl_rules(settings)),
        classify=_classifier(settings.focus),
        parks=settings.focus.other == "park",
        keeps_text=settings.url.keep_text,
        types=link_types(settings.types, resolve(settings.types.function, "types.function")),
        roll=(lambda: int(dice() * 2**48)) if settings.queue.tie == "shuffle" else None,
    )


def _cost_by_key(rules: CrawlRules) -> Callable[[str], Cost] | None:
    """Return the cost function by key (A4); None, which costs nothing, if no key has its own."""
    overrides = (*rules.keys.values(), *rules.said.values())
    if not any("cost" in override for override in overrides):
        return None

    def cost_of(key: str) -> Cost:
        given = resolve(rules.of(key).budget.cost, f"keys.{key}.cost")
        return cost_function(_function(f"keys.{key}.cost", given))

    return cost_of


def policy_for(
    settings: Settings, admission: Admission, revisits: Revisits | None = None
) -> Policy:
    """Make what `decide` needs beside the lease."""
    revisit_in = None if revisits is None else revisits.plan
    max_meta = settings.queue.max_meta
    return Policy(settings.retry, settings.lanes, admission.score_again, revisit_in, max_meta)


class Revisits:
    """Plans when a page is visited again: `fixed`, or by `value` (G3).

    The only state between visits is the price of one. Every worker computes it from the visits it
    finishes; a new worker begins with the mean of the prices of earlier plans.
    """

    def __init__(self, how: Revisiting) -> None:
        self._how = how
        self._wanted = how.within(how.every)  # seconds between two visits of a page, on average
        self._samples = 0  # earlier prices taken over
        self._until_count = 0  # visits to plan before the pages are counted again
        self.price = first_price(self._wanted)

    def plan(self, answer: Answer, last: Last | None) -> float | None:
        """Return the seconds until the next visit; None: the page is gone."""
        if is_gone(answer, last):
            return None
        if self._how.policy == "fixed":
            return self._how.every
        self._until_count -= 1
        if last is not None:
            self._take_over_price(last.answer)
        chosen = interval(answer, last, self._how, self.price)
        if last is not None:  # the first interval was not chosen, so it does not move the price
            self.price = next_price(self.price, chosen, self._wanted, self._how)
        return chosen

    @property
    def wants_count(self) -> bool:
        """Whether `set_page_count` should be called before the next plan."""
        return bool(self._how.visits_per_hour) and self._until_count <= 0

    def set_page_count(self, pages: int) -> None:
        """Share the visits of an hour among so many pages."""
        self._until_count = min(max(1, pages // 10), _MAX_BETWEEN_COUNTS)
        self._wanted = self._how.within(pages * _HOUR / self._how.visits_per_hour)

    def _take_over_price(self, answer: Answer) -> None:
        """Move the price towards that of an earlier plan: the mean of the first samples."""
        paid = price_paid(answer, self._how) if self._samples < PRICE_SAMPLES else None
        if paid is not None:
            self._samples += 1
            self.price *= (paid / self.price) ** (1 / self._samples)


def revisits_for(how: Revisiting) -> Revisits | None:
    """Make the revisits that the settings name, if any."""
    return None if how.policy == "none" else Revisits(how)
