"""Listings of a large crawl, on every store: the tasks of one queue, and queues in order.

PYTHONPATH=tests/support python benchmarks/listings.py [--tasks N] [--queues N] [--only NAME]
                                                       [--json OUT]

One crawl has N tasks, 1,000 of them in one queue and spread evenly among the others; another has N
queues, each with a task that is not due. Servers are started from their wheels, as for the tests.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from outrider.bench.measurement import write_json
from outrider.clock import SystemClock
from outrider.core.policy.rules import CrawlRules
from outrider.core.states import TaskState
from outrider.core.task import Task
from outrider.store.factory import open_store
from outrider.store.protocol import CursorPage, FullStore, QueueView
from outrider.store.queue_order import QueueOrder
from outrider.testing.builders import task
from servers.empty_stores import EmptyStores

TASKS: Final = "tasks"
QUEUES: Final = "queues"
WANTED: Final = "wanted.example"
IN_QUEUE: Final = 1000
PER_HOST: Final = 200
BATCH: Final = 1000
READS: Final = 9
HOUR: Final = 3600.0
STORES: Final = ("memory", "file", "postgres", "redis")


@asynccontextmanager
async def opened(name: str, servers: EmptyStores) -> AsyncIterator[FullStore]:
    """Open an empty store, and its crawls."""
    with tempfile.TemporaryDirectory() as folder:
        urls = {"memory": "memory://", "file": f"{folder}/crawl"}
        url = urls.get(name) or servers.take(name)  # type: ignore[arg-type] # of a server
        store = await open_store(url, SystemClock())
        for crawl in (TASKS, QUEUES):
            await store.configure(crawl, CrawlRules())
        yield store
        await store.close()


async def fill(store: FullStore, count: int, make: Callable[[int], Task]) -> None:
    """Add so many tasks."""
    for start in range(0, count, BATCH):
        await store.add([make(n) for n in range(start, min(start + BATCH, count))])


def task_maker(count: int) -> Callable[[int], Task]:
    """Return a maker of tasks, some of which are in the queue that is listed."""
    every, hosts, dice = count // IN_QUEUE, max(1, count // PER_HOST), random.Random(1)

    def make(number: int) -> Task:
        host = WANTED if number % every == 0 else f"h{dice.randrange(hosts)}.example"
        return task(f"https://{host}/{number}", crawl=TASKS)

    return make


def queue_maker() -> Callable[[int], Task]:
    """Return a maker of queues that wait, with keys and wake times in no order."""
    dice = random.Random(2)

    def make(number: int) -> Task:
        delay = HOUR + dice.random() * HOUR
        return task(
            f"https://h{dice.getrandbits(32):x}.example/{number}", crawl=QUEUES, delay=delay
        )

    return make


async def milliseconds(call: Callable[[], Awaitable[Any]], reads: int = READS) -> float:
    """Return the median of several calls."""
    seconds = []
    for _ in range(reads):
        began = time.perf_counter()
        await call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds) * 1000


async def measure_tasks(store: FullStore, count: int) -> dict[str, float]:
    """Measure lists of 1,000 tasks of one queue, and of none of them in another state."""
    await fill(store, count, task_maker(count))

    async def listed(wanted: int, state: TaskState | None = None) -> None:
        found = 0
        after: int | None = 0
        while after is not None:
            page = await store.queue_tasks(TASKS, WANTED, state=state, after=after)
            found, after = found + len(page.items), page.after
        if found != wanted:
            raise SystemExit(f"{found} tasks are listed, and there are {wanted}")

    return {
        "1,000 tasks, first time": await milliseconds(lambda: listed(IN_QUEUE), 1),
        "1,000 tasks": await milliseconds(lambda: listed(IN_QUEUE)),
        "none in a state": await milliseconds(lambda: listed(0, TaskState.DONE)),
    }


async def measure_order(store: FullStore, order: QueueOrder) -> dict[str, float]:
    """Measure pages of 1,000 queues: the first, when nothing is prepared, and those behind it."""

    async def page(after: str = "") -> CursorPage[QueueView]:
        found = await store.queues_in_order(QUEUES, order, after=after)
        while not found.items and found.after is not None:  # the keys are being sorted
            found = await store.queues_in_order(QUEUES, order, after=found.after)
        return found

    figures = {f"{order}: first page": await milliseconds(page, 1)}
    figures[f"{order}: page"] = await milliseconds(page)
    middle = await middle_of(store, order)
    figures[f"{order}: page in the middle"] = await milliseconds(lambda: page(middle))
    return figures


async def middle_of(store: FullStore, order: QueueOrder) -> str:
    """Return the cursor of a queue in the middle of an order."""
    if order == "key":
        return ">h8"
    known = (await store.queues_in_order(QUEUES, order, limit=1)).cursors[0]
    return f"{int(known.partition('.')[0]) + int(HOUR * 500)}.0"


async def measure(store: FullStore, tasks: int, queues: int) -> dict[str, float]:
    """Measure one store."""
    found = await measure_tasks(store, tasks)
    await fill(store, queues, queue_maker())
    orders: Sequence[QueueOrder] = ("key", "wake")
    for order in orders:
        found |= await measure_order(store, order)
    return found


async def main(asked: argparse.Namespace) -> None:
    """Measure every store; print and write its figures when they are there."""
    servers = EmptyStores(f"listings-{os.getpid()}", {})
    found: dict[str, Any] = {"tasks": asked.tasks, "queues": asked.queues, "cores": os.cpu_count()}
    try:
        for name in asked.only or STORES:
            async with opened(name, servers) as store:
                found[name] = await measure(store, asked.tasks, asked.queues)
            figures = ", ".join(f"{key} {value:,.1f} ms" for key, value in found[name].items())
            print(f"{name}: {figures}", flush=True)
            if asked.json is not None:
                write_json(asked.json, found)
    finally:
        servers.clear()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=1_000_000)
    parser.add_argument("--only", action="append", choices=STORES)
    parser.add_argument("--json", type=Path)
    asyncio.run(main(parser.parse_args()))
