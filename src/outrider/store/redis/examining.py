"""A server is looked at before it is trusted: version, role, memory, rights, whose keys these are.

What it may not be asked is said to be unchecked. What its persistence promises is one sentence.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from redis import exceptions as driver

from outrider.errors import StoreError, StoreUnavailable, StoreUnusable
from outrider.store.redis.calling import Line, ours
from outrider.store.redis.rows import FORMAT
from outrider.store.redis.scripts import SCRIPTS

MINIMUM: Final = {"redis": (6, 2), "valkey": (7, 2)}

_FSYNC: Final = {
    "always": "appendfsync always: what was answered survives a crash of the server",
    "everysec": "appendfsync everysec: a crash of the server loses up to 1 s",
    "no": "appendfsync no: a crash of the machine loses what the system had not written yet",
}
_NOTHING: Final = "no persistence: a crash or restart of the server loses everything"
_SNAPSHOTS: Final = "snapshots alone: a crash of the server loses all since the last ({})"
_UNKNOWN: Final = "what its persistence promises could not be checked: CONFIG is forbidden here"


async def examined(line: Line, place: str, *, is_cluster: bool = False) -> str:
    """What the server promises; one that will not do is refused with the fix."""
    try:
        about = await _info(line)
    except (driver.RedisError, driver.RedisClusterException, OSError) as error:
        raise _unmet(error, place) from error
    _check_version(about, place)
    if about.get("role", "master") not in ("master", "primary"):
        raise StoreUnusable(f"Redis at {place} is a replica, which is read-only: name its primary")
    if about.get("cluster_enabled") in (1, "1") and not is_cluster:
        raise StoreUnusable(
            f"Redis at {place} is a node of a cluster: open it as redis+cluster://{place}"
        )
    policy = about.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StoreUnusable(
            f"Redis at {place} throws keys away when it is full (maxmemory-policy {policy}):"
            " set maxmemory-policy noeviction"
        )
    return await _promise(line, about)


async def _info(line: Line) -> Mapping[str, Any]:
    try:
        found = await line.client.execute_command("INFO")
    except driver.NoPermissionError:
        return {}  # a right one can do without
    return found if isinstance(found, dict) else {}


def _unmet(error: Exception, place: str) -> StoreError:
    """Why nobody can be met there, and what to do."""
    text = str(error)
    if "SSL" in text or "certificate" in text.lower():
        return StoreUnusable(
            f"TLS with Redis at {place} failed ({text}): renew the certificate, name its"
            " authority by ?ssl_ca_certs=FILE, or use redis:// if the server speaks no TLS"
        )
    if isinstance(error, driver.InvalidResponse) or "rotocol" in text:
        return StoreUnusable(f"what answers at {place} is no Redis ({text})")
    if isinstance(error, driver.AuthenticationError) or "NOAUTH" in text or "WRONGPASS" in text:
        return StoreUnusable(
            f"Redis at {place} refused the user or the password ({text}):"
            " write them as redis://user:password@host"
        )
    if "invalid DB index" in text or "DB index is out of range" in text:
        return StoreUnusable(f"Redis at {place} has no such database ({text}): try /0")
    found = ours(error)
    if isinstance(found, StoreUnavailable):
        return StoreUnavailable(f"no Redis answers at {place} ({text}): is it running?")
    return found


def _check_version(about: Mapping[str, Any], place: str) -> None:
    kind = "valkey" if "valkey_version" in about else "redis"
    version = str(about.get(f"{kind}_version", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < MINIMUM[kind]:
        least = ".".join(map(str, MINIMUM[kind]))
        raise StoreUnusable(
            f"{kind.title()} at {place} is {version}, and {least} is the oldest that will do:"
            " upgrade it"
        )


async def _promise(line: Line, about: Mapping[str, Any]) -> str:
    if about.get("aof_enabled") not in (0, "0", None):
        fsync = await _setting(line, "appendfsync")
        return _UNKNOWN if fsync is None else _FSYNC.get(fsync, f"appendfsync {fsync}")
    save = await _setting(line, "save")
    if save is None:
        return _UNKNOWN
    return _SNAPSHOTS.format(f"save {save}") if save else _NOTHING


async def _setting(line: Line, name: str) -> str | None:
    try:
        found = await line.client.execute_command("CONFIG GET", name)
    except driver.ResponseError:
        return None  # managed servers forbid it
    values = list(found.values()) if isinstance(found, dict) else list(found)[1:]
    value = values[0] if values else None
    return value.decode() if isinstance(value, bytes) else value


async def settled(line: Line, place: str, *, shard: int = 0, shards: int = 1) -> str:
    """The store's id; one that was never here is begun, one that is not ours refused."""
    try:
        found = await line.evaluate(
            SCRIPTS["settle"], 1, line.base, FORMAT, uuid.uuid4().hex, shard, shards
        )
    except (driver.RedisError, driver.RedisClusterException, OSError) as error:
        raise _unmet(error, place) from error
    words = [word.decode() if isinstance(word, bytes) else str(word) for word in found]
    match words:
        case ["foreign", key]:
            raise StoreUnusable(
                f"Redis at {place} has a key {key!r} that is not ours: choose another ?prefix="
            )
        case ["format", version]:
            raise StoreUnusable(
                f"the store at {place} was written by a newer Outrider (format {version}, this"
                f" one reads {FORMAT}): upgrade this one"
            )
        case ["refused", command, why]:
            raise StoreUnusable(
                f"Redis at {place} does not let this user call {command} ({why}):"
                f" ACL SETUSER name +@all ~{line.base.split(':')[0]}:* gives all it needs"
            )
        case [_, store_id, was_shard, of_shards]:
            _check_shard(place, (int(was_shard), int(of_shards)), (shard, shards))
            return store_id
        case _:
            raise StoreUnusable(f"the store at {place} says {words!r}, which is not ours")


def _check_shard(place: str, was: tuple[int, int], now: tuple[int, int]) -> None:
    if was != now:
        raise StoreUnusable(
            f"the store at {place} has {was[1]} shards, and was opened as one of {now[1]}"
        )
