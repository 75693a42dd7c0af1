"""`predict`, `problem`, `signals`, `rescore`: what a crawl is told, from the command line."""

import pytest

from outrider import Link

A = "https://a.example/"
B = "https://b.example/"


@pytest.fixture(autouse=True)
def _filled(crawling):
    async def fill(frontier):
        await frontier.add([Link(A, type="nav"), B, B + "news/1"])

    crawling(fill)


def priority(outrider, url):
    """As `explain` tells it."""
    return outrider("explain", "x", url, "--json").json["task"]["priority"]


def test_a_prediction_moves_what_waits(outrider):
    """F4: and is listed with its state."""
    told = outrider("predict", "x", B, "--confidence", "0.9", "--lift", "0.2")

    assert (told.code, "moved forward" in told.out) == (0, True)
    assert priority(outrider, B) == 12 - 10
    (listed,) = outrider("signals", "x", "--json").json["predictions"]
    assert (listed["url"], listed["confidence"]) == (B, 0.9)
    assert "open" in outrider("signals", "x").out


def test_a_prediction_of_what_is_not_known_is_kept(outrider):
    """F4: for when it comes."""
    assert "stored" in outrider("predict", "x", B + "later").out
    outrider("add", "x", B + "later")

    assert priority(outrider, B + "later") == 12 - 10.5


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["predict", "x", "nonsense"], "nonsense"),
        (["predict", "x", B, "--lift", "7"], "lift=7.0"),
        (["problem", "x", "", "b.example"], "kind=''"),
    ],
)
def test_what_makes_no_sense_is_refused(outrider, words, fault):
    """With the thing and the fix, and code 2."""
    told = outrider(*words)

    assert (told.code, fault in told.err) == (2, True)
    assert outrider("signals", "x", "--json").json == {"predictions": [], "problems": []}


def test_problems_are_counted_and_boost(outrider):
    """F5."""
    outrider("problem", "x", "missing-hub", "b.example")
    told = outrider("problem", "x", "missing-hub", "b.example")

    assert told.out.startswith("2 of this kind")
    assert priority(outrider, B) == 9.5
    (listed,) = outrider("signals", "x", "--json").json["problems"]
    assert listed == {"kind": "missing-hub", "scope": "", "target": "b.example", "count": 2}


def test_rescore_applies_new_weights_without_a_worker(outrider):
    """C8: a worker would do it by itself."""
    outrider("config", "set", "x", "scoring.weights.nav=1")
    assert outrider("stats", "x", "--json").json["rescoring"]["state"] == "wanted"
    assert "rescoring" in outrider("stats", "x").out

    assert outrider("rescore", "x", "--key", "b.example", "--json").json == {"changed": 0}
    assert outrider("rescore", "x", "--json").json == {"changed": 1}
    assert priority(outrider, A) == 1.0
    assert outrider("stats", "x", "--json").json["rescoring"] == {"state": "done", "progress": 1.0}


def test_explain_shows_the_origin_of_each_weight(outrider):
    """O4: on a line of its own."""
    outrider("config", "set", "x", "scoring.weights.nav=1")
    outrider("rescore", "x")
    told = outrider("explain", "x", A).out

    assert "scoring.weights.nav = 1.0 (runtime" in told
    assert "before it in the whole crawl" in told
