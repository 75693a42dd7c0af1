"""A workbench: claims come from what was borrowed, and the store has the last word (C7, J5)."""

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from outrider import Done, Failed, Frontier, Link, StoreFull, Throttled
from outrider.clock import SystemClock
from outrider.core.states import CrawlStatus, QueueState
from outrider.executor.executor import Ending, Executor
from outrider.executor.handlers import Handlers
from outrider.executor.lease_renewal import LeaseRenewer
from outrider.executor.visit import Visit
from outrider.executor.workbench import Workbench
from outrider.store.memory import MemoryStore
from outrider.testing.clock import FakeClock
from outrider.testing.faults import Fate, Fault, FaultyStore

A = [f"https://a.example/{n}" for n in range(5)]
B = [f"https://b.example/{n}" for n in range(5)]


class Line:
    """Counts the calls that reach the store, and drops those of some verbs."""

    def __init__(self):
        self.calls = Counter()
        self.lost = set()

    def __call__(self, verb):
        """What becomes of a call."""
        self.calls[verb] += 1
        return Fault(Fate.DROP if verb in self.lost else Fate.CALM)


@pytest.fixture
def clock():
    """Time that moves only when a test says so."""
    return FakeClock()


@pytest.fixture
def line():
    """What is between the workbench and its store."""
    return Line()


@pytest.fixture
async def frontier(clock, line):
    """Five pages on each of two hosts, which want 2 s between two visits."""
    settings = {
        "politeness": {"delay": 2.0},
        "retry": {"base": 0.0, "jitter": 0.0},
        "executor": {"workbench": True},
    }
    store = FaultyStore(MemoryStore(clock), clock, line)
    async with Frontier.open(store, settings=settings, clock=clock) as frontier:
        await frontier.add([*A, *B])
        line.calls.clear()
        yield frontier


@pytest.fixture
async def bench(frontier):
    """The workbench it works on."""
    async with Workbench(frontier) as bench:
        yield bench


async def passes(clock, seconds):
    """Time, in steps that let everybody act in between."""
    for _ in range(round(seconds)):
        clock.advance(1.0)
        for _ in range(10):
            await asyncio.sleep(0)


def urls(leases):
    """What was lent."""
    return sorted(lease.url for lease in leases)


async def visit(frontier, outcome=None, links=()):
    """Claim all that can be had, and end it alike."""
    leases = await frontier.claim(10)
    for lease in leases:
        assert await frontier.finish(lease, outcome or Done(200), links)
    return urls(leases)


# ---- claims


async def test_one_poll_serves_many_claims(frontier, bench, clock, line):
    """J5: the store is asked once; what follows comes from the workbench."""
    visited = []
    for _ in range(5):
        visited += await visit(frontier)
        clock.advance(2.0)

    assert sorted(visited) == sorted([*A, *B])
    assert line.calls["claim"] == 1


async def test_the_pace_is_kept_here(frontier, bench, clock):
    """C7, D1: one visit of a queue at a time, and the delay after it."""
    assert urls(await frontier.claim(10)) == [A[0], B[0]]
    assert await frontier.claim(10) == []


async def test_the_delay_begins_with_the_end(frontier, bench, clock):
    """D1: as any store would have it."""
    await visit(frontier)
    clock.advance(1.9)
    claim = await frontier.claim(10)

    assert (list(claim), claim.wake_in) == ([], pytest.approx(0.1))
    clock.advance(0.1)
    assert urls(await frontier.claim(10)) == [A[1], B[1]]


@pytest.mark.parametrize("outcome", [Done(200), Done(200, from_cache=True), None])
async def test_borrowed_queue_keeps_visits_per_second_over_all_slots(frontier, clock, outcome):
    """C7, D1: the borrower keeps 1/rate between its visits, whether they end or not."""
    manners = {"visits_per_second": 0.5, "max_in_flight": 5, "delay": 0.0}
    await frontier.configure({"politeness": manners})
    begun, visited = [], []
    async with Workbench(frontier):
        for _ in range(40):
            for lease in await frontier.claim(10):
                begun.append((lease.key, round(clock.now_ms())))
                visited.append(lease.url)
                if outcome is not None:
                    await frontier.finish(lease, outcome)
            clock.advance(0.25)
    times = [at for key, at in begun if key == "a.example"]

    assert sorted(visited) == sorted([*A, *B])
    assert [later - before for before, later in pairwise(times)] == [2000] * 4


async def test_rules_of_a_key_hold_here(frontier, clock):
    """A4: what holds for one queue comes with its leases."""
    await frontier.queue("a.example").set(max_in_flight=3, delay=0.0)
    async with Workbench(frontier):
        assert urls(await frontier.claim(10)) == [*A[:3], B[0]]


async def test_rules_that_changed_hold_here_at_once(frontier, bench, clock, line):
    """N3: what was laid out under others goes back; what changes no rule disturbs nobody."""
    await visit(frontier)
    await frontier.configure({"lease": {"seconds": 50.0}})
    clock.advance(2.0)
    await frontier.claim(0)
    before = line.calls["claim"]
    await frontier.configure({"politeness": {"max_in_flight": 3, "delay": 0.0}})
    resting = await frontier.claim(10)  # what is given back ends as a visit does (D7)
    after = line.calls["claim"]
    clock.advance(resting.wake_in)

    assert urls(await frontier.claim(10)) == [*A[1:4], *B[1:4]]
    assert (before, after) == (1, 2)


async def test_what_a_visit_taught_is_known_to_the_next(frontier, bench, clock):
    """D1, D3: a lease carries the manners its queue has by now, not those of the poll."""
    await visit(frontier, Done(200, seconds=0.5, crawl_delay=7.0))
    clock.advance(7.0)
    lease, _ = await frontier.claim(10)

    assert (lease.manners.crawl_delay, lease.manners.calm) == (7.0, 1)


async def test_what_earlier_visits_taught_is_known_from_the_start(frontier, clock):
    """D1, D3: manners come with the loan."""
    await visit(frontier, Done(200, crawl_delay=7.0))
    clock.advance(7.0)
    async with Workbench(frontier):
        lease, _ = await frontier.claim(10)
        assert (lease.manners.crawl_delay, lease.manners.calm) == (7.0, 1)
        await frontier.finish(lease, Done(200))
        assert (await frontier.claim(10)).wake_in == 7.0


async def test_borrowed_queue_serves_no_other_worker(frontier, bench, clock):
    """C7: a borrowed queue is its borrower's alone."""
    await frontier.claim(1)
    async with Frontier.attach(bench._store, clock=clock) as other:
        assert await other.claim(10) == []
        assert (await other.queue("b.example").view()).state is QueueState.BUSY


async def test_by_name_the_store_itself_answers(frontier, bench, clock):
    """D5: what is not borrowed can be had, and finished, as ever."""
    await visit(frontier, Throttled(retry_after=100.0))
    names = [name for name, _ in await frontier.upcoming("a.example")]
    leases = await frontier.claim_named(names)

    assert urls(leases) == A
    assert await frontier.finish_many([(lease, Done(200, from_cache=True)) for lease in leases])
    assert (await frontier.stats()).done == 5


# ---- ends


async def test_a_finish_is_the_stores(frontier, bench):
    """H6: with its links, in one step, at once."""
    (lease,) = await frontier.claim(1)
    assert await frontier.finish(lease, Done(200, bytes=9), ["https://c.example/"])

    stats = await frontier.stats()
    assert (stats.done, stats.known) == (1, 11)
    assert (await frontier.queue("c.example").view()).pending == 1


async def test_a_repeated_finish_changes_nothing(frontier, bench):
    """H3: whoever does not know what came of it asks again."""
    (lease,) = await frontier.claim(1)

    assert await frontier.finish(lease, Done(200))
    assert await frontier.finish(lease, Done(200))
    assert (await frontier.stats()).done == 1


async def test_a_finish_that_was_lost_may_be_said_again(frontier, bench, line, clock):
    """M6: the pace was noted, the store was not told: the second time it is."""
    (lease,) = await frontier.claim(1)
    line.lost = {"finish"}
    with pytest.raises(Exception, match="finish"):
        await frontier.finish(lease, Done(200))
    line.lost = set()

    assert await frontier.finish(lease, Done(200))
    assert (await frontier.stats()).done == 1
    clock.advance(2.0)
    assert urls(await frontier.claim(10)) == [A[1], B[0]]


async def test_a_retry_is_the_stores_business(frontier, bench, clock):
    """G1: a task that failed does not come again from the workbench."""
    visited = []
    for _ in range(5):
        visited += await visit(frontier, Failed("HTTP 500"))
        clock.advance(2.0)

    assert sorted(visited) == sorted([*A, *B])
    assert await frontier.claim(10) == []
    assert (await frontier.stats()).pending == 10


async def test_a_visit_without_an_outcome_goes_back(frontier, bench, clock):
    """H5: to the store; here it does not come again, and its host waits."""
    (lease,) = await frontier.claim(1)
    assert await frontier.release([lease]) == {lease}

    assert (await frontier.stats()).pending == 1
    clock.advance(2.0)
    assert urls(await frontier.claim(10)) == [A[1], B[0]]


@pytest.mark.parametrize("outcome", [Throttled(), Throttled(retry_after=900.0)])
async def test_a_host_that_wants_rest_gives_back_its_queue(frontier, bench, outcome):
    """D3: whoever is free when it is over may have it; nothing of it is held meanwhile."""
    first, _ = await frontier.claim(2)
    await frontier.finish(first, outcome)

    view = await frontier.queue("a.example").view()
    assert (view.lent, view.pending, view.state) == (0, 5, QueueState.SNOOZED)
    assert (await frontier.queue("b.example").view()).lent == 5


# ---- polls


async def test_an_empty_workbench_waits_for_the_least_interval(frontier, bench, clock, line):
    """J5: and says so."""
    for _ in range(5):
        await visit(frontier)
        clock.advance(2.0)
    await frontier.add(["https://c.example/"])
    claim = await frontier.claim(10)
    assert (list(claim), claim.wake_in, claim.status) == ([], 5.0, CrawlStatus.RUNNING)

    clock.advance(5.0)
    assert urls(await frontier.claim(10)) == ["https://c.example/"]
    assert line.calls["claim"] == 2


async def test_another_poll_gives_back_what_is_left(frontier, bench, clock):
    """J5: the new loan takes the old one's place; who is under way keeps its lease."""
    (lease,) = await frontier.claim(1)
    await frontier.add(["https://c.example/"])
    for _ in range(20):
        await passes(clock, 30)
        assert await frontier.extend([lease]) == {lease}
    assert urls(await frontier.claim(10)) == ["https://c.example/"]

    assert (await frontier.queue("a.example").view()).lent == 1
    assert (await frontier.queue("b.example").view()).lent == 0
    assert await frontier.finish(lease, Done(200))
    assert (await frontier.queue("a.example").view()).state is QueueState.SNOOZED


async def test_what_is_left_on_the_workbench_is_polled_for(frontier, clock, line):
    """J5: a strategy sees what lies on the workbench."""
    seen = []

    def strategy(reading):
        seen.append(reading)
        return 1.0 if reading.tasks_left > 4 else 0.0

    await frontier.configure({"executor": {"workbench": True, "poll": strategy}})
    async with Workbench(frontier):
        for _ in range(4):
            await visit(frontier)
            clock.advance(2.0)

    assert (seen[0].tasks, seen[0].queues) == (0, 0)
    assert (seen[1].since, seen[1].tasks, seen[1].queues_left) == (0.0, 10, 2)
    assert line.calls["claim"] == 2


async def test_a_poll_takes_so_many_and_no_more(frontier, clock):
    """J5: in all, and of each queue."""
    limits = {"workbench": True, "workbench_tasks": 5, "workbench_per_queue": 3}
    await frontier.configure({"executor": limits})
    async with Workbench(frontier):
        await frontier.claim(1)
        lent = [(await frontier.queue(f"{host}.example").view()).lent for host in "ab"]

    assert sorted(lent) == [2, 3]


async def test_claim_reports_the_end_of_the_crawl(frontier, bench, clock):
    """I2: by the poll that finds nothing."""
    for _ in range(5):
        await visit(frontier)
        clock.advance(5.0)

    assert (await frontier.claim(10)).status is CrawlStatus.FINISHED


# ---- keeping


async def test_what_waits_is_renewed(frontier, bench, clock):
    """H2: long after the lease would have ended."""
    await frontier.claim(1)
    await passes(clock, 150)

    assert (await frontier.stats()).leased == 10
    assert urls(await frontier.claim(10)) == [B[0]]


async def test_a_lease_is_worth_what_is_left_of_it(frontier, bench, clock, line):
    """D7: whoever visits counts from the last renewal, not from the claim."""
    await frontier.claim(1)
    line.lost = {"extend"}
    await passes(clock, 25)
    (lease,) = await frontier.claim(10)

    assert lease.lease_for == 35.0


async def test_task_whose_lease_was_not_renewed_is_not_visited(frontier, bench, clock, line):
    """D7: it may be somebody else's."""
    await frontier.claim(1)
    line.lost = {"extend"}
    await passes(clock, 60)

    assert await frontier.claim(10) == []


async def test_what_was_lost_disappears(frontier, bench, clock):
    """H3: the store says at the next renewal that it is gone."""
    await frontier.claim(1)
    inner = bench._store
    held = [lease.id for lease in bench._loan.waiting(["b.example"])]
    await inner.release(held)
    await passes(clock, 11)

    assert await frontier.claim(10) == []
    assert (await frontier.queue("b.example").view()).state is QueueState.READY


@pytest.mark.parametrize("act", ["pause", "cancel"])
async def test_a_crawl_that_was_stopped_begins_no_more(frontier, bench, clock, act):
    """I1, I3, N1: within 5 s nothing of it lies here."""
    (lease,) = await frontier.claim(1)
    await getattr(frontier, act)()
    await passes(clock, 5)
    claim = await frontier.claim(10)

    assert list(claim) == []
    assert claim.status is (CrawlStatus.PAUSED if act == "pause" else CrawlStatus.CANCELLED)
    assert (await frontier.stats()).leased == (1 if act == "pause" else 0)
    assert await frontier.finish(lease, Done(200)) is (act == "pause")


async def test_a_crawl_that_runs_again_is_polled_again(frontier, bench, clock):
    """I1: at the least interval."""
    await frontier.claim(1)
    await frontier.pause()
    await passes(clock, 5)
    await frontier.resume()
    await passes(clock, 10)

    assert urls(await frontier.claim(10)) == [B[0]]


async def test_at_the_end_everything_goes_back(frontier, clock):
    """J4: unpunished; the frontier's store is the same all the time."""
    store = frontier.store
    async with Workbench(frontier):
        await frontier.claim(1)
        assert frontier.store is store
        assert (await frontier.stats()).leased == 10

    stats = await frontier.stats()
    assert (stats.leased, stats.pending) == (1, 9)
    assert frontier.store is store


async def test_a_release_that_was_lost_is_said_again(frontier, bench, clock, line):
    """M6: what was taken away here goes back there as soon as the store can be told."""
    await frontier.claim(1)
    line.lost = {"release"}
    await frontier.pause()
    await passes(clock, 5)
    assert (await frontier.stats()).leased == 10

    line.lost = set()
    await passes(clock, 5)
    assert (await frontier.stats()).leased == 1


# ---- with an executor


async def test_a_visit_relies_on_what_is_left_of_its_lease(frontier, bench, clock, line):
    """D7: before a request that may take longer it renews, though it was claimed just now."""
    await frontier.claim(1)
    line.lost = {"extend"}
    await passes(clock, 25)
    line.lost = set()
    renewer = LeaseRenewer(frontier)
    one = Visit((await frontier.claim(1))[0])
    renewer.add([one], renewer.now())

    assert await renewer.lasts(one, 30.0)
    before = line.calls["extend"]
    assert await renewer.lasts(one, 40.0)
    assert line.calls["extend"] == before + 1


class Full:
    """A store that takes no more verdicts."""

    is_inline = False

    def __init__(self, store):
        self._store = store
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def finish(self, verdicts):
        """Nobody asks a second time before it says no."""
        self.is_asked.set()
        await self.may_answer.wait()
        raise StoreFull("no room")


async def test_failed_batch_raises_even_after_stop():
    """J4: batches are finished beside the loop, and what goes wrong there is not lost."""

    async def handle(visit):
        await asyncio.sleep(0)
        return Done(200)

    async def stop():
        await store.is_asked.wait()
        executor.stop()
        for _ in range(10):
            await asyncio.sleep(0)
        store.may_answer.set()

    store = Full(MemoryStore(SystemClock()))
    async with Frontier.open(store, settings={"executor": {"workbench": True}}) as frontier:
        await frontier.add(A)
        executor = Executor(frontier, Handlers(handle))
        stopping = asyncio.create_task(stop())
        async with Workbench(frontier):
            with pytest.raises(StoreFull):
                await executor.run()
        await stopping


async def test_an_executor_cannot_tell_the_difference():
    """J5: every page once, links included, and fewer claims than visits."""
    line = Line()
    visited = Counter()

    async def handle(visit):
        visited[visit.url] += 1
        depth = visit.lease.depth + 1
        if depth < 5:
            visit.links = [Link(f"{visit.url}{depth}{n}/", depth=depth) for n in "ab"]
        return Done(200)

    settings = {
        "politeness": {"delay": 0.0, "max_in_flight": 9},
        "executor": {"workbench": True, "poll_min": 0.0},
    }
    clock = SystemClock()
    store = FaultyStore(MemoryStore(clock), clock, line)
    async with Frontier.open(store, settings=settings) as frontier:
        await frontier.add([f"https://h{n}.example/" for n in range(8)])
        async with Workbench(frontier):
            ending = await Executor(frontier, Handlers(handle)).run()
        stats = await frontier.stats()

    assert ending == Ending("finished")
    assert (stats.done, stats.leased, set(visited.values())) == (248, 0, {1})
    assert line.calls["claim"] < 60
