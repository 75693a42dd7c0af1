"""A file changes hands: dead processes lose their leases, living ones keep them (H4, D7)."""

import os
import shutil
from pathlib import Path

import pytest

from outrider.errors import StoreFull
from outrider.store.embedded import EmbeddedStore, lock
from outrider.store.embedded.checkpoint import checkpoint
from outrider.testing.builders import done
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import CRAWL, add, claim, configure, names, queue, record

DELAY = 5.0
LEASE = 60.0


@pytest.fixture
def clock():
    """Time that moves only when a test says so."""
    return FakeClock()


@pytest.fixture
def path(tmp_path):
    """Where the file is."""
    return tmp_path / "crawl.outrider"


@pytest.fixture
async def store(path, clock):
    """A file of three hosts with two pages each, held by process "p"."""
    store = EmbeddedStore.open(path, clock, process="p")
    await configure(store, delay=DELAY)
    await add(store, "a/1", "a/2", "b/1", "b/2", "c/1", "c/2")
    yield store
    await store.close()


@pytest.fixture
def survivor(clock):
    """Opens what a kill of the holder leaves: the file, its log and its lock, as they are now."""
    opened = []

    def open_as(process, store, *, lacks=()):
        folder = Path(store.path).parent
        copy = folder / f"after-{len(opened)}"
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("after-*", *lacks))
        store = EmbeddedStore.open(copy / Path(store.path).name, clock, process=process)
        opened.append(store)
        return store

    yield open_as
    for store in opened:
        store._file.close()
        store._lock.free()


async def lost(store):
    """The tasks whose leases were taken back, each a crash."""
    return [n for n in ("a/1", "b/1", "c/1") if (await record(store, n)).crashes]


async def test_reopening_takes_back_the_dead_holders_leases_only(store, clock, survivor):
    """The worker of another process finishes with its token, and its host waits from then on."""
    await claim(store, 1)
    (kept,) = await claim(store, 1, process="q/1")
    clock.advance(3)
    again = survivor("r", store)

    assert await lost(again) == ["a/1"]
    assert (await queue(again, "a")).wakes_in == DELAY  # from the taking
    assert ((await queue(again, "b")).state, (await queue(again, "b")).in_flight) == ("busy", 1)
    clock.advance(2)
    assert names(await claim(again, 9)) == ["c/1"]
    (finished,) = await again.finish([done(kept)])
    assert finished.applied
    assert (await queue(again, "b")).wakes_in == DELAY
    assert (await record(again, "b/1")).attempts == 1


async def test_worker_that_becomes_the_holder_keeps_its_leases(store, clock, survivor):
    """What it claimed through the dead holder, and nothing of that holder's own."""
    (own,) = await claim(store, 1, process="q/1")
    await claim(store, 1)
    again = survivor("q", store)

    assert await lost(again) == ["b/1"]
    assert await again.extend([own.id], lease_for=LEASE) == {own.id}
    assert (await again.finish([done(own)]))[0].applied


async def test_holder_that_took_over_and_dies_loses_all_it_had(store, survivor):
    """Also what it claimed before it held the file; a third process keeps its own."""
    await claim(store, 1, process="q/1")
    (other,) = await claim(store, 1, process="r/1")
    second = survivor("q", store)
    await claim(second, 1)
    third = survivor("s", second)

    assert await lost(third) == ["a/1", "c/1"]
    assert await third.extend([other.id], lease_for=LEASE) == {other.id}


async def test_kept_leases_last_their_length_from_the_reopening(store, clock, survivor):
    """Extensions are not in the file; one that is not extended any more is overdue at last."""
    (lease,) = await claim(store, 1, process="q/1", lease_for=20.0)
    clock.advance(15)
    await store.extend([lease.id], lease_for=20.0)
    clock.advance(15)
    again = survivor("r", store)

    clock.advance(19)
    assert await again.expire(limit=9) == 0
    clock.advance(1)
    assert await again.expire(limit=9) == 1
    assert (await queue(again, "a")).wakes_in == DELAY
    assert (await again.finish([done(lease)]))[0].applied is False


async def test_longer_deadline_in_the_file_stays(store, clock, survivor):
    """Reopening at once shortens nothing."""
    await claim(store, 1, process="q/1", lease_for=20.0)
    again = survivor("r", store)
    clock.advance(19)
    assert await again.expire(limit=9) == 0


async def test_reopening_after_a_restart_of_the_machine_takes_back_all(
    store, survivor, monkeypatch
):
    """No process survives that."""
    await claim(store, 1)
    await claim(store, 1, process="q/1")
    monkeypatch.setattr(lock, "_boot_id", lambda: b"another")
    again = survivor("r", store)

    assert await lost(again) == ["a/1", "b/1"]
    assert (await again.crawl(CRAWL)).leased == 0


@pytest.mark.parametrize("lacks", ["*-lock"])
async def test_opening_a_copy_takes_back_all(store, survivor, lacks):
    """The workers of the original never come to the copy; it has no lock beside it."""
    await claim(store, 1, process="q/1")
    again = survivor("r", store, lacks=[lacks])
    assert await lost(again) == ["a/1"]


async def test_orderly_close_takes_back_the_closed_store_leases_only(store, path, clock):
    """Also where another connection of the very same process lives on."""
    await claim(store, 1)
    (same,) = await claim(store, 1, process="p/1")
    (other,) = await claim(store, 1, process="q/1")
    await store.close()
    again = EmbeddedStore.open(path, clock, process="q")

    assert await lost(again) == ["a/1"]
    assert await again.extend([same.id, other.id], lease_for=LEASE) == {same.id, other.id}
    await again.close()


async def test_loan_of_a_living_borrower_is_kept_whole(store, clock, survivor):
    """C7: its queue is served to no other process until the loan is over."""
    await add(store, "a/3")
    loan = await claim(store, 6, lend=True, process="q/1", per_queue=2)
    again = survivor("r", store)

    view = await queue(again, "a")
    assert (view.lent, view.pending, view.state) == (2, 1, "busy")
    assert names(await claim(again, 9)) == []
    await again.finish([done(lease) for lease in loan])
    assert ((await queue(again, "a")).lent, (await queue(again, "a")).done) == (0, 2)
    clock.advance(DELAY)
    assert names(await claim(again, 9)) == ["a/3"]


async def test_lease_by_name_of_a_living_process_is_kept_until_its_deadline(store, clock, survivor):
    """D5: it takes no slot and touches no host."""
    name = (await record(store, "a/1")).fingerprint
    (lease,) = await claim(store, 1, fingerprints=[name], process="q/1", lease_for=20.0)
    clock.advance(5)
    again = survivor("r", store)

    assert (await queue(again, "a")).named == 1
    assert names(await claim(again, 1)) == ["a/2"]
    clock.advance(15)
    await again.expire(limit=9)
    assert (await again.finish([done(lease)]))[0].applied is False


async def test_old_lock_without_a_holder_takes_back_all(store, survivor):
    """As a release before this one left it: one line, the last page."""
    await claim(store, 1, process="q/1")
    os.truncate(f"{store.path}-lock", 70)
    assert await lost(survivor("r", store)) == ["a/1"]


async def test_last_page_is_still_remembered_beside_the_holder(store, survivor):
    """The first line of the lock is as it was, also for a release that knows no second one."""
    await claim(store, 1, process="q/1")
    assert lock.remembered_beside(store.path) == store._file.last_page
    assert survivor("r", store)._lock.last_holder() == "r"


# ---- leases that outlive every process


@pytest.mark.parametrize("process", ["", "q/1"])
async def test_lease_that_outlives_its_process_keeps_its_exact_deadline(
    store, clock, survivor, process
):
    """H4: of the holder and of a client; not taken back, not lengthened, overdue in time."""
    (lease,) = await claim(store, 1, process=process, outlives_process=True, lease_for=20.0)
    clock.advance(15)
    again = survivor("r", store)

    assert await lost(again) == []
    clock.advance(4.999)
    assert await again.expire(limit=9) == 0
    clock.advance(0.001)
    assert await again.expire(limit=9) == 1
    assert (await again.finish([done(lease)]))[0].applied is False
    assert (await queue(again, "a")).wakes_in == DELAY


async def test_extension_of_a_lease_that_outlives_its_process_is_in_the_file(
    store, clock, survivor
):
    """H2, H4: as often as it was extended, through as many processes."""
    (lease,) = await claim(store, 1, outlives_process=True, lease_for=20.0)
    clock.advance(15)
    await store.extend([lease.id], lease_for=20.0)
    second = survivor("r", store)
    clock.advance(15)
    assert await second.extend([lease.id], lease_for=100.0) == {lease.id}
    third = survivor("s", second)

    clock.advance(99.999)
    assert await third.expire(limit=9) == 0
    assert (await third.finish([done(lease)]))[0].applied


async def test_lease_that_outlives_its_process_holds_the_slot_and_the_pace(store, clock, survivor):
    """D1, D2: its host is visited by no other; finished, the host waits from then on."""
    (lease,) = await claim(store, 1, outlives_process=True)
    again = survivor("r", store)

    assert ((await queue(again, "a")).state, (await queue(again, "a")).in_flight) == ("busy", 1)
    assert names(await claim(again, 9)) == ["b/1", "c/1"]
    assert (await again.finish([done(lease)]))[0].applied
    assert (await queue(again, "a")).wakes_in == DELAY
    assert (await record(again, "a/1")).attempts == 1


@pytest.mark.parametrize("kind", ["loan", "by name"])
async def test_loan_and_lease_by_name_outlive_their_process(store, clock, survivor, kind):
    """C7, D5: they are what they were."""
    name = (await record(store, "a/1")).fingerprint
    how = {"lend": True} if kind == "loan" else {"fingerprints": [name]}
    leases = await claim(store, 6, per_queue=2, outlives_process=True, lease_for=20.0, **how)
    again = survivor("r", store)

    view = await queue(again, "a")
    assert (view.lent, view.named) == ((2, 0) if kind == "loan" else (0, 1))
    clock.advance(19.999)
    assert await again.expire(limit=9) == 0
    assert all(one.applied for one in await again.finish([done(lease) for lease in leases]))


@pytest.mark.parametrize("lacks", ["*-lock"])
async def test_copy_keeps_leases_that_outlive_their_process(store, clock, survivor, lacks):
    """H4: where the process that held the file is not known, only these stay."""
    (lease,) = await claim(store, 1, outlives_process=True)
    await claim(store, 1)
    again = survivor("r", store, lacks=[lacks])

    assert await lost(again) == ["b/1"]
    assert (await again.finish([done(lease)]))[0].applied


async def test_checkpoint_keeps_leases_that_outlive_their_process(store, clock, tmp_path):
    """H4: a copy that was made while the store was open, opened beside it."""
    (lease,) = await claim(store, 1, outlives_process=True)
    await checkpoint(store.path, tmp_path / "copy.outrider")
    copy = EmbeddedStore.open(tmp_path / "copy.outrider", clock, process="r")

    assert await lost(copy) == []
    assert (await copy.finish([done(lease)]))[0].applied
    await copy.close()


async def test_extension_that_could_not_be_written_is_not_kept(store, clock, monkeypatch):
    """H4: memory is read again from the file, and the deadline in the file counts."""
    (lease,) = await claim(store, 1, outlives_process=True, lease_for=20.0)
    with monkeypatch.context() as patch:
        patch.setattr(store._file, "append", _no_room)
        with pytest.raises(StoreFull):
            await store.extend([lease.id], lease_for=100.0)

    clock.advance(20)
    assert await store.expire(limit=9) == 1


def _no_room(_rows):
    raise StoreFull("no room")


def test_holder_is_known_by_the_purpose_it_declared(path, clock):
    """M3: from the instant it has the lock; of the next holder, that of the next one counts."""
    for purpose in ("command", "work", "", "command"):
        held = lock.Lock(path)
        assert held.take()
        held.declare(purpose)
        assert lock.holder_of(path).purpose == purpose
        held.free()
        assert lock.holder_of(path) is None


@pytest.mark.parametrize("text", [b"", b"\n" * 512 + b"damaged", b"\n" * 512 + b"work boot 0\n"])
def test_holder_that_declared_nothing_intact_has_no_purpose(path, text):
    """M3: as one of an earlier release, which writes no such line."""
    held = lock.Lock(path)
    assert held.take()
    Path(f"{path}-lock").write_bytes(text)
    assert lock.holder_of(path).purpose == ""
    held.free()


def test_declared_purpose_leaves_the_other_lines_of_the_lock(path):
    """H4: the last page and the last process are read as before it."""
    held = lock.Lock(path)
    assert held.take()
    held.declare("command")
    held.remember(7)
    held.sign("p")
    held.declare("work")
    assert (held.remembered(), held.last_holder()) == (7, "p")
    assert lock.remembered_beside(path) == 7
    held.free()
