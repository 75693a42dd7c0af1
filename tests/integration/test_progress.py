"""Samples of a crawl's progress on real stores: kills, many connections, moves (O1, I5)."""

import asyncio
import sys

import pytest

from outrider import Done, Frontier
from outrider.core.progress import INTERVAL
from outrider.frontier.copy_crawl import copy_crawl
from outrider.frontier.progress import read_progress
from outrider.store.factory import open_store
from outrider.testing import FakeClock

CRAWL = "default"
KINDS = ["file", "postgres", "redis", "cluster"]
FAST = {"politeness": {"delay": 0.0, "max_in_flight": 1000}}
START = 1_700_000_000.0
CHILD = """
import asyncio, sys
from outrider import Done, Frontier
from outrider.testing import FakeClock

async def main(place, begin):
    clock = FakeClock(begin)
    fast = {"politeness": {"delay": 0.0, "max_in_flight": 1000}}
    async with Frontier.open(place, clock=clock, settings=fast) as frontier:
        await frontier.add([f"https://{n % 5}.example/{n}" for n in range(500)])
        while True:
            for lease in await frontier.claim():
                await frontier.finish(lease, Done(200))
            await frontier._context.background.wait()
            print(clock.now_ms(), flush=True)
            if not sys.stdin.readline():
                return
            clock.advance(1)

asyncio.run(main(sys.argv[1], float(sys.argv[2])))
"""


@pytest.fixture(params=KINDS)
def place(request, places, tmp_path):
    """An empty store of each kind."""
    if request.param == "file":
        return str(tmp_path / "crawl.outrider")
    return places.take(request.param)


async def work_and_kill(place, begin, seconds):
    """Let a process visit a page a second, by its own clock; kill it when it has."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CHILD, place, str(begin)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    for _ in range(seconds):
        assert await child.stdout.readline()
        child.stdin.write(b"\n")
        await child.stdin.drain()
    assert await child.stdout.readline()
    child.kill()
    assert await child.wait() == -9


async def progress_at(place, now):
    """Read the progress of the crawl, as it is shown at a time."""
    clock = FakeClock(now)
    store = await open_store(place, clock)
    found = await read_progress(store, await store.crawl(CRAWL), now)
    await store.close()
    return found


async def test_samples_survive_kills(place):
    """O1: all but those of the last seconds; the time between two processes is a gap."""
    await work_and_kill(place, START, 23)
    found = await progress_at(place, START + 24)
    assert [round(one.at - START) for one in found.samples[:-1]] == [5, 10, 15, 20]
    assert [one.done for one in found.samples[:-1]] == pytest.approx([5, 10, 15, 20], abs=1)
    assert found.rates().visits == pytest.approx(1.0, abs=0.1)
    assert found.time_left() is None  # too little to go by

    await work_and_kill(place, START + 1000, 42)

    found = await progress_at(place, START + 1043)
    gaps = [one for one in found.intervals() if one.rates is None]
    assert [one.ends_at - one.begins_at for one in gaps] == [980]
    assert found.samples[-2].active == 20 + 40
    # The visits between the last sample and the kill are in the gap; samples are some visits late.
    rates = [one.rates.visits for one in found.intervals() if one.rates is not None]
    assert max(rates) <= 1.4
    assert found.time_left() == pytest.approx(found.now.left / 1.0, rel=0.15)


async def test_one_of_many_connections_takes_the_samples(place):
    """O1: one in every interval, by compare-and-set, with no leader."""
    clock = FakeClock(START)
    stores = [await open_store(place, clock) for _ in range(3)]
    workers = [
        await Frontier.open(store, clock=clock, worker=f"w{n}", settings=FAST)
        for n, store in enumerate(stores)
    ]
    await workers[0].add([f"https://{n % 5}.example/{n}" for n in range(500)])
    for second in range(41):
        for worker in workers:
            for lease in await worker.claim():
                await worker.finish(lease, Done(200))
        await asyncio.gather(*(worker._context.background.wait() for worker in workers))
        clock.advance(1 if second < 40 else 0)
    found = await workers[1].progress()
    for worker, store in reversed(list(zip(workers, stores, strict=True))):
        await worker.close()
        await store.close()

    times = [one.at for one in found.samples[:-1]]
    assert len({int(at // INTERVAL) for at in times}) == len(times)
    assert 5 <= len(times) <= 9
    assert found.now.active == pytest.approx(40, abs=1)
    assert found.rates().visits == pytest.approx(3.0, abs=0.2)


async def test_samples_move_with_a_copy(place, tmp_path):
    """I5: and they are no reason to find that a copy differs, for they may be taken meanwhile."""
    await work_and_kill(place, START, 12)
    clock = FakeClock(START + 13)
    source = await open_store(place, clock)
    target = await open_store(str(tmp_path / "copy.outrider"), clock)

    report = await copy_crawl(source, target, CRAWL)
    view = await target.crawl(CRAWL)
    found = await read_progress(target, view, clock.now())
    await target.close()
    await source.close()

    assert report.fault is None
    assert [round(one.at - START) for one in found.samples[:-1]] == [5, 10]


async def test_samples_are_removed_with_the_crawl(place):
    """I1: nothing is left of it."""
    await work_and_kill(place, START, 12)
    clock = FakeClock(START + 13)
    async with Frontier.attach(place, clock=clock) as frontier:
        assert len((await frontier.progress()).samples) == 3
        await frontier.delete_crawl()
        assert await frontier.store.values_since(CRAWL) == []
