"""The order in which links would be visited is that of the claims (C2, C3, C4, E1)."""

from outrider import Frontier, Link
from outrider.simulation.visit_order import visit_order

A = "https://a.example/"
B = "https://b.example/"


async def order(links, **settings):
    """The places of links under these settings, and their scores."""
    async with Frontier.open("memory://", settings=settings) as frontier:
        report = await frontier.score(links)
        return await visit_order(report.answers, frontier.settings)


async def claimed(links, **settings):
    """The URLs in the order in which a frontier that does not wait leases them."""
    async with Frontier.open("memory://", settings=settings) as frontier:
        await frontier.add(links)
        return [lease.url for lease in await frontier.claim(1000)]


async def test_the_order_is_that_of_the_claims():
    """C2, C3, C4: forced first, then cost, then priority; lanes take turns."""
    rules = {"politeness": {"delay": 0.0, "max_in_flight": 1000}, "budget": {"cost": "wag"}}
    links = [
        Link(f"{(A, B)[n % 2]}{n}{'?q' * (n % 3 == 0)}", type=kind, forced=n == 29)
        for n, kind in enumerate(("page", "article", "nav") * 10)
    ]

    places = await order(links, **rules)
    ranked = sorted(range(30), key=lambda n: places[n].place)

    assert [links[n].url for n in ranked] == await claimed(links, **rules)
    assert {one.after for one in places} == {0.0}


async def test_delays_of_queues_and_links_take_time():
    """D1: after a visit the queue waits; a delayed link waits by itself."""
    links = [A, A + "1", B, Link(B + "1", delay=60.0)]

    places = await order(links, politeness={"delay": 5.0})

    assert [(one.place, one.after) for one in places] == [(1, 0.0), (3, 5.0), (2, 0.0), (4, 60.0)]


async def test_links_that_are_never_visited_are_told_why():
    """E1, I4, B3, B4: retired queues, limits, the same URL twice, full queues."""
    links = [A, A + "1", A + "2"]

    assert (await order(links, budget={"total_budget": 2}))[2].reason == "queue retired: budget"
    assert (await order(links, limits={"done": 1}))[2].reason.startswith("crawl paused: ")
    assert (await order([A, A]))[1].reason == "duplicate"
    assert (await order(links, queue={"max_pending": 2}))[2].reason == "queue-full"


async def test_a_crawl_that_never_ends_has_an_order():
    """G3, I2: nothing is visited twice, and staying open keeps nobody waiting."""
    settings = {
        "revisit": {"policy": "fixed"},
        "crawl": {"stay_open": True},
        "queue": {"tie": "shuffle"},
    }
    async with Frontier.open("memory://", settings=settings) as frontier:
        report = await frontier.score([f"{A}{n}" for n in range(20)])
        first = await visit_order(report.answers, frontier.settings)
        again = await visit_order(report.answers, frontier.settings)

    assert sorted(one.place for one in first) == list(range(1, 21))
    assert [one.place for one in first] != list(range(1, 21))
    assert first == again
