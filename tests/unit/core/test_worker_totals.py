"""Histograms that add up, and totals that only grow (M6, O1)."""

import random

import pytest

from outrider.core.histogram import (
    MAX_BUCKET,
    Histogram,
    Recorder,
    added,
    bucket_of,
    latest,
    upper_bound,
)
from outrider.core.worker_totals import (
    MAX_TOTAL_NAMES,
    OTHER,
    WorkerTotals,
    later_totals,
    sum_of_totals,
)


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(0.0, 0), (0.001, 0), (0.0010001, 1), (0.002, 4), (1.0, 40), (1e300, MAX_BUCKET)],
)
def test_bucket_of_a_duration(seconds, bucket):
    """Four buckets for each doubling from a millisecond on; the last has no end."""
    assert bucket_of(seconds) == bucket


def test_bounds_belong_to_their_buckets():
    """A duration equal to a bound is in the bucket that ends there."""
    for bucket in range(MAX_BUCKET + 1):
        assert bucket_of(upper_bound(bucket)) == bucket


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_off_by_nine_percent_at_most(seed):
    """Whatever the durations are."""
    dice, recorder = random.Random(seed), Recorder()
    values = sorted(10 ** dice.uniform(-3, 4) for _ in range(1000))
    for value in values:
        recorder.record(value)
    found = recorder.histogram()

    assert (found.count, found.max) == (1000, values[-1])
    assert found.mean == pytest.approx(sum(values) / 1000)
    for share in (0.01, 0.5, 0.9, 0.99, 1.0):
        exact = values[max(1, round(share * 1000)) - 1]
        assert found.percentile(share) == pytest.approx(exact, rel=0.0906)


def test_empty_histogram_has_zeros():
    """There is nothing to divide by."""
    empty = Histogram()
    assert (empty.count, empty.mean, empty.percentile(0.5)) == (0, 0.0, 0.0)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_what_is_no_duration_is_left_out(seconds):
    """A clock that was set must not spoil a sum."""
    recorder = Recorder()
    recorder.record(seconds)
    assert recorder.histogram() == Histogram()


def test_two_sources_add_up_to_what_one_had_recorded():
    """Merging loses nothing."""
    one, other, both = Recorder(), Recorder(), Recorder()
    for number in range(100):
        for recorder in ((one, other)[number % 2], both):
            recorder.record(number / 8)

    assert added(one.histogram(), other.histogram()) == both.histogram()
    assert added(Histogram(), one.histogram()) == one.histogram()
    assert added(one.histogram(), Histogram()) == one.histogram()


def test_order_of_heartbeats_does_not_matter():
    """M6: late and repeated ones end at the same totals."""
    first = WorkerTotals({"done": 1}, {"a": 1}, {"fetch": Histogram({3: 1}, 0.5, 0.5)})
    then = WorkerTotals({"done": 4}, {"a": 1}, {"fetch": Histogram({3: 2, 4: 2}, 2.0, 0.5)})

    assert later_totals(first, then) == then
    assert later_totals(then, first) == then
    assert later_totals(then, then) == then
    assert latest(Histogram({1: 5}, 1.0, 1.0), Histogram({2: 1}, 3.0, 0.5)) == Histogram(
        {1: 5, 2: 1}, 3.0, 1.0
    )


def test_rare_names_of_a_sum_are_counted_together():
    """M6: however many workers invent names, and however often sums are summed."""
    workers = [WorkerTotals({f"n{w}-{n}": 1 + (n == 0) for n in range(60)}) for w in range(5)]
    total = sum_of_totals([sum_of_totals(workers[:3]), *workers[3:]]).outcomes

    assert len(total) == MAX_TOTAL_NAMES
    assert sum(total.values()) == 5 * 61
    assert total[OTHER] > 200
    assert all(total[f"n{w}-0"] == 2 for w in range(5))
