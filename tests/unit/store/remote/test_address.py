"""Where the socket stands, and who may come through it."""

import contextlib
import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from outrider.errors import StoreError, StoreUnavailable
from outrider.store.remote import Door, RemoteStore, address, socket_path


@pytest.fixture
def short_temp(monkeypatch):
    """A directory for temporary things whose own path leaves room for a socket's."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


@pytest.fixture
def deep(tmp_path):
    """A file whose path is too long for a socket beside it."""
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    return directory / "crawl"


def test_the_socket_stands_beside_the_file(tmp_path):
    """Whoever sees the file sees that it is served."""
    assert socket_path(tmp_path / "crawl") == tmp_path.resolve() / "crawl.sock"


def test_every_name_of_a_file_leads_to_one_socket(tmp_path, monkeypatch):
    """A relative path, a link: the owner and the others need not write it alike."""
    (tmp_path / "crawl").touch()
    (tmp_path / "link").symlink_to("crawl")
    monkeypatch.chdir(tmp_path)

    assert (
        socket_path(Path("crawl")) == socket_path(Path("link")) == socket_path(tmp_path / "crawl")
    )


def test_a_path_too_long_for_a_socket_is_served_elsewhere(short_temp, deep):
    """In a directory that is ours, by a hash of the real path."""
    path = socket_path(deep)

    assert len(os.fsencode(path)) <= address.LONGEST
    assert path.is_relative_to(short_temp)
    assert path != socket_path(deep.with_name("other"))


async def test_a_long_path_is_found_by_both_sides(short_temp, deep, owned):
    """The directory is made by the owner, for its user alone."""
    door = await Door.open(owned, str(deep))
    store = await RemoteStore.connect(str(deep))

    assert await store.crawls() == []
    assert stat.S_IMODE(socket_path(deep).parent.stat().st_mode) == 0o700

    await store.close()
    await door.close()


async def test_a_directory_that_others_may_write_to_is_refused(short_temp, deep, owned):
    """Somebody made it before us, and could serve in our place."""
    socket_path(deep).parent.mkdir(mode=0o755)

    with pytest.raises(StoreError, match="not a private directory"):
        await Door.open(owned, str(deep))


async def test_only_the_owner_may_connect(file, owned):
    """Whatever the umask says."""
    before = os.umask(0)
    try:
        door = await Door.open(owned, file)
    finally:
        os.umask(before)

    assert stat.S_IMODE(door.path.stat().st_mode) == 0o600
    await door.close()


def test_nobody_connects_before_the_mode_is_set(tmp_path):
    """A bound socket refuses everybody until it listens, and `bound` does not let it."""
    path = tmp_path / "x.sock"
    waiting = address.bound(path)
    with socket.socket(socket.AF_UNIX) as early, pytest.raises(ConnectionRefusedError):
        early.connect(str(path))
    waiting.close()


def test_a_process_knows_its_own_user():
    """Asked of the kernel, not of the other side."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert address.is_same_user(ours)


def test_another_user_is_told_apart(monkeypatch):
    """By the effective user, which is what files are opened as."""
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with ours, theirs:
        assert not address.is_same_user(ours)


async def test_the_owner_lets_no_other_user_in(door, file, monkeypatch):
    """Not even root: its files would be the wrong user's."""
    monkeypatch.setattr("outrider.store.remote.door.is_same_user", lambda _connection: False)

    with pytest.raises(StoreUnavailable, match=r"before it said hello|cannot be reached"):
        await RemoteStore.connect(file)


async def test_nothing_is_said_to_another_users_socket(door, file, monkeypatch):
    """Anybody who may write to the directory can put a socket there."""
    monkeypatch.setattr("outrider.store.remote.line.is_same_user", lambda _connection: False)

    with pytest.raises(StoreError, match="another user"):
        await RemoteStore.connect(file)


async def test_a_dead_owners_socket_is_replaced(file, owned):
    """Nobody answers there: it is left over."""
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(socket_path(Path(file))))

    with pytest.raises(StoreUnavailable, match="no process serves"):
        await RemoteStore.connect(file)
    door = await Door.open(owned, file)
    store = await RemoteStore.connect(file)
    assert store.id == "one"
    await store.close()
    await door.close()


async def test_a_living_owners_socket_is_respected(door, store, file, owned):
    """Two owners of one file is a mistake, and the first goes on."""
    with pytest.raises(StoreError, match="another process serves"):
        await Door.open(owned, file)

    assert await store.crawls() == []


async def test_what_is_no_socket_is_never_removed(file, owned):
    """Somebody's file happens to have the name."""
    path = socket_path(Path(file))
    path.write_text("precious")

    with pytest.raises(StoreError, match="in the way"):
        await Door.open(owned, file)
    assert path.read_text() == "precious"


async def test_a_directory_that_takes_no_socket_is_named(tmp_path, owned):
    """Here because it is missing; a mount may refuse as well."""
    with pytest.raises(StoreError, match=r"no socket can be made at .*nowhere"):
        await Door.open(owned, str(tmp_path / "nowhere" / "crawl"))


async def test_closing_leaves_a_new_owners_socket_alone(file, owned):
    """The path belongs to whoever serves it now."""
    first = await Door.open(owned, file)
    first.path.unlink()
    second = await Door.open(owned, file)

    await first.close()
    assert second.path.exists()
    await second.close()
    assert not second.path.exists()


async def test_who_is_not_let_in_is_told_that_the_owner_is_busy(file, monkeypatch):
    """A full backlog is tried again for a while; what was not accepted is no line."""
    monkeypatch.setattr("outrider.store.remote.line.CONNECT_WITHIN", 0.2)
    place = str(socket_path(Path(file)))
    with socket.socket(socket.AF_UNIX) as owner, contextlib.ExitStack() as crowd:
        owner.bind(place)
        owner.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                visitor = crowd.enter_context(socket.socket(socket.AF_UNIX))
                visitor.setblocking(False)
                visitor.connect(place)
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await RemoteStore.connect(file)
