"""The terms of a claim: how long its leases last, for which worker, and through which process."""

import pytest

from outrider import Frontier, InvalidInput
from outrider.store.factory import open_store

A = "https://a.example/"
WEEK = 604_800.0


class Watched:
    """A store whose requests and extensions are kept."""

    is_inline = True

    def __init__(self, store):
        self._store = store
        self.requests = []
        self.extensions = []

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def claim(self, request):
        """Keep the request."""
        self.requests.append(request)
        return await self._store.claim(request)

    async def extend(self, leases, *, lease_for):
        """Keep the call."""
        self.extensions.append((len(leases), lease_for))
        return await self._store.extend(leases, lease_for=lease_for)


@pytest.fixture
async def store(clock):
    """A store in memory that is watched."""
    return Watched(await open_store("memory://", clock))


@pytest.fixture
async def frontier(store, clock):
    """A frontier with three pages of three hosts."""
    async with Frontier.open(store, clock=clock, worker="mine") as frontier:
        await frontier.add([f"https://{host}.example/" for host in "abc"])
        yield frontier


async def test_claim_has_the_settings_lease_time_and_the_frontiers_name(frontier, store):
    """H1: unless the claim gives others."""
    (lease,) = await frontier.claim()

    assert (lease.lease_for, lease.worker) == (60.0, "mine")
    assert not store.requests[-1].outlives_process


async def test_claim_gives_lease_time_and_workers_name(frontier, clock):
    """H1: its leases carry both, and expire then."""
    (lease,) = await frontier.claim(lease_for=20, worker="theirs")

    assert (lease.lease_for, lease.worker) == (20.0, "theirs")
    view = await frontier.store.task("default", lease.fingerprint)
    assert view.worker == "theirs"
    clock.advance(19.999)
    assert await frontier.expire() == 0
    clock.advance(0.001)
    assert await frontier.expire() == 1


async def test_claim_asks_for_leases_that_outlive_the_process(frontier, store):
    """H4: as the store is told."""
    await frontier.claim(outlives_process=True)

    assert store.requests[-1].outlives_process


async def test_lease_is_renewed_for_as_long_as_it_was_claimed_for(frontier, store, clock):
    """H2: each for its own time, in one call per time."""
    (short,) = await frontier.claim(lease_for=20)
    long = await frontier.claim(2, lease_for=100)
    clock.advance(10)

    assert await frontier.extend([short, *long]) == {short, *long}

    assert store.extensions == [(1, 20.0), (2, 100.0)]
    clock.advance(20)
    assert await frontier.expire() == 1


async def test_extension_gives_another_time(frontier, store):
    """H2: for all of its leases."""
    leases = await frontier.claim(3, lease_for=20)

    assert await frontier.extend(leases, lease_for=1000) == set(leases)
    assert store.extensions == [(3, 1000.0)]


@pytest.mark.parametrize("seconds", [0, -1, WEEK + 1, float("nan"), float("inf"), "60", True])
async def test_lease_time_has_the_bounds_of_the_setting(frontier, seconds):
    """Over 0, at most a week; refused before anything is leased."""
    with pytest.raises(InvalidInput, match=r"claim\(lease_for="):
        await frontier.claim(lease_for=seconds)
    leases = await frontier.claim()
    with pytest.raises(InvalidInput, match=r"extend\(lease_for="):
        await frontier.extend(leases, lease_for=seconds)

    assert (await frontier.stats()).leased == 1
    assert await frontier.claim(lease_for=WEEK)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", 5])
async def test_workers_name_is_short_printable_text(frontier, name):
    """It is stored with each lease and shown to operators."""
    with pytest.raises(InvalidInput, match=r"claim\(worker="):
        await frontier.claim(worker=name)

    assert await frontier.claim(worker="x" * 255)


@pytest.mark.parametrize("name", ["x" * 256, "a\nb", "\ud800", 5])
def test_frontiers_worker_name_is_short_printable_text(name):
    """It is stored with each lease and heartbeat; a frontier without one makes one of its own."""
    for opened in (Frontier.open, Frontier.attach):
        with pytest.raises(InvalidInput, match="worker = "):
            opened("memory://", worker=name)
