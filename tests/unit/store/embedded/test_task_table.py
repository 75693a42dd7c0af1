"""Tasks read together: quickly, without loading queues, and never outdated."""

import pytest

from outrider.core.breakdown import Breakdown
from outrider.core.states import TaskState
from outrider.store.embedded import EmbeddedStore
from outrider.store.embedded.file import FileReader
from outrider.store.embedded.task_table import SPAN_SIZES, FileTasks
from outrider.store.protocol import ClaimRequest, PriorityUpdate, TaskFilter
from outrider.testing.builders import done, rules, task

CRAWL = "default"
COUNT = 100
WHY = Breakdown("base", (("type", 4.0), ("depth", 1.0)))
PENDING = TaskFilter(state=TaskState.PENDING)


@pytest.fixture
async def store(tmp_path, clock):
    """A file with a hundred tasks of ten hosts."""
    store = EmbeddedStore.open(tmp_path / "crawl.outrider", clock)
    await store.configure(CRAWL, rules(delay=0.0))
    await store.add([task(f"https://h{n % 10}.example/{n}") for n in range(COUNT)])
    yield store
    await store.close()


async def prices(store, which=PENDING):
    """Number and priority of those that match."""
    return {view.number: view.priority for view in (await store.tasks(CRAWL, which)).items}


async def reprice(store, numbers, seen, priority):
    """Give them another priority."""
    return await store.update_priorities(
        CRAWL, [PriorityUpdate(n, seen, priority, WHY) for n in numbers]
    )


async def test_task_changed_after_a_read_is_read_again(store):
    """C8: a priority that was read before an update is no longer the one seen."""
    await prices(store)
    assert await reprice(store, range(1, 51), 0.0, 5.0) == 50
    assert await reprice(store, range(1, COUNT + 1), 0.0, 7.0) == 50
    assert await reprice(store, range(1, COUNT + 1), 5.0, 9.0) == 50

    assert set((await prices(store)).values()) == {7.0, 9.0}


async def test_task_leased_after_a_read_gets_no_new_priority(store):
    """C8: only what still waits; and once it waits again, it is as it was."""
    await prices(store)
    claimed = await store.claim(ClaimRequest(CRAWL, "w", 10))
    await store.finish([done(lease) for lease in claimed.leases[:5]])

    assert await reprice(store, range(1, COUNT + 1), 0.0, 5.0) == COUNT - 10
    await store.release([lease.id for lease in claimed.leases[5:]])
    assert await reprice(store, range(1, COUNT + 1), 0.0, 6.0) == 5
    assert sorted(set((await prices(store)).values())) == [5.0, 6.0]


async def test_filter_by_state_reads_only_tasks_of_that_state(store, monkeypatch):
    """O4: a crawl with many done tasks and few pending ones is not read through."""
    await store.drop(CRAWL, TaskFilter(pattern=r"/\d$"), dry_run=False)
    read, original = [], FileTasks._read
    monkeypatch.setattr(
        FileTasks, "_read", lambda tasks, number: read.append(number) or original(tasks, number)
    )
    found = await prices(store, TaskFilter(state=TaskState.DROPPED))

    assert list(found) == read == list(range(1, 11))


async def test_priority_update_survives_reopening(store, clock):
    """C8: priority, breakdown and place in its list."""
    await reprice(store, [77], 0.0, -5.0)
    await store.close()
    again = EmbeddedStore.open(store.path, clock)

    (view,) = [v for v in (await again.tasks(CRAWL, PENDING)).items if v.number == 77]
    assert (view.priority, view.breakdown.terms[:2]) == (-5.0, WHY.terms)
    claimed = await again.claim(ClaimRequest(CRAWL, "w", 1))
    assert claimed.leases[0].task == 77
    await again.close()


async def test_reading_tasks_loads_no_queue(store, clock):
    """Whoever goes through a million hosts must not bring them all into memory."""
    store._new_items = 1 << 30
    while store._snapshot is not None or store._new_items > 1 << 29:
        await store.crawls()
    await store.close()
    again = EmbeddedStore.open(store.path, clock)
    (crawl,) = again._crawls.by_name.values()

    assert len(await prices(again)) == COUNT
    assert crawl.queues.resident_count == 0
    await reprice(again, [3], 0.0, 1.0)
    assert crawl.queues.resident_count == 1
    await again.close()


async def test_page_with_many_tasks_is_read_once(store, clock, monkeypatch):
    """C8: reading a step and repricing it opens the file once for each page."""
    await store.close()
    again = EmbeddedStore.open(store.path, clock)
    read, page = [], FileReader.page
    monkeypatch.setattr(FileReader, "page", lambda f, n: read.append(n) or page(f, n))
    await prices(again)
    await reprice(again, range(1, COUNT + 1), 0.0, 5.0)

    assert len(read) == len(set(read)) < COUNT / 10
    await again.close()


@pytest.mark.parametrize("step", [1, 250, 1000])
async def test_small_crawl_takes_little_memory_and_grows(tmp_path, clock, step):
    """I1: a store holds thousands of crawls; tasks keep states and pages as one of them grows."""
    store = EmbeddedStore.open(tmp_path / "grown.outrider", clock)
    await store.configure("small", rules())
    await store.add([task("https://h.example/x", crawl="small")])
    assert len(store._crawls.by_name["small"].tasks.states[0]) == SPAN_SIZES[0]
    await store.configure(CRAWL, rules(delay=0.0, max_in_flight=1000))
    count = 600 if step == 1 else 3 * SPAN_SIZES[1] // 2
    for start in range(0, count, step):
        await store.add(
            [task(f"https://h{n % 10}.example/{n}") for n in range(start, start + step)]
        )
        claimed = await store.claim(ClaimRequest(CRAWL, "w", max(1, step // 10)))
        await store.finish([done(lease) for lease in claimed.leases])
    before = await look(store)
    await store.close()
    for has_snapshot in (False, True):
        store = EmbeddedStore.open(tmp_path / "grown.outrider", clock)
        assert await look(store) == before
        store._new_items = 1 << 30 if not has_snapshot else 0
        await store.close()


async def look(store):
    """Return the number and state of each task, and those of a queue."""
    every = [
        (view.number, view.state)
        for view in (await store.tasks(CRAWL, TaskFilter(), limit=9999)).items
    ]
    queue = await store.queue_tasks(CRAWL, "h3.example", limit=9999)
    waiting = (await store.tasks(CRAWL, PENDING, limit=9999)).items
    return every, [view.number for view in queue.items], [view.number for view in waiting]
