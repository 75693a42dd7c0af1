"""The other side: a store like any other, until its owner goes."""

import asyncio
import contextlib
import signal
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from outrider.clock import SystemClock
from outrider.errors import Closed, StoreError, StoreUnavailable, StoreUnresponsive
from outrider.store.memory import MemoryStore
from outrider.store.protocol import ClaimRequest
from outrider.store.remote import RemoteStore, StoreServer, client, connection, frames, socket_path
from outrider.testing.builders import done, task
from outrider.testing.conformance.steps import configure, open_crawls

OWNER = textwrap.dedent(
    """
    import asyncio, sys
    from outrider.clock import SystemClock
    from outrider.store.memory import MemoryStore
    from outrider.store.remote import StoreServer

    class Owned(MemoryStore):
        async def expire(self, *, limit):
            print("asked", flush=True)
            await asyncio.get_running_loop().create_future()

    async def own():
        server = await StoreServer.open(Owned(SystemClock()), sys.argv[1])
        print("open", flush=True)
        await asyncio.get_running_loop().create_future()

    asyncio.run(own())
    """
)


@contextlib.asynccontextmanager
async def owner_of(file):
    """A real process that holds the file, killed at the end."""
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, file, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert await owner.stdout.readline() == b"open\n"
        yield owner
    finally:
        if owner.returncode is None:
            owner.kill()
        await owner.wait()


@contextlib.asynccontextmanager
async def impostor(file, *sent):
    """Something that answers a hello with these bytes, and then says no more."""

    async def meet(reader, writer):
        await frames.read_frame(reader)
        writer.write(b"".join(sent))
        writer.close()

    async with await asyncio.start_unix_server(meet, socket_path(Path(file))):
        yield


async def test_it_is_the_owners_store(store, owned):
    """Its leases are the owner's leases; a verb takes time."""
    assert store.id == owned.id
    assert not store.is_inline


async def test_nobody_serves_the_file(file):
    """The message names the file and what to do."""
    with pytest.raises(StoreUnavailable, match=r"no process serves .*/crawl \(at .*: open it"):
        await RemoteStore.connect(file)


async def test_each_of_many_calls_at_once_gets_its_own_answer(store):
    """They share the line, and are answered in order."""
    keys = [f"{number}.example" for number in range(200)]
    views = await asyncio.gather(*(store.queue("x", key) for key in keys))

    assert [view.key for view in views] == keys


async def test_eight_clients_work_at_one_time(server, file):
    """Every task is lent once and done once."""
    stores = [await RemoteStore.connect(file) for _ in range(8)]
    await configure(stores[0])
    claims = [ClaimRequest("default", f"w{number}", 50) for number in range(8)]

    async def work(store, claim):
        await store.add([task(f"https://{claim.worker}-{n}.example/") for n in range(50)])
        leases = (await store.claim(claim)).leases
        ends = await store.finish([done(lease) for lease in leases])
        assert all(end.applied for end in ends)
        return [lease.url for lease in leases]

    visited = await asyncio.gather(*map(work, stores, claims))
    urls = [url for part in visited for url in part]
    view = await stores[0].crawl("default")
    assert view.known == 400
    assert len(urls) == len(set(urls)) == view.done
    for store in stores:
        await store.close()


async def test_a_caller_who_leaves_does_not_mix_up_the_answers(store, owned):
    """The answer that nobody waits for is thrown away."""
    owned.shut.add("crawls")
    leaving = asyncio.create_task(store.crawls())
    await owned.gates["asked"].wait()
    staying = asyncio.create_task(store.queue("x", "a.example"))
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    owned.gates["crawls"].set()

    assert (await staying).key == "a.example"
    assert (await store.queue("x", "b.example")).key == "b.example"


async def test_a_large_call_cancelled_on_its_way_leaves_the_line_whole(store):
    """Its frame is longer than any buffer, and goes out to its end."""
    leaving = asyncio.create_task(store.add_roots("x", "host", ["h" * 100] * 50_000))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving

    assert (await store.queue("x", "a.example")).key == "a.example"


@pytest.mark.slow
async def test_an_owner_killed_in_the_middle_of_a_call(file):
    """The call fails, and may be repeated; then nobody is there, and the socket is left over."""
    async with owner_of(file) as owner:
        store = await RemoteStore.connect(file)
        call = asyncio.create_task(store.expire(limit=1))
        assert await owner.stdout.readline() == b"asked\n"
        owner.kill()
        with pytest.raises(StoreUnavailable, match="unknown whether applied, safe to repeat"):
            await call
        await owner.wait()

    assert socket_path(Path(file)).is_socket()
    with pytest.raises(StoreUnavailable, match="no process serves"):
        await store.crawls()
    async with owner_of(file):
        with pytest.raises(StoreError, match="another store"):
            await store.crawls()
    await store.close()


@pytest.mark.slow
async def test_a_stopped_owner_is_not_waited_for_for_ever(file, monkeypatch):
    """Neither by a call nor by a new hello; when it goes on, the next call finds it again."""
    async with owner_of(file) as owner:
        store = await RemoteStore.connect(file, call_timeout=0.05)
        owner.send_signal(signal.SIGSTOP)
        with pytest.raises(StoreUnavailable, match=r"did not answer for 0\.05 s"):
            await store.crawls()
        monkeypatch.setattr(connection, "CONNECT_TIMEOUT", 0.05)
        with pytest.raises(StoreUnresponsive):
            await store.crawls()
        with pytest.raises(StoreUnresponsive, match="is it stopped"):
            await RemoteStore.connect(file)
        monkeypatch.undo()
        owner.send_signal(signal.SIGCONT)
        store._call_timeout = 30.0

        assert await store.crawls() == []
        await store.close()


async def test_a_new_owner_of_the_same_store_is_found(server, store, file, owned):
    """The file was closed and opened again: the next call goes there."""
    await open_crawls(store, "x")
    await server.close()
    with pytest.raises(StoreUnavailable):
        await store.crawls()
    second = await StoreServer.open(owned, file)

    assert await asyncio.gather(*(store.crawls() for _ in range(5))) == [["x"]] * 5
    assert len(second._connections) == 1
    await second.close()


async def test_another_store_at_the_same_path_is_refused(server, store, file):
    """The file was replaced: leases and cursors of the old one mean nothing there."""
    await server.close()
    second = await StoreServer.open(MemoryStore(SystemClock()), file)

    with pytest.raises(StoreError, match="replaced by another store"):
        await store.crawls()
    await second.close()


async def test_a_closed_store_says_so(store):
    """Closing it twice is closing it once."""
    await store.close()
    await store.close()

    with pytest.raises(Closed, match="was closed"):
        await store.crawls()


async def test_closing_ends_the_calls_that_wait(store, owned):
    """Nobody is left hanging."""
    owned.shut.add("crawls")
    call = asyncio.create_task(store.crawls())
    await owned.gates["asked"].wait()
    await store.close()

    with pytest.raises(StoreUnavailable):
        await call
    owned.gates["crawls"].set()


async def test_closing_while_the_owner_is_looked_for(server, store, file, owned):
    """The line that was found too late is let go of."""
    await server.close()
    with pytest.raises(StoreUnavailable):
        await store.crawls()
    second = await StoreServer.open(owned, file)
    call = asyncio.create_task(store.crawls())
    await asyncio.sleep(0)
    await store.close()

    with pytest.raises(Closed):
        await call
    assert store._connection.is_lost
    await second.close()


async def test_another_release_is_named(file):
    """Both versions, and what to do."""
    theirs = frames.frame(frames.Hello("outrider", 99, "9.9", "one"))
    async with impostor(file, theirs):
        with pytest.raises(
            StoreError, match=r"Outrider 9\.9 \(protocol 99\).*use the same release"
        ):
            await RemoteStore.connect(file)


@pytest.mark.parametrize("noise", [b"\x00\x00\x00\x03abc", b"\xff\xff\xff\xff"])
async def test_what_is_no_outrider_is_named(noise, file):
    """Somebody else's socket has the name."""
    async with impostor(file, noise):
        with pytest.raises(StoreError):
            await RemoteStore.connect(file)


async def test_an_owner_that_goes_before_its_hello(file):
    """It was just closing: ask again."""
    async with impostor(file):
        with pytest.raises(StoreUnavailable, match="before its hello"):
            await RemoteStore.connect(file)


@pytest.mark.parametrize(
    "noise",
    [b"\x00\x00\x00\x03abc", b"\xff\xff\xff\xff", b"\x00\x00\x10\x00\x01", b""],
    ids=["nonsense", "oversized", "cut short", "silence"],
)
async def test_garbage_in_place_of_an_answer_loses_the_line(noise, file):
    """The call fails as one whose owner went away, and nobody hangs."""
    async with impostor(file, frames.frame(frames.hello("one")), noise):
        store = await RemoteStore.connect(file)
        with pytest.raises(StoreUnavailable):
            await store.crawls()
        await store.close()


async def test_an_answer_of_another_type_is_the_stores_fault(store, monkeypatch):
    """The line is in order; what was said on it is not."""
    answer = frames.answer(1, {"known": "many"})
    monkeypatch.setattr(RemoteStore, "_request", lambda *_: asyncio.sleep(0, answer))

    with pytest.raises(StoreError, match="crawl: the answer can't be decoded"):
        await store.crawl("x")


async def test_an_answer_to_a_question_nobody_asked_is_ignored(file):
    """It belongs to a caller who left."""
    stray = frames.frame(frames.Answer(99, "", "", msgspec.Raw(b"\x90")))
    wanted = frames.frame(frames.Answer(1, "", "", msgspec.Raw(b"\x91\xa1x")))

    async def meet(reader, writer):
        await frames.read_frame(reader)
        writer.write(frames.frame(frames.hello("one")))
        await frames.read_frame(reader)
        writer.writelines([stray, wanted])
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(meet, socket_path(Path(file))):
        store = await RemoteStore.connect(file)
        assert await store.crawls() == ["x"]
        await store.close()


# ---- a holder that is there and silent


class Silent:
    """Something that answers so many hellos and so many bytes of each answer, and then nothing."""

    def __init__(self, hellos, answer=b""):
        self.hellos, self.answer = hellos, answer
        self.met, self.over = 0, []

    async def meet(self, reader, writer):
        """One connection."""
        self.met += 1
        self.over.append(asyncio.current_task())
        with contextlib.suppress(EOFError, OSError):
            await frames.read_frame(reader)
            if self.met <= self.hellos:
                writer.write(frames.frame(frames.hello("one")))
                await frames.read_frame(reader)
                writer.write(self.answer)
            await reader.read()
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def silent(file, hellos, answer=b""):
    """The socket of a process that does not answer."""
    one = Silent(hellos, answer)
    async with await asyncio.start_unix_server(one.meet, socket_path(Path(file))):
        yield one
        await asyncio.gather(*one.over)


@pytest.fixture
def hasty(monkeypatch):
    """Short limits, so that a silent holder is told quickly."""
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", 0.2)
    monkeypatch.setattr(client, "PROBE_AFTER", 0.05)


def told(seconds):
    """What is said of a silent holder."""
    return f"process 7 is silent for {seconds:g} s"


async def test_holder_that_accepts_and_says_nothing_is_named_once(file, hasty):
    """One connection, one message: a caller that wants more asks again."""
    async with silent(file, 0) as holder:
        with pytest.raises(StoreUnresponsive, match=r"process 7 is silent for 0\.2 s"):
            await RemoteStore.connect(file, explain=told)
    assert holder.met == 1


@pytest.mark.parametrize("answer", [b"", b"\x00\x00\x10\x00half"], ids=["nothing", "half"])
async def test_holder_that_falls_silent_in_a_call_is_named(file, hasty, answer):
    """Before its answer, or in the middle of it; all calls that wait are told."""
    async with silent(file, 1, answer) as holder:
        store = await RemoteStore.connect(file, explain=told)
        calls = [asyncio.create_task(store.crawls()) for _ in range(3)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        await store.close()

    assert {type(end) for end in ends} == {StoreUnresponsive}
    assert "crawls: process 7 is silent" in str(ends[0])
    assert "safe to repeat" in str(ends[0])
    assert holder.met == 2  # one probe for all


async def probed(store):
    """Until the holder was asked whether it is alive, and had time to say so."""
    for _ in range(1000):
        if store._probing is not None and store._probing.done():
            return
        await asyncio.sleep(0.01)
    pytest.fail("nothing was asked")


async def test_busy_holder_that_still_says_hello_is_waited_for(store, owned, hasty):
    """A verb may take long, as long as the process is alive."""
    owned.shut.add("crawls")
    call = asyncio.create_task(store.crawls())
    await owned.gates["asked"].wait()
    for _ in range(3):
        await probed(store)
        store._probing = None
    assert not call.done()
    owned.gates["crawls"].set()
    assert await call == []


async def test_probe_that_is_refused_for_lack_of_room_is_an_answer(
    server, store, owned, hasty, monkeypatch
):
    """A holder that serves as many as it may is alive."""
    monkeypatch.setattr("outrider.store.remote.server.MAX_CONNECTIONS", 1)
    owned.shut.add("crawls")
    call = asyncio.create_task(store.crawls())
    await owned.gates["asked"].wait()
    await probed(store)
    assert not call.done()
    owned.gates["crawls"].set()
    assert await call == []


# ---- a file whose holder has gone


async def lost(store):
    """Until the client has seen that its line is lost."""
    while not store._connection.is_lost:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.001)


async def test_client_takes_the_file_over_when_its_holder_has_gone(server, store, owned):
    """All calls that wait share it; the same store goes on, and is closed with the client."""
    taken, closed = [], asyncio.Event()

    class Own(MemoryStore):
        async def close(self):
            closed.set()

    async def take_over():
        taken.append(Own(SystemClock()))
        taken[-1].id = owned.id
        await asyncio.sleep(0)
        return taken[-1]

    store._take_over = take_over
    await server.close()
    await lost(store)
    await configure(store)
    await store.add([task("https://a.example/")])
    assert await asyncio.gather(*(store.crawls() for _ in range(5))) == [["default"]] * 5
    (lease,) = (await store.claim(ClaimRequest("default", "w", 1))).leases
    assert (await store.finish([done(lease)]))[0].applied
    assert len(taken) == 1
    await store.close()
    assert closed.is_set()


async def test_file_that_another_process_takes_over_is_asked_for_again(server, store, file, owned):
    """It is not served yet, so the call fails and may be repeated."""

    async def too_late():
        return None

    store._take_over = too_late
    await server.close()
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.crawls()
    second = await StoreServer.open(owned, file)
    assert await store.crawls() == []
    await second.close()


async def test_file_that_was_replaced_is_not_taken_over(server, store):
    """Leases and cursors of the old store mean nothing in the new one."""
    closed = asyncio.Event()

    class Other(MemoryStore):
        async def close(self):
            closed.set()

    async def take_over():
        return Other(SystemClock())

    store._take_over = take_over
    await server.close()
    await lost(store)
    with pytest.raises(StoreError, match="replaced by another store"):
        await store.crawls()
    assert closed.is_set()


async def test_claims_name_the_process_that_makes_them(server, file, owned):
    """So that its leases outlive the holder (H4)."""
    store = await RemoteStore.connect(file, process="q/1")
    await store.claim(ClaimRequest("default", "w", 1))
    ((_, arguments),) = [request for request in owned.request if request[0] == "claim"]
    assert arguments["request"].process == "q/1"
    await store.close()
