"""URL → store: the only namer of concrete stores.

A path is a file of ours: whoever opens it first holds it and serves the others through its socket.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import lru_cache
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Final

from outrider.clock import Clock
from outrider.errors import InvalidInput, StoreUnavailable, StoreUnresponsive, StoreUnusable
from outrider.store.address import check_address, show_address
from outrider.store.health import Copied, Diagnosis, Holder, Rescued, Tell
from outrider.store.memory import MemoryStore
from outrider.store.protocol import FullStore

WAIT: Final = 4.0  # seconds for a holder that serves not yet, or serves no longer but still holds
PAUSE: Final = 0.1  # seconds between two tries meanwhile
POSTGRES: Final = ("postgresql://", "postgres://")
REDIS: Final = ("redis://", "rediss://", "valkey://", "valkeys://", "unix://")
CLUSTER: Final = tuple(f"{name}+cluster://" for name in ("redis", "rediss", "valkey", "valkeys"))


async def open_store(url: str, clock: Clock, *, durability: str = "process") -> FullStore:
    """Open the store a URL or a path names; the caller closes it."""
    if url == "memory://":
        return MemoryStore(clock)
    if url.startswith(POSTGRES):
        return await _open_postgres(url, clock)
    if url.startswith(REDIS + CLUSTER):
        return await _open_redis(url, clock)
    check_address(url)
    if "://" in url or not url or "\0" in url:
        raise InvalidInput(
            f"no store answers to {show_address(url)[:200]!r}; this release opens a path, "
            "'memory://', 'postgresql://host/database', or 'redis://host:port/0'"
        )
    return await _open_file(os.fspath(url), clock, durability)


async def _open_postgres(url: str, clock: Clock) -> FullStore:
    try:
        from outrider.store.postgres import PostgresStore
    except ImportError as error:  # also raised where the driver lacks its library
        raise InvalidInput(
            "a store on PostgreSQL needs packages that are not installed: "
            "pip install 'outrider[postgres]'"
        ) from error
    return await PostgresStore.open(url, clock)


async def _open_redis(url: str, clock: Clock) -> FullStore:
    try:
        from outrider.store.redis import ClusterStore, RedisStore
    except ModuleNotFoundError as error:
        raise InvalidInput(
            "a store on Redis needs a package that is not installed: pip install 'outrider[redis]'"
        ) from error
    kind = ClusterStore if url.startswith(CLUSTER) else RedisStore
    return await kind.open(url, clock)


async def _open_file(path: str, clock: Clock, durability: str) -> FullStore:
    """Hold the file, or join its holder; one that is there and silent is told at once."""
    loop = asyncio.get_running_loop()
    until = loop.time() + WAIT
    while True:
        store = await _held(path, clock, durability)
        if store is not None:
            return store
        try:
            return await _joined(path, lambda: _taken_over(path, clock, durability))
        except StoreUnresponsive:
            raise
        except StoreUnavailable as error:
            if loop.time() >= until:
                raise StoreUnavailable(f"{error}; {_unserved(path)}") from error
            await asyncio.sleep(PAUSE)


async def _held(path: str, clock: Clock, durability: str) -> FullStore | None:
    """The file's store, held by this process and served to others; None if another holds it."""
    from outrider.store.embedded import EmbeddedStore
    from outrider.store.remote import StoreServer

    store = EmbeddedStore.open(path, clock, durability=durability, process=_process(os.getpid()))
    if store is None:
        return None
    try:
        store.before_close((await StoreServer.open(store, path)).close)
    except OSError:  # no socket can be made here: the file serves its holder alone
        return store
    except BaseException:
        await store.close()
        raise
    return store


async def _joined(
    path: str, take_over: Callable[[], Awaitable[FullStore | None]] | None
) -> FullStore:
    """The store of the process that holds the file."""
    from outrider.store.embedded.lock import not_answering
    from outrider.store.remote import RemoteStore

    return await RemoteStore.connect(
        path,
        process=f"{_process(os.getpid())}/{next(_connections)}",
        take_over=take_over,
        explain=lambda seconds: not_answering(Path(path), seconds),
    )


async def _taken_over(path: str, clock: Clock, durability: str) -> FullStore | None:
    """Hold the file whose holder has gone; one that is gone itself is not made again."""
    if not os.path.exists(path):  # noqa: ASYNC240, PTH110 - opening it blocks for longer
        raise StoreUnusable(f"{path}: the process that held it has ended, and the file is gone")
    return await _held(path, clock, durability)


async def join_store(path: str) -> FullStore | None:
    """The store of the process that holds a file, for readers that never hold it themselves.

    None if no process holds it.
    """
    from outrider.store.embedded.lock import holder_of

    loop = asyncio.get_running_loop()
    until = loop.time() + WAIT
    while holder_of(Path(path)) is not None:
        try:
            return await _joined(path, None)
        except StoreUnresponsive:
            raise
        except StoreUnavailable as error:
            if loop.time() >= until:
                raise StoreUnavailable(f"{error}; {_unserved(path)}") from error
            await asyncio.sleep(PAUSE)
    return None


def _unserved(path: str) -> str:
    from outrider.store.embedded.lock import not_serving

    return not_serving(Path(path), WAIT)


@lru_cache(maxsize=1)
def _process(pid: int) -> str:  # noqa: ARG001 - a forked child is another process
    """This process's name in leases: no other has it, not even one that gets its number later."""
    return token_hex(8)


_connections: Final = count(1)


# ---- what is done to a file from outside


async def checkpoint(
    store: str | os.PathLike[str], copy: str | os.PathLike[str], *, tell: Tell = lambda _: None
) -> Copied:
    """Copy a file as it is at this moment, while its crawl runs or when nobody is there.

    `copy` must not exist; it appears when it is whole, and opens like the file itself.
    """
    from outrider.store.embedded.copying import checkpoint

    return await checkpoint(file_of(store, "no file to copy"), Path(copy), tell)


def examine(
    store: str | os.PathLike[str], clock: Clock, *, tell: Tell = lambda _: None
) -> Diagnosis:
    """What is intact of a file, and what is not; nothing is written. Blocks."""
    from outrider.store.embedded.doctor import examine

    return examine(file_of(store, "no file to examine"), clock, tell)


def rescue(
    store: str | os.PathLike[str],
    new: str | os.PathLike[str],
    clock: Clock,
    *,
    tell: Tell = lambda _: None,
) -> Rescued:
    """Write whatever is intact of a file to a new one, which must not exist. Blocks."""
    from outrider.store.embedded.rescue import rescue

    return rescue(file_of(store, "no file to rescue"), Path(new), clock, tell)


def glance(store: str | os.PathLike[str]) -> tuple[Holder | None, tuple[object, ...]]:
    """Who holds a file, and what is other once it was written; nobody is disturbed."""
    from outrider.store.embedded.lock import holder_of
    from outrider.store.embedded.looking import traces

    file = file_of(store, "no file to look at")
    return holder_of(file), traces(file)


def file_of(store: str | os.PathLike[str], lacks: str) -> Path:
    """The file behind a store; others are refused with what does the same for them."""
    name = os.fspath(store)
    check_address(name)
    if "://" in name or not name or "\0" in name:
        what = f"{show_address(name)} has {lacks}" if "://" in name else f"{name!r} is no file"
        raise InvalidInput(f"{what}; `outrider export` writes the crawls of any store as text")
    return Path(name)
