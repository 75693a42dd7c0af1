import asyncio

import pytest

from loop_turns import cancelled, prompt, started, turns
from outrider import (
    Done,
    Frontier,
    InvalidInput,
    Link,
)

A = "https://a.example/"
RUDE = {"politeness": {"delay": 0.0, "max_in_flight": 1000}}


async def leased(frontier):
    """How many visits are in flight."""
    return (await frontier.stats()).leased


async def test_leases_end_with_the_crawl(rude):
    """I2: after the last page was finished and nothing is left."""
    await rude.add([A])
    seen = []

    async for lease in rude.leases():
        seen.append(lease.url)
        links = [f"{A}{n}" for n in range(5)] if lease.url == A else []
        await rude.finish(lease, Done(200), links=links)

    assert sorted(seen) == sorted([A, *(f"{A}{n}" for n in range(5))])
    assert (await rude.stats()).status == "finished"


async def test_leases_of_a_crawl_that_stays_open_go_on(opened):
    """I2: an empty crawl with `crawl.stay_open` is no end of them."""
    frontier = await opened({"crawl": {"stay_open": True}})
    await frontier.add([A])
    leases = frontier.leases()
    await frontier.finish(await anext(leases), Done(200))
    reading = await started(anext(leases, None))
    assert not reading.done()

    await frontier.add(["https://b.example/"])

    assert (await prompt(reading)).url == "https://b.example/"
    await leases.aclose()


async def test_leases_end_with_a_cancelled_crawl(frontier):
    """I3."""
    await frontier.add([Link(A, delay=1000.0)])
    reading = await started(anext(frontier.leases(), None))

    await frontier.cancel()

    assert await prompt(reading) is None


async def test_leases_wait_out_the_delays(frontier, clock):
    """D1: three pages of one host, a second apart."""
    await frontier.add([f"{A}{n}" for n in range(3)])
    times = []

    async def crawl():
        async for lease in frontier.leases():
            times.append(clock.now())
            await frontier.finish(lease, Done(200))

    crawling = await started(crawl())
    for _ in range(8):
        clock.advance(0.5)
        await turns()

    assert crawling.done()
    assert [at - times[0] for at in times] == [0.0, 1.0, 2.0]


async def test_leases_keep_at_most_so_many_unfinished(rude):
    """The next comes when one was finished."""
    await rude.add([f"{A}{n}" for n in range(5)])
    leases = rude.leases(limit=2)
    held = [await anext(leases), await anext(leases)]

    third = await started(anext(leases))
    assert not third.done()
    assert await leased(rude) == 2

    await rude.finish(held[0], Done(200))
    assert (await prompt(third)).url == A + "2"
    assert await leased(rude) == 2
    await leases.aclose()


@pytest.mark.parametrize("how", ["finish_many", "release", "expire"])
async def test_every_end_of_a_lease_frees_its_place(rude, clock, how):
    """Finished in a batch, released, or run out."""
    await rude.add([f"{A}{n}" for n in range(3)])
    leases = rude.leases(limit=1)
    held = await anext(leases)
    waiting = await started(anext(leases))
    assert not waiting.done()

    if how == "finish_many":
        await rude.finish_many([(held, Done(200))])
    elif how == "release":
        await rude.release([held])
    for _ in range(62 if how == "expire" else 0):
        clock.advance(1.0)
        await turns()

    assert (await prompt(waiting)).attempt in (1, 2)
    await leases.aclose()


async def test_a_cancelled_finish_frees_its_place_too(opened, watched):
    """It was applied whole, so nothing is unfinished."""
    frontier = await opened(RUDE, watched)
    await frontier.add([A + "1", A + "2"])
    leases = frontier.leases(limit=1)
    held = await anext(leases)
    watched.hold("finish")
    await cancelled(await started(frontier.finish(held, Done(200))))
    watched.let_go()
    await turns()

    assert (await prompt(anext(leases))).url == A + "2"


async def test_an_extended_lease_keeps_its_place(rude, clock):
    """H2: it is still unfinished."""
    await rude.add([A + "1", A + "2"])
    leases = rude.leases(limit=1)
    held = await anext(leases)
    waiting = await started(anext(leases))

    for _ in range(3):
        for _ in range(40):
            clock.advance(1.0)
            await turns(5)
        assert await rude.extend([held]) == {held}
    assert not waiting.done()

    await cancelled(waiting)


async def test_reader_that_stops_early_releases_the_rest(rude):
    """What it never saw; what it saw is its own."""
    await rude.add([f"{A}{n}" for n in range(10)])

    async for lease in rude.leases(limit=8):
        seen = lease
        break
    await turns()

    assert await leased(rude) == 1
    assert await rude.finish(seen, Done(200))


async def test_reader_stopped_during_a_renewal_releases_the_lease(opened, watched, clock):
    """It never saw the second one, so that one goes back."""
    frontier = await opened(RUDE, watched)
    await frontier.add([A + "1", A + "2"])
    leases = frontier.leases(limit=2)
    await anext(leases)
    clock.advance(45)
    watched.hold("extend")

    reading = await started(anext(leases))
    reading.cancel()
    await turns()
    watched.let_go()
    await asyncio.gather(reading, return_exceptions=True)
    await leases.aclose()
    await turns()

    assert await leased(frontier) == 1


async def test_very_slow_reader_gets_leases_that_others_did_not_claim(opened, store, clock):
    """H1: a lease that ran out unseen, and is another's now, is passed over."""
    frontier, other = await opened(RUDE, store), await opened(RUDE, store)
    await frontier.add([A + "1", A + "2"])
    leases = frontier.leases(limit=2)
    await anext(leases)
    clock.advance(61)
    taken = await other.claim(2)
    assert len(taken) == 2
    await other.finish_many([(lease, Done(200)) for lease in taken])

    assert await prompt(anext(leases, None)) is None


async def test_slow_reader_gets_no_expired_lease(rude, clock):
    """H1: what it gets is good, however long it took over the one before."""
    await rude.add([f"{A}{n}" for n in range(3)])
    leases = rude.leases(limit=3)
    first = await anext(leases)
    clock.advance(59)
    assert await rude.finish(first, Done(200))

    second = await anext(leases)
    clock.advance(59)
    assert await rude.finish(second, Done(200))
    assert (await rude.stats()).done == 2
    await leases.aclose()


async def test_reader_that_raises_releases_the_rest(rude):
    """An exception is leaving, too."""
    await rude.add([f"{A}{n}" for n in range(10)])

    async def read():
        async for _ in rude.leases(limit=8):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await read()
    await turns()

    assert await leased(rude) == 1


async def test_closing_releases_leases_that_were_not_read(opened, store, clock):
    """No lease that was not read stays leased after `async with`."""
    async with Frontier.open(store, settings=RUDE, clock=clock) as frontier:
        await frontier.add([f"{A}{n}" for n in range(10)])
        async for _ in frontier.leases(limit=8):
            break
    await turns()

    witness = await opened(RUDE, store)
    assert await leased(witness) == 1


async def test_reader_at_its_limit_waits(opened, resting):
    """It does not spin while nothing is finished, even if links were added."""
    clock = resting
    frontier = await opened(RUDE, clock=clock)
    await frontier.add([A + "1", A + "2"])
    leases = frontier.leases(limit=1)
    await anext(leases)
    await frontier.add([A + "3"])

    waiting = await started(anext(leases))
    clock.rests = 0
    await turns(200)
    rests = clock.rests
    waiting.cancel()

    assert rests <= 2


@pytest.mark.parametrize("limit", [0, -1, 1.5, "1", None])
async def test_a_reader_reads_at_least_one(frontier, limit):
    """The caller's fault."""
    with pytest.raises(InvalidInput, match="limit"):
        await anext(frontier.leases(limit=limit))
