import asyncio
from contextlib import suppress

import pytest

from outrider import Again, Done, Failed, Frontier, Link, StoreFull, wiring
from outrider.executor import running_visits
from outrider.executor.executor import Ending, Executor
from outrider.executor.handlers import Handlers
from outrider.executor.run_counts import RunCounts
from outrider.settings import settings_of

FAST = {"politeness": {"delay": 0.0, "max_in_flight": 100}, "retry": {"base": 0.0, "jitter": 0.0}}
URLS = [f"https://h{n}.example/" for n in range(20)]


def opened(store="memory://", **sections):
    """A frontier without delays."""
    return Frontier.open(store, settings=FAST | sections)


class Shelf:
    """A sink that remembers in which order it was told what."""

    def __init__(self):
        self.told = []

    def write(self, visits):
        """Before the finish."""
        self.told.append(("write", [visit.url for visit in visits]))

    def settle(self, answers):
        """After it."""
        self.told.append(("settle", answers))

    def close(self):
        """At the end."""
        self.told.append(("close",))


async def done(visit):
    """A visit that ends at once."""
    await asyncio.sleep(0)
    return Done(200, 0.001, 10)


async def test_it_runs_until_the_crawl_is_finished_links_included():
    """Every task, found ones too, is visited once."""

    async def handle(visit):
        if visit.lease.depth < 3:
            visit.links = [Link(f"{visit.url}{n}/", depth=visit.lease.depth + 1) for n in (0, 1)]
        return Done(200)

    tally = RunCounts()
    async with opened() as frontier:
        await frontier.add(["https://a.example/"])
        ending = await Executor(frontier, Handlers(handle), observer=tally).run()
        stats = await frontier.stats()

    assert ending == Ending("finished")
    assert (stats.done, stats.known, tally.visits) == (15, 15, 15)


async def test_visit_that_gives_too_much_meta_fails_alone():
    """B1: the run goes on, and the reason names the setting."""
    reasons = []

    async def handle(visit):
        return Again(meta={"x": "y" * 200}) if visit.url == URLS[3] else Done(200)

    def note(visits):
        reasons.extend(one.outcome.reason for one in visits if isinstance(one.outcome, Failed))

    settings = {"queue": {"max_meta": 100}, "retry": {"max_retries": 0}}
    async with Frontier.open("memory://", settings=FAST | settings) as frontier:
        await frontier.add(URLS)
        ending = await Executor(frontier, Handlers(handle), observer=note).run()
        stats = await frontier.stats()

    assert ending == Ending("finished")
    assert (stats.done, stats.dead) == (len(URLS) - 1, 1)
    (reason,) = reasons
    assert reason.startswith("handler: Again: meta: 208 bytes of JSON, over 100; ")


async def test_limit_of_meta_that_is_lowered_before_a_finish_ends_no_run():
    """B1, H3: the outcome is checked again by the limit that finishes it."""

    async def handle(visit):
        return Done(200) if visit.lease.meta else Again(meta={"x": "y" * 200})

    class Lowering(Shelf):
        """Writes while an operator lowers the limit, as seen by this worker."""

        def write(self, visits):
            super().write(visits)
            wanted = settings_of(FAST | {"queue": {"max_meta": 100}, "retry": {"max_retries": 0}})
            frontier._policies.use(wanted, frontier._policies.key_layers)

    async with opened() as frontier:
        await frontier.add([URLS[0]])
        ending = await Executor(frontier, Handlers(handle), sink=Lowering()).run()
        stats = await frontier.stats()

    assert (ending, stats.dead) == (Ending("finished"), 1)


async def test_no_more_visits_run_than_there_are_slots():
    """D2: an executor claims only for free slots."""
    running, most = 0, 0

    async def handle(visit):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return Done(200)

    async with opened(executor={"slots": 3}) as frontier:
        await frontier.add(URLS)
        await Executor(frontier, Handlers(handle)).run()
        assert (await frontier.stats()).done == 20

    assert most == 3


async def test_a_batch_is_written_before_it_is_finished_and_settled_after():
    """K4: a sink knows which records are not settled."""
    shelf = Shelf()
    async with opened() as frontier:
        await frontier.add(URLS)
        finish = frontier.finish_many

        async def told(visits):
            shelf.told.append(("finish", [lease.url for lease, *_ in visits]))
            return await finish(visits)

        frontier.finish_many = told
        await Executor(frontier, Handlers(done), sink=shelf).run()

    batches = list(zip(*[iter(shelf.told)] * 3, strict=True))
    assert sum(len(write[1]) for write, _, _ in batches) == 20
    for write, finish_, settle in batches:
        assert [write[0], finish_[0], settle[0]] == ["write", "finish", "settle"]
        assert write[1] == finish_[1]
        assert settle[1] == [True] * len(write[1])


async def test_parked_visits_hold_no_slot():
    """D7: a visit that waits for its host's delay lets others go on."""
    gate, order = asyncio.Event(), []

    async def handle(visit):
        if visit.url == URLS[0]:
            async with visit.parked():
                await gate.wait()
        order.append(visit.url)
        if len(order) == 19:
            gate.set()
        return Done(200)

    async with opened(executor={"slots": 1}) as frontier:
        await frontier.add(URLS)
        await Executor(frontier, Handlers(handle)).run()

    assert order[-1] == URLS[0]
    assert len(order) == 20


async def test_a_visit_that_comes_back_while_a_claim_is_under_way_takes_no_claimed_slot():
    """D2: a store may take its time; no more visits run than there are slots."""
    parked, asked, answer = asyncio.Event(), asyncio.Event(), asyncio.Event()
    running, most = 0, 0

    async def handle(visit):
        nonlocal running, most
        if visit.url == URLS[0]:
            async with visit.parked():
                parked.set()
                await asked.wait()
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.1)
        running -= 1
        return Done(200)

    async with opened(executor={"slots": 2}) as frontier:
        claim = frontier.claim

        async def slow(limit):
            if parked.is_set() and limit == 2:
                await frontier.add(URLS[1:3])
                asyncio.get_running_loop().call_later(0.02, answer.set)
                asked.set()
                await answer.wait()
            return await claim(limit)

        frontier.claim = slow
        await frontier.add(URLS[:1])
        assert await Executor(frontier, Handlers(handle)).run() == Ending("finished")
        assert (await frontier.stats()).done == 3

    assert most == 2


async def test_a_raising_and_a_hanging_handler_take_no_other_down(monkeypatch):
    """J6: they fail, even one that will not be cancelled; all others are done."""
    monkeypatch.setattr(running_visits, "CANCEL_GRACE", 0.1)

    async def handle(visit):
        if "h0." in visit.url:
            raise ValueError("no")
        if "h1." in visit.url:
            await asyncio.sleep(3600)
        if "h2." in visit.url:
            for _ in range(40):  # stubborn
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.05)
        return Done(200)

    limits = {"executor": {"handler_timeout": 0.1, "slots": 8}, "retry": {"max_retries": 0}}
    async with opened(**limits) as frontier:
        await frontier.add(URLS)
        await Executor(frontier, Handlers(handle)).run()
        stats = await frontier.stats()
        reasons = {letter.url: letter.reason async for letter in frontier.dead()}

    assert (stats.done, stats.dead) == (17, 3)
    assert reasons[URLS[0]] == "handler: ValueError: no"
    assert reasons[URLS[1]] == reasons[URLS[2]] == "time limit: handler"


async def test_stopping_finishes_what_is_in_flight_and_claims_no_more():
    """J4: drain."""
    started = []

    async def handle(visit):
        started.append(visit.url)
        executor.stop()
        await asyncio.sleep(0.01)
        return Done(200)

    async with opened(executor={"slots": 2}) as frontier:
        await frontier.add(URLS)
        executor = Executor(frontier, Handlers(handle))
        executor.stop = lambda stop=executor.stop: len(started) == 1 and stop()
        ending = await executor.run()
        stats = await frontier.stats()

    assert ending.how == "stopped"
    assert (stats.done, stats.leased, stats.pending) == (2, 0, 18)


async def test_stopping_twice_gives_everything_back_at_once():
    """J4: a second signal releases; nothing counts as an attempt."""

    async def handle(visit):
        executor.stop()
        await asyncio.sleep(3600)

    async with opened(executor={"slots": 4}) as frontier:
        await frontier.add(URLS)
        executor = Executor(frontier, Handlers(handle))
        await executor.run()
        stats = await frontier.stats()
        attempts = {task.attempts async for task in frontier.tasks()}

    assert (stats.leased, stats.pending) == (0, 20)
    assert attempts == {0}


async def test_leases_outlast_long_visits():
    """H2: the executor renews by itself; a visit longer than its lease is finished once."""

    async def handle(visit):
        await asyncio.sleep(3.0)
        return Done(200)

    async with opened(lease={"seconds": 2.0}) as frontier:
        await frontier.add(URLS[:3])
        await Executor(frontier, Handlers(handle)).run()
        stats = await frontier.stats()

    assert (stats.done, stats.visits) == (3, 3)


async def test_a_visit_learns_that_its_lease_is_lost():
    """D7: it asks before every request, and its late outcome changes nothing."""
    asked = []

    async def handle(visit):
        if not asked:
            await frontier.store.release([visit.lease.id])
            asked.append(await visit.holds(10_000.0))
        return Done(200)

    async with opened() as frontier:
        await frontier.add(URLS[:1])
        await Executor(frontier, Handlers(handle)).run()
        stats = await frontier.stats()

    assert asked == [False]
    assert stats.done == 1


async def test_the_limit_of_pages_is_not_overshot_by_what_is_in_flight():
    """I4: many slots, few pages left."""
    async with opened(limits={"done": 5}, executor={"slots": 16}) as frontier:
        await frontier.add(URLS)
        ending = await Executor(frontier, Handlers(done)).run()
        stats = await frontier.stats()

    assert ending == Ending("paused", "limit-done")
    assert stats.done == 5


async def test_an_operators_pause_is_waited_out():
    """A person pauses and resumes a running crawl; the executor is still there."""
    seen = []

    async def handle(visit):
        seen.append(visit.url)
        if len(seen) == 1:
            await frontier.pause()
            asyncio.get_running_loop().call_later(0.05, resumed.set)
        return Done(200)

    async def resume():
        await resumed.wait()
        await frontier.resume()

    resumed = asyncio.Event()
    async with opened(executor={"slots": 1}) as frontier:
        await frontier.add(URLS[:3])
        resuming = asyncio.ensure_future(resume())
        ending = await Executor(frontier, Handlers(handle)).run()
        await resuming

    assert ending == Ending("finished")
    assert len(seen) == 3


async def test_a_cancelled_crawl_ends_the_run():
    """I3."""

    async def handle(visit):
        await frontier.cancel()
        return Done(200)

    async with opened() as frontier:
        await frontier.add(URLS)
        ending = await Executor(frontier, Handlers(handle)).run()

    assert ending.how == "cancelled"


async def test_a_store_that_fails_ends_the_run_with_its_error():
    """M6: nothing is pretended; the sink is told that nobody knows."""
    shelf = Shelf()
    async with opened() as frontier:
        await frontier.add(URLS)

        async def full(visits):
            raise StoreFull("no room")

        frontier.finish_many = full
        with pytest.raises(StoreFull):
            await Executor(frontier, Handlers(done), sink=shelf).run()

    assert ("settle", None) in shelf.told


async def test_failures_are_tried_again():
    """G1: through the frontier, like everything."""

    async def handle(visit):
        return Done(200) if visit.lease.attempt == 3 else Failed("cut")

    async with opened() as frontier:
        await frontier.add(URLS[:2])
        await Executor(frontier, Handlers(handle)).run()
        stats = await frontier.stats()

    assert (stats.done, stats.visits) == (2, 6)


@pytest.mark.parametrize(
    ("bounds", "count"),
    [({"max_slots": 3}, 3), ({"min_slots": 90}, 90), ({"min_slots": 2, "max_slots": 70}, 64)],
)
async def test_default_slots_give_way_to_the_bounds(bounds, count):
    """J3: from the start, not only after the first change."""
    async with opened(executor=bounds) as frontier:
        executor = Executor(frontier, Handlers(lambda visit: Done(200)))

        assert executor.slots.count == count


async def test_worker_that_stays_waits_at_a_pause_at_finish():
    """`--stay`: a crawl that pauses in place of finishing is over too, and more may come."""
    async with opened(crawl={"pause_at_finish": True}) as frontier:
        await frontier.add(URLS[:1])
        executor = Executor(frontier, Handlers(lambda visit: Done(200)), stays=True)
        running = asyncio.ensure_future(executor.run())
        async with asyncio.timeout(60):
            while (await frontier.stats()).status != "paused":  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)
            await frontier.add(URLS[1:2])
            await frontier.resume()
            while (await frontier.stats()).done < 2:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)
            executor.stop()

            assert (await running).how == "stopped"


async def test_worker_of_a_crawl_that_stays_open_runs_until_it_is_stopped():
    """I2: `crawl.stay_open`: nothing left is no end; what is added later is visited."""
    async with opened(crawl={"stay_open": True}) as frontier:
        await frontier.add(URLS[:1])
        executor = Executor(frontier, Handlers(lambda visit: Done(200)))
        running = asyncio.ensure_future(executor.run())
        async with asyncio.timeout(60):
            while (await frontier.stats()).done < 1:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)
            await frontier.add(URLS[1:2])
            while (await frontier.stats()).done < 2:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)
            assert (await frontier.stats()).status == "running"
            executor.stop()

            assert (await running).how == "stopped"


async def test_worker_ends_when_its_crawl_no_longer_stays_open():
    """I2, N3: set to false while the crawl runs, the next claim finishes it."""
    async with opened(crawl={"stay_open": True}) as frontier:
        await frontier.add(URLS[:1])
        executor = Executor(frontier, Handlers(lambda visit: Done(200)))
        running = asyncio.ensure_future(executor.run())
        async with asyncio.timeout(60):
            while (await frontier.stats()).done < 1:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)
            await frontier.configure({"crawl": {"stay_open": False}})

            assert (await running).how == "finished"


async def test_slots_follow_the_load(monkeypatch):
    """J3: with autoscaling, ready work brings slots, and the reason is kept."""
    monkeypatch.setattr("outrider.executor.housekeeping.SCALING_INTERVAL", 0.0)
    most = 0

    async def handle(visit):
        nonlocal most
        most = max(most, executor.slots.count)
        await asyncio.sleep(0.3)
        return Done(200)

    async with opened(executor={"slots": 2, "max_slots": 4}) as frontier:
        await frontier.add(URLS[:8])
        executor = Executor(frontier, Handlers(handle))
        await executor.run()

    assert most == 4
    assert [decision.after for decision in executor.scaler.decisions] == [4]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"slots": 5}, 5),
        ({"max_slots": 9}, 2),
        ({"slots": 4, "min_slots": 4, "max_slots": 9}, 4),
        ({"slots": 1, "max_slots": 9}, 1),
    ],
)
async def test_slots_follow_the_settings(changes, count):
    """N3: at once, between the bounds that hold then; what a handler may take is asked when due."""
    seen = []

    async def handle(visit):
        if not seen:
            await frontier.configure({"executor": {**changes, "handler_timeout": 7.0}})
        seen.append((executor.slots.count, visit.until - asyncio.get_running_loop().time()))
        return Done(200)

    async with opened(executor={"slots": 2}) as frontier:
        await frontier.add(URLS[:1])
        executor = Executor(frontier, Handlers(handle))
        await executor.run()
        await frontier.add(URLS[1:2])
        await executor.run()

    assert [slots for slots, _ in seen] == [count, count]
    assert seen[0][1] > 7 >= seen[1][1]


class Crowd:
    """A handler that counts the visits under way; each lasts until all that may begin have."""

    def __init__(self):
        self.running = self.most = 0

    async def __call__(self, visit):
        """One visit."""
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(20):
            await asyncio.sleep(0)
        self.running -= 1
        return Done(200)


@pytest.mark.parametrize("workbench", [False, True])
@pytest.mark.parametrize(
    ("wanted", "most"),
    [
        ({"slots": 3}, 3),
        ({"min_slots": 1, "max_slots": 2}, 2),
        ({"max_slots": 2}, 2),
        ({"slots": 2, "min_slots": 5}, 5),
        ({"slots": 2, "min_slots": 5, "max_slots": 9}, 5),
        ({"slots": 7, "min_slots": 5, "max_slots": 9}, 7),
        ({"slots": 12, "min_slots": 5, "max_slots": 9}, 9),
    ],
)
async def test_executor_starts_with_slots_moved_between_its_bounds(wanted, most, workbench):
    """J3: bounds hold from the first claim, with and without a workbench."""
    crowd = Crowd()
    polls = {"workbench": workbench, "poll_min": 0.0, "poll_check": 0.001}
    settings = FAST | {"executor": {**wanted, **polls}}
    async with wiring.opened(settings=settings, handlers={"*": crowd}) as crawling:
        await crawling.frontier.add(URLS)
        await crawling.run()
        stats = await crawling.frontier.stats()

    assert (crowd.most, stats.done) == (most, 20)


async def test_executor_with_fewer_slots_begins_no_visit_until_others_have_drained():
    """N3, J3: of many visits only as many are followed by another as the new bound allows."""
    running, after, gates = 0, [], [asyncio.Event() for _ in URLS]
    full = asyncio.Event()

    async def handle(visit):
        nonlocal running
        number = URLS.index(visit.url)
        running += 1
        if number >= 10:
            after.append(running)
        else:
            if running == 10:
                full.set()
            await gates[number].wait()
        running -= 1
        return Done(200)

    async with opened(executor={"slots": 10}) as frontier:
        await frontier.add(URLS)
        executor = Executor(frontier, Handlers(handle))
        run = asyncio.create_task(executor.run())
        await full.wait()
        await frontier.configure({"executor": {"min_slots": 1, "max_slots": 2}})
        for gate in gates[:10]:  # the lowest slots fall free first
            gate.set()
            await asyncio.sleep(0.01)
        await run
        assert (await frontier.stats()).done == 20

    assert max(after) <= 2


async def test_slots_taken_away_during_a_claim_are_not_visited_in():
    """J3: what the claim brought beyond the new bound goes back, unpunished."""
    crowd, asked, answer = Crowd(), asyncio.Event(), asyncio.Event()
    async with opened(executor={"slots": 8}) as frontier:
        await frontier.add(URLS)
        claim = frontier.claim

        async def slow(limit):
            claimed = await claim(limit)
            asked.set()
            await answer.wait()
            return claimed

        frontier.claim = slow
        run = asyncio.create_task(Executor(frontier, Handlers(crowd)).run())
        await asked.wait()
        await frontier.configure({"executor": {"slots": 2}})
        answer.set()
        await run
        stats = await frontier.stats()

    assert (crowd.most, stats.done, stats.visits) == (2, 20, 20)
