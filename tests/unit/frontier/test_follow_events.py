import asyncio

import pytest

from loop_turns import turns
from outrider import Done, Frontier, InvalidInput, StoreUnavailable
from outrider.core.policy.rules import CrawlRules
from outrider.frontier import event_follower, event_publisher
from outrider.frontier.event_publisher import FOLLOWED_MS, MAX_BUFFERED
from outrider.store.protocol import EventBatch, PublishedEvent
from outrider.testing.faults import Fate, Fault, FaultyStore

A = "https://a.example/"
B = "https://b.org/"
VISIT = ("added", "claimed", "finished")
RUDE = {"politeness": {"delay": 0.0, "max_in_flight": 1000}}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    """Publish, read and connect again in the next turn of the loop."""
    for module, name in (
        (event_publisher, "PUBLISH_INTERVAL"),
        (event_publisher, "RETRY_INTERVAL"),
        (event_publisher, "LINGER_SECONDS"),
        (event_follower, "POLL_INTERVAL"),
        (event_follower, "RECONNECT_INTERVAL"),
    ):
        monkeypatch.setattr(module, name, 0.0)


@pytest.fixture
async def workers(store, clock):
    """Two frontiers of one crawl, as two processes have them."""
    async with (
        Frontier.open(store, clock=clock, worker="w1", settings=RUDE) as one,
        Frontier.open(store, clock=clock, worker="w2", settings=RUDE) as other,
    ):
        yield one, other


class Following:
    """A third frontier of the crawl that follows its events."""

    def __init__(self, store, clock, **how):
        self._frontier = Frontier.attach(store, clock=clock)
        self._how = how

    async def __aenter__(self):
        await self._frontier.__aenter__()
        self.events = self._frontier.follow_events(**self._how)
        self._next = asyncio.ensure_future(anext(self.events))
        await turns(50)  # until it has read where the log ends
        return self

    async def __aexit__(self, *_):
        self._next.cancel()
        await asyncio.wait([self._next])
        await self.events.aclose()
        await self._frontier.close()

    async def next(self, count):
        """Return so many events."""
        found = []
        async with asyncio.timeout(5):
            while len(found) < count:
                found.append(await self._next)
                self._next = asyncio.ensure_future(anext(self.events))
        return found


async def learn(*frontiers):
    """Let workers read the shared values, as they do every second."""
    for frontier in frontiers:
        await frontier.listen()


async def visit(frontier, url):
    """Add a page, claim it and finish it."""
    await frontier.add([url])
    (lease,) = await frontier.claim()
    await frontier.finish(lease, Done(200))


def facts(events):
    """What happened, where, by whom; of a gap, how many events are missing."""
    return [
        (event.name, event.data.get("url", event.data.get("missing")), event.data.get("worker"))
        for event in events
    ]


async def test_follower_sees_visits_of_all_workers_once_in_order(workers, store, clock):
    """O3: each worker's from when it learnt of the follower, which it says; numbered together."""
    one, other = workers
    async with Following(store, clock) as following:
        await learn(*workers)
        await visit(one, A)
        await visit(other, B)

        events = await following.next(8)

    by_worker = {name: [fact for fact in facts(events) if fact[2] == name] for name in ("w1", "w2")}
    assert by_worker == {
        name: [
            ("gap", None, name),
            *((what, url, name) for what in ("added", "claimed", "finished")),
        ]
        for name, url in (("w1", A), ("w2", B))
    }
    numbers = [event.sequence for event in events]
    assert numbers == sorted(set(numbers))


async def test_worker_does_not_publish_unless_followed(watched, clock):
    """O3: no call of the store, whatever is added and visited."""
    async with Frontier.open(watched, clock=clock) as frontier:
        await visit(frontier, A)
        clock.advance(5)
        await visit(frontier, B)

    assert watched.calls["publish"] == watched.calls["events_since"] == 0


async def test_follower_resumes_after_the_event_it_saw_last(workers, store, clock):
    """O3: nothing twice, nothing missing."""
    one, _ = workers
    async with Following(store, clock) as following:
        await learn(one)
        await visit(one, A)
        seen = await following.next(3)
    await visit(one, B)

    async with Following(store, clock, since=seen[-1].sequence) as following:
        rest = await following.next(4)

    assert [name for name, *_ in facts(seen + rest)] == [
        *("gap", "added", "claimed", "finished"),
        *("added", "claimed", "finished"),
    ]
    assert [event.sequence for event in seen + rest] == list(range(1, 8))


async def test_follower_of_a_deleted_crawl_reads_its_successor_from_the_beginning(store, clock):
    """O3: its number is behind the end of the new log, which a gap of unknown size says."""
    async with (
        Frontier.open(store, clock=clock, worker="w1", settings=RUDE) as one,
        Following(store, clock) as following,
    ):
        await learn(one)
        await visit(one, A)
        seen = await following.next(4)
    while (await store.delete("default")).after is not None:
        clock.advance(1)

    async with (
        Frontier.open(store, clock=clock, worker="w2", settings=RUDE) as other,
        Following(store, clock, since=seen[-1].sequence) as following,
    ):
        await learn(other)
        await visit(other, B)
        found = await following.next(5)

    assert facts(found) == [
        ("gap", None, None),
        ("gap", None, "w2"),
        *((name, B, "w2") for name in VISIT),
    ]


async def test_events_of_the_store_are_followed_too(workers, store, clock):
    """O3: with their data."""
    one, _ = workers
    async with Following(store, clock, since=0) as following:
        await learn(one)
        await visit(one, A)
        await one.claim()

        events = {event.name: event for event in await following.next(5)}

    finished = events["crawl-finished"].data
    assert (finished["detail"], finished["counts"]["done"]) == ("run 1", 1)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"names": ["finished"]}, [("gap", None), ("finished", A), ("finished", B)]),
        ({"key": "a.example"}, [("gap", None), ("added", A), ("claimed", A), ("finished", A)]),
        ({"key": ".org", "names": ["claimed"]}, [("gap", None), ("claimed", B)]),
    ],
)
async def test_follower_selects_events_by_name_and_key(workers, store, clock, how, expected):
    """O3: by exact key or suffix; gaps are always told."""
    one, _ = workers
    async with Following(store, clock, **how) as following:
        await learn(one)
        await visit(one, A)
        await visit(one, B)

        found = facts(await following.next(len(expected)))

    assert [fact[:2] for fact in found] == expected


async def test_key_selects_events_of_the_store_by_queue_or_url(workers, store, clock):
    """O3: their subject is a key or a URL."""
    one, _ = workers
    async with Following(store, clock, key="b.org") as following:
        await one.add([A, B])
        await one.claim(2)
        clock.advance(120)
        await one.expire()
        await one.queue("a.example").retire()
        await one.queue("b.org").retire()

        events = await following.next(2)

    assert [(event.name, event.data["subject"]) for event in events] == [
        ("expired", B),
        ("queue-retired", "b.org"),
    ]


async def test_breakdown_is_published_if_a_follower_asks_for_it(workers, store, clock):
    """O3, F2: by every worker, whatever its settings."""
    one, _ = workers
    async with Following(store, clock, breakdown=True, names=["added"]) as following:
        await learn(one)
        await one.add([A])

        _, added = await following.next(2)

    terms = added.data["breakdown"]["terms"]
    assert sum(value for _, value in terms) == added.data["priority"]


async def test_worker_stops_publishing_once_nobody_follows(workers, store, clock):
    """O3: a minute after the last read; one who resumes is told that events are missing."""
    one, _ = workers
    async with Following(store, clock) as following:
        await learn(one)
        await visit(one, A)
        seen = await following.next(4)
    clock.advance(FOLLOWED_MS / 1000)
    await visit(one, B)
    await visit(one, B + "unseen")

    async with Following(store, clock, since=seen[-1].sequence) as following:
        await learn(one)
        await visit(one, B + "seen")
        rest = await following.next(4)

    found = facts(rest)
    assert found[0] == ("gap", None, "w1")
    assert {url for _, url, _ in found[1:]} == {B + "seen"}


async def test_follower_keeps_workers_publishing(workers, store, clock):
    """O3: for as long as it reads."""
    one, _ = workers
    async with Following(store, clock) as following:
        for page in range(5):
            await learn(one)
            await visit(one, f"{A}{page}")
            found = await following.next(4 if page == 0 else 3)
            clock.advance(40)
            await asyncio.sleep(0.01)

    assert found[-1].data["url"] == f"{A}4"


async def test_follower_that_ended_long_ago_is_ignored_by_new_worker(store, clock):
    """O3: by the time of the store's clock."""
    async with Following(store, clock):
        pass
    clock.advance(FOLLOWED_MS / 1000)

    async with Frontier.open(store, clock=clock) as frontier:
        await visit(frontier, A)

    assert (await store.event_log("default")).events == []


@pytest.mark.parametrize("fate", [Fate.DROP, Fate.UNKNOWN, Fate.DUPLICATE])
async def test_lost_calls_lose_and_double_no_event(store, clock, fate):
    """M2: a batch whose answer was lost is published again, and is there once."""
    calls = iter([Fault(fate), Fault(fate)])

    def plan(verb):
        return next(calls, Fault(Fate.CALM)) if verb == "publish" else Fault(Fate.CALM)

    faulty = FaultyStore(store, clock, plan)
    async with (
        Frontier.open(faulty, clock=clock, worker="w1", settings=RUDE) as one,
        Following(store, clock) as following,
    ):
        await learn(one)
        await visit(one, A)
        found = await following.next(4)
        await visit(one, B)
        found += await following.next(3)

    assert facts(found) == [
        ("gap", None, "w1"),
        *((name, url, "w1") for url in (A, B) for name in VISIT),
    ]


async def test_outage_of_the_log_neither_blocks_nor_fails_a_worker(watched, clock):
    """O3: events wait in a bounded buffer; how many did not fit is told."""
    async with (
        Frontier.open(watched, clock=clock, worker="w1", settings=RUDE) as one,
        Following(watched, clock) as following,
    ):
        await learn(one)
        watched.errors["publish"] = StoreUnavailable("gone")
        for start in range(0, MAX_BUFFERED + 2000, 100):
            await one.add([f"{A}{start + page}" for page in range(100)])
        del watched.errors["publish"]
        first = await following.next(MAX_BUFFERED)
        await one.add([B])
        rest = await following.next(1)
        while rest[-1].data.get("url") != B:
            rest += await following.next(1)

    added = [event for event in first + rest if event.name == "added"]
    (missing,) = [event.data["missing"] for event in rest if event.name == "gap"]
    assert len(added) + missing == MAX_BUFFERED + 2000 + 1
    assert missing > 0


async def test_follower_waits_while_the_store_is_unavailable(watched, clock):
    """O3: it reads on where it was."""
    async with (
        Frontier.open(watched, clock=clock, worker="w1") as one,
        Following(watched, clock) as following,
    ):
        await learn(one)
        watched.errors["event_log"] = StoreUnavailable("gone")
        await visit(one, A)
        for _ in range(50):
            await asyncio.sleep(0)
        del watched.errors["event_log"]

        assert len(await following.next(4)) == 4


async def test_broken_log_does_not_fail_a_worker(watched, clock):
    """O3: whatever the store raises, visits go on."""
    async with Frontier.open(watched, clock=clock) as one, Following(watched, clock):
        await learn(one)
        watched.errors["publish"] = RuntimeError("broken")
        await visit(one, A)
        await asyncio.sleep(0.01)
        await visit(one, B)

        assert (await one.stats()).done == 2


async def test_closing_worker_publishes_what_is_left(store, clock, monkeypatch):
    """O3: also what it collected in the last moment."""
    monkeypatch.setattr(event_publisher, "PUBLISH_INTERVAL", 3600.0)
    await store.configure("default", CrawlRules())
    async with Following(store, clock) as following:
        async with Frontier.open(store, clock=clock, worker="w1") as one:
            await visit(one, A)

        assert len(await following.next(4)) == 4


async def test_long_texts_are_cut(workers, store, clock):
    """O3: an event is bounded; that it was cut is told."""
    one, _ = workers
    async with Following(store, clock, names=["added"]) as following:
        await learn(one)
        await one.add([A + "x" * 6000])

        _, added = await following.next(2)

    assert added.data["is_cut"] is True
    assert added.data["key"] == "a.example"
    assert 100 < len(added.data["url"]) < 1000


async def test_text_that_is_no_unicode_is_published(workers, store, clock):
    """O3: lone surrogates are written as escapes."""
    one, _ = workers
    async with Following(store, clock, names=["refused"]) as following:
        await learn(one)
        await one.add(["\ud800"])

        _, refused = await following.next(2)

    assert refused.data["url"] == "\\ud800"


@pytest.mark.parametrize("data", ["", "[1]", "{", "null", "[" * 2000])
async def test_event_that_is_not_what_workers_publish_is_followed(workers, store, clock, data):
    """M3: another program may write to the log."""
    await workers[0].add([A])
    async with Following(store, clock) as following:
        await store.publish("default", EventBatch("p", 1, "w9", [PublishedEvent("x", 1.0, data)]))

        (event,) = await following.next(1)

    assert (event.name, event.at, dict(event.data)) == ("x", 1.0, {"worker": "w9"})


@pytest.mark.parametrize(
    ("how", "part"),
    [
        ({"since": -1}, "since"),
        ({"since": "1"}, "since"),
        ({"names": ["finish"]}, "'finish'"),
        ({"names": "finished"}, "names"),
        ({"key": ""}, "key"),
        ({"key": 1}, "key"),
    ],
)
async def test_follower_with_wrong_arguments_is_refused(frontier, how, part):
    """O3: at once, with the name of the argument."""
    with pytest.raises(InvalidInput, match=part):
        frontier.follow_events(**how)


async def test_frontier_may_follow_its_own_crawl(workers):
    """O3: it is one of the workers."""
    one, other = workers
    events = one.follow_events(since=0)
    first = asyncio.ensure_future(anext(events))
    await turns(50)
    await learn(one, other)
    await one.add([A])
    await other.add([B])

    found = [await first, *[await anext(events) for _ in range(3)]]
    await events.aclose()

    assert sorted(facts(found)[1::2]) == [("added", A, "w1"), ("added", B, "w2")]
