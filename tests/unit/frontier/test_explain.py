"""`explain`, complete: every term and where its weight came from, place and time (O4)."""

import pytest

from outrider import Done, Frontier, Link
from outrider.store.memory import MemoryStore

A = "https://a.example/"
B = "https://b.example/"


@pytest.fixture
async def frontier(clock):
    """With a weight of its own."""
    settings = {"politeness": {"delay": 2.0}, "scoring": {"weights": {"nav": 7.0}}}
    async with Frontier.open(MemoryStore(clock), clock=clock, settings=settings) as opened:
        yield opened


async def terms(frontier, url):
    """Name → value, setting, weight, origin."""
    told = await frontier.explain(url)
    assert sum(term.value for term in told.terms) == pytest.approx(told.breakdown.total)
    return {term.name: (term.value, term.setting, term.weight, term.origin) for term in told.terms}


async def test_every_term_has_the_origin_of_its_weight(frontier):
    """O4: default, given, or set at run time; what came with the link has no setting."""
    await frontier.add([Link(A, type="nav", depth=2, bias=0.5, origin="sitemap")])
    await frontier.predict(A, 0.5, 0.0)
    await frontier.configure({"scoring": {"bonuses": {"sitemap": 3.0}}})
    await frontier.rescore()

    told = await terms(frontier, A)
    assert told["type"] == (7.0, "scoring.weights.nav", 7.0, "given")
    assert told["depth"] == (2.0, None, None, None)
    assert told["bias"] == (0.5, None, None, None)
    assert told["gap"] == (-5.0, "scoring.gap_weight", 1.0, "default")
    value, setting, weight, origin = told["discovery"]
    assert (value, setting, weight) == (-3.0, "scoring.bonuses.sitemap", 3.0)
    assert origin.startswith("runtime")


async def test_custom_type_has_its_own_weight(frontier):
    """O4: and one without has the default's."""
    await frontier.configure({"scoring": {"weights": {"product": 2.0}}})
    await frontier.add([Link(A, type="product"), Link(B, type="unheard of")])

    assert (await terms(frontier, A))["type"][1:3] == ("scoring.weights.product", 2.0)
    assert (await terms(frontier, B))["type"][1:] == ("scoring.weights.default", 12.0, "default")


async def test_an_unknown_url_is_explained_as_if_it_came_now(frontier):
    """O4: with what the link would bring, and nothing is changed by asking."""
    told = await frontier.explain(Link(A, type="article", depth=3, origin="hub-seed"))

    assert (told.admission, told.breakdown.total) == ("admissible", -17.0)
    assert [term.name for term in told.terms] == ["type", "depth", "discovery"]
    assert (await frontier.explain(Link(A, depth=11))).admission == "max-depth"
    assert (await frontier.stats()).known == 0


async def test_the_place_is_exact_within_the_queue_and_estimated_across(frontier):
    """O4."""
    await frontier.add([Link(f"https://h{n}.example/", priority=float(n)) for n in range(50)])
    await frontier.add([Link(f"{A}{n}", priority=10.5) for n in range(5)])

    told = await frontier.explain(A + "4")
    assert told.place == 4
    assert told.across == 11 + 4
    assert told.expected_in == 4 * 2.0


async def test_the_place_across_a_large_crawl_is_about_right(frontier):
    """O4: from a sample, whatever the crawl's size."""
    links = [
        Link(f"https://h{n % 500}.example/{n}", priority=float(n * 7919 % 5000))
        for n in range(5000)
    ]
    await frontier.add(links)

    for link in links[::1000]:
        told = await frontier.explain(link.url)
        assert told.across == pytest.approx(link.priority, abs=250)


async def test_the_crawls_pace_counts_if_it_is_slower(frontier, clock):
    """O4: 20 visits in 200 s, and 30 before it."""
    await frontier.add([Link(f"https://h{n}.example/", priority=float(n)) for n in range(51)])
    for lease in await frontier.claim(20):
        await frontier.finish(lease, Done(status=200))
    clock.advance(200)

    told = await frontier.explain("https://h50.example/")
    assert told.across == 30
    assert told.expected_in == pytest.approx(30 * 10.0)


@pytest.mark.parametrize(
    ("politeness", "gap"),
    [
        ({"delay": 5.0, "delay_to": 15.0, "count_from": "start", "max_in_flight": 360}, 5.0),
        ({"delay": 2.0, "max_in_flight": 4}, 2.0),
        ({"delay": 0.0, "max_in_flight": 4, "visits_per_second": 0.5}, 2.0),
        ({"delay": 0.0, "max_in_flight": 4}, 0.0),
    ],
)
async def test_overlapping_visits_of_a_queue_are_expected_one_delay_apart(clock, politeness, gap):
    """O4, D1: many visits at a time begin no sooner than the rules allow, and so it is shown."""
    settings = {"politeness": politeness}
    async with Frontier.open(MemoryStore(clock), clock=clock, settings=settings) as frontier:
        await frontier.add([Link(f"{A}{n}", priority=float(n)) for n in range(4)])

        told = await frontier.explain(A + "3")
        assert (told.place, told.expected_in) == (3, 3 * gap)
