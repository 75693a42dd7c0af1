import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.fetch import child_pool as module
from outrider.fetch.child_pool import ChildPool, Fault

WORK = """
import os, signal, subprocess, sys, threading, time

def work(asked):
    if asked == "pid":
        return os.getpid()
    if asked == "hang":
        while True:
            pass
    if asked == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if asked == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if asked == "exit":
        sys.exit(3)
    if asked == "grow":
        return len(bytearray(2**31))
    if asked == "raise":
        raise ValueError("no")
    if asked == "object":
        return object()
    if asked == "print":
        print("rubbish", flush=True)
        os.write(1, b"rubbish")
        return sys.stdin.read()
    if asked == "long":
        return bytes(2**20)
    if asked == "fork":
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
    if asked == "leave":
        left = os.fork()
        if not left:
            os.setsid()
            time.sleep(600)
        return left
    return asked

value = 1
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where a user's module lies."""
    (tmp_path / "outside_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
async def pool(place):
    """A user's function, called elsewhere; nothing of it is left after the test."""
    one = ChildPool("outside_work:work", seconds=20.0, memory=256 * 2**20)
    yield one
    await one.close()


def is_running(pid):
    """Whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_known(pid):
    """Whether the system has an entry for it, be it a zombie's."""
    return Path(f"/proc/{pid}").exists()


def pipes():
    """Those of this process."""
    fds = Path("/proc/self/fd").iterdir()
    return {fd.readlink() for fd in fds if fd.is_fifo()}


async def gone(pid):
    """Wait until a process is no more."""
    async with asyncio.timeout(60):
        while is_running(pid):  # noqa: ASYNC110 - nobody tells when a stranger's process ends
            await asyncio.sleep(0.02)


async def test_a_function_is_called_elsewhere(pool):
    """In one other process, again and again; plain data goes there and comes back."""
    value = {"a": [1, 2.5, None, True, "ü", b"\0\xff"]}

    assert await pool.call(value) == value
    pid = await pool.call("pid", int)
    assert pid != os.getpid()
    assert pid == await pool.call("pid", int)


async def test_a_large_argument_comes_through(pool):
    """More than a pipe holds, both ways."""
    body = os.urandom(3_000_000)

    assert await pool.call(body, bytes) == body


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ("die", "died"),
        ("exit", "died"),
        ("grow", "memory"),
        ("raise", "raised"),
        ("object", "raised"),
    ],
)
async def test_whatever_a_function_does_is_a_value(pool, asked, kind):
    """And the next call is answered."""
    told = await pool.call(asked)

    assert isinstance(told, Fault)
    assert told.kind == kind
    assert await pool.call("well") == "well"


async def test_a_death_is_noticed_by_one_alone(pool, caplog):
    """Whoever else asked how a child ended would take the answer from the loop."""
    pids = []
    for _ in range(10):
        pids.append(await pool.call("pid", int))
        await pool.call("die")
    for pid in pids:
        await gone(pid)
    await pool.close()

    assert not caplog.records


async def test_raised_exception_is_reported_and_child_is_kept(pool):
    """A function that raises is well: its process goes on."""
    pid = await pool.call("pid", int)

    assert await pool.call("raise") == Fault("raised", "ValueError: no")
    assert await pool.call("pid", int) == pid


@pytest.mark.parametrize("asked", ["hang", "stop"])
async def test_a_function_that_takes_too_long_is_ended(place, asked):
    """Its process too; the next call has a new one."""
    pool = ChildPool("outside_work:work", seconds=0.5)
    pid = await pool.call("pid", int)

    assert await pool.call(asked) == Fault("time", "took longer than 0.5 s")
    await gone(pid)
    assert await pool.call("pid", int) != pid
    await pool.close()


async def test_printing_does_no_harm(pool):
    """The pipe is not where a function prints to or reads from."""
    assert await pool.call("print") == ""
    assert await pool.call("well") == "well"


async def test_an_answer_is_bounded(pool, monkeypatch):
    """By the child, and by whoever reads it."""
    assert await pool.call("well") == "well"
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 1000)

    assert (await pool.call("long")).kind == "size"
    assert await pool.call("well") == "well"


async def test_an_answer_of_another_type_is_a_fault(pool):
    """A child is not believed."""
    assert isinstance(await pool.call("text", int), Fault)


@pytest.mark.parametrize("target", ["absent_module:f", "outside_work:absent", "outside_work:value"])
async def test_a_function_that_is_not_there_is_a_fault(place, target):
    """It says what could not be had."""
    pool = ChildPool(target)
    told = await pool.call(1)

    assert told.kind == "start"
    assert target in told.detail
    await pool.close()


async def test_a_cancelled_call_leaves_no_answer_for_the_next(pool):
    """Its child is ended: the next call must not read an answer that was not for it."""
    pid = await pool.call("pid", int)
    call = asyncio.create_task(pool.call("hang"))
    await asyncio.sleep(0.05)
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call

    assert await pool.call("well") == "well"
    await gone(pid)


async def test_children_work_side_by_side(place):
    """As many as are allowed; a call that hangs holds up no other."""
    pool = ChildPool("outside_work:work", seconds=20.0, children=2)
    await asyncio.gather(pool.call("well"), pool.call("well"))
    hanging = asyncio.create_task(pool.call("hang"))
    pids = {await pool.call("pid", int) for _ in range(3)}

    assert len(pids) == 1
    assert not hanging.done()
    await pool.close()
    assert (await hanging).kind == "died"


async def test_closing_leaves_no_pipe(place):
    """Also of a child that was ended long ago, and of one whose pipe somebody else holds."""
    before = pipes()
    pool = ChildPool("outside_work:work", seconds=20.0)
    for asked in ("die", "exit"):
        await pool.call(asked)
    other = await pool.call("leave", int)
    await pool.close()
    await asyncio.sleep(0)  # the loop closes them at its next turn

    assert pipes() == before
    os.kill(other, signal.SIGKILL)


async def test_closing_leaves_no_process(place):
    """Neither running nor as a zombie, nor what the function started."""
    pool = ChildPool("outside_work:work", seconds=20.0)
    pid, other = await pool.call("pid", int), await pool.call("fork", int)
    await pool.close()

    assert not is_known(pid)
    await gone(other)


PARENT = """
import asyncio, os, sys
from outrider.fetch.child_pool import ChildPool

async def main():
    pool = ChildPool("outside_work:work", seconds=1.0)
    print(await pool.call("pid", int), flush=True)
    await pool.call(sys.argv[1])
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("asked", ["well", "hang"])
async def test_a_child_does_not_outlive_a_parent_that_is_killed(place, asked):
    """An idle one sees its pipe end; one that hangs is ended by its own alarm."""
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(place)!r})\n{PARENT}",
        asked,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:  # noqa: ASYNC220 - a test's own
        pid = int(await asyncio.to_thread(parent.stdout.readline))
        await asyncio.sleep(0.3)  # by then the second call is under way
        parent.send_signal(signal.SIGKILL)
    await gone(pid)
