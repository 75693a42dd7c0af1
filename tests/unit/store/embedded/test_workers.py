"""Workers and their totals are as durable as the rest of a crawl (M6)."""

import shutil

import pytest

from outrider.core.worker_totals import WorkerTotals
from outrider.store.embedded import EmbeddedStore, log_pages
from outrider.store.engine import journal
from outrider.store.protocol import Heartbeat
from outrider.testing.builders import task
from outrider.testing.conformance.steps import configure

CRAWL = "default"


def heartbeat(name, done):
    """A worker's heartbeat."""
    totals = WorkerTotals({"done": done})
    return Heartbeat(name, "busy", "north", 1, 4, 1, done, totals=totals)


async def seen(path, clock):
    """What a file has of workers."""
    store = EmbeddedStore.open(path, clock)
    try:
        return await store.workers(CRAWL), await store.worker_totals(CRAWL)
    finally:
        await store.close()


@pytest.fixture
async def store(tmp_path, clock):
    """A file with a task and five workers, of which two were too many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "MAX_WORKERS", 3)
        store = EmbeddedStore.open(tmp_path / "crawl.outrider", clock)
        await configure(store)
        await store.add([task()])
        for number in range(5):
            clock.advance(1.0)
            await store.heartbeat(CRAWL, heartbeat(f"w{number}", number + 1))
        yield store
        await store.close()


async def test_workers_survive_a_killed_process(store, clock, tmp_path):
    """What was acknowledged is in the log, and so is what was removed."""
    before = await store.workers(CRAWL), await store.worker_totals(CRAWL)
    for end in ("", "-wal"):
        shutil.copy(f"{store.path}{end}", tmp_path / f"copy{end}")

    assert await seen(tmp_path / "copy", clock) == before
    assert [one.worker for one in before[0]] == ["w2", "w3", "w4"]
    assert before[1].outcomes == {"done": 15}


async def test_workers_survive_in_a_snapshot(store, clock):
    """Whose pages are not read again; later heartbeats are in the pages that follow."""
    store._new_items = 1 << 30
    while store._snapshot is not None or store._new_items > 1 << 29:
        await store.crawls()
    await store.heartbeat(CRAWL, heartbeat("w4", 50))
    before = await store.workers(CRAWL), await store.worker_totals(CRAWL)
    await store.close()

    assert await seen(store.path, clock) == before
    assert before[1].outcomes == {"done": 60}


async def test_workers_survive_a_reload(store):
    """After a failed write the file is read again."""
    before = await store.workers(CRAWL)
    store._is_stale = True
    assert await store.workers(CRAWL) == before
    assert (await store.worker_totals(CRAWL)).outcomes == {"done": 15}


async def test_heartbeat_writes_one_small_page(store):
    """M6: a worker that lives for weeks must not fill the disk by itself."""
    page = store._next_page
    await store.heartbeat(CRAWL, heartbeat("w4", 6))

    assert store._next_page == page + 1
    assert len(store._file.reader.page(page)) < 1000


async def test_idle_worker_is_written_seldom(store, clock):
    """M6: heartbeats that say the same leave their times out of the log, but for some."""
    await store.heartbeat(CRAWL, heartbeat("w4", 6))
    page = store._next_page
    for _ in range(119):
        clock.advance(5.0)
        await store.heartbeat(CRAWL, heartbeat("w4", 6))
    pages = store._next_page
    clock.advance(5.0)
    await store.heartbeat(CRAWL, heartbeat("w4", 6))
    before = await store.workers(CRAWL)
    await store.close()

    assert (pages, store._next_page) == (page, page + 1)
    assert (await seen(store.path, clock))[0] == before


async def test_sum_of_removed_workers_is_written_when_it_changes(store):
    """M6: the page of a heartbeat is as small however much removed workers have counted."""
    page = store._next_page
    await store.heartbeat(CRAWL, heartbeat("w4", 6))
    await store.heartbeat(CRAWL, heartbeat("w5", 1))

    sums = [_update_of(store, number).gone_totals for number in (page, page + 1)]
    assert sums == [None, await _sum_of_removed(store)]


def _update_of(store, number):
    page = log_pages.decode_page(number, store._file.reader.page(number))
    return log_pages.decode_update(page.update)


async def _sum_of_removed(store):
    everything = (await store.worker_totals(CRAWL)).outcomes["done"]
    listed = sum(one.totals.outcomes["done"] for one in await store.workers(CRAWL))
    return WorkerTotals({"done": everything - listed})
