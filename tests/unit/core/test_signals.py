import re
from math import log2

from hypothesis import given
from hypothesis import strategies as st

from outrider.core.signals import (
    Cluster,
    Clustering,
    Prediction,
    Signals,
    finder,
    host_of,
    pattern_of,
)

NOW = 1_000_000_000
MINUTE = 60_000


def cluster(target, count=4, at=NOW, scope=""):
    """A cluster that is so large."""
    return Cluster("missing-hub", scope, target, ((at, count),))


def heard(*clusters, how=None):
    """Signals that heard of them."""
    signals = Signals(how)
    for number, one in enumerate(clusters):
        signals.set_cluster(str(number), one, NOW)
    return signals


def boost(signals, text, key="other"):
    """What a URL is boosted by."""
    host = text.partition("://")[2].partition("/")[0]
    found = signals.find is not None and signals.find(text) is not None
    looked_up = signals.boost_of(key, host, text)
    assert not looked_up or found or key in signals.hosts or host in signals.hosts
    return looked_up


class TestClusters:
    """Problems add up, and are forgotten."""

    def test_a_problem_counts_within_its_window(self):
        """F5: thirty minutes, sliding."""
        one = Cluster("k", "s", "t")
        for minute in (0, 10, 20):
            one = one.with_one(NOW + minute * MINUTE, 100)

        assert one.count == 3
        assert one.since(NOW + 5 * MINUTE).count == 2
        assert one.since(NOW + 21 * MINUTE).count == 0

    @given(st.lists(st.integers(0, 10**6), min_size=1, max_size=300).map(sorted))
    def test_few_samples_are_kept_and_all_are_counted(self, instants):
        """F5: at most 100; the oldest are put together."""
        one = Cluster("k", "s", "t")
        for at in instants:
            one = one.with_one(at, 100)

        assert one.count == len(instants)
        assert len(one.samples) <= 100
        assert [at for at, _ in one.samples] == sorted(at for at, _ in one.samples)

    def test_the_boost_slides_with_the_window(self):
        """F5: whoever holds the signals says what time it is."""
        signals = heard(Cluster("k", "", "a.example", ((NOW, 1), (NOW + 10 * MINUTE, 3))))

        assert boost(signals, "https://a.example/") == 5.0
        assert signals.expire(NOW + 29 * MINUTE) == []
        (changed,) = signals.expire(NOW + 31 * MINUTE)
        assert (changed.target, changed.count) == ("a.example", 3)
        assert boost(signals, "https://a.example/") == log2(3) * 2.5
        assert signals.expire(NOW + 41 * MINUTE)
        assert boost(signals, "https://a.example/") == 0.0
        assert signals.expire(NOW + 99 * MINUTE) == []

    def test_other_settings_weigh_the_same_problems(self):
        """N1: live."""
        signals = heard(cluster("a.example"))
        signals.use(Clustering(factor=1.0, most=1.5), NOW)

        assert boost(signals, "https://a.example/") == 1.5


class TestMatching:
    """Whose boost a task gets."""

    def test_a_host_matches_its_key_and_its_pages(self):
        """F5: whether hosts are the keys or not."""
        signals = heard(cluster("a.example"))

        assert boost(signals, "https://a.example/x") == 5.0
        assert boost(signals, "https://b.example/x", key="a.example") == 5.0
        assert boost(signals, "https://b.example/x") == 0.0

    def test_a_url_matches_all_of_its_host(self):
        """F5: a task whose key equals the target's host."""
        signals = heard(cluster("https://a.example/news/"))

        assert boost(signals, "https://a.example/news/1") == 5.0
        assert boost(signals, "https://a.example/sport") == 5.0

    def test_a_path_matches_wherever_it_is(self):
        """F5: a URL that contains it."""
        signals = heard(cluster("/news/politics"))

        assert boost(signals, "https://any.example/en/news/politics/1") == 5.0
        assert boost(signals, "https://any.example/news/sport") == 0.0

    def test_a_word_matches_where_a_word_begins(self):
        """F5: and nowhere within one."""
        signals = heard(cluster("port"))

        assert boost(signals, "https://x.example/air-port") == 5.0
        assert boost(signals, "https://x.example/ports") == 5.0
        assert boost(signals, "https://x.example/airport") == 0.0

    def test_the_highest_cluster_wins(self):
        """F5: they do not add up."""
        signals = heard(cluster("a.example", 2), cluster("/news", 8), cluster("/news/a", 4))

        assert boost(signals, "https://a.example/news/a") == 7.5
        assert boost(signals, "https://a.example/") == 2.5

    def test_scope_that_is_a_host_limits_the_boost_to_that_host(self):
        """F5: whether the target is a path, a word or a host."""
        for target in ("/news", "news"):
            signals = heard(cluster(target, scope="a.example"))

            assert boost(signals, "https://a.example/news") == 5.0
            assert boost(signals, "https://b.example/news") == 0.0
            assert boost(signals, "https://www.a.example/news", key="a.example") == 5.0

    def test_scope_may_be_written_as_a_url_or_in_capitals(self):
        """F5: a host is one however it is written."""
        for scope in ("https://a.example/x", "A.Example", "a.example:8080"):
            signals = heard(cluster("/news", scope=scope))

            assert boost(signals, "https://a.example/news") == 5.0
            assert boost(signals, "https://b.example/news") == 0.0

    def test_scope_of_another_host_than_the_target_matches_where_both_do(self):
        """F5: with queues by domain, a page's key and its host may be one each."""
        signals = heard(cluster("www.a.example", scope="a.example"), cluster("b.example", count=8))

        assert boost(signals, "https://www.a.example/", key="a.example") == 5.0
        assert boost(signals, "https://www.a.example/", key="www.a.example") == 0.0
        assert boost(signals, "https://a.example/", key="a.example") == 0.0
        assert boost(signals, "https://b.example/") == 7.5

    def test_scope_that_is_no_host_limits_nothing(self):
        """F5: it only tells clusters apart."""
        signals = heard(cluster("/news", scope="politics"))

        assert boost(signals, "https://b.example/news") == 5.0

    def test_wider_cluster_counts_beside_a_limited_one(self):
        """F5: the highest that matches, not the highest of all."""
        signals = heard(cluster("/news", count=16, scope="a.example"), cluster("/news"))

        assert boost(signals, "https://a.example/news") == 10.0
        assert boost(signals, "https://b.example/news") == 5.0

    def test_single_problem_boosts_nothing(self):
        """F5: log2(1) is 0."""
        assert boost(heard(cluster("a.example", 1)), "https://a.example/") == 0.0

    @given(
        st.lists(st.text("ab/-.", min_size=1, max_size=4), min_size=1, max_size=8),
        st.text("ab/-.", max_size=30),
    )
    def test_a_finder_misses_nothing_that_a_target_alone_would_find(self, targets, text):
        """However their beginnings are shared; it may find more."""
        alone = any(re.search(pattern_of(one), "/" + text) for one in targets)

        assert finder(targets)("/" + text) is not None or not alone


class TestPredictions:
    """By fingerprint."""

    def test_only_open_predictions_count(self):
        """F4: what was validated or failed is over."""
        signals = Signals()
        signals.set_prediction(b"a", Prediction("https://a.example/", 0.5, 0.5))
        assert signals.gaps[b"a"].score == 7.5

        signals.set_prediction(b"a", Prediction("https://a.example/", 0.5, 0.5, "failed"))
        assert not signals.gaps


def test_a_target_may_name_a_host():
    """A URL's, or a name with a dot and no path."""
    assert host_of("https://A.example:8080/x") == "a.example"
    assert host_of("a.example") == "a.example"
    assert host_of("/news/a.html") is None
    assert host_of("politics") is None
    assert host_of("http://[broken") is None
