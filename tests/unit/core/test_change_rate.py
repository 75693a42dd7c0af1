import math
from random import Random

import pytest

from outrider.core.outcome import Answer, Done, Last
from outrider.core.policy.change_rate import (
    MEMORY,
    change_rate,
    first_change,
    has_changed,
    updated_answer,
)

DAY = 86_400.0


def answer(**fields):
    """An answer with a digest, but for what is given."""
    given = {"status": 200, "bytes": 1, "digest": "a", "etag": None, "last_modified": None}
    return Answer(**{**given, **fields})


def after(looks, *, start=None):
    """What a page taught that was looked at after these waits, and had changed or not."""
    kept = start or answer()
    for age, changed in looks:
        digest = kept.digest + "+" if changed else kept.digest
        kept = updated_answer(Last(kept, age), Done(200, digest=digest))
    return kept


def taught(kept):
    """Looks, changes, watched."""
    return kept.looks, kept.changes, kept.watched


# ---- is it another page?


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ({}, Done(200, digest="a"), False),
        ({}, Done(200, digest="b"), True),
        ({}, Done(206, digest="b"), True),
        ({}, Done(304), False),
        ({}, Done(304, digest="b"), False),
        ({"etag": "x"}, Done(200, digest="a", etag="y"), False),
        ({"digest": None, "etag": "x"}, Done(200, digest="b", etag="x"), False),
        ({"digest": None, "etag": "x"}, Done(200, etag="y", last_modified="then"), True),
        ({"etag": "x", "last_modified": "then"}, Done(200, last_modified="then"), False),
        ({"last_modified": "then"}, Done(200, last_modified="now"), True),
        ({}, Done(200, etag="x", last_modified="then"), None),
        ({}, Done(200), None),
        ({"digest": None}, Done(200, digest="a"), None),
        ({}, Done(404, digest="b"), None),
        ({}, Done(301, digest="b"), None),
        ({}, Done(200, digest="b", from_cache=True), None),
    ],
)
def test_the_best_evidence_at_hand_tells_whether_a_page_changed(old, new, changed):
    """G3: 304, else the digest, else the ETag, else Last-Modified, else nobody knows."""
    assert has_changed(answer(**old), new) is changed


# ---- what is remembered


def test_a_first_visit_is_remembered_as_it_was_answered():
    """B1: and has taught nothing."""
    kept = updated_answer(None, Done(203, bytes=7, digest="d", etag="e", last_modified="m"))

    assert kept == Answer(203, 7, "d", "e", "m", 0, 0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("new", "kept"),
    [
        (Done(200, digest="b"), ("b", None, None)),
        (Done(200), (None, None, None)),
        (Done(304), ("a", "e", "m")),
        (Done(304, etag="f"), ("a", "f", "m")),
        (Done(404, digest="missing"), ("a", "e", "m")),
        (Done(302, etag="f"), ("a", "e", "m")),
    ],
)
def test_only_content_replaces_what_is_known_of_the_content(new, kept):
    """G3: an ETag older than our copy would have the host call it unchanged."""
    got = updated_answer(Last(answer(etag="e", last_modified="m"), DAY), new)

    assert (got.digest, got.etag, got.last_modified) == kept
    assert got.status == new.status


def test_a_visit_that_cannot_tell_teaches_nothing():
    """G3: nor does one that came at the same instant."""
    before = answer(looks=3, changes=1, watched=2 * DAY, planned=DAY)

    assert taught(updated_answer(Last(before, DAY), Done(500 - 96))) == (3, 1, 2 * DAY)
    assert taught(updated_answer(Last(before, 0.0), Done(200, digest="b"))) == (3, 1, 2 * DAY)


def test_time_without_a_change_is_time_watched():
    """G3: to begin with, one change is imagined in as long as the first wait."""
    assert taught(after([(DAY, False), (2 * DAY, False)])) == (2, 0, 4 * DAY)


def test_a_change_is_taken_to_have_come_before_the_end_of_the_wait():
    """G3: in half of a short wait; in a long one it says nothing new of the rate."""
    known = answer(looks=10, changes=4, watched=50.0)

    short = after([(0.01, True)], start=known)
    long = after([(1e6, True)], start=known)

    assert taught(short) == (11, 5, pytest.approx(50.005, abs=1e-4))
    assert change_rate(long) == pytest.approx(change_rate(known))


def test_a_page_that_always_changed_may_be_as_quick_as_the_shortest_wait():
    """G3: longer waits before that say nothing against it."""
    quick = after([(DAY, True), (DAY / 2, True), (DAY / 4, True)])

    assert change_rate(quick) == pytest.approx(4 / DAY)


def test_change_rate_is_unknown_before_the_first_comparison():
    """G3: also of an answer that was written by hand."""
    assert change_rate(answer()) is None
    assert change_rate(answer(looks=1)) is None


@pytest.mark.parametrize("waits", [(1.0,), (0.3, 3.0), (0.05, 0.5, 8.0)])
@pytest.mark.parametrize("rate", [0.3, 1.0, 2.0])
def test_the_rate_is_found_from_looks_at_any_waits(rate, waits):
    """G3: also when waits are long for the rate, or uneven; within a third after 60 looks."""
    dice = Random(round(rate * 100) + len(waits))
    rates = []
    for _ in range(40):
        ages = [dice.choice(waits) * DAY for _ in range(MEMORY - 4)]
        looks = [(age, dice.random() < -math.expm1(-rate * age / DAY)) for age in ages]
        rates.append(change_rate(after([(DAY, dice.random() < 0.5), *looks])) * DAY)

    assert sorted(rates)[20] == pytest.approx(rate, rel=0.33)


def test_half_is_forgotten_now_and_then():
    """G3: a page that changes its ways is believed before long."""
    busy = after([(3600.0, number % 2 == 0) for number in range(1000)])
    quiet = after([(DAY, False)] * 10, start=busy)

    assert busy.looks < MEMORY
    assert change_rate(busy) == pytest.approx(0.69 / 3600, rel=0.5)
    assert change_rate(quiet) < change_rate(busy) / 3


def test_forgetting_keeps_apart_who_always_changed_and_who_did_not():
    """G3: one quiet look among many is remembered."""
    always = after([(60.0, True)] * 500)
    once_quiet = after([(60.0, False), *[(60.0, True)] * (MEMORY - 1)])

    assert always.changes == always.looks < MEMORY
    assert once_quiet.changes < once_quiet.looks < MEMORY


@pytest.mark.parametrize("age", [1e-9, 1.0, 1e11])
@pytest.mark.parametrize("changed", [True, False])
def test_what_is_learned_is_always_finite(age, changed):
    """I5: an export refuses numbers that are not, and a rate divides by them."""
    kept = after([(age, changed)] * 200)

    assert 0 < kept.watched <= 1e9
    assert 0 < change_rate(kept) < math.inf


def test_the_first_change_is_expected_between_the_middle_and_the_mean():
    """Of rare changes in the middle of the wait; of frequent ones after 1/rate."""
    assert first_change(10.0, 1e-9) == pytest.approx(5.0)
    assert first_change(10.0, 1e-5) == pytest.approx(5.0, rel=1e-3)
    assert first_change(10.0, 100.0) == pytest.approx(0.01)
    assert first_change(1e9, 1e9) == pytest.approx(1e-9)
