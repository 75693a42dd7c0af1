"""Works on a file whose disk is full again and again: `full_child.py FILE SEED DURABILITY HOW`.

HOW is "limit" (no file may grow beyond a size) or "ballast" (another file takes all the room there
is beside it). Exits with 0 if nothing was lost, nothing was half applied, and all went on.
"""

import asyncio
import contextlib
import os
import random
import resource
import sys
from pathlib import Path

from crash import kill_points
from crash.worker import HoldableClock, Worker
from outrider.errors import StoreFull

NO_LOG = Path(os.devnull)  # it would be cut short as well; the worker remembers it all


class Limit:
    """The largest file may not grow much."""

    def __init__(self, path):
        self.path = path

    def squeeze(self, room):
        """So many bytes more, no more."""
        sizes = [part.stat().st_size for part in self.path.parent.iterdir()]
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes) + room, resource.RLIM_INFINITY))

    def ease(self):
        """As large as they like."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Ballast:
    """Another file takes the room."""

    def __init__(self, path):
        self.file = path.parent / "ballast"

    def squeeze(self, room):
        """All but so many bytes."""
        with contextlib.suppress(OSError), self.file.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        os.truncate(self.file, max(0, self.file.stat().st_size - room))

    def ease(self):
        """It goes."""
        self.file.unlink()


async def until_refused(worker, times):
    """Work until the disk refused so often; every refusal is typed, and names the file."""
    for _ in range(3000):
        refusal = await refusal_of(worker)
        if refusal is not None:
            assert "crawl.outrider" in refusal, refusal
            assert "room" in refusal, refusal
            times -= 1
        if not times:
            return
    raise AssertionError("the disk never was full")


async def refusal_of(worker):
    """What the disk said to one step; None if it went through."""
    try:
        await worker.step()
    except StoreFull as error:
        return str(error)


async def look(worker):
    """What can be read is true; a read may also say that the disk is full."""
    with contextlib.suppress(StoreFull):
        await worker.compare()


async def main(path, seed, durability, how):
    """Full, and free again, five times; then closed and opened once more."""
    dice, clock = random.Random(seed), HoldableClock()
    disk = {"limit": Limit, "ballast": Ballast}[how](path)
    worker = await Worker.open(path, NO_LOG, seed, durability, clock=clock)
    for _ in range(5):
        for _ in range(30):
            await worker.step()
        disk.squeeze(dice.choice((0, 5000, 60_000)))
        await until_refused(worker, 3)
        await look(worker)
        disk.ease()
        await worker.compare()
        while worker.held:
            await worker.finish()
    await worker.close()
    worker = await worker.reopened(path)
    await worker.close()


if __name__ == "__main__":
    kill_points.use_small_constants()
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]))
