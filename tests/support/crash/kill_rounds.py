"""Kill rounds over one file: a child works until it is killed, the next opening checks it."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from child_environment import child_environment
from crash import child
from crash.worker import Worker
from outrider.testing.lease_history import require

_TIMEOUT: Final = 60.0  # seconds until a child reaches its point, on the slowest machine
_MAX_LIFE: Final = 0.4  # seconds a child works before it is killed from outside


class KillReport(msgspec.Struct):
    """The result of the rounds of a file."""

    rounds: int = 0
    tasks: int = 0
    visits: int = 0


def kill_once(path: Path, log: Path, seed: int, point: str, durability: str) -> None:
    """Run a child on the file until it is killed."""
    command = [sys.executable, "-m", child.__name__, str(path), str(log), str(seed), point]
    process = subprocess.Popen(
        [*command, durability],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    if point == "none":
        _kill_at_some_instant(process, random.Random(seed))
    _, errors = process.communicate(timeout=_TIMEOUT)
    is_killed = process.returncode == -signal.SIGKILL
    require(is_killed, "M3", f"{' '.join(command)} ended with {process.returncode}: {errors}")


def _kill_at_some_instant(process: subprocess.Popen[str], dice: random.Random) -> None:
    """Kill it mostly while it works, at times while it starts or opens the file."""
    if dice.random() < 0.85 and process.stdout is not None:
        process.stdout.readline()
    try:
        process.wait(dice.uniform(0.0, _MAX_LIFE))
    except subprocess.TimeoutExpired:
        process.kill()


async def reopen(path: Path, log: Path, seed: int, durability: str) -> tuple[int, int]:
    """Open the file after a kill, compare it with the log, visit some pages, and close it."""
    worker = await Worker.open(path, log, seed, durability)
    try:
        await worker.claim_some(64)
        await worker.finish()
    finally:
        await worker.close()
    return len(worker.history.expected.tasks), worker.history.hosts.visits


def rounds(
    folder: Path, seed: int, points: list[str], durability: str, *, looks: float = 0.5
) -> KillReport:
    """Kill a process on the file at each of these points, at a random arrival."""
    dice, done = random.Random(seed), KillReport()
    path, log = folder / "crawl.outrider", folder / "log.jsonl"
    for place, point in enumerate(points):
        at = point if point == "none" else f"{point}:{_arrivals(point, dice, is_young=not place)}"
        kill_once(path, log, dice.randrange(1 << 32), at, durability)
        done.rounds += 1
        if dice.random() < looks:
            asyncio.run(reopen(path, log, dice.randrange(1 << 32), durability))
    done.tasks, done.visits = asyncio.run(reopen(path, log, dice.randrange(1 << 32), durability))
    return done


def _arrivals(point: str, dice: random.Random, *, is_young: bool) -> int:
    """Return a random arrival that a short run reaches; a small table grows more often."""
    often = {"during-growth": 40 if is_young else 4, "during-snapshot": 120, "during-fold": 300}
    return dice.randint(1, often.get(point, 400))
