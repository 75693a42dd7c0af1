"""Focus: total prioritisation by a classifier that answers `focus`, `related` or `other` (C9).

Scores are clipped before they are moved into their band, so the bands never overlap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from outrider.core.breakdown import Breakdown
from outrider.core.link_validation import short_repr
from outrider.core.policy.code_field import CODE
from outrider.core.policy.countries import COUNTRIES, RELATED
from outrider.core.policy.score import Score
from outrider.core.policy.user_function import (
    MAX_DETAIL,
    FunctionError,
    function_name,
    link_with_url,
    name_failures,
)
from outrider.core.task import Link
from outrider.core.url import Url

OFF_FOCUS: Final = "off-focus"
FOCUS_BAND: Final = -6000.0
RELATED_BAND: Final = -4000.0
PARKED: Final = 5_000_000.0
CLIP: Final = 999.0
OPENS_BELOW: Final = -5000.0  # every focus task is below it, and no related one
_MAX_PHRASE: Final = 5  # words of a phrase
_MAX_WORDS: Final = 200  # of one link that are looked at
_MAX_LEVELS: Final = 4  # levels of its meta

Class: TypeAlias = Literal["focus", "related", "other"]
Classifier: TypeAlias = Callable[[Link, Url], Class]
LISTS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "countries": (COUNTRIES, RELATED)
}
_words = re.compile(r"[^\W_]+").findall


class Focus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a focused crawl."""

    on: Annotated[bool, Meta(description="true: total prioritisation, everything else waits")] = (
        False
    )
    classifier: Annotated[
        str | Any,
        Meta(
            extra=CODE,
            description="tokens | module:function | a function: "
            "link, URL → focus, related or other",
        ),
    ] = "tokens"
    lists: Annotated[
        tuple[str, ...], Meta(description="tokens: lists that ship with Outrider: countries")
    ] = ()
    tokens: Annotated[
        tuple[str, ...],
        Meta(description="tokens: words or phrases in type, meta or path that are the focus"),
    ] = ()
    related: Annotated[
        tuple[str, ...], Meta(description="tokens: words or phrases that are related to it")
    ] = ()
    other: Annotated[
        Literal["refuse", "park"],
        Meta(description="everything else: refused as `off-focus`, or added far behind"),
    ] = "refuse"


def classifier_of(focus: Focus, function: Classifier | None = None) -> Classifier:
    """Return the classifier that the settings name."""
    if function is not None:
        return _asking(function)
    listed = [LISTS[name] for name in focus.lists]
    wanted = phrases([*focus.tokens, *(word for words, _ in listed for word in words)])
    near = phrases([*focus.related, *(word for _, words in listed for word in words)])
    return lambda link, url: _class_of(frozenset(_runs(link, url)), wanted, near)


def _asking(function: Classifier) -> Classifier:
    """Return a classifier that asks the user's; FunctionError: it raised, or gave no class."""
    ask = name_failures("focus.classifier", function)

    def classify(link: Link, url: Url) -> Class:
        kind = ask(link_with_url(link, url), url)
        if isinstance(kind, str) and kind in get_args(Class):
            return kind
        fault = f"returned {short_repr(kind)}; return focus, related or other"
        raise FunctionError(f"focus.classifier {function_name(function)} {fault}"[:MAX_DETAIL])

    return classify


def phrases(texts: list[str]) -> frozenset[tuple[str, ...]]:
    """Normalise words and phrases for comparison."""
    return frozenset(tuple(_words(text.lower())) for text in texts if _words(text))


def _class_of(
    found: frozenset[tuple[str, ...]],
    wanted: frozenset[tuple[str, ...]],
    near: frozenset[tuple[str, ...]],
) -> Class:
    if not wanted.isdisjoint(found):
        return "focus"
    return "other" if near.isdisjoint(found) else "related"


def _runs(link: Link, url: Url) -> Iterator[tuple[str, ...]]:
    """Yield every sequence of words that could be a phrase."""
    path = url.text.partition("://")[2].partition("/")[2]
    for text in (link.type, path, *_texts(link.meta, _MAX_LEVELS)):
        words = _words(text.lower())[:_MAX_WORDS]
        for start in range(len(words)):
            for length in range(1, min(_MAX_PHRASE, len(words) - start) + 1):
                yield tuple(words[start : start + length])


def _texts(value: object, depth: int) -> Iterator[str]:
    """Yield the texts of a link's meta; it is untrusted, so depth and number are bounded."""
    if isinstance(value, str):
        yield value[:4096]
    elif depth and isinstance(value, dict | list | tuple):
        for inner in list(value.values() if isinstance(value, dict) else value)[:100]:
            yield from _texts(inner, depth - 1)


def apply_focus(score: Score, kind: Class) -> Score:
    """Move a score into its band; its terms still sum to it."""
    if kind == "other":
        return _shift(score, PARKED, -score.priority)
    clipped = max(-CLIP, min(CLIP, score.priority))
    return _shift(score, FOCUS_BAND if kind == "focus" else RELATED_BAND, clipped - score.priority)


def _shift(score: Score, band: float, clip: float) -> Score:
    terms = (*score.breakdown.terms, *((("clip", clip),) if clip else ()), ("focus", band))
    breakdown = Breakdown(score.breakdown.source, terms)
    return Score(breakdown.total, breakdown)
