"""Histograms that add up, and totals that only grow (M6, O1)."""

import random

import pytest

from outrider.core.histogram import (
    MAX_BUCKET,
    MAX_SAMPLES,
    Histogram,
    Pool,
    Recorder,
    Window,
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
        recorder.record(value, 0.0)
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
    recorder.record(seconds, 0.0)
    assert recorder.histogram() == Histogram()


def test_two_sources_add_up_to_what_one_had_recorded():
    """Merging loses nothing."""
    one, other, both = Recorder(), Recorder(), Recorder()
    for number in range(100):
        for recorder in ((one, other)[number % 2], both):
            recorder.record(number / 8, 0.0)

    assert added(one.histogram(), other.histogram()) == both.histogram()
    assert added(Histogram(), one.histogram()) == one.histogram()
    assert added(one.histogram(), Histogram()) == one.histogram()


def test_window_has_the_last_thousand_and_the_time_they_took():
    """O1: from the sample before the first of them, so that the rate is neither high nor low."""
    recorder = Recorder()
    recorder.start(0.0)
    for number in range(1, 2501):
        recorder.record(1.0 if number <= 1500 else 3.0, number / 4)
    window = recorder.window(625.0)

    assert (window.count, window.max) == (MAX_SAMPLES, 3.0)
    assert window.buckets == {bucket_of(3.0): MAX_SAMPLES}
    assert (window.seconds, window.per_second) == (250.0, 4.0)
    assert recorder.window(1125.0).per_second == pytest.approx(1000 / 750)  # idle since
    assert recorder.histogram().count == 2500


def test_window_without_samples_is_empty():
    """There is nothing to divide by."""
    assert Recorder().window(5.0) == Window()
    assert (Window().per_second, Pool([Window()]).percentile(0.5), Pool([]).count) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(3))
def test_pooled_windows_are_unbiased(seed):
    """O1: of workers of different speeds, percentiles are those of the pooled stream.

    Both have a thousand samples: those of the quick worker are of ten seconds, those of the slow
    one of more than an hour. To count them alike would be off by far more than a bucket.
    """
    dice = random.Random(seed)
    quick, slow, stream = Recorder(), Recorder(), []
    for recorder, rate, typical in ((quick, 100.0, 0.02), (slow, 0.25, 6.0)):
        recorder.start(0.0)
        now = 0.0
        while (now := now + dice.expovariate(rate)) < 5000.0:
            seconds = typical * dice.lognormvariate(0.0, 0.7)
            recorder.record(seconds, now)
            stream.append(seconds)
    stream.sort()
    windows = [quick.window(5000.0), slow.window(5000.0)]
    pool = Pool(windows)

    assert [window.count for window in windows] == [MAX_SAMPLES] * 2
    assert windows[0].seconds < 13
    assert windows[1].seconds > 3500
    assert pool.per_second == pytest.approx(100.25, rel=0.1)
    for share, sampling in ((0.5, 0.06), (0.95, 0.12), (0.99, 0.2)):
        exact = stream[round(share * len(stream)) - 1]
        assert pool.percentile(share) == pytest.approx(exact, rel=0.0906 + sampling)
    alike = Pool([Window(one.buckets, one.max, 1.0) for one in windows])
    assert alike.percentile(0.95) > 100 * stream[round(0.95 * len(stream))]


def test_equal_workers_pool_exactly():
    """O1: with equal rates, a pool is the histogram of both."""
    dice, recorders, every = random.Random(7), [Recorder(), Recorder()], Recorder()
    for number in range(1000):
        seconds = dice.lognormvariate(0.0, 1.0)
        for recorder in (recorders[number % 2], every):
            recorder.start(0.0)
            recorder.record(seconds, 1.0)
    pool = Pool(recorder.window(50.0) for recorder in recorders)

    for share in (0.001, 0.5, 0.95, 0.99, 1.0):
        assert pool.percentile(share) == every.histogram().percentile(share)


def test_windows_and_slots_are_those_of_the_last_heartbeat():
    """O1: they are replaced and not added up; one that comes late replaces nothing."""

    def reading(count, seconds):
        return WorkerTotals(
            latency={"fetch": Histogram({3: count}, 1.0, 1.0)},
            windows={"fetch": Window({3: min(count, 1000)}, 1.0, seconds)},
            slots={"busy": count},
            retried=count,
        )

    old, new = reading(5, 9.0), reading(7, 4.0)

    assert later_totals(old, new) == new == later_totals(new, old)
    assert later_totals(new, reading(7, 5.0)).windows["fetch"].seconds == 5.0  # idle since
    both = sum_of_totals([old, new])
    assert (both.windows, both.slots, both.retried) == ({}, {}, 12)


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
