"""Examination of a store on Redis, or on a cluster: every server, and the store; only reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from redis import exceptions as driver

from outrider.clock import Clock
from outrider.errors import OutriderError
from outrider.store.health import (
    Check,
    ServerHealth,
    check_of,
    clock_check,
    connections_check,
)
from outrider.store.redis.cluster import ClusterNodes, check_complete, read_url, scripts_of_shards
from outrider.store.redis.connect import (
    KEPT_PROMISES,
    UNKNOWN_PROMISE,
    address_of,
    check_policy,
    check_role,
    check_version,
    client_of,
    connect_error,
    durability_promise,
    read_setting,
    server_info,
)
from outrider.store.redis.keys import META, base_of
from outrider.store.redis.rows import FORMAT
from outrider.store.redis.script_client import ScriptClient, translate_error

_PERSIST: Final = "set appendonly yes and appendfsync everysec, or always"
_UPGRADE: Final = "it is brought up to date when it is opened next; end older releases first"
_MAKE_ROOM: Final = "when it is full, nothing can be added or claimed; raise maxmemory"
_MAKE_DISK_ROOM: Final = "it may refuse changes until it can write; free its disk, see its log"
_WRITE_STATES: Final = ("aof_last_write_status", "rdb_last_bgsave_status")
MAX_USED_SHARE: Final = 0.9  # of maxmemory, above which there is a problem
_FAILURES: Final = (driver.RedisError, driver.RedisClusterException, OSError)


async def examine(url: str, clock: Clock) -> ServerHealth:
    """Examine the server and the store that a URL names."""
    address = address_of(url)
    scripts = ScriptClient(client_of(address), base_of(address.prefix), clock)
    try:
        checks = await _examine_server(scripts, address.place, clock, is_cluster=False)
        if not checks[0].is_ok:
            return ServerHealth(checks, False)
        store, has_store = await _store(scripts)
        return ServerHealth([*checks, store], has_store)
    finally:
        await scripts.client.aclose()


async def examine_cluster(url: str, clock: Clock) -> ServerHealth:
    """Examine every master of a cluster, and the shards of the store on it."""
    seeds, _ = read_url(url)
    nodes, checks = ClusterNodes(seeds), list[Check]()
    try:
        for place in await nodes.masters():
            scripts = ScriptClient(nodes.client(place), base_of(), clock)
            found = await _examine_server(scripts, place, clock, is_cluster=True)
            checks += [Check(f"{place} {c.what}", c.is_ok, c.found, c.fix) for c in found]
        store, has_store = await _shards(nodes, seeds[0].prefix, seeds[0].place, clock)
        return ServerHealth([*checks, store], has_store)
    except _FAILURES as error:
        problem = str(connect_error(error, seeds[0].place))
        return ServerHealth([*checks, Check("reachable", False, problem)], False)
    finally:
        await nodes.aclose()


async def _examine_server(
    scripts: ScriptClient, place: str, clock: Clock, *, is_cluster: bool
) -> list[Check]:
    before = clock.now_ms()
    try:
        info = await server_info(scripts)
        seconds = (clock.now_ms() - before) / 1000
        reached = Check("reachable", True, f"{place}, in {seconds:.3f} s")
        checks = _checks(scripts, place, info, clock, is_cluster=is_cluster)
        return [reached, *[check async for check in checks]]
    except _FAILURES as error:
        return [Check("reachable", False, str(connect_error(error, place)))]


async def _checks(
    scripts: ScriptClient, place: str, info: Mapping[str, Any], clock: Clock, *, is_cluster: bool
) -> AsyncIterator[Check]:
    kind = "valkey" if "valkey_version" in info else "redis"
    version = f"{kind.title()} {info.get(f'{kind}_version', 'of a version it does not tell')}"
    yield _passes("server", version, lambda: check_version(info, place))
    role = str(info.get("role", "unknown"))
    yield _passes("role", role, lambda: check_role(info, place, is_cluster=is_cluster))
    policy = str(info.get("maxmemory_policy", "unknown"))
    yield _passes("eviction", policy, lambda: check_policy(info, place))
    if "used_memory" in info:
        yield _memory(info)
        yield _last_writes(info)
    promise = await durability_promise(scripts, info)
    is_kept = promise in (*KEPT_PROMISES, UNKNOWN_PROMISE)
    yield check_of("durability", is_kept, promise, _PERSIST)
    yield await _clock(scripts, clock)
    limit = info.get("maxclients") or await read_setting(scripts, "maxclients")
    if limit is not None and "connected_clients" in info:
        yield connections_check("connections", int(info["connected_clients"]), int(limit))


def _memory(info: Mapping[str, Any]) -> Check:
    """Check what is left of `maxmemory`: at its limit every verb that writes is refused."""
    used, limit = int(info["used_memory"]), int(info.get("maxmemory", 0))
    if not limit:
        return Check("memory", True, f"{used:,} bytes in use, no limit")
    found = f"{used:,} of {limit:,} bytes in use"
    return check_of("memory", used < MAX_USED_SHARE * limit, found, _MAKE_ROOM)


def _last_writes(info: Mapping[str, Any]) -> Check:
    """Check what the server last wrote: after a failure it may refuse further changes."""
    failed = [name for name in _WRITE_STATES if info.get(name, "ok") != "ok"]
    found = ", ".join(failed) + " is not ok" if failed else "its last writes to disk succeeded"
    return check_of("disk", not failed, found, _MAKE_DISK_ROOM)


def _passes(what: str, found: str, check: Callable[[], None]) -> Check:
    try:
        check()
    except OutriderError as error:
        return Check(what, False, str(error))
    return Check(what, True, found)


async def _clock(scripts: ScriptClient, clock: Clock) -> Check:
    before = clock.now_ms()
    seconds, micros = await scripts.client.execute_command("TIME")
    return clock_check("clock", before, int(seconds) * 1000 + int(micros) / 1000, clock.now_ms())


# ---- the store


async def _store(scripts: ScriptClient) -> tuple[Check, bool]:
    """Check the store's format; return whether it can be opened as it is."""
    try:
        version = await scripts.client.execute_command("HGET", scripts.base + META, "format")
    except driver.ResponseError as error:
        return Check("store", False, str(translate_error(error))), False
    if version is None:
        return Check("store", True, "none under this prefix yet"), False
    number = int(version)
    if number > FORMAT:
        found = f"format {number}, of a newer release; this one reads {FORMAT}"
        return Check("store", False, found, "upgrade Outrider"), False
    pending = f", {FORMAT - number} upgrades pending" if number < FORMAT else ""
    return check_of("store", not pending, f"format {number}{pending}", _UPGRADE), not pending


async def _shards(nodes: ClusterNodes, prefix: str, place: str, clock: Clock) -> tuple[Check, bool]:
    try:
        shards = await scripts_of_shards(nodes, prefix, clock)
        if not shards:
            return Check("store", True, "none under this prefix yet"), False
        await check_complete(shards, place)
        return await _store(shards[0])
    except OutriderError as error:
        return Check("store", False, str(error)), False
