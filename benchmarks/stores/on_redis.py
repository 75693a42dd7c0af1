"""Benchmarks of Redis: Outrider, minimal scripts, scrapy-redis; memory; idle claims; workers."""

from __future__ import annotations

import asyncio
from typing import Any

import ours
import peers
from calls import Calls, Line, pin_apart
from crew import cost_of_a_visit
from raw_redis import RawRedis, record
from sides import Sides, empty_claims, even_pages, uneven_pages
from sizes import Sizes

from outrider.bench import workload
from outrider.bench.measurement import Measure
from servers import ValkeyServer
from servers.empty_stores import with_parameter

DURABILITY = "≤ 1 s at power loss (appendfsync everysec)"
OPTIONS = {"appendonly": "yes", "appendfsync": "everysec"}
FIRST = 2_000  # tasks that make the server compile scripts and grow its interpreter, once


def measure(part: str, sizes: Sizes) -> tuple[list[Line], dict[str, Any]]:
    """One part, on a server of its own."""
    with ValkeyServer(options=OPTIONS) as server:
        pin_apart(server.pid)
        found, told = asyncio.run(PARTS[part](server, sizes))
    return [Line(each, DURABILITY) for each in found], told


async def _beside(server: ValkeyServer, sizes: Sizes) -> tuple[list[Measure], dict[str, Any]]:
    raw, sides = RawRedis(server.url), Sides()
    frontier = await ours.opened(place(server, "beside"))
    await sides.add(raw, frontier, uneven_pages(sizes.tasks // 2))
    await sides.visit(raw, frontier, sizes.calls)
    await frontier.close()
    raw.client.flushall()
    texts = list(workload.stream(workload.pages(sizes.peer)))
    from_text = await _from_text(server, texts)
    raw.client.flushall()
    theirs = peers.scrapy_redis(server.url, texts)
    least, visits = sides.visits
    measures = [
        Measure("raw: add 500, 60 % known", sides.raw_adds.rate, "/s"),
        Measure("add 500, 60 % known", sides.adds.rate, "/s"),
        Measure("add ÷ minimal script", sides.adds.rate / sides.raw_adds.rate, "×", 0.6),
        Measure("raw: claim + finish 100", least, "/s"),
        Measure("claim + finish 100", visits, "/s"),
        Measure("claim + finish ÷ minimal scripts", visits / least, "×", 0.35),
        Measure("add from text, 500", from_text.rate, "/s"),
        peers.ratio("add from text ÷ scrapy-redis", from_text.rate, theirs, "adds", 5),
        peers.ratio("claim + finish ÷ scrapy-redis's claims", visits, theirs, "claims", 2),
    ]
    return measures, {**sides.told(), "scrapy-redis": theirs, "from_text": from_text.told()}


async def _from_text(server: ValkeyServer, texts: list[str]) -> Calls:
    calls = Calls()
    frontier = await ours.opened(place(server, "text"))
    for start in range(0, len(texts), ours.BATCH):
        batch = texts[start : start + ours.BATCH]
        with calls.timed(len(batch)):
            await frontier.add(batch)
    await frontier.close()
    return calls


async def _memory(server: ValkeyServer, sizes: Sizes) -> tuple[list[Measure], dict[str, Any]]:
    """Measure memory per task in deep queues, and per task and queue in queues of one task."""
    deep, shallow = sizes.tasks // 5, sizes.tasks // 10
    await _kept(server, "first", even_pages(FIRST, FIRST // 10))
    before = _used(server)
    kept = await _kept(server, "deep", even_pages(deep, deep // workload.TASKS_PER_HOST))
    middle = _used(server)
    alone = await _kept(server, "shallow", even_pages(shallow, shallow))
    after = _used(server)
    task, both = (middle - before) / deep - kept, (after - middle) / shallow - alone
    measures = [
        Measure("record of a task", kept, "B"),
        Measure("memory a task, 200 a queue, beyond its record", task, "B", 210, is_most=True),
        Measure("memory a queue of one task, beyond the record", both, "B", 660, is_most=True),
    ]
    return measures, {"tasks": (deep, shallow), "bytes": (before, middle, after)}


async def _kept(server: ValkeyServer, name: str, texts: list[str]) -> float:
    """Fill a place; the mean size of a record."""
    frontier = await ours.opened(place(server, name))
    size = 0
    async for batch in ours.batches(frontier, texts):
        size += sum(len(record(task)) for task in batch)
        await frontier.store.add(batch)
    await frontier.close()
    return size / len(texts)


def _used(server: ValkeyServer) -> int:
    """What all there is takes, buffers of the moment aside."""
    told = RawRedis(server.url).client.info("memory")
    passing = told["mem_clients_normal"] + told["mem_aof_buffer"]
    used: int = told["used_memory"] - passing
    return used


async def _idle(server: ValkeyServer, sizes: Sizes) -> tuple[list[Measure], dict[str, Any]]:
    frontier = await ours.opened(place(server, "idle"))
    await ours.fill_queues(frontier, sizes.queues)
    calls = await empty_claims(frontier)
    await frontier.close()
    name = f"empty claim, {sizes.queues:,} queues snoozed"
    return [Measure(name, calls.p50, "ms", 3, is_most=True)], calls.told()


async def _crew(server: ValkeyServer, sizes: Sizes) -> tuple[list[Measure], dict[str, Any]]:
    url = place(server, "crew")
    frontier = await ours.opened(url)
    await ours.fill(frontier, even_pages(sizes.crew_tasks, sizes.crew_tasks // 15))
    await frontier.close()
    told = await asyncio.to_thread(cost_of_a_visit, url, server.pid, sizes.crew_seconds)
    return [
        Measure("server CPU a visit, one worker", told["one"], "µs"),
        Measure(
            "server CPU a visit, eight ÷ one", told["many"] / told["one"], "×", 1.3, is_most=True
        ),
    ], told


PARTS = {"beside": _beside, "memory": _memory, "idle": _idle, "crew": _crew}


def place(server: ValkeyServer, name: str) -> str:
    """Return the URL of an Outrider store on this server."""
    return with_parameter(server.url, "prefix", name)
