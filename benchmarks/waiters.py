"""A thousand claims that wait for one crawl, on every store: calls and seconds of an add.

PYTHONPATH=tests/support python benchmarks/waiters.py [--waiters N] [--adds N] [--json OUT]

One process waits, another connection adds a page at a time: to the first answer, and the claims
that the store got for it. Servers are started from their wheels, as for the tests.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from outrider import Frontier
from outrider.bench.measurement import write_json
from outrider.clock import SystemClock
from outrider.store.embedded import EmbeddedStore
from outrider.store.factory import open_store
from outrider.store.forwarding import ForwardingStore
from outrider.store.memory import MemoryStore
from outrider.store.protocol import FullStore
from outrider.store.remote import RemoteStore, StoreServer
from servers.empty_stores import EmptyStores

PROMISED: Final = 0.02  # seconds to the first answer
PAUSE: Final = 0.2  # seconds between two adds
SETTINGS: Final = {"politeness": {"delay": 0.0}}

Pair = tuple[FullStore, FullStore]  # the store that waits, and the one that adds


class CountingStore(ForwardingStore):
    """Any store, its claims counted."""

    def __init__(self, store: FullStore) -> None:
        self.store, self.claims = store, 0
        self.id, self.is_inline, self.notifies = store.id, store.is_inline, store.notifies

    async def _forward(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        self.claims += verb == "claim"
        return await getattr(self.store, verb)(*args, **kwargs)

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """As the store inside."""
        return self.store.subscribe(crawl, notify)

    async def close(self) -> None:
        """Close the store inside."""
        await self.store.close()


@asynccontextmanager
async def in_memory() -> AsyncIterator[Pair]:
    """One store for both."""
    store = MemoryStore(SystemClock())
    yield store, store


def held(path: Path, durability: str) -> EmbeddedStore:
    """Open a new file."""
    store = EmbeddedStore.open(path, SystemClock(), durability=durability)
    if store is None:
        raise SystemExit(f"{path} is held by another process")
    return store


@asynccontextmanager
async def in_file(durability: str) -> AsyncIterator[Pair]:
    """One store for both."""
    with tempfile.TemporaryDirectory() as folder:
        store = held(Path(folder) / "crawl", durability)
        yield store, store
        await store.close()


@asynccontextmanager
async def through_socket() -> AsyncIterator[Pair]:
    """The holder of a file adds, a client of its socket waits."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "crawl")
        store = held(Path(path), "process")
        server = await StoreServer.open(store, path)
        client = await RemoteStore.connect(path)
        yield client, store
        await client.close()
        await server.close()
        await store.close()


@asynccontextmanager
async def on_server(url: str) -> AsyncIterator[Pair]:
    """Two connections, as two processes have them."""
    waiting, adding = [await open_store(url, SystemClock()) for _ in range(2)]
    yield waiting, adding
    await waiting.close()
    await adding.close()


async def measure(
    opened: AbstractAsyncContextManager[Pair], waiters: int, adds: int
) -> dict[str, Any]:
    """Measure one store."""
    async with opened as (waiting_store, adding_store):
        counted, seconds, claims = CountingStore(waiting_store), [], []
        async with (
            Frontier.open(counted, settings=SETTINGS) as waiting,
            Frontier.open(adding_store, settings=SETTINGS) as adding,
        ):
            tasks = [asyncio.ensure_future(waiting.claim(1, wait=3600.0)) for _ in range(waiters)]
            loop = asyncio.get_running_loop()
            await asyncio.sleep(5 * PAUSE)
            at_start = counted.claims
            for number in range(adds):
                await asyncio.sleep(PAUSE)
                before, began = counted.claims, loop.time()
                await adding.add([f"https://h{number}.example/"])
                await tasks[number]
                seconds.append(loop.time() - began)
                await asyncio.sleep(PAUSE)
                claims.append(counted.claims - before)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "claims_to_begin": at_start,
        "claims_per_add": statistics.fmean(claims),
        "median_seconds": statistics.median(seconds),
        "longest_seconds": max(seconds),
    }


async def main(waiters: int, adds: int, out: Path | None) -> None:
    """Measure every store; print and write each figure when it is there."""
    servers = EmptyStores(f"waiters-{os.getpid()}", {})
    found: dict[str, Any] = {}
    stores: dict[str, Callable[[], AbstractAsyncContextManager[Pair]]] = {
        "memory": in_memory,
        "file": lambda: in_file("process"),
        "file, synced": lambda: in_file("sync"),
        "socket": through_socket,
        "postgres": lambda: on_server(servers.take("postgres")),
        "redis": lambda: on_server(servers.take("redis")),
        "cluster": lambda: on_server(servers.take("cluster")),
    }
    try:
        for name, opened in stores.items():
            found[name] = figures = await measure(opened(), waiters, adds)
            kept = "" if figures["median_seconds"] <= PROMISED else "  over what is promised"
            print(
                f"{name:14} {1000 * figures['median_seconds']:6.1f} ms to the first answer, "
                f"{1000 * figures['longest_seconds']:6.1f} ms at most, "
                f"{figures['claims_per_add']:.1f} claims an add{kept}"
            )
            if out is not None:
                complete = len(found) == len(stores)
                write_json(out, {"waiters": waiters, "complete": complete, "stores": found})
    finally:
        servers.clear()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiters", type=int, default=1000)
    parser.add_argument("--adds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    asyncio.run(main(asked.waiters, asked.adds, asked.json))
