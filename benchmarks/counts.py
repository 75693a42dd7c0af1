"""Counts of a crawl of many queues, on every store: read by `crawl`, and by a census of its queues.

PYTHONPATH=tests/support python benchmarks/counts.py [--queues N] [--only NAME] [--json OUT]

Every queue has one task; a tenth of them is visited before. Servers are started from their wheels,
as for the tests.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from outrider.bench.measurement import write_json
from outrider.clock import SystemClock
from outrider.core.policy.rules import CrawlRules
from outrider.store.factory import open_store
from outrider.store.protocol import ClaimRequest, FullStore
from outrider.testing.builders import done, task
from servers.empty_stores import EmptyStores

CRAWL: Final = "default"
BATCH: Final = 1000
READS: Final = 9
STORES: Final = ("memory", "file", "postgres", "redis")


@asynccontextmanager
async def opened(name: str, servers: EmptyStores) -> AsyncIterator[FullStore]:
    """Open an empty store, and a crawl of it."""
    with tempfile.TemporaryDirectory() as folder:
        urls = {"memory": "memory://", "file": f"{folder}/crawl"}
        url = urls.get(name) or servers.take(name)  # type: ignore[arg-type] # of a server
        store = await open_store(url, SystemClock())
        await store.configure(CRAWL, CrawlRules())
        yield store
        await store.close()


async def fill(store: FullStore, queues: int) -> None:
    """Add a task to each of so many queues, and visit a tenth of them."""
    for start in range(0, queues, BATCH):
        numbers = range(start, min(start + BATCH, queues))
        await store.add([task(f"https://h{number}.example/") for number in numbers])
    for _ in range(queues // BATCH // 10):
        claimed = await store.claim(ClaimRequest(CRAWL, "bench", BATCH))
        await store.finish([done(lease) for lease in claimed.leases])


async def census(store: FullStore) -> Counter[str]:
    """Count queues by reading the state of each."""
    found: Counter[str] = Counter()
    after: int | None = 0
    while after is not None:
        page = await store.queue_states(CRAWL, after=after, limit=BATCH)
        found.update(state.value for state in page.items)
        after = page.after
    return found


async def measure(store: FullStore, queues: int) -> dict[str, Any]:
    """Measure one store: seconds of a read of the counts, and of a census."""
    await fill(store, queues)
    reads = []
    for _ in range(READS):
        began = time.perf_counter()
        view = await store.crawl(CRAWL)
        reads.append(time.perf_counter() - began)
    began = time.perf_counter()
    counted = await census(store)
    seconds = time.perf_counter() - began
    if counted != Counter(view.queues):
        raise SystemExit(f"counted {dict(view.queues)}, and there are {dict(counted)}")
    return {
        "first_read_seconds": reads[0],
        "read_seconds": statistics.median(reads),
        "census_seconds": seconds,
    }


async def main(queues: int, names: tuple[str, ...], out: Path | None) -> None:
    """Measure every store; print and write each figure when it is there."""
    servers = EmptyStores(f"counts-{os.getpid()}", {})
    found: dict[str, Any] = {"queues": queues, "cores": os.cpu_count()}
    try:
        for name in names:
            async with opened(name, servers) as store:
                found[name] = await measure(store, queues)
            figures = {key: f"{value * 1000:,.2f} ms" for key, value in found[name].items()}
            print(name, figures, flush=True)
            if out is not None:
                write_json(out, found)
    finally:
        servers.clear()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=1_000_000)
    parser.add_argument("--only", action="append", choices=STORES)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    asyncio.run(main(asked.queues, tuple(asked.only or STORES), asked.json))
