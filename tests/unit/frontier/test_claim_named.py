import asyncio

import pytest

from outrider import Done, Frontier, InvalidInput, Throttled

A = "https://a.example/"


@pytest.fixture
async def snoozed(frontier):
    """A frontier whose only queue has throttled us, with three pages left besides that one."""
    await frontier.add([f"{A}{n}" for n in range(4)])
    (lease,) = await frontier.claim()
    await frontier.finish(lease, Throttled(retry_after=100.0))
    return frontier


async def test_upcoming_tasks_are_claimed_by_fingerprint(snoozed):
    """D5: while its queue waits, its pages can be answered from a cache."""
    upcoming = await snoozed.upcoming("a.example")
    claim = await snoozed.claim_named(name for name, _ in upcoming[1:3])

    assert [url for _, url in upcoming] == [f"{A}{n}" for n in range(4)]
    assert [lease.url for lease in claim] == [f"{A}1", f"{A}2"]
    assert (claim.wake_in, claim.status) == (0.0, "running")
    assert await snoozed.finish(claim[0], Done(200, from_cache=True))
    assert await snoozed.release([claim[1]]) == {claim[1]}


async def test_lease_claimed_by_fingerprint_releases_itself(snoozed):
    """H5: as every lease does when its block raises."""
    upcoming = await snoozed.upcoming("a.example", limit=1)
    (lease,) = await snoozed.claim_named([upcoming[0].fingerprint])
    with pytest.raises(ZeroDivisionError):
        async with lease:
            raise ZeroDivisionError

    assert await snoozed.upcoming("a.example", 1) == upcoming


async def test_claim_of_no_fingerprints_is_empty(snoozed):
    """An empty list is not a claim for anything that comes."""
    await snoozed.add(["https://b.example/"])

    assert await snoozed.claim_named([]) == []


@pytest.mark.parametrize(
    "names", [[b"short"], ["text of 16 chars"], [b"x" * 16] * 65, [None]], ids=repr
)
async def test_names_are_fingerprints(frontier, names):
    """Anything else is refused by name, and nothing is leased."""
    with pytest.raises(InvalidInput, match="64 fingerprints of 16 bytes"):
        await frontier.claim_named(names)


@pytest.mark.parametrize("limit", [0, -1, 1001, 1.5, None])
async def test_limit_of_upcoming_is_bounded(frontier, limit):
    """A page of it, not the whole queue."""
    with pytest.raises(InvalidInput, match="1 to 1000"):
        await frontier.upcoming("a.example", limit)


async def test_cancelled_claim_by_fingerprint_releases_its_leases(store, unanswered, clock):
    """H5: the caller is gone, so its leases are released."""
    async with Frontier.open(unanswered, clock=clock) as frontier:
        await frontier.add([A])
        upcoming = await frontier.upcoming("a.example")
        unanswered.hold("claim")
        claiming = asyncio.ensure_future(frontier.claim_named([upcoming[0].fingerprint]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        claiming.cancel()
        await asyncio.wait([claiming])
        unanswered.let_go()

    assert (await store.crawl("default")).leased == 0
    assert (await store.queue("default", "a.example")).last_visit_at is None
