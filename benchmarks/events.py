"""What events cost: adds and visits of a frontier, not followed and with one follower.

    .venv/bin/python benchmarks/events.py [--follow] [--store URL] [--count N]

CPU microseconds of this process per link added, and per visit, claims and finishes in batches of
100; the best and the median of twenty windows. With --follow another process follows the crawl. Run
it alternately on two builds to compare them.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from outrider import Done, Frontier

WINDOWS = 20
SETTINGS = {"politeness": {"delay": 0.0, "max_in_flight": 1000}}


async def measure(store: str, count: int, *, follows: bool) -> None:
    """Add and visit, in windows, and print the figures."""
    async with Frontier.open(store, settings=SETTINGS) as frontier:
        await frontier.add(["https://first.example/"])
        follower = start_follower(store) if follows else None
        while follower is not None and not frontier._context.reporter.has_listeners:  # noqa: SLF001
            await frontier.listen()
            await asyncio.sleep(0.1)
        adds = [await add(frontier, window, count) for window in range(WINDOWS)]
        visits = [await visit(frontier, count) for _ in range(WINDOWS)]
        if follower is not None:
            follower.terminate()
            follower.wait()
    for name, figures in (("add", adds), ("visit", visits)):
        best, middle = min(figures), statistics.median(figures)
        print(f"{name}: best {best * 1e6:.2f} µs, median {middle * 1e6:.2f} µs")


def start_follower(store: str) -> "subprocess.Popen[bytes]":
    """Follow the crawl in another process."""
    command = [str(Path(sys.executable).with_name("outrider")), "events", store, "--follow"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - our own command


async def add(frontier: Frontier, window: int, count: int) -> float:
    """Return the CPU seconds of a link added."""
    links = [f"https://h{n % 100}.example/{window}/{n}" for n in range(count)]
    began = time.process_time()
    for start in range(0, count, 500):
        await frontier.add(links[start : start + 500])
    return (time.process_time() - began) / count


async def visit(frontier: Frontier, count: int) -> float:
    """Return the CPU seconds of a visit."""
    done, began = 0, time.process_time()
    while done < count:
        leases = await frontier.claim(100)
        if not leases:
            break
        await frontier.finish_many([(lease, Done(200)) for lease in leases])
        done += len(leases)
    return (time.process_time() - began) / max(done, 1)


def main() -> None:
    """Read the options, and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--store", default="")
    parser.add_argument("--count", type=int, default=2000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = given.store or f"{folder}/x.outrider"
        asyncio.run(measure(store, given.count, follows=given.follow))


main()
