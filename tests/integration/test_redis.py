"""The store on a real Valkey: servers it refuses, failures it survives, calls of bounded size."""

import asyncio
import socket

import msgspec
import pytest
import redis.asyncio

from outrider.clock import SystemClock
from outrider.core.queue_action import Pause
from outrider.core.states import CrawlStatus, TaskState
from outrider.errors import StoreFull, StoreUnavailable, StoreUnusable
from outrider.store.factory import open_store
from outrider.store.memory import MemoryStore
from outrider.store.protocol import (
    MAX_VALUE_CHARS,
    ClaimRequest,
    PriorityUpdate,
    SharedValueWrite,
    TaskFilter,
)
from outrider.store.redis import connect
from outrider.store.redis.keys import CRAWL_KEYS, META, UPGRADE, base_of
from outrider.store.redis.rows import FORMAT, CrawlRow, QueueRow, RulesRow
from outrider.testing.builders import OUTCOMES, rules, task, verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    INACTIVE,
    NO_DELAY,
    READY,
    add,
    claim,
    configure,
    crawl,
    lease_facts,
    names,
    open_crawls,
    page,
    pages,
    state,
)
from outrider.testing.model import Model
from servers import Proxy, ValkeyServer
from servers.empty_stores import with_parameter
from servers.proxy import CERTIFICATES

DONE = OUTCOMES["done"]


@pytest.fixture
async def opened(places):
    """Opens stores at one empty place, and closes them at the end."""
    url, stores = places.take("redis"), []

    async def make(clock=None, place=url):
        stores.append(await open_store(place, clock or SystemClock()))
        return stores[-1]

    yield make
    for store in stores:
        await store.close()


async def test_store_of_an_older_format_is_upgraded_when_it_is_opened(opened, places):
    """M5: what older releases did not store is completed, by several processes at once."""
    store, base = await opened(), None
    await open_crawls(store, "one", "two")
    for name in ("one", "two"):
        await store.add([task(f"https://h{n % 3}.example/{n}", crawl=name) for n in range(30)])
    scripts = store.scripts
    base = scripts.base
    wanted = [await store.queue_tasks("two", f"h{n}.example") for n in range(3)]
    lists = await scripts.command("KEYS", f"{base}*:{CRAWL_KEYS['queue_tasks']}*")
    named = await scripts.command("KEYS", f"{base}*:{CRAWL_KEYS['queue_names']}")
    await scripts.command("DEL", *lists, *named)
    await scripts.command("HSET", base + META, "format", 1)

    await asyncio.gather(*(connect.upgrade_store(scripts, step=7) for _ in range(3)))

    assert (len(lists), len(named)) == (6, 2)
    by_key = await store.queues_in_order("two", "key")
    assert [view.key for view in by_key.items] == [f"h{n}.example" for n in range(3)]
    assert [await store.queue_tasks("two", f"h{n}.example") for n in range(3)] == wanted
    assert await scripts.command("HGET", base + META, "format") == b"2"
    assert not await scripts.command("EXISTS", base + UPGRADE)
    await scripts.command("HSET", base + META, "format", 1)
    assert [
        (await (await opened()).queue_tasks("one", f"h{n}.example")).items[0].number
        for n in range(3)
    ] == [1, 2, 3]


async def test_store_without_counts_is_counted_when_it_is_upgraded(opened):
    """C1, F8: rows of an older release end before the fields that hold the counts."""
    store = await opened()
    await configure(store)
    priorities = (-2000.0, -200.0, 0.0, 300.0)
    await store.add([task(f"https://h{n}.example/", priority=p) for n, p in enumerate(priorities)])
    await store.add([task("https://h5.example/", delay=5.0, priority=500.0)])
    await store.steer("default", "h1.example", Pause())
    assert len(await claim(store)) == 1
    wanted, scripts = await store.crawl("default"), store.scripts
    crawl_key, rows_key = (f"{scripts.base}1:{CRAWL_KEYS[kind]}" for kind in ("crawl", "queues"))
    row = await scripts.command("GET", crawl_key)
    await scripts.command("SET", crawl_key, _cut(row, CrawlRow, "critical"))
    for number, row in (await scripts.command("HGETALL", f"{rows_key}0")).items():
        await scripts.command("HSET", f"{rows_key}0", number, _cut(row, QueueRow, "counted_as"))
    await scripts.command("HSET", scripts.base + META, "format", 1)

    assert await (await opened()).crawl("default") == wanted
    assert {name: n for name, n in wanted.queues.items() if n} == {
        "paused": 1,
        "busy": 1,
        "snoozed": 1,
        "ready": 2,
    }
    assert wanted.bands == {"critical": 0, "high": 1, "normal": 1, "low": 2}


def _cut(row, kind, field):
    """Return a row without a field and those behind it."""
    kept = kind.__struct_fields__.index(field)
    return msgspec.msgpack.encode(msgspec.msgpack.decode(row, type=list[msgspec.Raw])[:kept])


@pytest.fixture
async def served():
    """Starts servers for one test, and stops them at the end."""
    servers = []

    async def make(**options):
        named = {name.replace("_", "-"): value for name, value in options.items()}
        servers.append(ValkeyServer(options=named))
        return await asyncio.to_thread(servers[-1].start)

    yield make
    for server in servers:
        await asyncio.to_thread(server.stop, "immediate")


@pytest.fixture
async def alone(served):
    """A server for one test."""
    return await served()


async def told(server, *words):
    """Run one command on a server, or at a URL."""
    url = server if isinstance(server, str) else server.url
    async with redis.asyncio.Redis.from_url(url, protocol=2) as line:
        return await line.execute_command(*words)


async def refusal_of(url):
    """Return type and message of the error that opening a URL raises."""
    with pytest.raises((StoreUnusable, StoreUnavailable)) as refused:
        await open_store(url, SystemClock())
    return type(refused.value), str(refused.value)


# ---- what is refused


async def test_opening_without_a_server_is_unavailable():
    """M6: an error that may be retried, and names the place."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    kind, says = await refusal_of(f"redis://127.0.0.1:{port}/0")

    assert kind is StoreUnavailable
    assert f"127.0.0.1:{port}" in says
    assert "is it running?" in says


async def test_wrong_password_is_refused(served):
    """N2: the message names user and password as the cause, and quotes neither."""
    server = await served(requirepass="right")
    for user in ("", ":wrong@"):
        kind, says = await refusal_of(f"redis://{user}127.0.0.1:{server.port}/0")
        assert kind is StoreUnusable
        assert "redis://user:password@host" in says
        assert ":wrong@" not in says
    await (await open_store(server.url, SystemClock())).close()


async def test_server_that_is_no_redis_is_refused():
    """N2: the message says that something else answers there."""

    async def answer(reader, writer):
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with other:
        kind, says = await refusal_of(f"redis://127.0.0.1:{port}/0")

    assert kind is StoreUnusable
    assert "is no Redis" in says


async def test_read_only_replica_is_refused(alone, served):
    """M5: the message asks for the primary, and nothing is written."""
    replica = await served()
    await told(replica, "REPLICAOF", "127.0.0.1", alone.port)
    _, says = await refusal_of(replica.url)

    assert "name its primary" in says
    assert await told(alone, "DBSIZE") == 0


async def test_evicting_server_is_refused(alone):
    """M5: a server that evicts keys would lose tasks silently."""
    await told(alone, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    _, says = await refusal_of(alone.url)

    assert "maxmemory-policy noeviction" in says
    assert await told(alone, "DBSIZE") == 0


async def test_user_without_a_permission_is_refused(alone):
    """M5: checked when opening, since a script cannot be undone half-way."""
    await told(alone, "ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all", "-zremrangebyrank")
    _, says = await refusal_of(f"redis://bob:pw@127.0.0.1:{alone.port}/0")

    assert "ZREMRANGEBYRANK" in says
    assert "ACL SETUSER" in says
    assert await told(alone, "DBSIZE") == 0


async def test_user_without_info_and_config_can_work(alone):
    """M5: no INFO, no CONFIG, no channels: only the durability is unknown."""
    await told(
        alone, "ACL", "SETUSER", "bob", "on", ">pw", "~outrider:*", "+@all", "-info", "-config"
    )
    store = await open_store(f"redis://bob:pw@127.0.0.1:{alone.port}/0", SystemClock())
    await configure(store)
    await add(store, "a/1")

    assert names(await claim(store)) == ["a/1"]
    assert "could not be checked" in store.promise
    await store.close()


@pytest.mark.parametrize(
    "words",
    [
        ("SET", "meta", "mine"),
        ("HSET", "meta", "my", "own"),
        ("RPUSH", "crawls", "mine"),
        ("HSET", "crawls", "mine", "1"),
    ],
    ids=["meta-text", "meta-fields", "crawls-list", "crawls-without-meta"],
)
async def test_keys_of_another_program_are_refused(alone, words):
    """M5: refused with the fix, and left as they are."""
    command, key, *rest = words
    await told(alone, command, base_of() + key, *rest)
    before = await told(alone, "DUMP", base_of() + key)
    _, says = await refusal_of(alone.url)

    assert "choose another prefix with ?prefix=" in says
    assert await told(alone, "DUMP", base_of() + key) == before
    assert await told(alone, "DBSIZE") == 1


async def test_newer_format_is_refused(alone):
    """M5: an older Outrider changes neither a newer store nor a newer crawl."""
    store = await open_store(alone.url, SystemClock())
    await configure(store)
    await add(store, "a/1")
    row = await told(alone, "GET", base_of() + "1:c")
    await told(alone, "SET", base_of() + "1:c", row[:3] + b"\x02" + row[4:])
    with pytest.raises(StoreUnusable, match="newer Outrider"):
        await claim(store)
    await store.close()

    await told(alone, "HSET", base_of() + "meta", "format", FORMAT + 1)
    _, says = await refusal_of(alone.url)
    assert f"format {FORMAT + 1}" in says
    assert "upgrade" in says


async def test_expired_certificate_is_refused(alone):
    """M5: the message names the certificate; a valid one with its CA is accepted."""
    with Proxy(alone.url, certificate="expired") as proxy:
        url = with_parameter(proxy.url, "ssl_ca_certs", str(CERTIFICATES["expired"]))
        kind, says = await refusal_of(url)
    assert kind is StoreUnusable
    assert "renew the certificate" in says
    assert await told(alone, "DBSIZE") == 0

    with Proxy(alone.url, certificate="valid") as proxy:
        url = with_parameter(proxy.url, "ssl_ca_certs", str(CERTIFICATES["valid"]))
        store = await open_store(url, SystemClock())
        await configure(store)
        await add(store, "a/1")
        assert names(await claim(store)) == ["a/1"]
        await store.close()


# ---- what it survives


async def test_full_server_changes_nothing(alone):
    """M5: refused before the first write; calls succeed again once there is memory."""
    store = await open_store(alone.url, SystemClock())
    await configure(store)
    await add(store, "a/1", "b/1")
    (lease,) = await claim(store, 1)
    before = [await crawl(store), await store.queues("default")]
    await told(alone, "CONFIG", "SET", "maxmemory", "1mb")

    for work in (
        lambda: store.add(pages("c/1")),
        lambda: store.claim(ClaimRequest("default", "w", 1)),
        lambda: store.finish([verdict(lease, DONE, links=pages("c/1"))]),
        lambda: store.release([lease.id]),
        lambda: store.steer("default", "a.example", Pause()),
        lambda: store.put_values("default", [SharedValueWrite("t", "a", "x")]),
        lambda: store.update_priorities("default", [PriorityUpdate(2, 0.0, 1.0)]),
    ):
        with pytest.raises(StoreFull, match="nothing was changed"):
            await work()
    assert [await crawl(store), await store.queues("default")] == before
    again = await open_store(alone.url, SystemClock())
    assert await crawl(again) == before[0]
    await again.close()

    await told(alone, "CONFIG", "SET", "maxmemory", "0")
    (answer,) = await store.finish([verdict(lease, DONE, links=pages("c/1"))])
    assert answer.state is TaskState.DONE
    await store.close()


async def test_scripts_are_sent_again_after_a_restart(opened, places):
    """A restarted server has no scripts: the first call of each sends it in full."""
    store = await opened()
    await configure(store)
    await add(store, "a/1")
    await told(places.server("redis"), "SCRIPT", "FLUSH")

    assert names(await claim(store)) == ["a/1"]


async def test_answered_calls_survive_a_kill(served):
    """M5: with appendfsync always, every acknowledged call is there after kill -9."""
    server = await served(appendonly="yes", appendfsync="always")
    store = await open_store(server.url, SystemClock())
    assert "survives a crash" in store.promise
    await store.configure("default", rules(**NO_DELAY))
    await add(store, *(f"a/{number}" for number in range(50)))
    leases = await claim(store, 10)
    await store.finish([verdict(lease, DONE) for lease in leases[:5]])
    await asyncio.to_thread(server.restart, "kill")

    view = await crawl(store)
    assert (view.pending, view.leased, view.done) == (40, 5, 5)
    assert len(await store.release([lease.id for lease in leases[5:]])) == 5
    await store.close()


async def test_broken_connection_fails_one_call(opened, places):
    """M6: the call under way raises an error; the next ones succeed."""
    with Proxy(places.take("redis")) as proxy:
        store = await open_store(proxy.url, SystemClock())
        await configure(store)
        await add(store, "a/1")
        proxy.refuse()
        with pytest.raises(StoreUnavailable):
            await claim(store)
        proxy.accept()

        assert names(await claim(store)) == ["a/1"]
        await store.close()


async def test_exhausted_pool_raises_unavailable(places, monkeypatch):
    """M5: waiting too long for a connection raises a typed error."""
    monkeypatch.setattr(connect, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(connect, "CONNECT_TIMEOUT", 0.2)
    with Proxy(places.take("redis")) as proxy:
        store = await open_store(proxy.url, SystemClock())
        proxy.pause()
        works = [asyncio.ensure_future(crawl(store)) for _ in range(3)]
        with pytest.raises(StoreUnavailable):
            await works[2]
        proxy.resume()
        await asyncio.gather(*works[:2])
        await store.close()


async def test_clock_of_a_worker_does_not_matter(opened):
    """H7: times are the server's, however wrong the workers' clocks are."""

    class Wrong(SystemClock):
        def __init__(self, by):
            super().__init__()
            self.by = by

        def now_ms(self):
            return super().now_ms() + self.by

    early, late = await opened(Wrong(-600_000)), await opened(Wrong(600_000))
    await configure(early)
    await add(early, "a/1")
    (lease,) = await claim(late, lease_for=60.0)

    assert await early.expire(limit=10) == 0
    assert await early.extend([lease.id], lease_for=60.0) == {lease.id}
    assert abs((await crawl(early)).created_at - SystemClock().now_ms() / 1000) < 60


async def test_clock_stepping_back_stops_time(opened):
    """H7: the time of a crawl never goes back."""

    class Bent:
        is_virtual = True
        moment = 1_700_000_000_000

        def now_ms(self):
            return self.moment

    clock = Bent()
    store = await opened(clock)
    await configure(store)
    await add(store, "a/1", "a/2")
    (lease,) = await claim(store, lease_for=10.0)
    await store.release([lease.id])
    clock.moment -= 3_600_000
    waits = (await store.claim(ClaimRequest("default", "w", 1))).wake_in

    assert waits == 1.0  # the delay after a visit that ended now, not in an hour


async def test_two_prefixes_are_two_stores(opened, places):
    """M5: several stores share a server, without sharing keys."""
    first, second = await opened(), await opened(place=places.take("redis"))
    again = await opened()
    await configure(first)
    await add(first, "a/1")

    assert await second.crawls() == []
    assert await again.crawls() == ["default"]
    assert first.id == again.id != second.id


async def test_add_under_old_rules_is_repeated_under_new_ones(opened):
    """N1: a script refuses rules of an old epoch, and the store reads the new ones."""
    first, second = await opened(), await opened()
    await configure(first)
    await add(first, "a/1")
    await second.configure("default", rules(precedence=7, max_pending_per_queue=1))

    answers = await first.add(pages("a/2", "b/1"))
    assert [answer.reason for answer in answers] == ["queue-full", None]
    assert (await second.queue("default", "b.example")).precedence == 7


async def test_waiting_caller_is_notified(opened):
    """C6: an add after an empty claim notifies, across processes, until it is unsubscribed."""
    store, other = await opened(), await opened()
    await store.configure("default", rules())
    rung = asyncio.Event()
    end = store.subscribe("default", rung.set)

    async with asyncio.timeout(60):
        await rung.wait()  # the server listens
        for number in range(3):
            assert len(await claim(store)) == bool(number)
            assert await claim(store) == []
            rung.clear()
            await other.add([page(f"{number}/1")])
            await rung.wait()
    end()
    rung.clear()
    await claim(store)
    await other.add([page("b/1")])
    await asyncio.sleep(0.1)

    assert not rung.is_set()


# ---- how calls are cut


async def test_large_batch_is_answered_in_order(opened):
    """B3, B4: however many calls it is cut into."""
    store = await opened(FakeClock())
    await configure(store)
    batch = [task(f"https://h{n % 1100 % 7}.example/{n % 1100}") for n in range(1300)]
    answers = await store.add(batch)

    assert [answer.url for answer in answers] == [one.url for one in batch]
    assert [answer.added for answer in answers] == [n < 1100 for n in range(1300)]
    assert (await crawl(store)).known == 1100


async def test_page_and_its_links_are_one_call(opened):
    """H6: however many links there are; a reader that sees the page done sees all of them."""
    store = await opened(FakeClock())
    await configure(store)
    await add(store, "a/1")
    (lease,) = await claim(store)
    links = [task(f"https://h{n}.example/") for n in range(1200)]
    await store.finish([verdict(lease, DONE, links=links)])

    row = await crawl(store)
    assert (row.done, row.pending) == (1, 1200)


async def pair(opened, fields, hosts, each):
    """Return a store and one in memory, with one clock and the same tasks."""
    clock = FakeClock()
    stores = [await opened(clock), MemoryStore(clock)]
    for store in stores:
        await store.configure("default", rules(**fields))
        await store.add(
            [task(f"https://h{h}.example/{n}") for n in range(each) for h in range(hosts)]
        )
    return clock, stores


@pytest.mark.parametrize(
    "asked",
    [{}, {"per_queue": 2}, {"per_queue": 2, "lend": True}, {"lend": True}],
    ids=["plain", "capped", "lent", "lent-whole"],
)
async def test_large_claim_equals_one_claim(opened, asked):
    """C5, C7: caps, discounts and loans hold over all calls it is cut into."""
    fields = {"delay": 0.0, "max_in_flight": 3, "breadth_discount": 1.5}
    _, stores = await pair(opened, fields, 60, 5)
    request = ClaimRequest("default", "w", 230, **asked)
    first, second = [await store.claim(request) for store in stores]

    assert [*map(lease_facts, first.leases)] == [*map(lease_facts, second.leases)]
    assert (first.wake_in, first.streak) == (second.wake_in, second.streak)


async def test_many_queues_wake_in_one_claim(opened):
    """E1: in calls of bounded size; the best queue is first although it wakes last."""
    clock, stores = await pair(opened, {"delay": 5.0}, 600, 1)
    for store in stores:
        leases = (await store.claim(ClaimRequest("default", "w", 600))).leases
        await store.finish([verdict(lease, DONE) for lease in leases])
        await store.add([task(f"https://h{n}.example/b", priority=-n) for n in range(600)])
    clock.advance(6)
    first, second = [
        (await store.claim(ClaimRequest("default", "w", 30))).leases for store in stores
    ]

    assert names(first) == names(second)
    assert names(first)[0] == "h599/b"


async def test_many_leases_expire_in_one_claim(opened):
    """H4: a thousand at most, in calls of bounded size."""
    clock, stores = await pair(opened, {"delay": 0.0, "max_in_flight": 5}, 210, 5)
    for store in stores:
        await store.claim(ClaimRequest("default", "w", 1100, lease_for=1.0))
    clock.advance(2)
    views = []
    for store in stores:
        await store.claim(ClaimRequest("default", "w", 0))
        views.append((await crawl(store)).outcomes)

    assert views[0] == views[1] == {"crashed": 1000}


async def test_very_many_delayed_tasks_become_due_in_steps(opened):
    """C6: none is lost, and each refresh moves a bounded number."""
    clock = FakeClock()
    store = await opened(clock)
    await store.configure("default", rules(delay=0.0, max_in_flight=10_000))
    await store.add([task(f"https://a.example/{n}", delay=5.0) for n in range(2300)])
    clock.advance(5)
    lent = [len((await store.claim(ClaimRequest("default", "w", 900))).leases) for _ in range(4)]

    assert sum(lent) == 2300


async def test_index_of_known_tasks_stays_compact(opened, places):
    """M5: buckets grow one by one, each small enough for the server's compact form."""
    store = await opened(FakeClock())
    await configure(store)
    tasks = [task(f"https://h{n % 40}.example/{n}") for n in range(6000)]
    await store.add(tasks)
    async with redis.asyncio.Redis.from_url(places.server("redis")) as line:
        mine = f"{store.scripts.base}1:k:*"
        buckets = [key async for key in line.scan_iter(match=mine, count=1000)]
        encodings = {await line.object("encoding", bucket) for bucket in buckets}
        known = sum([await line.hlen(bucket) for bucket in buckets])

    assert known == 6000
    assert encodings <= {b"listpack", b"ziplist"}
    assert len(buckets) > 60
    assert not any(answer.added for answer in await store.add(tasks))


async def test_new_order_applies_to_all_ready_queues(opened):
    """C3: round-robin applies at once, to more queues than one call handles."""
    _, stores = await pair(opened, NO_DELAY, 300, 2)
    for store in stores:
        await store.configure("default", rules(**NO_DELAY, order="round-robin"))
    first, second = [
        (await store.claim(ClaimRequest("default", "w", 90))).leases for store in stores
    ]

    assert names(first) == names(second)


async def test_drop_works_with_steps_of_any_size(opened):
    """C10: also with more tasks than one call drops."""
    store = await opened(FakeClock())
    await configure(store)
    await store.add([task(f"https://a.example/{n}") for n in range(1300)])
    step = await store.drop("default", TaskFilter(), dry_run=False, limit=1200)
    rest = await store.drop("default", TaskFilter(), dry_run=False, after=step.after)

    assert (step.count, rest.count, rest.after) == (1200, 100, None)
    await claim(store)
    assert (await crawl(store)).status is CrawlStatus.FINISHED


async def test_more_priority_updates_than_one_call_takes(opened):
    """C8: tasks are leased by their new priorities, whichever call set them."""
    store = await opened(FakeClock())
    await store.configure("default", rules(**NO_DELAY))
    await store.add([task(f"https://a.example/{n}") for n in range(1, 1201)])
    prices = [PriorityUpdate(number, 0.0, -float(number)) for number in range(1, 1201)]

    assert await store.update_priorities("default", prices) == 1200
    assert [one.url for one in await store.upcoming("default", "a.example", limit=1200)] == [
        f"https://a.example/{n}" for n in range(1200, 0, -1)
    ]


async def test_long_shared_values_are_read_in_several_calls(opened):
    """N1: in order, however long they are."""
    store = await opened(FakeClock())
    await configure(store)
    texts = [chr(0x1F600 + n % 50) * MAX_VALUE_CHARS for n in range(9)] + ["x"] * 150
    numbers = await store.put_values(
        "default", [SharedValueWrite("t", str(n), text) for n, text in enumerate(texts)]
    )
    found = await store.values_since("default", limit=157)

    assert numbers == list(range(1, 160))
    assert [note.text for note in found] == texts[:157]
    assert [note.name for note in await store.values_since("default", after=157)] == ["157", "158"]


@pytest.mark.parametrize("brought", [-0.1, -1e-300, -3.3e300, -0.7])
async def test_gathered_priority_is_the_exact_sum(opened, brought):
    """F10: to the last bit, from either side of 0, as Python adds."""
    store = await opened(FakeClock())
    await configure(store)
    for number, start in enumerate([0.3, -0.2, 0.0, -0.0, 0.1, 1e300, -5e-324]):
        url = f"https://a.example/{number}"
        await store.add([task(url, priority=start)])
        await store.add([task(url, priority=brought, known="gather")] * 3)
        view = await store.task("default", task(url).fingerprint)

        assert view.priority == ((start + brought) + brought) + brought


async def test_focus_task_that_became_due_unseen_opens_its_queue(opened):
    """C9: it is due, though no claim has refreshed its queue; the next add does."""
    clock = FakeClock()
    for store in (Model(clock), await opened(clock)):
        await store.configure("default", rules(hold_queues=True, opens_below=-5.0))
        await add(store, "a/1")
        await add(store, "a/2", priority=-6.0, delay=10.0)
        clock.advance(10)

        assert await state(store, "a") == INACTIVE
        await add(store, "a/3", priority=5.0)
        assert await state(store, "a") == READY


async def test_crawl_of_an_older_release_continues(opened, places):
    """M4: its row has neither the field of focus nor that of shared values."""
    store = await opened()
    await configure(store)
    await add(store, "a/1")
    key = f"{store.scripts.base}1:{CRAWL_KEYS['crawl']}"
    fields = msgspec.msgpack.decode(await told(places.server("redis"), "GET", key))
    older = msgspec.msgpack.encode(fields[: CrawlRow.__struct_fields__.index("opens_below")])
    await told(places.server("redis"), "SET", key, older)

    await add(store, "b/1")
    assert await store.put_values("default", [SharedValueWrite("t", "a", "x")]) == [1]
    assert [names(await claim(store)), names(await claim(store))] == [["a/1"], ["b/1"]]


async def test_queue_rules_of_an_older_release_keep_their_pace(opened, places):
    """D1: the rate is read from the rules themselves, so an upgrade does not change it."""
    clock = FakeClock()
    store = await opened(clock)
    manners = {"visits_per_second": 0.5, "delay": 0.0, "max_in_flight": 5}
    await store.configure("default", rules(**manners))
    await add(store, "a/1", "a/2")
    key = f"{store.scripts.base}1:{CRAWL_KEYS['rules_rows']}"
    fields = msgspec.msgpack.decode(await told(places.server("redis"), "HGET", key, "1"))
    older = msgspec.msgpack.encode(fields[: RulesRow.__struct_fields__.index("pace")])
    await told(places.server("redis"), "HSET", key, "1", older)

    assert names(await claim(store, 5)) == ["a/1"]
    clock.advance(1.999)
    assert await claim(store, 5) == []
    clock.advance(0.001)
    assert names(await claim(store, 5)) == ["a/2"]
