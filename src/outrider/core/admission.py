"""Text or Link → Task or refusal: URL, scope, trap, depth, key, cost and score (A, B4, E4, F8).

One bad link never spoils the others: every link gets an answer, in order, and nothing raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from math import isfinite
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from outrider.core.link_validation import (
    DEFAULT_MAX_META,
    encode_meta,
    is_ordinary,
    link_error,
    priority_number,
    rename_meta,
    short_repr,
)
from outrider.core.policy.cost import Cost, unit_cost, valid_cost
from outrider.core.policy.focus import OFF_FOCUS, Class, Classifier, apply_focus
from outrider.core.policy.link_types import LinkTypes, Referrer
from outrider.core.policy.queue_key import KeyFunction, host_key, valid_key
from outrider.core.policy.scope import BAD_LINK, OFF_SCOPE, Admits
from outrider.core.policy.score import Candidate, Score, Scorer, breakdown_of, explicit
from outrider.core.policy.traps import Traps, trap
from outrider.core.policy.user_function import describe_error, describe_failure, link_with_url
from outrider.core.task import DEFAULT_ORIGIN, DEFAULT_TYPE, NO_URL_KEY, Added, Lease, Link, Task
from outrider.core.url import Refusal, Url, UrlRules, fingerprint, parse_url

REDIRECT: Final = "redirect"

_PLAIN: Final = Link("")
_read_meta = msgspec.json.Decoder(dict[str, Any]).decode

Asked: TypeAlias = str | Url | Link
# A candidate for a score; its cost, and what gave it its type.
_Passed: TypeAlias = tuple[Link, Url, str, bytes, int, str]


class Admission(msgspec.Struct):
    """The checks and policies that turn links into tasks, before a store receives them."""

    crawl: str
    key: KeyFunction
    cost: Cost
    scorer: Scorer
    url_rules: UrlRules
    traps: Traps
    max_depth: int
    admits: Admits | None = None  # None: everything is in scope
    root: Callable[[Url], str] | None = None
    roots: set[str] = msgspec.field(default_factory=set)
    bypass: Callable[[Link], bool] | None = None
    bypassed: int = 0
    cost_of: Callable[[str], Cost] | None = None  # when keys override the cost policy
    acquisition: AbstractSet[str] = frozenset()  # the task types of that lane
    is_plain: bool = False  # everything is in scope, the host is the key, a visit costs 1

    roll: Callable[[], int] | None = None  # when the tie is shuffled
    classify: Classifier | None = None  # when the crawl is focused
    parks: bool = False  # what is off focus is admitted, far behind

    max_meta: int = DEFAULT_MAX_META  # bytes of JSON

    keeps_text: bool = False  # URLs are kept as links gave them, beside what is visited

    types: LinkTypes | None = None  # what gives a link its type if it brings none

    gathers: bool = False  # F10: the priorities of links are added to those of known pending tasks

    def __post_init__(self) -> None:
        # Priorities of a focused crawl include their band, so they cannot be summed up.
        self.gathers = self.classify is None and bool(getattr(self.scorer, "gathers", False))
        uses_defaults = self.key is host_key and self.cost is unit_cost and self.cost_of is None
        self.is_plain = uses_defaults and self.admits is None

    def admit(
        self, asked: Sequence[Asked], *, are_seeds: bool = True, found_on: Lease | None = None
    ) -> list[Task | Added]:
        """Return a task or a refusal for each link, in order."""
        from_seed = found_on is not None and _leads_from_seed(found_on)
        answers: list[_Passed | Added | Task] = [
            self._check_link(one, are_seeds, from_seed) for one in asked
        ]
        if self.types is not None:
            answers = [
                self._give_type(one, found_on, are_seeds=are_seeds)
                if isinstance(one, tuple) and one[0].type is DEFAULT_TYPE
                else one
                for one in answers
            ]
        passed = [one for one in answers if type(one) is tuple]
        scored = self._scores_of(passed, found_on)
        if len(passed) == len(answers):  # almost always
            return [
                self._task(one, score, found_on) for one, score in zip(passed, scored, strict=True)
            ]
        scores = iter(scored)
        return [
            self._task(one, next(scores), found_on) if isinstance(one, tuple) else one
            for one in answers
        ]

    def score_again(self, lease: Lease, kind: str) -> Score:
        """Score a task that comes back as this type (G3); if that fails, the old score stays."""
        link = Link(lease.url, type=kind, depth=lease.depth, origin=lease.origin, meta=lease.meta)
        url = Url(lease.url, lease.url, _host_of(lease.url))
        (score,) = self.rescore([(link, url, lease.key, lease.fingerprint)])
        return score or Score(lease.priority, breakdown_of(lease.about))

    def rescore(self, batch: Sequence[Candidate]) -> list[Score | None]:
        """Score candidates again (C8); None: the scorer failed, or the priority is explicit."""
        scores = self._scores_of([(*candidate, 0, "") for candidate in batch], None)
        rescored: list[Score | None] = []
        for (link, url, *_), score in zip(batch, scores, strict=True):
            fine = score if isinstance(score, Score) and isfinite(score.priority) else None
            if score is None and self.classify is not None:
                fine = explicit(priority_number(link.priority))
            rescored.append(None if fine is None else self._move_into_band(fine, link, url))
        return rescored

    def rescore_tasks(self, tasks: Sequence[Task]) -> list[Score | None]:
        """Score tasks again (C8); a scorer may answer for plain tasks without their links."""
        quickly = getattr(self.scorer, "score_plain", None)
        if quickly is None or self.classify is not None:
            return self.rescore([candidate_of(task) for task in tasks])
        scores: list[Score | None] = quickly(tasks)
        rest = [place for place, score in enumerate(scores) if score is None]
        rescored = self.rescore([candidate_of(tasks[place]) for place in rest]) if rest else ()
        for place, score in zip(rest, rescored, strict=True):
            scores[place] = score
        return scores

    def _check_link(  # noqa: C901 - every link passes here
        self, asked: Asked, are_seeds: bool, from_seed: bool
    ) -> _Passed | Added | Task:
        link, given = (asked, asked.url) if type(asked) is Link else (_PLAIN, asked)
        if link is not _PLAIN and not is_ordinary(link):
            checked = self._check_fields(link)
            if not isinstance(checked, Link):
                return checked
            link = checked
        if type(given) is Url:
            url = given
        else:
            parsed = parse_url(given, self.url_rules)
            if isinstance(parsed, Refusal):
                return _refused(given, parsed.reason, parsed.detail)
            url = parsed
        if self.keeps_text and link.text is None and isinstance(given, str):
            link = replace(link, text=given)
        if self.is_plain and link.key is None and link.depth <= self.max_depth:
            reason = trap(url, self.traps)
            if reason is not None:
                return Added(url.text, False, reason)
            known_by = link.fingerprint or fingerprint(link.identity or url.identity)
            return link, url, url.host, known_by, 1, ""
        is_root = (are_seeds and link.depth == 0 and link.via is None) or (
            from_seed and link.origin == REDIRECT  # A5: a seed's redirect target joins the scope
        )
        try:
            return self._check_policies(link, url, is_root)
        except Exception as error:  # noqa: BLE001 - scope, key, cost and bypass may be a user's
            return _refused(url, BAD_LINK, describe_failure(error))

    def _give_type(
        self, one: _Passed, found_on: Lease | None, *, are_seeds: bool
    ) -> _Passed | Added:
        """Give a type to a link that brings none; the default stays if nothing gives one."""
        link, url, key, known_by, cost, _ = one
        page = None if found_on is None else Referrer(link.via or found_on.url, found_on.type)
        if page is None and link.via is not None:
            page = Referrer(link.via, "")
        is_seed = are_seeds and page is None and not link.depth
        try:
            typed = self.types and self.types.type_of(link, url, page, is_seed=is_seed)
        except Exception as error:  # noqa: BLE001 - types.function is a user's
            return _refused(url, BAD_LINK, describe_failure(error))
        if not typed:
            return one
        kind, typed_by = typed
        return replace(link, type=kind), url, key, known_by, cost, typed_by

    def _check_fields(self, link: Link) -> Link | Task | Added:
        """Return the link, or the answer if it is refused, or is known without a URL."""
        fault = link_error(link)
        if fault is not None:
            return _refused(link.url, BAD_LINK, fault)
        renamed = rename_meta(link)
        if isinstance(renamed, str):
            return _refused(link.url, BAD_LINK, renamed)
        return self._known_identity(renamed) if link.done and not link.url else renamed

    def _check_policies(self, link: Link, url: Url, is_root: bool) -> _Passed | Added:
        """Check scope, trap and depth in this order, then compute key and cost (B4)."""
        if self.admits is not None:
            if is_root and self.root is not None:
                self.roots.add(self.root(url))
            answer = self.admits(url, self.roots)
            if answer is not True:
                return _out_of_scope(url, answer)
        reason = trap(url, self.traps)
        if reason is not None:
            return Added(url.text, False, reason)
        if link.depth > self.max_depth and not self._is_bypassed(link, url):
            return Added(url.text, False, "max-depth")
        return self._compute_key_and_cost(link, url)

    def _known_identity(self, link: Link) -> Task | Added:
        """B3: an identity without a URL is known as done, and no policy is about it."""
        meta = encode_meta(link.meta) if link.meta else b""
        if isinstance(meta, str):
            return _refused("", BAD_LINK, meta)
        return Task(
            self.crawl,
            link.fingerprint or fingerprint(link.identity or ""),
            "",
            link.key or NO_URL_KEY,
            link.type,
            lane=1 if link.type in self.acquisition else 0,
            depth=link.depth + 0,
            precedence=1,
            priority=0.0,
            cost=1,
            known=link.known,
            origin=link.origin or DEFAULT_ORIGIN,
            via=link.via,
            tag=link.tag,
            meta=meta,
            text=link.text or "",
            done=True,
        )

    def _is_bypassed(self, link: Link, url: Url) -> bool:
        if self.bypass is None or not self.bypass(link_with_url(link, url)):
            return False
        self.bypassed += 1
        return True

    def _compute_key_and_cost(self, link: Link, url: Url) -> _Passed | Added:
        key = valid_key(self.key(url) if link.key is None else link.key)
        if key is None:
            return _refused(url, BAD_LINK, "queue.key gave no usable key: text, 1 to 255 long")
        cost = valid_cost((self.cost_of(key) if self.cost_of else self.cost)(url, link.via))
        if cost is None:
            return _refused(url, BAD_LINK, "budget.cost gave no whole number from 0 to 65535")
        return link, url, key, fingerprint_of(link, url), cost, ""

    def _scores_of(
        self, passed: Sequence[_Passed], page: Lease | None
    ) -> Sequence[Score | str | None]:
        """Score links without an explicit priority (F8); None: explicit; text: an error."""
        asked = [one[:4] for one in passed if one[0].priority is None]
        if not asked:
            return [None] * len(passed)
        scores = self._call_scorer(asked, page)
        if len(asked) == len(passed):
            return scores
        rest = iter(scores)
        return [next(rest) if one[0].priority is None else None for one in passed]

    def _call_scorer(self, asked: Sequence[Candidate], page: Lease | None) -> Sequence[Score | str]:
        """Call the scorer; one that fails refuses its own batch and no other."""
        of_page = None if page is None else getattr(self.scorer, "score_page", None)
        try:
            given = self.scorer.score(asked) if of_page is None else of_page(asked, page)
            scores = list(given)
        except Exception as error:  # noqa: BLE001 - a scorer may be a user's
            fault = f"scoring.scorer raised {describe_error(error)}"[:200]
            return [fault] * len(asked)
        if len(scores) != len(asked):
            return [f"scoring.scorer gave {len(scores)} scores for {len(asked)}"] * len(asked)
        return [one if type(one) is Score else "scoring.scorer gave no Score" for one in scores]

    def _move_into_band(self, score: Score, link: Link, url: Url) -> Score | None:
        """Move a score into its band by focus (C9); None: the classifier failed."""
        if self.classify is None:
            return score
        kind = _class_of(self.classify, link, url)
        return None if isinstance(kind, Refusal) else apply_focus(score, kind)

    def _final_score(self, one: _Passed, score: Score | str | None) -> Score | Added | None:
        """Return the final score (None: the explicit one), moved into its band by focus (C9)."""
        link, url = one[0], one[1]
        if isinstance(score, str):
            return _refused(url, BAD_LINK, score)
        if score is not None and not isfinite(score.priority):
            return _refused(url, BAD_LINK, "its score is not a finite number")
        if self.classify is None:
            return score
        kind = _class_of(self.classify, link, url)
        if isinstance(kind, Refusal):
            return _refused(url, kind.reason, kind.detail)
        if kind == "other" and not self.parks:
            return Added(url.text, False, OFF_FOCUS)
        return apply_focus(score or explicit(priority_number(link.priority)), kind)

    def _task(
        self, one: _Passed, answer: Score | str | None, found_on: Lease | None
    ) -> Task | Added:
        link, url, key, digest, cost, typed_by = one
        if type(answer) is Score and self.classify is None and isfinite(answer.priority):
            score: Score | None = answer  # `_final_score` written out for almost every link
        else:
            final = self._final_score(one, answer)
            if isinstance(final, Added):
                return final
            score = final
        meta = encode_meta(link.meta, self.max_meta) if link.meta else b""
        if isinstance(meta, str):
            return _refused(url, BAD_LINK, meta)
        via, tag, known = link.via, link.tag, link.known
        if found_on is not None:  # B1: a found link inherits its page as via, and its tag
            via, tag = via or found_on.url, tag or found_on.tag
            known = "gather" if self.gathers and known == "keep" and score is not None else known
        priority = priority_number(link.priority) if score is None else score.priority
        return Task(
            self.crawl,
            digest,
            url.text,
            key,
            link.type,
            1 if link.type in self.acquisition else 0,
            link.depth + 0,  # a plain number, also if the link gave none
            0 if link.forced else cost or 1,
            priority + 0.0,
            cost,
            link.delay,
            known,
            self.roll() if self.roll else 0,
            link.origin or DEFAULT_ORIGIN,
            via,
            tag,
            meta,
            None if score is None else score.breakdown,
            "" if link.text is None or link.text == url.text else link.text,
            link.done,
            typed_by,
        )


def url_of(link: Link, rules: UrlRules) -> Url | Refusal:
    """Return the URL of a link that names a task, empty if it names one without a URL (B3)."""
    if isinstance(link.url, Url):
        return link.url
    if not link.url and (link.identity or link.fingerprint):
        return Url("", link.identity or "", "")
    return parse_url(link.url, rules)


def fingerprint_of(link: Link, url: Url) -> bytes:
    """Return what a link is known by: its own fingerprint or identity, or the URL's (A1, A3)."""
    return link.fingerprint or fingerprint(link.identity or url.identity)


def candidate_of(task: Task) -> Candidate:
    """Rebuild the candidate of a task for scorers; explicit parts are in its terms (F8)."""
    terms = {} if task.breakdown is None else dict(task.breakdown.terms)
    link = Link(
        task.url,
        type=task.type,
        depth=task.depth,
        priority=task.priority if task.breakdown is None else terms.get("explicit"),
        base_priority=terms.get("base_priority"),
        bias=terms.get("bias", 0.0),
        origin=task.origin,
        via=task.via,
        tag=task.tag,
        meta=_read_meta(task.meta) if task.meta else {},
        text=task.text or None,
    )
    return link, Url(task.url, task.url, _host_of(task.url)), task.key, task.fingerprint


def _host_of(text: str) -> str:
    """Return the host of a URL that was parsed before."""
    return text.partition("://")[2].partition("/")[0].partition(":")[0]


def _leads_from_seed(lease: Lease) -> bool:
    """Tell whether a link is a seed or the redirect target of one, over any number of hops."""
    return not lease.depth and (lease.via is None or lease.origin == REDIRECT)


def _class_of(classify: Classifier, link: Link, url: Url) -> Class | Refusal:
    """Classify a link (C9); a Refusal: the classifier failed."""
    try:
        return classify(link, url)
    except Exception as error:  # noqa: BLE001 - it may be a user's
        return Refusal(BAD_LINK, describe_failure(error))


def _out_of_scope(url: Url, answer: Refusal | Literal[False]) -> Added:
    if answer is False:
        return Added(url.text, False, OFF_SCOPE)
    return _refused(url, answer.reason, answer.detail)


def _refused(given: object, reason: str, detail: str) -> Added:
    text = given.text if isinstance(given, Url) else given
    return Added(text if isinstance(text, str) else short_repr(text), False, reason, None, detail)
