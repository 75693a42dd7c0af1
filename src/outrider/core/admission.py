"""Text or Link → Task or refusal: URL, scope, trap, depth, key, cost and score (A, B4, E4, F8).

One bad link never spoils the others: every link gets an answer, in order, and nothing raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import inf, isfinite, nan
from typing import Any, Final, TypeAlias

import msgspec

from outrider.core.policy.cost import Cost, checked_cost, unit_cost
from outrider.core.policy.keying import Keying, checked_key, host_key
from outrider.core.policy.scope import Admits
from outrider.core.policy.score import TYPE_WEIGHTS, Candidate, Score, Scorer, breakdown_of
from outrider.core.policy.traps import Traps, trap
from outrider.core.task import PRIORITIES, Added, Lease, Link, Task
from outrider.core.url import Refusal, Url, UrlRules, fingerprint, parse_url

BAD_LINK: Final = "bad-link"
META_LIMIT: Final = 16 * 1024
LONGEST_DELAY: Final = 10 * 365 * 86_400.0
DEFAULT_ORIGIN: Final = "opportunistic"
REDIRECT: Final = "redirect"

_DEEPEST: Final = 1_000_000
_COMMON_TYPES: Final = frozenset({"page", "hub", *TYPE_WEIGHTS})
_TEXT_LIMITS: Final = {"via": 8192, "origin": 255, "tag": 255, "identity": 65_536}
_KNOWN_RULES: Final = ("keep", "raise", "revisit")
_PLAIN: Final = Link("")
_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode

Asked: TypeAlias = str | Url | Link
_Passed: TypeAlias = tuple[Link, Url, str, int]  # asked everything but its score: key, cost


class Admission(msgspec.Struct):
    """Everything that is asked of a link before a store hears of it."""

    crawl: str
    key: Keying
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

    def __post_init__(self) -> None:
        asks_nobody = self.key is host_key and self.cost is unit_cost and self.cost_of is None
        self.is_plain = asks_nobody and self.admits is None

    def admit(
        self, asked: Sequence[Asked], *, are_seeds: bool = True, found_on: Lease | None = None
    ) -> list[Task | Added]:
        """A task to store or the reason why not, per link, in order."""
        from_seed = found_on is not None and _leads_from_seed(found_on)
        answers: list[_Passed | Added] = [self._screen(one, are_seeds, from_seed) for one in asked]
        scores = iter(self._scores([one for one in answers if not isinstance(one, Added)]))
        return [
            one if isinstance(one, Added) else self._task(one, next(scores), found_on)
            for one in answers
        ]

    def score_again(self, lease: Lease, kind: str) -> Score:
        """The score of a task that comes back as this type (G3); a broken one keeps the old."""
        link = Link(lease.url, type=kind, depth=lease.depth)
        (score,) = self._scored([(link, Url(lease.url, lease.url, lease.key))])
        if isinstance(score, Score) and isfinite(score.priority):
            return score
        return Score(lease.priority, breakdown_of(lease.about))

    def _screen(self, asked: Asked, are_seeds: bool, from_seed: bool) -> _Passed | Added:
        link, given = (asked, asked.url) if type(asked) is Link else (_PLAIN, asked)
        if link is not _PLAIN and not _is_ordinary(link):
            fault = fault_of(link)
            if fault is not None:
                return _refused(given, BAD_LINK, fault)
        url = given if type(given) is Url else parse_url(given, self.url_rules)
        if isinstance(url, Refusal):
            return _refused(given, url.reason, url.detail)
        if self.is_plain and link.key is None and link.depth <= self.max_depth:
            reason = trap(url, self.traps)
            return (link, url, url.host, 1) if reason is None else Added(url.text, False, reason)
        is_root = (are_seeds and link.depth == 0 and link.via is None) or (
            from_seed and link.origin == REDIRECT  # A5: a seed's redirect target joins the scope
        )
        try:
            return self._police(link, url, is_root)
        except Exception as error:  # noqa: BLE001 - scope, key, cost and bypass may be a user's
            return _refused(url, BAD_LINK, f"a policy raised {type(error).__name__}: {error}"[:200])

    def _police(self, link: Link, url: Url, is_root: bool) -> _Passed | Added:
        """B4: scope → trap → depth; then key and cost."""
        if self.admits is not None:
            if is_root and self.root is not None:
                self.roots.add(self.root(url))
            if not self.admits(url, self.roots):
                return Added(url.text, False, "off-scope")
        reason = trap(url, self.traps)
        if reason is not None:
            return Added(url.text, False, reason)
        if link.depth > self.max_depth and not self._is_bypassed(link):
            return Added(url.text, False, "max-depth")
        return self._price(link, url)

    def _is_bypassed(self, link: Link) -> bool:
        if self.bypass is None or not self.bypass(link):
            return False
        self.bypassed += 1
        return True

    def _price(self, link: Link, url: Url) -> _Passed | Added:
        key = checked_key(self.key(url) if link.key is None else link.key)
        if key is None:
            return _refused(url, BAD_LINK, "queue.key gave no usable key: text, 1 to 255 long")
        cost = checked_cost((self.cost_of(key) if self.cost_of else self.cost)(url, link.via))
        if cost is None:
            return _refused(url, BAD_LINK, "budget.cost gave no whole number from 0 to 65535")
        return link, url, key, cost

    def _scores(self, passed: Sequence[_Passed]) -> Sequence[Score | str | None]:
        """F8: an explicit priority (None here) never reaches the scorer; a fault is text."""
        asked = [(link, url) for link, url, _, _ in passed if link.priority is None]
        if not asked:
            return [None] * len(passed)
        scores = self._scored(asked)
        if len(asked) == len(passed):
            return scores
        rest = iter(scores)
        return [next(rest) if link.priority is None else None for link, _, _, _ in passed]

    def _scored(self, asked: Sequence[Candidate]) -> Sequence[Score | str]:
        """What the scorer says; one that breaks its promise refuses its batch, and no other."""
        try:
            scores = list(self.scorer.score(asked))
        except Exception as error:  # noqa: BLE001 - a scorer may be a user's
            fault = f"scoring.scorer raised {type(error).__name__}: {error}"[:200]
            return [fault] * len(asked)
        if len(scores) != len(asked):
            return [f"scoring.scorer gave {len(scores)} scores for {len(asked)}"] * len(asked)
        return [one if type(one) is Score else "scoring.scorer gave no Score" for one in scores]

    def _task(
        self, one: _Passed, score: Score | str | None, found_on: Lease | None
    ) -> Task | Added:
        link, url, key, cost = one
        if score is None:  # given with the link, and asked about before
            priority = link.priority if type(link.priority) is float else number_of(link.priority)
        elif isinstance(score, str):
            return _refused(url, BAD_LINK, score)
        else:
            priority = score.priority
            if not isfinite(priority):
                return _refused(url, BAD_LINK, "its score is not a finite number")
        meta = _meta_of(link.meta) if link.meta else b""
        if isinstance(meta, str):
            return _refused(url, BAD_LINK, meta)
        via, tag = link.via, link.tag
        if found_on is not None:  # B1: a found link inherits its page as via, and its tag
            via, tag = via or found_on.url, tag or found_on.tag
        return Task(
            self.crawl,
            fingerprint(link.identity or url.identity),
            url.text,
            key,
            link.type,
            1 if link.type in self.acquisition else 0,
            link.depth,
            0 if link.forced else cost or 1,
            priority + 0.0,
            cost,
            link.delay,
            link.known,
            self.roll() if self.roll else 0,
            link.origin or DEFAULT_ORIGIN,
            via,
            tag,
            meta,
            None if score is None else score.breakdown,
        )


def _leads_from_seed(lease: Lease) -> bool:
    """A seed, or what a seed redirected to, however many hops away: redirects keep the depth."""
    return not lease.depth and (lease.via is None or lease.origin == REDIRECT)


def _is_ordinary(link: Link) -> bool:
    """Whether nothing about a link can be wrong: one question for almost all of them."""
    return (
        type(link.depth) is int
        and 0 <= link.depth <= _DEEPEST
        and (link.priority is None or (type(link.priority) is float and isfinite(link.priority)))
        and type(link.type) is str
        and link.type in _COMMON_TYPES
        and link.known == "keep"
        and link.bias == 0.0
        and link.delay == 0.0
        and link.base_priority is None
        and link.key is link.via is link.origin is link.tag is link.identity is None
    )


def _refused(given: object, reason: str, detail: str) -> Added:
    text = given.text if isinstance(given, Url) else given
    return Added(text if isinstance(text, str) else _shown(text), False, reason, None, detail)


def fault_of(link: Link) -> str | None:
    """What is wrong with a link, or None; says the field and the fix."""
    return _fault_of_numbers(link) or _fault_of_texts(link)


def _fault_of_numbers(link: Link) -> str | None:
    if type(link.depth) is not int or not 0 <= link.depth <= _DEEPEST:
        return f"depth = {_shown(link.depth)} must be a whole number from 0 to 1,000,000"
    if link.priority is not None and not _is_finite(number_of(link.priority)):
        return (
            f"priority = {_shown(link.priority)} must be finite, or one of {', '.join(PRIORITIES)}"
        )
    if link.base_priority is not None and not _is_finite(link.base_priority):
        return f"base_priority = {_shown(link.base_priority)} must be finite"
    if not _is_finite(link.bias):
        return f"bias = {_shown(link.bias)} must be finite"
    if not (_is_finite(link.delay) and 0 <= link.delay <= LONGEST_DELAY):
        return f"delay = {_shown(link.delay)} must be seconds from 0 to ten years"
    return None


def _fault_of_texts(link: Link) -> str | None:
    if not isinstance(link.type, str) or not 0 < len(link.type) <= 64 or not _is_text(link.type):
        return f"type = {_shown(link.type)} must be text, 1 to 64 long"
    if link.key is not None and checked_key(link.key) is None:
        return f"key = {_shown(link.key)} must be printable text, 1 to 255 long"
    if link.known not in _KNOWN_RULES:
        return f"known = {_shown(link.known)} must be one of {', '.join(_KNOWN_RULES)}"
    if link.via is None is link.origin is link.tag is link.identity:
        return None
    return next(filter(None, (_fault_of_text(link, name) for name in _TEXT_LIMITS)), None)


def _fault_of_text(link: Link, name: str) -> str | None:
    value, most = getattr(link, name), _TEXT_LIMITS[name]
    if value is None or (isinstance(value, str) and len(value) <= most and _is_text(value)):
        return None
    return f"{name} = {_shown(value)} must be text, at most {most} long"


def _meta_of(meta: Mapping[str, Any]) -> bytes | str:
    """Meta as JSON, or what is wrong with it; strict, so that it comes back as it was given."""
    if not isinstance(meta, dict):
        return f"meta must be a dict, not {type(meta).__name__}"
    try:
        data = _encode(meta).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return f"meta is not JSON: {str(error)[:120]}"
    return (
        data if len(data) <= META_LIMIT else f"meta: {len(data)} bytes of JSON, over {META_LIMIT}"
    )


def number_of(priority: object) -> float:
    """A priority as given or by name; NaN for what is neither."""
    if isinstance(priority, str):
        return PRIORITIES.get(priority, nan)
    try:
        return float(priority) if isinstance(priority, int | float) else nan
    except OverflowError:
        return inf


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(number_of(value))


def _is_text(value: str) -> bool:
    """Lone surrogates can be written nowhere."""
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def _shown(value: object) -> str:
    """A value as a message may show it: short, whatever it is."""
    try:
        return repr(value)[:60]
    except Exception:  # noqa: BLE001 - a stranger's repr, or a number too long to write
        return f"a {type(value).__name__}"
