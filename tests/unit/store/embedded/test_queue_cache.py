"""The queue cache: reading queues must not fill the memory."""

import pytest

from outrider import Frontier
from outrider.store.embedded import queue_cache

HOSTS = 600


@pytest.fixture
async def sleepy(tmp_path, monkeypatch):
    """A file whose memory holds few queues, and many of which sleep."""
    monkeypatch.setattr(queue_cache, "MAX_RESIDENT", 50)
    monkeypatch.setattr(queue_cache, "IDLE_KEPT", 20)
    async with Frontier.open(tmp_path / "crawl.outrider") as frontier:
        for first in range(0, HOSTS, 20):
            await frontier.add([f"https://h{n}.example/{first}" for n in range(first, first + 20)])
        await frontier.drop(pattern=r"h1\d\d\.")  # some without work
        for n in range(40):
            await frontier.add([f"https://h0.example/again/{n}"])
        yield frontier


async def test_reading_all_queues_loads_none(sleepy):
    """Reports of a million hosts must not bring them all into memory."""
    (crawl,) = sleepy.store._crawls.by_name.values()
    queues = crawl.queues
    before = queues.resident_count, [set(chunk) for chunk in queues.packed.values()]
    views = [view async for view in sleepy.queues()]
    stats = await sleepy.stats()

    assert before[0] < HOSTS / 2
    after = queues.resident_count, [set(chunk) for chunk in queues.packed.values()]
    assert after == before
    assert len(views) == sum(stats.queues.values()) == HOSTS
    assert sum(view.pending for view in views) == stats.pending
    assert {view.key: view.next_url for view in views}["h7.example"] == "https://h7.example/0"


async def test_view_of_a_packed_queue_equals_that_of_the_loaded_one(sleepy):
    """The same queue, number for number."""
    seen = {view.key: view async for view in sleepy.queues()}

    for key in ("h3.example", "h120.example", "h599.example"):
        assert await sleepy.queue(key).view() == seen[key]
