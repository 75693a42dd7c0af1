"""A store that is away: waited for, said once, and nothing lost or doubled (M6)."""

import asyncio

import pytest

from outrider import (
    Done,
    Frontier,
    StoreError,
    StoreFull,
    StoreUnattended,
    StoreUnavailable,
)
from outrider.clock import SystemClock
from outrider.executor import housekeeping
from outrider.executor import outage as outage_module
from outrider.executor.executor import Ending, Executor
from outrider.executor.handlers import Handlers
from outrider.executor.outage import Outage
from outrider.frontier import live_settings
from outrider.store.memory import MemoryStore
from outrider.testing.faults import NO_FAULT, Fate, Fault, FaultyStore

FAST = {"politeness": {"delay": 0.0, "max_in_flight": 100}, "retry": {"base": 0.0, "jitter": 0.0}}
URLS = [f"https://h{n}.example/" for n in range(20)]
AWAY = StoreUnavailable("gone for lunch")


class Bouncer:
    """Work that fails so many times before it answers."""

    def __init__(self, failures, error=AWAY):
        self.left, self.error = failures, error

    async def __call__(self):
        """Fail, or answer."""
        if self.left:
            self.left -= 1
            raise self.error
        return "answer"


class Line:
    """A plan of faults that a test switches."""

    def __init__(self):
        self.fate, self.only = Fate.CALM, None
        self.struck = 0

    def __call__(self, verb):
        """What becomes of a call."""
        if self.fate is Fate.CALM or (self.only and verb not in self.only):
            return NO_FAULT
        self.struck += 1
        return Fault(self.fate)


class Shelf:
    """A sink that keeps what was settled."""

    def __init__(self):
        self.kept, self.open, self.doubts = [], [], 0

    def write(self, visits):
        """Before the finish."""
        self.open = [visit.url for visit in visits]

    def settle(self, answers):
        """After it."""
        if answers is None:
            self.doubts += 1
        else:
            self.kept += [url for url, stays in zip(self.open, answers, strict=True) if stays]

    def close(self):
        """No more."""


@pytest.fixture
def quick(monkeypatch):
    """Waits of milliseconds."""
    monkeypatch.setattr(outage_module, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(outage_module, "MAX_WAIT", 0.002)
    monkeypatch.setattr(housekeeping, "TICK_INTERVAL", 0.01)
    monkeypatch.setattr(housekeeping, "HEARTBEAT_INTERVAL", 0.02)


@pytest.fixture
def line():
    """A line that is calm until it is told otherwise."""
    return Line()


@pytest.fixture
async def far(line):
    """A memory store behind that line."""
    clock = SystemClock()
    return FaultyStore(MemoryStore(clock), clock, line)


async def done(visit):
    """A visit that ends at once."""
    await asyncio.sleep(0)
    return Done(200)


async def until(is_so):
    """Let others work until something is so."""
    for _ in range(20_000):
        if is_so():
            return
        await asyncio.sleep(0.001)
    pytest.fail("it never came to pass")


async def test_it_is_asked_until_it_answers_and_both_ends_are_said(quick):
    """Once each, however often it was asked."""
    told = []
    outage = Outage(told.append)

    assert await outage.call(Bouncer(9)) == "answer"
    assert told[0] == "gone for lunch; waiting for the store, running visits continue"
    assert told[1].startswith("the store is back after")
    assert len(told) == 2
    assert not outage.is_on


async def test_waits_double_up_to_half_a_minute(monkeypatch):
    """Full jitter: the dice alone say how much of the wait is waited."""
    waits = []

    async def rest(self, seconds):
        waits.append(seconds)

    monkeypatch.setattr(Outage, "_wait", rest)
    await Outage(dice=lambda: 1.0).call(Bouncer(12))
    await Outage(dice=lambda: 0.0).call(Bouncer(3))

    assert waits == [0.5, 1, 2, 4, 8, 16, *[30.0] * 6, 0, 0, 0]


@pytest.mark.parametrize(
    "error",
    [StoreError("no"), StoreUnattended("free"), StoreFull("no room"), ValueError("bug")],
    ids=lambda error: type(error).__name__,
)
async def test_what_time_does_not_mend_is_raised_at_once(error):
    """Also a file that nobody holds: whoever finds it so may hold it."""
    told = []
    with pytest.raises(type(error)):
        await Outage(told.append).call(Bouncer(1, error))
    assert told == []


async def test_room_on_a_server_is_waited_for(quick):
    """Others may clear away what fills it."""
    outage = Outage(waits_for_space=True)

    assert await outage.call(Bouncer(2, StoreFull("maxmemory"))) == "answer"


async def test_stopping_executor_waits_no_longer(monkeypatch):
    """The wait under way is cut short too."""
    monkeypatch.setattr(outage_module, "FIRST_WAIT", 3600.0)
    monkeypatch.setattr(outage_module, "MAX_WAIT", 3600.0)
    outage = Outage(dice=lambda: 1.0)
    call = asyncio.ensure_future(outage.call(Bouncer(100)))
    await until(lambda: outage.is_on)
    outage.end_by(asyncio.get_running_loop().time())

    with pytest.raises(StoreUnavailable):
        await call


async def test_call_cancelled_while_stopping_is_cancelled():
    """J4: else what a run ends with would be waited for for ever."""
    outage = Outage(dice=lambda: 1.0)
    call = asyncio.ensure_future(outage.call(Bouncer(1)))
    await until(lambda: outage.is_on)
    outage.end_by(asyncio.get_running_loop().time())
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize("fate", [Fate.DROP, Fate.UNKNOWN])
@pytest.mark.parametrize("verb", ["finish", "claim", "extend", "expire", "heartbeat", "settings"])
async def test_a_crawl_outlives_the_loss_of_any_verb(fate, verb, quick, far, line):
    """Whether the call was lost or its answer: each page counts once, and stays written once."""
    shelf, settings = Shelf(), FAST | {"lease": {"seconds": 0.3, "max_crashes": 9}}

    async def handle(visit):
        if visit.url == URLS[9] and not line.struck:
            line.fate, line.only = fate, (verb,)
            await until(lambda: line.struck > 2)
            line.fate = Fate.CALM
        return Done(200)

    async with Frontier.open(far, settings=settings) as owner, Frontier.attach(far) as frontier:
        await owner.add(URLS)
        async with asyncio.timeout(60):
            ending = await Executor(frontier, Handlers(handle), sink=shelf).run()
        stats = await owner.stats()

    assert ending == Ending("finished")
    assert (stats.done, stats.outcomes["done"]) == (20, 20)
    assert sorted(shelf.kept) == sorted(URLS)
    assert (shelf.doubts, line.struck > 2) == (0, True)


async def test_a_crawl_begins_when_the_store_is_back(quick, far, line):
    """Its first question is asked again too."""
    async with Frontier.open(far, settings=FAST) as frontier:
        await frontier.add(URLS)
        line.fate = Fate.DROP
        executor = Executor(frontier, Handlers(done))
        run = asyncio.ensure_future(executor.run())
        await until(lambda: line.struck > 2)
        line.fate = Fate.CALM

        assert await run == Ending("finished")


async def test_visits_go_on_while_the_store_is_away(quick, far, line):
    """What is in flight ends, and is finished when the store is back; nothing is claimed."""
    ended, told = [], []

    async def handle(visit):
        line.fate = Fate.CALM if line.struck else Fate.DROP
        await until(lambda: line.struck > 3)
        ended.append(visit.url)
        return Done(200)

    async with Frontier.open(far, settings=FAST | {"executor": {"slots": 5}}) as frontier:
        await frontier.add(URLS)
        executor = Executor(frontier, Handlers(handle), outage=Outage(told.append))
        run = asyncio.ensure_future(executor.run())
        await until(lambda: len(ended) == 5 and executor.is_waiting)
        struck = line.struck
        await until(lambda: line.struck > struck + 5)
        assert (len(ended), executor.in_flight) == (5, 0)
        line.fate = Fate.CALM
        await until(lambda: executor.visits >= 5)
        executor.stop()
        await run

    assert "waiting for the store" in told[0]
    assert "back" in told[1]


async def test_worker_that_lost_its_lease_drops_the_visit(quick, far, line):
    """H3: another worker's visit counts; the late one is neither counted nor kept."""
    shelf, gate = Shelf(), asyncio.Event()

    async def slow(visit):
        line.fate = Fate.DROP
        await gate.wait()
        return Done(500)

    settings = FAST | {"lease": {"seconds": 0.2}}
    async with Frontier.open(far, settings=settings) as frontier:
        await frontier.add(URLS[:1])
        run = asyncio.ensure_future(Executor(frontier, Handlers(slow), sink=shelf).run())
        await until(lambda: line.struck > 2)
        async with Frontier.attach(far._store) as other:
            (lease,) = await other.claim(1, wait=5.0)
            assert await other.finish(lease, Done(200))
        gate.set()
        await asyncio.sleep(0.05)
        line.fate = Fate.CALM
        assert await run == Ending("finished")
        (task,) = [task async for task in frontier.tasks()]

    assert (task.answer.status, shelf.kept) == (200, [])


async def test_a_stop_while_the_store_is_away_ends_in_time(quick, far, line):
    """J4: after the limit it leaves; the sink knows that nobody knows."""
    shelf = Shelf()

    async def handle(visit):
        line.fate = Fate.UNKNOWN
        return Done(200)

    settings = FAST | {"executor": {"drain": 0.05}}
    async with Frontier.open(far, settings=settings) as frontier:
        await frontier.add(URLS)
        executor = Executor(frontier, Handlers(handle), sink=shelf)
        run = asyncio.ensure_future(executor.run())
        await until(lambda: executor.is_waiting)
        executor.stop()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(run, 60)
        line.fate = Fate.CALM

    assert shelf.doubts == 1


async def test_a_request_waits_for_the_store_without_a_slot(quick, far, line):
    """D7: no request without a lease, and no time of the handler's runs meanwhile."""
    held = []

    async def handle(visit):
        await asyncio.sleep(0.02)
        line.fate, line.only = Fate.DROP, ("extend",)
        held.append(asyncio.ensure_future(visit.holds(59.99)))
        await until(lambda: line.struck > 2)
        assert executor.parked_count == 1
        line.fate = Fate.CALM
        assert await held[0]
        return Done(200)

    settings = FAST | {"executor": {"handler_timeout": 30.0}}
    async with Frontier.open(far, settings=settings) as frontier:
        await frontier.add(URLS[:1])
        executor = Executor(frontier, Handlers(handle))
        assert await executor.run() == Ending("finished")
        assert (await frontier.stats()).outcomes == {"done": 1}


async def test_workers_say_how_they_are(monkeypatch, far):
    """M6: idle, busy, draining, and at last gone; seen by every other frontier."""
    monkeypatch.setattr(housekeeping, "HEARTBEAT_INTERVAL", 0.0)
    monkeypatch.setattr(housekeeping, "TICK_INTERVAL", 0.005)
    gate, seen = asyncio.Event(), []

    async def handle(visit):
        await gate.wait()
        return Done(200)

    async with Frontier.open(far, settings=FAST | {"executor": {"slots": 2}}) as frontier:

        async def is_now(state):
            while True:
                views = await frontier.workers()
                if [view.state for view in views] == [state]:
                    return views[0]
                await asyncio.sleep(0.002)

        async with asyncio.timeout(60):
            executor = Executor(frontier, Handlers(handle), stays=True)
            run = asyncio.ensure_future(executor.run())
            await is_now("idle")
            await frontier.add(URLS[:3])
            seen.append(await is_now("busy"))
            executor.stop()
            await is_now("draining")
            gate.set()
            await run
            seen.append(await is_now("gone"))

    assert [(view.worker, view.slots, view.busy, view.visits) for view in seen] == [
        (frontier.worker, 2, 2, 0),
        (frontier.worker, 2, 0, 2),
    ]


async def test_a_joined_worker_goes_by_what_is_configured_meanwhile(monkeypatch, far):
    """N1: within seconds, by every worker."""
    monkeypatch.setattr(housekeeping, "HEARTBEAT_INTERVAL", 0.0)
    monkeypatch.setattr(housekeeping, "TICK_INTERVAL", 0.005)
    async with Frontier.open(far, settings=FAST) as owner, Frontier.attach(far) as joined:
        executor = Executor(joined, Handlers(done), stays=True)
        run = asyncio.ensure_future(executor.run())
        await owner.configure({"queue": {"max_depth": 3}})
        await until(lambda: joined.settings.queue.max_depth == 3)
        executor.stop()
        assert (await run).how == "stopped"


async def test_who_opened_the_crawl_hears_of_it_too(monkeypatch, far):
    """N1: what another says holds for all, between two beats and whether or not it claims."""
    monkeypatch.setattr(live_settings, "LISTEN_INTERVAL_MS", 10**9)
    monkeypatch.setattr(housekeeping, "HEARTBEAT_INTERVAL", 1000.0)
    monkeypatch.setattr(housekeeping, "LISTEN_INTERVAL", 0.0)
    monkeypatch.setattr(housekeeping, "TICK_INTERVAL", 0.005)
    async with Frontier.open(far, settings=FAST) as owner, Frontier.attach(far) as other:
        executor = Executor(owner, Handlers(done), stays=True)
        run = asyncio.ensure_future(executor.run())
        await until(lambda: executor.turns > 2)
        await other.configure({"executor": {"slots": 3}})
        await until(lambda: executor.slots.count == 3)
        executor.stop()
        assert (await run).how == "stopped"


async def test_one_that_stays_waits_for_more(far):
    """A crawl that is finished may run again."""
    async with Frontier.open(far, settings=FAST) as frontier:
        await frontier.add(URLS[:1])
        executor = Executor(frontier, Handlers(done), stays=True)
        run = asyncio.ensure_future(executor.run())
        await until(lambda: executor.visits == 1)
        await frontier.add(URLS[1:2])
        await until(lambda: executor.visits == 2)
        executor.stop()

        assert await run == Ending("stopped", "asked to stop")


async def test_callers_that_rest_ask_again_when_the_store_is_back(monkeypatch):
    """One of them learns it first; the leases of the others may not last until their own turn."""
    monkeypatch.setattr(outage_module, "FIRST_WAIT", 1000.0)
    monkeypatch.setattr(outage_module, "MAX_WAIT", 1000.0)
    outage = Outage(dice=lambda: 1.0)
    resting = asyncio.create_task(outage.call(Bouncer(1)))
    await asyncio.sleep(0)
    assert outage.is_on
    async with asyncio.timeout(60):
        assert await outage.call(Bouncer(0)) == "answer"
        assert await resting == "answer"
