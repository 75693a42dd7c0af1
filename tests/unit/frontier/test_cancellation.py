import asyncio

import pytest

from loop_turns import cancelled, started, turns
from outrider import (
    Blocked,
    Done,
    Dropped,
    Failed,
    Frontier,
    StoreError,
    StoreUnavailable,
    Throttled,
    Unreachable,
)

A = "https://a.example/"
RUDE = {"politeness": {"delay": 0.0, "max_in_flight": 1000}}


async def leased(frontier):
    """How many visits are in flight."""
    return (await frontier.stats()).leased


# ---- cancellation


async def test_a_cancelled_wait_leaves_nothing_behind(frontier):
    """What comes later is for others."""
    waiting = await started(frontier.claim(1, wait=60.0))
    await cancelled(waiting)

    await frontier.add([A])

    assert await leased(frontier) == 0
    assert [lease.url for lease in await frontier.claim()] == [A]


async def test_claim_cancelled_before_its_answer_releases_its_leases(opened, unanswered, store):
    """The store had leased them already: they are released, and no attempt is counted."""
    frontier = await opened(RUDE, unanswered)
    await frontier.add([A + "1", A + "2"])
    unanswered.hold("claim")
    claiming = await started(frontier.claim(2))
    assert (await store.crawl("default")).leased == 2

    await cancelled(claiming)
    unanswered.let_go()
    await turns()

    assert await leased(frontier) == 0
    assert [lease.attempt for lease in await frontier.claim(2)] == [1, 1]


async def test_claim_cancelled_before_the_call_releases_its_leases(opened, watched):
    """It cannot be called back, so what it brings is released."""
    frontier = await opened(RUDE, watched)
    await frontier.add([A])
    watched.hold("claim")
    claiming = await started(frontier.claim())

    await cancelled(claiming)
    watched.let_go()
    await turns()

    assert await leased(frontier) == 0
    assert (await frontier.stats()).pending == 1


@pytest.mark.parametrize("after", range(12))
async def test_claim_cancelled_at_any_turn_returns_or_releases_its_leases(
    opened, unanswered, after
):
    """Before, after or during the call: a caller without an answer has no lease."""
    frontier = await opened(RUDE, unanswered)
    await frontier.add([A])
    task = asyncio.ensure_future(frontier.claim())
    await turns(after)

    task.cancel()
    claim = (await asyncio.gather(task, return_exceptions=True))[0]
    await turns()

    held = 0 if isinstance(claim, asyncio.CancelledError) else len(claim)
    assert await leased(frontier) == held


async def test_cancelled_claim_without_leases_releases_nothing(opened, watched):
    """Nothing to give back."""
    frontier = await opened(RUDE, watched)
    watched.hold("claim")
    await cancelled(await started(frontier.claim()))
    watched.let_go()
    await turns()

    assert watched.calls["release"] == 0


async def test_error_of_a_cancelled_claim_is_ignored(opened, watched):
    """The caller is gone; the frontier works on."""
    frontier = await opened(RUDE, watched)
    await frontier.add([A])
    watched.hold("claim")
    await cancelled(await started(frontier.claim()))
    watched.errors = {"claim": StoreUnavailable("gone")}
    watched.let_go()
    await turns()
    watched.errors = {}

    assert len(await frontier.claim()) == 1


@pytest.mark.parametrize("verb", ["events_since"])
async def test_claim_cancelled_while_reporting_events_releases_its_leases(opened, unanswered, verb):
    """A cancelled claim releases what it took, wherever it was on its way."""
    frontier = await opened(RUDE, unanswered)
    frontier.subscribe(lambda _: None)
    await frontier.add([A])
    unanswered.hold(verb)
    claiming = await started(frontier.claim())
    assert not claiming.done()

    await cancelled(claiming)
    unanswered.let_go()
    await turns()

    assert await leased(frontier) == 0


async def test_claim_cancelled_by_closing_releases_its_leases(opened, unanswered, clock):
    """Leaving `async with` waits until what was taken is given back."""
    unanswered.hold("claim")

    async def crawl():
        async with Frontier.open(unanswered, settings=RUDE, clock=clock) as frontier:
            await frontier.add([A])
            await frontier.claim()

    crawling = await started(crawl())
    crawling.cancel()
    await turns()
    unanswered.let_go()
    await asyncio.gather(crawling, return_exceptions=True)
    await turns()

    witness = await opened(RUDE, unanswered)
    assert await leased(witness) == 0


@pytest.mark.parametrize("verb", ["before", "after"])
async def test_a_cancelled_add_is_applied_whole(opened, watched, unanswered, verb):
    """Whether or not the call had reached the store."""
    held = watched if verb == "before" else unanswered
    frontier = await opened(RUDE, held)
    held.hold("add")
    adding = await started(frontier.add([f"{A}{n}" for n in range(700)]))

    await cancelled(adding)
    held.let_go()
    await turns()

    assert (await frontier.stats()).known == 700


async def test_a_cancelled_add_of_a_long_list_is_applied_whole(opened, watched):
    """However many batches it takes."""
    frontier = await opened(RUDE, watched)
    watched.hold("add")
    adding = await started(frontier.add([f"{A}{n}" for n in range(3500)]))

    await cancelled(adding)
    watched.let_go()
    await turns(60)

    assert (await frontier.stats()).known == 3500


async def test_a_long_list_is_whole_even_if_the_frontier_closes(opened, watched, clock):
    """Closing applies what was handed in."""
    async with Frontier.open(watched, clock=clock) as frontier:
        watched.hold("add")
        adding = await started(frontier.add([f"{A}{n}" for n in range(3500)]))
        await cancelled(adding)
        watched.let_go()

    witness = await opened(store=watched)
    assert (await witness.stats()).known == 3500


async def test_cancelled_add_does_not_affect_others_in_its_batch(opened, watched):
    """Both were one call to the store."""
    frontier = await opened(RUDE, watched)
    one = asyncio.ensure_future(frontier.add([A + "1"]))
    other = asyncio.ensure_future(frontier.add([A + "2"]))
    await asyncio.sleep(0)

    await cancelled(one)

    assert (await other).added == 1
    assert (await frontier.stats()).known == 2


@pytest.mark.parametrize("verb", ["before", "after"])
async def test_a_cancelled_finish_is_applied_whole(opened, watched, unanswered, verb):
    """H6: the visit and its links."""
    held = watched if verb == "before" else unanswered
    frontier = await opened(RUDE, held)
    await frontier.add([A])
    (lease,) = await frontier.claim()
    held.hold("finish")
    finishing = await started(frontier.finish(lease, Done(200), links=[A + "1", A + "2"]))

    await cancelled(finishing)
    held.let_go()
    await turns()

    stats = await frontier.stats()
    assert (stats.done, stats.pending, stats.leased) == (1, 2, 0)
    assert await frontier.finish(lease, Done(200))


async def test_closing_waits_for_what_was_handed_in(opened, watched, clock):
    """An add is applied even if it is not awaited."""
    async with Frontier.open(watched, clock=clock) as frontier:
        task = asyncio.ensure_future(frontier.add([A]))
        await asyncio.sleep(0)

    witness = await opened(store=watched)
    assert (await witness.stats()).known == 1
    assert (await task).added == 1


# ---- batching


async def test_adds_of_one_turn_are_one_call(opened, watched):
    """Concurrent adds become one store call, in order, each with its own answers."""
    frontier = await opened(RUDE, watched)

    reports = await asyncio.gather(*(frontier.add([f"{A}{n}", A]) for n in range(20)))

    assert (watched.calls["add"], watched.sizes) == (1, [40])
    assert [report.answers[0].url for report in reports] == [f"{A}{n}" for n in range(20)]
    assert [report.added for report in reports] == [2, *[1] * 19]


async def test_finishes_of_one_turn_are_one_call(opened, watched):
    """Concurrent finishes likewise, whatever their outcomes."""
    frontier = await opened(RUDE, watched)
    await frontier.add([f"{A}{n}" for n in range(12)])
    leases = await frontier.claim(12)
    watched.sizes.clear()
    outcomes = [Done(200), Failed("x"), Throttled(), Blocked("x"), Unreachable("x"), Dropped("x")]

    answers = await asyncio.gather(
        *(frontier.finish(lease, outcomes[n % 6]) for n, lease in enumerate(leases))
    )

    assert answers == [True] * 12
    assert (watched.calls["finish"], watched.sizes) == (1, [12])


async def test_calls_of_different_turns_are_different_calls(opened, watched):
    """A batch does not wait for more calls."""
    frontier = await opened(RUDE, watched)

    await frontier.add([A + "1"])
    await frontier.add([A + "2"])

    assert (watched.calls["add"], watched.sizes) == (2, [1, 1])


async def test_a_second_call_need_not_wait_for_the_first(opened, watched):
    """A slow answer does not delay other calls."""
    frontier = await opened(RUDE, watched)
    watched.hold("add")
    one = await started(frontier.add([A + "1"]))
    watched.held = frozenset()

    assert (await frontier.add([A + "2"])).added == 1
    watched.let_go()
    assert (await one).added == 1


async def test_store_error_is_raised_in_every_caller_of_the_batch(opened, watched):
    """Each had items in the batch; the frontier works on."""
    frontier = await opened(RUDE, watched)

    watched.errors = {"add": StoreUnavailable("the disk is full")}
    answers = await asyncio.gather(
        frontier.add([A + "1"]), frontier.add([A + "2"]), return_exceptions=True
    )
    watched.errors = {}

    assert [str(answer) for answer in answers] == ["the disk is full"] * 2
    assert (await frontier.add([A + "1"])).added == 1


async def test_store_error_is_raised_in_callers_that_were_not_cancelled(opened, watched):
    """One of them left meanwhile."""
    frontier = await opened(RUDE, watched)
    watched.hold("add")
    one = asyncio.ensure_future(frontier.add([A + "1"]))
    other = asyncio.ensure_future(frontier.add([A + "2"]))
    await turns()
    await cancelled(one)
    watched.errors = {"add": StoreUnavailable("gone")}
    watched.let_go()

    with pytest.raises(StoreUnavailable, match="gone"):
        await other


async def test_inline_store_that_suspends_is_an_error(opened, watched):
    """The error names the store: its answer would be lost."""
    watched.is_inline = True
    frontier = await opened(RUDE, watched)
    watched.hold("add")

    with pytest.raises(StoreError, match="is_inline"):
        await frontier.add([A])
