"""A checkpoint: a whole copy of one moment, or none; the file itself is left alone."""

import asyncio
import os
import sqlite3
import threading

import pytest

from loop_turns import turns
from outrider import Frontier, InvalidInput, checkpoint
from outrider.errors import StoreDamaged, StoreUnusable
from outrider.store.embedded import checkpoint as checkpoint_module
from outrider.store.embedded.file import CrawlFile
from outrider.store.embedded.lock import Lock
from outrider.store.factory import examine


@pytest.mark.parametrize("name", ["closed", "killed"])
async def test_checkpoint_copies_a_file_without_holder(request, name, clock, tmp_path):
    """With its log, and no trace of it."""
    path = request.getfixturevalue(name)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    made = await checkpoint(path, tmp_path / "copy")

    assert [(crawl.crawl, crawl.known) for crawl in made.crawls] == [
        ("default", 1040),
        ("news", 1040),
    ]
    assert made.holder is None
    assert {file: file.read_bytes() for file in tmp_path.iterdir() if file.name != "copy"} == before
    assert examine(tmp_path / "copy", clock).crawls == examine(path, clock).crawls


async def test_checkpoint_copies_a_file_while_it_is_held(closed, clock, tmp_path):
    """Whatever was acknowledged before is in it; what comes later is not; both go on."""
    async with Frontier.open(closed, clock=clock) as frontier:
        await frontier.add(["https://before.example/"])
        made = await checkpoint(closed, tmp_path / "copy")
        await frontier.add(["https://after.example/"])

    assert made.holder.pid == os.getpid()
    async with Frontier.open(tmp_path / "copy", clock=clock) as frontier:
        assert (await frontier.explain("https://before.example/")).task is not None
        assert (await frontier.explain("https://after.example/")).task is None


async def test_copy_has_the_permissions_of_the_file(closed, tmp_path):
    """Who may not read the one may not read the other."""
    closed.chmod(0o600)
    await checkpoint(closed, tmp_path / "copy")

    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600


async def test_checkpoint_never_overwrites_a_file(closed, tmp_path):
    """A copy that exists is refused by name; what a broken copy left is not in the way."""
    (tmp_path / "copy").write_text("mine")
    with pytest.raises(InvalidInput, match="copy exists"):
        await checkpoint(closed, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "mine"

    (tmp_path / "other.partial").write_text("left over")
    await checkpoint(closed, tmp_path / "other")
    assert sorted(file.name for file in tmp_path.glob("other*")) == ["other"]


async def test_second_checkpoint_to_the_same_copy_is_refused(closed, tmp_path):
    """The second is refused while the first is at work."""
    lock = Lock(tmp_path / "copy.partial")
    assert lock.take()
    with pytest.raises(InvalidInput, match="being written"):
        await checkpoint(closed, tmp_path / "copy")
    lock.free()


@pytest.mark.parametrize("store", ["memory://", "postgres://x/y"])
async def test_checkpoint_of_a_store_without_file_names_the_alternative(store, tmp_path):
    """Export does the same for them."""
    with pytest.raises(InvalidInput, match="outrider export"):
        await checkpoint(store, tmp_path / "copy")


async def test_checkpoint_of_a_damaged_file_is_refused(closed, tmp_path, hurt):
    """The copy is read through before it has its name; the way out names the file."""
    hurt(closed, 20)
    with pytest.raises(StoreDamaged, match=f"outrider doctor {closed}"):
        await checkpoint(closed, tmp_path / "copy")

    assert not list(tmp_path.glob("copy*"))


async def test_checkpoint_of_a_foreign_file_is_refused(closed, tmp_path):
    """Nor what is not there, nor to where nothing can be."""
    sqlite3.connect(tmp_path / "other").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(StoreUnusable, match="not a file of Outrider"):
        await checkpoint(tmp_path / "other", tmp_path / "copy")
    with pytest.raises(StoreUnusable, match="no such file"):
        await checkpoint(tmp_path / "nothing", tmp_path / "copy")
    with pytest.raises(InvalidInput, match="no directory"):
        await checkpoint(closed, tmp_path / "no" / "copy")


async def test_cancelled_checkpoint_stops_and_leaves_nothing(closed, tmp_path, monkeypatch):
    """Cancelled after its first step, it leaves nothing behind."""
    monkeypatch.setattr(checkpoint_module, "STEP", 1)
    started, cancelled, told = asyncio.Event(), threading.Event(), []
    loop = asyncio.get_running_loop()

    def tell(text):
        told.append(text)
        loop.call_soon_threadsafe(started.set)
        cancelled.wait()

    copy = asyncio.create_task(checkpoint(closed, tmp_path / "copy", tell=tell))
    await started.wait()
    copy.cancel()
    await turns()
    cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await copy

    assert not list(tmp_path.glob("copy*"))
    assert len(told) == 1


async def test_checkpoint_starts_again_when_the_file_is_opened_meanwhile(closed, tmp_path, clock):
    """Nobody held it when the copy began: what was read without locks is not trusted."""
    taken = []

    def tell(_):
        if not taken:
            file = CrawlFile(closed)
            file.set_meta("tried", b"")
            file.close()
            taken.append(1)

    await checkpoint(closed, tmp_path / "copy", tell=tell)
    assert taken
    assert examine(tmp_path / "copy", clock).is_healthy
    assert [file.name for file in tmp_path.glob("copy*")] == ["copy"]
