"""One server of a kind for all processes of a run: the first to ask starts it, the last ends it."""

from __future__ import annotations

import fcntl
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

from servers.cluster import ValkeyCluster
from servers.postgres import FAST, PostgresServer
from servers.shared_directory import nest
from servers.valkey import ValkeyServer

Kind: TypeAlias = Literal["postgres", "redis", "cluster"]

_SMALL: Final = {"shared_buffers": "64MB", "max_wal_size": "256MB", "autovacuum": "off"}


@cache
def shared_url(kind: Kind, run: str) -> str:
    """The server of this run, up and answering; nothing of it survives a power cut."""
    place = _nest(run) / kind
    with (place.parent / f"{kind}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = place.parent / f"{kind}.url"
        if not known.exists():
            known.write_text(_started(kind, place))
        return known.read_text()


@cache
def _nest(run: str) -> Path:
    return nest(run)


def _started(kind: Kind, place: Path) -> str:
    place.mkdir()
    server = _made(kind, place).start()
    server.leave()
    return server.url


def _made(kind: Kind, place: Path) -> PostgresServer | ValkeyServer | ValkeyCluster:
    match kind:
        case "postgres":
            return PostgresServer(place, options={**FAST, **_SMALL})
        case "redis":
            return ValkeyServer(place)
        case "cluster":
            return ValkeyCluster(place)
