"""Workers on one PostgreSQL server: no task is lost or repeated, no deadlock stops them (M4)."""

import asyncio
from collections import Counter
from random import Random

import pytest

from differential import StoreDriver
from outrider.clock import SystemClock
from outrider.core.states import CrawlStatus
from outrider.store.postgres import PostgresStore
from outrider.store.protocol import ClaimRequest, TaskFilter
from outrider.testing.audit import check
from outrider.testing.builders import done, failed, rules, task
from outrider.testing.clock import FakeClock
from postgres_audit import faults
from random_operations import random_ops

CRAWL = "test"
HOSTS = 30
PAGES = 12


def page(host, number, **fields):
    """Return a page of a small web."""
    return task(f"https://h{host}.example/{number}", key=f"h{host}.example", crawl=CRAWL, **fields)


def links_of(dice):
    """Return random links into that web; many repeat."""
    pages = [(dice.randrange(HOSTS), dice.randrange(PAGES)) for _ in range(6)]
    return [
        page(*where, priority=float(dice.randrange(3)), lane=dice.randrange(2)) for where in pages
    ]


async def worker(store, name, visits, dice):
    """Claim and finish until the run is over."""
    while True:
        request = ClaimRequest(CRAWL, name, dice.randint(1, 8), per_queue=2, lease_for=30.0)
        claimed = await store.claim(request)
        visits.update(lease.url for lease in claimed.leases)
        if claimed.status is CrawlStatus.FINISHED:
            return
        ends = [
            failed(lease, retry_in=0.01)
            if dice.random() < 0.1 and lease.failures < 2
            else done(lease, links=links_of(dice))
            for lease in claimed.leases
        ]
        assert all(answer.applied for answer in await store.finish(ends))
        if not ends:
            await asyncio.sleep(min(claimed.wake_in or 0.05, 0.05))


async def test_workers_that_share_a_crawl_lose_and_repeat_no_task(url, line):
    """H1, B3, O5: every page is known once and done once, and counters and tables agree."""
    stores = [await PostgresStore.open(url, SystemClock()) for _ in range(3)]
    await stores[0].configure(CRAWL, rules(min_delay=0.0, max_in_flight=2, delay=0.0))
    await stores[0].add([page(host, 0) for host in range(HOSTS)])
    visits = Counter()

    async with asyncio.timeout(60):
        await asyncio.gather(*(worker(stores[n % 3], f"w{n}", visits, Random(n)) for n in range(8)))

    view = await stores[0].crawl(CRAWL)
    assert view.known == view.done == len(visits)
    assert view.runs >= 1
    assert faults(line) == {}
    await check(stores[0], CRAWL)
    for store in stores:
        await store.close()


async def hands_on(store, clock, seed):
    """Run random verbs, as one of several clients."""
    hands = StoreDriver(store)
    for op in random_ops(seed):
        await hands.do(op)
        clock.advance(min(hands.seconds(op), 100.0))


@pytest.mark.parametrize("seed", range(3))
async def test_tables_stay_consistent_under_concurrent_random_verbs(url, line, seed):
    """M1: workers and operators change the same queues at every step."""
    clock = FakeClock()
    stores = [await PostgresStore.open(url, clock) for _ in range(2)]

    await asyncio.gather(*(hands_on(stores[n % 2], clock, 10 * seed + n) for n in range(4)))

    assert faults(line) == {}
    for crawl in await stores[0].crawls():
        await check(stores[0], crawl)
    for store in stores:
        await store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "delete from pending",
        "delete from ready",
        "update queue set discovery_tie = 7",
        "update queue set pending = pending + 1",
        "insert into snooze select crawl, 1, id from queue",
        "insert into note select 1, number, 0, 't', 'a', 'x' from generate_series(1, 2) number",
    ],
)
async def test_audit_finds_each_kind_of_damage(url, line, damage):
    """The audit reports each kind of damage, so its silence means something."""
    store = await PostgresStore.open(url, SystemClock())
    await store.configure(CRAWL, rules())
    await store.add([page(1, 1), page(2, 1)])
    assert faults(line) == {}

    line.execute(damage)

    assert faults(line) != {}
    await store.close()


async def test_waiting_worker_is_notified_of_new_work(url):
    """C6: an add in one process notifies another, which need not poll."""
    waiting, adding = [await PostgresStore.open(url, SystemClock()) for _ in range(2)]
    await adding.configure(CRAWL, rules())
    rung, other = asyncio.Event(), asyncio.Event()
    end = waiting.subscribe(CRAWL, rung.set)
    waiting.subscribe("another", other.set)

    async with asyncio.timeout(60):
        await asyncio.gather(rung.wait(), other.wait())  # once the server listens
        for number in range(1, 6):  # also when they come faster than they are sent
            rung.clear()
            other.clear()
            await adding.add([page(number, 1)])
            await rung.wait()
    assert not other.is_set()
    end()
    for store in (waiting, adding):
        await store.close()


async def test_gaps_in_task_numbers_lose_no_result_page_items(url, line):
    """M4: a rolled back verb leaves a gap in the numbers; result pages and counts stay complete."""
    store = await PostgresStore.open(url, SystemClock())
    await store.configure(CRAWL, rules())
    await store.add([page(1, 1)])
    for sequence in ("tasks", "queues", "turns", "arrivals"):
        line.execute("select nextval(%s::regclass) from generate_series(1, 5)", (f"{sequence}_1",))
    await store.add([page(2, 1)])

    first = await store.tasks(CRAWL, TaskFilter(), limit=3)
    rest = await store.tasks(CRAWL, TaskFilter(), after=first.after, limit=1000)
    assert [view.url for view in (*first.items, *rest.items)] == [page(1, 1).url, page(2, 1).url]
    assert (await store.crawl(CRAWL)).known == 2
    assert len((await store.queues(CRAWL)).items) == 2
    assert len((await store.export(CRAWL)).items) == 6
    await check(store, CRAWL)
    await store.close()


@pytest.mark.parametrize("count", [3, 60])
async def test_tasks_are_read_as_they_were_written(url, count):
    """B1: any characters, in small and in large batches."""
    words = ["a\\b", "tab\there", "line\nbreak", 'a "quote"', "\\N", "NULL", "ünï ✓", "{}", ""]
    tasks = [
        page(number, 1, tag=word or None, type=word or "page", meta=b'{"a":"\\u0000\\\\n\xc3\xbc"}')
        for number, word in enumerate((words * count)[:count])
    ]
    store = await PostgresStore.open(url, SystemClock())
    await store.configure(CRAWL, rules())
    await store.add(tasks)

    views = (await store.tasks(CRAWL, TaskFilter(), limit=1000)).items
    found = {view.url: (view.tag, view.type, view.meta["a"]) for view in views}
    assert found == {one.url: (one.tag, one.type, "\0\\nü") for one in tasks}
    await store.close()


async def test_worker_name_may_have_any_character(url):
    """H1: characters that PostgreSQL cannot store are replaced."""
    store = await PostgresStore.open(url, SystemClock())
    await store.configure(CRAWL, rules())
    await store.add([task("https://a.example/1", key="a.example", crawl=CRAWL)])

    claimed = await store.claim(ClaimRequest(CRAWL, "w\0\ud800", 1))

    assert [lease.worker for lease in claimed.leases] == ["w\0\ud800"]
    assert await store.release([lease.id for lease in claimed.leases])
    await store.close()
