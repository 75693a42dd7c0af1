"""Crawlee's request queue over its SQLite and memory storage, one caller, as its crawlers call it.

Completions are counted in the database file itself, past Crawlee's buffered statistics.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import figures
from crawlee.storage_clients import MemoryStorageClient, SqlStorageClient, StorageClient
from crawlee.storages import RequestQueue
from figures import Given, Run, none_lost

BATCH = 500
POOL = 20_000  # what waits while claims are measured, at most
NUMBERS = count()
Counts = Callable[[], Awaitable[tuple[int, int]]]  # known, handled
Opened = AbstractAsyncContextManager[tuple[RequestQueue, Counts]]


@asynccontextmanager
async def in_sqlite() -> AsyncIterator[tuple[RequestQueue, Counts]]:
    """A queue in a fresh SQLite file, with Crawlee's own settings for it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "crawlee.db")
        async with SqlStorageClient(connection_string=f"sqlite+aiosqlite:///{file}") as client:
            queue = await _opened(client)
            yield queue, partial(asyncio.to_thread, _counted, file)


def _counted(file: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(file)) as database:
        known, handled = database.execute(
            "SELECT count(*), coalesce(sum(is_handled), 0) FROM request_queue_records"
        ).fetchone()
    return known, handled


@asynccontextmanager
async def in_memory() -> AsyncIterator[tuple[RequestQueue, Counts]]:
    """A queue in memory."""
    queue = await _opened(MemoryStorageClient())

    async def counts() -> tuple[int, int]:
        return await queue.get_total_count(), await queue.get_handled_count()

    yield queue, counts


async def _opened(client: StorageClient) -> RequestQueue:
    # Crawlee hands out again what it opened under a name, even after its file is gone.
    return await RequestQueue.open(storage_client=client, name=f"bench-{next(NUMBERS)}")


async def adds(opened: Opened, given: Given, **facts: Any) -> dict[str, Any]:
    """Raw text in batches, each waited for."""
    run = Run(window=5_000, batch=BATCH)
    async with opened as (queue, counts):
        for batch in run.batches(given.stream):
            await queue.add_requests(batch, wait_for_all_requests_to_be_added=True)
        known, _ = await counts()
    none_lost("URLs known", known, len(set(given.stream[: run.count])))
    return run.figure(f"add_requests() of {BATCH} raw URLs", **facts)


async def claims(
    opened: Opened, given: Given, wanted: int, window: int, **facts: Any
) -> dict[str, Any]:
    """One request at a time, fetched and handled, while the pool waits."""
    pool = given.pool[:POOL]
    run = Run(window, window // 10)
    async with opened as (queue, counts):
        for start in range(0, len(pool), BATCH):
            await queue.add_requests(
                pool[start : start + BATCH], wait_for_all_requests_to_be_added=True
            )
        seen = await _visited(run, queue, min(wanted, len(pool)))
        known, handled = await counts()
    none_lost("URLs known", known, len(pool))
    none_lost("distinct URLs fetched", len(seen & set(pool)), run.count)
    none_lost("URLs handled", handled, run.count)
    what = "fetch_next_request() + mark_request_as_handled(), one at a time"
    return run.figure(what, **facts)


async def _visited(run: Run, queue: RequestQueue, wanted: int) -> set[str]:
    seen: set[str] = set()
    for batch in run.batches(range(wanted)):
        for _ in batch:
            request = await queue.fetch_next_request()
            await queue.mark_request_as_handled(request)
            seen.add(request.url)
    return seen


FILE = {"durability": "SQLite WAL, synchronous=NORMAL: survives a kill, not synced on commit"}
MEMORY = {"durability": "memory"}
MEASURES = {
    "sqlite.adds": lambda given: asyncio.run(adds(in_sqlite(), given, **FILE)),
    "sqlite.claims": lambda given: asyncio.run(claims(in_sqlite(), given, 1_500, 150, **FILE)),
    "memory.adds": lambda given: asyncio.run(adds(in_memory(), given, **MEMORY)),
    "memory.claims": lambda given: asyncio.run(claims(in_memory(), given, POOL, 2_000, **MEMORY)),
}

if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="The SqlStorageClient is experimental")
    figures.main("crawlee", ("crawlee", "SQLAlchemy", "aiosqlite"), MEASURES)
