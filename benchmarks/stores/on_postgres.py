"""Benchmarks of PostgreSQL: Outrider, COPY and merge, a windowed poll, PgQueuer; snapshots."""

from __future__ import annotations

import asyncio
from typing import Any

import ours
import peers
import psycopg
from calls import Calls, Line, pin_apart
from crew import cost_of_a_visit
from raw_postgres import RawPostgres
from sides import Sides, empty_claims, even_pages, uneven_pages
from sizes import Sizes
from snapshot import held

from outrider.bench.measurement import Measure
from outrider.frontier import Frontier
from servers import PostgresServer
from servers.empty_stores import with_parameter

DURABILITY = "synced (fsync, synchronous_commit on)"
OPTIONS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
FEW = 5_000  # queues
QUEUES = 20_000  # of the whole cycle
DELAY = 1.0  # seconds a queue sleeps in the whole cycle


def measure(part: str, sizes: Sizes) -> tuple[list[Line], dict[str, Any]]:
    """One part, on a server of its own."""
    with PostgresServer(options=OPTIONS) as server:
        pin_apart(server.pid)
        found, told = asyncio.run(PARTS[part](server, sizes))
        deadlocks = server.log.read_text(errors="replace").count("deadlock detected")
    if deadlocks or part == "crew":
        found.append(Measure("deadlocks in the log", deadlocks, "", 0, is_most=True))
    return [Line(each, DURABILITY) for each in found], told


async def _beside(server: PostgresServer, sizes: Sizes) -> tuple[list[Measure], dict[str, Any]]:
    """Adds, then claims once all of the workload waits."""
    raw, sides = RawPostgres(server.url), Sides()
    frontier = await ours.opened(place(server, "beside"))
    pages = uneven_pages(sizes.tasks)
    await sides.add(raw, frontier, pages[: sizes.tasks // 10])
    await _fill_both(raw, frontier, pages[sizes.tasks // 10 :])
    raw.settle()
    _settle(server)
    await sides.visit(raw, frontier, sizes.calls)
    worked = await ours.work(frontier, sizes.work_seconds)
    await frontier.close()
    raw.close()
    theirs = await asyncio.to_thread(peers.pgqueuer, server.url, sizes.peer * 2)
    ratio = sides.claims.rate / sides.raw_claims.rate
    rows = f"{sizes.tasks:,} rows"
    measures = [
        Measure("raw: add 500, COPY and merge, 60 % known", sides.raw_adds.rate, "/s"),
        Measure("add 500, 60 % known", sides.adds.rate, "/s"),
        Measure("add ÷ COPY and merge", sides.adds.rate / sides.raw_adds.rate, "×", 0.5),
        Measure(f"raw: windowed poll of 100, {rows}", sides.raw_claims.rate, "/s"),
        Measure(f"claim 100, one a host, {rows}", sides.claims.rate, "/s"),
        Measure("claim ÷ windowed poll", ratio, "×", 3),
        Measure("claim + finish 100, one after the other", sides.visits[1], "/s"),
        Measure("claim + finish 100, two under way", worked.rate, "/s"),
        peers.ratio("no-op tasks in batches ÷ PgQueuer", worked.rate, theirs, "runs", 1),
    ]
    return measures, {**sides.told(), "work": worked.told(), "pgqueuer": theirs}


async def _fill_both(raw: RawPostgres, frontier: Frontier, pages: list[str]) -> None:
    async for batch in ours.batches(frontier, pages):
        raw.add(batch)
        await frontier.store.add(batch)


async def _many_queues(
    server: PostgresServer, sizes: Sizes
) -> tuple[list[Measure], dict[str, Any]]:
    """Claims at few queues and at many, then all of them asleep."""
    fewer = await _with_queues(server, FEW, each=10)
    frontier = await _with_queues(server, sizes.queues, each=1)
    few, many, finishes = Calls(), Calls(), Calls()
    for _ in range(min(sizes.calls, FEW * 10 // ours.CLAIM)):
        await ours.visit(fewer, few, finishes)
        await ours.visit(frontier, many, finishes)
    idle = await empty_claims(frontier)
    await fewer.close()
    await frontier.close()
    at = f"{sizes.queues:,} queues"
    measures = [
        Measure(f"claim of 100, {FEW:,} queues", few.p50, "ms"),
        Measure(f"claim of 100, {at}", many.p50, "ms"),
        Measure(f"claim at {at} ÷ at {FEW:,}", many.p50 / few.p50, "×", 1.5, is_most=True),
        Measure(f"empty claim, {at} snoozed", idle.p50, "ms", 3, is_most=True),
    ]
    return measures, {"few": few.told(), "many": many.told(), "idle": idle.told()}


async def _with_queues(server: PostgresServer, queues: int, each: int) -> Frontier:
    frontier = await ours.opened(place(server, f"queues_{queues}"))
    await ours.fill_queues(frontier, queues, each)
    _settle(server)
    return frontier


async def _cycle(server: PostgresServer, sizes: Sizes) -> tuple[list[Measure], dict[str, Any]]:
    """Claim, finish, snooze for a second, wake; then the same under a held snapshot."""
    frontier = await ours.opened(place(server, "cycle"), delay=DELAY)
    seconds = sizes.cycle_seconds + min(15.0, sizes.held) + sizes.held + 10.0
    await ours.fill_queues(frontier, QUEUES, each=round(seconds * sizes.cycle_rate / QUEUES) + 1)
    _settle(server)
    cycle = await ours.work(frontier, sizes.cycle_seconds)
    held_for = await held(frontier, server.url, sizes.held)
    await frontier.close()
    title = f"snapshot held for {sizes.held:.0f} s: claim p99"
    measures = [
        Measure("whole cycle: claim, finish, snooze, wake", cycle.rate, "/s", 7_000),
        Measure(f"{title}, before", held_for["before"]["p99_ms"], "ms"),
        Measure(f"{title}, meanwhile", held_for["meanwhile"]["p99_ms"], "ms"),
        Measure(f"{title}, meanwhile ÷ before", held_for["worse"], "×", 15, is_most=True),
        Measure("and back to twice as before in", held_for["back_in"], "s", 30, is_most=True),
    ]
    return measures, {"cycle": cycle.told(), "held": held_for}


async def _crew(server: PostgresServer, sizes: Sizes) -> tuple[list[Measure], dict[str, Any]]:
    url = place(server, "crew")
    frontier = await ours.opened(url)
    await ours.fill(frontier, even_pages(sizes.crew_tasks, sizes.crew_tasks // 15))
    await frontier.close()
    _settle(server)
    told = await asyncio.to_thread(cost_of_a_visit, url, server.pid, sizes.crew_seconds)
    return [
        Measure("server CPU a visit, one worker", told["one"], "µs"),
        Measure(
            "server CPU a visit, eight ÷ one", told["many"] / told["one"], "×", 1.3, is_most=True
        ),
    ], told


PARTS = {"beside": _beside, "queues": _many_queues, "cycle": _cycle, "crew": _crew}


def _settle(server: PostgresServer) -> None:
    """Statistics and dead rows as a running server has them; nothing left to write."""
    with psycopg.connect(server.url, autocommit=True) as line:
        line.execute("VACUUM ANALYZE")
        line.execute("CHECKPOINT")


def place(server: PostgresServer, name: str) -> str:
    """Return the URL of an Outrider store on this server."""
    return with_parameter(server.url, "schema", f"bench_{name}")
