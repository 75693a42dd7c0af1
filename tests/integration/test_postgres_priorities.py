"""Priority updates by several processes, and the queues they activate (C8, C9, F10)."""

import asyncio

from outrider.core.states import QueueState
from outrider.store.postgres import PostgresStore
from outrider.store.protocol import ClaimRequest, PriorityUpdate
from outrider.testing.builders import done, rules, task
from outrider.testing.clock import FakeClock
from postgres_audit import faults

CRAWL = "test"
KEY = "a.example"


def page(number, **fields):
    """Return a page of one host."""
    return task(f"https://{KEY}/{number}", key=KEY, crawl=CRAWL, **fields)


async def lower(store, times):
    """Lower a priority by 1 with compare-and-set, so many times."""
    lowered = 0
    while lowered < times:
        seen = (await store.task(CRAWL, page(1).fingerprint)).priority
        lowered += await store.update_priorities(CRAWL, [PriorityUpdate(1, seen, seen - 1.0)])


async def test_concurrent_priority_updates_of_one_task_lose_none(stores, line):
    """C8: an update whose seen priority is outdated is not applied."""
    await stores[0].add([page(1), page(2)])
    await asyncio.gather(*(lower(store, 25) for store in stores))

    assert (await stores[0].task(CRAWL, page(1).fingerprint)).priority == -50.0
    assert faults(line) == {}


async def test_priorities_of_concurrent_links_add_up(stores, line):
    """F10: added up under the lock of the queue, by an add and by a finish."""
    await stores[0].add([page(1), *(page(n, priority=-99.0) for n in range(2, 22))])
    brings = page(1, priority=-1.0, known="gather")

    async def visit(store, name):
        for _ in range(10):
            while not (found := (await store.claim(ClaimRequest(CRAWL, name, 1))).leases):
                pass
            await store.finish([done(lease, links=[brings, page(50)]) for lease in found])
            await store.add([brings])

    await asyncio.gather(*(visit(store, f"w{n}") for n, store in enumerate(stores)))

    assert (await stores[0].task(CRAWL, page(1).fingerprint)).priority == -40.0
    assert faults(line) == {}


async def test_due_task_with_an_updated_priority_is_leased_once(url, line):
    """C8, E1: its queue was not rescheduled meanwhile, and its wake time has passed."""
    clock = FakeClock()
    store = await PostgresStore.open(url, clock)
    await store.configure(CRAWL, rules(delay=0.0))
    await store.add([page(1), page(2, delay=40.0)])
    clock.advance(60)

    assert await store.update_priorities(CRAWL, [PriorityUpdate(2, 0.0, -1.0)]) == 1
    for number in (2, 1):
        (lease,) = (await store.claim(ClaimRequest(CRAWL, "w", 5))).leases
        assert lease.url == page(number).url
        assert [end.applied for end in await store.finish([done(lease)])] == [True]
    assert faults(line) == {}
    await store.close()


async def test_focus_task_activates_a_queue_with_a_spent_session(url, line):
    """C9: by an add or by a finish, though the queue was not loaded otherwise."""
    store = await PostgresStore.open(url, FakeClock())
    await store.configure(CRAWL, rules(delay=0.0, balance=1, opens_below=-5.0))
    await store.add([page(1), page(2), task("https://b.example/1", key="b.example", crawl=CRAWL)])
    first, other = (await store.claim(ClaimRequest(CRAWL, "w", 2))).leases
    await store.finish([done(first)])
    assert (await store.queue(CRAWL, KEY)).state is QueueState.INACTIVE

    await store.add([page(3, priority=-5.0)])
    assert (await store.queue(CRAWL, KEY)).state is QueueState.INACTIVE
    await store.finish([done(other, links=[page(4, priority=-6.0)])])
    assert (await store.queue(CRAWL, KEY)).state is QueueState.READY
    (lease,) = (await store.claim(ClaimRequest(CRAWL, "w", 2))).leases
    assert lease.url == page(4).url
    await store.finish([done(lease)])
    assert (await store.queue(CRAWL, KEY)).state is QueueState.INACTIVE

    await store.add([page(5, priority=-6.0)])
    assert (await store.queue(CRAWL, KEY)).state is QueueState.READY
    assert faults(line) == {}
    await store.close()
