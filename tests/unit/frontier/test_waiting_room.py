"""The waiting room: many claims that wait cost few claims of the store (C6)."""

import asyncio
import random

import pytest

from loop_turns import cancelled, prompt, started, turns
from outrider import Done, Link
from outrider.clock import SystemClock
from outrider.core.states import CrawlStatus
from outrider.errors import Closed, StoreUnavailable
from outrider.frontier.frontier import Frontier
from outrider.frontier.reports import Claim
from outrider.frontier.waiting_room import ROOMS, WaitingClaim, WaitingRoom
from outrider.store.forwarding import ForwardingStore
from outrider.store.memory import MemoryStore
from outrider.store.protocol import ClaimRequest
from outrider.testing import builders
from outrider.testing.clock import FakeClock

MANY = 1000
A, B = "https://a.example/", "https://b.example/"


class CountingStore(ForwardingStore):
    """A store whose claims are counted, delayed, or failed."""

    is_inline = False

    def __init__(self, store):
        self.store = store
        self.id = store.id
        self.notifies = store.notifies
        self.claims = 0
        self.error = None
        self.gate = None  # an event that claims wait for, once they are answered

    async def _forward(self, verb, *args, **kwargs):
        return await getattr(self.store, verb)(*args, **kwargs)

    async def claim(self, request):
        """Count it, and hold it as the test says."""
        self.claims += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        answer = await self.store.claim(request)
        if self.gate is not None:
            await self.gate.wait()
        return answer

    def subscribe(self, crawl, notify):
        """As the store inside."""
        return self.store.subscribe(crawl, notify)

    async def close(self):
        """Close the store inside."""
        await self.store.close()


@pytest.fixture
def clock():
    """Time that a test moves."""
    return FakeClock()


@pytest.fixture
def store(clock):
    """A store that counts its claims."""
    return CountingStore(MemoryStore(clock))


@pytest.fixture
async def opened(store, clock):
    """Frontiers on that store, closed at the end."""
    made = []

    async def new(given=store, **settings):
        politeness = {"politeness": {"delay": 0.0, "max_in_flight": 10_000}}
        frontier = await Frontier.open(given, clock=clock, settings=politeness | settings)
        made.append(frontier)
        return frontier

    yield new
    for frontier in made:
        await frontier.close()


def pages(count):
    """Links of one page for each of so many hosts."""
    return [f"https://h{number}.example/" for number in range(count)]


async def waiters(frontier, count=MANY, *, wait=60.0):
    """Start so many claims that wait."""
    tasks = [asyncio.ensure_future(frontier.claim(1, wait=wait)) for _ in range(count)]
    await turns()
    return tasks


def answered(tasks):
    """The positions of the claims that have an answer."""
    return [position for position, task in enumerate(tasks) if task.done()]


async def finished(tasks):
    """End claims that still wait."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# ---- how many claims


async def test_thousand_waiters_cost_one_claim_and_an_add_two(opened, store):
    """C6: one asks for all; after an add the first gets the task, and the next finds no more."""
    frontier = await opened()
    tasks = await waiters(frontier)
    assert store.claims == 1

    await frontier.add([A])
    await turns()

    assert answered(tasks) == [0]
    assert store.claims <= 3
    await finished(tasks)


async def test_claim_that_is_not_cut_short_is_the_only_one(opened, store):
    """C6: what it leaves is nothing, so the next one need not ask."""
    frontier = await opened()
    tasks = [asyncio.ensure_future(frontier.claim(5, wait=60.0)) for _ in range(MANY)]
    await turns()
    await frontier.add([A])
    await turns()

    assert answered(tasks) == [0]
    assert store.claims <= 3
    await finished(tasks)


async def test_waiters_are_served_in_the_order_they_came(opened, store):
    """C6: each gets one task, and none is passed over."""
    frontier = await opened()
    tasks = await waiters(frontier, 100)
    for count in (1, 9, 90):
        before = len(answered(tasks))
        await frontier.add([f"https://h{before + n}.example/" for n in range(count)])
        await turns(200)
        assert answered(tasks) == list(range(before + count))

    urls = [task.result()[0].url for task in tasks]
    assert sorted(urls) == sorted(pages(100))


async def test_plenty_is_claimed_by_many_at_a_time(opened, store):
    """C6: waiting in line must not make the claims of a busy crawl follow each other."""
    frontier = await opened()
    store.gate = asyncio.Event()
    store.gate.set()
    await frontier.add(pages(200))
    tasks = await waiters(frontier, 100)
    store.gate.clear()
    before = store.claims
    more = await waiters(frontier, 80)
    held = store.claims - before
    store.gate.set()
    await asyncio.gather(*tasks, *more)

    assert held <= 33
    assert store.claims == 180


async def test_newcomer_waits_behind_the_others(opened, store):
    """C6: it asks nothing while others wait, and an empty answer is theirs to give."""
    frontier = await opened()
    tasks = await waiters(frontier, 3)
    await started(late := asyncio.ensure_future(frontier.claim(1, wait=60.0)))
    assert store.claims == 1
    await frontier.add([A, B])
    await turns(60)

    assert answered([*tasks, late]) == [0, 1]
    await finished([*tasks, late])


async def test_wake_time_lets_one_ask(opened, store, clock):
    """C6: a delayed task is claimed when it is due, by one of all."""
    frontier = await opened()
    await frontier.add([Link(A, delay=7.5)])
    tasks = await waiters(frontier)
    clock.advance(7.499)
    await turns()
    assert (store.claims, answered(tasks)) == (1, [])
    clock.advance(0.001)
    await turns()

    assert answered(tasks) == [0]
    assert store.claims <= 3
    await finished(tasks)


async def test_lease_of_another_worker_that_expires_is_waited_for(opened, store, clock):
    """H4: although it was made after the claims that wait had asked."""
    frontier = await opened()
    await frontier.add([Link(A, delay=1000.0)])
    tasks = await waiters(frontier, 5, wait=300.0)
    await store.store.add([builders.task(B)])
    assert (await store.store.claim(ClaimRequest("default", "other", 1))).leases
    await turns()
    assert answered(tasks) == []
    clock.advance(60.0)
    await turns()

    assert answered(tasks) == [0]
    await finished(tasks)


# ---- ends of waiting


async def test_waits_that_end_share_one_answer(opened, store, clock):
    """C6: an empty answer is never older than the wait, and one is enough for all."""
    frontier = await opened()
    await frontier.add([Link(A, delay=100.0)])
    tasks = await waiters(frontier, wait=3.0)
    late = await waiters(frontier, 50, wait=3.0)
    for _ in range(3):
        clock.advance(1.0)
        await turns()

    claims = await asyncio.gather(*tasks, *late)
    assert {(len(claim), claim.wake_in) for claim in claims} == {(0, 97.0)}
    assert store.claims <= 2


async def test_end_of_the_crawl_answers_all(opened, store):
    """I2, I3: one claim learns it."""
    frontier = await opened()
    await frontier.add([Link(A, delay=100.0)])
    tasks = await waiters(frontier)

    await frontier.cancel()
    claims = await asyncio.gather(*tasks)

    assert {claim.status for claim in claims} == {CrawlStatus.CANCELLED}
    assert store.claims == 2


async def test_last_finish_ends_the_waits(opened, store):
    """I2: the next claim ends the run, and nothing but the finish tells that it can."""
    frontier = await opened()
    await frontier.add([A])
    (lease,) = await frontier.claim()
    tasks = await waiters(frontier)

    await frontier.finish(lease, Done(200))
    claims = await asyncio.gather(*tasks)

    assert {claim.status for claim in claims} == {CrawlStatus.FINISHED}
    assert store.claims <= 5


async def test_crawl_that_stays_open_is_waited_for(opened, store):
    """I2: finished or not, more may be added."""
    frontier = await opened(crawl={"stay_open": True})
    await frontier.add([A])
    (lease,) = await frontier.claim()
    tasks = await waiters(frontier, 10)
    await frontier.finish(lease, Done(200))
    await turns()
    assert answered(tasks) == []
    await frontier.add([B])
    await turns()

    assert answered(tasks) == [0]
    await finished(tasks)


async def test_closing_frontier_ends_its_waits_alone(opened, store):
    """C6: claims of other frontiers on the same store wait on."""
    frontier, other = await opened(), await opened()
    tasks, others = await waiters(frontier, 10), await waiters(other, 10)

    await frontier.close()
    await asyncio.wait(tasks)

    assert {type(task.exception()) for task in tasks} == {Closed}
    assert answered(others) == []
    await other.add([A])
    await turns()
    assert answered(others) == [0]
    await finished(others)


# ---- cancellation


@pytest.mark.parametrize("seed", range(5))
async def test_cancelled_waits_pass_their_turn_on(opened, store, seed):
    """C6: whichever are cancelled, at whatever moment, the next one gets the task."""
    frontier, dice = await opened(), random.Random(seed)
    tasks = await waiters(frontier, 200)
    for number, task in enumerate(dice.sample(tasks, 190)):
        if number % 19 == 0:
            await frontier.add([f"https://h{number}.example/"])
        await turns(dice.randrange(4))
        task.cancel()
    await turns(100)
    await asyncio.wait(tasks, timeout=0)
    done = [task for task in tasks if task.done() and not task.cancelled()]
    left = [task for task in tasks if not task.done()]

    view = await store.crawl("default")
    assert view.leased == sum(len(task.result()) for task in done)
    await frontier.add(pages(500))
    await asyncio.gather(*left)
    assert all(len(task.result()) == 1 for task in left)


async def test_lease_of_a_cancelled_claim_goes_to_the_next(opened, store):
    """H5: what the store had answered is given back, and claimed by the one behind."""
    frontier = await opened()
    first, second = await waiters(frontier, 2)
    store.gate = asyncio.Event()
    await frontier.add([A])
    await turns()
    await cancelled(first)
    store.gate.set()
    await turns(60)

    assert [lease.url for lease in second.result()] == [A]


# ---- stores that fail or lose notifications


async def test_failure_reaches_the_one_that_asked(opened, store, clock):
    """M6: the others ask later, one a second, and get what there is."""
    frontier = await opened()
    tasks = await waiters(frontier, 10)
    store.error = StoreUnavailable("away")
    await frontier.add([A])
    await turns()
    assert answered(tasks) == [0]
    assert store.claims == 2
    clock.advance(1.0)
    await turns()
    assert answered(tasks) == [0, 1]
    store.error = None
    clock.advance(1.0)
    await turns()

    assert {type(task.exception()) for task in tasks[:2]} == {StoreUnavailable}
    assert [lease.url for lease in tasks[2].result()] == [A]
    await finished(tasks)


@pytest.mark.parametrize("notifies", ["mostly", "never"])
async def test_lost_notification_is_made_good_by_a_poll(opened, store, clock, notifies):
    """C6: one claim a second for all who wait."""
    store.notifies = notifies
    store.subscribe = lambda *_: lambda: None
    frontier = await opened()
    tasks = await waiters(frontier)
    for _ in range(3):
        clock.advance(1.0)
        await turns()
    assert store.claims == 4
    await frontier.add([A])
    await turns()
    assert answered(tasks) == []
    clock.advance(1.0)
    await turns()

    assert answered(tasks) == [0]
    await finished(tasks)


async def test_store_that_notifies_always_is_not_polled(opened, store, clock):
    """C6: an idle process makes no calls."""
    frontier = await opened()
    tasks = await waiters(frontier)
    for _ in range(20):
        clock.advance(1.0)
        await turns(3)

    assert store.claims == 1
    await finished(tasks)


async def test_notification_during_a_claim_counts(opened, store):
    """C6: a claim that began before may have missed what came, so another one is made."""
    frontier = await opened()
    store.gate = asyncio.Event()
    waiting = await started(frontier.claim(1, wait=60.0))
    await frontier.add([A])
    await turns()
    store.gate.set()

    assert [lease.url for lease in await prompt(waiting)] == [A]


# ---- lines and rooms


class Source:
    """Asks in place of frontiers: serves what a restriction has."""

    def __init__(self):
        self.left = {"one": 0, "other": 0}
        self.asked = []

    def claim(self, restriction, *, wait=60.0):
        """Return a claim that waits."""

        async def ask():
            self.asked.append(restriction)
            if not self.left[restriction]:
                return Claim([], None, CrawlStatus.RUNNING)
            self.left[restriction] -= 1
            return Claim([object()], 0.0, CrawlStatus.RUNNING)

        return WaitingClaim(self, ask, lambda _: False, 1, wait)


async def test_restrictions_wait_in_lines_of_their_own(store, clock):
    """C6: a claim whose queues have nothing holds up no other, and answers for none."""
    source, room = Source(), WaitingRoom(store, "default", clock)
    room.join(source)
    ones = [asyncio.ensure_future(room.claim("one", source.claim("one"))) for _ in range(5)]
    others = [asyncio.ensure_future(room.claim("other", source.claim("other"))) for _ in range(5)]
    await turns()
    source.left["other"] = 2
    room.ring()
    await turns()

    assert (answered(ones), answered(others)) == ([], [0, 1])
    assert source.asked.count("one") == 2
    await finished([*ones, *others])
    assert room.leave(source)


async def test_frontiers_share_a_room_while_they_share_a_store(opened, store):
    """C6: two frontiers, one line; without members the subscription ends."""
    frontier, other = await opened(), await opened()
    tasks = [task for one in (frontier, other) * 5 for task in await waiters(one, 10)]
    assert store.claims == 1
    await frontier.add([A, B])
    await turns(60)
    assert answered(tasks) == [0, 1]
    await finished(tasks)
    assert store.store._subscriptions.by_crawl

    await frontier.close()
    await other.close()
    assert not store.store._subscriptions.by_crawl
    assert not ROOMS._by_store.get(store)


async def test_system_clock_wakes_the_line():
    """C6: real time, in milliseconds."""
    clock = SystemClock()
    async with Frontier.open(MemoryStore(clock), clock=clock) as frontier:
        await frontier.add([Link(A, delay=0.02)])
        async with asyncio.timeout(20):
            claim = await frontier.claim(1, wait=10.0)

    assert [lease.url for lease in claim] == [A]


async def test_claims_of_some_queues_wait_for_these_alone(opened, store):
    """C5: what comes for others neither ends their wait nor is held up by it."""
    frontier = await opened()
    ones = [
        asyncio.ensure_future(frontier.claim(1, keys=["a.example"], wait=60.0)) for _ in range(3)
    ]
    others = await waiters(frontier, 3)
    await frontier.add([B])
    await turns(60)
    assert (answered(ones), answered(others)) == ([], [0])
    await frontier.add([A])
    await turns(60)

    urls = [task.result()[0].url for task in (*ones, *others) if task.done()]
    assert sorted(urls) == [A, B]
    await finished([*ones, *others])
