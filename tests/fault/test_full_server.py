"""A server that runs out of what it needs refuses in words, changes nothing, and goes on after."""

import asyncio
import random

import pytest
import redis

from fleet.fake_web import World
from fleet.run import run
from fleet.verify import GRAIN
from fleet.worker_log import FinishAnswered, Visited
from outrider import Done, Frontier
from outrider.errors import StoreFull
from outrider.testing import audit
from servers import ValkeyServer

CRAWL = "default"
PROMISE = 2.0  # seconds: one that is not synced yet, and one under way


def urls(batch):
    """Pages of many hosts."""
    return [f"https://h{number % 50}.test/{batch}/{number}" for number in range(500)]


def allow(server, memory):
    """So much memory, from now on."""
    with redis.Redis(port=server.port) as line:
        line.config_set("maxmemory", memory)


@pytest.fixture
def small_redis():
    """A server with little memory."""
    with ValkeyServer(options={"maxmemory": "12mb"}) as server:
        yield server


@pytest.mark.slow
async def test_a_redis_without_memory_refuses_whole_batches_and_takes_them_later(small_redis):
    """M5: StoreFull, nothing half done, nothing lost; with memory again the crawl goes on."""
    settings = {"politeness": {"delay": 0.0}}
    async with Frontier.open(small_redis.url, settings=settings) as frontier:
        known, told = 0, ""
        for batch in range(200):
            try:
                known += (await frontier.add(urls(batch))).added
            except StoreFull as full:
                told = str(full)
                break
        assert "memory" in told
        await audit.check(frontier.store, CRAWL)
        assert (await frontier.stats()).known == known > 0
        await asyncio.to_thread(allow, small_redis, "0")
        assert (await frontier.add(urls("again"))).added == 500
        claim = await frontier.claim(20)
        assert await frontier.finish_many([(lease, Done(200), []) for lease in claim])
        await audit.check(frontier.store, CRAWL)
        assert (await frontier.stats()).known == known + 500


@pytest.mark.slow
def test_a_killed_redis_that_syncs_every_second_loses_no_more_than_it_promised(tmp_path):
    """M5: whatever was done twice or too soon was told in the last second or so; none is lost."""
    world = World(seed=random.randrange(2**32), hosts=20, pages=100)
    played = run("redis-everysec", "immediate", 1, tmp_path, world)
    told, since = played.report, played.failure.began - PROMISE
    assert not told.lost
    again = {entry.split()[0].rstrip(":") for entry in told.doubled}
    ends = {
        line.url: line.at for line in reversed(played.lines) if isinstance(line, FinishAnswered)
    }
    assert all(since <= ends[url] <= played.failure.healed for url in again), told.doubled
    visits = {line.url: line.at for line in reversed(played.lines) if isinstance(line, Visited)}
    early = {entry.split()[0] for entry in told.too_soon}
    assert all(since <= visits[url] <= played.failure.healed + GRAIN for url in early), (
        told.too_soon
    )
