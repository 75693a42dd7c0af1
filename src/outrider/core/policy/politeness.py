"""Politeness: the delay after a visit, and the snoozes of failing hosts (D1, D3, D4)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

MAX_DELAY: Final = 86_400.0  # seconds
_MAX_WAIT: Final = 1e9  # seconds, 31 years: an instant after it fits into every store
_Seconds = Annotated[float, Meta(ge=0, le=MAX_DELAY)]

FIRST_THROTTLE_SNOOZE: Final = 30.0
MAX_THROTTLE_SNOOZE: Final = 900.0
THROTTLE_SPREAD: Final = 0.1
DONE_TO_CALM: Final = 10  # Done in a row that lower the throttle level by one
THROTTLES_TO_RETIRE: Final = 10
FIRST_UNREACHABLE_SNOOZE: Final = 30.0
MAX_UNREACHABLE_SNOOZE: Final = 300.0
UNREACHABLE_TO_RETIRE: Final = 5


class Politeness(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of politeness towards one queue."""

    factor: Annotated[
        float, Meta(ge=0, le=1000, description="delay after a visit = factor × its duration")
    ] = 5.0
    min_delay: Annotated[_Seconds, Meta(description="minimum of the delay, in seconds")] = 1.0
    max_delay: Annotated[_Seconds, Meta(description="maximum of the delay, in seconds")] = 30.0
    respect_crawl_delay: Annotated[
        _Seconds, Meta(description="robots.txt Crawl-delay is obeyed up to this many seconds")
    ] = 300.0
    count_from: Annotated[
        Literal["end", "start"], Meta(description="the delay counts from the visit's end or start")
    ] = "end"
    max_in_flight: Annotated[
        int, Meta(ge=1, le=10_000, description="visits at one time, per queue")
    ] = 1
    delay: Annotated[
        float,
        Meta(
            ge=-1,
            le=MAX_DELAY,
            description="≥ 0: fixed delay in seconds, instead of factor, min and max",
        ),
    ] = -1.0
    delay_to: Annotated[
        float,
        Meta(
            ge=-1,
            le=MAX_DELAY,
            description="≥ 0: with `delay`, uniform between the two; drawn as a visit begins if"
            " `count_from` is start, else as it ends",
        ),
    ] = -1.0
    visits_per_second: Annotated[
        float,
        Meta(
            ge=0,
            le=1e6,
            description="at most this many visits a second, over all slots of a queue: at least"
            " 1/rate between two leases, in whole milliseconds; 0: no limit",
        ),
    ] = 0.0
    kb_per_second: Annotated[
        float,
        Meta(
            ge=0,
            le=1e9,
            description="the delay after a visit is at least its size / this rate, in KB a second;"
            " visits at the same time are not added up; 0: no limit",
        ),
    ] = 0.0
    blocks_to_snooze: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="blocked visits in a row after which a queue waits out the cooldown of"
            " `retry.blocked`; 0: never",
        ),
    ] = 3


def min_delay_between(rules: Politeness, crawl_delay: float) -> float:
    """Return the delay between any two visits, whatever they took: min or fixed, or Crawl-delay."""
    least = rules.delay if rules.delay >= 0 else rules.min_delay
    return max(least, min(crawl_delay, rules.respect_crawl_delay))


def leases_pace_requests(rules: Politeness, crawl_delay: float) -> bool:
    """Return whether requests keep their distance only as far as each has a lease of its own (D1).

    Where the delay counts from the start and several visits may be in flight, others begin while
    one waits: a second request of it would come at any distance from theirs.
    """
    delay = max(min_delay_between(rules, crawl_delay), rules.delay_to, pace(rules))
    return rules.count_from == "start" and rules.max_in_flight > 1 and delay > 0


def draws_at_start(rules: Politeness) -> bool:
    """Return whether a delay is drawn as a visit begins: uniform, and counted from its start."""
    return rules.count_from == "start" and rules.delay_to > rules.delay >= 0


def draw_delay(rules: Politeness, roll: float) -> float:
    """Return the uniform delay of a roll in [0, 1)."""
    return rules.delay + (rules.delay_to - rules.delay) * roll


def delay_at_start(rules: Politeness, drawn: float, crawl_delay: float, level: int) -> float:
    """Return the delay from the start of a visit on, as `delay_after` would (D1).

    Without the size of its page, which is not known, and without `visits_per_second`, which holds
    between any two leases anyway.
    """
    delay = max(drawn, min(crawl_delay, rules.respect_crawl_delay))
    return min(delay * 2.0 ** min(level, 64), max(delay, MAX_DELAY))


def pace(rules: Politeness) -> float:
    """Return the seconds between two leases over all slots: 1/visits_per_second (D1)."""
    rate = rules.visits_per_second
    return 1.0 / max(rate, 1.0 / _MAX_WAIT) if rate else 0.0


def delay_after(
    rules: Politeness,
    seconds: float,
    size: int,
    crawl_delay: float,
    level: int,
    roll: float,
    drawn: float = -1.0,
) -> float:
    """Return the delay after a visit (D1), doubled per throttle level (D3), a day at most.

    `drawn` is the delay drawn as the visit began; below 0, none was, and `roll` draws it.
    """
    chosen = _chosen(rules, seconds, roll) if drawn < 0 else drawn
    if not (level or crawl_delay or rules.visits_per_second or rules.kb_per_second):
        return chosen
    delay = max(
        chosen,
        pace(rules),
        _transfer_seconds(rules, size),
        min(crawl_delay, rules.respect_crawl_delay),
    )
    return min(delay * 2.0 ** min(level, 64), max(delay, MAX_DELAY))


def _transfer_seconds(rules: Politeness, size: int) -> float:
    """Return the seconds that a visit of that size takes at `kb_per_second`."""
    rate = rules.kb_per_second
    return min(size / 1024 / max(rate, 1.0 / _MAX_WAIT), _MAX_WAIT) if rate else 0.0


def _chosen(rules: Politeness, seconds: float, roll: float) -> float:
    if rules.delay < 0:
        clamped = min(rules.factor * seconds, rules.max_delay)
        return max(clamped, rules.min_delay)
    return draw_delay(rules, roll) if rules.delay_to > rules.delay else rules.delay


def throttle_snooze(level: int, retry_after: float, roll: float) -> float:
    """Return the snooze of a throttled queue at its new level; Retry-After is a minimum (D3)."""
    backoff = min(FIRST_THROTTLE_SNOOZE * 2.0 ** min(level - 1, 64), MAX_THROTTLE_SNOOZE)
    return max(min(retry_after, MAX_DELAY), backoff) * (1 + THROTTLE_SPREAD * roll)


def unreachable_snooze(in_row: int) -> float:
    """Return the snooze of an unreachable queue after so many failures in a row (D4)."""
    return min(FIRST_UNREACHABLE_SNOOZE * 2.0 ** min(in_row - 1, 64), MAX_UNREACHABLE_SNOOZE)
