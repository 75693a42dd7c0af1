"""Timetables of revisits against the best there can be, in virtual time."""

import asyncio
from random import Random

import pytest

from outrider.core.policy.revisit import Revisiting
from outrider.frontier.policies import Revisits
from outrider.simulation.freshness import (
    DAY,
    WEBS,
    by_value,
    change_rates,
    compare,
    crawl,
    main,
    optimum,
    share_of_best,
    timetable,
)

VALUE = Revisiting("value")


@pytest.fixture(scope="module", params=[*((web, 1) for web in WEBS), ("busy", 2)], ids=str)
def rows(request):
    """A web under each timetable."""
    web, seed = request.param
    return {row.name: row for row in compare(seed, web, pages=200)}


def test_value_comes_near_the_optimum(rows):
    """G3: at least 0.95 of the freshness that as many visits could keep, the rates being known."""
    assert rows["value"].share >= 0.95


def test_value_beats_the_same_interval_for_all(rows):
    """G3: by more than half of all that could be gained at all, and at no more effort."""
    best, value, fixed = (rows[name].share for name in ("optimum", "value", "fixed"))

    assert value - fixed > (best - fixed) / 2
    assert rows["value"].kept.visits == pytest.approx(rows["fixed"].kept.visits, rel=0.04)


def test_no_copy_grows_older_than_allowed(rows):
    """G3: of pages that are never worth a visit neither."""
    assert rows["value"].kept.oldest <= VALUE.max_age * (1 + 1e-9)
    assert rows["fixed"].kept.oldest <= DAY * (1 + 1e-9)


def test_the_optimum_is_one(rows):
    """Known rates and the best price keep what was computed; nothing keeps more."""
    assert rows["known"].share == pytest.approx(1.0, abs=0.02)
    assert max(row.share for row in rows.values()) <= 1.02
    assert rows["optimum"].kept.visits == pytest.approx(1.0, rel=0.01)


def test_a_thousand_pages_are_no_different():
    """G3: the price is moved by visits, however many pages share it."""
    dice = Random(4)
    rates = change_rates("uneven", 1000, dice)

    assert share_of_best(timetable(rates, by_value(VALUE, dice), DAY, dice), rates) >= 0.95


def test_several_workers_come_to_the_same_price_without_a_word():
    """G3: each sees a fair sample of the visits."""
    dice = Random(5)
    rates = change_rates("busy", 200, dice)
    crew = [Revisits(VALUE) for _ in range(4)]

    kept = timetable(rates, lambda _, answer, last: dice.choice(crew).plan(answer, last), DAY, dice)

    best, _ = optimum(rates, DAY)
    assert [worker.price for worker in crew] == pytest.approx([best] * 4, rel=0.5)
    assert share_of_best(kept, rates) >= 0.95


def test_workers_that_begin_anew_every_day_lose_nothing():
    """G3: the price is taken over from what earlier visits were planned at."""
    dice = Random(6)
    rates = change_rates("uneven", 100, dice)
    visits, worker = 0, Revisits(VALUE)

    def plan(_, answer, last):
        nonlocal visits, worker
        visits += 1
        if visits % 100 == 0:
            worker = Revisits(VALUE)
        return worker.plan(answer, last)

    kept = timetable(rates, plan, DAY, dice)

    assert share_of_best(kept, rates) >= 0.95
    assert kept.visits == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize(
    ("how", "visits"), [(VALUE, 1.0), (Revisiting("value", visits_per_hour=30 / 24), 0.5)]
)
def test_a_frontier_keeps_its_pages_as_fresh(how, visits):
    """G3: the whole path, from a lease with its last answer to the next visit."""
    dice = Random(7)
    rates = change_rates("uneven", 60, dice)

    kept = asyncio.run(crawl(rates, how, dice))

    assert share_of_best(kept, rates) >= 0.95
    assert kept.visits == pytest.approx(visits, rel=0.05)
    assert kept.oldest <= how.max_age + 120.0


def test_a_seed_tells_the_same_story_twice(capsys):
    """S1: and the table has a line for each timetable of each web."""
    assert compare(3, "quiet", pages=20) == compare(3, "quiet", pages=20)
    assert compare(3, "quiet", pages=20) != compare(4, "quiet", pages=20)

    main(1, pages=5)

    assert capsys.readouterr().out.count("\n") == 1 + 4 * len(WEBS)
