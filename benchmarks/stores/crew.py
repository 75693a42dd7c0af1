"""Benchmark of several worker processes on one store: the server's cost of a visit.

`python crew.py URL SECONDS` is one worker: it says it is there, waits for a line, works for so many
seconds, says how many visits it made, and keeps its connections until its input ends.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, cast

import ours
from calls import Calls, cpu_of

LIMIT = 50  # tasks a claim
MANY = 8
ROUNDS = 2


class Crew:
    """So many workers, ready."""

    def __init__(self, url: str, count: int, seconds: float) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), url, str(seconds)]
        self._workers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603  ourselves
            for _ in range(count)
        ]
        for worker in self._workers:
            _heard(worker)

    def work(self) -> int:
        """Visits of all."""
        for worker in self._workers:
            _told(worker)
        return sum(int(_heard(worker)) for worker in self._workers)

    def leave(self) -> None:
        """They end."""
        for worker in self._workers:
            worker.communicate()


def cost_of_a_visit(url: str, server: int, seconds: float) -> dict[str, Any]:
    """Server CPU µs a visit with one worker and with eight, in turns."""
    found: dict[str, list[float]] = {"one": [], "many": [], "one_rate": [], "many_rate": []}
    for _ in range(ROUNDS):
        for name, count in (("one", 1), ("many", MANY)):
            crew = Crew(url, count, seconds)
            before, began = cpu_of(server), time.perf_counter()
            visits = crew.work()
            spent, wall = cpu_of(server) - before, time.perf_counter() - began
            crew.leave()
            if not visits:
                raise RuntimeError("no visit was made: there was too little work")
            found[name].append(spent / visits * 1e6)
            found[f"{name}_rate"].append(visits / wall)
    return {
        name: min(values) if "rate" not in name else max(values) for name, values in found.items()
    }


async def _work(url: str, seconds: float) -> int:
    frontier = await ours.opened(url)
    _say("ready")
    sys.stdin.readline()
    visits, claims, finishes = 0, Calls(), Calls()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        count, _ = await ours.visit(frontier, claims, finishes, LIMIT)
        visits += count
        if not count:
            await asyncio.sleep(0.01)
    _say(str(visits))
    sys.stdin.read()
    await frontier.close()
    return visits


def _say(text: str) -> None:
    print(text, flush=True)


def _told(worker: subprocess.Popen[str]) -> None:
    stdin = cast("IO[str]", worker.stdin)
    stdin.write("\n")
    stdin.flush()


def _heard(worker: subprocess.Popen[str]) -> str:
    line = cast("IO[str]", worker.stdout).readline()
    if not line:
        raise RuntimeError(f"a worker ended with {worker.wait()}")
    return line


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], float(sys.argv[2])))
