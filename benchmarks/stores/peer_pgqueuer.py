"""Benchmark of PgQueuer: jobs enqueued in batches, run as no-ops, drained.

Runs in an environment of its own: `python peer_pgqueuer.py URL COUNT`; prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

ADD = 500
RUN = 100


async def measured(url: str, count: int) -> dict[str, Any]:
    """Rates by the wall."""
    line = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(line))
    await queries.install()
    began = time.perf_counter()
    for start in range(0, count, ADD):
        size = min(ADD, count - start)
        await queries.enqueue(["visit"] * size, [b"https://host.example/page"] * size, [0] * size)
    added = time.perf_counter() - began
    done, began = 0, time.perf_counter()
    queue = PgQueuer(AsyncpgDriver(line))

    @queue.entrypoint("visit")
    async def visit(_: object) -> None:
        nonlocal done
        done += 1

    await queue.qm.run(
        dequeue_timeout=timedelta(seconds=1), batch_size=RUN, mode=QueueExecutionMode.drain
    )
    ran = time.perf_counter() - began
    durable = await line.fetchval("SELECT relpersistence FROM pg_class WHERE relname = 'pgqueuer'")
    await queries.uninstall()
    await line.close()
    return {
        "version": version("pgqueuer"),
        "adds": count / added,
        "runs": count / ran,
        "lost": done != count,
        "logged": durable in ("p", b"p"),
    }


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    json.dump(asyncio.run(measured(sys.argv[1], int(sys.argv[2]))), sys.stdout)
