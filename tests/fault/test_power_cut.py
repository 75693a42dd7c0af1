"""durability = "sync": the power may go at any instant; what was acknowledged is on the disk."""

import asyncio
import itertools
import random

import pytest

from call_log import LogFile, read
from crash.disk import Sync, Traced, after_power_cut, lay_out
from crash.worker import HoldableClock, Worker
from outrider.store.embedded import EmbeddedStore
from outrider.store.protocol import TaskFilter
from outrider.testing import FakeClock, audit
from outrider.testing.builders import task
from outrider.testing.conformance.steps import configure
from scale import ROUNDS

CUTS_OF_A_TRACE = 25
_names = itertools.count()


@pytest.fixture
def disk():
    """A disk that keeps a trace, under a name of its own."""
    traced = Traced(f"traced-{next(_names)}")
    yield traced
    traced.unregister()


@pytest.fixture
async def started(tmp_path):
    """A file that exists: how one is made is not what is asked here."""
    path = tmp_path / "crawl.outrider"
    store = EmbeddedStore.open(path, FakeClock())
    await store.close()
    return path, path.read_bytes()


class MarkedLog(LogFile):
    """Says of each line how long the disk's trace was when it was written."""

    def __init__(self, path, trace):
        super().__init__(path)
        self.trace, self.marks = trace, []

    def write(self, line):
        """See `LogFile`."""
        self.marks.append((len(self.trace), line))
        super().write(line)


@pytest.mark.slow
@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("seed", range(2 * ROUNDS))
async def test_synced_file_has_everything_acknowledged_after_a_power_cut(
    seed, tmp_path, disk, started
):
    """Unsynced sectors are lost at random; lost 0, half-applied 0, and it opens (M3)."""
    path, first = started
    clock = HoldableClock()
    store = EmbeddedStore.open(path, clock, durability="sync", vfs=disk.name)
    worker = await Worker.open(store, tmp_path / "ledger", seed, "sync", clock=clock)
    worker.log = log = MarkedLog(tmp_path / "ledger", disk.trace)
    before = list(read(tmp_path / "ledger"))
    for _ in range(120):
        await worker.step()
    await store.close()
    dice = random.Random(seed)
    for number in range(CUTS_OF_A_TRACE):
        cut = dice.randint(log.marks[0][0], len(disk.trace))
        copy = tmp_path / f"cut-{number}" / "crawl.outrider"
        copy.parent.mkdir()
        lay_out(
            copy,
            after_power_cut(first, disk.trace[:cut], dice, sector=dice.choice((512, 4096, 64))),
        )
        book = LogFile(copy.parent / "ledger")
        for line in [*before, *[line for mark, line in log.marks if mark <= cut]]:
            book.write(line)
        again = await Worker.open(copy, copy.parent / "ledger", seed)
        await again.close()


@pytest.mark.slow
@pytest.mark.usefixtures("tight")
async def test_verbs_that_share_a_sync_are_complete_once_acknowledged(tmp_path, disk, started):
    """Group commit returns to no verb before the disk has its pages."""
    path, first = started
    store = EmbeddedStore.open(path, FakeClock(), durability="sync", vfs=disk.name)
    await configure(store)
    acknowledged = []

    async def add(number):
        urls = [f"https://h{number % 7}.test/{number}/{place}" for place in range(5)]
        await store.add([task(url) for url in urls])
        acknowledged.append((len(disk.trace), urls))

    for start in range(0, 120, 8):
        await asyncio.gather(*[add(number) for number in range(start, start + 8)])
    await store.close()
    dice = random.Random(0)
    for number in range(40):
        cut = dice.randint(0, len(disk.trace))
        copy = tmp_path / f"cut-{number}.outrider"
        lay_out(copy, after_power_cut(first, disk.trace[:cut], dice))
        again = EmbeddedStore.open(copy, FakeClock())
        found = {view.url for view in await audit.everything(_tasks_of(again))}
        for mark, urls in acknowledged:
            present = found.intersection(urls)
            assert len(present) in (0, len(urls)), f"{urls} is half there: {present}"
            assert present or mark > cut, f"{urls} was acknowledged, and is gone"
        await again.close()


def _tasks_of(store):
    return lambda after: store.tasks("default", TaskFilter(), after=after, limit=1000)


async def test_synced_verb_waits_for_the_disk_before_it_returns(disk, started):
    """Otherwise the test above would prove nothing: each answer is preceded by a sync."""
    path, _ = started
    store = EmbeddedStore.open(path, FakeClock(), durability="sync", vfs=disk.name)
    await configure(store)
    for number in range(5):
        before = len(disk.trace)
        await store.add([task(f"https://a.test/{number}")])
        assert any(isinstance(move, Sync) for move in disk.trace[before:])
    await store.close()


async def test_duplicate_is_reported_only_after_the_disk_has_the_first(disk, started, tmp_path):
    """An answer that rests on another call's pages waits for them: known is known for good."""
    path, first = started
    store = EmbeddedStore.open(path, FakeClock(), durability="sync", vfs=disk.name)
    await configure(store)
    await store.add([task("https://before.test/")])
    told = []

    async def add():
        (answer,) = await store.add([task("https://a.test/")])
        told.append((len(disk.trace), answer.reason))

    await asyncio.gather(add(), add())
    await store.close()
    dice = random.Random(0)
    for cut, reason in told:
        copy = tmp_path / f"cut-{reason}.outrider"
        lay_out(copy, after_power_cut(first, disk.trace[:cut], dice))
        again = EmbeddedStore.open(copy, FakeClock())
        assert (await again.crawl("default")).known == 2, f"it was told to be {reason or 'added'}"
        await again.close()
