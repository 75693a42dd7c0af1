"""Samples of a crawl's progress: slots, gaps, rates and forecasts (O1)."""

from itertools import pairwise

import pytest

from outrider.core.progress import (
    STALE_AFTER,
    TIERS,
    Progress,
    ProgressHistory,
    ProgressSample,
    gap_between,
    rates_between,
    with_now,
)
from outrider.core.states import CrawlStatus

DAY = 86_400


def sample(at, active=None, *, visits=0, left=0, **fields):
    """Return a sample of a crawl that was worked on all the time, unless `active` is given."""
    counts = {"known": visits + left, "pending": left, "visits": visits, "done": visits}
    outcomes = {"done": visits}
    seconds = float(at) if active is None else active
    return ProgressSample(float(at), seconds, **{**counts, "outcomes": outcomes, **fields})


def filled(step, until):
    """Return a history of samples taken at every step."""
    history = ProgressHistory()
    for at in range(0, until, step):
        for slot in history.slots_of(at):
            history.put(slot, sample(at))
    return history


class TestHistory:
    """Slots."""

    def test_history_of_any_length_is_bounded(self):
        """O1: as many samples as there are slots, whatever was written."""
        most = sum(tier.slots for tier in TIERS)

        assert len(filled(3600, 3000 * DAY).samples()) <= most
        assert len(filled(5, 3 * DAY).samples()) <= most

    def test_samples_are_thinned_with_age(self):
        """O1: the last ten minutes at five seconds, then minutes, quarters of an hour, days."""
        end = 90 * DAY
        times = [one.at for one in filled(5, end // 10).samples()]
        last = times[-1]

        recent = [at for at in times if at > last - 590]
        hour = [at for at in times if last - 7000 < at <= last - 700]
        day = [at for at in times if last - 2 * DAY + 900 < at <= last - 3 * 3600]
        week = [at for at in times if at <= last - 3 * DAY]
        for found, step in ((recent, 5), (hour, 60), (day, 900), (week, 21_600)):
            assert {b - a for a, b in pairwise(found)} == {step}

    def test_samples_are_in_order_and_each_once(self):
        """O1: a sample that is in slots of several tiers counts once."""
        times = [one.at for one in filled(5, 5000).samples()]

        assert times == sorted(set(times))

    def test_later_sample_of_an_interval_replaces_the_earlier(self):
        """O1: the last counters of a run are kept."""
        history = ProgressHistory()
        for at in (100.0, 103.0):
            for slot in history.slots_of(at):
                history.put(slot, sample(at))

        assert history.samples()[-1].at == 103.0
        assert len(history.slots_of(104.0)) == 1

    @pytest.mark.parametrize("slot", ["", "5", "5/120", "7/1", "5/-1", "5/x", "5/00000001", "a/b"])
    def test_unknown_slots_are_ignored(self, slot):
        """O1: what others wrote into a store is not trusted."""
        history = ProgressHistory()

        history.put(slot, sample(1))

        assert history.samples() == []

    def test_slot_that_cannot_be_read_is_empty(self):
        """O1: whatever was in it before."""
        history = ProgressHistory()
        history.put("5/1", sample(5))

        history.put("5/1", None)

        assert history.samples() == []

    def test_sample_from_the_future_does_not_end_the_history(self):
        """I5: a crawl may come from a store whose clock is ahead."""
        history = ProgressHistory()
        for slot in history.slots_of(10 * DAY):
            history.put(slot, sample(10 * DAY))

        assert len(history.slots_of(DAY)) == len(TIERS)


class TestRates:
    """Changes per second of activity."""

    def test_rates_are_differences(self):
        """O1: by outcome, too."""
        old = sample(100, visits=10, left=90, bytes=1000)
        new = sample(
            110, visits=30, left=75, bytes=6000, outcomes={"done": 25, "failed": 3, "again": 2}
        )

        rates = rates_between(old, new)

        assert (rates.seconds, rates.visits, rates.bytes) == (10.0, 2.0, 500.0)
        assert rates.outcomes == {"done": 1.5, "failed": 0.3, "again": 0.2}
        assert (rates.done, rates.failed) == (1.5, pytest.approx(0.3))
        assert (rates.known, rates.settled) == (0.5, 1.5)

    def test_gap_is_no_time_of_work(self):
        """O1: a crawl that stood still for an hour was no slower before and after."""
        old, new = sample(100, 100.0, visits=10), sample(3720, 120.0, visits=50)

        assert rates_between(old, new).visits == 2.0
        assert gap_between(old, new) == 3600.0

    def test_gap_is_an_interval_without_rates(self):
        """O1: it is not a time of no visits."""
        progress = Progress((sample(100, 100.0), sample(3720, 120.0, visits=40)))

        found = [(one.begins_at, one.ends_at, one.rates) for one in progress.intervals()]

        assert found[0] == (100.0, 3700.0, None)
        assert (found[1][0], found[1][1], found[1][2].visits) == (3700.0, 3720.0, 2.0)

    @pytest.mark.parametrize(
        "new", [sample(200, 100.0), sample(200, 90.0), sample(200, visits=0)], ids=str
    )
    def test_no_rates_without_activity_or_if_counters_shrank(self, new):
        """O1: another crawl of the same name may have been restored."""
        assert rates_between(sample(100, 100.0, visits=5), new) is None

    def test_rates_are_of_the_last_seconds(self):
        """O1: earlier samples do not count."""
        early = [sample(at, visits=at * 10) for at in range(0, 100, 5)]
        late = [sample(at, visits=1000 + at) for at in range(100, 205, 5)]

        assert Progress((*early, *late)).rates(60).visits == 1.0

    def test_rates_of_rare_samples_reach_further_back(self):
        """O1: two samples are needed, however far apart they are."""
        progress = Progress((sample(0), sample(80, visits=8)))

        assert progress.rates(60).visits == 0.1

    def test_rates_are_none_if_nobody_is_at_work(self):
        """O1: silence is not a rate of 0."""
        samples = [sample(at, visits=at) for at in range(0, 100, 5)]
        late = 95 + STALE_AFTER

        assert with_now(samples, sample(100, visits=100)).rates() is not None
        assert with_now(samples, sample(late, visits=100)).rates() is None
        paused = sample(100, visits=100, status=CrawlStatus.PAUSED)
        assert with_now(samples, paused).rates() is None
        assert Progress((sample(1),)).rates() is None

    def test_pace_is_none_where_nobody_was_at_work(self):
        """O1: a chart shows gaps."""
        progress = Progress((sample(0), sample(10, visits=20), sample(40, 20.0, visits=30)))

        assert progress.pace(4) == [2.0, None, None, 1.0]
        assert Progress((sample(5),)).pace(3) == [None] * 3

    def test_thinned_samples_are_spread_and_keep_long_gaps(self):
        """O1: with the first, the last and both sides of a gap."""
        before = [sample(at) for at in range(0, 1000, 5)]
        after = [sample(at, at - 5000.0) for at in range(6000, 7000, 5)]
        progress = Progress((*before, *after))

        thin = progress.thinned(10)

        times = [one.at for one in thin.samples]
        assert (times[0], times[-1]) == (0.0, 6995.0)
        assert {995.0, 6000.0} <= set(times)
        assert len(times) <= 14
        assert progress.thinned(1000) is progress


class TestTimeLeft:
    """Forecasts."""

    def running(self, *, found=0.0, left=1000, seconds=300):
        """Return the progress of two visits a second, which find so many links."""
        samples = [
            sample(at, visits=2 * at, left=left + int((found - 2) * (at - seconds)))
            for at in range(0, seconds + 1, 5)
        ]
        return Progress(tuple(samples))

    def test_time_left_goes_by_how_fast_tasks_become_fewer(self):
        """O1: links that are found meanwhile are taken into account."""
        assert self.running().time_left() == 500.0
        assert self.running(found=1.0).time_left() == 1000.0

    def test_growing_crawl_has_no_time_left(self):
        """O1: none can be told while links are found as fast as they are visited."""
        assert self.running(found=2.0).time_left() is None
        assert self.running(found=3.0).time_left() is None

    def test_time_left_is_not_told_from_little(self):
        """O1: neither from seconds, nor from a handful of visits."""
        assert self.running(seconds=15).time_left() is None
        slow = Progress(tuple(sample(at, visits=at // 60, left=90 - at // 60) for at in (0, 300)))
        assert slow.time_left() is None

    def test_nothing_is_left_of_a_finished_crawl(self):
        """O1: nor of one whose last task is settled; those in retired queues are not waited for."""
        finished = sample(10, visits=5, status=CrawlStatus.FINISHED)
        assert with_now([], finished).time_left() == 0.0
        assert with_now([], sample(10, visits=5, left=3, held=3)).time_left() == 0.0
        assert with_now([], sample(10)).time_left() is None

    def test_paused_crawl_has_no_time_left(self):
        """O1: nobody knows when it goes on."""
        paused = sample(300, visits=600, left=1000, status=CrawlStatus.PAUSED)
        assert with_now(self.running().samples[:-1], paused).time_left() is None
