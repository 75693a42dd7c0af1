"""A file that several frontiers share, in one process: who holds it, and when that changes."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from outrider import Done, Frontier, StoreUnavailable, StoreUnresponsive, StoreUnusable
from outrider.frontier.live_settings import LiveSettings
from outrider.store import factory
from outrider.store.factory import join_store
from outrider.store.remote import connection, socket_path
from outrider.testing import FakeClock

A, B = "https://a.example/", "https://b.example/"
MANNERS = {"politeness": {"delay": 5.0}}


@pytest.fixture
def clock():
    """Time that moves only when a test says so."""
    return FakeClock()


@pytest.fixture
def path(tmp_path):
    """Where the file is."""
    return tmp_path / "x.outrider"


async def again(call):
    """Every verb may be repeated: the first call after its holder went fails."""
    try:
        return await call()
    except StoreUnavailable:
        return await call()


async def test_frontier_keeps_its_leases_when_the_holder_closes(path, clock):
    """H4: the one that is left holds the file; a third one joins it."""
    first = await Frontier.open(path, settings=MANNERS, clock=clock)
    second = await Frontier.attach(path, clock=clock)
    await first.add([A, B])
    (gone,) = await first.claim()
    (kept,) = await second.claim()
    await first.close()

    assert await again(lambda: second.finish(kept, Done(200)))
    views = {view.key: view async for view in second.queues()}
    assert (views["a.example"].wakes_in, views["b.example"].done) == (5.0, 1)
    async with Frontier.attach(path, clock=clock) as third:
        assert not third.store.is_inline
        clock.advance(5)
        assert [lease.url for lease in await third.claim(9)] == [gone.url]
    await second.close()


async def test_file_that_is_gone_is_not_made_again(path):
    """A survivor says so, and leaves no empty crawl in its place."""
    first = await Frontier.open(path)
    second = await Frontier.attach(path)
    await first.close()
    os.remove(path)  # noqa: PTH107 - as a person does
    with pytest.raises(StoreUnusable, match="the file is gone"):
        await again(second.stats)
    assert not [*path.parent.glob("x.outrider")]
    await second.close()


async def test_reader_never_holds_the_file(path):
    """`join_store` finds the holder, or nothing."""
    first = await Frontier.open(path)
    joined = await join_store(str(path))
    assert await joined.crawls() == ["default"]
    await first.close()
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await joined.crawls()
    assert await join_store(str(path)) is None
    await joined.close()


async def test_held_file_that_is_not_served_is_waited_for_and_named(path, monkeypatch):
    """Its holder is about to serve it, or cannot: other processes are told which one it is."""
    monkeypatch.setattr(factory, "HOLDER_TIMEOUT", 0.2)
    first = await Frontier.open(path)
    socket_path(Path(path)).unlink()
    with pytest.raises(StoreUnavailable, match=rf"process {os.getpid()} .*does not serve it"):
        await Frontier.attach(path)
    await first.close()


async def test_held_file_whose_holder_is_silent_is_named_at_once(path, monkeypatch):
    """Not after fifty tries: a second one would say the same."""
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", 0.2)
    first = await Frontier.open(path)
    socket_path(Path(path)).unlink()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(socket_path(Path(path))))
        deaf.listen()
        with pytest.raises(StoreUnresponsive, match=rf"process {os.getpid()} .*kill -9") as told:
            await Frontier.attach(path)
        assert f"holds {path} and does not answer for 0.2 s" in str(told.value)
        deaf.setblocking(False)
        deaf.accept()[0].close()
        with pytest.raises(BlockingIOError):
            deaf.accept()  # it came once
    await first.close()


async def test_opening_that_fails_after_the_store_was_opened_lets_go_of_the_file(path):
    """So that another frontier can hold it."""

    async def learn(_live):
        raise StoreUnavailable("not now")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LiveSettings, "learn", learn)
        with pytest.raises(StoreUnavailable):
            await Frontier.open(path)
    async with asyncio.timeout(60), Frontier.open(path) as frontier:
        assert frontier.store.is_inline
