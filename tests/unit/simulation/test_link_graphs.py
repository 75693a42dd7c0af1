"""Webs of links and their PageRank."""

import pytest

from outrider.simulation.link_graphs import Web, page_rank, planted, power_law, tagged


@pytest.mark.parametrize("make", [planted, power_law, tagged], ids=lambda make: make.__name__)
def test_a_web_is_its_seeds_and_hangs_together(make):
    """The same seed, the same web; every page can be come to and leads to pages."""
    web = make(3)
    assert web == make(3)
    assert web != make(4)
    assert web.reachable() == set(web.links)


def test_page_rank_is_the_surfers_time():
    """Worked by hand: two pages that link to each other, one that links to the first."""
    ranks = page_rank({"a": ["b"], "b": ["a"], "c": ["a", "c"]})
    assert sum(ranks.values()) == pytest.approx(1.0)
    assert ranks["c"] == pytest.approx(0.05)
    assert ranks["a"] == pytest.approx(0.05 + 0.85 * (ranks["b"] + ranks["c"]), abs=1e-6)


def test_from_a_dead_end_a_surfer_goes_anywhere():
    """No time is lost."""
    ranks = page_rank({"a": ["b"], "b": []})
    assert sum(ranks.values()) == pytest.approx(1.0)
    assert ranks["b"] > ranks["a"]


def test_what_no_link_leads_to_is_not_reachable():
    """A crawl never sees it."""
    assert Web(("a",), {"a": ("b",), "b": (), "c": ("a",)}).reachable() == {"a", "b"}
