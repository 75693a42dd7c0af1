"""Where the socket stands, and who may come through it."""

import contextlib
import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from outrider.errors import StoreError, StoreUnavailable
from outrider.store.remote import RemoteStore, StoreServer, socket_address, socket_path


@pytest.fixture
def short_temp(monkeypatch):
    """A directory for temporary things whose own path leaves room for a socket's."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


@pytest.fixture
def home(monkeypatch):
    """The home of this user, which is short as well."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        monkeypatch.setenv("HOME", directory)
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

    assert len(os.fsencode(path)) <= socket_address.MAX_PATH_BYTES
    assert path.is_relative_to(short_temp)
    assert path != socket_path(deep.with_name("other"))


async def test_a_long_path_is_found_by_both_sides(short_temp, deep, owned):
    """The directory is made by the owner, for its user alone."""
    server = await StoreServer.open(owned, str(deep))
    store = await RemoteStore.connect(str(deep))

    assert await store.crawls() == []
    assert stat.S_IMODE(socket_path(deep).parent.stat().st_mode) == 0o700

    await store.close()
    await server.close()


@pytest.mark.parametrize("kind", ["readable", "file", "link"])
async def test_owner_and_client_meet_at_home_if_the_temporary_directory_is_anothers(
    kind, short_temp, home, deep, owned
):
    """Another process may have taken the name: it could serve in place of the owner."""
    taken = short_temp / f"outrider-{os.geteuid()}"
    if kind == "readable":
        taken.mkdir(mode=0o755)
    elif kind == "file":
        taken.touch()
    else:
        (short_temp / "elsewhere").mkdir(mode=0o700)
        taken.symlink_to("elsewhere")
    server = await StoreServer.open(owned, str(deep))
    store = await RemoteStore.connect(str(deep))

    assert await store.crawls() == []
    assert server.path.is_relative_to(home)
    assert stat.S_IMODE(server.path.parent.stat().st_mode) == 0o700
    await store.close()
    await server.close()


async def test_owner_is_refused_with_paths_and_fix_if_no_place_is_private(
    short_temp, home, deep, owned
):
    """Neither of the two directories is this user's alone."""
    directories = socket_address._private_directories()
    for directory in directories:
        directory.mkdir(mode=0o755)

    with pytest.raises(StoreError, match="not a private directory") as refused:
        await StoreServer.open(owned, str(deep))
    assert all(f"{directory} is not" in str(refused.value) for directory in directories)
    assert "remove it" in str(refused.value)
    for directory in directories:
        directory.rmdir()
    await (await StoreServer.open(owned, str(deep))).close()


async def test_only_the_owner_may_connect(file, owned):
    """Whatever the umask says."""
    before = os.umask(0)
    try:
        server = await StoreServer.open(owned, file)
    finally:
        os.umask(before)

    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
    await server.close()


def test_nobody_connects_before_the_mode_is_set(tmp_path):
    """A bound socket refuses everybody until it listens, and `bound` does not let it."""
    path = tmp_path / "x.sock"
    waiting = socket_address.bind_socket(path)
    with socket.socket(socket.AF_UNIX) as early, pytest.raises(ConnectionRefusedError):
        early.connect(str(path))
    waiting.close()


def test_a_process_knows_its_own_user():
    """Asked of the kernel, not of the other side."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert socket_address.is_same_user(ours)


def test_another_user_is_told_apart(monkeypatch):
    """By the effective user, which is what files are opened as."""
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with ours, theirs:
        assert not socket_address.is_same_user(ours)


async def test_the_owner_lets_no_other_user_in(server, file, monkeypatch):
    """Not even root: its files would be the wrong user's."""
    monkeypatch.setattr("outrider.store.remote.server.is_same_user", lambda _connection: False)

    with pytest.raises(StoreUnavailable, match=r"before it said hello|cannot be reached"):
        await RemoteStore.connect(file)


async def test_nothing_is_said_to_another_users_socket(server, file, monkeypatch):
    """Anybody who may write to the directory can put a socket there."""
    monkeypatch.setattr("outrider.store.remote.connection.is_same_user", lambda _connection: False)

    with pytest.raises(StoreError, match="another user"):
        await RemoteStore.connect(file)


async def test_a_dead_owners_socket_is_replaced(file, owned):
    """Nobody answers there: it is left over."""
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(socket_path(Path(file))))

    with pytest.raises(StoreUnavailable, match="no process serves"):
        await RemoteStore.connect(file)
    server = await StoreServer.open(owned, file)
    store = await RemoteStore.connect(file)
    assert store.id == "one"
    await store.close()
    await server.close()


async def test_a_living_owners_socket_is_respected(server, store, file, owned):
    """Two owners of one file is a mistake, and the first goes on."""
    with pytest.raises(StoreError, match="another process serves"):
        await StoreServer.open(owned, file)

    assert await store.crawls() == []


OBSTACLES = {
    "file": lambda path: path.write_text("precious"),
    "directory": lambda path: path.mkdir(),
    "fifo": os.mkfifo,
    "link": lambda path: path.symlink_to("nowhere"),
    "link to a socket": lambda path: path.symlink_to("other.sock"),
}


@pytest.mark.parametrize("obstacle", OBSTACLES.values(), ids=OBSTACLES)
async def test_owner_and_client_meet_elsewhere_if_something_has_the_name_of_the_socket(
    obstacle, short_temp, home, file, owned
):
    """What is no socket is never removed, and does not keep the file from being opened."""
    path = socket_path(Path(file))
    obstacle(path)
    before = path.lstat()
    server = await StoreServer.open(owned, file)
    store = await RemoteStore.connect(file)

    assert await store.crawls() == []
    assert path.lstat() == before
    await store.close()
    await server.close()
    assert not server.path.exists()


async def test_socket_of_another_user_is_passed_over(short_temp, home, file, owned, monkeypatch):
    """By the owner, who may not remove it, and by clients, who would be served by a stranger."""
    path = socket_path(Path(file))
    with socket.socket(socket.AF_UNIX) as strangers:
        strangers.bind(str(path))
        strangers.listen()
        lstat = Path.lstat

        def seen(self):
            found = lstat(self)
            return os.stat_result((*found[:4], 4_000_000, *found[5:])) if self == path else found

        monkeypatch.setattr(Path, "lstat", seen)
        server = await StoreServer.open(owned, file)
        store = await RemoteStore.connect(file)

        assert await store.crawls() == []
        assert server.path.is_relative_to(short_temp)
        await store.close()
        await server.close()


async def test_owner_serves_elsewhere_if_the_directory_takes_no_socket(
    short_temp, home, tmp_path, owned
):
    """Here because it is missing; a network mount refuses as well."""
    server = await StoreServer.open(owned, str(tmp_path / "nowhere" / "crawl"))

    assert server.path.is_relative_to(short_temp)
    await server.close()


async def test_socket_that_cannot_be_made_anywhere_is_an_error_of_the_system(
    tmp_path, owned, monkeypatch
):
    """Nothing is in the way, so there is nothing to remove."""
    monkeypatch.setattr(socket_address, "_private_directories", list)

    with pytest.raises(OSError, match=r"no socket can be made at .*nowhere"):
        await StoreServer.open(owned, str(tmp_path / "nowhere" / "crawl"))


async def test_owner_that_cannot_listen_leaves_no_socket_behind(file, owned, monkeypatch):
    """The next attempt finds everything as it was."""

    def refused(*_, **__):
        raise RuntimeError("no loop serves")

    with monkeypatch.context() as patch:
        patch.setattr("outrider.store.remote.server.StoreServer._accept", refused)
        with pytest.raises(RuntimeError, match="no loop serves"):
            await StoreServer.open(owned, file)

    assert not socket_path(Path(file)).exists()
    await (await StoreServer.open(owned, file)).close()


async def test_closing_leaves_a_new_owners_socket_alone(file, owned):
    """The path belongs to whoever serves it now."""
    first = await StoreServer.open(owned, file)
    first.path.unlink()
    second = await StoreServer.open(owned, file)

    await first.close()
    assert second.path.exists()
    await second.close()
    assert not second.path.exists()


async def test_who_is_not_let_in_is_told_that_the_owner_is_busy(file, monkeypatch):
    """A full backlog is tried again for a while; what was not accepted is no line."""
    monkeypatch.setattr("outrider.store.remote.connection.CONNECT_TIMEOUT", 0.2)
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
