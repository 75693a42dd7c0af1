"""Notes are as durable as the rest of a crawl: in the log, in snapshots, in copies, in a rescue."""

import shutil

import pytest

from outrider import checkpoint
from outrider.store.embedded import EmbeddedStore, snapshot
from outrider.store.embedded import store as room
from outrider.store.factory import examine, rescue
from outrider.store.protocol import STORE_VALUES, SharedValueWrite
from outrider.testing.builders import task
from outrider.testing.conformance.steps import configure

CRAWL = "default"
MANY = 3 * snapshot.VALUES_STEP


def said(n, text="first"):
    """A note of that name."""
    return SharedValueWrite("weather", f"town {n}", f"{text} é {n}")


async def noted(path, clock):
    """All notes of a file."""
    store = EmbeddedStore.open(path, clock)
    try:
        return await store.values_since(CRAWL, limit=10_000)
    finally:
        await store.close()


async def take_snapshot(store):
    """Every verb brings a piece."""
    store._new_items = 1 << 30
    while store._snapshot is not None or store._new_items > 1 << 29:
        yield
        await store.crawls()


@pytest.fixture
async def store(tmp_path, clock):
    """A file with a task and many notes."""
    store = EmbeddedStore.open(tmp_path / "crawl.outrider", clock)
    await configure(store)
    await store.add([task()])
    await store.put_values(CRAWL, [said(n) for n in range(MANY)])
    yield store
    await store.close()


async def test_shared_values_survive_a_killed_process(store, clock, tmp_path):
    """What was acknowledged is written: the log alone has them all."""
    before = await store.values_since(CRAWL, limit=10_000)
    for end in ("", "-wal"):
        shutil.copy(f"{store.path}{end}", tmp_path / f"copy{end}")

    assert await noted(tmp_path / "copy", clock) == before
    assert len(before) == MANY


async def test_shared_values_survive_in_a_snapshot(store, clock):
    """Whose pages are not read again."""
    async for _ in take_snapshot(store):
        pass
    before = await store.values_since(CRAWL, limit=10_000)
    await store.close()
    again = EmbeddedStore.open(store.path, clock)

    assert again._new_items == 0  # no pages after the snapshot
    assert await again.values_since(CRAWL, limit=10_000) == before
    await again.close()


async def test_snapshot_taken_during_writes_keeps_shared_values(store, clock, monkeypatch):
    """Those written over before and after they were copied, and new ones."""
    monkeypatch.setattr(room, "SLICE_BYTES", 1)  # a piece after each verb
    step = 0
    async for _ in take_snapshot(store):
        step += 1
        notes = [said(n, f"step {step}") for n in (0, 70, MANY - 1, MANY + step)]
        await store.put_values(CRAWL, notes)
    before = await store.values_since(CRAWL, limit=10_000)
    await store.close()

    assert step > 3
    assert await noted(store.path, clock) == before


async def test_numbers_continue_after_reopening(store, clock):
    """N1: a reader that has read them all sees the next one."""
    last = (await store.values_since(CRAWL, limit=10_000))[-1].number
    await store.close()
    again = EmbeddedStore.open(store.path, clock)

    assert await again.put_values(CRAWL, [said(0), said(1, "new")]) == [1, last + 1]
    await again.close()


async def test_checkpoint_and_rescue_keep_shared_values(store, clock, tmp_path):
    """A copy of one moment, and whatever is intact."""
    before = await store.values_since(CRAWL, limit=10_000)
    await checkpoint(store.path, tmp_path / "copy")
    await store.close()
    rescue(store.path, tmp_path / "new", clock)

    assert await noted(tmp_path / "copy", clock) == before
    assert await noted(tmp_path / "new", clock) == before
    assert examine(tmp_path / "new", clock).is_healthy


async def test_rescue_reads_shared_values_of_a_lost_page_from_the_snapshot(
    store, clock, tmp_path, hurt
):
    """And a later word on a page that is intact stays the last one."""
    async for _ in take_snapshot(store):
        pass
    await store.put_values(CRAWL, [said(5, "later")])
    before = await store.values_since(CRAWL, limit=10_000)
    await store.close()
    hurt(store.path, 3)
    rescue(store.path, tmp_path / "new", clock)

    assert await noted(tmp_path / "new", clock) == before


async def test_values_of_the_store_are_kept_and_shown_in_no_list(store, clock, tmp_path):
    """N1: after a restart, in a checkpoint and in a rescue; doctor and checkpoint list crawls."""
    await store.put_values(STORE_VALUES, [said(1), said(2)])
    before = await store.values_since(STORE_VALUES)
    copied = await checkpoint(store.path, tmp_path / "copy")
    async for _ in take_snapshot(store):
        pass
    await store.close()
    rescued = rescue(store.path, tmp_path / "new", clock)
    health = examine(tmp_path / "new", clock)

    for path in (store.path, tmp_path / "copy", tmp_path / "new"):
        again = EmbeddedStore.open(path, clock)
        assert await again.values_since(STORE_VALUES) == before
        assert await again.crawls() == [CRAWL]
        assert len(await again.values_since(CRAWL)) == MANY
        await again.close()
    for listed in (copied.crawls, rescued.crawls, health.crawls):
        assert [one.crawl for one in listed] == [CRAWL]
    assert rescued.without_rules == []


async def test_a_damaged_file_does_not_list_the_values_of_the_store(store, clock, tmp_path, hurt):
    """N1: what is lost is told of crawls."""
    await store.put_values(STORE_VALUES, [said(1)])
    await store.add([task(f"https://a.example/{n}") for n in range(2, 60)])
    await store.put_values(STORE_VALUES, [said(2)])
    await store.close()
    hurt(store.path, 5)

    health = examine(store.path, clock)
    rescued = rescue(store.path, tmp_path / "new", clock)

    assert not health.is_healthy
    assert [one.crawl for one in health.crawls] == [CRAWL]
    assert [one.crawl for one in rescued.crawls] == [CRAWL]
    again = EmbeddedStore.open(tmp_path / "new", clock)
    assert [note.text for note in await again.values_since(STORE_VALUES)][-1] == said(2).text
    await again.close()
