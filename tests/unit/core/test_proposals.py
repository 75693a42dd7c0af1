import pytest

from outrider.core.proposals import propose
from outrider.core.signals import Cluster


def urls(kind, scope, target, count=5):
    """What is proposed, with its lift."""
    found = propose(Cluster(kind, scope, target, ((1, count),)), 5)
    return {one.url: one.lift for one in found}


def test_missing_hubs_are_looked_for_by_segment():
    """F5: host × target path segments."""
    expected = {"https://a.example/world/": 0.10, "https://a.example/europe/": 0.10}

    assert urls("missing-hub", "a.example", "/world/europe") == expected
    assert urls("missing-hub", "", "https://a.example/world/europe?x=1") == expected


def test_unknown_patterns_are_looked_for_nearby():
    """F5: without the query, the folder above, its index."""
    assert urls("unknown-pattern", "", "http://a.example/x/y?q=1") == {
        "http://a.example/x/y": 0.05,
        "http://a.example/x/": 0.05,
        "http://a.example/x/index.html": 0.05,
        "http://a.example/x/index": 0.05,
    }


def test_coverage_gaps_are_areas():
    """F5: the area's page, and its latest."""
    assert urls("coverage-gap", "a.example", "/sport/golf/") == {
        "https://a.example/sport/golf": 0.08,
        "https://a.example/sport/golf/latest": 0.06,
    }


@pytest.mark.parametrize(
    ("kind", "count", "confidence"),
    [
        ("missing-hub", 5, (0.5 + 0.15) * 0.8),
        ("missing-hub", 10, 0.64),
        ("missing-hub", 1000, 0.64),
        ("unknown-pattern", 10, 0.48),
        ("coverage-gap", 10, 0.56),
    ],
)
def test_confidence_grows_with_the_first_ten(kind, count, confidence):
    """F5: times the factor of the kind."""
    cluster = Cluster(kind, "a.example", "/x", ((1, count),))

    found = [one.confidence for one in propose(cluster, 5)]

    assert found
    assert found == pytest.approx([confidence] * len(found))


def test_nothing_is_proposed_before_the_threshold():
    """F5: from the 5th problem on; nor for kinds that say nothing of URLs."""
    assert urls("missing-hub", "a.example", "/x", count=4) == {}
    assert urls("slow", "a.example", "/x", count=50) == {}


@pytest.mark.parametrize("target", ["", "politics", "http://[", "/", "a b"])
def test_what_names_no_host_proposes_nothing(target):
    """Untrusted: whatever it is, it is no URL."""
    for kind in ("missing-hub", "unknown-pattern", "coverage-gap"):
        assert urls(kind, "", target or "x", count=9) == {}
