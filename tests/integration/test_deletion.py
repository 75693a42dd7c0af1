"""Removal of a crawl while other connections work on it, and after a kill (I1)."""

import asyncio
import sys
from random import Random

import pytest

from outrider import Frontier, removed_crawls
from outrider.clock import SystemClock
from outrider.store.delete_crawl import delete_crawl
from outrider.store.factory import open_store
from outrider.store.protocol import ClaimRequest, Heartbeat, SharedValueWrite, TaskFilter
from outrider.testing.builders import done, rules, task

CRAWL = "test"
PAGES = 400
_ALL = TaskFilter()


def page(number, crawl=CRAWL, **fields):
    """Return a page of one of seven hosts."""
    host = f"h{number % 7}.example"
    return task(f"https://{host}/{number}", key=host, crawl=crawl, **fields)


async def fill(store, crawl=CRAWL):
    """Fill a crawl with everything it may have."""
    await store.configure(crawl, rules(delay=0.0, max_in_flight=50))
    await store.add([page(number, crawl) for number in range(PAGES)])
    await store.add([page(PAGES, crawl, delay=900.0), page(PAGES + 1, crawl, done=True)])
    leases = (await store.claim(ClaimRequest(crawl, "w", 60))).leases
    await store.finish([done(lease) for lease in leases[:40]])
    await store.add_roots(crawl, "host", ["h1.example"])
    await store.put_values(crawl, [SharedValueWrite("topic", "name", "text")])
    await store.heartbeat(crawl, Heartbeat("w", "idle", "here", 1, 1, 0, 0))


def _facts(view):
    return view.known, view.pending, view.leased, view.done, view.visits, view.status


async def work(store, seed, stop):
    """Add and claim until told to stop; return how many leases were made."""
    dice, count = Random(seed), 0
    while not stop.is_set():
        numbers = [dice.randrange(2 * PAGES) for _ in range(9)]
        await store.add([page(number) for number in numbers])
        claimed = (await store.claim(ClaimRequest(CRAWL, f"w{seed}", 3))).leases
        await store.finish([done(lease, links=[page(dice.randrange(PAGES))]) for lease in claimed])
        count += len(claimed)
        await asyncio.sleep(0)
    return count


@pytest.mark.parametrize("kind", ["postgres", "redis", "cluster", "file"])
async def test_crawl_is_removed_while_others_add_and_claim(places, tmp_path, kind):
    """I1: none of them fails or begins it again; one that is opened meanwhile is a new crawl."""
    place = str(tmp_path / "crawl.outrider") if kind == "file" else places.take(kind)
    stores = [await open_store(place, SystemClock()) for _ in range(3)]
    await fill(stores[0])
    await fill(stores[0], "kept")
    before, stop = _facts(await stores[0].crawl("kept")), asyncio.Event()
    workers = [asyncio.create_task(work(store, n, stop)) for n, store in enumerate(stores[1:])]

    await asyncio.sleep(0.05)
    for _ in range(3):
        assert await delete_crawl(stores[0], CRAWL, limit=50) > 0
        await asyncio.sleep(0.02)
        assert await stores[0].crawls() == ["kept"]
        await fill(stores[0])
    stop.set()
    await asyncio.gather(*workers)
    await delete_crawl(stores[0], CRAWL)

    assert await stores[0].crawls() == ["kept"]
    assert _facts(await stores[1].crawl("kept")) == before
    assert [one.reason for one in await stores[2].add([page(1)])] == ["cancelled"]
    await stores[1].configure(CRAWL, rules())
    (answer,) = await stores[2].add([page(1)])
    assert (answer.added, (await stores[1].crawl(CRAWL)).known) == (True, 1)
    for store in reversed(stores):
        await store.close()


CHILD = """
import asyncio, os, sys
from outrider.clock import SystemClock
from outrider.store.factory import open_store

async def main(place, crawl, steps):
    store = await open_store(place, SystemClock())
    for _ in range(steps):
        await store.delete(crawl, limit=7)
    os.kill(os.getpid(), 9)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.parametrize("kind", ["postgres", "redis", "file"])
async def test_removal_continues_after_a_kill(places, tmp_path, kind):
    """I1: another process completes what one that was killed had begun."""
    place = str(tmp_path / "crawl.outrider") if kind == "file" else places.take(kind)
    store = await open_store(place, SystemClock())
    await fill(store)
    await fill(store, "kept")
    before = await store.crawl("kept")
    await store.close()

    for steps in (1, 1, 1):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHILD, place, CRAWL, str(steps)
        )
        assert await child.wait() == -9
        store = await open_store(place, SystemClock())
        view = await store.crawl(CRAWL)
        assert (view.status, view.reason) == ("cancelled", "deleting")
        await store.close()
    store = await open_store(place, SystemClock())
    await delete_crawl(store, CRAWL)

    assert await store.crawls() == ["kept"]
    after = await store.crawl("kept")
    assert (after.known, after.done) == (before.known, before.done)
    await store.close()


async def test_no_row_is_left_in_postgresql(url, line):
    """I1: in no table of the schema, nor a sequence."""
    store = await open_store(url, SystemClock())
    await fill(store)
    await delete_crawl(store, CRAWL, limit=30)
    await store.close()

    tables = line.execute(
        "select table_name from information_schema.columns "
        "where table_schema = current_schema() and column_name in ('crawl', 'queue') "
        "and table_name <> 'crawl_queue'"
    ).fetchall()
    counts = {
        name: line.execute(f'select count(*) from "{name}"').fetchone()[0]  # noqa: S608
        for name in {"crawl", "queue", "task", *(name for (name,) in tables)}
    }
    assert len(counts) > 12
    assert {name for name, count in counts.items() if count} == set()
    sequences = line.execute(
        "select sequencename from pg_sequences where schemaname = current_schema()"
    ).fetchall()
    assert [name for (name,) in sequences if name[-1].isdigit()] == []


async def test_no_key_is_left_in_redis(places):
    """I1: of the crawl; the store itself, and other crawls, stay."""
    store = await open_store(places.take("redis"), SystemClock())
    await fill(store)
    await fill(store, "kept")

    await delete_crawl(store, CRAWL, limit=30)

    keys = await store.scripts.command("KEYS", f"{store.scripts.base}*")
    names = {key.removeprefix(store.scripts.base.encode()) for key in keys}
    assert not [name for name in names if name.startswith(b"1:")]
    assert [name for name in names if name.startswith(b"2:")]
    await store.close()


async def test_reader_of_a_removed_crawl_on_redis_sees_nothing_of_it(places):
    """I1: another process has cached kinds and keys of the old crawl, and reads the new one."""
    place = places.take("redis")
    stores = [await open_store(place, SystemClock()) for _ in range(2)]
    await stores[0].configure(CRAWL, rules())
    await stores[0].add([page(1, type="nav"), page(2, tag="old")])
    await stores[1].tasks(CRAWL, _ALL)
    await stores[1].queues(CRAWL)
    await delete_crawl(stores[0], CRAWL)
    await stores[0].configure(CRAWL, rules(delay=0.0))
    await stores[0].add([page(5, type="article"), page(6)])

    found = (await stores[1].tasks(CRAWL, _ALL)).items
    queues = (await stores[1].queues(CRAWL)).items
    leases = (await stores[1].claim(ClaimRequest(CRAWL, "w", 2))).leases

    assert [(view.type, view.key, view.tag) for view in found] == [
        ("article", "h5.example", None),
        ("page", "h6.example", None),
    ]
    assert [view.key for view in queues] == ["h5.example", "h6.example"]
    assert sorted(lease.type for lease in leases) == ["article", "page"]
    for store in stores:
        await store.close()


@pytest.mark.parametrize("kind", ["postgres", "redis", "cluster", "file"])
async def test_crawl_removed_by_two_processes_is_logged_once(places, tmp_path, kind):
    """I1: and an owner that adds all the while begins no other one under default rules."""
    place = str(tmp_path / "crawl.outrider") if kind == "file" else places.take(kind)
    store, stop = await open_store(place, SystemClock()), asyncio.Event()
    async with Frontier.open(store, settings={"politeness": {"delay": 60.0}}) as owner:
        await owner.add([f"https://h{n}.example/" for n in range(PAGES)])

        async def add():
            while not stop.is_set():
                await owner.add([f"https://late.example/{number}" for number in range(9)])
                await asyncio.sleep(0)

        adding = asyncio.create_task(add())
        async with Frontier.attach(place) as one, Frontier.attach(place) as other:
            counts = await asyncio.gather(one.delete_crawl(by="ann"), other.delete_crawl(by="bob"))
        await asyncio.sleep(0.02)
        stop.set()
        await adding

        assert await store.crawls() == []
        assert (await owner.stats()).reason == "unknown"
        (removed,) = [found async for found in removed_crawls(store)]
    assert max(counts) >= removed.known >= PAGES
    await store.close()
