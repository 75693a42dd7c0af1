"""`Frontier.attach`: a crawl keeps the rules it has, whoever looks, steers or adds."""

import pytest

from outrider import Done, Frontier, InvalidInput

A = "https://a.example/"
B = "https://b.example/"
SETTINGS = {"budget": {"balance": 7}, "politeness": {"delay": 9.0}}


@pytest.fixture
async def attached(store, clock):
    """A frontier attached to the store that `opened` frontiers may share."""
    async with Frontier.attach(store, clock=clock) as frontier:
        yield frontier


async def test_the_rules_of_the_crawl_stay(opened, store, clock):
    """Attaching tells the store nothing."""
    owner = await opened(SETTINGS, store)
    await owner.add([A])
    async with Frontier.attach(store, clock=clock) as other:
        view = await other.queue("b.example").view()

    assert (view.grant, view.delay) == (7, 9.0)
    assert (await owner.queue("a.example").view()).grant == 7


async def test_attaching_makes_no_crawl(attached, store):
    """Who only looks leaves nothing behind."""
    assert (await attached.stats()).known == 0
    assert await store.crawls() == []


async def test_the_first_add_makes_the_crawl(attached, store):
    """I1: under the default rules."""
    await attached.add([A])

    assert await store.crawls() == ["default"]
    assert (await attached.queue("a.example").view()).grant == 3000


async def test_what_is_added_goes_by_the_rules_of_the_crawl(opened, attached, store, clock):
    """Budgets and delays belong to the queue, whoever added the task."""
    owner = await opened(SETTINGS, store)
    await attached.add([A, A + "1"])
    (lease,) = await owner.claim(2)
    await owner.finish(lease, Done(200))

    assert (await owner.claim(2)).wake_in == 9.0


async def test_an_attached_frontier_steers(opened, attached, store):
    """E7: acts belong to the crawl."""
    owner = await opened(SETTINGS, store)
    await owner.add([A])
    await attached.queue("a.example").set(balance=5)
    await attached.pause()

    assert (await owner.queue("a.example").view()).grant == 5
    assert (await owner.stats()).status == "paused"


async def test_it_cannot_configure_what_it_does_not_know(opened, attached, store):
    """A change is laid over the settings, and it has none of the crawl's."""
    owner = await opened(SETTINGS, store)
    with pytest.raises(InvalidInput, match="attached"):
        await attached.configure({"lanes": {"burst": 3}})

    assert (await owner.queue("a.example").view()).grant == 7


async def test_names_are_checked(clock):
    """As `open` does."""
    with pytest.raises(InvalidInput, match="crawl"):
        Frontier.attach("memory://", crawl="")


async def test_tasks_are_found_by_reason_and_age(attached, clock):
    """What `drop` and `dead` can say, a list can."""
    await attached.add([A])
    clock.advance(60)
    await attached.add([B])
    await attached.drop(key="b.example")

    assert [task.url async for task in attached.tasks(older_than=50)] == [A]
    assert [task.url async for task in attached.tasks(reason="operator")] == [B]
    with pytest.raises(InvalidInput, match="older_than"):
        [task async for task in attached.tasks(older_than="x")]
