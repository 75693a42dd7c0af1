"""Tasks of a queue: searched in arrays, which snapshots store; older snapshots did not."""

import pytest

from outrider.core.states import TaskState
from outrider.store.embedded import EmbeddedStore, task_table
from outrider.store.embedded.task_table import FileTasks
from outrider.store.protocol import ClaimRequest
from outrider.testing.builders import done, rules, task

CRAWL = "default"
KEY = "h3.example"
COUNT = 100
WANTED = list(range(4, COUNT + 1, 10))  # numbers of the tasks of that queue


@pytest.fixture
def path(tmp_path):
    """Where the file is."""
    return tmp_path / "crawl.outrider"


async def fill(path, clock, *, count=COUNT):
    """Open a file, and add tasks of ten queues."""
    store = EmbeddedStore.open(path, clock)
    await store.configure(CRAWL, rules(delay=0.0))
    await store.add([task(f"https://h{n % 10}.example/{n}") for n in range(count)])
    return store


async def take_snapshot(store):
    """Take a snapshot between verbs, as after many changes."""
    store._new_items = 1 << 30
    while store._snapshot is not None or store._new_items > 1 << 29:
        await store.crawls()


async def listed(store, *, state=None, limit=1000):
    """The numbers of the queue's tasks, and in how many pages they came."""
    found, after, pages = [], 0, 0
    while after is not None:
        page = await store.queue_tasks(CRAWL, KEY, state=state, after=after, limit=limit)
        found += [view.number for view in page.items]
        after, pages = page.after, pages + 1
    return found, pages


async def test_listing_survives_a_reopening(path, clock):
    """E8: whether tasks are in the snapshot or in the pages after it, moved ones included."""
    store = await fill(path, clock)
    await take_snapshot(store)
    await store.add([task(f"https://h{n % 10}.example/{n}") for n in range(COUNT, COUNT + 20)])
    (found,) = (await store.claim(ClaimRequest(CRAWL, "w", 1))).leases
    await store.finish([done(found)])
    await store.add([task(found.url, known="revisit", key=KEY)])
    await store.close()
    store = EmbeddedStore.open(path, clock)

    assert await listed(store) == ([1, *WANTED, 104, 114], 1)
    await store.close()


async def test_queues_that_a_snapshot_lacks_are_read_once(path, clock, monkeypatch):
    """E8: a file of an older release is completed by the first listing, a part at a call."""
    with monkeypatch.context() as older:
        older.setattr(FileTasks, "set_queues", lambda *_: None)
        store = await fill(path, clock)
        await take_snapshot(store)
        await store.close()
    monkeypatch.setattr(task_table, "MAX_KEPT", 30)
    store = EmbeddedStore.open(path, clock)

    assert await listed(store) == (WANTED, 4)
    assert await listed(store, state=TaskState.PENDING) == (WANTED, 1)
    await store.close()


async def test_listing_goes_through_spans(path, clock, monkeypatch):
    """E8: cursors lead from one array to the next, and a call searches so many tasks at most."""
    for name, value in (("SPAN_BITS", 5), ("SPAN", 32), ("SPAN_MASK", 31), ("MAX_SEARCHED", 40)):
        monkeypatch.setattr(task_table, name, value)
    store = await fill(path, clock)

    assert await listed(store) == (WANTED, 3)
    assert await listed(store, limit=2) == (WANTED, 5)
    await store.close()
