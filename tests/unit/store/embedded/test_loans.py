"""Loans in a file: what a dead borrower had comes back, and few of it count a crash (C7)."""

import shutil
from pathlib import Path

import pytest

from outrider.store.embedded import EmbeddedStore
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import CRAWL, add, claim, configure, names, queue, record


@pytest.fixture
def clock():
    """Time that moves only when a test says so."""
    return FakeClock()


@pytest.fixture
async def store(tmp_path, clock):
    """A file with one queue of four pages."""
    store = EmbeddedStore.open(tmp_path / "crawl.outrider", clock)
    await configure(store, delay=5.0)
    await add(store, "a/1", "a/2", "a/3", "a/4")
    yield store
    await store.close()


async def reborn(store, clock):
    """Who opens the file after its process was killed: a copy is what a kill leaves."""
    files = Path(store.path).parent
    shutil.copytree(files, files / "copy", ignore=shutil.ignore_patterns("copy"))
    return EmbeddedStore.open(files / "copy" / Path(store.path).name, clock)


async def test_reopening_expires_the_loan_of_a_dead_borrower(store, clock):
    """H4, C7: one crash, the others as released; the queue waits from now on, then is served."""
    await claim(store, 3, lend=True)
    again = await reborn(store, clock)

    view = await queue(again)
    assert (view.lent, view.in_flight, view.pending, view.spent) == (0, 0, 4, 1)
    assert [(await record(again, f"a/{n}")).crashes for n in (1, 2, 3)] == [1, 0, 0]
    assert view.wakes_in == 5.0
    clock.advance(5)
    assert names(await claim(again, 9)) == ["a/1"]
    await again.close()


async def test_crashes_counted_by_a_loan_are_not_counted_again(store, clock):
    """C7: of one loan, though its process died between two steps of taking it back."""
    leases = await claim(store, 3, lend=True, lease_for=10.0)
    await store.extend([lease.id for lease in leases[1:]], lease_for=60.0)
    clock.advance(10)
    assert await store.expire(limit=100) == 1
    again = await reborn(store, clock)

    assert (await again.crawl(CRAWL)).outcomes == {"crashed": 1}
    assert (await queue(again)).spent == 1
    await again.close()
