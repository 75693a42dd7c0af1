"""The queue report on every store: what queues spent and on what, filtered (E8)."""

import pytest

from outrider import Done, Failed, Frontier, Link

SETTINGS = {
    "budget": {"cost": "wag", "balance": 50, "total_budget": 5},
    "politeness": {"delay": 0.0, "max_in_flight": 10},
}
PLAIN, DEAR, OTHER = "https://plain.example/", "https://dear.example/", "https://other.net/"


@pytest.fixture(params=["memory", "file", "postgres", "redis", "cluster"])
def place(request, places, tmp_path):
    """An empty store of each kind."""
    local = {"memory": "memory://", "file": str(tmp_path / "x.outrider")}
    return local.get(request.param) or places.take(request.param)


async def test_costs_and_filters_are_the_same_on_every_store(place):
    """E3, E8: total, spent, balance, latest and average cost; every filter."""
    async with Frontier.open(place, settings=SETTINGS) as frontier:
        await frontier.add([f"{PLAIN}{n}" for n in range(3)])
        await frontier.add([DEAR, *[Link(f"{DEAR}?{n}", via=DEAR) for n in range(3)]])
        await frontier.add([OTHER])
        while leases := await frontier.claim(10):
            for lease in leases:
                failed = lease.url == OTHER
                await frontier.finish(lease, Failed("x", retry_in=9) if failed else Done(200))

        async def keys(**filters):
            return {view.key async for view in frontier.queues(**filters)}

        dear = await frontier.queue("dear.example").view()
        plain = await frontier.queue("plain.example").view()
        assert (dear.total_budget, dear.spent, dear.last_cost, dear.pending) == (5, 7, 3, 1)
        assert (dear.average_cost, dear.state, dear.reason) == (7 / 3, "retired", "budget")
        assert (plain.spent, plain.last_cost, plain.average_cost, plain.done) == (3, 1, 1.0, 3)
        assert await keys(reason="budget") == await keys(state="retired") == {"dear.example"}
        assert await keys(min_spent=3) == {"plain.example", "dear.example"}
        assert await keys(min_errors=1) == await keys(key=".net") == {"other.net"}
        assert await keys(key=".example", pattern="^pl") == {"plain.example"}
        ranked = [view.key async for view in frontier.queues(sort="spent", reverse=True)]
        assert ranked[0] == "dear.example"
