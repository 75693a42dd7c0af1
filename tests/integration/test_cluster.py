"""A store on a real cluster of three masters: how it is made, found, moved and brought back."""

import asyncio
from contextlib import suppress
from threading import Event

import pytest
import redis
from redis.crc import key_slot

from fleet.fake_web import World
from fleet.run import run
from outrider.clock import SystemClock
from outrider.core.states import CrawlStatus
from outrider.errors import InvalidInput, StoreDamaged, StoreUnavailable, StoreUnusable
from outrider.store.factory import open_store
from outrider.store.protocol import PriorityUpdate, SharedValueWrite, TaskFilter
from outrider.store.redis.cluster import bases_of
from outrider.store.redis.keys import META
from outrider.testing.builders import done, rules
from outrider.testing.conformance.steps import CRAWL, ask, claim, configure, crawl, names, pages
from servers import ValkeyCluster, ValkeyServer
from servers.empty_stores import with_parameter
from servers.server_process import free_port
from servers.valkey import ask as told

HOSTS = [f"h{number}" for number in range(12)]


@pytest.fixture
def url(places):
    """An empty place on the cluster all tests share."""
    return places.take("cluster").replace("redis://", "redis+cluster://", 1)


@pytest.fixture
def opened(url):
    """A maker of stores there, in real time."""
    return lambda **options: open_store(_with(url, options), SystemClock())


def _with(url, options):
    for name, value in options.items():
        url = with_parameter(url, name, str(value))
    return url


def _lines(store):
    return [shard.scripts for shard in store.shards]


# ---- how many, and where


@pytest.mark.parametrize("total", [1, 2, 12, 16, 100])
@pytest.mark.parametrize("prefix", ["outrider", "x"])
def test_shards_are_spread_evenly(prefix, total):
    """Each shard is in another part of the slots, so any number of masters gets its share."""
    bases = list(bases_of(prefix, total))
    parts = [key_slot(base.encode()) * total // 16_384 for base in bases]

    assert sorted(parts) == list(range(total))
    assert bases[0] == f"{prefix}:{{{prefix}.0}}:"  # where it is looked for, whatever the number


async def test_store_keeps_the_number_of_shards_it_was_made_with(opened):
    """Four per master by default; a URL that later says otherwise is refused."""
    store = await opened()
    assert len(_lines(store)) == 12
    await configure(store)
    await store.add(pages("a/1"))
    await store.close()
    with pytest.raises(InvalidInput, match="has 12 shards"):
        await opened(shards=3)

    again = await opened(shards=12)
    assert (again.id, (await crawl(again)).known) == (store.id, 1)
    await again.close()


async def test_crawl_uses_every_node(opened):
    """Queues are spread, and all of them are served."""
    store = await opened()
    await store.configure(CRAWL, rules(delay=0.0))
    await store.add(pages(*(f"{host}/1" for host in HOSTS)))
    used = [
        line for line in _lines(store) if await line.command("HEXISTS", f"{line.base}crawls", CRAWL)
    ]

    assert len(used) > 3
    leases = await claim(store, 100)
    assert sorted(names(leases)) == sorted(f"{host}/1" for host in HOSTS)
    await store.finish([done(lease) for lease in leases])
    assert (await ask(store)).status is CrawlStatus.FINISHED
    await store.close()


async def test_shared_values_and_priority_updates_reach_their_shards(opened):
    """C8, N1: a task number contains its shard; shared values are stored at home."""
    store = await opened(shards=3)
    await configure(store)
    await store.add(pages(*(f"{host}/1" for host in HOSTS)))
    seen = (await store.tasks(CRAWL, TaskFilter())).items
    prices = [PriorityUpdate(task.number, 0.0, 1.0 + place) for place, task in enumerate(seen)]

    assert await store.update_priorities(CRAWL, prices) == len(HOSTS)
    again = (await store.tasks(CRAWL, TaskFilter())).items
    assert [task.priority for task in again] == [price.priority for price in prices]
    assert await store.put_values(
        CRAWL, [SharedValueWrite("t", "a", "x"), SharedValueWrite("t", "b", "y", 9)]
    ) == [1, 0]
    other = await opened(shards=3)
    assert [note.text for note in await other.values_since(CRAWL)] == ["x"]
    await other.close()
    await store.close()


@pytest.mark.parametrize("host", HOSTS[:3])
async def test_waiting_caller_is_notified_from_any_shard(opened, host):
    """C6: one subscription serves all shards."""
    store, other, rung = await opened(shards=3), await opened(shards=3), asyncio.Event()
    end = store.subscribe(CRAWL, rung.set)
    await configure(store)
    for number in range(100):  # until the listener listens
        await claim(store, 100)
        await other.add(pages(f"{host}/{number}"))
        with suppress(TimeoutError):
            await asyncio.wait_for(rung.wait(), 0.1)
            break

    assert rung.is_set()
    end()
    await store.close()
    await other.close()


# ---- what is refused


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("redis+cluster://h:1/3", "no database '3'"),
        ("redis+cluster://h:1?shards=0", "1 to 1024"),
        ("redis+cluster://h:1?shards=many", "1 to 1024"),
        ("redis+cluster://h:1?shard=3", "unknown option 'shard'"),
        ("redis+cluster://h:x", "check the port of the URL"),
    ],
)
async def test_wrong_url_is_refused_by_name(url, match):
    """The message names what is wrong, before any connection is made."""
    with pytest.raises(InvalidInput, match=match):
        await open_store(url, SystemClock())


async def test_single_server_is_refused_as_a_cluster(places):
    """The message says how to open it."""
    url = places.take("redis").replace("redis://", "redis+cluster://", 1)
    with pytest.raises(StoreUnusable, match=r"open it as redis://"):
        await open_store(url.replace("/0", "/"), SystemClock())


async def test_opening_without_a_node_is_unavailable():
    """M6: an error that may be retried."""
    with pytest.raises(StoreUnavailable, match="is it running"):
        await open_store(f"redis+cluster://127.0.0.1:{free_port()}", SystemClock())


async def test_lost_shard_is_refused(opened):
    """A node that comes back empty must not be taken for a new store."""
    store = await opened(shards=3)
    line = _lines(store)[1]
    await line.command("DEL", line.base + META)
    await store.close()

    with pytest.raises(StoreDamaged, match="shard 1 of 3 is missing"):
        await opened()


async def test_keys_of_another_program_are_left_alone(opened, url):
    """Another program uses a key of the store."""
    store = await opened(shards=3)
    line = _lines(store)[0]
    await line.command("DEL", line.base + META)
    await line.command("SET", line.base + META, "mine")
    with pytest.raises(StoreUnusable, match="not Outrider"):
        await opened(shards=3)

    assert await line.command("GET", line.base + META) == b"mine"
    await store.close()


# ---- nodes that come and go


@pytest.fixture
def cluster():
    """One of our own, which writes what it answers."""
    with ValkeyCluster(options={"appendonly": "yes", "appendfsync": "always"}) as cluster:
        yield cluster


def _moved(cluster, slot):
    """Move a slot with all its keys from the node that has it to the next one."""
    lines = [redis.Redis(port=node.port) for node in cluster.nodes]
    ids = [line.execute_command("CLUSTER MYID").decode() for line in lines]
    owner = next(
        n for n, line in enumerate(lines) if line.execute_command("CLUSTER COUNTKEYSINSLOT", slot)
    )
    other = (owner + 1) % len(lines)
    lines[other].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[owner])
    lines[owner].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[other])
    yield
    keys = lines[owner].execute_command("CLUSTER GETKEYSINSLOT", slot, 10_000)
    port = cluster.nodes[other].port
    lines[owner].execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *keys)
    for number in (other, owner):
        lines[number].execute_command("CLUSTER SETSLOT", slot, "NODE", ids[other])
    for line in lines:
        line.close()


async def test_crawl_follows_a_slot_to_another_node(cluster):
    """While the slot migrates its shard does not answer; then it is found at the new node."""
    store = await open_store(f"{cluster.store_url}/?prefix=moving&shards=3", SystemClock())
    await store.configure(CRAWL, rules(delay=0.0))
    await store.add(pages(*(f"{host}/1" for host in HOSTS)))
    slot = key_slot(_lines(store)[1].base.encode())
    moving = _moved(cluster, slot)
    await asyncio.to_thread(next, moving)
    with pytest.raises(StoreUnavailable):
        await store.add(pages(*(f"{host}/2" for host in HOSTS)))
    await asyncio.to_thread(next, moving, None)

    await store.add(pages(*(f"{host}/2" for host in HOSTS)))
    assert (await crawl(store)).known == 2 * len(HOSTS)
    await store.close()


@pytest.mark.slow
def test_crawl_continues_on_a_replica_that_takes_over(cluster):
    """The store uses the node that has the slots now."""
    first = cluster.nodes[2]
    with ValkeyServer(options={**first.options, "cluster-port": str(free_port())}) as replica:
        line = redis.Redis(port=first.port)
        own = line.execute_command("CLUSTER MYID").decode()
        bus = first.options["cluster-port"]
        told(replica.port, "CLUSTER", "MEET", "127.0.0.1", str(first.port), bus)
        _wait_for(lambda: told(replica.port, "CLUSTER", "REPLICATE", own).startswith(b"+OK"))
        asyncio.run(_outlives(cluster, first, line))
        line.close()


def _wait_for(holds):
    for _ in range(600):
        if holds():
            return
        Event().wait(0.05)
    raise AssertionError("it did not come to pass")


async def _outlives(cluster, node, line):
    store = await open_store(f"{cluster.store_url}/?prefix=replica&shards=3", SystemClock())
    await configure(store)
    await store.add(pages(*(f"{host}/1" for host in HOSTS)))
    await asyncio.to_thread(_wait_for, lambda: line.execute_command("WAIT", 1, 1000))
    await asyncio.to_thread(node.stop, "kill")
    known = None
    for _ in range(600):
        with suppress(StoreUnavailable):
            known = (await crawl(store)).known
            break
        await asyncio.sleep(0.1)
    await store.close()
    assert known == len(HOSTS)


@pytest.mark.slow
def test_killed_master_loses_and_repeats_nothing(tmp_path):
    """Several workers; each master is killed and restarted; the workers' logs agree."""
    world = World(hosts=20, pages=40)
    played = run("cluster", "node-killed", 2, tmp_path, world)

    assert played.report.is_clean, played.report
    assert played.report.visits >= world.hosts * world.pages
    assert played.recovery is not None
