"""Rounds of work and sudden death over one file, each judged by whoever opens it next."""

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

_PATIENCE: Final = 60.0  # seconds a child may take to reach its point, on the slowest machine
_LONGEST: Final = 0.4  # seconds it works before it is killed from outside


class Killed(msgspec.Struct):
    """How the rounds of a file went."""

    rounds: int = 0
    tasks: int = 0
    visits: int = 0


def kill_once(path: Path, ledger: Path, seed: int, point: str, durability: str) -> None:
    """Let a child work on the file until it is dead."""
    command = [sys.executable, "-m", child.__name__, str(path), str(ledger), str(seed), point]
    process = subprocess.Popen(
        [*command, durability],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    if point == "none":
        _kill_at_some_instant(process, random.Random(seed))
    _, said = process.communicate(timeout=_PATIENCE)
    is_killed = process.returncode == -signal.SIGKILL
    require(is_killed, "M3", f"{' '.join(command)} ended with {process.returncode}: {said}")


def _kill_at_some_instant(process: subprocess.Popen[str], dice: random.Random) -> None:
    """While it works, mostly; now and then while it starts or opens the file."""
    if dice.random() < 0.85 and process.stdout is not None:
        process.stdout.readline()
    try:
        process.wait(dice.uniform(0.0, _LONGEST))
    except subprocess.TimeoutExpired:
        process.kill()


async def look_again(path: Path, ledger: Path, seed: int, durability: str) -> tuple[int, int]:
    """Open the file after a kill, compare it with the ledger, visit a little, close it in order."""
    worker = await Worker.open(path, ledger, seed, durability)
    try:
        await worker.claim_some(64)
        await worker.finish()
    finally:
        await worker.close()
    return len(worker.history.expected.tasks), worker.history.hosts.visits


def rounds(
    folder: Path, seed: int, points: list[str], durability: str, *, looks: float = 0.5
) -> Killed:
    """A file lives through a kill at each of these points; "name" chooses its own arrival."""
    dice, done = random.Random(seed), Killed()
    path, ledger = folder / "crawl.outrider", folder / "ledger.jsonl"
    for place, point in enumerate(points):
        at = point if point == "none" else f"{point}:{_arrivals(point, dice, is_young=not place)}"
        kill_once(path, ledger, dice.randrange(1 << 32), at, durability)
        done.rounds += 1
        if dice.random() < looks:
            asyncio.run(look_again(path, ledger, dice.randrange(1 << 32), durability))
    done.tasks, done.visits = asyncio.run(
        look_again(path, ledger, dice.randrange(1 << 32), durability)
    )
    return done


def _arrivals(point: str, dice: random.Random, *, is_young: bool) -> int:
    """How often a short life gets there; a table grows much while it is small."""
    often = {"during-growth": 40 if is_young else 4, "during-snapshot": 120, "during-fold": 300}
    return dice.randint(1, often.get(point, 400))
