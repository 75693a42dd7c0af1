"""A process is killed with leases out that outlive it: they last until their deadlines (H4)."""

import signal
import subprocess
import sys
from contextlib import closing

import msgspec
import pytest

from child_environment import child_environment
from outrider import Done, Frontier
from outrider.clock import SystemClock
from outrider.core.task import Lease
from outrider.testing.clock import FakeClock

DELAY = 5.0  # seconds between two visits of a host
LEASE = 1800.0  # half an hour, as a callback may take

CHILD = f"""
import asyncio, sys
import msgspec
from outrider import Frontier

async def main(path):
    settings = {{"politeness": {{"delay": {DELAY}}}}}
    async with Frontier.open(path, settings=settings) as frontier:
        await frontier.add([f"https://{{host}}.example/{{n}}" for host in "abcd" for n in (1, 2)])
        lasting = await frontier.claim(3, lease_for={LEASE}, worker="w", outlives_process=True)
        own = await frontier.claim(1)
        for lease in [*lasting, *own]:
            lease = msgspec.structs.replace(lease, holder=None)
            sys.stdout.write(msgspec.json.encode(lease).decode() + "\\n")
        sys.stdout.flush()
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


def killed_with_leases(path):
    """Begin a crawl in another process, and kill it; the leases it had."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)],
        stdout=subprocess.PIPE,
        env=child_environment(),
    )
    with closing(child.stdout):
        lines = [child.stdout.readline() for _ in range(4)]
        child.send_signal(signal.SIGKILL)
        child.wait()
    return [msgspec.json.decode(line, type=Lease) for line in lines]


@pytest.mark.parametrize("times", [1, 2])
async def test_leases_of_a_killed_process_last_until_their_deadlines(tmp_path, times):
    """One is finished, one extended, the third expires in time; no host is visited too soon."""
    path = tmp_path / "crawl.outrider"
    first, second, third, own = killed_with_leases(path)
    clock = FakeClock(SystemClock().now_ms() / 1000)
    for _ in range(times - 1):  # opened and closed by others meanwhile
        async with Frontier.attach(path, clock=clock):
            pass
    async with Frontier.attach(path, clock=clock) as frontier:
        stats = await frontier.stats()
        assert (stats.leased, stats.outcomes) == (3, {"crashed": 1})  # its own was taken back
        assert not await frontier.finish(own, Done(200))
        assert list(await frontier.claim(9)) == []  # three hosts are busy, one has its delay
        clock.advance(DELAY)
        assert [lease.key for lease in await frontier.claim(9)] == [own.key]

        assert await frontier.finish(first, Done(200))
        assert (await frontier.queue(first.key).view()).wakes_in == DELAY
        clock.advance(LEASE - 60.0)
        assert await frontier.extend([second]) == {second}
        await frontier.expire()
        assert (await frontier.store.task("default", third.fingerprint)).state == "leased"
        clock.advance(60.0)
        await frontier.expire()
        assert (await frontier.store.task("default", third.fingerprint)).crashes == 1
        assert (await frontier.queue(third.key).view()).wakes_in == DELAY
        assert await frontier.extend([second, third]) == {second}
        assert (await frontier.store.task("default", second.fingerprint)).worker == "w"
