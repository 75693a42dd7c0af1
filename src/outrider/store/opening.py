"""URL → store: the only namer of concrete stores.

A path is a file of ours: whoever opens it first holds it and serves the others through its socket.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from outrider.clock import Clock
from outrider.errors import InvalidInput, StoreUnavailable
from outrider.store.address import check_address, show_address
from outrider.store.health import Copied, Diagnosis, Holder, Rescued, Tell
from outrider.store.memory import MemoryStore
from outrider.store.protocol import FullStore

TRIES: Final = 50  # between holding a file and serving it, and between ending and letting go
PAUSE: Final = 0.1  # seconds between two of them
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
    from outrider.store.embedded import EmbeddedStore
    from outrider.store.remote import Door, RemoteStore

    for left in reversed(range(TRIES)):
        store = EmbeddedStore.open(path, clock, durability=durability)
        if store is not None:
            try:
                with suppress(OSError):  # the system takes no socket: the file serves this process
                    store.before_close((await Door.open(store, path)).close)
            except BaseException:
                await store.close()
                raise
            return store
        try:
            return await RemoteStore.connect(path)
        except StoreUnavailable:
            if not left:
                raise
            await asyncio.sleep(PAUSE)
    raise AssertionError("unreachable")


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
