"""Tasks of a queue in memory: a listing reads the queues of a bounded number of tasks."""

import pytest

from outrider.store.memory import MemoryStore, tables
from outrider.testing.builders import task
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import configure

CRAWL = "default"
COUNT = 100


@pytest.mark.parametrize(("read", "searched"), [(7, 1 << 20), (1 << 20, 30), (30, 7)])
async def test_listing_takes_bounded_steps(monkeypatch, read, searched):
    """E8: every task of the queue is listed once, from any cursor on, whatever the bounds are."""
    monkeypatch.setattr(tables, "MAX_READ", read)
    monkeypatch.setattr(tables, "MAX_SEARCHED", searched)
    store = MemoryStore(FakeClock())
    await configure(store)
    await store.add([task(f"https://h{n % 10}.example/{n}") for n in range(COUNT)])

    for start in (90, 0, 50, COUNT, 2 * COUNT):
        found, after = [], start
        while after is not None:
            page = await store.queue_tasks(CRAWL, "h3.example", after=after, limit=3)
            found += [view.number for view in page.items]
            after = page.after
        assert found == [n for n in range(4, COUNT + 1, 10) if n > start]
