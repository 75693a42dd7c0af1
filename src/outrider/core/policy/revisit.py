"""Revisits: when a page is fetched again (G3).

A copy grows stale as its page changes. What a visit would regain is the copy's *crawl value*; the
page is visited again when that has reached the *price* of a visit, which is the same for all
pages. docs/explanation/revisits.md has the reasons.
"""

from __future__ import annotations

import math
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from outrider.core.outcome import Answer, Last
from outrider.core.policy.change_rate import change_rate

_DAY: Final = 86_400.0
_Seconds = Annotated[float, Meta(gt=0, le=3650 * _DAY)]

GONE: Final = frozenset({404, 410})
_DEAREST: Final = 0.2984  # of the interval wanted: above, even the best page would wait longer
_CHEAPEST: Final = 1e-4  # of it too: far below what any web asks for, so never far away
_STEP: Final = 0.003  # the price moves by so much at a visit whose interval is twice the one wanted
_EXACT: Final = 1e-3  # as near as an age is looked for


class Revisiting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of revisits."""

    policy: Annotated[
        Literal["none", "fixed", "value"],
        Meta(description="none; fixed: at fixed intervals; value: by how often each page changes"),
    ] = "none"
    every: Annotated[
        _Seconds,
        Meta(description="fixed: seconds between visits; value: the first interval, and the mean"),
    ] = _DAY
    min_age: Annotated[
        _Seconds, Meta(description="value: minimum seconds between visits of a page")
    ] = 3600.0
    max_age: Annotated[
        _Seconds, Meta(description="value: maximum seconds between visits of a page")
    ] = 30 * _DAY
    visits_per_hour: Annotated[
        float,
        Meta(ge=0, le=1e9, description="value: target rate of revisits; 0: derived from `every`"),
    ] = 0.0

    def within(self, seconds: float) -> float:
        """Return the interval within the bounds of age; `max_age` wins."""
        return min(max(seconds, self.min_age), self.max_age)


def is_gone(answer: Answer, last: Last | None) -> bool:
    """Tell whether the page is gone: missing at the first visit, or twice in a row."""
    return answer.status in GONE and (last is None or last.answer.status in GONE)


def crawl_value(rate: float, age: float) -> float:
    """Seconds of freshness a visit gains at this age, beyond those it would gain if put off."""
    passed = rate * age
    return (-math.expm1(-passed) - passed * math.exp(-passed)) / rate


def interval(answer: Answer, last: Last | None, how: Revisiting, price: float) -> float:
    """Return the seconds until a page with this answer is worth a visit at this price."""
    rate = change_rate(answer)
    if rate is None or last is None:
        return how.within(how.every)
    if answer.changes == answer.looks and 1 / rate > how.min_age:
        return how.within(
            0.5 / rate
        )  # every visit found a change: only a shorter wait can tell the rate
    return age_worth(rate, price, how.min_age, min(how.max_age, max(how.min_age, 2 * last.age)))


def age_worth(rate: float, price: float, least: float, most: float) -> float:
    """Return the age between two bounds at which a page's crawl value reaches the price."""
    while most - least > _EXACT * most:
        middle = (least + most) / 2
        if crawl_value(rate, middle) < price:
            least = middle
        else:
            most = middle
    return most


def first_price(wanted: float) -> float:
    """Return the initial price: the value of a page that changes once in the wanted interval."""
    return crawl_value(1 / wanted, wanted)


def next_price(price: float, chosen: float, wanted: float, how: Revisiting) -> float:
    """The price after a visit: it rises while intervals are shorter than wanted on average.

    Every worker sees a fair sample of the visits, so each comes to the same price by itself.
    """
    step = min(_STEP, 0.5 * wanted / how.max_age)  # the rare visits at the greatest age weigh most
    moved = price * math.exp(step * (1 - chosen / wanted))
    return min(max(moved, _CHEAPEST * wanted), _DEAREST * wanted)


def price_paid(answer: Answer, how: Revisiting) -> float | None:
    """Return the price an earlier visit was planned at; None if it was planned otherwise."""
    rate = change_rate(answer)
    if rate is None or answer.changes == answer.looks:
        return None
    if not how.min_age < answer.planned < how.max_age:
        return None
    return crawl_value(rate, answer.planned)
