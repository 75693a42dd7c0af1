"""Servers shared by all processes of a test run: the first user starts one, the last ends it."""

from __future__ import annotations

import fcntl
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

from servers.cluster import ValkeyCluster
from servers.postgres import FAST, PostgresServer
from servers.shared_directory import shared_directory
from servers.valkey import ValkeyServer

Kind: TypeAlias = Literal["postgres", "redis", "cluster"]

_SMALL: Final = {"shared_buffers": "64MB", "max_wal_size": "256MB", "autovacuum": "off"}


@cache
def shared_url(kind: Kind, run: str) -> str:
    """Return the URL of this run's server, which answers; it is not durable."""
    place = _directory(run) / kind
    with (place.parent / f"{kind}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = place.parent / f"{kind}.url"
        if not known.exists():
            known.write_text(_start(kind, place))
        return known.read_text()


@cache
def _directory(run: str) -> Path:
    return shared_directory(run)


def _start(kind: Kind, place: Path) -> str:
    place.mkdir()
    server = _server(kind, place).start()
    server.leave()
    return server.url


def _server(kind: Kind, place: Path) -> PostgresServer | ValkeyServer | ValkeyCluster:
    match kind:
        case "postgres":
            return PostgresServer(place, options={**FAST, **_SMALL})
        case "redis":
            return ValkeyServer(place)
        case "cluster":
            return ValkeyCluster(place)
