"""The PostgreSQL store through PgBouncer in transaction mode: its suites, and a fleet with kills.

`make pooler`. PGBOUNCER names the program; else the machine's own is taken, else Debian's package
is downloaded and unpacked into a folder of its own.
"""

import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fleet.fake_web import World
from fleet.fleet import Fleet
from fleet.verify import verify
from outrider.clock import SystemClock
from outrider.store.factory import open_store
from servers import PostgresServer
from servers.pooler import Pooler
from servers.postgres import FAST

SUITES = ["tests/conformance", "tests/property/test_model.py", "tests/property/test_saving.py"]
PACKAGES = ["pgbouncer", "libevent-2.1-7", "libc-ares2"]


def program(folder: Path) -> Path:
    """PgBouncer, wherever it comes from."""
    named = os.environ.get("PGBOUNCER") or shutil.which("pgbouncer")  # noqa: TID251 - a test's own
    if named:
        return Path(named)
    subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, check=True)  # noqa: S607
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, folder / "root"], check=True)  # noqa: S607
    libraries = next((folder / "root/usr/lib").glob("*/libevent*")).parent
    os.environ["LD_LIBRARY_PATH"] = str(libraries)  # noqa: TID251 - of the program just unpacked
    return folder / "root/usr/sbin/pgbouncer"


async def verified(url, world, folder):
    """Verify the logs of the fleet."""
    store = await open_store(url, SystemClock())
    try:
        return await verify(store, world, folder)
    finally:
        await store.close()


def fleet(url: str, folder: Path) -> bool:
    """Three workers, one killed every now and then."""
    world = World(hosts=30, pages=100)
    with Fleet(url, folder, world) as workers:
        for _ in range(3):
            workers.start()
        workers.await_ready()
        workers.kill_some(10, random.Random(0), (0.1, 0.4))
        workers.finish()
    told = asyncio.run(verified(url, world, folder))
    print(
        f"fleet: {told.visits} visits, {len(told.lost)} lost, {len(told.doubled)} doubled, ", end=""
    )
    print(f"{len(told.too_soon)} too soon")
    return told.is_clean


def main() -> int:
    """All of it; 0 if everything held."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        found = program(folder)
        with PostgresServer(options=FAST) as server, Pooler(found, server.url) as pooler:
            environment = {**os.environ, "OUTRIDER_TEST_POSTGRES": pooler.url}  # noqa: TID251 - as above
            words = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-k", "postgres", *SUITES]
            suites = subprocess.run(words, env=environment, check=False)
            is_clean = fleet(f"{pooler.url}?schema=fleet", folder)
    return 0 if is_clean and suites.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
