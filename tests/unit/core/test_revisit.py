import math

import msgspec
import pytest

from outrider.core.decide import Policy, decide
from outrider.core.outcome import Answer, Done, Failed, Last
from outrider.core.policy.lanes import Lanes
from outrider.core.policy.politeness import Politeness
from outrider.core.policy.retry import Retry
from outrider.core.policy.revisit import (
    Revisiting,
    age_worth,
    crawl_value,
    first_price,
    interval,
    is_gone,
    next_price,
    price_paid,
)
from outrider.core.policy.rules import Budget, QueueRules
from outrider.core.policy.score import explicit
from outrider.core.states import TaskState
from outrider.core.task import ACQUISITION, Lease, PolitenessState, Task

HOUR, DAY = 3600.0, 86_400.0
VALUE = Revisiting("value")


def answer(looks=0, changes=0, watched=0.0, planned=0.0, status=200):
    """An answer that taught this much."""
    return Answer(status, 0, "d", None, None, looks, changes, watched, planned)


def lease(last=None):
    """A lease of a task that was visited before, or not."""
    task = Task("c", b"f" * 16, "https://a.example/1", "a.example", "page", 0, 0, 1, 0.0, 1)
    rules = QueueRules(Politeness(), Budget())
    return Lease("s", 7, 99, task, 1, "w", 60.0, 0, 0, rules, PolitenessState(), None, last)


def policy(revisit_in=None):
    """The default policy, but for revisits."""
    return Policy(Retry(), Lanes(), lambda *_: explicit(25.0), revisit_in)


# ---- what a visit is worth


def test_the_value_of_a_visit_is_what_putting_it_off_would_lose():
    """The derivative of freshness by effort, numerically."""
    rate, age, slightly = 2 / DAY, 0.7 * DAY, 1e-4

    def freshness(visits):
        return visits / rate * -math.expm1(-rate / visits)

    gained = freshness((1 + slightly) / age) - freshness((1 - slightly) / age)

    assert crawl_value(rate, age) == pytest.approx(gained * age / (2 * slightly), rel=1e-6)


def test_the_value_grows_with_age_up_to_a_bound():
    """A page that changes often is never worth more than the mean time between its changes."""
    values = [crawl_value(1 / DAY, days * DAY) for days in (0.0, 0.1, 1, 10, 1000)]

    assert values == sorted(values)
    assert values[0] == 0
    assert values[-1] == pytest.approx(DAY)


@pytest.mark.parametrize("rate", [1e-9, 1e-6, 1e-4, 1e-2, 1e3])
@pytest.mark.parametrize("price", [1e-3, 1.0, 1e4, 1e6])
def test_a_page_is_visited_when_it_is_worth_the_price(rate, price):
    """Or at a bound, if it is worth it before, or not by then."""
    age = age_worth(rate, price, HOUR, 30 * DAY)

    assert HOUR <= age <= 30 * DAY
    if HOUR * 1.01 < age < 30 * DAY:
        assert crawl_value(rate, age) == pytest.approx(price, rel=0.01)
    elif age <= HOUR * 1.01:
        assert crawl_value(rate, age) >= price
    else:
        assert crawl_value(rate, age) <= price


def test_the_greatest_age_has_the_last_word():
    """G3: whatever else the settings say."""
    how = Revisiting("value", every=DAY, min_age=HOUR, max_age=60.0)

    assert interval(answer(), None, how, 1.0) == 60.0
    assert interval(answer(5, 2, DAY), Last(answer(), DAY), how, 1.0) == 60.0


# ---- how long a page waits


def test_the_first_wait_is_the_one_that_was_set():
    """G3: nothing is known yet; nor of a page that never can be compared."""
    assert interval(answer(), None, VALUE, 1.0) == DAY
    assert interval(answer(), Last(answer(), 3 * DAY), VALUE, 1.0) == DAY


def test_a_page_that_changed_by_every_look_is_looked_at_in_half_the_time():
    """G3: down to the least age; only a shorter wait tells the quick from the hopeless."""
    waits = [
        interval(answer(looks, looks, (looks + 1) * age), Last(answer(), age), VALUE, 1e5)
        for looks, age in enumerate((DAY, DAY / 2, DAY / 4, 1.5 * HOUR), start=1)
    ]

    assert waits == pytest.approx([DAY / 2, DAY / 4, DAY / 8, HOUR])


def test_a_page_that_is_never_worth_it_is_left_alone_step_by_step():
    """G3: at most twice as long each time, so that one that calmed down is noticed."""
    hopeless, price = answer(9, 9, 10 * HOUR), 5 * HOUR

    assert crawl_value(1 / HOUR, 1e9) < price
    waits = [interval(hopeless, Last(answer(), age), VALUE, price) for age in (HOUR, DAY, 20 * DAY)]

    assert waits == pytest.approx([2 * HOUR, 2 * DAY, 30 * DAY])


def test_of_two_pages_that_are_worth_it_the_livelier_one_comes_sooner():
    """G3: and at a lower price both do."""
    still, lively = answer(20, 1, 40 * DAY), answer(20, 10, 15 * DAY)
    last, price = Last(answer(), 30 * DAY), first_price(DAY)

    waits = [interval(page, last, VALUE, price) for page in (lively, still)]
    cheap = [interval(page, last, VALUE, price / 10) for page in (lively, still)]

    assert waits[0] < waits[1]
    assert cheap[0] < waits[0]
    assert cheap[1] < waits[1]


# ---- the price


def test_the_first_price_makes_an_average_page_wait_as_long_as_wanted():
    """G3: a page that changes once in that time."""
    assert age_worth(1 / DAY, first_price(DAY), 1.0, 100 * DAY) == pytest.approx(DAY, rel=0.01)


def test_the_price_rises_while_waits_are_shorter_than_wanted():
    """G3: and falls while they are longer; the wanted one moves it nowhere."""
    price = 0.1 * DAY

    assert next_price(price, DAY / 2, DAY, VALUE) > price
    assert next_price(price, 2 * DAY, DAY, VALUE) < price
    assert next_price(price, DAY, DAY, VALUE) == price


@pytest.mark.parametrize("chosen", [HOUR, 3650 * DAY])
def test_the_price_stays_where_waits_as_wanted_are_possible(chosen):
    """G3: so that it finds back at once, whatever it was told."""
    how = Revisiting("value", max_age=3650 * DAY)
    price = first_price(DAY)
    for _ in range(100_000):
        price = next_price(price, chosen, DAY, how)

    dearest = max(crawl_value(rate / 100 / DAY, DAY) for rate in range(1, 1000))
    assert 0 < price <= dearest * 1.001


def test_price_of_a_planned_visit_follows_from_its_plan():
    """G3: what a worker begins with."""
    page = answer(20, 10, 15 * DAY)
    planned = interval(page, Last(answer(), 9 * DAY), VALUE, 0.17 * DAY)

    paid = price_paid(msgspec.structs.replace(page, planned=planned), VALUE)

    assert paid == pytest.approx(0.17 * DAY, rel=0.01)


@pytest.mark.parametrize(
    "silent",
    [
        answer(planned=DAY),
        answer(3, 3, DAY, planned=DAY),
        answer(3, 1, DAY),
        answer(3, 1, DAY, planned=HOUR),
        answer(3, 1, DAY, planned=30 * DAY),
    ],
)
def test_a_plan_that_no_price_decided_tells_none(silent):
    """G3: a first wait, a shorter look, the caller's word, the least and the greatest age."""
    assert price_paid(silent, VALUE) is None


# ---- what is gone


@pytest.mark.parametrize(
    ("status", "before", "gone"),
    [
        (404, None, True),
        (410, None, True),
        (404, 200, False),
        (404, 410, True),
        (200, 404, False),
        (403, 403, False),
        (200, None, False),
    ],
)
def test_a_page_is_gone_if_it_never_was_or_was_missing_twice(status, before, gone):
    """G3: there is nothing to be kept fresh."""
    last = None if before is None else Last(answer(status=before), DAY)

    assert is_gone(answer(status=status), last) is gone


# ---- the verdict


@pytest.mark.parametrize("from_cache", [True, False])
def test_a_policy_brings_a_done_page_back(from_cache):
    """G3: as a refresh, in its lane; the plan is remembered."""
    verdict = decide(lease(), Done(200, from_cache=from_cache), policy(lambda *_: 50.0), 0.0)

    assert verdict.state is TaskState.PENDING
    assert verdict.revisit.after == 50.0
    assert (verdict.revisit.type, verdict.revisit.lane) == ("refresh", ACQUISITION)
    assert verdict.answer.planned == 50.0


@pytest.mark.parametrize("from_cache", [True, False])
def test_the_callers_word_wins_over_the_policy(from_cache):
    """G3: and is no plan of the policy's."""
    outcome = Done(200, revisit_in=7.0, from_cache=from_cache)
    last = Last(answer(3, 1, DAY, planned=60.0), 60.0)

    verdict = decide(lease(last), outcome, policy(lambda *_: 50.0), 0.0)

    assert verdict.revisit.after == 7.0
    assert verdict.answer.planned == 0.0


def test_a_page_that_a_policy_lets_go_is_done():
    """G3."""
    verdict = decide(lease(), Done(404), policy(lambda *_: None), 0.0)

    assert (verdict.state, verdict.revisit) == (TaskState.DONE, None)
    assert verdict.answer.planned == 0.0


def test_revisit_policy_gets_the_learned_answer():
    """G3: the new answer and the last one."""
    told = []
    last = Last(answer(), DAY)

    decide(lease(last), Done(304), policy(lambda *given: told.append(given)), 0.0)

    assert told == [(answer(1, 0, 2 * DAY, status=304), last)]


def test_pages_are_learned_about_without_a_policy_too():
    """G3: for callers that choose `revisit_in` themselves."""
    verdict = decide(lease(Last(answer(), DAY)), Done(200, digest="e"), policy(), 0.0)

    assert (verdict.answer.looks, verdict.answer.changes) == (1, 1)


def test_a_policy_is_not_asked_about_visits_that_failed():
    """G1: those are retried."""
    verdict = decide(lease(Last(answer(), DAY)), Failed("x"), policy(lambda *_: 1 / 0), 0.0)

    assert verdict.revisit is None
