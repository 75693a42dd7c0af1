"""Files of every kind: closed, held, killed; made once, copied for each test."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from outrider import Done, Failed, Frontier
from outrider.store.embedded import EmbeddedStore
from outrider.testing import FakeClock

HOSTS = 20
TASKS = 1000
SETTINGS = {"politeness": {"delay": 0.0, "max_in_flight": 10}, "retry": {"max_retries": 0}}


async def fill(store, clock, *, with_snapshot=True):
    """Tasks in every state, a snapshot in the middle, leases at the end; two crawls."""
    for crawl in ("default", "news"):
        async with Frontier.open(store, settings=SETTINGS, crawl=crawl, clock=clock) as frontier:
            await frontier.add([f"https://h{n % HOSTS}.example/{n}" for n in range(TASKS)])
            for lease in await frontier.claim(40):
                await frontier.finish(lease, Done(200), links=[lease.url + "/more"])
    if with_snapshot:
        store._new_items = 1 << 30
        while store._snapshot is not None or store._new_items > 1 << 29:
            await store.crawls()
    async with Frontier.open(store, settings=SETTINGS, clock=clock) as frontier:
        leases = await frontier.claim(60)
        await frontier.finish_many([(lease, Failed("cut")) for lease in leases[:20]])
        await frontier.finish_many([(lease, Done(200)) for lease in leases[20:50]])
        await frontier.drop(pattern="/77")


def write(path, *, is_killed):
    """A file; the process that writes one to be killed does not come back."""

    async def run():
        clock = FakeClock()
        store = EmbeddedStore.open(path, clock)
        await fill(store, clock)
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)
        await store.close()

    asyncio.run(run())


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    """One closed in order, one whose process was killed."""
    directory = tmp_path_factory.mktemp("originals")
    for name, code in (("closed", 0), ("killed", -signal.SIGKILL)):
        done = subprocess.run([sys.executable, __file__, directory / name], check=False)
        assert done.returncode == code
    return directory


def copied(originals, name, directory):
    """A file with its log and its lock; what a socket left behind stays where it is."""
    for end in ("", "-wal", "-lock"):
        if (originals / f"{name}{end}").exists():
            shutil.copy(originals / f"{name}{end}", directory / f"crawl.outrider{end}")
    return directory / "crawl.outrider"


@pytest.fixture
def closed(originals, tmp_path):
    """A file that was closed in order."""
    return copied(originals, "closed", tmp_path)


@pytest.fixture
def killed(originals, tmp_path):
    """A file whose process was killed: most of it is in its log."""
    return copied(originals, "killed", tmp_path)


@pytest.fixture
def clock():
    """Time that moves only when a test says so."""
    return FakeClock(1_700_100_000.0)


@pytest.fixture
def hurt():
    """Changes a byte in the middle of a page, on the disk; in outdated copies of it as well."""

    def hurt(path, number):
        db = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
        ((content,),) = db.execute("SELECT data FROM page WHERE id = ?", (number,))
        db.close()
        data = bytearray(path.read_bytes())
        at = data.index(content[:200])
        while at >= 0:
            data[at + 100] ^= 0xFF
            at = data.find(content[:200], at + 1)
        path.write_bytes(data)

    return hurt


if __name__ == "__main__":
    write(Path(sys.argv[1]), is_killed=sys.argv[1].endswith("killed"))
