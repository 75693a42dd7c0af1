"""`Frontier.attach`: a crawl keeps its rules while others read, steer or add."""

import pytest

from outrider import Done, Frontier, InvalidInput, Link, SettingsError
from outrider.core.policy.rules import CrawlRules
from outrider.store.protocol import Heartbeat

A = "https://a.example/"
B = "https://b.example/"
SETTINGS = {"budget": {"balance": 7}, "politeness": {"delay": 9.0}}


@pytest.fixture
async def attached(store, clock):
    """A frontier attached to the store that `opened` frontiers may share."""
    async with Frontier.attach(store, clock=clock) as frontier:
        yield frontier


async def test_the_rules_of_the_crawl_stay(opened, store, clock):
    """Attaching writes nothing to the store."""
    owner = await opened(SETTINGS, store)
    await owner.add([A])
    async with Frontier.attach(store, clock=clock) as other:
        view = await other.queue("b.example").view()

    assert (view.grant, view.delay) == (7, 9.0)
    assert (await owner.queue("a.example").view()).grant == 7


async def test_attaching_makes_no_crawl(attached, store):
    """I1: a crawl that does not exist is shown as cancelled; who only looks leaves nothing."""
    stats = await attached.stats()

    assert (stats.known, stats.status, stats.reason) == (0, "cancelled", "unknown")
    assert await store.crawls() == []


async def test_attached_frontier_makes_no_crawl_by_what_it_does(attached, store):
    """I1: links are refused; acts, signals and settings change nothing of a crawl that is none."""
    report = await attached.add([A, B])
    assert report.refused == {"cancelled": 2}
    await attached.queue("a.example").set(delay=60.0)
    assert await attached.pause() == "cancelled"
    assert await attached.drop(pattern="") == 0
    assert not await attached.predict(A, 0.9, 0.5)
    with pytest.raises(InvalidInput, match="does not exist"):
        await attached.report_problem("missing", "a.example", A)
    with pytest.raises(SettingsError, match="does not exist"):
        await attached.configure({"politeness": {"delay": 5.0}})
    assert await attached.rescore() == 0
    await attached.keep()

    assert await store.crawls() == []
    assert attached.settings.politeness.delay != 5.0


async def test_owner_of_a_removed_crawl_begins_no_new_one(opened, attached, store):
    """I1: nothing of it acts under other rules than its own; opening it again begins a new one."""
    owner = await opened(SETTINGS, store)
    await owner.add([A])
    (lease,) = await owner.claim()
    await attached.delete_crawl()

    assert (await owner.add([A, B])).refused == {"cancelled": 2}
    assert not await owner.finish(lease, Done(200), [A + "1"])
    with pytest.raises(SettingsError, match="does not exist"):
        await owner.configure({"politeness": {"delay": 5.0}})
    await owner.close()
    assert await store.crawls() == []

    again = await opened(SETTINGS, store)
    assert (await again.add([A])).added == 1
    assert (await again.queue("a.example").view()).delay == 9.0


async def test_attached_frontier_adds_by_the_rules_of_the_crawl(opened, attached, store, clock):
    """Budgets and delays belong to the queue, whichever frontier added the task."""
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


async def test_attached_frontier_configures_the_crawl(opened, attached, store):
    """N1: a change by any worker is the crawl's; all else stays as its owner set it."""
    owner = await opened(SETTINGS, store)
    await owner.add([A])
    settings = await attached.configure({"budget": {"balance": 3}})
    view = await owner.queue("a.example").view()
    await owner.learn()

    assert (settings.budget.balance, settings.politeness.delay) == (3, 9.0)
    assert (view.grant, view.delay) == (3, 9.0)
    assert owner.settings == settings


async def test_names_are_checked(clock):
    """As `open` does."""
    with pytest.raises(InvalidInput, match="crawl"):
        Frontier.attach("memory://", crawl="")


async def test_tasks_are_found_by_reason_and_age(attached, store, clock):
    """What `drop` and `dead` can say, a list can."""
    await store.configure("default", CrawlRules())
    await attached.add([A])
    clock.advance(60)
    await attached.add([B])
    await attached.drop(key="b.example")

    assert [task.url async for task in attached.tasks(older_than=50)] == [A]
    assert [task.url async for task in attached.tasks(reason="operator")] == [B]
    with pytest.raises(InvalidInput, match="older_than"):
        [task async for task in attached.tasks(older_than="x")]


async def test_attached_frontier_admits_by_the_crawls_settings(opened, store, clock):
    """N1: depth, scope and keying are the crawl's, kept with it; another's seeds are known."""
    settings = {"queue": {"key": "domain", "max_depth": 1}, "scope": {"mode": "domain"}}
    owner = await opened(settings, store)
    await owner.add(["https://www.a.example/"])
    async with Frontier.attach(store, clock=clock) as other:
        (lease,) = await other.claim()
        links = [Link("https://news.a.example/", depth=1), Link(B, depth=1), Link(A, depth=2)]
        assert await other.finish(lease, Done(200), links)
        report = await other.stats()

    assert [task.key async for task in owner.tasks()] == ["a.example", "a.example"]
    assert report.refused == {"off-scope": 1, "max-depth": 1}


async def test_attached_frontier_learns_of_changes(opened, store, clock):
    """N1: what was configured meanwhile holds for it too, once it asked."""
    owner = await opened({}, store)
    async with Frontier.attach(store, clock=clock) as other:
        await owner.configure({"queue": {"max_depth": 0}})
        before = await other.add([Link(A, depth=1)])
        await other.learn()
        after = await other.add([Link(B, depth=1)])

    assert (before.added, after.refused) == (1, {"max-depth": 1})


async def test_frontier_that_opened_the_crawl_ignores_stored_settings(opened, store):
    """Its settings are those it was opened with."""
    owner = await opened({"queue": {"max_depth": 5}}, store)
    other = await opened({"queue": {"max_depth": 0}}, store)
    await owner.learn()

    assert (owner.settings.queue.max_depth, other.settings.queue.max_depth) == (5, 0)
    assert (owner.is_attached, owner.lacks) == (False, "")


async def test_attached_frontier_without_functions_reads_and_steers(opened, store, clock):
    """Adding by another keying would put one URL in two queues."""
    owner = await opened({"queue": {"key": lambda url: url.host[0]}}, store)
    await owner.add([A])
    async with Frontier.attach(store, clock=clock) as other:
        assert (await other.stats()).known == 1
        await other.queue("a").pause()
        with pytest.raises(SettingsError, match=r"queue\.key was .*lambda.*pass it"):
            await other.add([B])
        assert other.is_attached

    assert [view.state async for view in owner.queues()] == ["paused"]


async def test_given_functions_complete_an_attached_frontier(opened, store, clock):
    """The same function, and all is as with the owner."""

    def first(url):
        return url.host[0]

    owner = await opened({"queue": {"key": first}}, store)
    by_hand = {"queue": {"key": first}}
    async with Frontier.attach(store, settings=by_hand, clock=clock) as other:
        await other.add([B])
        assert other.lacks == ""

    assert [view.key async for view in owner.queues()] == ["b"]


async def test_workers_are_listed(attached, store):
    """M6: a worker with heartbeats is listed by every frontier."""
    await store.configure("default", CrawlRules())
    await store.heartbeat("default", Heartbeat("one", "busy", "north", 1, 4, 2, 9))

    assert [(one.worker, one.state) for one in await attached.workers()] == [("one", "busy")]


async def test_batch_reads_the_seeds_of_other_workers_once(opened, store, clock):
    """A5: a store may be far away; what another worker added meanwhile is known all the same."""
    asked, roots = [], store.roots
    manners = {"delay": 0.0, "max_in_flight": 9}
    owner = await opened({"scope": {"mode": "host"}, "politeness": manners}, store)
    await owner.add([A, A + "1", A + "2"])
    leases = await owner.claim(3)
    async with Frontier.attach(store, clock=clock) as other:
        await other.add([B])

    async def told(*args, **kwargs):
        asked.append(args)
        return await roots(*args, **kwargs)

    store.roots = told
    await owner.finish_many([(lease, Done(200), [f"{B}{n}"]) for n, lease in enumerate(leases)])

    assert len(asked) == 1
    found = [task.url async for task in owner.tasks(key="b.example")]
    assert found == [B, B + "0", B + "1", B + "2"]
