"""Benchmark of claims while a transaction holds an old snapshot, so that dead rows stay."""

from __future__ import annotations

import time
from typing import Any

import ours
import psycopg
from calls import Calls

from outrider.frontier import Frontier

BEFORE = 15.0  # seconds
AFTER = 30.0
LOOK = 2.0  # seconds of a window, afterwards
BACK = 2.0  # times what it was before is back


async def held(frontier: Frontier, url: str, seconds: float) -> dict[str, Any]:
    """Claim p99 before, meanwhile, and how long until it is back."""
    before = await _work(frontier, min(BEFORE, seconds))
    with psycopg.connect(url) as line:
        line.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        line.execute("SELECT count(*) FROM pg_class")  # from here on it sees the past
        meanwhile = await _work(frontier, seconds)
    back, after = await _until_back(frontier, before.p99)
    return {
        "before": before.told(),
        "meanwhile": meanwhile.told(),
        "after": after.told(),
        "worse": meanwhile.p99 / before.p99,
        "back_in": back,
    }


async def _until_back(frontier: Frontier, p99: float) -> tuple[float, Calls]:
    began = time.perf_counter()
    while True:
        calls = await _work(frontier, LOOK)
        passed = time.perf_counter() - began
        if calls.p99 <= BACK * p99 or passed > 2 * AFTER:
            return max(0.0, passed - LOOK), calls


async def _work(frontier: Frontier, seconds: float) -> Calls:
    """The whole cycle; its claims."""
    return (await ours.work(frontier, seconds)).claims
