"""Opening a file: one that fails leaves no lock, descriptor, thread or socket behind."""

import fcntl
import os
import tempfile
import threading

import pytest

from outrider import Frontier, SettingsError
from outrider.clock import SystemClock
from outrider.errors import StoreDamaged, StoreError
from outrider.store.embedded.store import EmbeddedStore
from outrider.store.factory import open_store
from outrider.store.remote import socket_address


@pytest.fixture
def held():
    """What this process holds that it did not hold before the test: open files, and threads."""
    files, threads = _held()
    return lambda: tuple(
        now - before for now, before in zip(_held(), (files, threads), strict=True)
    )


@pytest.fixture
def file(tmp_path):
    """Where a crawl is kept; the file is made."""
    path = tmp_path / "crawl.outrider"
    store = EmbeddedStore.open(path, SystemClock())
    store._file.close()
    store._lock.free()
    return path


def _held():
    names = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if _is_open(n)]  # noqa: PTH208, PTH115 - as the system names them
    threads = {thread for thread in threading.enumerate() if thread.name.startswith("outrider")}
    return {name for name in names if "crawl.outrider" in name}, threads


def _is_open(number):
    return os.path.lexists(f"/proc/self/fd/{number}")


async def _opens(path, durability="process"):
    """Open the file in this process as its owner, and close it."""
    store = await open_store(str(path), SystemClock(), durability=durability)
    assert isinstance(store, EmbeddedStore)
    await store.close()


@pytest.mark.parametrize("durability", ["process", "sync"])
@pytest.mark.parametrize("step", ["_load", "_expire_dead", "_check_last_page"])
async def test_opening_that_fails_at_a_step_leaves_nothing_behind(
    held, step, durability, file, monkeypatch
):
    """Whichever step it is, and whether or not a thread writes."""

    def broken(*_):
        raise StoreDamaged(f"broken at {step}")

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedStore, step, broken)
        with pytest.raises(StoreDamaged, match=step) as refused:
            await open_store(str(file), SystemClock(), durability=durability)
        assert held() == (set(), set())

    assert refused.value.__traceback__ is not None  # its frames hold what was not closed
    await _opens(file, durability)


async def test_opening_without_a_place_for_its_socket_leaves_nothing_behind(
    held, file, tmp_path, monkeypatch
):
    """The error names what is in the way; once that is gone, the same process opens the file."""
    monkeypatch.setattr(socket_address, "_private_directories", list)
    obstacle = file.with_name(f"{file.name}.sock")
    obstacle.write_text("precious")

    with pytest.raises(StoreError, match=r"crawl\.outrider\.sock is in the way.*remove it"):
        await open_store(str(file), SystemClock())
    assert held() == (set(), set())
    assert obstacle.read_text() == "precious"
    obstacle.unlink()
    await _opens(file)


async def test_file_is_opened_and_shared_although_a_plain_file_has_the_name_of_its_socket(
    held, file, monkeypatch
):
    """The owner takes another place, and a second opening finds it there."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        file.with_name(f"{file.name}.sock").write_text("precious")
        async with Frontier.open(file) as owner, Frontier.attach(file) as other:
            await other.add(["https://a.example/"])

            assert (await owner.stats()).known == 1
    assert held() == (set(), set())


async def test_frontier_that_cannot_write_its_events_leaves_nothing_behind(held, file, tmp_path):
    """The store is open by then."""
    settings = {"events": {"jsonl": str(tmp_path / "nowhere" / "events.jsonl")}}
    with pytest.raises(SettingsError, match=r"events\.jsonl"):
        await Frontier.open(file, settings=settings)

    assert held() == (set(), set())
    await _opens(file)


async def test_frontier_whose_rules_are_refused_leaves_nothing_behind(
    held, file, tmp_path, monkeypatch
):
    """The last step of opening: the store is asked."""

    async def refused(*_, **__):
        raise StoreError("no rules today")

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedStore, "configure", refused)
        frontier = Frontier.open(
            file, settings={"events": {"jsonl": str(tmp_path / "crawl.outrider.jsonl")}}
        )
        with pytest.raises(StoreError, match="no rules"):
            await frontier

    assert held() == (set(), set())
    async with frontier:  # the same frontier may be opened again
        assert (await frontier.stats()).known == 0


async def test_lock_that_the_system_refuses_is_no_open_descriptor(held, file, monkeypatch):
    """Some network file systems lock nothing."""

    def refused(*_):
        raise OSError(95, "Operation not supported")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refused)
        with pytest.raises(OSError, match="not supported"):
            await open_store(str(file), SystemClock())

    assert held() == (set(), set())
    await _opens(file)
