"""Samples of a crawl's progress: who takes them, when, and what becomes of them (O1)."""

import asyncio
from itertools import pairwise

import pytest

from outrider import Done, Failed, Frontier, Link
from outrider.core.progress import IDLE_INTERVAL, INTERVAL, TIERS, ProgressHistory
from outrider.core.states import CrawlStatus
from outrider.errors import StoreUnavailable
from outrider.frontier.progress import read_progress
from outrider.frontier.shared_state import PROGRESS, sample_of_value
from outrider.frontier.store_calls import values_of
from outrider.store.factory import open_store
from outrider.store.protocol import SharedValueWrite

FAST = {"politeness": {"delay": 0.0, "max_in_flight": 1000}}
CRAWL = "default"


def on(store, clock, worker="w", **settings):
    """Return a frontier on the store."""
    return Frontier.open(store, clock=clock, worker=worker, settings={**FAST, **settings})


async def add(frontier, count):
    """Add so many pages."""
    await frontier.add([f"https://{n % 7}.example/{n}" for n in range(count)])


async def visit(frontier, count=1, outcome=None):
    """Claim and finish so many pages."""
    for lease in await frontier.claim(count):
        await frontier.finish(lease, outcome or Done(200, bytes=10))


async def run(frontier, clock, seconds, *, each=1):
    """Visit pages every second."""
    for _ in range(seconds):
        clock.advance(1)
        await visit(frontier, each)


async def stored(frontier):
    """Return the samples that are kept, without the one of now."""
    history = ProgressHistory()
    async for value in values_of(frontier.store, CRAWL, PROGRESS):
        history.put(value.name, sample_of_value(value))
    return history.samples()


class TestTaking:
    """Claims and finishes take samples."""

    async def test_frontier_at_work_takes_a_sample_at_every_interval(self, store, clock):
        """O1: with the counters as they are then, and the time of work so far."""
        begin = clock.now_ms() / 1000
        async with on(store, clock) as frontier:
            await add(frontier, 100)
            await visit(frontier)
            await run(frontier, clock, 20, each=2)

            found = await stored(frontier)

        assert [round(one.at - begin) for one in found] == [5, 10, 15, 20]
        assert [one.active for one in found] == [5.0, 10.0, 15.0, 20.0]
        assert [one.known for one in found] == [100] * 4
        assert all(one.visits == one.done == one.outcomes["done"] for one in found)
        assert all(one.visits + one.pending + one.leased == 100 for one in found)

    async def test_idle_frontier_takes_no_sample(self, store, clock):
        """O1: neither a reader, nor one that only adds."""
        async with on(store, clock) as frontier:
            for _ in range(5):
                await add(frontier, 5)
                clock.advance(INTERVAL + 1)
                await frontier.stats()

            assert await stored(frontier) == []

    async def test_unchanged_crawl_is_sampled_once_a_minute(self, store, clock):
        """O1: so a crawl that waits costs little, and its history says that it was worked on."""
        async with on(store, clock, lease={"seconds": 600.0}) as frontier:
            await add(frontier, 1)
            await frontier.claim()
            for _ in range(200):
                clock.advance(1)
                await frontier.claim()

            found = await stored(frontier)

        assert len(found) == 1 + 195 // int(IDLE_INTERVAL)
        assert found[-1].active == pytest.approx(found[-1].at - found[0].at + found[0].active)

    async def test_end_of_a_crawl_is_sampled(self, store, clock):
        """I2: the claim that ends it does it."""
        async with on(store, clock) as frontier:
            await add(frontier, 7)
            await visit(frontier)
            await run(frontier, clock, 8)
            await frontier.claim()

            found = await stored(frontier)

        assert (found[-1].status, found[-1].done) == (CrawlStatus.FINISHED, 7)

    async def test_pause_is_a_gap(self, store, clock):
        """O1: not a time without visits."""
        async with on(store, clock) as frontier:
            await add(frontier, 100)
            await visit(frontier)
            await run(frontier, clock, 12)
            await frontier.pause()
            await run(frontier, clock, 3000)
            await frontier.resume()
            await run(frontier, clock, 12)

            progress = await frontier.progress()

        gaps = [one.ends_at - one.begins_at for one in progress.intervals() if one.rates is None]
        assert len(gaps) == 1
        assert gaps[0] == pytest.approx(3000, abs=3)
        assert progress.now.active == pytest.approx(24, abs=3)
        rates = [one.rates.visits for one in progress.intervals() if one.rates is not None]
        assert min(rates) > 0.5

    async def test_restart_is_a_gap(self, store, clock):
        """O1: history goes on with the next frontier, and the last sample is of the close."""
        async with on(store, clock) as frontier:
            await add(frontier, 100)
            await visit(frontier)
            await run(frontier, clock, 13)
        clock.advance(500)
        async with on(store, clock, "other") as frontier:
            await run(frontier, clock, 13)
            progress = await frontier.progress()

        closing = progress.samples[1]
        assert (closing.done, closing.active) == (14, 13.0)
        (gap,) = [one for one in progress.intervals() if one.rates is None]
        assert gap.ends_at - gap.begins_at == 501
        assert progress.now.active == 25.0

    async def test_of_many_workers_one_takes_the_samples(self, watched, clock):
        """O1: one for every interval, whoever is first; the counters are read by few."""
        workers = [await on(watched, clock, f"w{n}") for n in range(20)]
        await add(workers[0], 5000)
        watched.calls.clear()
        for _ in range(60):
            clock.advance(1)
            for worker in workers:
                await visit(worker)
            await asyncio.sleep(0)
        progress = await workers[0].progress()
        for worker in workers:
            await worker.close()

        times = [one.at for one in progress.samples[:-1]]
        assert len(times) == len({int(at // INTERVAL) for at in times})
        assert 9 <= len(times) <= 12
        assert watched.calls["crawl"] <= 3 * len(times) + 20
        assert progress.now.active == pytest.approx(60, abs=INTERVAL)

    async def test_of_two_samples_at_one_time_one_is_written(self, watched, clock, background):
        """N1: the other worker saw an older value in the slot, and learns of the newer one."""
        first, second = await on(watched, clock, "a"), await on(watched, clock, "b")
        await add(first, 100)
        for worker in (first, second):
            await visit(worker)
        watched.hold("put_values")
        clock.advance(20)
        for worker in (first, second):
            await visit(worker)
        watched.let_go()
        await background(first, second)

        numbers = [value.number async for value in values_of(first.store, CRAWL, PROGRESS)]
        assert watched.calls["put_values"] == 1 + 2  # the first opening of the crawl, two samples
        assert numbers == list(range(2, 2 + len(TIERS)))  # the second's writes were refused
        assert (await stored(second))[0].at == clock.now()
        await first.close()
        await second.close()

    async def test_other_worker_goes_on_when_the_one_that_took_samples_is_gone(self, store, clock):
        """O1: there is no leader, so none has to be elected."""
        first, second = await on(store, clock, "a"), await on(store, clock, "b")
        await add(first, 1000)
        for worker in (first, second):
            await visit(worker)
        for _ in range(20):
            clock.advance(1)
            await visit(first)
            await visit(second)
        before = len(await stored(second))
        for _ in range(40):  # the first hangs, or was killed
            clock.advance(1)
            await visit(second)

        after = await stored(second)
        await first.close()
        await second.close()

        assert before == 4
        gaps = [b.at - a.at for a, b in pairwise(after)]
        assert max(gaps) <= INTERVAL + 9
        assert len(after) >= 10

    async def test_store_that_is_away_takes_nothing_from_claims(self, watched, clock, background):
        """O1: what was leased is returned, and the next interval has a sample."""
        async with on(watched, clock) as frontier:
            await add(frontier, 50)
            await visit(frontier)
            watched.errors["put_values"] = StoreUnavailable("away")
            clock.advance(6)
            assert len(await frontier.claim(3)) == 3
            await background(frontier)
            assert await stored(frontier) == []
            watched.errors.clear()
            clock.advance(6)
            await frontier.claim(3)
            await background(frontier)

            assert len(await stored(frontier)) == 1

    async def test_removed_crawl_is_not_begun_again(self, store, clock):
        """I1: a sample is no reason for a crawl to exist."""
        async with on(store, clock) as frontier:
            await add(frontier, 50)
            leases = await frontier.claim(3)
            await frontier.delete_crawl()
            clock.advance(60)
            await frontier.finish_many([(lease, Done(200)) for lease in leases])
            clock.advance(60)
            await frontier.finish_many([(lease, Done(200)) for lease in leases])
        assert await store.crawls() == []

    async def test_many_tags_make_samples_rarer(self, store, clock):
        """O1: the counters of such a crawl take long to read."""
        async with on(store, clock) as frontier:
            tags = [{"url": f"https://{n % 7}.example/{n}", "tag": f"t{n}"} for n in range(12_000)]
            await frontier.add([Link(**one) for one in tags])
            await visit(frontier)
            await run(frontier, clock, 130)

            assert len(await stored(frontier)) == 3


class TestKeeping:
    """Where samples are, and what moves with them."""

    async def test_samples_are_shared_values_of_bounded_number(self, store, clock):
        """O1: two days in a bounded number of slots."""
        async with on(store, clock) as frontier:
            await add(frontier, 20_000)
            for _ in range(3000):
                clock.advance(60)
                await visit(frontier)
            values = [one async for one in values_of(store, CRAWL, PROGRESS)]
            found = await stored(frontier)

        assert len(values) <= sum(tier.slots for tier in TIERS)
        assert max(len(one.text) for one in values) < 400
        assert found[-1].at - found[0].at > 2 * 86_400
        assert [one.at for one in found] == sorted({one.at for one in found})

    async def test_samples_are_exported_and_restored(self, store, clock):
        """I5: history moves with the crawl."""
        async with on(store, clock) as frontier:
            await add(frontier, 100)
            await visit(frontier, outcome=Failed("x"))
            await run(frontier, clock, 60)
            before = await stored(frontier)
            lines = [block async for block in frontier.export()]
            other = await open_store("memory://", clock)
        async with on(other, clock) as frontier:
            await frontier.restore(lines)
            assert await stored(frontier) == before
            await run(frontier, clock, 20)
            after = await stored(frontier)
        await other.close()

        assert len(after) > len(before) > 5
        assert after[: len(before) - 1] == before[:-1]

    @pytest.mark.parametrize("text", ["x", "{}", '{"at": -1}', '{"at": 1e300}', "[]", '{"at":"a"}'])
    async def test_values_that_cannot_be_read_are_left_out(self, store, clock, text):
        """N1: others may write anything."""
        async with on(store, clock) as frontier:
            await add(frontier, 10)
            await store.put_values(CRAWL, [SharedValueWrite(PROGRESS, "5/3", text)])
            await visit(frontier)
            await run(frontier, clock, 5)

            assert len(await stored(frontier)) == 1

    async def test_progress_of_any_crawl_can_be_read_without_a_frontier(self, store, clock):
        """O1: as its own frontier shows it."""
        async with on(store, clock) as frontier:
            await add(frontier, 100)
            await visit(frontier)
            await run(frontier, clock, 30)
            view, at = await store.crawl(CRAWL), clock.now_ms() / 1000

            assert await read_progress(store, view, at) == await frontier.progress()

    async def test_rates_and_time_left_are_told_while_it_is_worked_on(self, store, clock):
        """O1: from the samples, and the counters as they are now."""
        async with on(store, clock) as frontier:
            await add(frontier, 200)
            await visit(frontier)
            await run(frontier, clock, 60, each=2)
            progress = await frontier.progress()
            assert progress.rates().visits == pytest.approx(2.0, abs=0.1)
            assert progress.time_left() == pytest.approx((200 - 121) / 2, abs=3)
            clock.advance(1000)
            assert (await frontier.progress()).rates() is None
