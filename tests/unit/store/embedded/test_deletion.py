"""Removal of a crawl from a file: its pages are emptied in slices, and the file shrinks (I1)."""

import asyncio
import os

import apsw
import pytest

from outrider.core.states import CrawlStatus
from outrider.store.delete_crawl import delete_crawl
from outrider.store.embedded import EmbeddedStore
from outrider.store.embedded import file as embedded_file
from outrider.store.embedded.doctor import examine
from outrider.store.embedded.rescue import rescue
from outrider.store.protocol import ClaimRequest, TaskFilter
from outrider.testing.builders import done, rules, task

META = b'{"text":"' + b"x" * 500 + b'"}'


@pytest.fixture
def path(tmp_path):
    """Where the file is."""
    return tmp_path / "crawl.outrider"


async def fill(store, crawl, count=400):
    """Fill a crawl, and visit some of it."""
    await store.configure(crawl, rules(delay=0.0, max_in_flight=100))
    pages = [task(f"https://h{n % 7}.example/{n}", crawl=crawl, meta=META) for n in range(count)]
    await store.add(pages)
    leases = (await store.claim(ClaimRequest(crawl, "w", 50))).leases
    await store.finish([done(lease) for lease in leases])


async def take_snapshot(store):
    """Take a snapshot between verbs, as after many changes."""
    store._new_items = 1 << 30
    while store._snapshot is not None or store._new_items > 1 << 29:
        await store.crawls()


async def facts(store, crawl):
    """What must not change of another crawl."""
    view = await store.crawl(crawl)
    tasks = [
        await store.task(crawl, task(f"https://h{n % 7}.example/{n}").fingerprint) for n in (1, 60)
    ]
    return view, tasks


def pages_in(path):
    """How many SQLite pages the file has."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return db.execute("PRAGMA page_count").get
    finally:
        db.close()


@pytest.mark.parametrize("is_snapshotted", [False, True])
async def test_file_shrinks_and_other_crawls_stay(path, clock, is_snapshotted):
    """I1: pages, and pieces of a snapshot, are given back; the doctor finds nothing wrong."""
    store = EmbeddedStore.open(path, clock)
    await fill(store, "kept", 80)
    small = pages_in(path)
    await fill(store, "big", 4000)
    if is_snapshotted:
        await take_snapshot(store)
    await store.add([task("https://late.example/", crawl="kept")])
    before, large = await facts(store, "kept"), pages_in(path)

    assert await delete_crawl(store, "big", limit=100) == 4000

    assert await store.crawls() == ["kept"]
    assert await facts(store, "kept") == before
    assert pages_in(path) < small + (large - small) // 6
    await store.close()
    assert examine(path, clock).is_healthy
    store = EmbeddedStore.open(path, clock)
    assert await store.crawls() == ["kept"]
    assert await facts(store, "kept") == before
    await store.close()


async def test_file_shrinks_while_it_stays_open(path, clock):
    """I1: the space is given back with the last step, not with the next verbs that write much."""
    store = EmbeddedStore.open(path, clock)
    await fill(store, "kept", 80)
    await fill(store, "big", 4000)
    await store.close()
    large = path.stat().st_size
    store = EmbeddedStore.open(path, clock)
    await delete_crawl(store, "big", limit=100)
    while store._file._checkpointer.is_running:  # a thread
        await asyncio.to_thread(os.sched_yield)

    assert path.stat().st_size < large // 6
    await store.close()


async def test_removal_continues_after_each_kill(path, clock, tmp_path):
    """I1: reopened after any step, it is cancelled and listed until the last one."""
    store = EmbeddedStore.open(path, clock)
    await fill(store, "kept", 50)
    await fill(store, "old", 300)
    before, more, steps = await facts(store, "kept"), True, 0

    while more:
        more = (await store.delete("old", limit=10)).after is not None
        steps += 1
        await store.close()
        store = EmbeddedStore.open(path, clock)
        assert await store.crawls() == (["kept", "old"] if more else ["kept"])
        assert await facts(store, "kept") == before
        if more:
            view = await store.crawl("old")
            assert (view.status, view.reason) == (CrawlStatus.CANCELLED, "deleting")
            (answer,) = await store.add([task("https://h1.example/1", crawl="old")])
            assert answer.reason == "cancelled"
        if steps % 5 == 0:
            assert examine(path, clock).is_healthy

    assert steps > 4
    await store.close()


async def test_tokens_are_not_given_again_after_a_reopening(path, clock):
    """H1, I1: the file remembers the last token of crawls that were removed."""
    store = EmbeddedStore.open(path, clock)
    await store.configure("c", rules())
    await store.add([task("https://a.example/", crawl="c")])
    (old,) = (await store.claim(ClaimRequest("c", "w", 1))).leases
    await delete_crawl(store, "c")
    await store.close()
    store = EmbeddedStore.open(path, clock)
    await store.configure("c", rules())
    await store.add([task("https://a.example/", crawl="c")])
    (new,) = (await store.claim(ClaimRequest("c", "w", 1))).leases

    (answer,) = await store.finish([done(old)])

    assert not answer.applied
    assert (await store.finish([done(new)]))[0].applied
    await store.close()


async def test_snapshot_during_a_removal_leaves_the_crawl_out(path, clock):
    """I1: one that was under way is begun again, and reopening reads it."""
    store = EmbeddedStore.open(path, clock)
    await fill(store, "kept", 200)
    await fill(store, "old", 200)
    before = await facts(store, "kept")
    store._new_items = 1 << 30
    await store.delete("old")
    await store.delete("old")
    await take_snapshot(store)
    await delete_crawl(store, "old", limit=10)
    await store.close()
    store = EmbeddedStore.open(path, clock)

    assert await store.crawls() == ["kept"]
    assert await facts(store, "kept") == before
    await store.close()


async def test_name_is_used_again_while_the_file_is_open(path, clock):
    """I1: the new crawl has pages of its own, also after a reopening."""
    store = EmbeddedStore.open(path, clock)
    await fill(store, "c", 100)
    await delete_crawl(store, "c")
    await fill(store, "other", 20)
    await fill(store, "c", 60)
    view = await store.crawl("c")
    await store.close()
    store = EmbeddedStore.open(path, clock)

    assert await store.crawls() == ["other", "c"]
    assert (await store.crawl("c")).known == view.known == 60
    await store.close()


async def test_file_that_cannot_shrink_uses_the_space_again(path, clock, monkeypatch):
    """I1: as files of earlier builds, which were made without `auto_vacuum`."""
    monkeypatch.setattr(embedded_file, "_AUTO_VACUUM", "NONE")
    store = EmbeddedStore.open(path, clock)
    await fill(store, "old", 2000)
    large = pages_in(path)
    await delete_crawl(store, "old")
    await fill(store, "new", 1500)

    assert pages_in(path) <= large + 50
    await store.close()


async def test_rescue_has_nothing_of_a_removed_crawl(path, clock, tmp_path):
    """I1: an empty page is no page of any crawl."""
    store = EmbeddedStore.open(path, clock)
    await fill(store, "kept", 60)
    await fill(store, "old", 200)
    await delete_crawl(store, "old")
    await store.close()

    rescued = rescue(path, tmp_path / "new.outrider", clock)

    assert [crawl.crawl for crawl in rescued.crawls] == ["kept"]


@pytest.mark.parametrize("durability", ["process", "sync"])
async def test_moved_and_forgotten_tasks_survive_a_reopening(path, clock, durability):
    """B3, C10: also where older pages and a snapshot have them in another queue."""
    store = EmbeddedStore.open(path, clock, durability=durability)
    await store.configure("c", rules(delay=0.0, max_in_flight=100))
    pages = [task(f"https://a.example/{n}", crawl="c") for n in range(40)]
    await store.add(pages)
    await take_snapshot(store)
    moved = [
        task(f"https://a.example/{n}", crawl="c", known="set", key="b", delay=n % 2)
        for n in range(20)
    ]
    await store.add(moved)
    await store.add([task("https://a.example/3", crawl="c", known="set", key="d", priority=1.0)])
    await store.add([task("https://a.example/5", crawl="c", known="set", done=True)])
    forgotten = task("https://a.example/30", crawl="c")
    await store.forget("c", TaskFilter(fingerprint=forgotten.fingerprint), dry_run=False)
    before = [await store.queue("c", key) for key in ("a.example", "b", "d")]
    whole = await store.crawl("c")
    await store.close()
    store = EmbeddedStore.open(path, clock, durability=durability)

    assert [await store.queue("c", key) for key in ("a.example", "b", "d")] == before
    assert await store.crawl("c") == whole
    answers = await store.add([task("https://a.example/31", crawl="c"), forgotten])
    assert [answer.added for answer in answers] == [False, True]
    await store.close()
