"""The store factory: opens the store that a URL or a path names. Only this module names stores.

The first process that opens a path holds the file, and serves other processes through its socket.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Final, TypeAlias

from outrider.clock import Clock
from outrider.errors import InvalidInput, StoreUnavailable, StoreUnresponsive, StoreUnusable
from outrider.store.address import check_address, show_address
from outrider.store.health import (
    Copied,
    Diagnosis,
    Holder,
    Purpose,
    Rescued,
    ServerHealth,
    Tell,
)
from outrider.store.memory import MemoryStore
from outrider.store.protocol import FullStore, SharedValue

Hold: TypeAlias = Callable[[], Awaitable[FullStore | None]]  # None: another process holds the file

HOLDER_TIMEOUT: Final = 4.0  # seconds for a holder that does not serve yet, or is closing
RETRY_INTERVAL: Final = 0.1  # seconds
POSTGRES: Final = ("postgresql://", "postgres://")
REDIS: Final = ("redis://", "rediss://", "valkey://", "valkeys://", "unix://")
CLUSTER: Final = tuple(f"{name}+cluster://" for name in ("redis", "rediss", "valkey", "valkeys"))


async def open_store(
    url: str, clock: Clock, *, durability: str = "process", purpose: Purpose = ""
) -> FullStore:
    """Open the store that a URL or a path names; the caller closes it.

    `purpose` is what others are told of this process while it holds a file.
    """
    if url == "memory://":
        return MemoryStore(clock)
    if url.startswith(POSTGRES):
        return await _open_postgres(url, clock)
    if url.startswith(REDIS + CLUSTER):
        return await _open_redis(url, clock)
    check_address(url)
    if "://" in url or not url or "\0" in url:
        raise _unknown_store(url)
    hold = partial(_hold_file, os.fspath(url), clock, durability, purpose)
    return await _open_file(os.fspath(url), hold)


def _unknown_store(url: str) -> InvalidInput:
    return InvalidInput(
        f"no store answers to {show_address(url)[:200]!r}; this release opens a path, "
        "'memory://', 'postgresql://host/database', or 'redis://host:port/0'"
    )


_NO_POSTGRES: Final = (
    "a store on PostgreSQL needs packages that are not installed: pip install 'outrider[postgres]'"
)
_NO_REDIS: Final = (
    "a store on Redis needs a package that is not installed: pip install 'outrider[redis]'"
)


async def _open_postgres(url: str, clock: Clock) -> FullStore:
    try:
        from outrider.store.postgres import PostgresStore
    except ImportError as error:  # also raised where the driver lacks its library
        raise InvalidInput(_NO_POSTGRES) from error
    return await PostgresStore.open(url, clock)


async def _open_redis(url: str, clock: Clock) -> FullStore:
    try:
        from outrider.store.redis import ClusterStore, RedisStore
    except ModuleNotFoundError as error:
        raise InvalidInput(_NO_REDIS) from error
    kind = ClusterStore if url.startswith(CLUSTER) else RedisStore
    return await kind.open(url, clock)


def is_on_server(url: str) -> bool:
    """Tell whether a URL names a store on a server, which `examine_server` examines."""
    return url.startswith(POSTGRES + REDIS + CLUSTER)


async def examine_server(url: str, clock: Clock) -> ServerHealth:
    """Examine the servers of a store, and the store; nothing is created, migrated or written."""
    if url.startswith(POSTGRES):
        try:
            from outrider.store.postgres import doctor as postgres
        except ImportError as error:
            raise InvalidInput(_NO_POSTGRES) from error
        return await asyncio.to_thread(postgres.examine, url, clock)
    try:
        from outrider.store.redis import doctor as redis
    except ModuleNotFoundError as error:
        raise InvalidInput(_NO_REDIS) from error
    is_cluster = url.startswith(CLUSTER)
    return await (redis.examine_cluster if is_cluster else redis.examine)(url, clock)


async def _open_file(path: str, hold: Hold) -> FullStore:
    """Hold the file, or join its holder; a holder that does not answer is reported at once."""
    loop = asyncio.get_running_loop()
    until = loop.time() + HOLDER_TIMEOUT
    while True:
        store = await hold()
        if store is not None:
            return store
        try:
            return await _join_holder(path, lambda: _take_over(path, hold))
        except StoreUnresponsive:
            raise
        except StoreUnavailable as error:
            if loop.time() >= until:
                raise StoreUnavailable(f"{error}; {_unserved(path)}") from error
            await asyncio.sleep(RETRY_INTERVAL)


async def _hold_file(
    path: str, clock: Clock, durability: str, purpose: Purpose
) -> FullStore | None:
    """Open the file in this process and serve it to others; None if another process holds it."""
    from outrider.store.embedded import EmbeddedStore
    from outrider.store.remote import StoreServer

    process = _process(os.getpid())
    store = EmbeddedStore.open(path, clock, durability=durability, process=process, purpose=purpose)
    if store is None:
        return None
    try:
        store.before_close((await StoreServer.open(store, path)).close)
    except OSError:  # no socket can be created here: only this process uses the file
        return store
    except BaseException:
        await store.close()
        raise
    return store


async def _join_holder(path: str, take_over: Hold | None) -> FullStore:
    """Connect to the process that holds the file."""
    from outrider.store.embedded.lock import not_answering
    from outrider.store.remote import RemoteStore

    return await RemoteStore.connect(
        path,
        process=f"{_process(os.getpid())}/{next(_connections)}",
        take_over=take_over,
        explain=lambda seconds: not_answering(Path(path), seconds),
    )


async def _take_over(path: str, hold: Hold) -> FullStore | None:
    """Hold the file after its holder ended; a file that is gone is not created again."""
    if not os.path.exists(path):  # noqa: ASYNC240, PTH110 - opening it blocks for longer
        raise StoreUnusable(f"{path}: the process that held it has ended, and the file is gone")
    return await hold()


async def join_store(path: str) -> FullStore | None:
    """Connect to the process that holds a file, for readers that never hold it themselves.

    Returns None if no process holds it.
    """
    from outrider.store.embedded.lock import holder_of

    loop = asyncio.get_running_loop()
    until = loop.time() + HOLDER_TIMEOUT
    while holder_of(Path(path)) is not None:
        try:
            return await _join_holder(path, None)
        except StoreUnresponsive:
            raise
        except StoreUnavailable as error:
            if loop.time() >= until:
                raise StoreUnavailable(f"{error}; {_unserved(path)}") from error
            await asyncio.sleep(RETRY_INTERVAL)
    return None


def _unserved(path: str) -> str:
    from outrider.store.embedded.lock import not_serving

    return not_serving(Path(path), HOLDER_TIMEOUT)


@lru_cache(maxsize=1)
def _process(pid: int) -> str:  # noqa: ARG001 - a forked child is another process
    """Return the name of this process in leases; no other process ever has it."""
    return token_hex(8)


_connections: Final = count(1)


# ---- tools for files


async def checkpoint(
    store: str | os.PathLike[str], copy: str | os.PathLike[str], *, tell: Tell = lambda _: None
) -> Copied:
    """Copy a file as it is now, whether or not a process holds it.

    `copy` must not exist; it appears when it is whole, and opens like the file itself.
    """
    from outrider.store.embedded.checkpoint import checkpoint

    return await checkpoint(file_of(store, "no file to copy"), Path(copy), tell)


def examine(
    store: str | os.PathLike[str],
    clock: Clock,
    *,
    tell: Tell = lambda _: None,
    see_settings: Callable[[str, str, Sequence[SharedValue]], object] = lambda *_: None,
) -> Diagnosis:
    """Report what is intact of a file; nothing is written. Blocks.

    `see_settings` is called with each crawl's name, its settings as text and its shared values, if
    the file can be loaded.
    """
    from outrider.store.embedded.doctor import examine

    return examine(file_of(store, "no file to examine"), clock, tell, see_settings)


def rescue(
    store: str | os.PathLike[str],
    new: str | os.PathLike[str],
    clock: Clock,
    *,
    tell: Tell = lambda _: None,
) -> Rescued:
    """Write everything intact of a file to a new one, which must not exist. Blocks."""
    from outrider.store.embedded.rescue import rescue

    return rescue(file_of(store, "no file to rescue"), Path(new), clock, tell)


def peek_file(store: str | os.PathLike[str]) -> tuple[Holder | None, tuple[object, ...]]:
    """Return the holder of a file, and a value that changes when it is written; reads only
    metadata.
    """
    from outrider.store.embedded.lock import holder_of
    from outrider.store.embedded.read_only_file import traces

    file = file_of(store, "no file to look at")
    return holder_of(file), traces(file)


def file_of(store: str | os.PathLike[str], lacks: str) -> Path:
    """Return the file of a store; other stores are refused with an alternative."""
    name = os.fspath(store)
    check_address(name)
    if "://" in name or not name or "\0" in name:
        if not (is_on_server(name) or name == "memory://"):
            raise _unknown_store(name)
        raise InvalidInput(
            f"{show_address(name)} has {lacks}; `outrider export` writes the crawls of any store"
            " as text"
        )
    return Path(name)
