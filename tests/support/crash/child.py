"""The child process that is killed: opens a file, compares it with the log, and works.

`python -m crash.child FILE LOG SEED POINT [DURABILITY]`, where POINT is a name
and an arrival ("after-write:17"), or "none": then the parent kills it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from crash import kill_points
from crash.worker import Worker

STEPS: Final = 4000
READY: Final = "working"
NOT_REACHED: Final = 4


async def _work(path: Path, log: Path, seed: int, durability: str) -> None:
    worker = await Worker.open(path, log, seed, durability)
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    await worker.claim_some(64)  # the first leases after a kill would show missing delays
    for _ in range(STEPS):
        await worker.step()
    await worker.close()


def main(arguments: list[str]) -> int:
    """Work until killed; to end otherwise is a failure."""
    path, log, seed, point, *rest = arguments
    kill_points.use_small_constants()
    name, _, arrivals = point.partition(":")
    installed = kill_points.install(name, int(arrivals)) if name != "none" else None
    asyncio.run(_work(Path(path), Path(log), int(seed), *(rest or ("process",))))
    sys.stderr.write(f"{point} was never reached ({installed})\n")
    return NOT_REACHED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
