"""Benchmarks of one file with millions of tasks: memory, longest call, time to open it again.

Each part runs in its own process, so that memory is measured per part.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from outrider.bench.file_store import EAGER
from outrider.bench.measurement import Measure, resident
from outrider.core.outcome import Done
from outrider.core.task import Task
from outrider.frontier import Frontier
from outrider.testing.clock import FakeClock

GIANT_SHARE = 0.05
PER_HOST = 200
LONG = 50.0  # milliseconds


def measures(size: int, place: str | None = None) -> Iterator[Measure]:
    """Grow a file to `size` tasks, kill its holder, open it, work, close it, open it again."""
    with tempfile.TemporaryDirectory(dir=place) as directory:
        path = str(Path(directory) / "scale.outrider")
        grown = _part("grow", path, size)
        yield Measure(f"adds at {size:,} ÷ at {size // 10:,} tasks", grown["slope"], "×", 0.6)
        yield Measure(f"adds up to {size:,}, all new", grown["rate"], "/s")
        yield Measure("memory a pending task", grown["memory"], "B", 60, is_most=True)
        yield Measure("longest add while growing", grown["longest"], "ms", LONG, is_most=True)
        yield Measure("adds over 50 ms, of each 10,000", grown["long_share"], "")
        seconds = _part("open", path, size)["seconds"]
        yield Measure("open to first claim, after kill -9", seconds, "s", 8, is_most=True)
        worked = _part("work", path, size)
        yield Measure(f"claim + finish at {size:,}", worked["rate"], "/s")
        yield Measure("longest claim or finish", worked["longest"], "ms", LONG, is_most=True)
        yield Measure("memory a finished task", worked["memory"], "B", 32, is_most=True)
        seconds = _part("open", path, size)["seconds"]
        yield Measure("open to first claim, after a close", seconds, "s", 2, is_most=True)
        yield Measure("file a task", Path(path).stat().st_size / size, "B")
    queues = _part("queues", "", max(10_000, size // 20))
    yield Measure("memory a queue with work", queues["busy"], "B", 700, is_most=True)
    yield Measure("memory an idle queue", queues["idle"], "B", 300, is_most=True)


def _part(name: str, path: str, size: int) -> dict[str, float]:
    """Run one part in a child process; `grow` kills itself after printing its figures."""
    command = [sys.executable, "-m", "outrider.bench.scale", name, path, str(size)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)  # noqa: S603
    if done.returncode not in (0, -signal.SIGKILL):
        raise subprocess.CalledProcessError(done.returncode, command)
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def batches(size: int, start: int = 0) -> Iterator[list[Task]]:
    """Yield new tasks over hosts of Zipf sizes plus one giant host."""
    dice = random.Random(start)
    hosts = max(1, size // PER_HOST)
    weights = list(accumulate(1 / rank for rank in range(1, hosts + 1)))
    for first in range(start, start + size, 500):
        yield [_task(page, _host(dice, weights), dice) for page in range(first, first + 500)]


def _host(dice: random.Random, weights: list[float]) -> int:
    if dice.random() < GIANT_SHARE:
        return 0
    return bisect_left(weights, dice.random() * weights[-1])


def _task(page: int, host: int, dice: random.Random) -> Task:
    key = f"www.host-{host}.example"
    url = f"https://{key}/section/{page % 97}/article-{page:08d}.html"
    name = hashlib.blake2b(url.encode(), digest_size=16).digest()
    return Task("default", name, url, key, "page", 0, page % 6, 1, dice.random() * 10, 1)


async def grow(path: str, size: int) -> dict[str, Any]:
    """Add all tasks."""
    frontier = await Frontier.open(path, settings=EAGER, clock=FakeClock())
    _freeze()
    before, spent, calls = resident(), [0.0], []
    for number, batch in enumerate(batches(size), 1):
        cpu, wall = time.process_time(), time.perf_counter()
        await frontier.store.add(batch)
        calls.append(time.perf_counter() - wall)
        spent[-1] += time.process_time() - cpu
        if number % max(1, size // 5000) == 0:
            spent.append(0.0)
    early, late = spent[0], spent[-2] if len(spent) > 10 else spent[0]
    return {
        "slope": early / late,
        "rate": size / sum(spent),
        "memory": (resident() - before) / size,
        "longest": max(calls) * 1e3,
        "long_share": sum(call * 1e3 > LONG for call in calls) / len(calls) * 1e4,
    }


def _freeze() -> None:
    """Keep garbage collections out of the figures (docs/how-to/large-crawls.md)."""
    gc.collect()
    gc.freeze()


async def open_(path: str, _size: int) -> dict[str, Any]:
    """Open the file and claim once; end without closing it."""
    before = time.perf_counter()
    frontier = await Frontier.open(path, settings=EAGER, clock=FakeClock())
    claim = await frontier.claim(1)
    seconds = time.perf_counter() - before
    assert claim  # noqa: S101 - opening without tasks would measure nothing
    return {"seconds": seconds}


async def work(path: str, size: int) -> dict[str, Any]:
    """Visit a tenth of the tasks, and close the file."""
    clock = FakeClock()
    frontier = await Frontier.open(path, settings=EAGER, clock=clock)
    _freeze()
    spent, calls, count = 0.0, [0.0], 0
    while count < size // 10:
        cpu, start = time.process_time(), time.perf_counter()
        claim = await frontier.claim(100)
        middle = time.perf_counter()
        await frontier.finish_many([(lease, Done(200, 0.1)) for lease in claim])
        calls += [middle - start, time.perf_counter() - middle]
        spent += time.process_time() - cpu
        count += len(claim)
        clock.advance(0.0 if len(claim) == 100 else claim.wake_in or 1.0)
    rate, longest = count / spent, max(calls) * 1e3
    await frontier.close()
    return {"rate": rate, "longest": longest, "memory": await _finished(size // 10)}


async def _finished(size: int) -> float:
    """Measure the memory of tasks that are done, when no task is pending."""
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as place:
        async with Frontier.open(f"{place}/done", settings=EAGER, clock=clock) as frontier:
            before = 0
            for number, batch in enumerate(batches(size + 50_000)):
                if number == 100:
                    before = resident()
                await frontier.store.add(batch)
                while claim := await frontier.claim(500):
                    await frontier.finish_many([(lease, Done(200, 0.1)) for lease in claim])
                clock.advance(61.0)
            return (resident() - before) / size


async def queues(_path: str, count: int) -> dict[str, Any]:
    """Measure the memory of queues with one task each, then of queues that became empty."""
    with tempfile.TemporaryDirectory() as place:
        busy = await _queues(f"{place}/busy", count, keeps=True) - 60
        idle = await _queues(f"{place}/idle", count, keeps=False) - 32
    return {"busy": busy, "idle": idle}


async def _queues(path: str, count: int, *, keeps: bool) -> float:
    clock = FakeClock()
    dice = random.Random(1)
    async with Frontier.open(path, settings=EAGER, clock=clock) as frontier:
        before = 0
        for first in range(0, count + 20_000, 500):
            if first == 20_000:
                gc.collect()
                before = resident()
            await frontier.store.add([_task(n, n, dice) for n in range(first, first + 500)])
            while not keeps and (claim := await frontier.claim(500)):
                await frontier.finish_many([(lease, Done(200, 0.1)) for lease in claim])
            clock.advance(61.0)
        gc.collect()
        return (resident() - before) / count


PARTS = {"grow": grow, "open": open_, "work": work, "queues": queues}


def main() -> None:
    """Run one part and print its figures as a JSON line; with an open file it ends as if killed."""
    name, path, size = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(PARTS[name](path, int(size)))) + "\n")
    sys.stdout.flush()
    if name in ("grow", "open"):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
