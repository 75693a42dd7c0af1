"""A full disk: a typed error, nothing lost, nothing half applied; the store continues later."""

import asyncio
import contextlib
import itertools
import random
import resource
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from child_environment import child_environment
from crash.disk import Full
from crash.full_view import full_view
from crash.worker import HoldableClock, Worker
from outrider.errors import StoreFull
from outrider.store.embedded import EmbeddedStore
from outrider.store.embedded.file import CrawlFile
from outrider.store.protocol import ClaimRequest
from outrider.testing import FakeClock
from outrider.testing.builders import done, task
from outrider.testing.conformance.steps import configure
from scale import ROUNDS

CHILD = Path(__file__).parent / "full_child.py"
_names = itertools.count()

both = pytest.mark.parametrize("durability", ["process", "sync"])
# What takes seconds is done for one of them, and for both in `make stress`.
either = pytest.mark.parametrize("durability", ["process", "sync"] if ROUNDS > 1 else ["sync"])


@pytest.fixture
def disk(request):
    """A disk that may be full, in the ways SQLite knows of."""
    full = Full(f"full-{next(_names)}", error=getattr(request, "param", apsw.FullError))
    yield full
    full.unregister()


@both
@pytest.mark.parametrize("disk", [apsw.FullError, apsw.IOError], indirect=True)
async def test_verb_that_cannot_be_written_raises_and_changes_nothing(durability, disk, tmp_path):
    """The error names the file and the fix; leases held before are finished afterwards."""
    path, clock = tmp_path / "crawl.outrider", FakeClock()
    store = EmbeddedStore.open(path, clock, durability=durability, vfs=disk.name)
    await configure(store)
    await store.add([task(f"https://h{n}.test/") for n in range(20)])
    leases = (await store.claim(ClaimRequest("default", "w", 5))).leases
    before = await full_view(store, "default")
    disk.room = 0
    for call in (
        lambda: store.add([task("https://new.test/")]),
        lambda: store.claim(ClaimRequest("default", "w", 5)),
        lambda: store.finish([done(leases[0], links=[task("https://link.test/")])]),
        lambda: store.release([leases[1].id]),
    ):
        with pytest.raises(StoreFull, match="make room") as caught:
            await call()
        assert str(path) in str(caught.value)
        assert caught.value.retryable
    disk.room = None
    assert not (await full_view(store, "default")).differs(before)
    (finished,) = await store.finish([done(leases[0], links=[task("https://link.test/")])])
    assert finished.applied
    assert await store.release([leases[1].id]) == {leases[1].id}
    await store.close()
    again = EmbeddedStore.open(path, clock)
    view = await again.crawl("default")
    assert (view.known, view.done) == (21, 1)
    await again.close()


@pytest.mark.slow
@either
@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_store_recovers_from_repeated_full_disks(seed, durability, disk, tmp_path):
    """Whatever was being written, snapshots and folds too: what was acknowledged is there."""
    path, clock, dice = tmp_path / "crawl.outrider", HoldableClock(), random.Random(seed)
    store = EmbeddedStore.open(path, clock, durability=durability, vfs=disk.name)
    worker = await Worker.open(store, tmp_path / "ledger", seed, durability, clock=clock)
    for _ in range(6):
        for _ in range(dice.randint(1, 40)):
            await worker.step()
        disk.room = dice.choice((0, 4000, 40_000))
        refused = disk.refused
        for _ in range(400):
            with contextlib.suppress(StoreFull):
                await worker.step()
            if disk.refused > refused + 3:
                break
        with contextlib.suppress(StoreFull):
            await worker.compare()
        disk.room = None
        await worker.compare()
        while worker.held:
            await worker.finish()
    assert disk.refused
    await worker.close()
    await store.close()
    again = await Worker.open(path, tmp_path / "ledger", seed)
    await again.close()


@pytest.mark.slow
@both
@pytest.mark.usefixtures("tight")
async def test_failed_snapshot_fails_no_verb(durability, tmp_path, monkeypatch):
    """It is begun again later; the one before still holds."""
    path, clock, tried = tmp_path / "crawl.outrider", HoldableClock(), []
    worker = await Worker.open(path, tmp_path / "ledger", 3, durability, clock=clock)

    def refuse(*_):
        tried.append(1)
        raise StoreFull("no room")

    for _ in range(60):
        await worker.step()
    with monkeypatch.context() as patch:
        patch.setattr(CrawlFile, "put_piece", refuse)
        for _ in range(100):
            await worker.step()
        await worker.compare()
    assert tried
    for _ in range(60):
        await worker.step()
    await worker.close()
    again = await Worker.open(path, tmp_path / "ledger", 3)
    await again.close()


def run_child(path, seed, durability, how):
    """A process of its own, which fails if anything was lost."""
    command = [sys.executable, str(CHILD), str(path), str(seed), durability, how]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=child_environment(),
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@either
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_store_recovers_when_its_file_may_grow_again(seed, durability, tmp_path):
    """RLIMIT_FSIZE, in a process of its own: no restart is needed."""
    run_child(tmp_path / "crawl.outrider", seed, durability, "limit")


@pytest.mark.slow
@either
def test_store_recovers_when_a_full_filesystem_is_freed(durability, tmp_path):
    """A real disk, full; the lock and SQLite's shared memory stand on it too."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(tmp_path)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no `mount` here")
    if mounted.returncode:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.strip()}")
    try:
        run_child(tmp_path / "crawl.outrider", 7, durability, "ballast")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)  # noqa: S607


def test_failed_creation_on_a_full_disk_leaves_nothing(tmp_path):
    """A typed error, and no half-made file to fall over later."""
    code = (
        "import sys, resource\n"
        "from outrider.store.embedded import EmbeddedStore\n"
        "from outrider.errors import StoreFull\n"
        "from outrider.testing import FakeClock\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (6000, {resource.RLIM_INFINITY}))\n"
        "try:\n"
        "    EmbeddedStore.open(sys.argv[1], FakeClock())\n"
        "except StoreFull as error:\n"
        "    assert sys.argv[1] in str(error) and 'room' in str(error), error\n"
        "else:\n"
        "    sys.exit('it was made')\n"
    )
    path = tmp_path / "crawl.outrider"
    made = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    assert [part.name for part in tmp_path.iterdir() if not part.name.endswith("-lock")] == []
    asyncio.run(EmbeddedStore.open(path, FakeClock()).close())
